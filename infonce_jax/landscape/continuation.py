"""Critical points followed as the loss temperature moves: branches, folds, barriers, and where the traps end."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from infonce_jax.checks import count, numbers, refuse
from infonce_jax.energies.base import Energy
from infonce_jax.landscape.branches import Bifurcation, Branch, grow
from infonce_jax.landscape.explore import explore
from infonce_jax.landscape.following import Jump, follow, settled_pool
from infonce_jax.landscape.model import SAME_ENERGY, Landscape
from infonce_jax.landscape.passages import Depths, depths_at
from infonce_jax.landscape.relaxation import Family, family, require_temperature
from infonce_jax.landscape.trap_free import TrapFree, search

__all__ = ["Continuation", "Descent", "continuation"]

_POINTS = 25  # temperatures at which depths are computed
_BELOW_THE_END = 0.97  # of the trap-free temperature: the second landscape that is explored
_LEVELS = 7


@dataclasses.dataclass(frozen=True, eq=False)
class Descent:
    """The global minimum at the highest temperature, followed down to the target temperature.

    Attributes:
        start, end: temperatures.
        energy: where it arrives, at the target.
        lowest: the lowest energy known there.
        jumps: where the minimum vanished on the way, and the descent went to another one.
        first_above: temperature of the highest level at which it was no longer the lowest minimum, or None.
    """

    start: float
    end: float
    energy: float
    lowest: float
    jumps: tuple[Jump, ...]
    first_above: float | None

    @property
    def arrives(self) -> bool:
        """Whether it leads to the global class at the target."""
        return self.energy - self.lowest < SAME_ENERGY * (1 + abs(self.lowest))

    def statement(self) -> str:
        """What cooling along the branch does, in a sentence or two."""
        way = "continuously"
        if self.jumps:
            places = ", ".join(f"{jump.bracket[0]:.4g}" for jump in self.jumps)
            way = f"with a jump where the minimum vanishes, at tau = {places},"
        if self.arrives:
            return (f"The global minimum at tau = {self.start:g} leads {way} to the global minimum at tau = "
                    f"{self.end:g}.")  # fmt: skip
        above = "" if self.first_above is None else (
            f"; from tau = {self.first_above:.4g} downwards another minimum is lower"
        )  # fmt: skip
        return (f"The global minimum at tau = {self.start:g} does NOT lead to the global minimum at tau = "
                f"{self.end:g}: followed down it arrives, {way}, at a trap {self.energy - self.lowest:.6f} above "
                f"it{above}. Cooling tau slowly from above ends in that trap.")  # fmt: skip


@dataclasses.dataclass(frozen=True, eq=False)
class Continuation:
    """A landscape as a function of the loss temperature.

    Attributes:
        energy: at the target temperature.
        temperatures: the lowest one, which is the target, and the highest one.
        branches: minima and saddles up to index 2, each over the temperatures at which it exists.
        bifurcations: where branches end or change their index, by temperature.
        trap_free: the trap-free temperature with its bracket and the random starts that confirm it.
        depths: minima and barriers at temperatures from the lowest to the highest one.
        descent: where the global minimum of the highest temperature leads.
        landscapes: what `explore` found at the temperatures at which it was asked.
        members: the energy as a function of temperature.
    """

    energy: Energy
    temperatures: tuple[float, float]
    branches: tuple[Branch, ...]
    bifurcations: tuple[Bifurcation, ...]
    trap_free: TrapFree
    depths: tuple[Depths, ...]
    descent: Descent
    landscapes: tuple[Landscape, ...]
    members: Family

    @property
    def trap_free_temperature(self) -> float:
        """The smallest tau above which only the global class is left: see `TrapFree`."""
        return self.trap_free.temperature

    @property
    def folds(self) -> tuple[Bifurcation, ...]:
        """Where two critical points annihilate."""
        return tuple(event for event in self.bifurcations if event.kind == "fold")

    def at(self, temperature: float) -> Depths:
        """Minima on the branches and how deep they are, computed at one temperature.

        Raises:
            InputError: outside the temperatures that were followed.
        """
        tau = float(numbers("temperature", temperature, "one number"))
        low, high = self.temperatures
        if not low <= tau <= high:
            raise refuse("temperature", f"{tau:g}", f"{low:g} to {high:g}", "follow the branches further")
        return depths_at(self.members, list(self.branches), [tau])[0]

    def critical_depth(self, temperature: float) -> float:
        """E* at one temperature, from the branches; an upper bound as in `explore`, zero where there is no trap."""
        return self.at(temperature).critical_depth

    def barriers(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """For each branch that is a trap somewhere: temperatures and its barrier there, by index of the branch."""
        curves: dict[int, tuple[list[float], list[float]]] = {}
        for there in self.depths:
            for branch, energy, barrier in zip(there.branches, there.energies, there.barriers, strict=True):
                if energy - there.energies[0] >= SAME_ENERGY * (1 + abs(energy)):
                    taus, heights = curves.setdefault(branch, ([], []))
                    taus.append(there.temperature)
                    heights.append(barrier)
        return {branch: (np.array(t), np.array(h)) for branch, (t, h) in sorted(curves.items())}

    def summary(self) -> str:
        """What was found, in a few sentences."""
        low, high = self.temperatures
        stable = sum(branch.index == 0 for branch in self.branches)
        saddles = sum(branch.index == 1 for branch in self.branches)
        lost = sum("lost" in branch.ends for branch in self.branches if branch.index < 2)
        first = self.depths[0]
        traps = len(first.energies) - sum(b == 0 for b in first.barriers)
        unknown = sum(not math.isfinite(there.critical_depth) for there in self.depths)
        lines = [
            f"tau from {low:g} to {high:g}: {stable} branches of minima, {saddles} of saddles, {len(self.folds)} "
            f"folds, {len(self.bifurcations) - len(self.folds)} branch points.",
            f"At tau = {low:g} {traps} class{'es' * (traps != 1)} of traps, E* = {first.critical_depth:.6f}.",
            self.trap_free.statement(), self.descent.statement(),
        ]  # fmt: skip
        if lost:
            lines.append(f"{lost} branches were lost before they ended: curves may miss a part of them.")
        if unknown:
            lines.append(f"At {unknown} of {len(self.depths)} temperatures some trap has no known passage: E* is not "
                         "known there.")  # fmt: skip
        if any(minimum.flat for land in self.landscapes for minimum in land.minima):
            lines.append("Some minima form flat valleys, which are not followed.")
        return "\n".join(lines)


def continuation(
    energy: Energy,
    temperatures: Any,
    seed: int = 0,
    num_quenches: int = 1024,
    num_searches: int = 512,
    confirm: int = 2048,
    tolerance: float = 2e-5,
) -> Continuation:
    """Follow every minimum and index-1 saddle as the temperature inside the loss moves, in float64.

    `explore` gives the points to start from, at the lowest temperature and just below where the traps end. Each is
    followed both ways by arc length in (configuration, log tau), rotations cut out, round folds (Keller 1977); where a
    mode changes sign the branches that cross there are followed too. The trap-free temperature comes from minima alone,
    followed upwards, and is confirmed by random starts at both ends of its bracket: see `trap_free_temperature`.

    Args:
        energy: with a temperature; small, since full Hessians of size n(d-1) are used.
        temperatures: (low, high), or an array whose ends these are and at whose values barriers are computed. The
            target is the lowest one.
        seed: of everything random.
        num_quenches: see `explore`.
        num_searches: see `explore`.
        confirm: random starts at either end of the bracket of the trap-free temperature; a quarter at other
            temperatures.
        tolerance: width of the bracket.

    Raises:
        InputError: an energy without a temperature, temperatures that are not at least two distinct numbers above zero,
            or numbers out of range.
    """
    require_temperature(energy)
    grid = _temperatures(temperatures)
    rng = np.random.default_rng(np.random.SeedSequence([count("seed", seed, least=0, mend="for example 0"), 0xC07]))
    confirm = count("confirm", confirm, least=4, mend="for example 2048")
    low, high = float(grid[0]), float(grid[-1])
    target = explore(energy.with_temperature(low), seed, num_quenches, num_searches)
    members = family(energy, low, target.symmetry)
    known = np.stack([minimum.position for minimum in target.minima])
    free = search(members, (low, high), rng, (max(confirm // 4, 1), confirm, _LEVELS), tolerance, known)
    lands = [target]
    top = min(free.bracket[0], high)
    if top * _BELOW_THE_END > low:
        lands.append(explore(energy.with_temperature(top * _BELOW_THE_END), seed, num_quenches, num_searches))
    branches, events = grow(members, _seeds(lands, free), (low, high), rng)
    depths = depths_at(members, branches, _grid(grid, free))
    return Continuation(lands[0].energy, (low, high), tuple(branches), tuple(events), free, tuple(depths),
                        _descend(members, free, target, tolerance), tuple(lands), members)  # fmt: skip


def _temperatures(temperatures: Any) -> np.ndarray:
    values = numbers("temperatures", temperatures, "(low, high) or an array of values of tau")
    if values.ndim != 1 or len(np.unique(values)) < 2 or not np.all(np.isfinite(values)) or np.any(values <= 0):
        raise refuse("temperatures", np.array2string(values, threshold=8), "at least two distinct numbers above zero",
                     "for example (0.5, 4)")  # fmt: skip
    return np.unique(values)


def _seeds(lands: list[Landscape], free: TrapFree) -> list[tuple[float, np.ndarray]]:
    """Critical points to start from, with their temperatures."""
    seeds = []
    for land in lands:
        x = np.stack([point.position for point in (*land.minima, *land.saddles)])
        seeds.append((float(getattr(land.energy, "temperature")), x))  # noqa: B009
    seeds += [(level.temperature, level.positions) for level in free.levels]
    return seeds


def _grid(given: np.ndarray, free: TrapFree) -> list[float]:
    """Temperatures of the curves: those given, or evenly spaced in log tau up to where the traps end, and on."""
    if len(given) > 2:
        return given.tolist()
    low, high = given
    if not free.found:
        return np.geomspace(low, high, _POINTS).tolist()
    # Within a thousandth of the end a trap and its saddle are too close for descents to tell them apart.
    below = np.geomspace(low, max(low, free.bracket[0] * (1 - 1e-3)), _POINTS)
    above = np.geomspace(free.bracket[1], high, 4)
    return np.unique([*below, *above]).tolist()


def _descend(members: Family, free: TrapFree, target: Landscape, tolerance: float) -> Descent:
    """Follow the lowest minimum of the highest level down through the levels of the scan."""
    levels = free.levels
    x = levels[-1].positions[:1]
    jumps: list[Jump] = []
    above = None
    energy = levels[-1].energies[0]
    for upper, lower in zip(levels[:0:-1], levels[-2::-1], strict=True):
        x, new = follow(members, x, upper.temperature, lower.temperature, tolerance)
        jumps += new
        energy = float(settled_pool(members, x, lower.temperature).energies[0])
        lowest = lower.energies[0]
        if above is None and energy - lowest >= SAME_ENERGY * (1 + abs(lowest)):
            above = lower.temperature
    lowest = min(target.minima[0].energy, levels[0].energies[0])
    return Descent(levels[-1].temperature, levels[0].temperature, energy, lowest, tuple(jumps), above)
