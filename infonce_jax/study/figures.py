"""The figures of a study, as a reader wants them: units on axes, legends beside the data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.offsetbox import AnnotationBbox, OffsetImage

from infonce_jax.landscape import Landscape
from infonce_jax.measure import Proportion
from infonce_jax.scenarios import Scenario
from infonce_jax.schedules import HorizonSchedule, Schedule
from infonce_jax.study.configuration import MOVES_TEMPERATURE
from infonce_jax.study.run import Study, Trapping

__all__ = [
    "STYLE",
    "draw_configurations",
    "draw_energies",
    "draw_levels",
    "draw_schedules",
    "draw_trapping",
    "minimum_names",
    "schedule_colours",
    "schedule_lines",
]

STYLE: dict[Any, Any] = {
    "font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25,
    "legend.frameon": False,
}  # fmt: skip
# Slow schedules in blues, fast fixed ones in reds, stretched ones in green: the colour says the kind.
_LOGS, _FAST, _STRETCHED = ("#9ecae1", "#4292c6", "#2171b5", "#08306b"), ("#fcae91", "#fb6a4a", "#cb181d"), ("#238b45",)
# Those that move the temperature inside the loss.
_MOVING = ("#bcbddc", "#9e9ac8", "#756bb1", "#3f007d")


def schedule_colours(schedules: Mapping[str, Schedule]) -> dict[str, str]:
    """A colour for each schedule by name: the kind of schedule picks the family of colours."""
    logs, fast, stretched, moving = iter(_LOGS), iter(_FAST), iter(_STRETCHED), iter(_MOVING)
    colours = {}
    for name, schedule in schedules.items():
        source = stretched if isinstance(schedule, HorizonSchedule) else (logs if name.startswith("log") else fast)
        if name.startswith(MOVES_TEMPERATURE):
            source = moving
        colours[name] = next(source, "#555555")
    return colours


def schedule_lines(schedules: Mapping[str, Schedule]) -> dict[str, str]:
    """A line style for each schedule by name: solid for fixed ones, dashed for those stretched to a horizon."""
    return {name: "--" if isinstance(s, HorizonSchedule) or name.startswith(MOVES_TEMPERATURE) else "-"
            for name, s in schedules.items()}  # fmt: skip


def draw_schedules(schedules: Mapping[str, Schedule], horizon: float, step_size: float) -> Figure:
    """Inverse temperature against time for any schedules, fixed ones solid, those stretched to a horizon dashed.

    Args:
        schedules: by name.
        horizon: last time, in time units.
        step_size: first time.
    """
    colours, lines = schedule_colours(schedules), schedule_lines(schedules)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, 4))
        axes = figure.subplots()
        t = np.geomspace(step_size, horizon, 400)
        for name, schedule in schedules.items():
            axes.plot(t, schedule(t), lines[name], color=colours[name], label=name)
        ceiling = 100 * min(float(s(horizon)) for s in schedules.values())
        axes.set(
            xscale="log", yscale="log", xlabel="time (time units)", ylabel=r"inverse temperature $\beta$ (1/energy)"
        )
        axes.set_ylim(top=max(ceiling, 100 * axes.get_ylim()[0]))
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))
    return figure


def _band(
    axes: Axes, times: np.ndarray, values: Sequence[Proportion], floor: float, colour: str, line: str, name: str
) -> None:
    low, middle, high = (np.array([getattr(p, part) for p in values]) for part in ("low", "estimate", "high"))
    axes.fill_between(times, np.maximum(low, floor), np.maximum(high, floor), color=colour, alpha=0.18, linewidth=0)
    seen = middle > 0
    axes.plot(times[seen], middle[seen], line, color=colour, marker="o", markersize=3, label=name)
    # No chain at all is an upper bound, drawn as one.
    axes.plot(
        times[~seen], high[~seen], linestyle="none", marker="v", markersize=6, markerfacecolor="none", color=colour
    )


def _points(axes: Axes, outcome: Trapping, floor: float, colour: str, line: str, name: str) -> None:
    """Measured shares after a quench as points with bars, and the predicted ones as a thin line."""
    times, values, predicted = outcome.times, outcome.quenched, outcome.predicted
    low, middle, high = (np.array([getattr(p, part) for p in values]) for part in ("low", "estimate", "high"))
    seen = middle > 0
    bars = np.stack([middle - np.maximum(low, floor / 10), high - middle])[:, seen]
    axes.errorbar(times[seen], middle[seen], yerr=bars, fmt="o", color=colour, markersize=3, elinewidth=0.8, label=name)
    axes.plot(
        times[~seen], high[~seen], linestyle="none", marker="v", markersize=6, markerfacecolor="none", color=colour
    )
    if predicted is not None:
        axes.plot(times, predicted.probability, line, color=colour, linewidth=0.9)


def draw_trapping(study: Study) -> Figure:
    """P(not at the global minimum) against time on log axes, 95 % intervals, raw and after a quench.

    Beside the measured shares after a quench stand the predicted ones, where there is a prediction.
    """
    floor = 0.3 / study.configuration.chains
    colours, lines = schedule_colours(study.schedules), schedule_lines(study.schedules)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11, 4.6), layout="constrained")
        panels = figure.subplots(1, 2, sharey=True)
        titles = ("as it is: energy above the cut", "after a quench: not in the global basin")
        for outcome in study.outcomes:
            look = (floor, colours[outcome.name], lines[outcome.name], outcome.name)
            _band(panels[0], outcome.times, outcome.raw, *look)
            _points(panels[1], outcome, *look)
        for axes, title in zip(panels, titles, strict=True):
            axes.set(xscale="log", yscale="log", xlabel="time (time units)", title=title, ylim=(floor, 1.3))
        panels[0].set_ylabel("P(not at the global minimum)")
        handles, labels = panels[0].get_legend_handles_labels()
        handles.append(Line2D([], [], color="black", marker="o", markersize=3, linestyle="none"))
        labels.append("right: measured, 95 %")
        if study.predictions:
            handles.append(Line2D([], [], color="black", linewidth=0.9))
            labels.append("right: predicted by rates")
        figure.legend(handles, labels, loc="outside right center")
    return figure


def draw_energies(
    data: Mapping[str, xr.Dataset], land: Landscape, schedules: Mapping[str, Schedule], chains: int = 12
) -> Figure:
    """Energy traces of a few chains under each schedule, with the levels of the minima and of the saddle of E*."""
    colours = schedule_colours(schedules)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11, 5.2), layout="constrained")
        panels = figure.subplots(2, 4, sharex=True, sharey=True).ravel()
        levels = [(m.energy, "#333333", "-") for m in land.minima] + [(_top(land), "#888888", ":")]
        ceiling = max(level for level, _, _ in levels)
        bottom = land.minima[0].energy
        for axes, (name, dataset) in zip(panels, data.items(), strict=False):
            traces = dataset["energy"].values[:chains]
            late = dataset["time"].values > 0
            axes.plot(dataset["time"].values[late], traces[:, late].T, color=colours[name], alpha=0.5, linewidth=0.7)
            for level, colour, line in levels:
                axes.axhline(level, color=colour, linestyle=line, linewidth=0.9)
            axes.set(
                xscale="log", title=name, ylim=(bottom - 0.1 * (ceiling - bottom), ceiling + 0.8 * (ceiling - bottom))
            )
            axes.title.set_fontsize(9)
        for axes in panels[len(data) :]:
            axes.set_visible(False)
        figure.supxlabel("time (time units)", fontsize=10)
        figure.supylabel("energy (solid: minima, dotted: the saddle of E*)", fontsize=10)
    return figure


def _top(land: Landscape) -> float:
    """Energy of the saddle that sets E*."""
    depths = [(minimum.energy + land.critical_depth) for minimum in land.minima[1:]]
    known = [s.energy for s in land.saddles]
    return min(known, key=lambda e: min(abs(e - d) for d in depths))


def _rise(land: Landscape, energy: float) -> float:
    """How nearly the minimum at this energy is the one that sets E*: 0 when a saddle lies exactly E* above it."""
    return -min(abs(saddle.energy - energy - land.critical_depth) for saddle in land.saddles)


def draw_levels(land: Landscape) -> Figure:
    """Energies of minima and saddles, each saddle joined to its two ends, with E* as a double arrow."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7, 4.2), layout="constrained")
        axes = figure.subplots()
        places = {k: float(k) for k in range(len(land.minima))}
        for k, minimum in enumerate(land.minima):
            axes.plot([k - 0.18, k + 0.18], [minimum.energy] * 2, color="black", linewidth=2.5)
            axes.annotate(
                f"{minimum.energy:.4f}", (k, minimum.energy), xytext=(0, -13), textcoords="offset points", ha="center"
            )
        drawn: list[float] = []
        for saddle in land.saddles:
            a, b = saddle.ends
            middle = (places[a] + places[b]) / 2 + (0.45 if a == b else 0.0)
            path = ([places[a], middle, places[b]], [land.minima[a].energy, saddle.energy, land.minima[b].energy])
            axes.plot(*path, ":", color="#cb181d", linewidth=1.0, alpha=0.8)
            axes.plot([middle - 0.09, middle + 0.09], [saddle.energy] * 2, color="#cb181d", linewidth=2.0)
            span = land.saddles[-1].energy - land.minima[0].energy
            if all(abs(saddle.energy - other) > 0.04 * span for other in drawn):  # near twins share a label
                axes.annotate(f"{saddle.energy:.4f}", (middle, saddle.energy), xytext=(0, 5), ha="center",
                              textcoords="offset points", color="#cb181d")  # fmt: skip
                drawn.append(saddle.energy)
        number = max(range(1, len(land.minima)), key=lambda k: _rise(land, land.minima[k].energy), default=0)
        if number and land.critical_depth > 0:
            deepest, x = land.minima[number], number - 0.3
            ends = ((x, deepest.energy + land.critical_depth), (x, deepest.energy))
            axes.annotate("", *ends, arrowprops={"arrowstyle": "<->", "color": "#2171b5"})
            middle = (x - 0.04, deepest.energy + land.critical_depth / 2)
            axes.text(*middle, "E*", ha="right", va="center", color="#2171b5")
        axes.set_xticks(range(len(land.minima)), minimum_names(land))
        axes.set(ylabel="energy", xlim=(-0.6, len(land.minima) - 0.2))
        axes.margins(y=0.12)
        axes.set_title(f"E* = {land.critical_depth:.4f} (black: minima, red: saddles)", fontsize=10)
        axes.grid(axis="x", visible=False)
    return figure


def draw_configurations(scenario: Scenario, land: Landscape, most: int = 3) -> Figure | None:
    """The minima and the saddles between them on the circle or the sphere, with their energies; None for d > 3."""
    d = scenario.shape[1]
    if d > 3:
        return None
    names = minimum_names(land)
    entries = [(f"{names[k]}\nE = {m.energy:.4f}", m.position) for k, m in enumerate(land.minima[:most])]
    lowest = sorted(land.network.edges[edge]["saddle"] for edge in land.network.edges)
    for k in lowest[:most]:
        first, second = (names[end] for end in land.saddles[k].ends)
        entries.append((f"saddle, {first} to {second}\nE = {land.saddles[k].energy:.4f}", land.saddles[k].position))
    with mpl.rc_context(STYLE):
        columns = min(len(entries), 3)
        rows = -(-len(entries) // columns)
        figure = Figure(figsize=(3.6 * columns, 4.0 * rows), layout="constrained")
        for k, (title, x) in enumerate(entries):
            axes: Any = figure.add_subplot(rows, columns, k + 1, projection=None if d == 2 else "3d")
            _draw_positives(axes, x, getattr(scenario.energy, "positives", None))
            if d == 2:
                _draw_circle(axes, x, getattr(scenario.energy, "keys", None), scenario.images)
            else:
                _draw_sphere(axes, x)
            axes.set_title(title, fontsize=10)
    return figure


def minimum_names(land: Landscape) -> list[str]:
    """Names of the classes of minima, as every figure and table uses them."""
    traps = len(land.minima) - 1
    return ["global minimum"] + [f"trap {k}" if traps > 1 else "trap" for k in range(1, traps + 1)]


def _draw_positives(axes: Any, x: np.ndarray, weights: Any) -> None:
    """A line from each embedding to those it is attracted to, as wide as the weight is large."""
    if weights is None:
        return
    w = np.asarray(weights)[:, : len(x)]
    w = (w + w.T) / max(2 * float(np.max(w)), 1e-12)
    for i, j in zip(*np.nonzero(np.triu(w, 1) > 0.05), strict=True):
        axes.plot(*np.stack([x[i], x[j]], axis=1), color="#4292c6", linewidth=2.2 * w[i, j], alpha=0.6, zorder=1)


def _draw_circle(axes: Axes, x: np.ndarray, keys: np.ndarray | None, images: np.ndarray | None) -> None:
    turn = np.linspace(0, 2 * np.pi, 200)
    axes.plot(np.cos(turn), np.sin(turn), color="#bbbbbb", linewidth=1)
    if keys is not None:
        axes.scatter(keys[:, 0], keys[:, 1], marker="s", s=36, color="#888888", zorder=2)
    axes.scatter(x[:, 0], x[:, 1], s=46, c=np.arange(len(x)), cmap="twilight_shifted", edgecolor="black", zorder=3)
    for members in _clusters(x):
        for order, i in enumerate(members):  # views at nearly the same place are stacked outwards
            right, up = ((1.3 + (0.42 if images is not None else 0.16) * order) * x[i]).tolist()
            if images is None:
                axes.text(right, up, str(i), ha="center", va="center", fontsize=8)
            else:
                thumbnail = OffsetImage(np.ma.masked_less(images[i], 1.0), zoom=0.55, cmap="gray_r")
                axes.add_artist(AnnotationBbox(thumbnail, (right, up), frameon=False))
    reach = 1.5 if images is None else 2.0
    axes.set(aspect="equal", xlim=(-reach, reach), ylim=(-reach, reach))
    axes.set_axis_off()


def _clusters(x: np.ndarray) -> list[list[int]]:
    """Indices of embeddings that a label beside them could not tell apart."""
    groups: list[list[int]] = []
    for i in range(len(x)):
        near = next((g for g in groups if np.linalg.norm(x[g[0]] - x[i]) < 0.3), None)
        if near is None:
            groups.append([i])
        else:
            near.append(i)
    return groups


def _draw_sphere(axes: Any, x: np.ndarray) -> None:
    u, v = np.mgrid[0 : 2 * np.pi : 25j, 0 : np.pi : 13j]
    axes.plot_wireframe(np.cos(u) * np.sin(v), np.sin(u) * np.sin(v), np.cos(v), color="#dddddd", linewidth=0.4)
    axes.scatter(*x.T, s=40, c=np.arange(len(x)), cmap="twilight_shifted", edgecolor="black", depthshade=False)
    for i, point in enumerate(x):
        axes.text(*(1.15 * point), str(i), fontsize=8)
    axes.set_box_aspect((1, 1, 1), zoom=1.35)
    axes.set_axis_off()
