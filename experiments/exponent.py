"""The exponent Delta/c of logarithmic schedules above the spectral depth m.

Under beta = log(2 + t)/c with c > m the law of the chains follows the Gibbs law, so that the share of the trap of
double_well, Delta above the global minimum, falls as t^{-Delta/c} (Tang and Zhou 2021). The exact
annealed law and chains at c = 3 E*; and a warning at c = 1.25 E*, where slopes at the times a computer reaches exceed
the asymptotic exponent by far.
"""

from __future__ import annotations

import sys

import numpy as np
from matplotlib.figure import Figure

import infonce_jax as ij
from experiments import common
from experiments.common import Rows, Verdict
from infonce_jax.landscape import Landscape

DEEP, NEAR = 3.0, 1.25  # c/E*


def measure(quick: bool = False, seed: int = 0, land: Landscape | None = None) -> Rows:
    """One row per c and decade of time: the exact share of the trap up to t = 1e6, and chains as far as they go."""
    land = land or common.explored("double_well")
    last, chains = (1e3, 8192) if quick else (1e4, 4096)
    decades = np.geomspace(1e2, 1e6, 5)
    delta = land.minima[1].energy - land.minima[0].energy
    rows: Rows = []
    for number, ratio in enumerate((DEEP, NEAR)):
        c = ratio * land.critical_depth
        schedule = ij.schedules.logarithmic(c)
        exact = common.predicted(land, schedule, decades)
        slopes = np.concatenate([[np.nan], np.diff(np.log(exact)) / np.diff(np.log(decades))])
        seen = decades[decades <= last * 1.001]
        _, shares = common.trapped_shares(land, schedule, seen, chains, seed + number)
        for k, time in enumerate(decades):
            measured = common.spread(shares[k] if k < len(shares) else ij.measure.proportion(0, chains))
            if k >= len(shares):
                measured |= {"trapped": np.nan, "low": np.nan, "high": np.nan}
            rows.append({"c/E*": ratio, "time": float(time), "predicted": float(exact[k]), "theory": "exact",
                         "slope": float(slopes[k]), "-Delta/c": -delta / c, **measured})  # fmt: skip
    return rows


def chain_slope(rows: Rows) -> tuple[float, float, float]:
    """Slope of log share against log time between the first and last look at the chains, its error, the exact one."""
    seen = [row for row in rows if np.isfinite(row["trapped"])]
    time, share, exact, chains = common.columns([seen[0], seen[-1]], "time", "trapped", "predicted", "chains")
    share, decades = np.maximum(share, 0.5 / chains), np.log(time[1] / time[0])
    error = float(np.sqrt(np.sum((1 - share) / (share * chains))) / decades)
    return float(np.log(share[1] / share[0]) / decades), error, float(np.log(exact[1] / exact[0]) / decades)


def verdict(rows: Rows) -> Verdict:
    """The exact slope comes to Delta/c, the chains have the exact slope, and near E* slopes exceed the exponent."""
    deep, near = ([row for row in rows if row["c/E*"] == ratio] for ratio in (DEEP, NEAR))
    target, before, after = deep[-1]["-Delta/c"], deep[-2]["slope"], deep[-1]["slope"]
    measured, error, exact = chain_slope(deep)
    comes_closer = abs(after - target) < abs(before - target) and abs(after / target - 1) < 0.05
    agree = abs(measured - exact) < 3.5 * error and error < 0.1
    exceeds = near[-1]["slope"] < 1.5 * near[-1]["-Delta/c"]
    return Verdict(
        bool(comes_closer and agree and exceeds),
        f"at c = {DEEP:g} E* the exact slope goes from {before:.3f} to {after:.3f} in the last two decades, towards "
        f"-Delta/c = {target:.3f}; chains have {measured:.2f} +- {error:.2f} where the exact law has {exact:.2f}. At "
        f"c = {NEAR:g} E* the slope reaches {near[-1]['slope']:.2f} by t = {near[-1]['time']:.0e}, beyond the "
        f"asymptotic {near[-1]['-Delta/c']:.2f}: near E* a slope at finite time is no exponent",
    )


def draw(rows: Rows) -> Figure:
    """Share of the trap against time, and its local slope."""
    figure = Figure(figsize=(10.5, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for ratio, colour in ((DEEP, "#2171b5"), (NEAR, "#cb181d")):
        own = [row for row in rows if row["c/E*"] == ratio]
        names = ("time", "predicted", "slope", "-Delta/c", "trapped", "low", "high")
        time, exact, slope, target, share, low, high = common.columns(own, *names)
        left.plot(time, exact, color=colour, label=f"exact, c = {ratio:g} E*")
        left.errorbar(time, share, (share - low, high - share), fmt="o", color=colour, markersize=4, capsize=3,
                      label=f"chains, c = {ratio:g} E*")  # fmt: skip
        right.plot(np.sqrt(time[1:] * time[:-1]), slope[1:], "s-", color=colour, markersize=4,
                   label=f"exact slope, c = {ratio:g} E*")  # fmt: skip
        right.plot(time, target, "--", color=colour, label=rf"$-\Delta/c$, c = {ratio:g} E*")
    left.set(xscale="log", yscale="log", xlabel="time (time units)", ylabel="P(in the trap after a quench)")
    right.set(xscale="log", xlabel="time (time units)", ylabel="slope of log P against log time (1)")
    handles = [axes.get_legend_handles_labels() for axes in (left, right)]
    figure.legend(handles[0][0] + handles[1][0], handles[0][1] + handles[1][1], loc="outside right center")
    return figure


if __name__ == "__main__":
    sys.exit(common.main(sys.modules[__name__]))
