"""Fast fixed schedules trap for ever, the same run time spent on a ramp stretched to its horizon does not.

A fixed schedule traps when Lambda, the integral of the escape rate over all times, is finite: powers of t and
exponentials at a fixed rate do. A geometric ramp from beta_0 to beta_1 stretched to T spends a share of T at every
temperature, and the trapped share falls as (log T/T)^{Delta/E*}. Chains from the trap of double_well, and the exact
law.
"""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import infonce_jax as ij
from experiments import common
from experiments.common import Rows, Verdict
from infonce_jax.landscape import Landscape
from infonce_jax.measure import Proportion

FAST = {
    "power 1/2": lambda e: ij.schedules.power(0.5, initial=1 / e),
    "power 1": lambda e: ij.schedules.power(1.0, initial=1 / e),
    "exponential, rate .1": lambda e: ij.schedules.exponential(0.1, initial=1 / e),
}
STRETCHED = "geometric to horizon"
FAR = 1e6  # the exact law of the ramps is followed this far
OFF = 4.0  # Lambda takes the rate of Eyring and Kramers from beta E* = 1 on, where it is two to four times too large


def measure(quick: bool = False, seed: int = 0, land: Landscape | None = None) -> Rows:
    """One row per schedule and run time T: the share still in the trap, measured and exact, and Lambda."""
    land = land or common.explored("double_well")
    e, trap = land.critical_depth, land.minima[1].position
    looks, chains = np.array([10.0, 100.0, 1000.0]) if quick else np.array([10.0, 30, 100, 300, 1000, 3000]), 2048
    kappa = ij.theory.rate(land, 1, 0, 20 / e) * math.exp(20)  # the prefactor of Eyring and Kramers
    rows: Rows = []
    for number, (name, build) in enumerate(FAST.items()):
        total = ij.theory.trapping_criterion(build(e), kappa, e).total
        _, shares = common.trapped_shares(land, build(e), looks, chains, seed + number, initial=trap)
        exact = common.predicted(land, build(e), looks, initial=trap)
        rows += [_row(name, *both, total) for both in zip(looks, shares, exact, strict=True)]
    for number, horizon in enumerate([*looks, FAR / 100, FAR / 10, FAR]):
        ramp = ij.schedules.geometric_to_horizon(1 / e, 20 / e, horizon)
        exact = common.predicted(land, ramp, [horizon], initial=trap)[0]
        share = None
        if horizon in looks:
            share = common.trapped_shares(land, ramp, [horizon], chains, seed + 10 + number, initial=trap)[1][0]
        law = ij.theory.horizon_law(land.minima[1].energy - land.minima[0].energy, e, max(kappa * horizon, 3))
        rows.append(_row(STRETCHED, horizon, share, exact, math.inf, law))
    return rows


def _row(
    name: str, horizon: float, share: Proportion | None, exact: float, total: float, law: float = math.nan
) -> dict[str, Any]:
    unseen = {"trapped": math.nan, "low": math.nan, "high": math.nan, "chains": 0}
    return {"schedule": name, "T": float(horizon), **(common.spread(share) if share else unseen),
            "predicted": float(exact), "theory": "exact", "Lambda": float(total), "horizon law": law}  # fmt: skip


def verdict(rows: Rows) -> Verdict:
    """Fixed ones level off with Lambda finite and of the right size; the ramp falls tenfold as T does what it says."""
    parts, holds = [], True
    for name in FAST:
        own = [row for row in rows if row["schedule"] == name]
        kept = own[-1]["trapped"] / max(own[-2]["trapped"], 0.5 / own[-2]["chains"])
        ratio = own[-1]["Lambda"] / -math.log(min(max(own[-1]["trapped"], 1e-9), 1 - 0.5 / own[-1]["chains"]))
        holds &= kept > 0.95 and 1 / OFF < ratio < OFF
        parts.append(f"{name} keeps {own[-1]['trapped']:.3f} ({kept:.2f} of what it had at T = {own[-2]['T']:g}; "
                     f"Lambda = {own[-1]['Lambda']:.2f}, {ratio:.1f} times -log of the share)")  # fmt: skip
    ramp = [row for row in rows if row["schedule"] == STRETCHED]
    seen = [row for row in ramp if row["chains"]]
    first, last = seen[0], seen[-1]
    exact, law = (math.log10(ramp[-1][key] / ramp[-2][key]) for key in ("predicted", "horizon law"))
    worst = max(abs(common.deviation(row)) for row in rows if row["chains"])
    holds &= last["high"] < first["low"] / 10 and worst < 4 and abs(exact - law) < 0.2 * abs(law)
    parts.append(f"the ramp goes from {first['trapped']:.3f} at T = {first['T']:g} to {last['trapped']:.4f} at "
                 f"T = {last['T']:g}, and its exact share falls by 10^{exact:.2f} over the last decade where "
                 f"(log T/T)^(Delta/E*) falls by 10^{law:.2f}; largest deviation from the exact law {worst:.1f} "
                 "standard errors")  # fmt: skip
    return Verdict(
        bool(holds), "fixed fast schedules trap, the same time on a stretched ramp does not: " + "; ".join(parts)
    )


def draw(rows: Rows) -> Figure:
    """Share still in the trap against the length of the run."""
    figure = Figure(figsize=(8, 4.2), layout="constrained")
    axes = figure.subplots()
    for name, colour in zip([*FAST, STRETCHED], ("#fcae91", "#fb6a4a", "#cb181d", "#238b45"), strict=True):
        own = [row for row in rows if row["schedule"] == name]
        horizon, share, low, high, exact = common.columns(own, "T", "trapped", "low", "high", "predicted")
        axes.plot(horizon, exact, "--" if name == STRETCHED else "-", color=colour, label=f"{name}, exact law")
        axes.errorbar(horizon, share, (share - low, high - share), fmt="o", color=colour, markersize=4, capsize=3,
                      label=f"{name}, chains")  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="length of the run T (time units)", ylabel="P(still in the trap)",
             ylim=(1e-7, 2))  # fmt: skip
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center")
    return figure


if __name__ == "__main__":
    sys.exit(common.main(sys.modules[__name__]))
