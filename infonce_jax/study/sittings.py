"""Studies in several sittings: what was asked and how far it came, kept until the report is written.

A study saves each of its runs in a directory of checkpoints below its own. Asked again for the same, it goes on from
there; asked for something else, it refuses, since that would lose what is there.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from infonce_jax.checks import InputError, refuse
from infonce_jax.fingerprint import differences
from infonce_jax.study.configuration import SETTINGS, StudyConfiguration, scenario_from_anywhere, settings_of
from infonce_jax.study.pages import replace_text

__all__ = ["begin", "configuration_in", "finish", "place_of"]

_FOLDER, _ASKED = "checkpoints", "study.json"


def place_of(out: Path) -> Path:
    """Where the study in a directory keeps its checkpoints."""
    return out / _FOLDER


def begin(configuration: StudyConfiguration, out: Path) -> bool:
    """Note what is asked in a study's directory; True where the same study was begun there and goes on.

    Raises:
        InputError: another study was begun there and not finished; or the directory cannot be written.
    """
    place = place_of(out)
    asked = _asked(configuration)
    if configuration.execution.fresh:
        shutil.rmtree(place, ignore_errors=True)
    if (place / _ASKED).exists():
        before = _read(place / _ASKED)
        if before == asked:
            return True
        raise refuse("out", f"{out}, where another study is unfinished ({differences(before, asked)})",
                     "a directory of its own",
                     f"finish that one with 'infonce-jax resume {out}', or drop it with --fresh")  # fmt: skip
    place.mkdir(parents=True, exist_ok=True)
    replace_text(place / _ASKED, json.dumps(asked, indent=1))
    return False


def finish(out: Path) -> None:
    """Drop the checkpoints of a study whose report is written."""
    shutil.rmtree(place_of(out), ignore_errors=True)


def configuration_in(out: Path) -> StudyConfiguration:
    """What was asked of the unfinished study in a directory.

    Raises:
        InputError: there is none.
    """
    if not out.is_dir():
        raise refuse("resume", f"{out}, which is no directory", "the directory of an unfinished study",
                     "'infonce-jax study --out DIR' begins one")  # fmt: skip
    if not (place_of(out) / _ASKED).exists():
        done = (out / "report.html").exists()
        raise refuse("resume", f"{out}, {'a finished study' if done else 'without checkpoints'}",
                     "the directory of an unfinished study",
                     f"read {out / 'report.html'}" if done else "'infonce-jax study --out DIR' begins one")  # fmt: skip
    asked = _read(place_of(out) / _ASKED)
    if unknown := sorted(set(asked) - set(SETTINGS)):
        raise InputError(f"resume: got settings {', '.join(unknown)} in {place_of(out) / _ASKED}, which this version "
                         "does not know; needs the version that began the study; install that")  # fmt: skip
    return StudyConfiguration(**asked, out=out)


def _asked(configuration: StudyConfiguration) -> dict[str, Any]:
    """What the results depend on, as plain JSON types, understood from any working directory."""
    return {**settings_of(configuration), "scenario": scenario_from_anywhere(configuration.scenario)}


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise refuse("resume", f"a file that cannot be read, {path} ({error})", "what the study wrote there",
                     "restore it, or begin again with --fresh") from None  # fmt: skip
