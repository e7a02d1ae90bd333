"""What a study is asked to do: plain dataclasses, which the command line reads through tyro."""

from __future__ import annotations

import dataclasses
import typing
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from infonce_jax import schedules
from infonce_jax.chains.blocks import as_bytes
from infonce_jax.checks import count, positive, refuse
from infonce_jax.schedules import Schedule

__all__ = [
    "MOVES_TEMPERATURE",
    "SETTINGS",
    "Execution",
    "StudyConfiguration",
    "moving_temperatures",
    "scenario_from_anywhere",
    "settings_of",
    "standard_schedules",
]

# Fractions of 1/L, the step at which the fastest mode is followed in one step. At .25 the bias of the mean energy is a
# few per cent; above .35 it grows fast and silently; at 1 the scheme no longer follows the gradient at all.
STEP_OF_CURVATURE = 0.25
WARN_ABOVE = 0.35
REFUSE_ABOVE = 1.0
# The noise of a step, (2 h/beta)^(1/2), is below the rounding of either precision: a gradient flow.
_NO_NOISE = 1e30

# How the names of schedules begin that move the temperature inside the loss.
MOVES_TEMPERATURE = ("tau", "coupled")


@dataclasses.dataclass(frozen=True)
class Execution:
    """How a study is carried out; none of this changes one bit of its results."""

    fresh: bool = False
    """Drop an unfinished study in the same directory instead of going on with it."""
    checkpoint_every: float = 60.0
    """Seconds between two checkpoints of the chains that are running."""
    skip_damaged: bool = False
    """Go on from the checkpoint before a damaged one."""
    max_memory: str | None = None
    """Memory for the chains that move at the same time, such as 4GB; more chains run in batches."""
    distributed: bool = False
    """One of several processes that share the chains; the first one writes."""
    coordinator: str | None = None
    """host:port of the first process; by default the environment says."""
    processes: int | None = None
    """How many processes there are."""
    index: int | None = None
    """Which one this is, from 0."""


@dataclasses.dataclass(frozen=True)
class StudyConfiguration:
    """Anneal thousands of chains on one landscape under slow and fast schedules, and report who was trapped."""

    scenario: str = "digit_orbit"
    """Landscape to anneal on; `infonce-jax scenarios` lists them."""
    chains: int = 1024
    """Independent chains per schedule."""
    steps: int = 100_000
    """Steps per chain."""
    seed: int = 0
    """Seed of everything random."""
    out: Annotated[Path | None, tyro.conf.arg(help_behavior_hint="(default: runs/SCENARIO)")] = None
    """Directory for the report, the figures and the data; made if missing."""
    step_size: float | None = None
    """Time step; by default .25 / (largest Hessian eigenvalue at a minimum)."""
    temperature: float | None = None
    """Temperature inside the loss (tau); by default the scenario's own."""
    from_temperature: float | None = None
    """Anneal tau as well, from this temperature inside the loss down to the scenario's: four more schedules."""
    predict: bool = True
    """Set the shares that rates predict beside the measured ones: half a minute more."""
    quick: bool = False
    """A small version that ends in under a minute: 256 chains, 3000 steps."""
    execution: Execution = dataclasses.field(default_factory=Execution)

    def checked(self) -> StudyConfiguration:
        """The configuration with `quick` applied.

        Raises:
            InputError: a number out of range.
        """
        count("chains", self.chains, least=2, mend="use at least 2, better 1024")
        count("steps", self.steps, least=10, mend="use at least 10, better 100000")
        if self.seed < 0:
            raise refuse("seed", self.seed, "a whole number >= 0", "for example 0")
        for name in ("step_size", "temperature", "from_temperature"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))
        positive("checkpoint_every", self.execution.checkpoint_every)
        as_bytes(self.execution.max_memory)
        if not self.quick:
            return self
        return dataclasses.replace(self, chains=min(self.chains, 256), steps=min(self.steps, 3000))


# All that a study's results depend on, by name, with its type; not where they go or how the work is cut.
SETTINGS = {name: kind for name, kind in typing.get_type_hints(StudyConfiguration).items()
             if name not in ("out", "execution")}  # fmt: skip


def settings_of(configuration: StudyConfiguration) -> dict[str, Any]:
    """All that a study's results depend on, by name."""
    return {name: getattr(configuration, name) for name in SETTINGS}


def scenario_from_anywhere(text: str) -> str:
    """A scenario's name; where it is a file, from any working directory."""
    path, colon, member = text.partition(":")
    return f"{Path(path).absolute()}{colon}{member}" if path.endswith(".py") else text


def standard_schedules(critical_depth: float, horizon: float) -> dict[str, Schedule]:
    """The eight schedules a study compares, in units of the critical depth.

    Four logarithms on both sides of c = E*, two powers and one exponential at a fixed rate, all fixed functions of
    time; and one geometric ramp that is stretched to the horizon.

    Args:
        critical_depth: E* > 0.
        horizon: T, in time units.
    """
    e = positive("critical_depth", critical_depth, "a landscape without a trap has nothing to anneal on")
    logarithms = {f"log, c = {r:g} E*": schedules.logarithmic(r * e) for r in (0.5, 1.0, 1.5, 2.0)}
    return {
        **logarithms,
        "power 1/2": schedules.power(0.5, initial=1 / e),
        "power 1": schedules.power(1.0, initial=1 / e),
        "exponential, rate .1": schedules.exponential(0.1, initial=1 / e),
        "geometric to horizon": schedules.geometric_to_horizon(1 / e, 20 / e, horizon),
    }


def moving_temperatures(
    critical_depth: float, horizon: float, start: float, end: float
) -> dict[str, tuple[Schedule, Schedule | str]]:
    """What a study anneals besides the noise: beta and the temperature argument of `run_chains`, by name.

    Along the flow there is no noise at all; then noise of one strength, noise that is annealed too, and the coupled
    mode, whose law aims at e^{-loss} at every time.

    Args:
        critical_depth: E* at the end's temperature, > 0.
        horizon: T, in time units.
        start: tau at time 0.
        end: tau at T, where the study's landscape is.
    """
    e = positive("critical_depth", critical_depth)
    falling = schedules.geometric_to_horizon(start, end, horizon)
    return {
        "tau, no noise": (schedules.constant(_NO_NOISE), falling),
        "tau, beta = 20/E*": (schedules.constant(20 / e), falling),
        "tau and beta": (schedules.geometric_to_horizon(1 / e, 20 / e, horizon), falling),
        "coupled, tau = 1/beta": (schedules.geometric_to_horizon(1 / start, 1 / end, horizon), "coupled"),
    }


def quench_steps(steps: int, number: int = 13) -> np.ndarray:
    """Log-spaced steps at which chains are quenched, the last one the end of the run."""
    first = min(30, steps)
    return np.unique(np.round(np.geomspace(first, steps, number)).astype(int))
