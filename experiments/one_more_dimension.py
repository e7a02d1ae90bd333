"""One more dimension removes the trap: what is a minimum of ring5 on the circle is a saddle of index 1 on the sphere.

The trap found at d = 2 is put into R^d with zeros behind it. Its negative Hessian eigenvalues are counted, the gradient
flow is followed from points around it, the landscape at d is searched for traps, and chains run under a fast schedule.
"""

from __future__ import annotations

import sys

import numpy as np
from matplotlib.figure import Figure

import infonce_jax as ij
from experiments import common
from experiments.common import Rows, Verdict
from infonce_jax.landscape import Landscape
from infonce_jax.landscape.derivatives import derivatives

SAME = 1e-6  # energies and eigenvalues of polished points differ by less


def measure(quick: bool = False, seed: int = 0, flat: Landscape | None = None) -> Rows:
    """One row per dimension; `flat` to put another landscape in the place of ring5 at d = 2."""
    flat = flat or common.explored("ring5")
    rows: Rows = []
    for d in (2, 3) if quick else (2, 3, 4):
        land = flat if d == 2 else common.explored("ring5", dim=d)
        trap = np.pad(flat.minima[1].position, ((0, 0), (0, d - 2)))
        here = derivatives(land.energy, trap[None])
        values = np.linalg.eigvalsh(here.hessian[0])
        around = trap + 0.05 * np.random.default_rng(seed).normal(size=(64, *trap.shape))
        _, ends, _ = ij.landscape.quench(land.energy, around / np.linalg.norm(around, axis=-1, keepdims=True), 1e-6)
        fast = ij.schedules.power(1.0, initial=1 / flat.critical_depth)
        _, shares = common.trapped_shares(land, fast, [60.0], 1024, seed + d)
        rows.append({"d": d, "gradient": float(np.linalg.norm(here.gradient)), "negative": int(np.sum(values < -SAME)),
                     "lowest eigenvalue": float(values[0]), "minima": len(land.minima), "E_min": land.minima[0].energy,
                     "flow to E_min": float(np.mean(np.abs(ends - land.minima[0].energy) < SAME)),
                     **common.spread(shares[0])})  # fmt: skip
    return rows


def verdict(rows: Rows) -> Verdict:
    """At d = 2 a trap that holds chains, at d = 3 an index of 1, no second minimum, and nobody trapped."""
    flat, sphere = rows[0], rows[1]
    critical = all(row["gradient"] < SAME for row in rows)
    trap = flat["negative"] == 0 and flat["minima"] == 2 and flat["flow to E_min"] == 0 and flat["low"] > 0.2
    saddle = sphere["negative"] == 1 and sphere["flow to E_min"] == 1
    free = all(row["minima"] == 1 and row["high"] < 0.01 for row in rows[1:])
    listed = "; ".join(
        f"d = {row['d']}: {row['negative']} negative Hessian eigenvalue(s) at the trap (lowest "
        f"{row['lowest eigenvalue']:+.3f}), {row['minima']} class(es) of minima, gradient flow from around the trap "
        f"reaches the global minimum in {100 * row['flow to E_min']:.0f} % of 64, fast schedule leaves "
        f"{row['trapped']:.3f} [{row['low']:.3f}, {row['high']:.3f}] trapped" for row in rows
    )  # fmt: skip
    return Verdict(bool(critical and trap and saddle and free), f"one more dimension removes the trap. {listed}")


def draw(rows: Rows) -> Figure:
    """The softest direction at the trap, and the share of chains trapped, against dimension."""
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    d, lowest, share, low, high = common.columns(rows, "d", "lowest eigenvalue", "trapped", "low", "high")
    left.axhline(0, color="#888888", linewidth=0.8)
    left.plot(d, lowest, "o", color="#2171b5")
    left.set(ylabel="lowest Hessian eigenvalue at the trap\n(energy/rad$^2$)",
             title="minimum (rotations give 0) or saddle", ylim=(lowest.min() - 0.15, 0.15))  # fmt: skip
    right.errorbar(d, share, (share - low, high - share), fmt="o", color="#cb181d", capsize=4)
    right.set(ylabel="P(in the trap after a quench)", title="fast schedule, 1024 chains", ylim=(-0.02, 0.5))
    for axes in (left, right):
        axes.set(xlabel="dimension d (1)", xticks=d, xlim=(d.min() - 0.4, d.max() + 0.4))
    return figure


if __name__ == "__main__":
    sys.exit(common.main(sys.modules[__name__]))
