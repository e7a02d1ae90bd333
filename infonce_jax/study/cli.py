"""The command line: `infonce-jax study`, `hitting`, `recommend`, `landscape` and `scenarios`."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Annotated

import tyro

from infonce_jax.checks import InputError
from infonce_jax.devices import use_all_cores
from infonce_jax.study import hitting, recommend
from infonce_jax.study.configuration import StudyConfiguration
from infonce_jax.study.hitting import HittingConfiguration
from infonce_jax.study.recommend import RecommendConfiguration

__all__ = ["main"]


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
    | Annotated[HittingConfiguration, tyro.conf.subcommand("hitting")]
    | Annotated[RecommendConfiguration, tyro.conf.subcommand("recommend")]
    | Annotated[LandscapeConfiguration, tyro.conf.subcommand("landscape")]
    | Annotated[ScenariosConfiguration, tyro.conf.subcommand("scenarios")]
)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code: 0, 1 when a chain failed, 2 for bad input, 130 after Ctrl-C."""
    command = tyro.cli(_Command, args=arguments, prog="infonce-jax", config=(tyro.conf.OmitArgPrefixes,),
                       description="Annealed Langevin dynamics of contrastive embeddings.")  # fmt: skip
    try:
        use_all_cores()
        if isinstance(command, StudyConfiguration):
            return _study(command)
        if isinstance(command, HittingConfiguration):
            return hitting.command(command)
        if isinstance(command, RecommendConfiguration):
            return recommend.command(command)
        if isinstance(command, LandscapeConfiguration):
            return _landscape(command)
        return _scenarios()
    except InputError as error:
        print(f"infonce-jax: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output, such as `head`, has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("infonce-jax: interrupted before anything was measured; nothing was written", file=sys.stderr)
        return 130


def _study(configuration: StudyConfiguration) -> int:
    # Imported here, so that `infonce-jax --help` answers at once.
    from infonce_jax import scenarios
    from infonce_jax.study import outputs
    from infonce_jax.study.run import run_study

    configuration = configuration.checked()
    scenarios.get(configuration.scenario)
    out = outputs.prepare_directory(
        configuration.out or Path("runs") / Path(configuration.scenario.partition(":")[0]).stem
    )
    study = run_study(configuration)
    if not study.complete:
        written = outputs.write_partial(study, out)
        had = ", ".join(o.name for o in study.outcomes) or "no schedule to its end"
        print(f"had finished: {had}\nsaved as {', '.join(map(str, written))}", file=sys.stderr)
        return 1 if study.failed else 130
    page = outputs.write_study(study, out)
    print(f"{study.seconds:.0f} s; report: {page}")
    return 0


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
