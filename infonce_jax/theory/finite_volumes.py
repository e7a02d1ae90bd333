"""Reversible finite volumes for the Fokker-Planck equation: cells, rates between neighbours, laws in time, passages.

A cell i has a volume V_i and an energy E_i; neighbours i, j share a face with conductance c_ij = area/distance. With
the rates of Scharfetter and Gummel (1969),

    rate i -> j = (c_ij / (beta V_i)) B(beta (E_j - E_i)),   B(z) = z/(e^z - 1),

V_i e^{-beta E_i} is exactly stationary in detailed balance, probabilities stay positive, and no beta is too large: B
tends to the upwind scheme of the gradient flow.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
from scipy import integrate, sparse

from infonce_jax.checks import numbers, refuse
from infonce_jax.schedules import Schedule

__all__ = ["Cells", "bernoulli", "check_times", "evolve", "mean_times"]


def bernoulli(z: np.ndarray) -> np.ndarray:
    """B(z) = z/(e^z - 1), with its limits 1 at 0, -z at -infinity and 0 at infinity."""
    small = np.abs(z) < 1e-5
    safe = np.where(small, 1.0, z)
    with np.errstate(over="ignore"):
        return np.where(small, 1 - z / 2 + z * z / 12, safe / np.expm1(safe))


@dataclasses.dataclass(frozen=True, eq=False)
class Cells:
    """A division of the state space into cells.

    Attributes:
        points: centres, shape (m, n, d), unit rows.
        volumes: shape (m,), in any unit; only ratios to `conductances` count.
        energies: at the centres, shape (m,).
        pairs: neighbours, shape (2, faces); no pair twice.
        conductances: shape (faces,).
    """

    points: np.ndarray
    volumes: np.ndarray
    energies: np.ndarray
    pairs: np.ndarray
    conductances: np.ndarray

    def stationary(self, beta: float) -> np.ndarray:
        """The Gibbs law of the cells, shape (m,): V_i e^{-beta E_i}, normalised."""
        weights = self.volumes * np.exp(-beta * (self.energies - self.energies.min()))
        return weights / weights.sum()

    def rates(self, beta: float) -> tuple[np.ndarray, np.ndarray]:
        """Rates across every face, from the first of the pair to the second and back, shape (faces,) each."""
        here, there = self.pairs
        z = beta * (self.energies[there] - self.energies[here])
        return (self.conductances / (beta * self.volumes[here]) * bernoulli(z),
                self.conductances / (beta * self.volumes[there]) * bernoulli(-z))  # fmt: skip

    def flow(self, beta: float, law: np.ndarray) -> np.ndarray:
        """dp/dt of the law p, shape (m,), at one beta."""
        (here, there), (onward, back) = self.pairs, self.rates(beta)
        flux, m = onward * law[here] - back * law[there], len(law)
        return np.bincount(there, flux, m) - np.bincount(here, flux, m)

    def generator(self, beta: float) -> sparse.csc_matrix:
        """The matrix Q of dp/dt = Q p; its columns sum to zero."""
        (here, there), (onward, back), m = self.pairs, self.rates(beta), len(self.volumes)
        leaving = np.bincount(here, onward, m) + np.bincount(there, back, m)
        order, indices, starts = self._pattern
        return sparse.csc_matrix((np.concatenate([onward, back, -leaving])[order], indices, starts), shape=(m, m))

    @functools.cached_property
    def _pattern(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        (here, there), own = self.pairs, np.arange(len(self.volumes))
        rows, columns = np.concatenate([there, here, own]), np.concatenate([here, there, own])
        places = sparse.csc_matrix((np.arange(1.0, len(rows) + 1), (rows, columns)), shape=(len(own), len(own)))
        return places.data.astype(int) - 1, places.indices, places.indptr


def check_times(times: Any) -> np.ndarray:
    """Times as float64, increasing, none negative, the last one positive."""
    t = numbers("times", times, "increasing times, in time units")
    if t.ndim != 1 or not len(t) or not np.all(np.isfinite(t)) or np.any(np.diff(t) <= 0) or t[0] < 0 or t[-1] <= 0:
        raise refuse("times", repr(times), "increasing finite times >= 0", "sort them; 0 gives the initial law")
    return t


def evolve(cells: Cells, schedule: Schedule, times: np.ndarray, law: np.ndarray) -> np.ndarray:
    """The law under a schedule: dp/dt = Q(beta(t)) p from p = `law` at t = 0, by BDF on the clock log(1 + t).

    Args:
        cells: the grid.
        schedule: beta(t).
        times: increasing, shape (k,), none negative.
        law: probabilities of the cells at t = 0, shape (m,).

    Returns:
        Shape (k, m); each row sums to one.
    """

    def beta(clock: float) -> float:
        return float(schedule(np.expm1(clock)))

    # SciPy's BDF begins with differences in memory it has not set; they are overwritten before they count, but the
    # arithmetic on them may warn.
    with np.errstate(invalid="ignore", over="ignore"):
        solution = integrate.solve_ivp(
            lambda clock, p: cells.flow(beta(clock), p) * np.exp(clock), (0.0, np.log1p(times[-1])), law, method="BDF",
            t_eval=np.log1p(times), jac=lambda clock, _: cells.generator(beta(clock)) * np.exp(clock), rtol=1e-7,
            atol=1e-14,
        )  # fmt: skip
    if not solution.success:
        raise RuntimeError(f"the stiff solver stopped at t = {np.expm1(solution.t[-1]):g}: {solution.message}")
    return solution.y.T


def mean_times(rates: sparse.csr_array, killing: np.ndarray) -> np.ndarray:
    """Mean time until a Markov chain is killed, from every state, without a single subtraction.

    States are taken out one by one and their rates handed on to those that remain (Grassmann, Taksar and Heyman 1985,
    "Regenerative analysis and steady state distributions for Markov chains"): only sums of positive numbers, so that
    times of e^{beta barrier} keep their digits where a linear solver loses them to the condition number.

    Args:
        rates: rates[i, j] from state i to j, shape (states, states), zero on the diagonal. The work grows with the
            square of its bandwidth.
        killing: rate out of the chain, shape (states,). Every state but those with a positive rate here needs a
            neighbour of higher index: the last states are the ones to be killed.

    Returns:
        Shape (states,).
    """
    size, coo = len(killing), rates.tocoo()
    band = int(np.max(np.abs(coo.row - coo.col)))
    kill, source = np.zeros(size + 2 * band), np.zeros(size + 2 * band)
    kill[:size], source[:size] = killing, 1.0
    onward, total = np.zeros((size, band)), np.zeros(size)
    rest = np.zeros((0, 0))
    for start in range(0, size, band):
        window = np.zeros((2 * band, 2 * band))
        part = rates[start : start + 2 * band, start : start + 2 * band].toarray()
        window[: len(part), : len(part)] = part
        window[: len(rest), : len(rest)] = rest
        for i in range(min(band, size - start)):
            k, ahead, later = start + i, slice(i + 1, i + 1 + band), slice(start + i + 1, start + i + 1 + band)
            leaving = window[i, ahead]
            total[k] = leaving.sum() + kill[k]
            entering = window[ahead, i] / total[k]
            window[ahead, ahead] += entering[:, None] * leaving
            kill[later] += entering * kill[k]
            source[later] += entering * source[k]
            onward[k, : len(leaving)] = leaving
        rest = window[band:, band:]
    times = np.zeros(size + band)
    for k in range(size - 1, -1, -1):
        times[k] = (source[k] + onward[k] @ times[k + 1 : k + 1 + band]) / total[k]
    return times[:size]
