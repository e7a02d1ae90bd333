"""The command `infonce-jax temperature`: at which loss temperature the traps of a landscape vanish, and how."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
import xarray as xr

from infonce_jax.checks import count, positive, refuse
from infonce_jax.landscape import Continuation, Multistart, continuation
from infonce_jax.scenarios import Scenario
from infonce_jax.study.run import choose_scenario

__all__ = ["TemperatureConfiguration", "TemperatureStudy", "run_temperature", "write_temperature"]

_TO = 8.0  # times the lowest temperature, by default


@dataclasses.dataclass(frozen=True)
class TemperatureConfiguration:
    """Follow minima and saddles as the temperature inside the loss rises, and find where the traps vanish."""

    scenario: str = "digit_orbit"
    """Landscape; `infonce-jax scenarios` lists them."""
    low: Annotated[float | None, tyro.conf.arg(name="from", help_behavior_hint="(default: the scenario's own)")] = None
    """Lowest temperature (tau), the target that training is to end at."""
    high: Annotated[float | None, tyro.conf.arg(name="to", help_behavior_hint="(default: 8 times --from)")] = None
    """Highest temperature."""
    starts: int = 2048
    """Random starts at each end of the bracket, which confirm it."""
    seed: int = 0
    """Seed of everything random."""
    out: Annotated[Path | None, tyro.conf.arg(help_behavior_hint="(default: runs/SCENARIO-temperature)")] = None
    """Directory for the page, the figures and the data; made if missing."""

    def checked(self) -> TemperatureConfiguration:
        """The configuration itself.

        Raises:
            InputError: numbers out of range.
        """
        for name, value in (("from", self.low), ("to", self.high)):
            if value is not None:
                positive(name, value)
        if self.low is not None and self.high is not None and self.high <= self.low:
            raise refuse("from, to", f"{self.low:g} and {self.high:g}", "--from below --to", "exchange them")
        count("starts", self.starts, least=4, mend="for example 2048")
        count("seed", self.seed, least=0, mend="for example 0")
        return self


@dataclasses.dataclass(frozen=True, eq=False)
class TemperatureStudy:
    """What was asked and what was found.

    Attributes:
        configuration, scenario: the question.
        found: the answer.
        seconds: wall-clock time.
    """

    configuration: TemperatureConfiguration
    scenario: Scenario
    found: Continuation
    seconds: float

    @property
    def data(self) -> xr.Dataset:
        """Points of all branches along `point`, and barriers along `temperature`, one row per trap branch."""
        branches, depths = self.found.branches, self.found.depths
        grid = np.array([there.temperature for there in depths])
        traps = self.found.barriers()
        barrier = np.full((len(traps), len(grid)), np.nan)
        for row, (at, heights) in enumerate(traps.values()):
            barrier[row, np.searchsorted(grid, at)] = heights
        joined = {
            "branch": np.repeat(np.arange(len(branches)), [len(b.temperatures) for b in branches]),
            "index": np.repeat([b.index for b in branches], [len(b.temperatures) for b in branches]),
            "branch_temperature": np.concatenate([b.temperatures for b in branches]),
            "branch_energy": np.concatenate([b.energies for b in branches]),
        }
        return xr.Dataset(
            {**{name: ("point", values) for name, values in joined.items()},
             "position": (("point", "view", "coordinate"), np.concatenate([b.positions for b in branches])),
             "critical_depth": ("temperature", [there.critical_depth for there in depths]),
             "lowest_energy": ("temperature", [there.energies[0] for there in depths]),
             "barrier": (("trap", "temperature"), barrier)},
            coords={"temperature": grid, "trap": list(traps)},
            attrs={"trap_free_temperature": self.found.trap_free_temperature,
                   "bracket": list(self.found.trap_free.bracket)},
        )  # fmt: skip


def run_temperature(configuration: TemperatureConfiguration, say: Callable[[str], None] = print) -> TemperatureStudy:
    """Follow the critical points of a scenario.

    Raises:
        InputError: the configuration cannot be used, or the energy of the scenario has no temperature.
    """
    scenario, low, high = _range(configuration.checked())
    started = time.perf_counter()
    say(f"{scenario.name}: {scenario.description}")
    say(f"following minima and saddles from tau = {low:g} to {high:g}")
    found = continuation(scenario.energy, (low, high), configuration.seed, confirm=configuration.starts)
    return TemperatureStudy(configuration, scenario, found, time.perf_counter() - started)


def _range(configuration: TemperatureConfiguration) -> tuple[Scenario, float, float]:
    """The scenario at the target temperature, and the temperatures from the target upwards."""
    scenario = choose_scenario(configuration.scenario)
    own = getattr(scenario.energy, "temperature", None)
    if own is None:
        kind = type(scenario.energy).__name__
        raise refuse("scenario", f"{scenario.name}, a {kind} without a temperature", "a temperature inside the loss",
                     "build its energy with energies.graph_infonce or another that has one")  # fmt: skip
    high = configuration.high
    low = float(own) if configuration.low is None else configuration.low
    high = _TO * low if high is None else high
    if high <= low:
        raise refuse("to", f"{high:g}", f"above {low:g}, the scenario's own temperature", "pass --from below it")
    return scenario, low, high


def events(found: Continuation, most: int = 40) -> list[str]:
    """Folds and branch points that concern minima, as lines."""
    lines = [event.statement() for event in found.bifurcations if min(event.indices) == 0]
    return lines if len(lines) <= most else [*lines[:most], f"and {len(lines) - most} more"]


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _starts(seen: Multistart | None) -> dict[str, Any] | None:
    if seen is None:
        return None
    return {"temperature": seen.temperature, "starts": seen.starts, "failed": seen.failed,
            "energies": list(seen.energies), "counts": list(seen.counts), "missed_below": seen.missed}  # fmt: skip


def summarise(study: TemperatureStudy) -> dict[str, Any]:
    """Numbers of the study as plain JSON types; what is infinite or not known is null."""
    from infonce_jax.study.outputs import environment

    found, free = study.found, study.found.trap_free
    configuration = dataclasses.asdict(study.configuration)
    configuration["out"] = None if configuration["out"] is None else Path(configuration["out"]).name
    return {
        "configuration": configuration,
        "environment": environment(),
        "seconds": round(study.seconds, 1),
        "scenario": {"name": study.scenario.name, "description": study.scenario.description},
        "temperatures": list(found.temperatures),
        "trap_free_temperature": _known(free.temperature),
        "bracket": [_known(end) for end in free.bracket],
        "confirmed": free.confirmed,
        "below": _starts(free.below),
        "above": _starts(free.above),
        "descent_arrives": found.descent.arrives,
        "depths": [{"temperature": there.temperature, "branches": list(there.branches),
                    "energies": list(there.energies), "barriers": [_known(b) for b in there.barriers]}
                   for there in found.depths],
        "bifurcations": [{"kind": event.kind, "temperature": event.temperature, "energy": event.energy,
                          "indices": list(event.indices)} for event in found.bifurcations],
        "statement": found.summary(),
    }  # fmt: skip


_WHOLE = ("temperature.zarr", "temperature.json", "branches.png", "barriers.png", "report.html")


def write_temperature(study: TemperatureStudy, out: Path) -> Path:
    """Write temperature.zarr, temperature.json, the figures and, last of all, report.html; returns the page's path."""
    from infonce_jax.study import outputs, pages, temperature_figures

    for name in _WHOLE:
        outputs.remove(out / name)
    summary = summarise(study)
    outputs.replace_zarr(out / "temperature.zarr", study.data.assign_attrs(summary=json.dumps(summary)))
    outputs.write_json(out / "temperature.json", summary)
    drawn = {"branches": temperature_figures.draw_branches(study.found),
             "barriers": temperature_figures.draw_barriers(study.found)}  # fmt: skip
    pictures = {name: outputs.embedded_png(figure, out / f"{name}.png") for name, figure in drawn.items()}
    free = study.found.trap_free
    checks = [seen.statement() for seen in (*free.levels, free.below, free.above) if seen is not None]
    page = pages.render(
        "temperature.html", study=study, found=study.found, summary=summary, pictures=pictures,
        statements=study.found.summary().splitlines(), checks=checks, events=events(study.found),
    )  # fmt: skip
    return pages.replace_text(out / "report.html", page)


def command(configuration: TemperatureConfiguration) -> int:
    """Run, print and write; the exit code."""
    from infonce_jax.study import outputs

    configuration = configuration.checked()
    _range(configuration)  # what cannot be done is refused before a directory is made for it
    default = Path("runs") / f"{Path(configuration.scenario.partition(':')[0]).stem}-temperature"
    out = outputs.prepare_directory(configuration.out or default)
    study = run_temperature(configuration)
    print(study.found.summary())
    page = write_temperature(study, out)
    print(f"{study.seconds:.0f} s; report: {page}")
    return 0
