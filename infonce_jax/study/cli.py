"""The command line: `infonce-jax study`, `resume`, `sweep`, `hitting`, `recommend`, `temperature` and others."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import tyro

from infonce_jax.chains import CheckpointWarning
from infonce_jax.checks import InputError
from infonce_jax.devices import use_all_cores
from infonce_jax.processes import join_processes
from infonce_jax.study import hitting, recommend, temperature, train
from infonce_jax.study.cache import use_cache
from infonce_jax.study.configuration import StudyConfiguration
from infonce_jax.study.hitting import HittingConfiguration
from infonce_jax.study.recommend import RecommendConfiguration
from infonce_jax.study.sweep_grid import SweepConfiguration
from infonce_jax.study.temperature import TemperatureConfiguration
from infonce_jax.study.train_configuration import TrainConfiguration

__all__ = ["main"]


@dataclasses.dataclass(frozen=True)
class ResumeConfiguration:
    """Go on with a study, a sweep or a training that was interrupted, killed or cut off, to the same bits."""

    directory: tyro.conf.Positional[Path]
    """The directory of the study, the sweep or the training, its --out."""
    skip_damaged: bool = False
    """Go on from the checkpoint before a damaged one."""


@dataclasses.dataclass(frozen=True)
class LandscapeConfiguration:
    """Find the minima, the saddles and the depths E* and m of one landscape."""

    scenario: str = "digit_orbit"
    """Landscape to explore; `infonce-jax scenarios` lists them."""
    temperature: float | None = None
    """Temperature inside the loss (tau); by default the scenario's own."""
    quenches: int = 2048
    """Uniform starts for minima."""
    searches: int = 1024
    """Searches for saddles."""
    seed: int = 0
    """Seed of the starts."""
    out: Path | None = None
    """Directory for the disconnectivity graph and the path over the barrier, as pictures; none by default."""


@dataclasses.dataclass(frozen=True)
class ScenariosConfiguration:
    """List the landscapes by name."""


_Command = (
    Annotated[StudyConfiguration, tyro.conf.subcommand("study")]
    | Annotated[ResumeConfiguration, tyro.conf.subcommand("resume")]
    | Annotated[SweepConfiguration, tyro.conf.subcommand("sweep")]
    | Annotated[HittingConfiguration, tyro.conf.subcommand("hitting")]
    | Annotated[RecommendConfiguration, tyro.conf.subcommand("recommend")]
    | Annotated[TemperatureConfiguration, tyro.conf.subcommand("temperature")]
    | Annotated[TrainConfiguration, tyro.conf.subcommand("train")]
    | Annotated[LandscapeConfiguration, tyro.conf.subcommand("landscape")]
    | Annotated[ScenariosConfiguration, tyro.conf.subcommand("scenarios")]
)


class _Terminated(KeyboardInterrupt):
    """SIGTERM outside the chains, which finish their chunk first; unwinds like Ctrl-C."""

    signal = signal.SIGTERM


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0; 1 when a chain failed or a result could not be written; 2 for bad input; 130 after Ctrl-C, 143 after SIGTERM.
    """
    command = tyro.cli(_Command, args=arguments, prog="infonce-jax", config=(tyro.conf.OmitArgPrefixes,),
                       description="Annealed Langevin dynamics of contrastive embeddings.")  # fmt: skip
    with _terminable(), _plain_warnings():
        try:
            return _run(command)
        except InputError as error:
            print(f"infonce-jax: {error}", file=sys.stderr)
            return 2
        except BrokenPipeError:  # the reader of our output, such as `head`, has gone
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except OSError as error:
            place = f" {error.filename}" if error.filename else ""
            print(f"infonce-jax: could not write{place} ({error.strerror or error}); what was there before is as it "
                  "was; mend that, and the same command goes on where a study was", file=sys.stderr)  # fmt: skip
            return 1
        except KeyboardInterrupt as stop:
            print("infonce-jax: interrupted before a schedule had begun; a study goes on with 'infonce-jax resume DIR'",
                  file=sys.stderr)  # fmt: skip
            return 128 + getattr(stop, "signal", signal.SIGINT)


def _run(command: Any) -> int:
    use_all_cores()
    use_cache()
    if isinstance(command, ResumeConfiguration):
        command = _begun(command)
    if isinstance(command, StudyConfiguration | SweepConfiguration):
        how = (command if isinstance(command, StudyConfiguration) else command.base).execution
        if how.distributed:
            join_processes(how.coordinator, how.processes, how.index)
        if isinstance(command, SweepConfiguration):
            from infonce_jax.study.sweep import sweep_command

            return sweep_command(command)
        from infonce_jax.study.command import study_command  # here, so that `infonce-jax --help` answers at once

        return study_command(command)
    if isinstance(command, HittingConfiguration):
        return hitting.command(command)
    if isinstance(command, RecommendConfiguration):
        return recommend.command(command)
    if isinstance(command, TemperatureConfiguration):
        return temperature.command(command)
    if isinstance(command, TrainConfiguration):
        return train.train_command(command)
    if isinstance(command, LandscapeConfiguration):
        return _landscape(command)
    return _scenarios()


def _begun(resume: ResumeConfiguration) -> StudyConfiguration | SweepConfiguration | TrainConfiguration:
    """What was asked of the study, the sweep or the training in a directory, to go on with."""
    from infonce_jax.study import sittings, sweep

    if train.begun_in(resume.directory):
        return dataclasses.replace(train.configuration_in(resume.directory), skip_damaged=resume.skip_damaged)
    if sweep.begun_in(resume.directory):
        begun = sweep.configuration_in(resume.directory)
        how = dataclasses.replace(begun.base.execution, skip_damaged=resume.skip_damaged)
        return dataclasses.replace(begun, base=dataclasses.replace(begun.base, execution=how))
    begun = sittings.configuration_in(resume.directory)
    how = dataclasses.replace(begun.execution, skip_damaged=resume.skip_damaged)
    return dataclasses.replace(begun, execution=how)


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM unwinds as Ctrl-C does, so that what can be saved is."""

    def terminate(number: int, frame: FrameType | None) -> None:
        raise _Terminated

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """A checkpoint that could not be written is one line for the reader, every time it happens."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", CheckpointWarning)
        usual = warnings.showwarning

        def show(message: Any, category: Any, *place: Any, **rest: Any) -> None:
            if issubclass(category, CheckpointWarning):
                print(f"infonce-jax: {message}", file=sys.stderr)
            else:
                usual(message, category, *place, **rest)

        warnings.showwarning = show
        yield


def _landscape(configuration: LandscapeConfiguration) -> int:
    from infonce_jax.study import landscape_figures, outputs
    from infonce_jax.study.run import explore_scenario

    out = None if configuration.out is None else outputs.prepare_directory(configuration.out)
    scenario, land = explore_scenario(
        configuration.scenario, configuration.temperature, configuration.seed, print,
        num_quenches=configuration.quenches, num_searches=configuration.searches,
    )  # fmt: skip
    for saddle in land.saddles:
        ends = "-".join(map(str, saddle.ends))
        print(f"  saddle {ends:<7s} E = {saddle.energy:.6f}   unstable mode {saddle.eigenvalues[0]:.3f}")
    landscape_figures.cross_check(land, scenario.name, out, print)
    return 0


def _scenarios() -> int:
    from infonce_jax import scenarios

    for name in scenarios.names():
        print(f"{name:14s} {scenarios.get(name).description}")
    print(f"{'ring<n>':14s} a ring of any number of views, for example ring12")
    print(f"{'file.py:name':14s} your own: a Scenario, or an Energy, under that name in a Python file")
    return 0


if __name__ == "__main__":
    sys.exit(main())
