"""What a study writes: data, summary, figures and the page, each whole or not at all."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import math
import os
import platform
import shutil
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from infonce_jax.checks import InputError
from infonce_jax.measure import Proportion
from infonce_jax.schedules import HorizonSchedule
from infonce_jax.study import figures, pages, prediction
from infonce_jax.study.run import Study, Trapping

__all__ = [
    "embedded_png",
    "prepare_directory",
    "replace_zarr",
    "summarise",
    "write_json",
    "write_partial",
    "write_study",
]

_PACKAGES = ("infonce-jax", "jax", "jaxlib", "numpy", "scipy", "optax", "flax", "xarray", "zarr", "networkx",
             "scikit-learn")  # fmt: skip
_PICTURES = ("trapping", "configurations", "levels", "schedules", "energies")
_WHOLE = ("results.zarr", "summary.json", *(f"{name}.png" for name in _PICTURES), "report.html")
_PARTIAL = ("partial.zarr", "partial.json", "unfinished.zarr")


def prepare_directory(path: Path) -> Path:
    """Make the directory and see that it can be written to; what an earlier study left there stays as it is.

    Raises:
        InputError: it cannot be made or written to.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe = path / ".write-probe"
        probe.touch()
        probe.unlink()
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"out: got {path} ({reason}); needs a directory that can be written; pass another --out"
        ) from None
    return path


def remove(path: Path) -> None:
    """Delete a file or a directory tree if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def environment() -> dict[str, Any]:
    """Versions, device and machine, so that a run can be repeated."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "not installed"
    devices = jax.devices()
    return {"python": platform.python_version(), "versions": versions, "devices": len(devices),
            "device": f"{devices[0].platform} ({devices[0].device_kind})"}  # fmt: skip


def _course(outcome: Trapping) -> str:
    """What the quenched curve did over the last decade of time, in words, by its own intervals."""
    last = outcome.final
    decade = outcome.times >= outcome.times[-1] / 10.001
    early = outcome.quenched[int(np.argmax(decade))]
    if last.successes == 0:
        return f"none of {last.trials} chains left in a trap"
    if early.low > last.high:
        return "still falling"
    if early.high < last.low:
        return "rising"
    return "no change that the intervals can tell"


def summarise(study: Study) -> dict[str, Any]:
    """Everything a reader may want to compute with, as plain JSON types."""
    land = study.land
    configuration = dataclasses.asdict(study.configuration)
    del configuration["execution"]  # how the work was cut is no part of the results
    configuration["out"] = None if configuration["out"] is None else Path(configuration["out"]).name
    return {
        "complete": study.complete,
        "configuration": configuration,
        "environment": environment(),
        "seconds": round(study.seconds, 1),
        "scenario": {
            "name": study.scenario.name,
            "description": study.scenario.description,
            "shape": study.scenario.shape,
        },
        "landscape": {
            "minima": [{"energy": m.energy, "share": m.share, "copies": m.copies} for m in land.minima],
            "saddles": [{"energy": s.energy, "ends": s.ends} for s in land.saddles],
            "critical_depth": land.critical_depth,
            "spectral_depth": None if np.isnan(land.spectral_depth) else land.spectral_depth,
            "curvature": land.curvature,
            "saturated": land.saturated,
        },
        "step_size": study.step_size,
        "horizon": study.configuration.steps * study.step_size,
        "raw_cut": land.minima[0].energy + study.delta / 2,
        "prediction": study.prediction_note,
        "schedules": [_summary_of(study, outcome) for outcome in study.outcomes],
    }


def plain(value: float) -> str:
    """A positive number with three digits as a person writes it; powers of ten where it is astronomical."""
    if value >= 1e6:
        return f"10^{math.log10(value):.0f}"
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 1000 else f"{value:.3g}"


def _ends_of_temperature(study: Study) -> list[float]:
    """tau at the start and at the end of the schedules that move it."""
    taus = next(iter(study.data[name]["temperature"].values for name in study.temperatures if name in study.data))
    return [float(taus[0]), float(taus[-1])]


def _summary_of(study: Study, outcome: Trapping) -> dict[str, Any]:
    def rows(values: list[Proportion]) -> list[list[float]]:
        return [[p.estimate, p.low, p.high] for p in values]

    p, moves = outcome.predicted, outcome.name in study.temperatures
    return {
        "name": outcome.name,
        "formula": outcome.schedule.name,
        "kind": "to horizon" if moves or isinstance(outcome.schedule, HorizonSchedule) else "fixed",
        "temperature": _ends_of_temperature(study) if moves else None,
        "times": outcome.times.tolist(),
        "final_inverse_temperature": float(outcome.schedule(outcome.times[-1])),
        "trapped": rows(outcome.quenched),
        "predicted": None if p is None else np.stack([p.probability, p.low, p.high], axis=1).tolist(),
        "differences": [] if p is None else prediction.statements(
            study.land, outcome.schedule, outcome.times, outcome.quenched, p, plain),
        "raw": rows(outcome.raw),
        "course": _course(outcome),
        "unknown_basin": outcome.unknown,
        "seconds": round(outcome.seconds, 2),
        "chain_steps_per_second": round(outcome.chain_steps_per_second),
    }  # fmt: skip


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Write plain JSON types, whole or not at all."""
    pages.replace_text(path, json.dumps(content, indent=1))


def _write_data(path: Path, study: Study, summary: dict[str, Any]) -> None:
    names = [name for name in study.data if "basin" in study.data[name]]
    if not names:
        return
    data = xr.concat(
        [study.data[n] for n in names],
        dim=xr.DataArray(names, dims="schedule", name="schedule"),
        combine_attrs="drop_conflicts",
    )
    data.attrs.update(summary=json.dumps(summary))
    replace_zarr(path, data)


def replace_zarr(path: Path, data: xr.Dataset) -> None:
    """Write beside the final place and move there when whole."""
    new = path.with_name(path.name + ".new")
    remove(new)
    data.drop_encoding().to_zarr(new, mode="w", zarr_format=3, consolidated=False)
    remove(path)
    os.replace(new, path)


def write_partial(study: Study, out: Path) -> list[Path]:
    """Save what an interrupted study had, under names nobody takes for a finished one; returns what was written."""
    summary = summarise(study)
    write_json(out / "partial.json", summary)
    _write_data(out / "partial.zarr", study, summary)
    if study.unfinished is not None:
        replace_zarr(out / "unfinished.zarr", study.unfinished)
    return [path for path in (out / "partial.json", out / "partial.zarr", out / "unfinished.zarr") if path.exists()]


def _extremes(study: Study, pick: Callable[..., float]) -> str:
    """The schedules with the most or the fewest trapped chains, all of them where they tie, and the proportion."""
    share = pick(o.final.estimate for o in study.outcomes)
    tied = [o for o in study.outcomes if o.final.estimate == share]
    return f"{' and '.join(o.name for o in tied)}: {tied[0].final}"


def embedded_png(figure: Figure, path: Path) -> str:
    """Write a figure as a PNG file, and return it as the base64 text that a page carries inside."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight", dpi=110, metadata={"Software": None})
    path.write_bytes(buffer.getvalue())
    return base64.b64encode(buffer.getvalue()).decode()


def write_study(study: Study, out: Path) -> Path:
    """Write results.zarr, summary.json, the figures and report.html; returns the page's path.

    All of it is written beside its place first and moved there when whole, the page last: a full disk leaves what an
    earlier study wrote as it was.
    """
    summary = summarise(study)
    stage = out / ".new"
    remove(stage)
    stage.mkdir()
    try:
        _write_data(stage / "results.zarr", study, summary)
        write_json(stage / "summary.json", summary)
        (stage / "report.html").write_text(_page(study, summary, stage), encoding="utf-8")
        for name in (*_PARTIAL, *_WHOLE):
            remove(out / name)
            if (stage / name).exists():
                os.replace(stage / name, out / name)
    finally:
        remove(stage)
    return out / "report.html"


def _page(study: Study, summary: dict[str, Any], pictures_in: Path) -> str:
    """The report, with its figures inside; they are also written as files of their own."""
    standing = {name: s for name, s in study.schedules.items() if name not in study.temperatures}
    drawn = {
        "trapping": figures.draw_trapping(study),
        "configurations": figures.draw_configurations(study.scenario, study.land),
        "levels": figures.draw_levels(study.land),
        "schedules": figures.draw_schedules(standing, summary["horizon"], study.step_size),
        "energies": figures.draw_energies({name: study.data[name] for name in standing}, study.land, standing),
    }
    pictures = {
        name: embedded_png(figure, pictures_in / f"{name}.png") for name, figure in drawn.items() if figure is not None
    }
    return pages.render(
        "report.html", study=study, land=study.land, summary=summary, pictures=pictures, plain=plain,
        names=figures.minimum_names(study.land), most=_extremes(study, max), least=_extremes(study, min),
        unknown=max(o.unknown for o in study.outcomes), compared=sum(len(o.times) for o in study.outcomes),
    )  # fmt: skip
