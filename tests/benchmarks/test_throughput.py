"""Records have the promised fields, and the check of the mean energy can fail."""

from __future__ import annotations

import dataclasses
import json
import math
import time

import jax
import numpy as np
import pytest

import infonce_jax as ij
from benchmarks import agreement, endurance, growth, implementations, large, overhead, throughput, timing
from benchmarks.figures import draw
from benchmarks.implementations import OURS, PLAIN, Implementation, LeftOut, compiled_chains
from benchmarks.plain import plain_chains, plain_energy, plain_step
from benchmarks.systems import BETA, system

PROMISED = {"implementation", "n", "d", "chains", "chain_steps_per_second", "compile_seconds", "device"}


@pytest.fixture(scope="module")
def records():
    """One tiny shape, whatever else is installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "SECONDS", 0.01)
        patch.setattr(timing, "REPEATS", 2)
        found, same = throughput.compare((1, 2), (16,), (OURS, PLAIN))
    assert same
    return found


def test_records_have_the_promised_fields(records, tmp_path):
    timing.write(tmp_path / "records.json", records)
    read = json.loads((tmp_path / "records.json").read_text())
    assert [r["implementation"] for r in read] == ["infonce_jax", "plain"]
    for r in read:
        assert set(r) >= PROMISED
        assert (r["n"], r["d"], r["chains"], r["kind"]) == (1, 2, 16, "throughput")
        low, high = r["chain_steps_per_second_quartiles"]
        assert 0 < low <= r["chain_steps_per_second"] <= high
        assert r["compile_seconds"] > 0
        assert r["versions"]["jax"]


def test_table_says_what_is_met(records):
    ours, plain = (dataclasses.replace(r, n=8, d=3, chains=4096) for r in records)
    slow = dataclasses.replace(plain, chain_steps_per_second=ours.chain_steps_per_second / 15.1)
    fast = dataclasses.replace(plain, chain_steps_per_second=ours.chain_steps_per_second / 14.9)
    quick, tardy = (dataclasses.replace(ours, compile_seconds=s) for s in (4.9, 5.1))
    assert "target x >= 15: met  target compile < 5: met" in throughput.rows([quick, slow])[0]
    assert "target x >= 15: NOT met  target compile < 5: NOT met" in throughput.rows([tardy, fast])[0]
    assert "no plain to compare with" in throughput.rows([ours])[0]


def test_figure_shows_every_record(records):
    panel = draw(records).axes[0]
    assert len(panel.containers) == len(records)


def altered(step):
    """The plain version with another step, as an implementation."""

    def prepare(what, chains, steps, watch):
        function = plain_chains(step(what))
        begin = lambda seed: (what.uniform(chains, seed), implementations._keys(seed, chains))  # noqa: E731
        return compiled_chains(function, steps, begin, (np.full(steps, BETA, np.float32),))

    return Implementation("altered", prepare, ij.integrators.geodesic_euler)


def little_noise(what):
    true = plain_step(plain_energy(what), what.step_size)
    return lambda x, noise, beta: true(x, 0.8 * noise, beta)


def steep(what):
    energy = plain_energy(what)
    true = plain_step(lambda x: 1.5 * energy(x), what.step_size)
    return lambda x, noise, beta: (true(x, noise, beta)[0], energy(x))


def test_stationary_check_passes_the_plain_version():
    # |z| <= 5 for a correct one; false alarm 6e-7 for another seed.
    assert agreement.agreement(PLAIN, system(1, 2)).holds


@pytest.mark.parametrize("step", [little_noise, steep])
def test_stationary_check_catches_a_broken_plain_version(step):
    # Either change lowers the mean energy by about ten standard errors.
    found = agreement.agreement(altered(step), system(1, 2))
    assert not found.holds
    assert found.z < -5
    assert "DISAGREE" in str(found)


def test_blackjax_agrees_with_our_mala():
    # |z| <= 5 for a correct one; false alarm 6e-7 for another seed.
    pytest.importorskip("blackjax")
    assert agreement.agreement(implementations._OTHERS["blackjax"], system(1, 2)).holds


def test_nothing_that_is_not_a_number_agrees():
    nan = (math.nan, math.nan)
    assert not agreement.Agreement("broken", 1, 2, nan, (1.0, 0.1), 0.0).holds


def test_what_takes_too_long_is_left_out():
    with pytest.raises(LeftOut, match="would take 1"):
        timing.fitted(PLAIN, system(5, 2), 1000, cost=1e-2)


def test_slope_and_its_error():
    x = np.array([1.0, 2, 4, 8])
    assert timing.slope(x, 3 * x**2) == pytest.approx((2, 0), abs=1e-12)
    # Residuals of +-a around a line: the textbook formula by hand.
    y = np.exp(np.array([0.1, -0.1, -0.1, 0.1]))
    u = np.log(x)
    assert timing.slope(x, y)[1] == pytest.approx(math.sqrt(0.04 / 2 / np.sum((u - u.mean()) ** 2)))
    assert math.isnan(timing.slope([1, 2], [1, 2])[1])


def test_growth_reports_a_slope_for_each_path(records):
    def at(n, path, rate):
        return dataclasses.replace(records[0], n=n, path=path, chain_steps_per_second=rate)

    found = {n: at(n, "scalars", 1e9 / n**2) for n in (4, 8, 16)} | {n: at(n, "arrays", 1e9 / n) for n in (32, 64)}
    scalars, arrays = growth.slopes("n", found)
    assert "scalars: cost ~ n^2.00 +- 0.00, n = 4 to 16" in scalars
    assert "arrays: cost ~ n^1.00 +- nan, n = 32 to 64" in arrays
    assert growth.slopes("n", {4: found[4]}) == []  # a single point has no slope


def test_overhead_is_a_ratio_of_measured_times(capsys):
    bare, watched, saved = overhead.measure((1, 2), 16, 100)
    assert bare.numbers["overhead"] == 0
    assert 0 < watched.numbers["overhead"] < saved.numbers["overhead"]  # so short a run is mostly records and files
    assert "target < 10 %" in capsys.readouterr().out


def test_large_reports_the_fraction_of_its_own_products(monkeypatch, capsys):
    def fitted(implementation, what, chains, cost):
        run = lambda state: time.sleep(0.01)  # noqa: E731
        return timing.Timing(implementations.Prepared(lambda seed: None, run, 0.0, 0.01), 10)

    monkeypatch.setattr(large, "fitted", fitted)
    (record,) = large.measure((12, 3), 16)
    rate = large.flops(12, 3) * record.chain_steps_per_second
    assert large.flops(12, 3) == 6 * 12 * 12 * 3
    assert record.numbers["fraction_of_products"] == pytest.approx(rate / record.numbers["product_flops_per_second"])
    assert "target >= 0.4" in capsys.readouterr().out


def test_endurance_of_a_short_run():
    # |z| <= 4 for correct chains; false alarm 6e-5 for another seed.
    found = endurance.endure(system(1, 2), chain_steps=1e6, chains=512, settle=400)
    assert found.chains * found.steps >= 1e6
    assert found.holds
    assert np.mean(found.halves) == pytest.approx(found.mean, abs=1e-6)
    assert not dataclasses.replace(found, z=-4.1).holds
    assert not dataclasses.replace(found, worst_norm=2e-6).holds
    assert not dataclasses.replace(found, z=math.nan).holds


def test_exact_mean_is_converged_and_that_of_uniform_points_at_beta_zero():
    what = system(5, 2)
    assert endurance.exact_mean(what) == pytest.approx(endurance.exact_mean(what, points=20), abs=1e-5)
    # Infinitely hot: the mean over uniform points, within 5 of its standard errors; false alarm 6e-7.
    values = jax.vmap(plain_energy(what))(what.uniform(4096, seed=0))
    assert abs(endurance.exact_mean(what, beta=0.0) - float(values.mean())) < 5 * float(values.std()) / 64
    # d<E>/dbeta is minus the variance of the energy, which only lowers the mean.
    means = [endurance.exact_mean(what, beta) for beta in (0.0, 0.5, 1.0, 2.0)]
    assert np.all(np.diff(means) < 0)
