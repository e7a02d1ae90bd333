"""Intervals against formulas worked out by hand, and their coverage."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta, norm

from infonce_jax.checks import InputError
from infonce_jax.measure import exponential_mean, kaplan_meier, proportion, proportions


@pytest.mark.parametrize(("k", "n"), [(0, 10), (3, 10), (10, 10), (37, 1024)])
def test_wilson_interval_solves_its_equation(k, n):
    p = proportion(k, n)
    z = norm.ppf(0.975)
    centre = (k + z**2 / 2) / (n + z**2)
    half = z / (n + z**2) * np.sqrt(k * (n - k) / n + z**2 / 4)
    assert (p.low, p.high) == pytest.approx((max(centre - half, 0), min(centre + half, 1)), abs=1e-12)
    assert p.estimate == k / n


@pytest.mark.parametrize(("k", "n"), [(1, 10), (3, 10), (37, 1024)])
def test_exact_interval_is_clopper_and_pearson(k, n):
    p = proportion(k, n, level=0.9, method="exact")
    assert p.low == pytest.approx(beta.ppf(0.05, k, n - k + 1), rel=1e-8)
    assert p.high == pytest.approx(beta.ppf(0.95, k + 1, n - k), rel=1e-8)


def test_proportions_go_column_by_column():
    events = np.array([[True, False, False], [True, True, False]])
    assert [p.estimate for p in proportions(events)] == [1.0, 0.5, 0.0]


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: proportion(3, 2), "trials"),
        (lambda: proportion(0, 0), "trials"),
        (lambda: proportion(1, 2, level=1.5), "level"),
        (lambda: proportion(1, 2, method="wald"), "method"),
        (lambda: proportions([True, False]), "events"),
        (lambda: kaplan_meier([1.0, -1.0]), "times"),
        (lambda: kaplan_meier([1.0], [True, False]), "censored"),
        (lambda: exponential_mean([]), "times"),
    ],
)
def test_bad_input_is_refused_in_one_line(call, word):
    with pytest.raises(InputError, match=word) as refusal:
        call()
    assert len(str(refusal.value).splitlines()) == 1


def test_kaplan_meier_of_a_small_example_by_hand():
    # at 1: 5 at risk; at 3: 3 at risk, after one was censored at 2; at 4: 2 at risk; the last is censored at 5
    curve = kaplan_meier([1.0, 2.0, 3.0, 4.0, 5.0], [False, True, False, False, True])
    steps = dict(zip(curve.times.tolist(), curve.probability.tolist(), strict=True))
    assert steps[1.0] == pytest.approx(4 / 5)
    assert steps[3.0] == pytest.approx(4 / 5 * 2 / 3)
    assert steps[4.0] == pytest.approx(4 / 5 * 2 / 3 * 1 / 2)
    assert (curve.passed, curve.censored) == (3, 2)
    assert curve.median() == 4.0


def test_kaplan_meier_sees_the_survival_function_through_censoring():
    rng = np.random.default_rng(4)
    times, cuts = rng.exponential(2.0, 4000), rng.uniform(0, 6, 4000)
    curve = kaplan_meier(np.minimum(times, cuts), times > cuts)
    at = np.searchsorted(curve.times, [0.5, 1.0, 2.0, 3.0])
    # five standard errors of a proportion of some 2000 at risk; false alarm below 1e-5 at this fixed seed
    np.testing.assert_allclose(curve.probability[at], np.exp(-np.array([0.5, 1.0, 2.0, 3.0]) / 2), atol=0.05)
    assert np.all(curve.low[at] < curve.probability[at])
    assert np.all(curve.probability[at] < curve.high[at])


def test_exponential_mean_is_time_at_risk_over_passages():
    mean = exponential_mean([1.0, 2.0, 3.0], [False, False, True])
    assert mean.estimate == 3.0
    assert (mean.passed, mean.censored) == (2, 1)
    assert mean.low < 3.0 < mean.high


def test_exponential_mean_without_a_passage_is_a_lower_bound():
    mean = exponential_mean([5.0, 5.0], [True, True])
    assert mean.estimate == np.inf
    assert mean.high == np.inf
    # 10 time units without an event exclude means below 10/log(40) at 97.5 %
    assert mean.low == pytest.approx(10 / np.log(40), rel=1e-9)


@pytest.mark.parametrize("cut", [np.inf, 1.5])
def test_exponential_interval_covers_at_its_level(cut):
    # 2000 experiments of 40 chains: the coverage of a 95 % interval has standard error .005; bounds at four of them,
    # false alarm 6e-5 (with censoring the interval is slightly conservative)
    rng = np.random.default_rng(8)
    times = rng.exponential(1.0, (2000, 40))
    covered = 0
    for row in times:
        mean = exponential_mean(np.minimum(row, cut), row > cut)
        covered += mean.low <= 1.0 <= mean.high
    assert 0.93 < covered / 2000 < 0.975
