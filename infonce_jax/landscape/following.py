"""Minima followed as the loss temperature moves, and counted from random starts at one temperature."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from infonce_jax.landscape.minima import Classes
from infonce_jax.landscape.model import SAME_ENERGY
from infonce_jax.landscape.quench import quench
from infonce_jax.landscape.relaxation import Family, Look, advance, settle

__all__ = ["Jump", "Multistart", "Pool", "follow", "multistart", "pool", "settled_pool", "traps_among"]

_FIRST_STEP = 0.05  # of tau
_FURTHEST = 0.15  # radians that a minimum may move in one step
_NEAR = 0.05  # radians: a minimum further from its prediction is another one
_FLAT = 1e-6  # of the curvature
_LEVEL = 0.95


@dataclasses.dataclass(frozen=True, eq=False)
class Jump:
    """A minimum that was there at one temperature and not at the next: the descent from it goes far away.

    Attributes:
        branch: number of the minimum among those followed.
        bracket: temperatures with and without it, in the order of travel.
        before: where it was, shape (n, d).
        after: where the descent ends, shape (n, d).
    """

    branch: int
    bracket: tuple[float, float]
    before: np.ndarray
    after: np.ndarray


def follow(
    members: Family, x: np.ndarray, start: float, end: float, tolerance: float = 2e-5
) -> tuple[np.ndarray, list[Jump]]:
    """Follow minima x, shape (k, n, d), from one temperature to another, each with its own steps.

    The prediction is the tangent of the branch, the correction a descent. A step is halved until the minimum is close
    to its prediction; where it is not within `tolerance` either, the minimum has gone, and the descent from where it
    was is followed further. A minimum that splits or merges smoothly (a supercritical pitchfork) is followed through.

    Returns:
        Minima at `end`, shape (k, n, d), and the jumps on the way.
    """
    x = x.copy()
    direction = 1.0 if end >= start else -1.0
    tau = np.full(len(x), float(start))
    step = np.full(len(x), _FIRST_STEP * start)
    jumps: list[Jump] = []
    while True:
        live = np.flatnonzero(direction * (end - tau) > 0)
        if not len(live):
            return x, jumps
        last = direction * (end - tau[live]) <= step[live] * (1 + 1e-9)
        goal = np.where(last, end, tau[live] + direction * step[live])
        settled, length, apart = advance(members, x[live], tau[live], goal)
        smooth = (length <= _FURTHEST) & (apart <= _NEAR) & settled.converged
        smallest = np.abs(goal - tau[live]) <= 1.001 * tolerance
        for row, k in enumerate(live):
            if not (smooth[row] or smallest[row]):
                step[k] = max(abs(goal[row] - tau[k]) / 2, tolerance)
                continue
            if apart[row] > _NEAR:
                jumps.append(Jump(int(k), (float(tau[k]), float(goal[row])), x[k].copy(), settled.x[row].copy()))
                step[k] = _FIRST_STEP * goal[row]
            elif length[row] < _FURTHEST / 3 and apart[row] < _NEAR / 4:
                step[k] *= 2
            x[k], tau[k] = settled.x[row], goal[row]


@dataclasses.dataclass(frozen=True, eq=False)
class Pool:
    """Classes of minima at one temperature, by energy.

    Attributes:
        temperature: tau.
        positions: one of each class, shape (k, n, d).
        energies: shape (k,), ascending.
        spectra: shape (k, m), see `Look.spectrum`.
        members: class of each configuration that was given, -1 where it is no minimum.
    """

    temperature: float
    positions: np.ndarray
    energies: np.ndarray
    spectra: np.ndarray
    members: np.ndarray

    def __len__(self) -> int:
        return len(self.energies)


def pool(temperature: float, x: np.ndarray, look: Look, converged: np.ndarray) -> Pool:
    """Sort settled configurations, shape (points, n, d), into classes of equal energy and spectrum."""
    spectra, classes = look.spectrum(), Classes()
    first: list[int] = []
    member = np.full(len(x), -1)
    for p in np.flatnonzero(converged):
        finite = spectra[p][np.isfinite(spectra[p])]
        flat = bool(len(finite)) and bool(finite[0] <= _FLAT * look.curvature[p])
        member[p] = classes.assign(float(look.energy[p]), spectra[p], int(p), flat)
        if member[p] == len(first):
            first.append(int(p))
    order = np.argsort([look.energy[p] for p in first], kind="stable").astype(int)
    rank = np.empty(len(first), dtype=int)
    rank[order] = np.arange(len(first))
    chosen = np.array(first, dtype=int)[order]
    member[member >= 0] = rank[member[member >= 0]]
    return Pool(float(temperature), x[chosen], look.energy[chosen], spectra[chosen], member)


def settled_pool(members: Family, x: np.ndarray, temperature: float) -> Pool:
    """Classes of the minima below x, shape (points, n, d)."""
    if not len(x):
        return Pool(float(temperature), x, np.zeros(0), np.zeros((0, x.shape[1] * (x.shape[2] - 1))), np.zeros(0, int))
    settled = settle(members, x, temperature)
    return pool(temperature, settled.x, settled.look, settled.converged)


@dataclasses.dataclass(frozen=True, eq=False)
class Multistart:
    """What descents from uniform random starts found at one temperature, beside what was known to be there.

    Attributes:
        temperature: tau.
        starts: how many.
        energies: of all classes of minima, found or known, ascending.
        counts: how many starts ended in each; 0 for one that only following knew of.
        positions: one minimum of each class, shape (k, n, d).
        failed: starts whose descent had not converged.
    """

    temperature: float
    starts: int
    energies: tuple[float, ...]
    counts: tuple[int, ...]
    positions: np.ndarray
    failed: int = 0

    @property
    def traps(self) -> int:
        """Classes of minima above the lowest energy."""
        return traps_among(self.energies)

    @property
    def trapped(self) -> int:
        """Starts that ended in a trap."""
        return sum(self.counts[len(self.counts) - self.traps :])

    @property
    def missed(self) -> float:
        """Upper end of a one-sided 95 % interval for the share of starts that would end in a minimum not listed.

        1 - .05^(1/N) where none of N independent starts did (Clopper and Pearson 1934).
        """
        return 1 - (1 - _LEVEL) ** (1 / max(self.starts - self.failed, 1))

    def statement(self) -> str:
        """One line: where the starts ended."""
        ends = ", ".join(f"{c} at E = {e:.6f}" for e, c in zip(self.energies, self.counts, strict=True))
        lost = f"; {self.failed} did not converge" if self.failed else ""
        return (f"tau = {self.temperature:.6g}: of {self.starts} random starts {ends}{lost}; any other minimum has a "
                f"basin below {self.missed:.2g} (95 %)")  # fmt: skip


def traps_among(energies: Sequence[float] | np.ndarray) -> int:
    """How many of the energies of minima, ascending, are above the lowest one."""
    lowest = float(energies[0])
    return sum(e - lowest >= SAME_ENERGY * (1 + abs(lowest)) for e in energies)


def multistart(
    members: Family, temperature: float, starts: int, rng: np.random.Generator, known: np.ndarray | None = None
) -> Multistart:
    """Descend from uniform random starts and sort what is found, together with minima known to be there.

    Args:
        members: the energy at every temperature.
        temperature: tau.
        starts: how many.
        rng: of the starts.
        known: minima at this temperature, shape (k, n, d).
    """
    x = rng.normal(size=(starts, *members.energy.shape))
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    # The slope of the loss goes as 1/tau.
    x, energies, slopes = quench(members.at(temperature), x, gradient_below=1e-5 * min(1.0, 1 / temperature))
    chosen, group = _groups(energies, slopes)
    extra = x[:0] if known is None else known
    found = settled_pool(members, np.concatenate([x[chosen], extra]), temperature)
    ends = found.members[: len(chosen)][group]
    counts = np.bincount(ends[ends >= 0], minlength=len(found))
    return Multistart(float(temperature), starts, tuple(found.energies.tolist()), tuple(int(c) for c in counts),
                      found.positions, int(np.sum(ends < 0)))  # fmt: skip


def _groups(energies: np.ndarray, slopes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quenched configurations of one energy: the one of least slope from each group, and the group of each.

    Slow passages, beside a minimum that has just gone for example, have energies of their own and stay alone.
    """
    order = np.argsort(energies, kind="stable")
    ordered = energies[order]
    new = np.diff(ordered, prepend=-np.inf) > SAME_ENERGY / 10 * (1 + np.abs(ordered))
    group = np.empty(len(energies), dtype=int)
    group[order] = np.cumsum(new) - 1
    by_slope = np.lexsort((slopes, group))
    _, first = np.unique(group[by_slope], return_index=True)
    return by_slope[first], group
