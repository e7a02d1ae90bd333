"""`infonce-jax sweep`: a study for every point of a grid of settings, one after another in one process.

Every study has a directory of its own below that of the sweep, and what was asked stands in sweep.json. Asked again for
the same, a sweep skips the studies that are finished and goes on with the one it stopped in.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from infonce_jax.checks import InputError, refuse
from infonce_jax.fingerprint import differences
from infonce_jax.processes import exchange, is_writer
from infonce_jax.study import outputs, sittings, sweep_page
from infonce_jax.study.command import carry_out
from infonce_jax.study.configuration import SETTINGS, scenario_from_anywhere, settings_of
from infonce_jax.study.sweep_grid import Point, SharedSettings, SweepConfiguration, grid, text_of, values_of

__all__ = ["begun_in", "configuration_in", "sweep_command"]

_FILE = "sweep.json"
_FINISHED = "finished"


def _asked(configuration: SweepConfiguration) -> dict[str, Any]:
    """What the results depend on, as plain JSON types."""
    varied = values_of(configuration.vary)
    shared = {name: value for name, value in settings_of(configuration.base).items() if name not in varied}
    if "scenario" in shared:
        shared["scenario"] = scenario_from_anywhere(shared["scenario"])
    return {"vary": varied, "how": configuration.how, "base": shared}


def begun_in(directory: Path) -> bool:
    """Whether a sweep writes in this directory."""
    return (directory / _FILE).exists()


def configuration_in(directory: Path) -> SweepConfiguration:
    """What was asked of the sweep in a directory.

    Raises:
        InputError: its file cannot be read, or another version wrote it.
    """
    asked = _read(directory)["asked"]
    if unknown := sorted({*asked["base"], *asked["vary"]} - set(SETTINGS)):
        raise refuse("resume", f"settings {', '.join(unknown)} in {directory / _FILE}", "those this version knows",
                     "install the version that began the sweep")  # fmt: skip
    vary = tuple(f"{name}={','.join(map(text_of, values))}" for name, values in asked["vary"].items())
    return SweepConfiguration(vary, asked["how"], SharedSettings(**asked["base"], out=directory))


def _read(directory: Path) -> dict[str, Any]:
    try:
        content = json.loads((directory / _FILE).read_text())
        if {"vary", "how", "base"} <= set(content["asked"]) and "studies" in content:
            return content
        reason = "parts are missing"
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error)
    raise refuse("sweep", f"a file that cannot be read, {directory / _FILE} ({reason})", "what the sweep wrote there",
                 "restore it, or move it away: finished studies stay finished")  # fmt: skip


def _begin(configuration: SweepConfiguration, points: list[Point]) -> list[Point]:
    """The points with what is finished of them; refused where the directory holds something else."""
    out, fresh = configuration.directory, configuration.base.execution.fresh
    outputs.prepare_directory(out)
    if begun_in(out):
        content = _read(out)
        differ = differences(_flat(content["asked"]), _flat(_asked(configuration)))
        if differ and not fresh:
            raise refuse("out", f"{out}, where there is another sweep ({differ})", "a directory of its own",
                         f"finish that one with 'infonce-jax resume {out}', or replace it with --fresh, which keeps "
                         "finished studies")  # fmt: skip
        if fresh:
            _drop_unfinished(content, out)
    return [_looked_up(point, out) for point in points]


def _flat(asked: dict[str, Any]) -> dict[str, str]:
    """What was asked, setting by setting, as the command line takes it."""
    varied = {name: ",".join(map(text_of, values)) for name, values in asked["vary"].items()}
    return {**{name: text_of(value) for name, value in asked["base"].items()}, **varied, "how": asked["how"]}


def _drop_unfinished(content: dict[str, Any], out: Path) -> None:
    for study in content["studies"]:
        place = out / Path(study["directory"]).name
        if _summary_in(place) is None:
            _drop(place)


def _drop(place: Path) -> None:
    """Drop a study's checkpoints, and its directory where nothing else is in it."""
    sittings.finish(place)
    if place.is_dir() and not any(place.iterdir()):
        shutil.rmtree(place, ignore_errors=True)


def _summary_in(place: Path) -> dict[str, Any] | None:
    """The summary of a finished study, or None; its page is written last."""
    try:
        summary = json.loads((place / "summary.json").read_text())
    except (OSError, ValueError):
        return None
    return summary if summary.get("complete") and (place / "report.html").exists() else None


def _looked_up(point: Point, out: Path) -> Point:
    """The point with its rows if its study is finished."""
    summary = _summary_in(out / point.name)
    if summary is None:
        return point
    there, here = summary["configuration"], settings_of(point.configuration)
    if differ := differences(there, here):
        raise refuse("out", f"{out / point.name}, the finished study of another configuration ({differ})",
                     "a directory of its own", "choose another --out")  # fmt: skip
    return dataclasses.replace(point, state=_FINISHED, note="", rows=tuple(sweep_page.rows_of(point.name, summary)))


def sweep_command(configuration: SweepConfiguration) -> int:
    """Run a sweep, or go on with it, and write its table and page after every study.

    Returns:
        The exit code: 0; 1 where a chain of any study failed; 2 where no study could be done; 130 or 143 after Ctrl-C
        or SIGTERM.

    Raises:
        InputError: the grid cannot be used, or its directory holds another sweep.
    """
    points, out = grid(configuration), configuration.directory
    points = _by_the_writer(lambda: _begin(configuration, points))
    _publish(configuration, points)
    stopped = 0
    for k, point in enumerate(points):
        _say(f"[{k + 1}/{len(points)}] {point.name}{' is finished' if point.state == _FINISHED else ''}")
        if point.state == _FINISHED:
            continue
        points[k], stopped = _carried_out(point, out)
        _publish(configuration, points)
        if stopped:
            break
    return _closing_words(points, out, stopped)


def _by_the_writer(work: Callable[[], list[Point]]) -> list[Point]:
    """What the first process finds, on all of them, so that all do the same; what it refuses, all refuse."""
    found, error = [], None
    if is_writer():
        try:
            found = work()
        except InputError as refused:
            error = refused
    found, error = exchange((found, error))[0]
    if error is not None:
        raise error
    return found


def _carried_out(point: Point, out: Path) -> tuple[Point, int]:
    """The point after its study, and the exit code where somebody stopped it."""
    place = out / point.name
    try:
        study = carry_out(point.configuration, place, _say)
    except InputError as reason:  # a landscape without a trap, say: a finding, not the end
        _say(f"no result: {reason}")
        if is_writer() and not _has_begun(place):
            _drop(place)
        return dataclasses.replace(point, state="no result", note=str(reason)), 0
    except KeyboardInterrupt as stop:
        number = getattr(stop, "signal", signal.SIGINT)
        return dataclasses.replace(point, state="interrupted", note="before a schedule had begun"), 128 + number
    if study.complete:
        return (_looked_up(point, out) if is_writer() else dataclasses.replace(point, state=_FINISHED)), 0
    if is_writer():
        outputs.write_partial(study, place)
    if study.failed:
        return dataclasses.replace(point, state="failed", note=study.reason), 0
    return dataclasses.replace(point, state="interrupted", note=study.reason), 128 + study.signal


def _has_begun(place: Path) -> bool:
    """Whether any chains of a study are saved."""
    folder = sittings.place_of(place)
    return folder.is_dir() and any(path.is_dir() for path in folder.iterdir())


def _publish(configuration: SweepConfiguration, points: list[Point]) -> None:
    if not is_writer():
        return
    studies = [{"directory": p.name, "parameters": p.parameters, "state": p.state, "note": p.note} for p in points]
    sweep_page.write_sweep(configuration.directory, {
        "complete": all(p.state == _FINISHED for p in points),
        "asked": _asked(configuration),
        "studies": studies,
        "rows": [row for p in points for row in p.rows],
    })  # fmt: skip


def _closing_words(points: list[Point], out: Path, stopped: int) -> int:
    finished = sum(p.state == _FINISHED for p in points)
    failed = [p for p in points if p.state == "failed"]
    if is_writer():
        for p in points:
            if p.note and p.state != "interrupted":
                print(f"{p.name}: {p.state}: {p.note}", file=sys.stderr)
        print(f"{finished} of {len(points)} studies finished; table: {out / 'sweep.html'}", flush=True)
        if stopped:
            print(f"continue with: infonce-jax resume {out}", file=sys.stderr)
    if stopped:
        return stopped
    return 1 if failed else (0 if finished else 2)


def _say(line: str) -> None:
    if is_writer():
        print(line, flush=True)
