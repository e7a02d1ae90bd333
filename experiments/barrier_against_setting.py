"""A higher temperature in the loss and one more dimension remove the barrier; more negatives lower it only at first.

The critical depth E* of rings, from a search for minima and saddles: against the number of views n (each has n - 3
negatives), against tau, against d. E* is that of the sum over anchors; E*/n is that of the loss as a mean.
"""

from __future__ import annotations

import sys

import numpy as np
from matplotlib.figure import Figure

from experiments import common
from experiments.common import Rows, Verdict

VIEWS, TAUS, DIMS = (5, 6, 7, 8, 9, 10, 11, 12), (0.3, 0.5, 0.7, 0.9, 1.05, 1.1, 1.3), (2, 3, 4)
QUICK_VIEWS, QUICK_TAUS, QUICK_DIMS = (5, 7), (0.5, 0.9, 1.05, 1.1), (2, 3)


def measure(quick: bool = False, seed: int = 0) -> Rows:
    """One row per setting: E* and the number of classes of minima; the seed is that of the searches."""
    views, taus, dims = (QUICK_VIEWS, QUICK_TAUS, QUICK_DIMS) if quick else (VIEWS, TAUS, DIMS)
    settings = (
        [("n", n, 0.5, 2) for n in views] + [("tau", 5, tau, 2) for tau in taus] + [("d", 5, 0.5, d) for d in dims]
    )
    rows: Rows = []
    for varied, n, tau, d in settings:
        land = common.explored(f"ring{n}", None if tau == 0.5 else tau, None if d == 2 else d, seed)
        rows.append({"varied": varied, "n": n, "tau": tau, "d": d, "E*": land.critical_depth,
                     "E*/n": land.critical_depth / n, "minima": len(land.minima),
                     "shares": " ".join(f"{minimum.share:.3f}" for minimum in land.minima),
                     "saturated": land.saturated})  # fmt: skip
    return rows


def verdict(rows: Rows) -> Verdict:
    """Higher tau lowers E* until the trap is gone, d = 3 removes it, and n lowers it at first; how far is said."""
    n, tau, d = ([row for row in rows if row["varied"] == varied] for varied in ("n", "tau", "d"))
    kept, gone = ([row for row in tau if (row["minima"] > 1) == trapped] for trapped in (True, False))
    by_tau = len(kept) > 1 and bool(gone) and kept[-1]["tau"] < gone[0]["tau"] and _falls(kept, "E*") == len(kept) - 1
    by_d = d[0]["minima"] > 1 and all(row["minima"] == 1 for row in d[1:])
    parts = [f"no trap at tau = {gone[0]['tau']:g}" if gone else "the trap stays"]
    if kept:
        parts.insert(0, f"tau: E* of ring5 from {kept[0]['E*']:.3f} at tau = {kept[0]['tau']:g} to "
                        f"{kept[-1]['E*']:.4f} at {kept[-1]['tau']:g}")  # fmt: skip
    parts.append("d: " + ", ".join(f"{row['minima']} class(es) of minima at d = {row['d']}" for row in d))
    for key, words in (("E*", "E* of the sum over anchors"), ("E*/n", "per anchor, E*/n")):
        last = n[_falls(n, key)]
        end = "" if last is n[-1] else f", then it does not: {n[-1][key]:.4f} at n = {n[-1]['n']}"
        parts.append(
            f"n: {words} falls from {n[0][key]:.4f} at n = {n[0]['n']} to {last[key]:.4f} at n = {last['n']}{end}"
        )
    return Verdict(bool(by_tau and by_d and _falls(n, "E*") > 0), "; ".join(parts))


def _falls(rows: Rows, key: str) -> int:
    """How many steps in a row, from the first, the values fall."""
    rises = np.flatnonzero(np.diff(common.columns(rows, key)[0]) >= 0)
    return int(rises[0]) if len(rises) else len(rows) - 1


def draw(rows: Rows) -> Figure:
    """E* against each setting; hollow where there is no trap."""
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    labels = {"n": "views n (1)", "tau": r"temperature in the loss $\tau$ (1)", "d": "dimension d (1)"}
    panels = figure.subplots(1, 3)
    for axes, (varied, label) in zip(panels, labels.items(), strict=True):
        own = [row for row in rows if row["varied"] == varied]
        x, depth, per_anchor, minima = common.columns(own, varied, "E*", "E*/n", "minima")
        axes.plot(x, depth, "-", color="#2171b5", linewidth=1)
        axes.plot(x[minima > 1], depth[minima > 1], "o", color="#2171b5", label="E*, sum over anchors")
        axes.plot(
            x[minima == 1], depth[minima == 1], "o", color="#2171b5", markerfacecolor="white", label="no trap: E* = 0"
        )
        axes.set(
            xlabel=label,
            xticks=x if varied != "tau" else np.arange(0.4, 1.4, 0.2),
            ylim=(-0.03 * depth.max(), 1.15 * depth.max()),
        )
        if varied == "n":
            axes.plot(x, x[0] * per_anchor, "s--", color="#cb181d", markersize=4, label=f"E*/n times {x[0]}, mean")
    panels[0].set_ylabel("critical depth E* (energy)")
    handles = dict(zip(*panels[0].get_legend_handles_labels()[::-1], strict=True))
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=3)
    return figure


if __name__ == "__main__":
    sys.exit(common.main(sys.modules[__name__]))
