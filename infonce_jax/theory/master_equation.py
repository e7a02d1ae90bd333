"""The landscape as a Markov chain over its classes of minima: who is where at time t, and when a trap is left.

dP/dt = P Q(beta(t)) with the rates of `eyring_kramers`, harmonic or corrected, in detailed balance with the partition
functions of the basins. It speaks of chains after a quench: the law within a basin is taken as settled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import integrate, sparse
from scipy.linalg import eigh, expm
from threadpoolctl import threadpool_limits

from infonce_jax.checks import count, instance, numbers, positive, refuse
from infonce_jax.landscape import Landscape
from infonce_jax.schedules import Schedule
from infonce_jax.theory.eyring_kramers import Corrections, rate_matrix
from infonce_jax.theory.finite_volumes import check_times
from infonce_jax.theory.partition import log_partitions

__all__ = ["RateTable", "equilibrium", "escape_integral", "hitting_law", "initial_law", "mean_hitting_times",
           "occupancies", "rate_table"]  # fmt: skip

# Above this many classes the generator is kept sparse.
_DENSE = 24
_PIECES = 1500
_TABLE_POINTS = 240
# Rates span hundreds of powers of e; below this log they are zero for every purpose.
_NEVER = -700.0


def equilibrium(landscape: Landscape, beta: float, corrections: Corrections | None = None) -> np.ndarray:
    """Share of every class under the Gibbs law, shape (minima,)."""
    logs = log_partitions(landscape, positive("beta", beta), corrections.partitions if corrections else None)
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


@dataclasses.dataclass(frozen=True, eq=False)
class RateTable:
    """Rates between classes against beta: what the equations below read while they are solved.

    Attributes:
        log_betas: even grid, shape (k,).
        pairs: classes with a saddle between them, shape (2, edges).
        log_rates: from the first of a pair to the second and back, shape (2, k, edges).
        minima: number of classes.
    """

    log_betas: np.ndarray
    pairs: np.ndarray
    log_rates: np.ndarray
    minima: int

    def rates(self, beta: float) -> np.ndarray:
        """Rates onward and back at one beta, shape (2, edges); the end of the grid holds beyond it."""
        place = (np.log(beta) - self.log_betas[0]) / (self.log_betas[1] - self.log_betas[0])
        place = min(max(place, 0.0), len(self.log_betas) - 1.0)
        k = min(int(place), len(self.log_betas) - 2)
        part = place - k
        return np.exp(self.log_rates[:, k] * (1 - part) + self.log_rates[:, k + 1] * part)

    def generator(self, beta: float) -> sparse.csc_matrix:
        """Q^T, so that dP/dt = Q^T P; columns sum to zero."""
        (here, there), (onward, back) = self.pairs, self.rates(beta)
        rows = np.concatenate([there, here, here, there])
        columns = np.concatenate([here, there, here, there])
        values = np.concatenate([onward, back, -onward, -back])
        return sparse.csc_matrix((values, (rows, columns)), shape=(self.minima, self.minima))

    def dense(self, beta: float) -> np.ndarray:
        """The same as an array."""
        (here, there), (onward, back) = self.pairs, self.rates(beta)
        q = np.zeros((self.minima, self.minima))
        q[there, here], q[here, there] = onward, back
        return q - np.diag(q.sum(axis=0))


def rate_table(
    landscape: Landscape, lowest: float, highest: float, corrections: Corrections | None = None
) -> RateTable:
    """Tabulate the rates between all classes for inverse temperatures from `lowest` to `highest`."""
    low, high = positive("lowest", lowest), positive("highest", highest)
    log_betas = np.linspace(np.log(low), max(np.log(high), np.log(low) + 1e-3), _TABLE_POINTS)
    pairs = sorted({tuple(sorted(s.ends)) for s in landscape.saddles if s.ends[0] != s.ends[1]})
    here, there = np.array(pairs, dtype=int).reshape(-1, 2).T
    logs = np.empty((2, len(log_betas), len(pairs)))
    for k, log_beta in enumerate(log_betas):
        q = rate_matrix(landscape, float(np.exp(log_beta)), corrections=corrections)
        with np.errstate(divide="ignore"):
            logs[:, k] = np.maximum(np.log([q[here, there], q[there, here]]), _NEVER)
    return RateTable(log_betas, np.array([here, there]), logs, len(landscape.minima))


def initial_law(landscape: Landscape, initial: Any) -> np.ndarray:
    """Probabilities of the classes at time 0: "uniform" (their basins' volumes), an index, or an array.

    Raises:
        InputError: none of these.
    """
    instance("landscape", landscape, Landscape, "from landscape.explore(energy)")
    number = len(landscape.minima)
    if isinstance(initial, str):
        if initial != "uniform":
            raise refuse("initial", repr(initial), "'uniform', an index or probabilities", "see master_equation")
        law = np.array([m.share for m in landscape.minima])
        return law / law.sum()
    law = numbers("initial", initial, "'uniform', an index or probabilities")
    if law.ndim == 0 and 0 <= law < number and law == int(law):
        return np.eye(number)[int(law)]
    if law.shape != (number,) or np.any(law < 0) or abs(law.sum() - 1) > 1e-9:
        raise refuse("initial", repr(initial), f"'uniform', an index below {number} or {number} probabilities",
                     "one probability per class of minima, summing to 1")  # fmt: skip
    return law


def _table_for(landscape: Landscape, schedule: Schedule, horizon: float, corrections: Corrections | None) -> RateTable:
    betas = schedule(np.expm1(np.linspace(0.0, np.log1p(horizon), 400)))
    return rate_table(landscape, float(betas.min()), float(betas.max()), corrections)


def occupancies(
    landscape: Landscape,
    schedule: Schedule,
    times: Any,
    initial: Any = "uniform",
    corrections: Corrections | None = None,
) -> np.ndarray:
    """P(class, t) of the master equation under a schedule.

    At constant beta from the eigenvectors of the generator, which detailed balance makes symmetric; otherwise by
    exponentials of 1500 pieces on the clock log(1 + t), and for more than 24 classes by a stiff solver.

    Args:
        landscape: from `landscape.explore`, with counted copies.
        schedule: beta(t).
        times: increasing, none negative, shape (k,).
        initial: "uniform", the index of a class, or probabilities of shape (minima,).
        corrections: None for harmonic rates.

    Returns:
        Shape (k, minima); rows sum to one. Column 0 is the global minimum.
    """
    instance("schedule", schedule, Schedule, "for example schedules.logarithmic(depth)")
    t = check_times(times)
    law = initial_law(landscape, initial)
    if schedule.family == "constant" and len(law) <= _DENSE:
        beta = float(schedule(0.0))
        table = rate_table(landscape, beta, beta, corrections)
        return _constant(table.dense(beta), equilibrium(landscape, beta, corrections), t, law)
    return _solve(_table_for(landscape, schedule, float(t[-1]), corrections), schedule, t, law)


def _constant(generator: np.ndarray, weights: np.ndarray, times: np.ndarray, law: np.ndarray) -> np.ndarray:
    root = np.sqrt(np.maximum(weights, 1e-300))
    values, vectors = eigh(generator * root[None, :] / root[:, None])
    start = vectors.T @ (law / root)
    decay = np.exp(np.minimum(values, 0.0)[None] * times[:, None])
    out = np.maximum((decay * start) @ vectors.T * root, 0.0)
    return out / out.sum(axis=1, keepdims=True)


def _solve(
    table: RateTable, schedule: Schedule, times: np.ndarray, law: np.ndarray, absorbing: int | None = None
) -> np.ndarray:
    """Solve dP/dt = Q^T P, shape (times, minima); what arrives in the class `absorbing` stays there."""
    keep = np.ones(table.minima)
    if absorbing is not None:
        keep[absorbing] = 0.0
    solve = _stiff if table.minima > _DENSE else _by_pieces
    return np.maximum(solve(table, schedule, times, law, keep), 0.0)


def _by_pieces(
    table: RateTable, schedule: Schedule, times: np.ndarray, law: np.ndarray, keep: np.ndarray
) -> np.ndarray:
    """Exponentials of generators that are constant between the points of a fine grid of log(1 + t): second order."""
    clock = np.unique(np.concatenate([np.linspace(0.0, np.log1p(times[-1]), _PIECES + 1), np.log1p(times)]))
    betas = schedule(np.expm1((clock[1:] + clock[:-1]) / 2))
    generators = np.array([table.dense(float(b)) for b in betas]) * keep * np.diff(np.expm1(clock))[:, None, None]
    with threadpool_limits(1, "blas"):  # on matrices this small, threads that wait for each other cost a hundredfold
        moves = expm(generators)
    laws = [law]
    for move in moves:
        laws.append(move @ laws[-1])
    return np.array(laws)[np.searchsorted(clock, np.log1p(times))]


def _stiff(table: RateTable, schedule: Schedule, times: np.ndarray, law: np.ndarray, keep: np.ndarray) -> np.ndarray:
    """The same for many classes: a sparse generator and an implicit solver."""

    def matrix(clock: float) -> sparse.csc_matrix:
        return table.generator(float(schedule(np.expm1(clock)))) @ sparse.diags(keep * np.exp(clock), format="csc")

    with np.errstate(invalid="ignore", over="ignore"):  # of differences that BDF has not set yet, see finite_volumes
        solution = integrate.solve_ivp(
            lambda clock, p: matrix(clock) @ p, (0.0, np.log1p(times[-1])), law, method="BDF", t_eval=np.log1p(times),
            jac=lambda clock, _: matrix(clock), rtol=1e-8, atol=1e-14,
        )  # fmt: skip
    if not solution.success:
        raise RuntimeError(f"the stiff solver stopped at t = {np.expm1(solution.t[-1]):g}: {solution.message}")
    return solution.y.T


def hitting_law(
    landscape: Landscape,
    schedule: Schedule,
    times: Any,
    source: Any,
    target: int = 0,
    corrections: Corrections | None = None,
) -> np.ndarray:
    """P(the target class has not been reached by t), shape (k,), from a class or a law over classes."""
    t, law = check_times(times), initial_law(landscape, source)
    initial_law(landscape, target)
    table = _table_for(landscape, schedule, float(t[-1]), corrections)
    return 1 - _solve(table, schedule, t, law, absorbing=target)[:, target]


def mean_hitting_times(
    landscape: Landscape, beta: float, target: int | Sequence[int] = 0, corrections: Corrections | None = None
) -> np.ndarray:
    """Mean time to reach the target from every class at constant beta, shape (minima,); 0 within the target.

    Args:
        landscape: from `landscape.explore`, with counted copies.
        beta: inverse temperature, > 0.
        target: index of a class, or several of them.
        corrections: None for harmonic rates.

    Raises:
        InputError: no such class.
        numpy.linalg.LinAlgError: a class from which no known passage leads to the target.
    """
    targets = [target] if isinstance(target, int) else list(target)
    if not targets:
        raise refuse("target", targets, "the index of a class, or several", "an index into landscape.minima")
    for index in targets:
        initial_law(landscape, index)
    q = rate_matrix(landscape, beta, corrections=corrections)
    others = [k for k in range(len(q)) if k not in targets]
    times = np.zeros(len(q))
    times[others] = np.linalg.solve(-q[np.ix_(others, others)], np.ones(len(others)))
    return times


def escape_integral(
    landscape: Landscape,
    schedule: Schedule,
    horizon: float,
    source: int,
    target: int = 0,
    corrections: Corrections | None = None,
) -> float:
    """Lambda up to a horizon: the integral of the rate from source to target along the schedule.

    A chain in a single trap has left it by then with probability 1 - e^{-Lambda}. For the limit of long horizons in
    closed form see `annealing.trapping_criterion`.
    """
    T = positive("horizon", horizon)
    instance("schedule", schedule, Schedule, "for example schedules.logarithmic(depth)")
    for name, index in (("source", source), ("target", target)):
        if count(name, index, least=0, mend="an index into landscape.minima") >= len(landscape.minima):
            raise refuse(name, index, f"0 to {len(landscape.minima) - 1}", "an index into landscape.minima")
    clock = np.linspace(0.0, np.log1p(T), 2001)
    betas = schedule(np.expm1(clock))
    table = _table_for(landscape, schedule, T, corrections)
    pair = sorted((source, target))
    columns = [k for k, ends in enumerate(table.pairs.T.tolist()) if ends == pair]
    if not columns:
        return 0.0
    side = 0 if source == pair[0] else 1
    rates = np.array([table.rates(float(b))[side, columns[0]] for b in betas])
    return float(np.trapezoid(rates * np.exp(clock), clock))
