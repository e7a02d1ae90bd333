"""What must not happen quietly: numbers that are not finite, bad arguments, drift off the sphere, memory that grows."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infonce_jax import energies, integrators, observers, run_chains, scenarios, schedules
from infonce_jax.chains import RunStopped
from infonce_jax.chains import loop as loop_module
from infonce_jax.chains.engine import advance_chunk
from infonce_jax.checks import InputError
from infonce_jax.noise import chain_keys, normals

H = 0.02
EULER = integrators.geodesic_euler(H)
BETA = schedules.constant(1.0)
EDGE = 0.5
# Energy and gradient are NaN where z > EDGE, a cap that chains from the other pole reach after some dozens of steps.
CAP = energies.from_function(lambda x: -jnp.sqrt(EDGE - x[0, 2]) - 3 * x[0, 2], shape=(1, 3))
# The same with an operation that has no scalar form.
CAP_OF_ARRAYS = energies.from_function(lambda x: -jnp.sqrt(EDGE - jnp.sort(x[0, 2:])[0]) - 3 * x[0, 2], shape=(1, 3))
SOUTH = [[0.0, 0.0, -1.0]]


def stopped(energy=CAP, chunk=2048, num_chains=5, num_steps=2000, watching=(), **options):
    with pytest.raises(RunStopped) as caught:
        run_chains(energy, BETA, EULER, num_chains=num_chains, num_steps=num_steps, seed=2, initial=SOUTH, chunk=chunk,
                   observers=watching, **options)  # fmt: skip
    return caught.value


@pytest.mark.parametrize("energy", [CAP, CAP_OF_ARRAYS], ids=["scalars", "arrays"])
def test_a_run_stops_at_the_first_step_that_ends_where_the_energy_is_not_finite(energy):
    stop = stopped(energy)
    assert stop.step > 10
    # The same chains up to that step, every state kept: nobody is in the cap, and a run of one step more is stopped.
    watch = observers.snapshots(times=H * np.arange(stop.step))
    before = run_chains(energy, BETA, EULER, num_chains=5, num_steps=stop.step - 1, seed=2, initial=SOUTH,
                        observers=[watch])  # fmt: skip
    assert np.all(before.data["positions"].values[:, :, 0, 2] <= EDGE)
    np.testing.assert_array_equal(before.final_positions[stop.chain], stop.state)
    assert stopped(energy, num_steps=stop.step).step == stop.step
    # The step by hand, from the state that the error hands over, with that chain's numbers: it ends in the cap.
    noise = normals(chain_keys(2, np.array([stop.chain])), jnp.uint32(stop.step - 1), 3).reshape(1, 3)
    end, _ = EULER.step(EULER.init(energy, jnp.asarray(stop.state)), noise, jnp.float32(1.0))
    assert end.positions[0, 2] > EDGE


@pytest.mark.parametrize("options", [{"chunk": 7}, {"num_devices": 2}, {"dtype": "float64"}], ids=str)
def test_the_step_found_does_not_depend_on_chunks_or_devices_and_exists_in_double_precision(options):
    # Rounding moves the path by far less than the last step reaches into the cap.
    whole, other = stopped(), stopped(**options)
    assert (whole.chain, whole.step) == (other.chain, other.step)
    np.testing.assert_allclose(whole.state, other.state, atol=1e-4)


def test_the_message_names_the_chain_the_step_and_the_time_in_one_line():
    stop = stopped()
    message = str(stop)
    assert f"chain {stop.chain} " in message
    assert f"step {stop.step} (time {stop.step * H:g})" in message
    assert "\n" not in message


def test_a_stopped_run_keeps_what_was_observed_before():
    stop = stopped(chunk=8, watching=[observers.energies(times=H * np.arange(0, 2000, 8))])
    done = stop.run.num_steps
    assert done == (stop.step - 1) // 8 * 8
    np.testing.assert_array_equal(stop.run.data["step"], np.arange(0, done + 1, 8))
    assert np.all(np.isfinite(stop.run.data["energy"]))
    np.testing.assert_allclose(np.linalg.norm(stop.run.final_positions, axis=-1), 1, atol=1e-6)


@pytest.mark.parametrize("num_devices", [1, 2])
def test_an_energy_that_raises_in_mid_run_is_traced_to_its_step_and_chain(num_devices):
    def look(z):
        if np.any(z > EDGE):
            raise ValueError("beyond the edge")

    def watched(x):
        jax.debug.callback(look, x[0, 2])
        return -3 * x[0, 2]

    stop = stopped(energies.from_function(watched, shape=(1, 3)), num_devices=num_devices,
                   watching=[observers.energies()])  # fmt: skip
    assert "raised an error" in str(stop)
    assert "beyond the edge" in str(stop)
    # The same dynamics without the watch: that chain, and no other before, is beyond the edge after that step.
    plain = energies.from_function(lambda x: -3 * x[0, 2], shape=(1, 3))
    every = observers.snapshots(times=H * np.arange(stop.step + 1))
    seen = run_chains(plain, BETA, EULER, num_chains=5, num_steps=stop.step, seed=2, initial=SOUTH, observers=[every])
    seen = seen.data["positions"]
    z = seen.values[:, :, 0, 2]
    assert np.all(z[:, :-1] <= EDGE)
    assert np.flatnonzero(z[:, -1] > EDGE)[0] == stop.chain
    np.testing.assert_allclose(stop.state[0], seen.values[stop.chain, -2, 0], atol=1e-5)
    assert np.all(np.isfinite(stop.run.data["energy"]))


@pytest.mark.parametrize("value", [np.nan, 0.0, -1.0])
def test_a_schedule_that_breaks_off_in_mid_run_stops_it_and_keeps_what_was_observed(value):
    # Looked at as a whole before the run it was sound: only something outside can have changed it.
    broken = []
    beta = schedules.from_optax(lambda count: np.where(np.asarray(count) > 5, value if broken else 1.0, 1.0))

    def breaks(x, energy):
        return energy

    watching = [observers.energies(times=H * np.arange(0, 500, 50)), observers.average(breaks)]
    advance = loop_module.Loop._advance

    def advancing(self, steps):
        broken.append(steps)
        advance(self, steps)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop_module.Loop, "_advance", advancing)
        with pytest.raises(RunStopped, match=r"chain 0 failed at step \d+ .+needs beta\(t\) > 0") as caught:
            run_chains(RING, beta, EULER, num_chains=3, num_steps=500, observers=watching)
    assert 0 < caught.value.step <= 300
    assert caught.value.run.data.sizes["time"] >= 5


def test_a_passage_that_no_chain_makes_is_censored_at_the_end_of_the_run():
    run = run_chains(RING, BETA, EULER, num_chains=20, num_steps=50, observers=[observers.first_passage(-1e3)])
    assert run.data["first_passage_censored"].values.all()
    np.testing.assert_allclose(run.data["first_passage_time"], 50 * H)


def test_a_gradient_that_is_not_finite_stops_the_run():
    # E = -sqrt(1 - z) has a finite value and an infinite slope at the pole where all chains start.
    spike = energies.from_function(lambda x: -jnp.sqrt(1 - x[0, 2]), shape=(1, 3))
    with pytest.raises(RunStopped) as caught:
        run_chains(spike, BETA, EULER, num_chains=3, num_steps=5, initial=[[0.0, 0.0, 1.0]])
    assert (caught.value.chain, caught.value.step) == (0, 1)
    np.testing.assert_array_equal(caught.value.state, [[0.0, 0.0, 1.0]])


def test_lanes_that_only_fill_up_the_batch_cannot_stop_a_run():
    # Five chains in sixteen lanes: chain numbers beyond the fifth belong to nobody.
    assert stopped().chain < 5
    run = run_chains(CAP, BETA, EULER, num_chains=1, num_steps=20, seed=2, initial=SOUTH)
    assert run.num_steps == 20


@pytest.mark.parametrize("scheme", [EULER, integrators.mala(0.1)], ids=["euler", "mala"])
def test_a_start_without_a_finite_energy_is_refused(scheme):
    # Metropolis would reject every move from there and stay for ever.
    north = np.array([SOUTH, SOUTH, [[0.0, 0.0, 1.0]]])
    with pytest.raises(InputError, match=r"^initial: got energy nan of chain 2; needs a finite energy") as caught:
        run_chains(CAP, BETA, scheme, num_chains=3, num_steps=5, initial=north)
    assert "\n" not in str(caught.value)


# log of a negative number: NaN beyond the edge, where its slope -1/(edge - z) is an ordinary number. Chains come back
# from there within a few steps, so the end of a chunk tells nothing.
WELL = energies.from_function(lambda x: jnp.log(EDGE - x[0, 2]), shape=(1, 3))
WELL_OF_ARRAYS = energies.from_function(lambda x: jnp.log(EDGE - jnp.sort(x[0, 2:])[0]), shape=(1, 3))


@pytest.mark.parametrize("chunk", [1, 7, 64, 2048])
@pytest.mark.parametrize("energy", [WELL, WELL_OF_ARRAYS], ids=["scalars", "arrays"])
def test_an_energy_that_is_not_finite_stops_the_run_even_where_the_gradient_is(energy, chunk):
    stop = stopped(energy, chunk=chunk, num_chains=64, num_steps=640)
    # One step at a time the end of the chunk sees every state: the first chain beyond the edge, and its first step.
    stepwise = stopped(energy, chunk=1, num_chains=64, num_steps=640)
    assert (stop.chain, stop.step) == (stepwise.chain, stepwise.step)
    assert np.isfinite(energy(jnp.asarray(stop.state)))
    noise = normals(chain_keys(2, np.array([stop.chain])), jnp.uint32(stop.step - 1), 3).reshape(1, 3)
    end, _ = EULER.step(EULER.init(energy, jnp.asarray(stop.state)), noise, jnp.float32(1.0))
    assert not np.isfinite(energy(end.positions))


def test_chains_come_back_from_where_only_the_energy_fails():
    # Or the test above would not need to look within a chunk.
    slope = energies.from_function(lambda x: jnp.log(jnp.abs(EDGE - x[0, 2])), shape=(1, 3))
    watch = observers.snapshots(times=H * np.arange(641))
    run = run_chains(slope, BETA, EULER, num_chains=64, num_steps=640, seed=2, initial=SOUTH, observers=[watch])
    beyond = run.data["positions"].values[:, :, 0, 2] > EDGE
    assert beyond.any()
    assert np.any(beyond[:, :-1] & ~beyond[:, 1:])


CIRCLE = np.tile([[1.0, 0.0]], (5, 1))
RING = scenarios.ring(5).energy
BAD = {
    "wrong number of rows": ({"initial": CIRCLE[:4]}, "initial"),
    "wrong dimension": ({"initial": np.tile([[1.0, 0.0, 0.0]], (5, 1))}, "initial"),
    "wrong number of chains": ({"initial": np.tile(CIRCLE, (6, 1, 1))}, "initial"),
    "one axis": ({"initial": [1.0, 0.0]}, "initial"),
    "rows off the sphere": ({"initial": 1.01 * CIRCLE}, "initial"),
    "rows that are not finite": ({"initial": np.nan * CIRCLE}, "initial"),
    "ragged rows": ({"initial": [[1.0, 0.0], [1.0]]}, "initial"),
    "unknown initial": ({"initial": "random"}, "initial"),
    "half precision": ({"dtype": "float16"}, "dtype"),
    "a dtype that is no name": ({"dtype": np.float32}, "dtype"),
    "negative seed": ({"seed": -1}, "seed"),
    "broken seed": ({"seed": 0.5}, "seed"),
    "no schedule": ({"beta": lambda t: 1.0}, "beta"),
    "a number for a schedule": ({"beta": 2.0}, "beta"),
    "no energy": ({"energy": lambda x: 0.0}, "energy"),
    "no integrator": ({"integrator": "euler"}, "integrator"),
    "no steps": ({"num_steps": 0}, "num_steps"),
    "broken steps": ({"num_steps": 2.5}, "num_steps"),
    "too many steps": ({"num_steps": 2**31}, "num_steps"),
    "no chains": ({"num_chains": 0}, "num_chains"),
    "no chunk": ({"chunk": 0}, "chunk"),
    "no devices": ({"num_devices": 0}, "num_devices"),
    "broken devices": ({"num_devices": 1.5}, "num_devices"),
    "more devices than there are": ({"num_devices": 5}, "devices"),
    "one observer, not in a list": ({"observers": observers.energies()}, "observers"),
    "no observer": ({"observers": ["energies"]}, "observers"),
    "two observers of one name": ({"observers": [observers.energies((0,)), observers.energies((0.02,))]}, "observers"),
    "a time after the end": ({"observers": [observers.energies((0, 0.12))]}, "times"),
    "unknown temperature mode": ({"temperature": "hot"}, "temperature"),
    "a number for a temperature": ({"temperature": 0.5}, "temperature"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_argument_is_refused_in_one_line_before_anything_compiles(case, monkeypatch):
    monkeypatch.setattr(
        loop_module, "start_carry", lambda *_, **__: pytest.fail("compiled before the arguments were checked")
    )
    arguments, name = BAD[case]
    arguments = {"energy": RING, "beta": BETA, "integrator": EULER, "num_chains": 7, "num_steps": 5} | arguments
    with pytest.raises(InputError, match=rf"^{name}: got .+; needs .+; .+") as caught:
        run_chains(arguments.pop("energy"), arguments.pop("beta"), arguments.pop("integrator"), **arguments)
    assert "\n" not in str(caught.value)


def test_coupling_an_energy_without_a_temperature_is_refused():
    with pytest.raises(InputError, match="coupled mode: FunctionEnergy has no temperature"):
        run_chains(CAP, BETA, EULER, num_chains=2, num_steps=2, temperature="coupled")


def test_a_schedule_that_turns_negative_is_refused_when_it_does():
    falling = schedules.from_optax(lambda count: 1.0 - count)
    with pytest.raises(InputError, match=r"beta\(1\) = 0"):
        run_chains(RING, falling, integrators.geodesic_euler(0.5), num_chains=2, num_steps=5)


def test_positions_stay_on_the_sphere_for_a_million_steps():
    # Without renormalisation rounding alone would walk off by 1e-7 sqrt(1e6) = 1e-4, and by .1 with a bias.
    run = run_chains(RING, schedules.constant(4.0), integrators.geodesic_euler(0.03), num_chains=64,
                     num_steps=1_000_000, chunk=100_000, num_devices=1)  # fmt: skip
    norms = np.linalg.norm(run.final_positions.astype(np.float64), axis=-1)
    np.testing.assert_allclose(norms, 1, rtol=0, atol=1e-6)


def test_the_loop_compiles_once_for_chunks_of_every_length_and_for_other_seeds_and_weights():
    # Chains placed on the devices otherwise than the loop returns them cost a second compilation in every run.
    before = advance_chunk._cache_size()
    for seed, temperature in ((0, 0.5), (1, 0.6)):
        energy, beta = scenarios.ring(3, temperature=temperature).energy, schedules.logarithmic(1.0 + seed)
        watching = [observers.energies(times=(0.0, 0.06))]
        run_chains(energy, beta, EULER, num_chains=9, num_steps=33, seed=seed, chunk=5, observers=watching)
    assert advance_chunk._cache_size() == before + 1


GROWTH = """
import resource, time
import infonce_jax as ij

watching = [ij.observers.energies(), ij.observers.first_passage(energy_below=-1.0), ij.observers.best_energy()]
def run(steps):
    start = time.process_time()
    ij.run_chains(ij.scenarios.ring(3).energy, ij.schedules.logarithmic(1.0), ij.integrators.geodesic_euler(0.03),
                  num_chains=256, num_steps=steps, observers=watching, num_devices=1)
    return time.process_time() - start
run(20_000)
short, peak = run(20_000), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
long = run(400_000)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) / 1024, long / short)
"""


def test_neither_memory_nor_time_per_step_grows_with_the_number_of_steps():
    # One float32 kept per chain and step would be 371 MB more in the long run, and the clock of the run 3 MB; the
    # compiler's own peak, reached before, hides 100 MB or so at most. Outputs stacked by a scan cost quadratic time
    # (jax 40101): twenty times the steps would take four hundred times as long.
    out = subprocess.run([sys.executable, "-c", GROWTH], capture_output=True, text=True, check=True, timeout=300).stdout
    megabytes, times_as_long = map(float, out.split())
    assert megabytes < 60
    assert times_as_long < 40
