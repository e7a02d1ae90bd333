"""The critical depth E* is the threshold of logarithmic schedules (Hajek 1988).

Under beta = log(2 + t)/c the share of chains in the trap levels off for c < E* and keeps falling for c > E*. Chains on
both sides of E*, beside the Fokker-Planck equation (double_well) and the master equation (ring5). At c = E* itself the
two-state law is a power of t whose exponent is no matter of the depth; it is shown and not judged.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

import numpy as np
from matplotlib.figure import Figure

import infonce_jax as ij
from experiments import common
from experiments.common import Rows, Verdict
from infonce_jax.landscape import Landscape

RATIOS = (0.5, 0.75, 1.0, 1.25, 1.5)  # c/E*
LEVEL, FALLING = -0.1, -0.4  # slopes of log share against log time over the last decade


def measure(quick: bool = False, seed: int = 0, lands: Mapping[str, Landscape] | None = None) -> Rows:
    """Trapped shares along time, one row per landscape, c and time; `lands` to put others in the place of these."""
    names = ("double_well",) if quick else ("double_well", "ring5")
    rows: Rows = []
    for name, land in (lands or {name: common.explored(name) for name in names}).items():
        exact = land.energy.shape == (1, 2)
        horizon, chains = (3000.0 if exact and not quick else 1000.0), (2048 if exact else 1024)
        corrections = None if exact else common.corrected(name)
        for number, ratio in enumerate(RATIOS):
            schedule = ij.schedules.logarithmic(ratio * land.critical_depth)
            looks = horizon * np.array([0.01, 0.0316, 0.1, 0.316, 1.0])
            times, shares = common.trapped_shares(land, schedule, looks, chains, seed + number)
            theory = common.predicted(land, schedule, times, corrections=corrections)
            rows += [
                {"landscape": name, "c/E*": ratio, "time": float(t), **common.spread(share), "predicted": float(p),
                 "theory": "exact" if exact else "corrected rates"}
                for t, share, p in zip(times, shares, theory, strict=True)
            ]  # fmt: skip
    return rows


def last_slope(rows: Rows) -> float:
    """Slope of log share against log time over the last decade; no chain at all counts as half a chain."""
    late = [row for row in rows if row["time"] > 0.09 * rows[-1]["time"]]
    time, share, chains = common.columns([late[0], late[-1]], "time", "trapped", "chains")
    return float(np.diff(np.log(np.maximum(share, 0.5 / chains)))[0] / np.diff(np.log(time))[0])


def verdict(rows: Rows) -> Verdict:
    """Level below E*, falling above it, and every share where theory has it."""
    parts, holds = [], True
    for name in dict.fromkeys(row["landscape"] for row in rows):
        own = [row for row in rows if row["landscape"] == name]
        slopes = {ratio: last_slope([row for row in own if row["c/E*"] == ratio]) for ratio in RATIOS}
        below, above = [s for r, s in slopes.items() if r < 1], [s for r, s in slopes.items() if r > 1]
        worst = max(abs(common.deviation(row)) for row in own)
        holds &= min(below) > LEVEL and max(above) < FALLING and worst < 4
        listed = ", ".join(f"{slope:+.2f} at {ratio:g}" for ratio, slope in slopes.items())
        parts.append(f"{name}: slopes of the trapped share over the last decade {listed} E*; largest deviation from "
                     f"theory ({own[0]['theory']}) {worst:.1f} standard errors")  # fmt: skip
    return Verdict(
        holds, f"c = E* is the threshold (level above {LEVEL}, falling below {FALLING}). " + "; ".join(parts)
    )


def draw(rows: Rows) -> Figure:
    """Trapped share against time, one panel per landscape."""
    names = list(dict.fromkeys(row["landscape"] for row in rows))
    figure = Figure(figsize=(2.2 + 4 * len(names), 4), layout="constrained")
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    colours = ("#cb181d", "#fb6a4a", "#555555", "#4292c6", "#08306b")
    for axes, name in zip(panels, names, strict=True):
        for ratio, colour in zip(RATIOS, colours, strict=True):
            own = [row for row in rows if row["landscape"] == name and row["c/E*"] == ratio]
            time, share, low, high, theory = common.columns(own, "time", "trapped", "low", "high", "predicted")
            axes.plot(time, theory, color=colour, linewidth=1)
            axes.errorbar(time, share, (share - low, high - share), fmt="o", color=colour, markersize=4, capsize=2,
                          label=f"c = {ratio:g} E*")  # fmt: skip
        axes.set(xscale="log", yscale="log", xlabel="time (time units)", ylim=(2e-4, 1),
                 title=f"{name}, lines: {own[0]['theory']}")  # fmt: skip
    panels[0].set_ylabel("P(in the trap after a quench)")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center")
    return figure


if __name__ == "__main__":
    sys.exit(common.main(sys.modules[__name__]))
