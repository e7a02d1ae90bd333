"""Rates between minima at low temperature, on a product of spheres, with symmetry.

With O_m the orbit of a minimum under rotations (dimension k) and O_s those of the saddles around it (dimension s, one
negative eigenvalue lambda_-), the rate of leaving the minimum is

    sum_s (|lambda_-|/2 pi) (vol O_s/vol O_m) sqrt(det' H_m/|det' H_s|) (beta/2 pi)^{(s-k)/2} e^{-beta (E_s - E_m)},

det' the product of the eigenvalues that rotations do not make zero (Bovier, Eckhoff, Gayrard and Klein 2004 for wells
that are points; orbits by integrating over the group). In other words (|lambda_-|/2 pi) Z_saddle/Z_basin with Gaussian
Z. It is an asymptotic statement: at beta times barrier below 6 it is off by tens of per cent, and for soft valleys by
factors. `Corrections` mend both: Z_basin measured, and the conductance of the saddle beyond the Gaussian.
"""

from __future__ import annotations

import dataclasses
import math

import networkx as nx
import numpy as np

from infonce_jax.checks import count, instance, positive, refuse
from infonce_jax.landscape import Landscape
from infonce_jax.theory.capacity import conductance_ratios
from infonce_jax.theory.partition import PartitionTable, log_partitions, saddle_log_partitions

__all__ = ["Corrections", "corrections", "merged_classes", "rate", "rate_matrix"]

_TABLE_POINTS = 6
_SHALLOW = 0.1  # a passage this much lower than the deepest holds nothing up, whatever its rate
_COLDEST = 60.0  # beta times depth where the ratio is within a few per cent of 1 and the rate is below 1e-26


@dataclasses.dataclass(frozen=True, eq=False)
class Corrections:
    """What mends the harmonic rates of one landscape; arrays, so that they can come from anywhere.

    Attributes:
        partitions: log Z of every class of minima against beta, as `infonce_jax.measure.basin_free_energies` measures.
        betas: of the ratios, ascending, shape (k,).
        ratios: conductance of every saddle relative to the harmonic one, shape (k, saddles).
    """

    partitions: PartitionTable
    betas: np.ndarray
    ratios: np.ndarray

    def ratio(self, saddle: int, beta: float) -> float:
        """Interpolated in log beta; the end values hold beyond the ends."""
        logs = np.log(self.ratios[:, saddle])
        return math.exp(float(np.interp(math.log(beta), np.log(self.betas), logs)))


def corrections(landscape: Landscape, partitions: PartitionTable, betas: np.ndarray | None = None) -> Corrections:
    """Corrections from measured partition functions and the conductance of each saddle between two classes.

    Args:
        landscape: from `landscape.explore`.
        partitions: for example `measure.basin_free_energies(landscape).table`.
        betas: where the conductances are computed, ascending; by default from 3 to 60 over the deepest barrier.
    """
    instance("landscape", landscape, Landscape, "from landscape.explore(energy)")
    instance("partitions", partitions, PartitionTable, "for example measure.basin_free_energies(landscape).table")
    depths = [s.energy - max(landscape.minima[end].energy for end in s.ends) for s in landscape.saddles]
    between = [depth for s, depth in zip(landscape.saddles, depths, strict=True) if s.ends[0] != s.ends[1]]
    deepest = max(between, default=1.0)
    betas = np.geomspace(3.0, _COLDEST, _TABLE_POINTS) / deepest if betas is None else np.asarray(betas)
    ratios = np.ones((len(betas), len(depths)))
    for k, saddle in enumerate(landscape.saddles):
        if saddle.ends[0] != saddle.ends[1] and depths[k] > _SHALLOW * deepest:
            ratios[:, k] = conductance_ratios(landscape, k, betas)
    return Corrections(partitions, betas, ratios)


def _log_conductances(
    landscape: Landscape, beta: float, friction: float | None, mend: Corrections | None
) -> np.ndarray:
    """log of (|lambda_-|/2 pi) Z_saddle for every saddle, all copies together: rate times Z of the basin it leaves."""
    unstable = np.abs([saddle.eigenvalues[0] for saddle in landscape.saddles])
    if friction is not None:  # Kramers 1940, unit mass: the rate at which momentum leaves the top
        unstable = np.sqrt(friction**2 / 4 + unstable) - friction / 2
    logs = np.log(unstable / (2 * math.pi)) + saddle_log_partitions(landscape, beta)
    if mend is None:
        return logs
    return logs + np.log([mend.ratio(k, beta) for k in range(len(logs))])


def rate(
    landscape: Landscape,
    source: int,
    target: int,
    beta: float,
    friction: float | None = None,
    corrections: Corrections | None = None,
) -> float:
    """Rate (1/time) from one copy of a minimum to all copies of another class.

    Args:
        landscape: from `landscape.explore`.
        source: index into its minima.
        target: index into its minima. With `source` itself, the rate to the other copies of the same class.
        beta: inverse temperature.
        friction: None for the overdamped dynamics; gamma > 0 for kinetic Langevin dynamics of unit mass, where
            |lambda_-| becomes (gamma^2/4 + |lambda_-|)^{1/2} - gamma/2.
        corrections: None for the harmonic formula of Eyring and Kramers.

    Returns:
        The rate; 0 where no saddle joins the two directly.

    Raises:
        InputError: an index out of range, beta or friction not positive, or copies that were not counted.
    """
    b = positive("beta", beta)
    instance("landscape", landscape, Landscape, "from landscape.explore(energy)")
    if friction is not None:
        positive("friction", friction)
    for name, index in (("source", source), ("target", target)):
        if count(name, index, least=0, mend="an index into landscape.minima") >= len(landscape.minima):
            raise refuse(name, index, f"0 to {len(landscape.minima) - 1}", "an index into landscape.minima")
    basin = log_partitions(landscape, b, corrections.partitions if corrections else None)[source]
    sides = 2 if source == target else 1
    conductances = _log_conductances(landscape, b, friction, corrections)
    return sides * sum(
        math.exp(log - basin)
        for saddle, log in zip(landscape.saddles, conductances, strict=True)
        if sorted(saddle.ends) == sorted((source, target))
    )


def rate_matrix(
    landscape: Landscape, beta: float, friction: float | None = None, corrections: Corrections | None = None
) -> np.ndarray:
    """Generator of the Markov chain over classes of minima: Q[i, j] the rate from class i to j, rows summing to zero.

    Detailed balance holds with the weights Z_i, harmonic or measured, because both directions share their saddles.
    """
    instance("landscape", landscape, Landscape, "from landscape.explore(energy)")
    b, n = positive("beta", beta), len(landscape.minima)
    basins = log_partitions(landscape, b, corrections.partitions if corrections else None)
    q = np.zeros((n, n))
    for saddle, log in zip(landscape.saddles, _log_conductances(landscape, b, friction, corrections), strict=True):
        i, j = saddle.ends
        if i != j:
            q[i, j] += math.exp(log - basins[i])
            q[j, i] += math.exp(log - basins[j])
    return q - np.diag(q.sum(axis=1))


def merged_classes(landscape: Landscape, beta: float, multiple: float = 3.0) -> list[tuple[int, ...]]:
    """Groups of classes that a few 1/beta cannot hold apart; only between groups does a rate mean anything.

    Two classes are joined where a saddle between them stands less than multiple/beta above the higher one. Within a
    group the Gibbs law is reached before anything leaves it.

    Args:
        landscape: from `landscape.explore`.
        beta: inverse temperature, > 0.
        multiple: how many 1/beta count as a few.

    Returns:
        Tuples of indices into `landscape.minima`, by their lowest member.
    """
    height = positive("multiple", multiple) / positive("beta", beta)
    graph = nx.Graph()
    graph.add_nodes_from(range(len(landscape.minima)))
    for saddle in landscape.saddles:
        if saddle.energy - max(landscape.minima[end].energy for end in saddle.ends) < height:
            graph.add_edge(*saddle.ends)
    return sorted(tuple(sorted(group)) for group in nx.connected_components(graph))
