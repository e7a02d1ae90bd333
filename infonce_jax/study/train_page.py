"""What a training writes: data, parameters, summary, figures and the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from infonce_jax import encoders
from infonce_jax.study import figures, outputs, pages
from infonce_jax.study.figures import STYLE
from infonce_jax.study.recipes import Outcome, Recipe, mean_interval
from infonce_jax.study.train_configuration import TrainConfiguration

__all__ = ["draw_course", "draw_outcome", "write_training"]

_PANELS = {
    "loss": "loss",
    "temperature": r"temperature $\tau$ in the loss",
    "alignment": "alignment, mean |a - p|$^2$",
    "uniformity": "uniformity, log mean e$^{-2|z - z'|^2}$",
    "gradient_norm": "gradient norm",
}


def write_training(
    configuration: TrainConfiguration, recipe: Recipe, training: encoders.Training, outcome: Outcome, out: Path
) -> Path:
    """Write training.zarr, parameters.npz, training.json, the figures and, last of all, report.html; its path.

    `encoders.load_parameters` reads the weights.
    """
    for name in ("report.html", "training.json", "outcome.png", "course.png", "configurations.png", "partial.zarr"):
        outputs.remove(out / name)
    data = training.data.assign({f"{name}, final": ("seed", values) for name, values in outcome.values.items()})
    summary = _summary(configuration, recipe, training, outcome)
    outputs.replace_zarr(out / "training.zarr", data.assign_attrs(summary=json.dumps(summary)))
    encoders.save_parameters(out / "parameters.npz", training.parameters)
    outputs.write_json(out / "training.json", summary)
    drawn = {"outcome": draw_outcome(outcome), "course": draw_course(training.data)}
    if outcome.landscape is not None:
        picture = figures.draw_configurations(*outcome.landscape)
        drawn |= {} if picture is None else {"configurations": picture}
    pictures = {name: outputs.embedded_png(figure, out / f"{name}.png") for name, figure in drawn.items()}
    page = pages.render("train.html", configuration=configuration, recipe=recipe, training=training, outcome=outcome,
                        summary=summary, pictures=pictures)  # fmt: skip
    return pages.replace_text(out / "report.html", page)


def _summary(
    configuration: TrainConfiguration, recipe: Recipe, training: encoders.Training, outcome: Outcome
) -> dict[str, Any]:
    return {
        "configuration": configuration.settings(),
        "environment": outputs.environment(),
        "description": recipe.description,
        "seconds": round(training.seconds, 1),
        "seed_steps_per_second": round(training.num_steps * training.data.sizes["seed"] / training.seconds),
        "lines": outcome.lines,
        "flags": list(training.flags),
        "values": {name: values.tolist() for name, values in outcome.values.items()},
        "reference": {name: [label, value] for name, (label, value) in outcome.reference.items()},
    }


def draw_course(data: xr.Dataset) -> Figure:
    """Metrics against steps: the median over seeds, with the range of the middle nine tenths."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11, 5.6), layout="constrained")
        panels = figure.subplots(2, 3, sharex=True).ravel()
        for axes, (name, label) in zip(panels, _PANELS.items(), strict=False):
            if not np.any(np.isfinite(data[name].values)):  # alignment, of an energy that names no positives
                axes.set_visible(False)
                continue
            low, middle, high = np.nanquantile(data[name].values, [0.05, 0.5, 0.95], axis=0)
            axes.fill_between(data["step"].values, low, high, color="#2171b5", alpha=0.2, linewidth=0)
            axes.plot(data["step"].values, middle, color="#2171b5")
            axes.set(title=label)
            axes.title.set_fontsize(10)
            if np.nanmin(low) > 0 and np.nanmax(high) > 30 * np.nanmin(low):
                axes.set_yscale("log")
        log = float(data.attrs["batch_log"])
        if np.isfinite(log):
            panels[0].axhline(log, color="#888888", linestyle=":", linewidth=1)
            panels[0].annotate("all similarities equal", (0.98, log), xycoords=("axes fraction", "data"), ha="right",
                               va="bottom", fontsize=8, color="#666666")  # fmt: skip
        panels[-1].set_visible(False)
        panels[2].tick_params(labelbottom=True)
        figure.supxlabel("step", fontsize=10)
    return figure


def draw_outcome(outcome: Outcome) -> Figure:
    """Every seed as a point, their mean with its 95 % interval, and what to compare it with."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(7.5, 0.9 + 0.8 * len(outcome.values)), layout="constrained")
        axes = figure.subplots()
        jitter = np.random.default_rng(0)
        for row, (name, values) in enumerate(outcome.values.items()):
            up = row + jitter.uniform(0.12, 0.3, len(values))
            axes.plot(values, up, ".", color="#9ecae1", label="seeds" if row == 0 else None)
            mean, low, high = mean_interval(values)
            axes.errorbar(mean, row, xerr=[[mean - low], [high - mean]], fmt="o", color="#08306b", capsize=3,
                          label="mean, 95 %" if row == 0 else None)  # fmt: skip
            label, beside = outcome.reference[name]
            axes.plot(beside, row, "x", color="#cb181d", markersize=8, label=label if row == 0 else None)
        axes.set(yticks=range(len(outcome.values)), yticklabels=list(outcome.values), xlabel="share (0 to 1)",
                 xlim=(-0.03, 1.03), ylim=(-0.5, len(outcome.values) - 0.3))  # fmt: skip
        figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure
