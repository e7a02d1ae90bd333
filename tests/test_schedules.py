from __future__ import annotations

import fractions
import math

import hypothesis
import hypothesis.strategies as st
import numpy as np
import optax
import pytest

from infonce_jax import schedules
from infonce_jax.checks import InputError

SCHEDULES = {
    "logarithmic": schedules.logarithmic(0.7, t0=2.0, offset=3.0),
    "power": schedules.power(0.25, initial=2.0, t0=0.5),
    "exponential": schedules.exponential(0.1, initial=2.0),
    "linear": schedules.linear(0.5, initial=2.0),
    "constant": schedules.constant(5.0),
    "piecewise": schedules.piecewise([0, 1, 10], [1.0, 3.0, 12.0]),
    "geometric_to_horizon": schedules.geometric_to_horizon(1.0, 16.0, 10.0),
    "linear_to_horizon": schedules.linear_to_horizon(1.0, 16.0, 10.0),
    "cosine_to_horizon": schedules.cosine_to_horizon(1.0, 16.0, 10.0),
}
FORMULAS = {
    "logarithmic": lambda t: math.log(3 + t / 2) / 0.7,
    "power": lambda t: 2 * (1 + t / 0.5) ** 0.25,
    "exponential": lambda t: 2 * math.exp(0.1 * t),
    "linear": lambda t: 2 + 0.5 * t,
    "constant": lambda t: 5.0,
    "piecewise": lambda t: 1 + 2 * t if t < 1 else min(3 + (t - 1), 12),
    "geometric_to_horizon": lambda t: 2 ** (4 * min(t / 10, 1)),
    "linear_to_horizon": lambda t: 1 + 15 * min(t / 10, 1),
    "cosine_to_horizon": lambda t: 1 + 7.5 * (1 - math.cos(math.pi * min(t / 10, 1))),
}
HORIZON = {name for name in SCHEDULES if name.endswith("horizon")}
positive = st.floats(1e-6, 1e6)


@pytest.mark.parametrize("name", SCHEDULES)
def test_values_follow_the_formula(name):
    for t in (0.0, 0.3, 1.0, 4.0, 10.0, 37.5):
        assert float(SCHEDULES[name](t)) == pytest.approx(FORMULAS[name](t), rel=1e-14)


@pytest.mark.parametrize("name", SCHEDULES)
def test_times_of_any_shape_give_float64_of_that_shape(name):
    t = np.linspace(0, 20, 12, dtype=np.float32).reshape(3, 4)
    beta = SCHEDULES[name](t)
    assert beta.dtype == np.float64
    assert beta.shape == t.shape
    np.testing.assert_array_equal(beta.ravel(), [SCHEDULES[name](float(s)) for s in t.ravel()])
    assert SCHEDULES[name]([]).shape == (0,)


@pytest.mark.parametrize("name", SCHEDULES)
def test_horizon_schedules_are_another_type_than_fixed_ones(name):
    # THEORY section 1: only a fixed schedule traps; the two must not be mistaken for each other.
    expected = schedules.HorizonSchedule if name in HORIZON else schedules.FixedSchedule
    assert type(SCHEDULES[name]) is expected
    assert SCHEDULES[name].kind == ("to horizon" if name in HORIZON else "fixed")


@pytest.mark.parametrize("name", sorted(HORIZON))
def test_horizon_schedules_know_their_horizon_and_hold_the_final_value(name):
    assert SCHEDULES[name].horizon == 10.0
    np.testing.assert_allclose(SCHEDULES[name]([10.0, 10.1, 1e9]), 16.0, rtol=1e-14)


def test_the_same_shape_to_another_horizon_is_another_schedule():
    short, long = (schedules.geometric_to_horizon(1.0, 16.0, T) for T in (10.0, 100.0))
    assert short != long
    assert float(short(5.0)) == pytest.approx(float(long(50.0)), rel=1e-14)


def test_the_usual_logarithm_has_offset_two_and_unit_time():
    assert float(schedules.logarithmic(0.5)(0.0)) == pytest.approx(2 * math.log(2), rel=1e-15)
    assert float(schedules.logarithmic(0.5)(8.0)) == pytest.approx(2 * math.log(10), rel=1e-15)


@pytest.mark.parametrize("offset", [1.0, 0.5, 0.0, -1.0])
def test_a_logarithm_that_starts_with_infinite_noise_is_refused(offset):
    with pytest.raises(InputError, match=r"^offset: got .*beta\(0\) = log\(.*<= 0; needs offset > 1; "):
        schedules.logarithmic(0.5, offset=offset)


@pytest.mark.parametrize(("build", "name"), [
    (lambda bad: schedules.logarithmic(bad), "depth"),
    (lambda bad: schedules.logarithmic(1.0, t0=bad), "t0"),
    (lambda bad: schedules.power(bad), "exponent"),
    (lambda bad: schedules.power(1.0, initial=bad), "initial"),
    (lambda bad: schedules.power(1.0, t0=bad), "t0"),
    (lambda bad: schedules.exponential(bad), "rate"),
    (lambda bad: schedules.exponential(1.0, initial=bad), "initial"),
    (lambda bad: schedules.linear(1.0, initial=bad), "initial"),
    (lambda bad: schedules.constant(bad), "value"),
    (lambda bad: schedules.geometric_to_horizon(bad, 1.0, 1.0), "initial"),
    (lambda bad: schedules.geometric_to_horizon(1.0, bad, 1.0), "final"),
    (lambda bad: schedules.linear_to_horizon(1.0, bad, 1.0), "final"),
    (lambda bad: schedules.cosine_to_horizon(1.0, 2.0, bad), "horizon"),
    (lambda bad: schedules.from_optax(lambda t: 1.0, time_per_count=bad), "time_per_count"),
])  # fmt: skip
@pytest.mark.parametrize("bad", [0, -1.5, math.nan, math.inf, -math.inf, None, "cold", [1.0, 2.0], 1j])
def test_a_bad_number_is_refused_in_one_line_that_names_it(build, name, bad):
    with pytest.raises(InputError, match=rf"^{name}: got .+; needs .+; .+") as caught:
        build(bad)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bad", [math.nan, math.inf, None])
def test_an_offset_that_is_no_number_is_refused(bad):
    with pytest.raises(InputError, match=r"^offset: got"):
        schedules.logarithmic(1.0, offset=bad)


@pytest.mark.parametrize("bad", [-0.1, math.nan, math.inf, "fast"])
def test_a_ramp_that_heats_is_refused(bad):
    with pytest.raises(InputError, match=r"^rate: got"):
        schedules.linear(bad)


def test_a_ramp_of_rate_zero_is_constant():
    np.testing.assert_array_equal(schedules.linear(0.0, initial=3.0)([0.0, 1e12]), 3.0)


@pytest.mark.parametrize(("times", "values", "name"), [
    ([0.0], [1.0], "times, values"),
    ([0.0, 1.0], [1.0, 2.0, 3.0], "times, values"),
    ([[0.0, 1.0]], [[1.0, 2.0]], "times, values"),
    ([1.0, 2.0], [1.0, 2.0], "times"),
    ([0.0, 2.0, 1.0], [1.0, 2.0, 3.0], "times"),
    ([0.0, 1.0, 1.0], [1.0, 2.0, 3.0], "times"),
    ([0.0, math.nan], [1.0, 2.0], "times"),
    ([0.0, math.inf], [1.0, 2.0], "times"),
    ([0.0, 1.0], [0.0, 2.0], "values"),
    ([0.0, 1.0], [1.0, -2.0], "values"),
    ([0.0, 1.0], [1.0, math.nan], "values"),
])  # fmt: skip
def test_bad_tables_are_refused(times, values, name):
    with pytest.raises(InputError, match=rf"^{name}: got .+; needs .+; .+"):
        schedules.piecewise(times, values)


@pytest.mark.parametrize("t", [-1.0, [0.0, -1e-9]])
def test_negative_times_are_refused(t):
    with pytest.raises(InputError, match=r"^t: got -"):
        schedules.constant(1.0)(t)


def test_a_time_that_is_nan_is_refused():
    with pytest.raises(InputError, match=r"^t: got nan; needs times >= 0"):
        schedules.logarithmic(1.0)([0.0, math.nan])


def test_a_schedule_that_becomes_zero_later_is_refused_where_it_does():
    falling = schedules.from_optax(lambda count: 1 - count / 10)
    assert float(falling(9.0)) == pytest.approx(0.1)
    with pytest.raises(InputError, match=r"beta\(10\) = 0; needs beta\(t\) > 0 at every time"):
        falling([9.0, 10.0])


def test_an_optax_schedule_that_starts_at_zero_is_refused_at_once():
    with pytest.raises(InputError, match=r"beta\(0\) = 0"):
        schedules.from_optax(optax.linear_schedule(0.0, 1.0, 10))


def test_optax_counts_are_times_over_time_per_count():
    beta = schedules.from_optax(optax.linear_schedule(1.0, 5.0, 100), time_per_count=0.5)
    # Optax computes in single precision.
    np.testing.assert_allclose(beta([0.0, 12.5, 25.0, 50.0, 99.0]), [1.0, 2.0, 3.0, 5.0, 5.0], rtol=1e-6)
    assert beta(1.0).dtype == np.float64


@pytest.mark.parametrize("rule", [
    optax.constant_schedule(2.0),
    optax.exponential_decay(1.0, 10, 1.5),
    optax.join_schedules([optax.constant_schedule(1.0), optax.linear_schedule(1.0, 2.0, 5)], [3]),
    optax.warmup_cosine_decay_schedule(0.5, 2.0, 3, 10, 0.1),
])  # fmt: skip
def test_optax_families_work_for_scalars_and_arrays(rule):
    beta = schedules.from_optax(rule)
    t = np.arange(12.0)
    np.testing.assert_allclose(beta(t), [float(rule(int(k))) for k in t], rtol=1e-6)


# THEORY section 0: t accumulated in float32 is wrong by 1e-5 at 1e6 steps and by 18 % at 4e7, and a float32 log(k)
# stops moving at k = 2^24. The host's float64 must see none of that.
@pytest.mark.parametrize("steps", [10**6, 4 * 10**7])
def test_long_clocks_keep_double_precision(steps):
    h = 0.03
    exact = float(2 + fractions.Fraction(3, 100) * steps)
    assert float(schedules.logarithmic(0.4)(steps * h)) == pytest.approx(math.log(exact) / 0.4, rel=1e-15)
    assert float(schedules.linear(1.0, initial=2.0)(steps * h)) == pytest.approx(exact, rel=1e-15)


@pytest.mark.parametrize("steps", [10**6, 2**24, 4 * 10**7])
def test_every_single_step_of_a_long_run_still_cools(steps):
    beta = schedules.logarithmic(0.4)(np.arange(steps, steps + 1000) * 0.03)
    change = np.diff(beta)
    np.testing.assert_allclose(change, 0.03 / (2 + steps * 0.03) / 0.4, rtol=1e-3)


@pytest.mark.parametrize("t", [1e3, 1e6, 1e300, math.inf])
def test_the_coldest_value_is_finite_in_single_precision(t):
    beta = float(schedules.exponential(10.0)(t))
    assert beta == 1e30
    assert np.isfinite(np.float32(beta))


def test_the_cap_does_not_touch_what_is_reachable():
    assert float(schedules.exponential(1.0)(60.0)) == pytest.approx(math.exp(60), rel=1e-14)


@hypothesis.given(positive, positive, st.floats(1.001, 100), st.floats(0, 1e9))
def test_the_logarithm_is_its_formula_everywhere(depth, t0, offset, t):
    beta = float(schedules.logarithmic(depth, t0=t0, offset=offset)(t))
    assert beta == pytest.approx(min(math.log(offset + t / t0) / depth, 1e30), rel=1e-13)


@hypothesis.given(st.sampled_from(sorted(SCHEDULES)), st.lists(st.floats(0, 1e12), min_size=2, max_size=20))
def test_every_family_here_cools_and_stays_positive(name, times):
    beta = SCHEDULES[name](np.sort(times))
    assert np.all(beta > 0)
    assert np.all(np.diff(beta) >= -1e-15 * beta[1:])


@hypothesis.given(positive, positive, positive, st.floats(0, 1))
def test_horizon_schedules_stay_between_their_ends(initial, final, horizon, part):
    low, high = sorted((initial, final))
    for build in (schedules.geometric_to_horizon, schedules.linear_to_horizon, schedules.cosine_to_horizon):
        beta = build(initial, final, horizon)
        assert low * (1 - 1e-12) <= float(beta(part * horizon)) <= high * (1 + 1e-12)
        assert float(beta(0.0)) == pytest.approx(initial, rel=1e-9)
        assert float(beta(horizon)) == pytest.approx(final, rel=1e-9)


@hypothesis.given(st.floats(max_value=0, allow_nan=False))
def test_no_depth_at_or_below_zero_is_accepted(depth):
    with pytest.raises(InputError):
        schedules.logarithmic(depth)


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_name_and_parameters_describe_the_schedule(name):
    assert SCHEDULES[name].name
    assert all(np.all(np.isfinite(value)) for _, value in SCHEDULES[name].parameters)


def test_schedules_of_equal_parameters_are_equal_and_hashable():
    assert schedules.logarithmic(0.5) == schedules.logarithmic(0.5)
    assert schedules.logarithmic(0.5) != schedules.logarithmic(0.51)
    assert len({schedules.constant(1.0), schedules.constant(1.0), schedules.constant(2.0)}) == 2
