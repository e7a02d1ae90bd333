"""Whether an implementation computes the same thing: its mean energy in equilibrium against ours, a z-test.

Independent chains from uniform starts run `WINDOW` steps to forget them, and the mean energy of each over as many more
is one sample. Both sides use the same scheme (ours is switched to it: geodesic Euler, MALA or projected Euler), so
their laws agree with all their bias and nothing is forgiven. Two correct programs differ by more than `LIMIT` standard
errors with probability 6e-7; with 3 comparisons on each of 7 shapes a run gives a false alarm with probability 1e-5.

A sampler whose steps must be too small to forget its start in that time begins at the end of a run of ours of its own,
as `Implementation.settled` says: the right law then stays, and a wrong one sets in.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from benchmarks.implementations import Implementation, Prepared, ours
from benchmarks.systems import System

__all__ = ["LIMIT", "WINDOW", "Agreement", "agreement", "stationary_means"]

LIMIT, WINDOW = 5.0, 300


@dataclasses.dataclass(frozen=True)
class Agreement:
    """Two mean energies with their standard errors.

    Attributes:
        implementation: the other one.
        n, d: shape.
        ours, theirs: (mean, standard error).
        cost: seconds per chain-step of the other one, to plan with.
    """

    implementation: str
    n: int
    d: int
    ours: tuple[float, float]
    theirs: tuple[float, float]
    cost: float

    @property
    def z(self) -> float:
        """Difference over its standard error; infinite where it is not a number."""
        z = (self.theirs[0] - self.ours[0]) / math.hypot(self.ours[1], self.theirs[1])
        return z if math.isfinite(z) else math.inf

    @property
    def holds(self) -> bool:
        """Whether they agree within `LIMIT` standard errors."""
        return abs(self.z) <= LIMIT

    def __str__(self) -> str:
        verdict = "agree" if self.holds else "DISAGREE"
        means = f"{self.ours[0]:.4f} +- {self.ours[1]:.4f} and {self.theirs[0]:.4f} +- {self.theirs[1]:.4f}"
        return f"  mean energies of infonce_jax and {self.implementation}: {means}, z = {self.z:.1f}: {verdict}"


def stationary_means(prepared: Prepared, seed: int, start: np.ndarray | None = None) -> np.ndarray:
    """Mean energy of each chain over the second of two calls, shape (chains,); from uniform points where no `start`."""
    state, _ = prepared.run(prepared.begin(seed) if start is None else prepared.begin(seed, start))
    return np.asarray(prepared.run(state)[1], np.float64)


def _estimate(means: np.ndarray) -> tuple[float, float]:
    return float(means.mean()), float(means.std(ddof=1) / np.sqrt(len(means)))


def agreement(implementation: Implementation, system: System, chains: int | None = None, seed: int = 0) -> Agreement:
    """Compare an implementation with ours under its scheme.

    Args:
        implementation: the other one.
        system: what to run.
        chains: how many on each side; by default 1024, a quarter of that for large systems, where steps are dear and
            each chain averages over many embeddings.
        seed: of both; the streams differ.
    """
    chains = chains or (1024 if system.n * system.d <= 64 else 256)
    mine: Any = ours(implementation.reference)(system, chains, WINDOW, True)
    theirs = implementation.prepare(system, chains, WINDOW, True)
    start = mine.run(mine.begin(2 * seed + 2000))[0][0] if implementation.settled else None
    left = _estimate(stationary_means(mine, 2 * seed + 1000))
    right = _estimate(stationary_means(theirs, 2 * seed + 1001, start))
    cost = theirs.seconds / (chains * WINDOW)
    return Agreement(implementation.name, system.n, system.d, left, right, cost)
