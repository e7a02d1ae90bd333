"""The command `infonce-jax recommend`: which schedule to use for a budget of steps, predicted and measured."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from infonce_jax import integrators, measure, theory
from infonce_jax.chains import run_chains
from infonce_jax.checks import InputError, count, positive
from infonce_jax.landscape import Landscape
from infonce_jax.measure import Proportion
from infonce_jax.schedules import Schedule
from infonce_jax.study.configuration import StudyConfiguration, standard_schedules
from infonce_jax.study.run import choose_step_size, explore_scenario, schedule_seed
from infonce_jax.theory import master_equation

__all__ = ["Candidate", "RecommendConfiguration", "Recommendation", "recommend"]

OPTIMAL = "optimal"


@dataclasses.dataclass(frozen=True)
class RecommendConfiguration:
    """Find the schedule that leaves the fewest chains in a trap after a number of steps, and compare it with others."""

    scenario: str = "digit_orbit"
    """Landscape to anneal on; `infonce-jax scenarios` lists them."""
    steps: int = 10_000
    """Steps per chain: the budget."""
    chains: int = 1024
    """Independent chains per schedule that check the prediction."""
    seed: int = 0
    """Seed of everything random."""
    out: Path | None = None
    """Directory for the figure and a JSON file with the schedule; none by default."""
    step_size: float | None = None
    """Time step; by default .25 / (largest Hessian eigenvalue at a minimum)."""
    temperature: float | None = None
    """Temperature inside the loss (tau); by default the scenario's own."""

    def checked(self) -> RecommendConfiguration:
        """The configuration itself.

        Raises:
            InputError: a number out of range.
        """
        count("chains", self.chains, least=2, mend="use at least 2, better 1024")
        count("steps", self.steps, least=10, mend="use at least 10, for example 10000")
        count("seed", self.seed, least=0, mend="for example 0")
        for name in ("step_size", "temperature"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))
        return self


@dataclasses.dataclass(frozen=True)
class Candidate:
    """One schedule: P(not at the global minimum) at the end of the budget, predicted and measured after a quench."""

    name: str
    schedule: Schedule
    predicted: float
    measured: Proportion


@dataclasses.dataclass(frozen=True)
class Recommendation:
    """All candidates, the optimal schedule first, then by measured share.

    Attributes:
        land: the landscape.
        step_size: h.
        horizon: T, in time units.
        candidates: the schedules compared.
        free_energies: on what the rates were corrected with.
        seconds: wall-clock time.
    """

    land: Landscape
    step_size: float
    horizon: float
    candidates: tuple[Candidate, ...]
    free_energies: measure.BasinFreeEnergies
    seconds: float

    @property
    def best(self) -> Candidate:
        """The optimal schedule of the master equation."""
        return self.candidates[0]

    def knots(self) -> tuple[np.ndarray, np.ndarray]:
        """Times and inverse temperatures of the optimal schedule."""
        parameters = dict(self.best.schedule.parameters)
        return np.array(parameters["times"]), np.array(parameters["values"])


def recommend(configuration: RecommendConfiguration, say: Callable[[str], None] = print) -> Recommendation:
    """Explore, measure the basins, optimise beta(t), and run it beside the schedules of a study.

    Args:
        configuration: what to do.
        say: where lines for the reader go.

    Raises:
        InputError: the configuration cannot be used, or the landscape has no trap.
    """
    configuration, started = configuration.checked(), time.perf_counter()
    scenario, land = explore_scenario(configuration.scenario, configuration.temperature, configuration.seed, say)
    if len(land.minima) < 2 or not 0 < land.critical_depth < math.inf:
        raise InputError(
            f"scenario: got {scenario.name!r} with E* = {land.critical_depth:g}; needs a trap with a known passage; "
            "any schedule does where there is none"
        )
    h = choose_step_size(StudyConfiguration(step_size=configuration.step_size), land, say)
    horizon = configuration.steps * h
    free = measure.basin_free_energies(land, seed=configuration.seed)
    say(f"  {free.statement()}")
    mend = theory.corrections(land, free.table)
    schedules: dict[str, Schedule] = {
        OPTIMAL: theory.optimal_schedule(land, horizon, step_size=h, corrections=mend),
        **standard_schedules(land.critical_depth, horizon),
    }
    say(f"{configuration.chains} chains per schedule, {configuration.steps} steps of {h:g} time units")
    candidates = []
    for number, (name, schedule) in enumerate(schedules.items()):
        law = master_equation.occupancies(land, schedule, [horizon], corrections=mend)[-1]
        run = run_chains(
            scenario.energy, schedule, integrators.geodesic_euler(h), num_chains=configuration.chains,
            num_steps=configuration.steps, seed=schedule_seed(configuration.seed, 100 + number),
        )  # fmt: skip
        trapped = int(np.sum(land.basin_of(run.final_positions) != 0))
        lost = float(1 - np.sum(law[: land.number_global]))
        candidates.append(Candidate(name, schedule, lost, measure.proportion(trapped, configuration.chains)))
    others = sorted(candidates[1:], key=lambda c: c.measured.estimate)
    seconds = time.perf_counter() - started
    found = Recommendation(land, h, horizon, (candidates[0], *others), free, seconds)
    for line in lines(found):
        say(line)
    if configuration.out is not None:
        say(f"saved as {', '.join(str(path) for path in write(found, configuration))}")
    return found


def lines(found: Recommendation) -> list[str]:
    """The table and the schedule, as the command prints them."""
    table = [f"  {'schedule':22s} {'predicted':>9s}   measured after a quench"]
    table += [f"  {c.name:22s} {c.predicted:9.2g}   {c.measured}" for c in found.candidates]
    times, betas = found.knots()
    steps = np.round(times / found.step_size).astype(int)
    table.append("optimal schedule, log beta linear between these points in log(1 + 1000 t/T):")
    table.append("  step  " + " ".join(f"{step:8d}" for step in steps))
    table.append("  beta  " + " ".join(f"{beta:8.3g}" for beta in betas))
    table.append(_verdict(found))
    return table


def _verdict(found: Recommendation) -> str:
    best, rest = found.best, found.candidates[1:]
    rival = min(rest, key=lambda c: c.measured.estimate)
    if best.measured.high < rival.measured.low:
        return f"use it: {best.measured} against {rival.measured} of the next best, '{rival.name}'"
    if best.measured.low > rival.measured.high:
        return f"do not use it: '{rival.name}' measured better, {rival.measured} against {best.measured}"
    return (f"use it: {best.measured}; '{rival.name}' at {rival.measured} cannot be told from it with "
            f"{best.measured.trials} chains")  # fmt: skip


def write(found: Recommendation, configuration: RecommendConfiguration) -> list[Path]:
    """The figure and the numbers."""
    from infonce_jax.study import outputs

    assert configuration.out is not None
    out = outputs.prepare_directory(configuration.out)
    picture, numbers = out / "schedules.png", out / "recommend.json"
    draw(found).savefig(picture, dpi=130, bbox_inches="tight")
    times, betas = found.knots()
    numbers.write_text(json.dumps(_summary(found, configuration, times, betas), indent=2) + "\n")
    return [picture, numbers]


def _summary(
    found: Recommendation, configuration: RecommendConfiguration, times: np.ndarray, betas: np.ndarray
) -> dict[str, Any]:
    return {
        "scenario": configuration.scenario, "steps": configuration.steps, "chains": configuration.chains,
        "seed": configuration.seed, "step_size": found.step_size, "horizon": found.horizon,
        "critical_depth": found.land.critical_depth, "free_energies": found.free_energies.statement(),
        "optimal": {"times": times.tolist(), "inverse_temperatures": betas.tolist()},
        "candidates": [
            {"name": c.name, "schedule": c.schedule.name, "predicted": c.predicted, "measured": c.measured.estimate,
             "low": c.measured.low, "high": c.measured.high} for c in found.candidates
        ],
    }  # fmt: skip


def draw(found: Recommendation) -> Figure:
    """Left: the schedules. Right: what each leaves in the traps, predicted and measured."""
    from infonce_jax.study import figures

    e, names = found.land.critical_depth, [c.name for c in found.candidates]
    with mpl.rc_context(figures.STYLE):
        figure = Figure(figsize=(11, 4.2), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1, 1))
        t = np.geomspace(found.step_size, found.horizon, 300)
        for c in reversed(found.candidates):
            best = c.name == OPTIMAL
            left.plot(t, np.minimum(c.schedule(t) * e, 30), color="black" if best else "#9aa5b1",
                      lw=2.2 if best else 1, label="optimal" if best else None)  # fmt: skip
        left.set(xscale="log", yscale="log", xlabel="time (time units)", ylabel="inverse temperature times E*",
                 title="the optimal schedule (black) among the others")  # fmt: skip
        floor = 0.3 / found.best.measured.trials
        rows = np.arange(len(names))[::-1]
        estimates = np.array([c.measured.estimate for c in found.candidates])
        ends = np.array([[c.measured.low, c.measured.high] for c in found.candidates])
        shown = np.maximum(estimates, floor)
        reach = np.maximum([shown - ends[:, 0], ends[:, 1] - shown], 0)
        right.errorbar(shown, rows, xerr=reach, fmt="o", color="black", label="measured, 95 %")
        right.plot(np.maximum([c.predicted for c in found.candidates], floor), rows, "x", color="#cb181d", ms=8,
                   label="predicted")  # fmt: skip
        left_end = max(floor * 0.7, 0.5 * float(np.min(shown)))
        note = f" (below {floor:.1g}: drawn there)" if np.any(shown <= floor) else ""
        right.set(xscale="log", yticks=rows, yticklabels=names, xlim=(left_end, 1.3),
                  xlabel=f"share left in a trap after {found.horizon / found.step_size:.0f} steps{note}")  # fmt: skip
        figure.legend(*right.get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return figure


def command(configuration: RecommendConfiguration) -> int:
    """Run the command and return its exit code."""
    from infonce_jax.study import outputs

    if configuration.out is not None:
        outputs.prepare_directory(configuration.out)
    found = recommend(configuration)
    print(f"{found.seconds:.0f} s")
    return 0
