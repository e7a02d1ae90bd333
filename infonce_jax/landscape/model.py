"""What exploring a landscape gives: classes of minima and saddles, the network of them, and quenches into it."""

from __future__ import annotations

import dataclasses
import math

import networkx as nx
import numpy as np

from infonce_jax.checks import numbers, refuse
from infonce_jax.energies.base import Energy
from infonce_jax.landscape.quench import quench
from infonce_jax.landscape.symmetry import Symmetry

__all__ = ["SAME_ENERGY", "Landscape", "Minimum", "Saddle"]

# Relative to 1 + |E|: energies of two polished critical points of one class differ by rounding only.
SAME_ENERGY = 1e-7


@dataclasses.dataclass(frozen=True, eq=False)
class Minimum:
    """One class of minima: all copies under rotations, reflections and relabellings that keep the energy.

    Attributes:
        energy: E.
        position: one representative, shape (n, d).
        eigenvalues: of the Hessian without those of rotations, ascending.
        gradient_norm: of the representative.
        share: fraction of uniform starts whose quench ended in the class.
        copies: components of the class that no rotation joins, or None where they were not counted.
        flat: whether the Hessian vanishes in a direction that is no rotation, so that the minimum is part of a valley.
    """

    energy: float
    position: np.ndarray
    eigenvalues: np.ndarray
    gradient_norm: float
    share: float
    copies: int | None = None
    flat: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Saddle:
    """One class of index-1 saddles.

    Attributes:
        energy: E.
        position: one representative, shape (n, d).
        eigenvalues: of the Hessian without those of rotations; the first one is negative.
        ends: indices of the minima at its two downhill ends.
        copies: components of the class that no rotation joins, or None where they were not counted.
    """

    energy: float
    position: np.ndarray
    eigenvalues: np.ndarray
    ends: tuple[int, int]
    copies: int | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Landscape:
    """What `explore` found.

    Attributes:
        energy: the energy explored.
        minima: sorted by energy; minima[0] is the global class.
        saddles: sorted by energy.
        network: classes of minima as nodes, joined by the lowest saddle between them ("height", "saddle").
        copies: the same for single copies, as far as they were enumerated; node attribute "minimum" is the class.
        critical_depth: E*, what a logarithmic schedule must exceed to converge in probability. An upper bound: a lower
            passage may have been missed. Infinite when some minimum has no known passage.
        spectral_depth: m >= E*, what the law itself needs; NaN where the copies could not be enumerated.
        curvature: the largest Hessian eigenvalue at any minimum, which limits the step size.
        saturated: no new class of minima or saddles turned up in the last tenth of the searches.
        searches: numbers of quenches and of saddle searches.
        symmetry: of the energy.
    """

    energy: Energy
    minima: tuple[Minimum, ...]
    saddles: tuple[Saddle, ...]
    network: nx.Graph
    copies: nx.Graph
    critical_depth: float
    spectral_depth: float
    curvature: float
    saturated: bool
    searches: tuple[int, int]
    symmetry: Symmetry

    @property
    def number_global(self) -> int:
        """How many classes share the lowest energy; all of them are global minima."""
        lowest = self.minima[0].energy
        return sum(m.energy - lowest < SAME_ENERGY * (1 + abs(lowest)) for m in self.minima)

    def quench(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Follow configurations, shape (..., n, d), along the gradient flow: classes as `basin_of`, final energies."""
        points = numbers("points", points, "configurations of shape (..., n, d)")
        if points.shape[-2:] != self.energy.shape or not np.all(np.isfinite(points)):
            given = f"shape {points.shape}" if points.shape[-2:] != self.energy.shape else "NaN or infinite entries"
            raise refuse("points", given, f"finite entries of shape (..., {self.energy.shape[0]}, "
                         f"{self.energy.shape[1]})", "one row per embedding")  # fmt: skip
        if not points.size:
            return np.zeros(points.shape[:-2], dtype=int), np.zeros(points.shape[:-2])
        flat = points.reshape(-1, *points.shape[-2:])
        levels = np.array([m.energy for m in self.minima])
        window = _window(levels, np.array([s.energy for s in self.saddles]))
        softest = min(float(np.min(m.eigenvalues, initial=np.inf)) for m in self.minima)
        # At this gradient a point of the softest valley is within half the window of its floor.
        tolerance = math.sqrt(min(max(softest, 1e-4), 1e4) * window) / 2
        _, energies, _ = quench(self.energy, flat, tolerance, levels, window)
        distance = np.abs(energies[:, None] - levels[None])
        close = distance < window + SAME_ENERGY * (1 + np.abs(levels))
        # The first of classes with one energy stands for all: the gradient flow alone does not tell them apart.
        classes = np.where(close.any(axis=1), np.argmax(close, axis=1), -1)
        return classes.reshape(points.shape[:-2]), energies.reshape(points.shape[:-2])

    def basin_of(self, points: np.ndarray) -> np.ndarray:
        """Index into `minima` of the class each configuration falls to along the gradient flow, -1 where none is known.

        Classes of the same energy count as the first of them, so 0 always means a global minimum. Next to a separatrix
        a point may fall to the other side.

        Args:
            points: shape (..., n, d).

        Returns:
            Integers, shape (...).
        """
        return self.quench(points)[0]

    def statement(self) -> str:
        """One sentence on how far the search can be trusted."""
        quenches, searches = self.searches
        if any(m.flat for m in self.minima):
            return "Some minima form flat valleys: their classes, copies and passages are not reliable."
        if not math.isfinite(self.critical_depth):
            return f"Some minimum has no known passage to the global one after {searches} saddle searches: search more."
        if self.saturated:
            return (f"No new minimum or saddle in the last tenth of {quenches} quenches and {searches} saddle "
                    "searches; E* is still an upper bound.")  # fmt: skip
        return (f"New minima or saddles kept turning up in the last tenth of {quenches} quenches and {searches} saddle "
                "searches: not saturated, E* may be lower.")  # fmt: skip


def _window(minima: np.ndarray, saddles: np.ndarray) -> float:
    """How far above a minimum's energy a point may be to count as arrived: far below any other critical energy."""
    levels = np.sort(np.concatenate([minima, saddles]))
    gaps = np.diff(levels)
    gaps = gaps[gaps > SAME_ENERGY]
    return float(np.clip(0.01 * gaps.min() if len(gaps) else 1e-4, 1e-8, 1e-4))
