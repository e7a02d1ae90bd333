"""Observers see every step: what they report is what a replay by hand of all positions gives."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from infonce_jax import energies, integrators, observers, run_chains, scenarios, schedules
from infonce_jax.checks import InputError

H, STEPS, CHAINS, SKIP = 0.03, 300, 64, 10
LEVEL, RADIUS = 2.081, 1.2  # chosen so that some chains pass at the start, some later, and some never
BETA = schedules.logarithmic(0.66)
EULER, MALA = integrators.geodesic_euler(H), integrators.mala(0.2)
RING = scenarios.ring(3).energy
FREE = energies.from_function(lambda x: 0.0 * jnp.sum(x), shape=(1, 2))
CENTRES = np.random.default_rng(5).normal(size=(2, 3, 2))
CENTRES /= np.linalg.norm(CENTRES, axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def data():
    """A run that kept everything, in chunks that end between the times of records."""
    everywhere = H * np.arange(STEPS + 1)
    watching = (
        observers.snapshots(times=everywhere),
        observers.energies(times=everywhere),
        observers.first_passage(energy_below=LEVEL),
        observers.first_passage(within=RADIUS, of=CENTRES, name="near"),
        observers.best_energy(),
        observers.average(lambda x, energy: energy, name="mean_energy", skip_steps=SKIP),
        observers.average(lambda x, energy: x[:2], name="mean_position"),
    )
    return run_chains(
        RING, BETA, EULER, num_chains=CHAINS, num_steps=STEPS, seed=1, observers=watching, chunk=17
    ).data.load()


def distances(positions):
    """Geodesic distance of the product, (sum of angles^2)^(1/2), to each centre: (..., centres), in float64."""
    x = positions.astype(np.float64)[..., None, :, :]
    angles = 2 * np.arctan2(np.linalg.norm(x - CENTRES, axis=-1), np.linalg.norm(x + CENTRES, axis=-1))
    return np.sqrt(np.sum(angles**2, axis=-1))


def assert_first_below(values, level, times, censored):
    """values: (chains, steps + 1) along the run; a rounding of the level forgives a step either way, no more."""
    passed_at_start, passed_later = 0, 0
    for chain, row in enumerate(values):
        if censored[chain]:
            assert times[chain] == pytest.approx(STEPS * H)
            assert np.all(row > level - 1e-5)
        else:
            step = round(times[chain] / H)
            assert times[chain] == pytest.approx(step * H, rel=1e-12)
            assert row[step] <= level + 1e-5
            assert np.all(row[:step] > level - 1e-5)
            passed_at_start, passed_later = passed_at_start + (step == 0), passed_later + (step > 0)
    # The run must show every case, or the loop above has tested nothing.
    assert min(passed_later, np.sum(censored)) >= 5
    return passed_at_start


def test_first_passage_by_energy_is_the_first_step_below_the_level(data):
    assert_first_below(
        data["energy"].values, LEVEL, data["first_passage_time"].values, data["first_passage_censored"].values
    )


def test_first_passage_by_distance_is_the_first_step_within_the_radius_of_any_centre(data):
    nearest = distances(data["positions"].values).min(axis=-1)
    at_start = assert_first_below(nearest, RADIUS, data["near_time"].values, data["near_censored"].values)
    assert at_start >= 2


def test_a_chain_that_starts_inside_passes_at_time_zero():
    watch = observers.first_passage(within=0.1, of=[[1.0, 0.0]])
    data = run_chains(FREE, BETA, EULER, num_chains=3, num_steps=5, initial=[[1.0, 0.0]], observers=[watch]).data
    np.testing.assert_array_equal(data["first_passage_time"], 0)
    assert not data["first_passage_censored"].any()


def test_a_passage_in_the_last_step_is_seen(data):
    times = data["first_passage_time"].values[~data["first_passage_censored"].values]
    last = round(float(np.median(times)) / H)
    watch = observers.first_passage(energy_below=LEVEL)
    short = run_chains(RING, BETA, EULER, num_chains=CHAINS, num_steps=last, seed=1, observers=[watch]).data
    np.testing.assert_array_equal(short["first_passage_censored"], data["first_passage_time"] > (last + 0.5) * H)
    assert np.any(np.isclose(short["first_passage_time"], last * H) & ~short["first_passage_censored"])


def test_a_chain_that_never_passes_is_censored_with_the_length_of_the_run():
    watch = observers.first_passage(energy_below=-1.0)
    data = run_chains(FREE, BETA, EULER, num_chains=3, num_steps=7, observers=[watch]).data
    np.testing.assert_allclose(data["first_passage_time"], 7 * H, rtol=1e-15)
    assert data["first_passage_censored"].all()


def test_energies_are_those_of_the_positions(data):
    with_numpy = np.asarray(data["positions"].values, np.float64)
    s = with_numpy @ np.swapaxes(with_numpy, -1, -2) / 0.5
    positives = (np.roll(s, 1, axis=-1).diagonal(axis1=-2, axis2=-1) + np.roll(s, -1, -1).diagonal(0, -2, -1)) / 2
    others = np.where(np.eye(3, dtype=bool), 0.0, np.exp(s)).sum(-1)
    np.testing.assert_allclose(data["energy"], (np.log(others) - positives).sum(-1), rtol=0, atol=5e-6)


def test_best_energy_is_the_running_minimum_over_every_step(data):
    running = np.minimum.accumulate(data["energy"].values, axis=1)
    np.testing.assert_allclose(data["best_energy"], running[:, data["step_1"].values], rtol=0, atol=2e-6)


def test_average_is_the_mean_over_the_steps_after_the_burn_in(data):
    # Over states before a step, so the last snapshot is not among them.
    want = data["energy"].values[:, SKIP:STEPS].astype(np.float64).mean(axis=1)
    np.testing.assert_allclose(data["mean_energy"], want, rtol=0, atol=2e-6)


def test_average_keeps_the_shape_of_its_function(data):
    assert data["mean_position"].dims == ("chain", "mean_position_axis0", "mean_position_axis1")
    want = data["positions"].values[:, :STEPS, :2].astype(np.float64).mean(axis=1)
    np.testing.assert_allclose(data["mean_position"], want, rtol=0, atol=2e-6)


def test_average_of_no_step_is_not_a_number():
    watch = observers.average(lambda x, energy: energy, skip_steps=5)
    data = run_chains(FREE, BETA, EULER, num_chains=2, num_steps=5, observers=[watch]).data
    assert np.isnan(data["average"]).all()


def test_average_stays_exact_over_two_million_steps():
    terms = 2_000_000
    # What a plain sum in single precision makes of the same terms: .705, wrong in the third digit.
    assert abs(np.add.accumulate(np.full(terms, 0.7, np.float32))[-1] / terms - 0.7) > 5e-3
    watch = observers.average(lambda x, energy: 0.7 * jnp.sum(x * x))
    data = run_chains(
        FREE, BETA, EULER, num_chains=2, num_steps=terms, observers=[watch], chunk=200_000, num_devices=1
    ).data
    # 0.7 in single precision is off by 1e-8, |x|^2 by 6e-8 on average at most.
    np.testing.assert_allclose(data["average"], 0.7, rtol=0, atol=2e-7)


def test_euler_accepts_every_step():
    data = run_chains(RING, BETA, EULER, num_chains=3, num_steps=20, observers=[observers.acceptance()]).data
    np.testing.assert_array_equal(data["acceptance"], 1)


def test_mala_accepts_some_steps():
    data = run_chains(RING, BETA, MALA, num_chains=16, num_steps=200, observers=[observers.acceptance()]).data
    accepted = data["acceptance"].values
    assert np.all((accepted > 0.05) & (accepted < 0.99))


def test_acceptance_of_a_small_step_is_nearly_one():
    mala = integrators.mala(1e-3)
    data = run_chains(RING, BETA, mala, num_chains=16, num_steps=50, observers=[observers.acceptance()]).data
    assert np.all((data["acceptance"] > 0.99) & (data["acceptance"] <= 1))


def test_log_spaced_times_are_steps_without_repeats_from_zero_to_the_horizon():
    times = observers.log_spaced_times(horizon=300.0, step_size=0.03, num=61)
    steps = times / 0.03
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-9)
    np.testing.assert_allclose(times[[0, 1, -1]], [0, 0.03, 300], rtol=1e-12)
    assert np.all(np.diff(np.round(steps)) >= 1)
    # 61 points over four decades, where steps are long enough to show: equal ratios.
    late = times[times > 3.0]
    np.testing.assert_allclose(late[1:] / late[:-1], 10 ** (4 / 60), rtol=0.01)


def test_log_spaced_times_may_start_later():
    times = observers.log_spaced_times(horizon=100.0, step_size=0.1, num=5, first=1.0)
    np.testing.assert_allclose(times, [0, 1, 3.2, 10, 31.6, 100], rtol=1e-12)


def test_the_default_grid_runs_from_the_start_to_the_end(data):
    assert data["step_1"].values[0] == 0
    assert data["step_1"].values[-1] == STEPS
    np.testing.assert_allclose(data["time_1"], observers.log_spaced_times(STEPS * H, H), rtol=1e-12)


def test_time_is_step_times_step_size(data):
    for suffix in ("", "_1"):
        np.testing.assert_allclose(data[f"time{suffix}"], H * data[f"step{suffix}"], rtol=1e-15)


def test_the_inverse_temperature_along_time_is_the_schedule(data):
    for suffix in ("", "_1"):
        np.testing.assert_array_equal(data[f"inverse_temperature{suffix}"], BETA(data[f"time{suffix}"].values))


def test_observers_with_one_grid_share_one_time_axis(data):
    assert data["positions"].dims == ("chain", "time", "embedding", "coordinate")
    assert data["energy"].dims == ("chain", "time")
    assert data["best_energy"].dims == ("chain", "time_1")


def test_times_between_steps_are_moved_to_the_nearest_step():
    watch = observers.energies(times=(0.04, 0.05, 0.3))
    data = run_chains(FREE, BETA, EULER, num_chains=2, num_steps=10, observers=[watch]).data
    np.testing.assert_array_equal(data["step"], [1, 2, 10])


def test_the_data_set_says_how_it_was_made(data):
    assert data.attrs["schedule"] == BETA.name
    assert data.attrs["schedule_kind"] == "fixed"
    assert data.attrs["step_size"] == H
    assert data.attrs["num_steps"] == STEPS


@pytest.mark.parametrize(
    ("build", "what"),
    [
        (lambda: observers.first_passage(), "first_passage"),
        (lambda: observers.first_passage(1.0, within=0.2, of=[[1.0, 0.0]]), "first_passage"),
        (lambda: observers.first_passage(within=0.2), "first_passage"),
        (lambda: observers.first_passage(of=[[1.0, 0.0]]), "first_passage"),
        (lambda: observers.first_passage(energy_below=np.nan), "energy_below"),
        (lambda: observers.first_passage(within=0.0, of=[[1.0, 0.0]]), "within"),
        (lambda: observers.first_passage(within=0.2, of=[[2.0, 0.0]]), "of"),
        (lambda: observers.first_passage(within=0.2, of=[1.0, 0.0]), "of"),
        (lambda: observers.energies(times=(-1.0,)), "times"),
        (lambda: observers.snapshots(times=(np.nan,)), "times"),
        (lambda: observers.average(lambda x, e: e, skip_steps=-1), "skip_steps"),
        (lambda: observers.acceptance(skip_steps=0.5), "skip_steps"),
        (lambda: observers.log_spaced_times(0.0, 0.1), "horizon"),
        (lambda: observers.log_spaced_times(1.0, 0.1, num=0), "num"),
    ],
)
def test_bad_arguments_are_refused_in_one_line(build, what):
    with pytest.raises(InputError, match=rf"^{what}: got .*; needs .+; .+") as caught:
        build()
    assert "\n" not in str(caught.value)
