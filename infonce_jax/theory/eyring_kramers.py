"""Rates between minima at low temperature, on a product of spheres, with symmetry.

With O_m the orbit of a minimum under rotations (dimension k) and O_s those of the saddles around it (dimension s, one
negative eigenvalue lambda_-), the rate of leaving the minimum is

    sum_s (|lambda_-|/2 pi) (vol O_s/vol O_m) sqrt(det' H_m/|det' H_s|) (beta/2 pi)^{(s-k)/2} e^{-beta (E_s - E_m)},

det' the product of the eigenvalues that rotations do not make zero (Bovier, Eckhoff, Gayrard and Klein 2004 for wells
that are points; orbits by integrating over the group). It is an asymptotic statement: at beta times barrier below 6 it
is off by tens of per cent, and for soft valleys by factors.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from infonce_jax.checks import positive, refuse
from infonce_jax.landscape import Landscape, Minimum, Saddle, Symmetry

__all__ = ["escape_rate", "orbit_volume", "rate_matrix"]


def _sphere_volume(dimension: int) -> float:
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
        spheres = [_sphere_volume(size) for size in range(1, k)]
        pairs = [math.sqrt(c[i] + c[j]) for i, j in itertools.combinations(range(k), 2)]
        return math.prod(spheres) * math.prod(pairs), k * (k - 1) // 2
    spheres = [_sphere_volume(size) for size in range(k - rank, k)]
    pairs = [math.sqrt(c[i] + c[j]) for i, j in itertools.combinations(range(rank), 2)]
    across = math.prod(c[i] ** ((k - rank) / 2) for i in range(rank))
    return math.prod(spheres) * math.prod(pairs) * across, rank * (rank - 1) // 2 + rank * (k - rank)


def _log_prefactor(symmetry: Symmetry, minimum: Minimum, saddle: Saddle, beta: float, friction: float | None) -> float:
    volume_m, k = orbit_volume(symmetry, minimum.position)
    volume_s, s = orbit_volume(symmetry, saddle.position)
    unstable = abs(float(saddle.eigenvalues[0]))
    if friction is not None:  # Kramers 1940, unit mass: the rate at which momentum leaves the top
        unstable = math.sqrt(friction**2 / 4 + unstable) - friction / 2
    determinants = np.sum(np.log(minimum.eigenvalues)) - np.sum(np.log(np.abs(saddle.eigenvalues)))
    return (
        math.log(unstable / (2 * math.pi)) + math.log(volume_s / volume_m) + determinants / 2
        + (s - k) / 2 * math.log(beta / (2 * math.pi))
    )  # fmt: skip


def _passages(landscape: Landscape, source: int, target: int) -> list[tuple[Saddle, float]]:
    """Saddles that lead from one copy of `source` to `target`, and how many copies of each lie around that copy."""
    found = []
    minimum = landscape.minima[source]
    for saddle in landscape.saddles:
        if sorted(saddle.ends) != sorted((source, target)):
            continue
        if saddle.copies is None or not minimum.copies:
            raise refuse("landscape", "a symmetry group too large to list", "counted copies of minima and saddles",
                         "rates need them; use a landscape with fewer symmetries")  # fmt: skip
        sides = 2 if source == target else 1
        found.append((saddle, sides * saddle.copies / minimum.copies))
    return found


def escape_rate(landscape: Landscape, source: int, target: int, beta: float, friction: float | None = None) -> float:
    """Rate (1/time) from one copy of a minimum to all copies of another class, by Eyring and Kramers.

    Args:
        landscape: from `landscape.explore`.
        source: index into its minima.
        target: index into its minima; another one than `source` for a rate between classes.
        beta: inverse temperature.
        friction: None for the overdamped dynamics; gamma > 0 for kinetic Langevin dynamics of unit mass, where
            |lambda_-| becomes (gamma^2/4 + |lambda_-|)^{1/2} - gamma/2.

    Returns:
        The rate; 0 where no saddle joins the two directly.

    Raises:
        InputError: an index out of range, beta or friction not positive, or copies that were not counted.
    """
    b = positive("beta", beta)
    if friction is not None:
        positive("friction", friction)
    for name, index in (("source", source), ("target", target)):
        if not 0 <= index < len(landscape.minima):
            raise refuse(name, index, f"0 to {len(landscape.minima) - 1}", "an index into landscape.minima")
    minimum = landscape.minima[source]
    total = 0.0
    for saddle, number in _passages(landscape, source, target):
        log_rate = _log_prefactor(landscape.symmetry, minimum, saddle, b, friction)
        total += number * math.exp(log_rate - b * (saddle.energy - minimum.energy))
    return total


def rate_matrix(landscape: Landscape, beta: float, friction: float | None = None) -> np.ndarray:
    """Generator of the Markov chain over classes of minima: Q[i, j] the rate from class i to j, rows summing to zero.

    Detailed balance holds with the harmonic weights copies_i vol(O_i) (beta/2 pi)^{k_i/2} e^{-beta E_i}/sqrt(det' H_i),
    because both directions share their saddles.
    """
    n = len(landscape.minima)
    q = np.array(
        [[escape_rate(landscape, i, j, beta, friction) if i != j else 0.0 for j in range(n)] for i in range(n)]
    )
    return q - np.diag(q.sum(axis=1))
