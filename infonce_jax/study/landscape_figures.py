"""Pictures of a landscape: its disconnectivity graph, and the energy along a path with what embeddings look like."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.interpolate import PchipInterpolator

from infonce_jax.checks import refuse
from infonce_jax.energies import Energy
from infonce_jax.landscape import (
    DisconnectivityTree,
    ElasticBand,
    Landscape,
    ReactionPath,
    barrier_saddles,
    check_saddles,
    communicating_height,
    disconnectivity,
)
from infonce_jax.landscape import path as lowest_path
from infonce_jax.study.figures import STYLE, minimum_names

__all__ = ["cross_check", "disconnectivity_figure", "path_figure"]

_STYLE = {**STYLE, "axes.grid": False}
_GLOBAL, _TRAPS, _SADDLE = "#2171b5", ("#333333", "#d94801", "#6a51a3", "#238b45"), "#cb181d"
_MOST_LEAVES = 120  # a line each must stay visible
_LABEL_GAP = 0.035  # of the range of energies, between two labels


def disconnectivity_figure(landscape: Landscape) -> Figure:
    """The tree of the classes of minima with E*, and beside it that of their copies where these were counted.

    Every line ends below at the energy of a minimum; lines meet where a rising energy joins the minima.

    Args:
        landscape: from `landscape.explore`.
    """
    trees = [disconnectivity(landscape)]
    if len(landscape.minima) < len(landscape.copies) <= _MOST_LEAVES:
        trees.append(disconnectivity(landscape, copies=True))
    widths = [max(3.2, 1.3 * len(trees[0].leaves)), *(min(2.2 + 0.16 * len(t.leaves), 10.0) for t in trees[1:])]
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(sum(widths) + 0.8, 4.8), layout="constrained")
        panels = figure.subplots(1, len(trees), sharey=True, squeeze=False, width_ratios=widths)[0]
        for axes, tree in zip(panels, trees, strict=True):
            _draw_tree(axes, tree, landscape)
        _label_classes(panels[0], trees[0], landscape)
        _draw_depth(panels[0], trees[0], landscape)
        panels[0].set(xlabel="classes of minima", ylabel="energy")
        low, high = _range(trees[0])
        panels[0].set_ylim(low - 0.14 * (high - low), high + 0.12 * (high - low))
        if len(panels) > 1:
            panels[1].set_xlabel("copies, one line each")
            kinds = [trees[1].nodes[k].minimum for k in trees[1].leaves]
            handles = [Line2D([], [], color=_colour(landscape, c), linewidth=2, label=f"{name}: {kinds.count(c)}")
                       for c, name in enumerate(minimum_names(landscape))]  # fmt: skip
            figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 4))
    return figure


def _range(tree: DisconnectivityTree) -> tuple[float, float]:
    energies = [node.energy for node in tree.nodes]
    return min(energies), max(max(energies), min(energies) + 1e-3 * (1 + abs(min(energies))))


def _colour(landscape: Landscape, minimum: int) -> str:
    return _GLOBAL if minimum < landscape.number_global else _TRAPS[(minimum - landscape.number_global) % len(_TRAPS)]


def _draw_tree(axes: Axes, tree: DisconnectivityTree, landscape: Landscape) -> None:
    low, high = _range(tree)
    for node in tree.nodes:
        for child in (tree.nodes[c] for c in node.children):
            colour = "#888888" if child.children else _colour(landscape, child.minimum)
            axes.plot([child.x, child.x], [child.energy, node.energy], color=colour, linewidth=1.6)
        if node.children:
            places = [tree.nodes[c].x for c in node.children]
            axes.plot([min(places), max(places)], [node.energy] * 2, color="#888888", linewidth=1.2)
    for root in (tree.nodes[k] for k in tree.roots):
        top = high + 0.06 * (high - low)
        axes.plot([root.x, root.x], [root.energy, top], color="#888888", linewidth=1.2)
    for leaf in (tree.nodes[k] for k in tree.leaves):
        axes.plot(leaf.x, leaf.energy, "o", color=_colour(landscape, leaf.minimum), markersize=4)
    axes.set(xlim=(-0.7, len(tree.leaves) - 0.3), xticks=[])
    axes.spines["bottom"].set_visible(False)
    _label_heights(axes, tree)


def _label_heights(axes: Axes, tree: DisconnectivityTree) -> None:
    """Heights of the mergers beside their right ends; of mergers too close to tell apart only the highest."""
    low, high = _range(tree)
    written: list[float] = []
    for node in sorted((n for n in tree.nodes if n.children), key=lambda n: -n.energy):
        if all(abs(node.energy - other) > _LABEL_GAP * (high - low) for other in written):
            right = max(tree.nodes[c].x for c in node.children)
            axes.annotate(f"{node.energy:.3f}", (right, node.energy), xytext=(2, 3), textcoords="offset points",
                          color=_SADDLE, fontsize=9, ha="right")  # fmt: skip
            written.append(node.energy)


def _label_classes(axes: Axes, tree: DisconnectivityTree, landscape: Landscape) -> None:
    names = minimum_names(landscape)
    for leaf in (tree.nodes[k] for k in tree.leaves):
        axes.annotate(f"{names[leaf.minimum]}\n{leaf.energy:.3f}".replace("global minimum", "global"),
                      (leaf.x, leaf.energy), xytext=(0, -6), textcoords="offset points", ha="center", va="top",
                      fontsize=9, color=_colour(landscape, leaf.minimum))  # fmt: skip


def _draw_depth(axes: Axes, tree: DisconnectivityTree, landscape: Landscape) -> None:
    """E* as a double arrow beside the leaf that sets it."""
    e_star = landscape.critical_depth
    if not (math.isfinite(e_star) and e_star > 0):
        return
    deepest = _deepest(landscape)
    leaf = next(tree.nodes[k] for k in tree.leaves if tree.nodes[k].minimum == deepest)
    x = leaf.x - 0.16
    axes.annotate("", (x, leaf.energy + e_star), (x, leaf.energy),
                  arrowprops={"arrowstyle": "<->", "color": _SADDLE, "shrinkA": 0, "shrinkB": 0})  # fmt: skip
    axes.text(x - 0.06, leaf.energy + e_star / 2, f"E* = {e_star:.3f}", ha="right", va="center", color=_SADDLE)


def _deepest(landscape: Landscape) -> int:
    """The class of minima that sets E*."""
    traps = range(landscape.number_global, len(landscape.minima))
    return min(traps, key=lambda k: abs(_depth(landscape, k) - landscape.critical_depth), default=0)


def _depth(landscape: Landscape, k: int) -> float:
    heights = [communicating_height(landscape.network, k, g) for g in range(landscape.number_global)]
    return min(heights) - landscape.minima[k].energy


def path_figure(path: ElasticBand | ReactionPath, landscape: Landscape, title: str = "") -> Figure:
    """Energy along a path against arc length, with the configuration at its start, its highest point and its end.

    Args:
        path: from `landscape.path`, `elastic_band` or `steepest_descent_path`.
        landscape: the landscape it lies on, for the names of its ends and E*.
        title: above the figure.

    Raises:
        InputError: embeddings in more than three dimensions.
    """
    d = path.positions.shape[2]
    if d > 3:
        raise refuse("path", f"d = {d}", "d = 2 or 3", "there is no picture of a sphere in more dimensions")
    s, energies, top = path.arc_length, path.energies, path.top
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(7.6, 6.2), layout="constrained")
        rows: Any = figure.subfigures(2, 1, height_ratios=(2, 3))
        names = [_name_at(landscape, float(energies[0])), "highest point", _name_at(landscape, float(energies[-1]))]
        for axes, place, name in zip(rows[0].subplots(1, 3), (0, top, -1), names, strict=True):
            _draw_configuration(axes, path.positions[place], landscape.energy)
            label = "saddle" if 0 < top < len(s) - 1 and name == "highest point" else name
            axes.set_title(f"{label}, E = {energies[place]:.3f}", fontsize=10)
        axes = rows[1].subplots()
        fine = np.linspace(0, s[-1], 400)
        axes.plot(fine, PchipInterpolator(s, energies)(fine), color="#4292c6", linewidth=1.8)
        if isinstance(path, ElasticBand):
            axes.plot(s, energies, "o", color="#4292c6", markersize=4)
        axes.plot(s[top], energies[top], "D", color=_SADDLE, markersize=7)
        _draw_barrier(axes, path, landscape)
        axes.set(xlabel="arc length along the path (radians)", ylabel="energy")
        axes.grid(alpha=0.25)
        if title:
            figure.suptitle(title, fontsize=11)
    return figure


def _name_at(landscape: Landscape, energy: float) -> str:
    """Name of the class of minima at an end of a path."""
    apart = [abs(minimum.energy - energy) for minimum in landscape.minima]
    k = int(np.argmin(apart))
    return minimum_names(landscape)[k] if apart[k] < 1e-4 * (1 + abs(energy)) else "end"


def _draw_barrier(axes: Axes, path: ElasticBand | ReactionPath, landscape: Landscape) -> None:
    """The climb from the higher end as a double arrow to the left of the path or to its right."""
    s, energies, top = path.arc_length, path.energies, path.top
    high = energies[top]
    left = energies[0] >= energies[-1]
    base, edge = (energies[0], 0.0) if left else (energies[-1], s[-1])
    x = edge + (-0.05 if left else 0.05) * s[-1]
    climb = float(high - base)
    name = "E*" if abs(climb - landscape.critical_depth) < 1e-5 * (1 + abs(climb)) else "barrier"
    axes.plot([x, s[top]], [high, high], ":", color=_SADDLE, linewidth=1)
    axes.annotate("", (x, high), (x, base),
                  arrowprops={"arrowstyle": "<->", "color": _SADDLE, "shrinkA": 0, "shrinkB": 0})  # fmt: skip
    axes.annotate(f"{name} = {climb:#.3g}", (x, high), xytext=(0, 5), textcoords="offset points", color=_SADDLE,
                  ha="left" if left else "right", va="bottom")  # fmt: skip
    axes.margins(y=0.14)


_VIEW = np.array([[0.8, -0.6, 0.0], [0.24, 0.32, 0.917], [-0.55, -0.734, 0.4]])  # right, up, towards the reader


def _draw_configuration(axes: Axes, x: np.ndarray, energy: Energy) -> None:
    """Embeddings on the circle, or on a sphere seen from far away, with lines between positives.

    On the sphere points at the back are pale.
    """
    view = np.linalg.qr(_VIEW.T)[0].T if x.shape[1] == 3 else np.eye(2)
    seen = x @ view.T
    depth = seen[:, 2] if x.shape[1] == 3 else np.ones(len(x))
    turn = np.linspace(0, 2 * np.pi, 200)
    axes.plot(np.cos(turn), np.sin(turn), color="#bbbbbb", linewidth=1)
    keys, weights = getattr(energy, "keys", None), getattr(energy, "positives", None)
    if keys is not None:
        axes.scatter(*(np.asarray(keys) @ view.T)[:, :2].T, marker="s", s=26, color="#888888", zorder=2)
    if weights is not None:
        w = np.asarray(weights)[:, : len(x)]
        w = (w + w.T) / max(2 * float(np.max(w)), 1e-12)
        for i, j in zip(*np.nonzero(np.triu(w, 1) > 0.05), strict=True):
            axes.plot(*seen[[i, j], :2].T, color="#4292c6", linewidth=2 * w[i, j], alpha=0.5, zorder=1)
    for side, strength in ((depth < 0, 0.35), (depth >= 0, 1.0)):
        axes.scatter(*seen[side, :2].T, s=34, c=np.flatnonzero(side), vmin=0, vmax=len(x) - 1 or 1, zorder=3,
                     cmap="twilight_shifted", edgecolor="black", alpha=strength)  # fmt: skip
    for order, i in _stacked(seen[:, :2]):
        outwards = seen[i, :2] / max(float(np.linalg.norm(seen[i, :2])), 0.3)
        place = seen[i, :2] + (0.2 + 0.17 * order) * outwards
        axes.text(place[0], place[1], str(i), ha="center", va="center", fontsize=8)
    axes.set(aspect="equal", xlim=(-1.5, 1.5), ylim=(-1.5, 1.5))
    axes.set_axis_off()


def _stacked(places: np.ndarray) -> list[tuple[int, int]]:
    """(Number of earlier points at nearly the same place, index) of each point, so that labels do not overlap."""
    near = np.linalg.norm(places[:, None] - places[None], axis=-1) < 0.2
    return [(int(np.sum(near[i, :i])), i) for i in range(len(places))]


def cross_check(landscape: Landscape, name: str, out: Path | None, say: Callable[[str], None]) -> None:
    """Say how bands compare with the saddles that set E* and m, and write both figures where a directory is given.

    Args:
        landscape: from `landscape.explore`.
        name: of the scenario, for the title.
        out: an existing directory, or None for no figures.
        say: takes each line.
    """
    figures = {"disconnectivity.png": disconnectivity_figure(landscape)} if out else {}
    saddles = barrier_saddles(landscape) if landscape.symmetry.standard else []
    if saddles:
        say("  bands between the minima that do not know of the saddles:")
        for line in check_saddles(landscape, saddles).lines():
            say(f"  {line}")
        if out and landscape.energy.shape[1] <= 3:
            height = landscape.minima[_deepest(landscape)].energy + landscape.critical_depth
            sets = min(saddles, key=lambda k: abs(landscape.saddles[k].energy - height))
            first, second = landscape.saddles[sets].ends
            figures["path.png"] = path_figure(lowest_path(landscape, second, first), landscape, name)
    else:
        say("  no saddle to check: no barrier is known, or copies cannot be rotated onto each other")
    if out:
        for file, figure in figures.items():
            figure.savefig(out / file, dpi=150)
        say(f"  figures: {', '.join(str(out / file) for file in figures)}")
