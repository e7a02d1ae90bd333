"""One figure of all throughput records: chain-steps per second against the number of chains, a panel per shape."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.figure import Figure

from benchmarks.timing import Record
from infonce_jax.study.figures import STYLE

__all__ = ["draw"]


def draw(records: Sequence[Record]) -> Figure:
    """Medians with quartiles as bars; records of other kinds are left out."""
    shown = [r for r in records if r.kind == "throughput"]
    shapes = list(dict.fromkeys((r.n, r.d) for r in shown))
    names = list(dict.fromkeys(r.implementation for r in shown))
    columns = min(4, max(1, len(shapes)))
    lines = max(1, -(-len(shapes) // columns))
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(3.2 * columns + 1, 2.8 * lines), layout="constrained")
        panels = figure.subplots(lines, columns, sharex=True, squeeze=False).ravel()
        for panel, shape in zip(panels, shapes, strict=False):
            for k, name in enumerate(names):
                mine = [r for r in shown if (r.n, r.d, r.implementation) == (*shape, name)]
                y = [r.chain_steps_per_second for r in mine]
                error = [[abs(r.chain_steps_per_second_quartiles[side] - v) for r, v in zip(mine, y, strict=True)]
                         for side in (0, 1)]  # fmt: skip
                if mine:
                    panel.errorbar(
                        [r.chains for r in mine], y, error, marker="o", markersize=3, color=f"C{k}", label=name
                    )
            panel.set(xscale="log", yscale="log", title=f"n = {shape[0]}, d = {shape[1]}", xlabel="chains")
            ticks = sorted({r.chains for r in shown})
            panel.set_xticks(ticks, [str(c) for c in ticks])
            panel.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
        for panel in panels[len(shapes) :]:
            panel.set_visible(False)
        if shapes:
            panels[0].set_ylabel("chain-steps per second")
            figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(names))
            figure.suptitle(" and ".join(dict.fromkeys(r.device for r in shown)), fontsize=9)
    return figure
