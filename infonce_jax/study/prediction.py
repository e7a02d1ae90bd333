"""What theory predicts for a study, and where the measurement says otherwise, in words.

The prediction is the master equation over classes of minima, with measured free energies of the basins and the
conductance of the saddles beyond the Gaussian. Its own uncertainty is the sampling error of the free energies.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np

from infonce_jax import measure
from infonce_jax.checks import InputError
from infonce_jax.landscape import Landscape
from infonce_jax.measure import Proportion
from infonce_jax.schedules import Schedule
from infonce_jax.theory import Corrections, PartitionTable, corrections, master_equation

__all__ = ["Difference", "Model", "Prediction", "differences", "predict", "rate_model", "statements"]

# Each class takes about ten seconds of confined chains on two cores.
_MOST_CLASSES = 8
# Confined chains, temperatures and moves, then temperatures of the conductance; 128 chains are what a quench of few
# points does at once on two cores.
_BUDGET, _QUICK = (128, 16, 6, 4), (128, 8, 3, 3)
_SIGMAS = 1.96
# beta E* between which the conductance is tabulated: below the first a saddle is no barrier, above the last it is
# Gaussian within two per cent.
_BARRIERS = (3.0, 60.0)
_MOST_MISMATCH = 1.0  # of log Z between its two ends; beyond it the confined chains missed part of a basin
_WORTH_WORDS = 0.1  # relative difference below which nothing is said: what the corrected rates are good for
_SETTLING = 3.0  # relaxation times of the softest mode of a trap that its law needs to follow beta
_FAST = 1.5  # factor by which beta grows within them under a schedule that is too fast for it


@dataclasses.dataclass(frozen=True, eq=False)
class Model:
    """Corrected rates of a landscape.

    Attributes:
        corrections: for `theory.master_equation`.
        errors: standard error of log Z of each class of minima, at most, shape (minima,).
        note: how far the free energies can be trusted, one line.
    """

    corrections: Corrections
    errors: np.ndarray
    note: str


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction:
    """P(not at the global minimum) after a quench, as the master equation has it.

    Attributes:
        probability: at the quench times, shape (k,).
        low, high: the range that the sampling error of the free energies leaves, 95 %, shape (k,).
    """

    probability: np.ndarray
    low: np.ndarray
    high: np.ndarray


def rate_model(land: Landscape, quick: bool = False, seed: int = 0) -> Model:
    """Measure the free energies of the basins and compute the conductance of the saddles between them.

    Args:
        land: from `landscape.explore`.
        quick: fewer temperatures and moves.
        seed: of the confined chains.

    Raises:
        InputError: the landscape has flat valleys, uncounted copies or too many classes, or the free energies do not
            agree with themselves; the message is what a reader is told instead of a prediction.
    """
    if any(m.flat for m in land.minima):
        raise InputError("no prediction: some minima are flat valleys, between which rates mean nothing")
    if any(not point.copies for point in (*land.minima, *land.saddles)):
        raise InputError("no prediction: the copies of minima and saddles were not counted, and rates need them")
    for saddle in land.saddles:
        if _joined_at(land, saddle.energy) > int(saddle.copies or 0):
            raise InputError(f"no prediction: the saddle at E = {saddle.energy:.6f} joins more pairs of minima than it "
                             "has counted copies, so that its rate would be too small")  # fmt: skip
    if len(land.minima) > _MOST_CLASSES:
        raise InputError(f"no prediction: {len(land.minima)} classes of minima, more than the {_MOST_CLASSES} whose "
                         "free energies a study measures")  # fmt: skip
    chains, temperatures, moves, points = _QUICK if quick else _BUDGET
    free = measure.basin_free_energies(land, num_chains=chains, num_betas=temperatures, num_moves=moves, seed=seed)
    worst = max(free.classes, key=lambda means: abs(means.mismatch))
    if abs(worst.mismatch) > _MOST_MISMATCH:
        raise InputError(f"no prediction: {free.statement()}")
    betas = np.geomspace(*_BARRIERS, points) / land.critical_depth
    # Both ends of a free energy are known: in between its error is at most half of what the two may differ by. Chains
    # that resampling made equal are not independent, so what the ends do differ by counts where it is larger.
    errors = np.array([max(means.mismatch_error, abs(means.mismatch)) / 2 for means in free.classes])
    note = (f"free energies: the two ends of log Z differ by {worst.mismatch:+.2f}, sampling error "
            f"{worst.mismatch_error:.2f}")  # fmt: skip
    return Model(corrections(land, free.table, betas), errors, note)


def _joined_at(land: Landscape, height: float) -> int:
    """Pairs of copies of minima whose lowest passage has this height."""
    return sum(abs(h - height) < 1e-7 * (1 + abs(height)) for _, _, h in land.copies.edges(data="height"))


def predict(land: Landscape, model: Model, schedule: Schedule, times: np.ndarray) -> Prediction:
    """P(not in the global basin) at `times` from a uniform start, with its range.

    The upper end takes every trap as larger and the global basin as smaller by 1.96 standard errors of log Z; the lower
    end lies as far on the other side, in log odds.

    Raises:
        InputError: rates cannot be computed.
        RuntimeError: the solver stopped.
    """
    mend = model.corrections
    best = _trapped(land, schedule, times, mend)
    shift = _SIGMAS * model.errors
    shift[: land.number_global] *= -1
    shifted = PartitionTable(mend.partitions.betas, mend.partitions.log_z + shift)
    high = np.maximum(_trapped(land, schedule, times, dataclasses.replace(mend, partitions=shifted)), best)
    odds, above = best / (1 - best), high / (1 - high)
    low = odds**2 / above
    return Prediction(best, low / (1 + low), high)


def _trapped(land: Landscape, schedule: Schedule, times: np.ndarray, mend: Corrections) -> np.ndarray:
    law = master_equation.occupancies(land, schedule, times, corrections=mend)
    return np.clip(law[:, land.number_global :].sum(axis=1), 1e-300, 1 - 1e-12)


@dataclasses.dataclass(frozen=True)
class Difference:
    """Times next to each other at which measurement and prediction differ by more than their error bars.

    Attributes:
        above: whether the measured share is the larger one.
        first, last: indices of the first and last such time.
        worst: index of the time at which they differ most, in units of the larger of the two.
        relative: by how much there.
    """

    above: bool
    first: int
    last: int
    worst: int
    relative: float


def differences(measured: Sequence[Proportion], predicted: Prediction) -> list[Difference]:
    """Runs of times at which the two intervals do not meet and the values differ by more than 10 %."""
    m = np.array([p.estimate for p in measured])
    below = np.array([p.high for p in measured]) < predicted.low
    above = np.array([p.low for p in measured]) > predicted.high
    relative = np.abs(m - predicted.probability) / np.maximum(np.maximum(m, predicted.probability), 1e-300)
    side = np.where(relative > _WORTH_WORDS, above.astype(int) - below.astype(int), 0)
    edges = np.flatnonzero(np.diff(side, prepend=0, append=0))
    runs = [(a, b) for a, b in itertools.pairwise(edges) if side[a]]
    found = []
    for first, end in runs:
        worst = int(first + np.argmax(relative[first:end]))
        found.append(Difference(bool(side[first] > 0), int(first), int(end - 1), worst, float(relative[worst])))
    return found


def statements(
    land: Landscape,
    schedule: Schedule,
    times: np.ndarray,
    measured: Sequence[Proportion],
    predicted: Prediction,
    plain: Callable[[float], str],
) -> list[str]:
    """One sentence for each run of times that differ, saying when, by how much, and why as far as one can tell."""
    return [_sentence(land, schedule, times, measured, predicted, d, plain) for d in differences(measured, predicted)]


def _sentence(
    land: Landscape, schedule: Schedule, times: np.ndarray, measured: Sequence[Proportion], predicted: Prediction,
    d: Difference, plain: Callable[[float], str],
) -> str:  # fmt: skip
    first, last, worst = (plain(float(times[k])) for k in (d.first, d.last, d.worst))
    when = f"at t = {first}" if d.first == d.last else f"from t = {first} to {last}"
    most = f" at t = {worst}" if d.first != d.last else ""
    interval = f"{predicted.probability[d.worst]:.3f} [{predicted.low[d.worst]:.3f}, {predicted.high[d.worst]:.3f}]"
    side = "more" if d.above else "fewer"
    why = _why(land, schedule, float(times[d.first]))
    return (f"{when} {side} chains were trapped than predicted, by {100 * d.relative:.0f} %{most} (measured "
            f"{measured[d.worst]}, predicted {interval}). {why}")  # fmt: skip


def _why(land: Landscape, schedule: Schedule, start: float) -> str:
    """The reason that holds where the difference begins: later times inherit it."""
    depth = float(schedule(start)) * land.critical_depth
    softest = min(float(m.eigenvalues[0]) for m in land.minima[land.number_global :])
    growth = float(schedule(start) / schedule(max(start - _SETTLING / softest, 0.0)))
    if depth < _BARRIERS[0]:
        return (f"It begins where beta E* = {depth:.1f}, below 3: there the barrier is no barrier yet and a rate means "
                "nothing.")  # fmt: skip
    if growth > _FAST:
        ratio = f"{growth:.1f}" if math.isfinite(growth) and growth < 100 else "over 100"
        return (f"It begins where beta grew {ratio}-fold within {_SETTLING:g} relaxation times of the trap: the law "
                "within a basin cannot settle, and the schedule quenches before rates apply.")  # fmt: skip
    return (f"It begins where beta E* = {depth:.1f} and cooling is slow, so rates should hold: look at the step size, "
            "the search for saddles, and at whether it returns with another seed.")  # fmt: skip
