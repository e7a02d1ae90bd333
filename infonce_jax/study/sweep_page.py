"""What a sweep writes: one table in three forms, and a figure where one number varies."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from infonce_jax.study import outputs, pages
from infonce_jax.study.configuration import SETTINGS, moving_temperatures, standard_schedules
from infonce_jax.study.figures import STYLE, schedule_colours, schedule_lines
from infonce_jax.study.sweep_grid import text_of

__all__ = ["draw_sweep", "rows_of", "write_sweep"]

_AXES = {
    "chains": "chains per schedule (1)",
    "steps": "steps per chain (1)",
    "seed": "seed (1)",
    "step_size": "step size (time units)",
    "temperature": r"temperature inside the loss $\tau$ (1)",
    "from_temperature": r"temperature $\tau$ to anneal from (1)",
}
_MOST_TICKS = 8  # each value by its number while that fits
_COLUMNS: tuple[str, ...] = (
    "directory", "state", "note", *SETTINGS, "schedule", "critical_depth", "trapped", "trapped_low", "trapped_high",
    "predicted", "predicted_low", "predicted_high", "raw", "raw_low", "raw_high", "chain_steps_per_second",
)  # fmt: skip


def rows_of(directory: str, summary: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of one finished study, one for each schedule.

    Args:
        directory: the study's, as the table names it.
        summary: its summary.json.

    Returns:
        Settings as they were asked for, null for a default, but for the step size, which is the one that was used.
        Shares are those at the end of the run, each with the ends of its 95 % interval; null where there is no
        prediction.
    """
    settings = {key: value for key, value in summary["configuration"].items() if key != "out"}
    settings["step_size"] = summary["step_size"]
    rows = []
    for entry in summary["schedules"]:
        shares = {}
        for name in ("trapped", "predicted", "raw"):
            last = [None] * 3 if entry[name] is None else entry[name][-1]
            shares |= dict(zip((name, f"{name}_low", f"{name}_high"), last, strict=True))
        rows.append({
            "directory": directory, "state": "finished", "note": "", **settings, "schedule": entry["name"],
            "critical_depth": summary["landscape"]["critical_depth"], **shares,
            "chain_steps_per_second": entry["chain_steps_per_second"],
        })  # fmt: skip
    return rows


def write_sweep(out: Path, content: dict[str, Any]) -> Path:
    """Write sweep.csv, the figure, sweep.html and, last of all, sweep.json; returns the page's path.

    Args:
        out: the sweep's directory.
        content: `complete`, `asked` (with `vary`, `how`, `base`), `studies` (each with `directory`, `parameters`,
            `state`, `note`) and `rows` (see `rows_of`), as plain JSON types.
    """
    environment = outputs.environment()
    pages.replace_text(out / "sweep.csv", _as_csv(content))
    figure = draw_sweep(content)
    picture = None if figure is None else outputs.embedded_png(figure, out / "sweep.png")
    rows = {study["directory"]: [] for study in content["studies"]}
    for row in content["rows"]:
        rows[row["directory"]].append(row)
    page = pages.render(
        "sweep.html", studies=content["studies"], rows=rows, vary=content["asked"]["vary"], how=content["asked"]["how"],
        settings=content["asked"]["base"], environment=environment, picture=picture, share=_share, shown=_shown,
        predicted=any(row["predicted"] is not None for row in content["rows"]),
        finished=sum(study["state"] == "finished" for study in content["studies"]),
    )  # fmt: skip
    path = pages.replace_text(out / "sweep.html", page)
    outputs.write_json(out / "sweep.json", {**content, "environment": environment})
    return path


def _as_csv(content: dict[str, Any]) -> str:
    """The rows of finished studies, and one row with its reason for every other study."""
    finished = {row["directory"] for row in content["rows"]}
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for study in content["studies"]:
        if study["directory"] in finished:
            writer.writerows(row for row in content["rows"] if row["directory"] == study["directory"])
        else:
            known = {key: study[key] for key in ("directory", "state", "note")}
            writer.writerow({**content["asked"]["base"], **study["parameters"], **known})
    return text.getvalue()


def _share(row: dict[str, Any], name: str) -> str:
    if row[name] is None:
        return "-"
    return f"{row[name]:.3f} [{row[f'{name}_low']:.3f}, {row[f'{name}_high']:.3f}]"


def _shown(value: Any) -> str:
    """A value as a reader wants it: a landscape from a file by the file's own name."""
    return text_of(value).rpartition("/")[2]


def draw_sweep(content: dict[str, Any]) -> Figure | None:
    """Shares of trapped chains against the number that varies, one line per schedule; None where there is not one.

    What varies beside it without being a number, such as the scenario, gets a panel for each of its values.

    Args:
        content: as in `write_sweep`.
    """
    vary = content["asked"]["vary"]
    numbers = [name for name in vary if name in _AXES]
    if len(numbers) != 1:
        return None
    name, panels = numbers[0], {}
    place = {study["directory"]: study["parameters"] for study in content["studies"]}
    for row in content["rows"]:
        parameters = place[row["directory"]]
        if parameters[name] is not None:  # a default has no place on the axis
            title = ", ".join(_shown(value) for key, value in parameters.items() if key != name)
            panels.setdefault(title, []).append((parameters[name], row))
    panels = {title: points for title, points in panels.items() if len({x for x, _ in points}) > 1}
    return _draw(panels, name) if panels else None


def _draw(panels: dict[str, list[tuple[float, dict[str, Any]]]], name: str) -> Figure:
    columns = min(len(panels), 3)
    rows = math.ceil(len(panels) / columns)
    every = [x for points in panels.values() for x, _ in points]
    scale = "log" if min(every) > 0 and max(every) > 5 * min(every) else "linear"
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(2.6 + 4.6 * columns, 0.4 + 4.2 * rows), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
        for k, (axes, (title, points)) in enumerate(zip(grid, panels.items(), strict=False)):
            axes.set(xscale=scale, yscale="log", title=title)
            _panel(axes, points, _side_by_side(every, scale))
            if len(set(every)) <= _MOST_TICKS:
                axes.set_xticks(sorted(set(every)), [text_of(x) for x in sorted(set(every))])
                axes.minorticks_off()
            axes.set_xlabel(_AXES[name])
            axes.tick_params(labelbottom=True)
            if k % columns == 0:
                axes.set_ylabel("P(not in the global basin after a quench)")
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        grid[0].set_ylim(top=1.3)
        figure.legend(*grid[0].get_legend_handles_labels(), loc="outside right center")
    return figure


def _side_by_side(every: Sequence[float], scale: str) -> Callable[[np.ndarray, int], np.ndarray]:
    """Where the points of the k-th schedule stand: a little apart, so that intervals do not hide each other."""
    low, high = min(every), max(every)

    def place(x: np.ndarray, k: int) -> np.ndarray:
        shift = 0.008 * (k - 3.5)
        return x * (high / low) ** shift if scale == "log" else x + (high - low) * shift

    return place


def _panel(axes: Axes, points: Sequence[tuple[float, dict[str, Any]]], place: Callable[..., np.ndarray]) -> None:
    """One line per schedule with its 95 % intervals; no trapped chain at all is an upper bound."""
    known = standard_schedules(1.0, 1.0) | {name: beta for name, (beta, _) in moving_temperatures(1, 1, 1, 0.5).items()}
    colours, lines = schedule_colours(known), schedule_lines(known)
    for k, schedule in enumerate(dict.fromkeys(row["schedule"] for _, row in points)):
        series = sorted((x, row["trapped"], row["trapped_low"], row["trapped_high"]) for x, row in points
                        if row["schedule"] == schedule)  # fmt: skip
        x, middle, low, high = np.array(series, dtype=float).T
        x, colour, seen = place(x, k), colours[schedule], middle > 0
        bars = np.maximum([middle - low, high - middle], 0)[:, seen]  # at 0 and 1 they round to -1e-17
        axes.errorbar(x[seen], middle[seen], yerr=bars, fmt=f"o{lines[schedule]}", color=colour, markersize=4,
                      linewidth=1.2, elinewidth=0.9, capsize=2, label=schedule)  # fmt: skip
        axes.plot(x[~seen], high[~seen], linestyle="none", marker="v", markerfacecolor="none", color=colour)
