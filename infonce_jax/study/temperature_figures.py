"""The figures of the loss temperature: a bifurcation diagram, and barriers as functions of temperature."""

from __future__ import annotations

import math

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter

from infonce_jax.landscape import Branch, Continuation
from infonce_jax.study.figures import STYLE

__all__ = ["draw_barriers", "draw_branches"]

_GLOBAL, _SADDLE, _HIGHER, _EVENT, _LINE = "#2171b5", "#888888", "#cccccc", "#cb181d", "#238b45"
_TRAPS = ("#d94801", "#6a51a3", "#a50f15", "#c51b8a", "#7f6000", "#54278f", "#8c6d31")


def _global_energy(found: Continuation, temperatures: np.ndarray) -> np.ndarray:
    """Lowest energy of all branches of minima at each temperature."""
    lowest = np.full(len(temperatures), np.inf)
    for branch in found.branches:
        if branch.index == 0:
            at = np.interp(temperatures, branch.temperatures, branch.energies, left=np.inf, right=np.inf)
            lowest = np.minimum(lowest, at)
    return lowest


def _trap_branches(found: Continuation) -> dict[int, str]:
    """A colour for each branch of minima that is not the global one all along, the same in both figures."""
    traps = [k for k, b in enumerate(found.branches)
             if b.index == 0 and np.any(_above(found, b) > 1e-6 * (1 + np.abs(b.energies)))]  # fmt: skip
    return {k: _TRAPS[place % len(_TRAPS)] for place, k in enumerate(traps)}


def _above(found: Continuation, branch: Branch) -> np.ndarray:
    return branch.energies - _global_energy(found, branch.temperatures)


def draw_branches(found: Continuation) -> Figure:
    """Energy above the global minimum along every branch; folds, branch points and the trap-free temperature marked.

    Args:
        found: from `landscape.continuation`.
    """
    colours = _trap_branches(found)
    looks = {0: ("-", 1.8), 1: ("--", 1.1), 2: (":", 0.9)}
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.5, 5.2), layout="constrained")
        axes = figure.subplots()
        for k, branch in enumerate(found.branches):
            line, width = looks[branch.index]
            colour = {1: _SADDLE, 2: _HIGHER}.get(branch.index, colours.get(k, _GLOBAL))
            axes.plot(branch.temperatures, _above(found, branch), line, color=colour, linewidth=width,
                      zorder=4 - branch.index)  # fmt: skip
        for kind, marker in (("fold", "o"), ("branch point", "s")):
            events = [e for e in found.bifurcations if e.kind == kind and min(e.indices) <= 1]
            tau = np.array([e.temperature for e in events])
            height = np.array([e.energy for e in events]) - _global_energy(found, tau)
            axes.plot(tau, height, marker, color=_EVENT, markersize=4.5, markerfacecolor="white", zorder=5)
        _finish(axes, found)
        axes.set_ylabel("energy above the global minimum")
        handles = [
            Line2D([], [], color=_GLOBAL, linewidth=1.8, label="global minimum"),
            *([Line2D([], [], color=_TRAPS[0], linewidth=1.8, label="traps (a colour each)")] if colours else []),
            Line2D([], [], color=_SADDLE, linestyle="--", label="saddle, index 1"),
            Line2D([], [], color=_HIGHER, linestyle=":", label="index 2"),
            Line2D([], [], color=_EVENT, marker="o", markerfacecolor="white", linestyle="none", label="fold"),
            Line2D([], [], color=_EVENT, marker="s", markerfacecolor="white", linestyle="none", label="branch point"),
            *_marked(found),
        ]  # fmt: skip
        figure.legend(handles=handles, loc="outside right center")
    return figure


def draw_barriers(found: Continuation) -> Figure:
    """E* and the barrier of each trap against temperature, on a logarithmic axis.

    Args:
        found: from `landscape.continuation`.
    """
    colours = _trap_branches(found)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(9.5, 4.4), layout="constrained")
        axes = figure.subplots()
        tau = np.array([there.temperature for there in found.depths])
        depth = np.array([there.critical_depth for there in found.depths])
        shown = np.where(np.isfinite(depth) & (depth > 0), depth, np.nan)
        axes.plot(tau, shown, color="black", linewidth=3.0, alpha=0.25, label="critical depth E*")
        for branch, (at, heights) in found.barriers().items():
            good = np.isfinite(heights) & (heights > 0)
            if good.any():
                name = f"trap, E = {_energy_at_start(found, branch):.4f} at tau = {at[0]:.3g}"
                axes.plot(at[good], heights[good], marker="o", markersize=3, linewidth=1.2,
                          color=colours.get(branch, "#555555"), label=name)  # fmt: skip
        _finish(axes, found)
        axes.set_ylabel("barrier (energy)")
        if np.isfinite(shown).any():
            axes.set_yscale("log")
            # close to its end a barrier falls through all decades
            top = float(np.nanmax(shown))
            axes.set_ylim(max(1e-5 * top, 0.5 * float(np.nanmin(shown))), 2 * top)
        else:
            axes.text(0.5, 0.5, "no trap at any of these temperatures", transform=axes.transAxes, ha="center")
        handles, labels = axes.get_legend_handles_labels()
        marked = _marked(found)
        figure.legend([*handles, *marked], [*labels, *(str(m.get_label()) for m in marked)], loc="outside right center")
    return figure


def _energy_at_start(found: Continuation, branch: int) -> float:
    """Energy of the first minimum of a branch among the depths."""
    for there in found.depths:
        if branch in there.branches:
            return there.energies[there.branches.index(branch)]
    return math.nan


def _marked(found: Continuation) -> list[Line2D]:
    free = found.trap_free
    if not free.found:
        return []
    return [Line2D([], [], color=_LINE, linewidth=1.4, linestyle="-.", label=f"trap-free above {free.temperature:.4f}")]


def _finish(axes: Axes, found: Continuation) -> None:
    low, high = found.temperatures
    if found.trap_free.found:
        axes.axvline(found.trap_free.temperature, color=_LINE, linewidth=1.4, linestyle="-.", zorder=1)
    axes.set(xscale="log", xlabel=r"temperature inside the loss $\tau$ (1)", xlim=(low, high))
    axes.xaxis.set_major_formatter(FormatStrFormatter("%g"))
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 3, 4, 6)))
    axes.xaxis.set_minor_formatter(NullFormatter())
