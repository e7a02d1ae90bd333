"""`infonce-jax study` and `infonce-jax resume`: run, say what happened, write, and keep what was begun."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from infonce_jax import scenarios
from infonce_jax.checks import InputError
from infonce_jax.processes import exchange, is_writer
from infonce_jax.study import outputs, sittings
from infonce_jax.study.configuration import StudyConfiguration
from infonce_jax.study.run import Study, run_study

__all__ = ["carry_out", "directory_of", "study_command"]


def directory_of(configuration: StudyConfiguration) -> Path:
    """Where a study writes: what was asked for, or runs/SCENARIO."""
    return configuration.out or Path("runs") / Path(configuration.scenario.partition(":")[0]).stem


def study_command(configuration: StudyConfiguration) -> int:
    """Run a study, or go on with it, and write its report.

    Returns:
        The exit code: 0; 1 where a chain failed; 130 or 143 after Ctrl-C or SIGTERM.

    Raises:
        InputError: the configuration cannot be used, or another study is unfinished in its directory.
    """
    out = directory_of(configuration)
    study = carry_out(configuration, out, print if is_writer() else _silent)
    if not study.complete:
        if is_writer():
            _say_what_there_is(study, out)
        return 1 if study.failed else 128 + study.signal
    if is_writer():
        print(f"{study.seconds:.0f} s; report: {out / 'report.html'}")
    return 0


def carry_out(configuration: StudyConfiguration, out: Path, say: Callable[[str], None]) -> Study:
    """Run a study in its directory and write the report once it is complete; the first process alone writes."""
    configuration.checked()
    scenarios.get(configuration.scenario)  # an unknown name is refused before a directory is made for it
    error = None
    if is_writer():
        try:
            outputs.prepare_directory(out)
            if sittings.begin(configuration, out):
                say(f"going on with the study that was begun in {out}")
        except InputError as refused:
            error = refused
    for refused in exchange(error):  # or the others would wait for ever
        if refused is not None:
            raise refused
    study = run_study(configuration, say, None if is_writer() else False, sittings.place_of(out))
    if study.complete and is_writer():
        outputs.write_study(study, out)
        sittings.finish(out)
    return study


def _say_what_there_is(study: Study, out: Path) -> None:
    written = outputs.write_partial(study, out)
    had = ", ".join(o.name for o in study.outcomes) or "no schedule to its end"
    again = f"infonce-jax resume {out}"
    print(f"had finished: {had}\nsaved as {', '.join(map(str, written))}\ncontinue with: {again}", file=sys.stderr)


def _silent(_: str) -> None:
    """What processes other than the first have to say."""
