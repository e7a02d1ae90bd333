"""Annealing the temperature inside the loss is not annealing the noise: the landscape itself moves.

No theorem of annealing covers it. ring5, the same number of steps and chains, quenched under the energy at the end of
the run. Either beta grows at fixed tau, or tau falls at fixed beta from where the landscape has no trap, or both are
coupled as tau = 1/beta (the potential is then tau times the loss, and the law aimed at is e^{-loss} at every time).
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import infonce_jax as ij
from experiments import common
from experiments.common import Rows, Verdict
from infonce_jax.landscape import Landscape
from infonce_jax.schedules import Schedule

WARM, FINAL, COLDEST = 1.5, 0.5, 0.2  # tau without a trap, of the study, at the end of the coupled run
CHAINS = 2048
BETA, LOG, TAU, COUPLED = (
    "beta, ramp to horizon",
    "beta, log c = 1.5 E*",
    "tau, ramp to horizon",
    "coupled, tau = 1/beta",
)


def measure(quick: bool = False, seed: int = 0, warm: float = WARM) -> Rows:
    """One row per mode and number of steps; `warm` is the temperature from which tau falls."""
    land, cold = common.explored("ring5"), common.explored("ring5", temperature=COLDEST)
    rows: Rows = []
    for steps in (300, 1000) if quick else (300, 1000, 3000, 10_000):
        horizon = steps * common.STEP_OF_CURVATURE / land.curvature
        for number, (mode, (beta, tau, end)) in enumerate(_modes(land, cold, horizon, warm).items()):
            # All take the step of the study's landscape, so that times and budgets are one and the same.
            share = _share(land, end, beta, tau, steps, seed + number)
            rows.append({"mode": mode, "steps": steps, "time": horizon,
                         "final tau": FINAL if end is land else COLDEST, **share})  # fmt: skip
    return rows


def _modes(land: Landscape, cold: Landscape, horizon: float, warm: float) -> dict[str, tuple[Schedule, Any, Landscape]]:
    """beta, the temperature argument, and the landscape at the end, by name."""
    e = land.critical_depth
    falling = ij.schedules.geometric_to_horizon(warm, FINAL, horizon)
    return {
        BETA: (ij.schedules.geometric_to_horizon(1 / e, 20 / e, horizon), None, land),
        LOG: (ij.schedules.logarithmic(1.5 * e), None, land),
        TAU: (ij.schedules.constant(20 / e), falling, land),
        COUPLED: (ij.schedules.geometric_to_horizon(1 / warm, 1 / COLDEST, horizon), "coupled", cold),
    }


def _share(land: Landscape, end: Landscape, beta: Schedule, tau: Any, steps: int, seed: int) -> dict[str, Any]:
    h = common.STEP_OF_CURVATURE / land.curvature
    run = ij.run_chains(land.energy, beta, ij.integrators.geodesic_euler(h), num_chains=CHAINS, num_steps=steps,
                        seed=seed, temperature=tau)  # fmt: skip
    trapped = end.basin_of(run.final_positions) != 0
    return common.spread(ij.measure.proportion(int(trapped.sum()), CHAINS))


def verdict(rows: Rows) -> Verdict:
    """While the ramp of beta traps anybody, that of tau traps fewer; in the longest run the coupled mode traps more."""
    parts, holds = [], True
    for steps in dict.fromkeys(row["steps"] for row in rows):
        at = {row["mode"]: row for row in rows if row["steps"] == steps}
        # Long runs of both ramps leave hardly anybody in the trap: no interval could tell them apart.
        holds &= at[BETA]["low"] < 0.02 or at[TAU]["high"] < at[BETA]["low"]
        shares = [f"{mode} {row['trapped']:.3f} [{row['low']:.3f}, {row['high']:.3f}]" for mode, row in at.items()]
        parts.append(f"{steps} steps: {', '.join(shares)}")
    last = {row["mode"]: row for row in rows if row["steps"] == rows[-1]["steps"]}
    holds &= last[COUPLED]["low"] > last[BETA]["high"]
    return Verdict(
        bool(holds),
        "annealing tau is another thing than annealing beta: from where there is no trap it traps fewer than a ramp of "
        "beta of the same length, coupled to the noise it traps more. Trapped after " + "; ".join(parts),
    )


def draw(rows: Rows) -> Figure:
    """Trapped share against budget, one line per mode."""
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for mode, colour in zip((BETA, LOG, TAU, COUPLED), ("#238b45", "#2171b5", "#cb181d", "#555555"), strict=True):
        own = [row for row in rows if row["mode"] == mode]
        steps, share, low, high = common.columns(own, "steps", "trapped", "low", "high")
        seen = np.maximum(share, 0.3 / CHAINS)
        axes.errorbar(steps, seen, (seen - np.minimum(low, seen), high - seen), fmt="o-", color=colour, markersize=4,
                      linewidth=0.8, capsize=3, label=mode)  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="budget (steps per chain)", ylabel="P(in the trap after a quench)",
             ylim=(0.2 / CHAINS, 1))  # fmt: skip
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center")
    return figure


if __name__ == "__main__":
    sys.exit(common.main(sys.modules[__name__]))
