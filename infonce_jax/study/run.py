"""The main job end to end: landscape, schedules, chains, quenches, proportions."""

from __future__ import annotations

import dataclasses
import math
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import xarray as xr

from infonce_jax import integrators, scenarios
from infonce_jax.chains import Checkpoints, RunInterrupted, RunStopped, observers, run_chains
from infonce_jax.checks import InputError, refuse
from infonce_jax.landscape import Landscape, energies_of
from infonce_jax.measure import Proportion, proportions
from infonce_jax.scenarios import Scenario
from infonce_jax.schedules import Schedule
from infonce_jax.study.cache import explored
from infonce_jax.study.configuration import (
    REFUSE_ABOVE,
    STEP_OF_CURVATURE,
    WARN_ABOVE,
    StudyConfiguration,
    moving_temperatures,
    quench_steps,
    standard_schedules,
)
from infonce_jax.study.prediction import Prediction, predict, rate_model

__all__ = ["Study", "Trapping", "run_study"]


@dataclasses.dataclass(frozen=True)
class Trapping:
    """One schedule's outcome along time.

    Attributes:
        name: of the schedule, in units of E*.
        schedule: itself.
        times: when chains were looked at, in time units, shape (k,).
        raw: P(E - min E > delta/2) at those times, delta the height of the lowest trap above the global minimum.
        quenched: P(not in the global basin) after a quench from there.
        unknown: largest share, over the times, of chains whose quench ended in no known minimum; they count as trapped.
        seconds: wall-clock time of the chains.
        chain_steps_per_second: of the run.
        predicted: what the master equation says of `quenched`, or None where rates could not be had, or tau moves.
    """

    name: str
    schedule: Schedule
    times: np.ndarray
    raw: list[Proportion]
    quenched: list[Proportion]
    unknown: float
    seconds: float
    chain_steps_per_second: float
    predicted: Prediction | None = None

    @property
    def final(self) -> Proportion:
        """P(not at the global minimum) at the end, quenched."""
        return self.quenched[-1]


@dataclasses.dataclass
class Study:
    """What a study has so far; `complete` when every schedule has run.

    Attributes:
        configuration, scenario, land: what was asked, and the landscape found.
        step_size: h.
        schedules: all that were to run, by name.
        temperatures: the temperature argument of the chains, for those whose tau moves.
        outcomes: of those that have.
        data: their data sets, by name.
        seconds: wall-clock time.
        unfinished: what was observed of the schedule during which the study stopped.
        failed: whether it stopped because a chain left the sphere, not because somebody asked.
        signal: the signal that asked it to stop, where one did.
        reason: why it stopped, in a line.
        predictions: of the master equation, by schedule; empty where rates could not be had.
        prediction_note: how far to trust them, or why there are none.
    """

    configuration: StudyConfiguration
    scenario: Scenario
    land: Landscape
    step_size: float
    schedules: dict[str, Schedule]
    outcomes: list[Trapping]
    data: dict[str, xr.Dataset]
    seconds: float = 0.0
    unfinished: xr.Dataset | None = None
    failed: bool = False
    signal: int = signal.SIGINT
    reason: str = ""
    temperatures: dict[str, Schedule | str] = dataclasses.field(default_factory=dict)
    predictions: dict[str, Prediction] = dataclasses.field(default_factory=dict)
    prediction_note: str = ""

    @property
    def complete(self) -> bool:
        return len(self.outcomes) == len(self.schedules)

    @property
    def delta(self) -> float:
        """Height of the lowest other minimum above the global one; what `raw` is measured against."""
        return self.land.minima[1].energy - self.land.minima[0].energy


def choose_scenario(name: str, temperature: float | None = None) -> Scenario:
    """A scenario by name, at another temperature inside the loss if one is given."""
    scenario = scenarios.get(name)
    if temperature is None:
        return scenario
    energy = scenario.energy.with_temperature(temperature)
    return dataclasses.replace(scenario, energy=energy, description=f"{scenario.description}, set to {temperature:g}")


def explore_scenario(
    name: str, temperature: float | None, seed: int, say: Callable[[str], None], **searches: int
) -> tuple[Scenario, Landscape]:
    """A scenario and its landscape, both told to the reader; `searches` go to `landscape.explore`."""
    scenario = choose_scenario(name, temperature)
    say(f"{scenario.name}: {scenario.description}")
    land = explored(scenario.energy, seed, **searches)
    describe_landscape(land, say)
    return scenario, land


def choose_step_size(configuration: StudyConfiguration, land: Landscape, say: Callable[[str], None]) -> float:
    """The step size, refused when it is too large for the curvature of the landscape."""
    if configuration.step_size is None:
        # Two digits: a number that a reader can type again.
        raw = STEP_OF_CURVATURE / land.curvature
        return float(f"{raw:.2g}")
    h = configuration.step_size
    ratio = h * land.curvature
    if ratio > REFUSE_ABOVE:
        raise InputError(
            f"step_size: got {h:g}; needs at most {REFUSE_ABOVE / land.curvature:.3g}, which is 1/L for the largest "
            f"Hessian eigenvalue L = {land.curvature:.3g} at a minimum; pass about "
            f"{STEP_OF_CURVATURE / land.curvature:.2g} or leave it out"
        )
    if ratio > WARN_ABOVE:
        say(f"warning: step size {h:g} is {ratio:.2f}/L; above {WARN_ABOVE}/L energies are biased by tens of per cent")
    return h


def run_study(
    configuration: StudyConfiguration,
    say: Callable[[str], None] = print,
    progress: bool | None = None,
    checkpoints: Path | None = None,
) -> Study:
    """Explore the landscape, run every schedule, quench, and count.

    Args:
        configuration: what to do.
        say: where lines for the reader go.
        progress: whether to show a bar for each schedule; by default on a terminal.
        checkpoints: a directory in which every run saves itself, and from which the same study goes on.

    Returns:
        The `Study`; one cut short by Ctrl-C or by a chain that failed has fewer outcomes than schedules.

    Raises:
        InputError: the configuration cannot be used, or the landscape has no trap.
    """
    configuration = configuration.checked()
    started = time.perf_counter()
    scenario, land = explore_scenario(configuration.scenario, configuration.temperature, configuration.seed, say)
    if len(land.minima) < 2 or not math.isfinite(land.critical_depth):
        raise InputError(
            f"scenario: got {scenario.name!r} with {len(land.minima)} kind(s) of minima, E* = {land.critical_depth:g}; "
            "needs a trap with a known passage; anneal on a scenario that has one, see 'infonce-jax scenarios'"
        )
    h = choose_step_size(configuration, land, say)
    horizon = configuration.steps * h
    moving = _moving(configuration, scenario, land, horizon)
    schedules = standard_schedules(land.critical_depth, horizon) | {name: beta for name, (beta, _) in moving.items()}
    say(f"{configuration.chains} chains per schedule, {configuration.steps} steps of {h:g} time units")
    study = Study(configuration, scenario, land, h, schedules, [], {})
    study.temperatures = {name: tau for name, (_, tau) in moving.items()}
    _predict_all(study, say)
    for number, (name, schedule) in enumerate(schedules.items()):
        try:
            _run_one(study, number, name, schedule, progress, checkpoints)
        except (KeyboardInterrupt, RunStopped) as stop:
            # The run that was cut short is kept as it is, without a quench.
            if isinstance(stop, RunInterrupted | RunStopped):
                study.unfinished = stop.run.data
            study.failed = isinstance(stop, RunStopped)
            study.signal = getattr(stop, "signal", signal.SIGINT)
            study.seconds = time.perf_counter() - started
            study.reason = f"stopped in '{name}': {stop or 'interrupted'}"
            say(study.reason)
            return study
        last = study.outcomes[-1]
        beside = "" if last.predicted is None else f"   predicted {last.predicted.probability[-1]:.3f}"
        say(f"  {name:22s} trapped {last.final}{beside}   raw {last.raw[-1].estimate:.3f}   {last.seconds:5.1f} s")
    study.seconds = time.perf_counter() - started
    return study


def _moving(
    configuration: StudyConfiguration, scenario: Scenario, land: Landscape, horizon: float
) -> dict[str, tuple[Schedule, Schedule | str]]:
    """Schedules that move the temperature inside the loss, where they were asked for."""
    start, end = configuration.from_temperature, getattr(scenario.energy, "temperature", None)
    if start is None:
        return {}
    if end is None:
        raise refuse("from_temperature", f"{start:g} for {scenario.name!r}, whose energy has no temperature",
                     "an energy of the InfoNCE family", "leave it out")  # fmt: skip
    if start <= float(end):
        raise refuse("from_temperature", f"{start:g}", f"more than {float(end):g}, the temperature it falls to",
                     "'infonce-jax temperature' finds where there is no trap")  # fmt: skip
    return moving_temperatures(land.critical_depth, horizon, start, float(end))


def _predict_all(study: Study, say: Callable[[str], None]) -> None:
    """What the master equation says of every schedule, before any chain runs; without rates a line says why not."""
    configuration, started = study.configuration, time.perf_counter()
    times = quench_steps(configuration.steps) * study.step_size
    if not configuration.predict:
        study.prediction_note = "no prediction: not asked for"
        return
    try:
        model = rate_model(study.land, configuration.quick, configuration.seed)
        study.predictions = {name: predict(study.land, model, s, times)
                             for name, s in study.schedules.items() if name not in study.temperatures}  # fmt: skip
        study.prediction_note = model.note
    except (InputError, RuntimeError) as reason:
        study.predictions = {}
        text = str(reason)
        study.prediction_note = text if text.startswith("no prediction") else f"no prediction: {text}"
    say(f"  {study.prediction_note} ({time.perf_counter() - started:.0f} s)")


def describe_landscape(land: Landscape, say: Callable[[str], None]) -> None:
    """Minima, E* and m in a few lines."""
    for k, minimum in enumerate(land.minima):
        role = "global minimum" if k == 0 else "trap"
        copies = "" if minimum.copies is None else f", {minimum.copies} cop{'y' if minimum.copies == 1 else 'ies'}"
        say(f"  {role:14s} E = {minimum.energy:.6f}   share {minimum.share:.2f}{copies}")
    m = "not resolved" if math.isnan(land.spectral_depth) else f"{land.spectral_depth:.6f}"
    say(f"  critical depth E* = {land.critical_depth:.6f}   spectral depth m = {m}   L = {land.curvature:.3g}")
    say(f"  {land.statement()}")


def schedule_seed(seed: int, number: int) -> int:
    """Seed of the chains of one schedule: schedules get independent noise, so that their intervals are independent."""
    return int(np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)[0])


def _run_one(
    study: Study, number: int, name: str, schedule: Schedule, progress: bool | None, checkpoints: Path | None
) -> None:
    configuration, h = study.configuration, study.step_size
    how = configuration.execution
    saving = None if checkpoints is None else Checkpoints(
        checkpoints / f"schedule_{number}", how.checkpoint_every, how.skip_damaged)  # fmt: skip
    times = quench_steps(configuration.steps) * h
    tau = study.temperatures.get(name)
    watching: tuple[observers.Observer, ...] = (observers.energies(), observers.snapshots(times))
    if tau is None:  # where tau moves, a level of energy means something else at every moment
        watching += (observers.first_passage(energy_below=study.land.minima[0].energy + study.delta / 2),)
    run = run_chains(
        study.scenario.energy,
        schedule,
        integrators.geodesic_euler(step_size=h),
        num_chains=configuration.chains,
        num_steps=configuration.steps,
        seed=schedule_seed(configuration.seed, number),
        observers=watching, temperature=tau, progress=progress, max_memory=how.max_memory, checkpoints=saving,
    )  # fmt: skip
    data = run.data.rename({"time_1": "quench_time", "step_1": "quench_step"})
    data = data.drop_vars(["inverse_temperature_1", "temperature", "temperature_1"], errors="ignore")
    if study.temperatures:
        data = data.assign(_of_moving(study, schedule, tau, data))
    positions = data["positions"].transpose("quench_time", "chain", "embedding", "coordinate").values
    basins, ends = study.land.quench(positions)
    lowest = float(np.min(ends))
    if lowest < study.land.minima[0].energy - 1e-6 * (1 + abs(lowest)):
        raise InputError(
            f"landscape: got a quench down to E = {lowest:.6f}, below the lowest minimum found, "
            f"{study.land.minima[0].energy:.6f}; needs a search that finds the global minimum; try another --seed"
        )
    excess = energies_of(study.scenario.energy, positions) - study.land.minima[0].energy > study.delta / 2
    note = {"long_name": "class of minimum that a quench reaches, -1 where unknown"}
    data["basin"] = xr.Variable(("chain", "quench_time"), basins.T.astype(np.int16), note)
    predicted = study.predictions.get(name)
    if predicted is not None:
        data = data.assign(_as_variables(predicted))
    study.data[name] = data
    study.outcomes.append(
        Trapping(
            name, schedule, data["quench_time"].values, proportions(excess.T), proportions((basins != 0).T),
            float(np.max(np.mean(basins < 0, axis=1))), run.seconds, run.chain_steps_per_second, predicted,
        )
    )  # fmt: skip


def _of_moving(study: Study, beta: Schedule, tau: Schedule | str | None, data: xr.Dataset) -> dict[str, xr.Variable]:
    """What all data sets of a study share where tau moves in some: tau in time, and passages, not watched there."""
    times = data["time"].values
    if tau is None:
        own = np.full(times.shape, float(study.scenario.energy.temperature))  # type: ignore[attr-defined]
    else:
        own = 1 / beta(times) if isinstance(tau, str) else tau(times)
    variables = {"temperature": xr.Variable(("time",), own, {"long_name": "tau, the temperature inside the loss"})}
    if tau is not None:
        chains = data.sizes["chain"]
        variables["first_passage_time"] = xr.Variable(("chain",), np.full(chains, np.nan))
        variables["first_passage_censored"] = xr.Variable(("chain",), np.ones(chains, dtype=bool))
    return variables


def _as_variables(predicted: Prediction) -> dict[str, xr.Variable]:
    what = "P(not in the global basin after a quench) by the master equation"
    parts = {"predicted": predicted.probability, "predicted_low": predicted.low, "predicted_high": predicted.high}
    notes = {"predicted": what, "predicted_low": f"{what}, lower end", "predicted_high": f"{what}, upper end"}
    return {key: xr.Variable(("quench_time",), values, {"long_name": notes[key]}) for key, values in parts.items()}
