"""Partition functions of the basins of a landscape, measured: what rates need where basins are not harmonic wells.

d log Z/d beta = -<E> over the Gibbs law confined to a basin. The mean comes from MALA chains that are not allowed out;
the integral runs from beta = 0, where Z is the volume of the basin, to a beta so large that the harmonic value holds.
Both ends are known, so the two must meet: what is left over is reported, and is the check on everything in between.
"""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from scipy.interpolate import CubicSpline

from infonce_jax import integrators, schedules
from infonce_jax.chains.run import run_chains, uniform_positions
from infonce_jax.checks import InputError, count, instance, refuse
from infonce_jax.landscape import Landscape, energies_of
from infonce_jax.theory.partition import PartitionTable, harmonic_log_partitions, sphere_volume

__all__ = ["BasinFreeEnergies", "ConfinedMeans", "basin_free_energies"]

# MALA moves of a third of the stability limit are accepted almost always at every temperature.
_STEP_OF_CURVATURE = 0.3
# The upper end of a class: its lowest barrier is this many 1/beta high, so that e^{-20} of the well lies beyond it ...
_BARRIERS = 20.0
# ... and its softest mode spreads over less than a tenth of a radian.
_STIFFNESS = 200.0
# Below this many 1/beta a chain may cross a barrier within a move and has to be looked after.
_WATCH_BELOW = 20.0
_LONGEST_MOVE = 400
_BURN_IN = 3
_BATCH = 4096
_MOST_BATCHES = 24


@dataclasses.dataclass(frozen=True, eq=False)
class ConfinedMeans:
    """What the chains confined to one class saw.

    Attributes:
        betas: inverse temperatures, ascending from 0, shape (k,).
        excess: <E> - E_minimum, shape (k,).
        error: its standard error, over independent chains.
        undone: share of moves that ended outside the basin and were undone.
        mismatch: what integration from beta = 0 leaves over against the harmonic log Z at the last beta.
        mismatch_error: its standard error; a mismatch several times as large says that the chains do not reach all of
            the basin, or that copies were counted wrongly.
    """

    betas: np.ndarray
    excess: np.ndarray
    error: np.ndarray
    undone: np.ndarray
    mismatch: float
    mismatch_error: float


@dataclasses.dataclass(frozen=True, eq=False)
class BasinFreeEnergies:
    """Measured partition functions of every class of minima, all its copies together.

    Attributes:
        table: log Z against beta, for the functions of `infonce_jax.theory`.
        classes: the chains of each class behind it.
    """

    table: PartitionTable
    classes: tuple[ConfinedMeans, ...]

    def statement(self) -> str:
        """One line on whether the two ends meet."""
        worst = max(self.classes, key=lambda c: abs(c.mismatch) / c.mismatch_error)
        ratio = abs(worst.mismatch) / worst.mismatch_error
        verdict = "the two ends meet" if ratio < 3.5 else "the two ends do not meet: do not trust these values"
        return (f"free energies: largest mismatch {worst.mismatch:+.3f} +- {worst.mismatch_error:.3f} in log Z; "
                f"{verdict}")  # fmt: skip


def basin_free_energies(
    landscape: Landscape,
    *,
    num_chains: int = 512,
    num_betas: int = 20,
    num_moves: int = 6,
    seed: int = 0,
) -> BasinFreeEnergies:
    """Partition functions of all classes of minima from beta = 0 to where the harmonic approximation holds.

    A basin is the set of points whose quench ends in the class. Chains are confined exactly: some MALA steps in a row
    are one reversible move, and a move that ends outside the basin is undone, so that the law of the chains is the
    Gibbs law restricted to it.

    Args:
        landscape: from `landscape.explore`, with counted copies.
        num_chains: confined chains for each class.
        num_betas: inverse temperatures above 0.
        num_moves: moves per inverse temperature that are averaged over; their length adapts in moves before them.
        seed: of the chains.

    Returns:
        A `BasinFreeEnergies`.

    Raises:
        InputError: a landscape with flat valleys or without counted copies, or numbers too small.
    """
    instance("landscape", landscape, Landscape, "from landscape.explore(energy)")
    num_chains, num_moves = count("num_chains", num_chains, least=16), count("num_moves", num_moves)
    num_betas = count("num_betas", num_betas, least=6)
    if any(m.flat for m in landscape.minima):
        raise refuse("landscape", "a minimum that is a flat valley", "isolated classes", "rates do not apply to it")
    starts, share, drawn = _starts(landscape, num_chains, seed)
    n, d = landscape.energy.shape
    everything = n * math.log(sphere_volume(d - 1))
    columns, seen = [], []
    for k, x in enumerate(starts):
        volume = _Volume(everything + math.log(share[k]), (1 - share[k]) / (share[k] * drawn))
        samples = _sample_class(landscape, k, x, num_betas, num_moves, seed)
        means, column = _integrate(landscape, k, volume, *samples)
        columns.append(column)
        seen.append(means)
    return BasinFreeEnergies(_common_table(landscape, columns, seen), tuple(seen))


class _Volume(NamedTuple):
    """log of a basin's volume, and its variance."""

    log: float
    variance: float


def _starts(landscape: Landscape, num_chains: int, seed: int) -> tuple[list[np.ndarray], np.ndarray, int]:
    """Uniform points of every basin, their shares of all points, and how many points were drawn.

    A basin too small to fill its chains starts several at each of its points; one that no point fell into starts them
    at the minimum, and counts as half a point.
    """
    number = len(landscape.minima)
    found: list[list[np.ndarray]] = [[] for _ in range(number)]
    seen, drawn = np.zeros(number), 0
    for batch in range(_MOST_BATCHES):
        points = uniform_positions(_seed(seed, 1, batch), _BATCH, landscape.energy.shape)
        basin = landscape.basin_of(points)
        drawn += _BATCH
        for k in range(number):
            seen[k] += np.sum(basin == k)
            found[k].append(points[basin == k][:num_chains])
        if np.all(seen >= num_chains):
            break
    starts = []
    for k, parts in enumerate(found):
        own = np.concatenate(parts)
        own = own if len(own) else landscape.minima[k].position[None]
        starts.append(np.resize(own, (num_chains, *own.shape[1:])))
    return starts, np.maximum(seen, 0.5) / drawn, drawn


def _seed(seed: int, *path: int) -> int:
    return int(np.random.SeedSequence([seed, 7310, *path]).generate_state(1, np.uint64)[0])


def _sample_class(
    landscape: Landscape, k: int, x: np.ndarray, num_betas: int, num_moves: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Inverse temperatures, mean excess energies, their errors and shares of moves undone, of one class."""
    minimum = landscape.minima[k]
    h = _STEP_OF_CURVATURE / landscape.curvature
    uniform = energies_of(landscape.energy, x) - minimum.energy
    betas = _ladder(landscape, k, float(np.mean(uniform)), 4 * h, num_betas)
    chains = _Confined(landscape, k, x, h, seed)
    means, errors, undone = [uniform.mean()], [_error(uniform)], [0.0]
    for beta in betas[1:]:
        energies, out = chains.sample(float(beta), num_moves)
        means.append(energies.mean() - minimum.energy)
        errors.append(_error(energies))
        undone.append(out)
    return betas, np.array(means), np.array(errors), np.array(undone)


def _error(samples: np.ndarray) -> float:
    """Standard error over independent chains."""
    return float(samples.std(ddof=1) / math.sqrt(len(samples)))


def _ladder(landscape: Landscape, k: int, spread: float, first: float, num_betas: int) -> np.ndarray:
    """Inverse temperatures: 0, and an even grid of log(1 + beta * spread) up to where the well is harmonic.

    The lowest one keeps the noise of a MALA step below .7 rad.
    """
    minimum = landscape.minima[k]
    barriers = [s.energy - minimum.energy for s in landscape.saddles if k in s.ends]
    soft = _STIFFNESS / float(minimum.eigenvalues[0]) if len(minimum.eigenvalues) else 0.0
    last = max(_BARRIERS / max(min(barriers, default=math.inf), 1e-6), soft, 10 * first)
    grid = np.expm1(np.linspace(math.log1p(first * spread), math.log1p(last * spread), num_betas)) / spread
    return np.concatenate([[0.0], grid])


class _Confined:
    """MALA chains that stay in the basins of one class, carried from one temperature to the next."""

    def __init__(self, landscape: Landscape, k: int, x: np.ndarray, h: float, seed: int) -> None:
        self.landscape, self.k, self.x, self.seed = landscape, k, x, seed
        self.scheme, self.beta, self.moves, self.length = integrators.mala(h), 0.0, 0, 16
        out = [s.energy - landscape.minima[k].energy for s in landscape.saddles if k in s.ends and s.ends != (k, k)]
        self.barrier = min(out, default=math.inf)

    def _resample(self, beta: float) -> None:
        """Copy chains in proportion to e^{-(beta - old beta) E}, evenly spaced (population annealing).

        Without it chains stuck in corners of the basin would keep the energies of the temperature before.
        """
        energies = energies_of(self.landscape.energy, self.x)
        weights = np.exp(-(beta - self.beta) * (energies - energies.min()))
        offset = np.random.default_rng(_seed(self.seed, 2, self.k, self.moves)).uniform()
        marks = (np.arange(len(self.x)) + offset) / len(self.x)
        self.x = self.x[np.searchsorted(np.cumsum(weights) / np.sum(weights), marks).clip(max=len(self.x) - 1)]
        self.beta = beta

    def sample(self, beta: float, num_moves: int) -> tuple[np.ndarray, float]:
        """Energies of each chain averaged over the moves, shape (chains,), and the share of moves undone."""
        self._resample(beta)
        for _ in range(_BURN_IN):
            undone = self._move(beta).mean()
            # The length of a move may depend on what was seen before it, not while its energies count.
            self.length = max(self.length // 2, 4) if undone > 0.5 else self.length
            self.length = min(self.length * 2, _LONGEST_MOVE) if undone < 0.25 else self.length
        total, out = np.zeros(len(self.x)), 0.0
        for _ in range(num_moves):
            out += float(self._move(beta).mean())
            total += energies_of(self.landscape.energy, self.x)
        return total / num_moves, out / num_moves

    def _move(self, beta: float) -> np.ndarray:
        run = run_chains(
            self.landscape.energy, schedules.constant(beta), self.scheme, num_chains=len(self.x),
            num_steps=self.length, initial=self.x, seed=_seed(self.seed, 0, self.k, self.moves), progress=False,
            chunk=_LONGEST_MOVE,
        )  # fmt: skip
        self.moves += 1
        x = run.final_positions.astype(np.float64)
        x /= np.linalg.norm(x, axis=-1, keepdims=True)
        left = np.zeros(len(x), dtype=bool)
        if beta * self.barrier < _WATCH_BELOW:
            left = self.landscape.basin_of(x) != self.k
            x[left] = self.x[left]
        self.x = x
        return left


def _integrate(
    landscape: Landscape,
    k: int,
    volume: _Volume,
    betas: np.ndarray,
    excess: np.ndarray,
    error: np.ndarray,
    undone: np.ndarray,
) -> tuple[ConfinedMeans, tuple[np.ndarray, np.ndarray]]:
    """log Z + beta E_minimum on a fine grid of beta, from both ends.

    With s = log(beta + b) the integrand (beta + b) <E - E_minimum> is smooth and tends to half the number of modes. The
    mismatch of the two ends is spread in proportion to the variance gathered from the lower one.
    """
    if not np.all(np.isfinite(excess)):
        raise InputError("energy: got values that are not finite in a basin; needs finite ones; check the energy there")
    b = 1 / max(float(excess[0]), 1e-12)
    s = np.log(betas + b)
    fine = np.linspace(s[0], s[-1], 400)
    # Linear map from the values at the nodes to the integral, so that their errors can be carried along.
    weights = CubicSpline(s, np.diag(betas + b)).antiderivative()(fine)
    gathered, variance = weights @ excess, weights**2 @ error**2
    top = harmonic_log_partitions(landscape, float(betas[-1]))[k] + betas[-1] * landscape.minima[k].energy
    mismatch, total = volume.log - gathered[-1] - top, volume.variance + variance[-1]
    log_z = volume.log - gathered - mismatch * (volume.variance + variance) / total
    means = ConfinedMeans(betas, excess, error, undone, float(mismatch), math.sqrt(total))
    return means, (np.exp(fine) - b, log_z)


def _common_table(
    landscape: Landscape, columns: list[tuple[np.ndarray, np.ndarray]], seen: list[ConfinedMeans]
) -> PartitionTable:
    """One grid for all classes; above its own last beta a class is harmonic."""
    last = max(float(means.betas[-1]) for means in seen)
    scale = max(float(means.excess[0]) for means in seen)
    betas = np.expm1(np.linspace(0, math.log1p(last * scale), 600)) / scale
    log_z = np.empty((len(betas), len(columns)))
    harmonic = np.array([harmonic_log_partitions(landscape, beta) for beta in np.maximum(betas, 1e-9)])
    for k, (own, values) in enumerate(columns):
        inside = np.interp(betas, own, values) - betas * landscape.minima[k].energy
        log_z[:, k] = np.where(betas <= seen[k].betas[-1], inside, harmonic[:, k])
    return PartitionTable(betas, log_z)
