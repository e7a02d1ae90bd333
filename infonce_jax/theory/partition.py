"""Partition functions of basins and saddles: what rates between basins are made of.

Z of a class is the integral of e^{-beta E} over the basins of all its copies together. Harmonic wells give it in closed
form at low temperature; tables measured elsewhere (`infonce_jax.measure.basin_free_energies`) give it at every one.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from infonce_jax.checks import numbers, positive, refuse
from infonce_jax.landscape import Landscape, Minimum, Saddle, Symmetry

__all__ = ["PartitionTable", "harmonic_log_partitions", "log_partitions", "orbit_volume", "saddle_log_partitions",
           "sphere_volume"]  # fmt: skip


def sphere_volume(dimension: int) -> float:
    """Surface of the unit sphere S^dimension."""
    return 2 * math.pi ** ((dimension + 1) / 2) / math.gamma((dimension + 1) / 2)


def orbit_volume(symmetry: Symmetry, x: np.ndarray) -> tuple[float, int]:
    """Volume and dimension of the orbit of a configuration under the connected symmetries SO(V).

    With c_i the eigenvalues of the d x d matrix sum_i z_i z_i^T within V, of rank r in k = dim V dimensions: for
    r >= k - 1, prod_{l=1}^{k-1} vol(S^l) prod_{i<j} (c_i + c_j)^{1/2}; for smaller r, prod_{l=k-r}^{k-1} vol(S^l)
    prod_{i<j<=r} (c_i + c_j)^{1/2} prod_{i<=r} c_i^{(k-r)/2}. On the circle always 2 pi sqrt(n).

    Args:
        symmetry: of the energy.
        x: shape (n, d).

    Returns:
        The volume, in the metric of the product of spheres, and the dimension; (1, 0) where no rotation moves x.
    """
    k = len(symmetry.free)
    if k < 2:
        return 1.0, 0
    inside = x @ symmetry.free.T
    c = np.sort(np.linalg.eigvalsh(inside.T @ inside))[::-1]
    rank = int(np.sum(c > 1e-9 * c[0]))
    c = np.maximum(c, 0.0)
    if rank >= k - 1:
        spheres = [sphere_volume(size) for size in range(1, k)]
        pairs = [math.sqrt(c[i] + c[j]) for i, j in itertools.combinations(range(k), 2)]
        return math.prod(spheres) * math.prod(pairs), k * (k - 1) // 2
    spheres = [sphere_volume(size) for size in range(k - rank, k)]
    pairs = [math.sqrt(c[i] + c[j]) for i, j in itertools.combinations(range(rank), 2)]
    across = math.prod(c[i] ** ((k - rank) / 2) for i in range(rank))
    return math.prod(spheres) * math.prod(pairs) * across, rank * (rank - 1) // 2 + rank * (k - rank)


class _Gaussian(NamedTuple):
    """log Z = constant - (modes/2) log beta - beta energy."""

    constant: float
    modes: int
    energy: float

    def at(self, beta: Any) -> Any:
        return self.constant - self.modes / 2 * np.log(beta) - beta * self.energy


def _gaussian(symmetry: Symmetry, point: Minimum | Saddle) -> _Gaussian:
    """copies * vol(orbit) * prod over stable modes of (2 pi/(beta lambda))^{1/2} e^{-beta E}."""
    if not point.copies:
        raise refuse("landscape", "a symmetry group too large to list", "counted copies of minima and saddles",
                     "rates need them; use a landscape with fewer symmetries")  # fmt: skip
    volume, _ = orbit_volume(symmetry, point.position)
    stable = point.eigenvalues[point.eigenvalues > 0]
    constant = math.log(point.copies) + math.log(volume) + float(np.sum(np.log(2 * math.pi / stable))) / 2
    return _Gaussian(constant, len(stable), point.energy)


@functools.lru_cache(maxsize=32)  # landscapes are compared by identity; rates are asked for at hundreds of betas
def _minima(landscape: Landscape) -> tuple[_Gaussian, ...]:
    return tuple(_gaussian(landscape.symmetry, minimum) for minimum in landscape.minima)


@functools.lru_cache(maxsize=32)
def _saddles(landscape: Landscape) -> tuple[_Gaussian, ...]:
    parts = [_gaussian(landscape.symmetry, saddle) for saddle in landscape.saddles]
    # |lambda_-|^{1/2} of the unstable mode joins the prefactor |lambda_-|/2 pi of Kramers.
    unstable = [math.log(2 * math.pi / abs(saddle.eigenvalues[0])) / 2 for saddle in landscape.saddles]
    return tuple(
        part._replace(constant=part.constant + log, modes=part.modes + 1)
        for part, log in zip(parts, unstable, strict=True)
    )


def saddle_log_partitions(landscape: Landscape, beta: float) -> np.ndarray:
    """log Z of every class of saddles, all copies, shape (saddles,): the rate across is (|lambda_-|/2 pi) Z_s/Z_basin.

    The Gaussian integral over all modes, the unstable one with its sign reversed, and over the orbit (Kramers 1940).

    Args:
        landscape: with counted copies.
        beta: inverse temperature, > 0.
    """
    b = positive("beta", beta)
    return np.array([part.at(b) for part in _saddles(landscape)])


def harmonic_log_partitions(landscape: Landscape, beta: float) -> np.ndarray:
    """log Z of every class of minima as harmonic wells, shape (minima,).

    copies vol(orbit) prod (2 pi/(beta lambda))^{1/2} e^{-beta E}: exact as beta grows, wrong by factors where a well is
    soft or joined to its copies by low saddles.

    Args:
        landscape: with counted copies.
        beta: inverse temperature, > 0.
    """
    b = positive("beta", beta)
    return np.array([part.at(b) for part in _minima(landscape)])


@dataclasses.dataclass(frozen=True, eq=False)
class PartitionTable:
    """log Z of every class against beta.

    Attributes:
        betas: ascending, shape (k,), the first one may be 0.
        log_z: shape (k, minima).
    """

    betas: np.ndarray
    log_z: np.ndarray

    def __post_init__(self) -> None:
        betas, log_z = numbers("betas", self.betas), numbers("log_z", self.log_z)
        if betas.ndim != 1 or len(betas) < 2 or np.any(np.diff(betas) <= 0) or betas[0] < 0:
            raise refuse("betas", f"shape {betas.shape}", "increasing inverse temperatures, at least two", "sort them")
        if log_z.ndim != 2 or len(log_z) != len(betas) or not np.all(np.isfinite(log_z)):
            raise refuse("log_z", f"shape {log_z.shape}", f"finite numbers of shape ({len(betas)}, minima)",
                         "one row per inverse temperature")  # fmt: skip


def log_partitions(landscape: Landscape, beta: float, table: PartitionTable | None = None) -> np.ndarray:
    """log Z of every class, shape (minima,): from a table within its range, harmonic above it and without one.

    Above the table the harmonic value is shifted to meet its end. Between rows log Z + beta E is interpolated, which
    changes as log beta does.

    Args:
        landscape: with counted copies.
        beta: inverse temperature, > 0.
        table: measured partition functions, or None.
    """
    if table is None:
        return harmonic_log_partitions(landscape, beta)
    if table.log_z.shape[1] != len(landscape.minima):
        raise refuse("table", f"{table.log_z.shape[1]} classes", f"one column for each of {len(landscape.minima)}",
                     "measure it on this landscape")  # fmt: skip
    b = positive("beta", beta)
    last = float(table.betas[-1])
    if b > last:
        return harmonic_log_partitions(landscape, b) + table.log_z[-1] - harmonic_log_partitions(landscape, last)
    energies = np.array([m.energy for m in landscape.minima])
    scaled = table.log_z + table.betas[:, None] * energies
    return np.array([np.interp(b, table.betas, column) for column in scaled.T]) - b * energies
