"""The trap-free temperature: the smallest tau above which only the global class of minima is left."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from infonce_jax.checks import count, positive, refuse
from infonce_jax.energies.base import Energy
from infonce_jax.landscape.following import Jump, Multistart, follow, multistart, settled_pool, traps_among
from infonce_jax.landscape.relaxation import Family, family, look, require_temperature
from infonce_jax.landscape.symmetry import find_symmetry

__all__ = ["TrapFree", "trap_free_temperature"]

_MOST_REPAIRS = 8


@dataclasses.dataclass(frozen=True, eq=False)
class TrapFree:
    """Where the traps end.

    Attributes:
        temperature: the middle of the bracket; infinite where traps remain at the highest temperature looked at, and
            the lowest one where there was none at any.
        bracket: temperatures with a trap and without one; (high, inf) and (0, low) in the two other cases.
        below: random starts at the lower end of the bracket (or at `high`), with the trap that following knows.
        above: random starts at the upper end (or at `low`).
        levels: random starts at the temperatures of the scan, ascending.
        jump: the last trap and where a descent from it ends once it has gone, or None.
    """

    temperature: float
    bracket: tuple[float, float]
    below: Multistart | None
    above: Multistart | None
    levels: tuple[Multistart, ...]
    jump: Jump | None

    @property
    def found(self) -> bool:
        """Whether it lies within the temperatures looked at."""
        return self.bracket[0] > 0 and math.isfinite(self.bracket[1])

    @property
    def confirmed(self) -> bool:
        """Whether random starts agree: one class above the bracket, and a trap among their ends below it."""
        above = self.above is None or self.above.traps == 0
        return above and (self.below is None or self.below.trapped > 0)

    def statement(self) -> str:
        """What was found and how far random starts confirm it, in a few sentences."""
        low, high = self.bracket
        if not math.isfinite(high):
            assert self.below is not None
            return (f"Traps remain at tau = {low:g}, the highest temperature looked at: no trap-free temperature up to "
                    f"there. {_sentence(self.below)}")  # fmt: skip
        assert self.above is not None
        if low <= 0:
            return (f"No trap at any temperature looked at, from tau = {high:g} to {self.levels[-1].temperature:g}. "
                    f"{_sentence(self.above)}")  # fmt: skip
        assert self.below is not None
        trapped = self.below.trapped
        seen = f"{trapped} of {self.below.starts} random starts end in a trap" if trapped else (
            f"none of {self.below.starts} random starts ends in the trap, which is known by following it alone"
        )  # fmt: skip
        return (f"Trap-free above tau = {self.temperature:.6f}, between {low:.6f} and {high:.6f}. At the lower end "
                f"{seen}; at the upper end {_sentence(self.above)}")  # fmt: skip


def _sentence(seen: Multistart) -> str:
    good = seen.starts - seen.failed
    ends = f"all of {good} random starts end at a global minimum" if not seen.trapped else (
        f"{seen.trapped} of {good} random starts end in a trap"
    )  # fmt: skip
    lost = f" ({seen.failed} did not converge)" if seen.failed else ""
    return f"{ends}{lost}, so any minimum missed has a basin below {seen.missed:.2g} (95 %)."


def trap_free_temperature(
    energy: Energy,
    low: float,
    high: float,
    seed: int = 0,
    starts: int = 512,
    confirm: int = 2048,
    levels: int = 7,
    tolerance: float = 2e-5,
    known: np.ndarray | None = None,
) -> TrapFree:
    """Find the smallest tau above which only the global class of minima is left, without saddles or barriers.

    Minima from random starts at several temperatures are followed upwards until each has merged with another class; the
    last one to do so gives the bracket. Random starts at both ends of the bracket confirm it: a trap that they find
    above it is followed on, and the bracket moves up. Compiles once for a shape and a kind of energy.

    Args:
        energy: with a temperature; small, since full Hessians of size n(d-1) are used.
        low: the lowest temperature of interest.
        high: the highest one.
        seed: of the starts.
        starts: random starts at each temperature of the scan.
        confirm: random starts at each end of the bracket.
        levels: temperatures of the scan, evenly spaced in log tau from low to high.
        tolerance: largest width of the bracket.
        known: further minima at `low`, shape (k, n, d), for example from `explore`.

    Raises:
        InputError: an energy without a temperature, or numbers out of range.
    """
    require_temperature(energy)
    low, high = positive("low", low), positive("high", high)
    if high <= low:
        raise refuse("low, high", f"{low:g} and {high:g}", "low below high", "the traps of the low end are followed up")
    starts, confirm = count("starts", starts), count("confirm", confirm)
    levels = count("levels", levels, least=2, mend="both ends are levels")
    tolerance = positive("tolerance", tolerance)
    rng = np.random.default_rng(np.random.SeedSequence([count("seed", seed, least=0, mend="for example 0"), 0x7A0]))
    members = family(energy, low, find_symmetry(energy.with_temperature(low)))
    return search(members, (low, high), rng, (starts, confirm, levels), tolerance, known)


def search(
    members: Family, ends: tuple[float, float], rng: np.random.Generator, numbers: tuple[int, int, int],
    tolerance: float, known: np.ndarray | None,
) -> TrapFree:  # fmt: skip
    """The work of `trap_free_temperature`."""
    starts, confirm, levels = numbers
    scan: list[Multistart] = []
    paths: list[list[Jump]] = []
    carried = known
    grid = np.geomspace(*ends, levels)
    grid[0], grid[-1] = ends
    for k, tau in enumerate(grid):
        scan.append(multistart(members, tau, starts, rng, carried))
        if k + 1 < levels:
            carried, jumps = follow(members, scan[-1].positions, tau, grid[k + 1], tolerance)
            paths.append(jumps)
    trapped = [k for k, seen in enumerate(scan) if seen.traps]
    found = tuple(scan)
    if not trapped:
        above = multistart(members, ends[0], confirm, rng, scan[0].positions)
        if not above.traps:
            return TrapFree(ends[0], (0.0, ends[0]), None, above, found, None)
        _, jumps = follow(members, above.positions, ends[0], grid[1], tolerance)
        trapped, paths[0] = [0], jumps
    if trapped[-1] == levels - 1:
        below = multistart(members, ends[1], confirm, rng, scan[-1].positions)
        return TrapFree(math.inf, (ends[1], math.inf), below, None, found, None)
    k = trapped[-1]
    jumps = paths[k] or [_met(members, scan[k], grid[k + 1], tolerance)]
    last = max(jumps, key=lambda jump: jump.bracket[1])
    return _confirmed(members, last, rng, confirm, tolerance, (float(grid[k + 1]), found))


def _met(members: Family, seen: Multistart, end: float, tolerance: float) -> Jump:
    """Where minima that all live on at `end` become equal in energy, as near twins do: by bisection.

    Without it a trap whose height falls below what tells two classes apart would end nowhere.
    """
    low, high, x = seen.temperature, float(end), seen.positions
    after, _ = follow(members, x, low, high, tolerance)
    while high - low > tolerance:
        middle = (low + high) / 2
        there, _ = follow(members, x, low, middle, tolerance)
        if traps_among(settled_pool(members, there, middle).energies):
            low, x = middle, there
        else:
            high, after = middle, there
    highest = int(np.argmax(look(members, x, low).energy))
    return Jump(highest, (low, high), x[highest], after[highest])


def _confirmed(
    members: Family, last: Jump, rng: np.random.Generator, confirm: int, tolerance: float,
    scan: tuple[float, tuple[Multistart, ...]],
) -> TrapFree:  # fmt: skip
    """Random starts above the last jump, followed on where they find a trap, and then below it."""
    top, levels = scan
    above = multistart(members, last.bracket[1], confirm, rng, last.after[None])
    for _ in range(_MOST_REPAIRS):
        if not above.traps:
            break
        _, jumps = follow(members, above.positions, last.bracket[1], top, tolerance)
        if not jumps:
            break
        last = max(jumps, key=lambda jump: jump.bracket[1])
        above = multistart(members, last.bracket[1], confirm, rng, last.after[None])
    both, _ = follow(members, last.after[None], last.bracket[1], last.bracket[0], tolerance)
    below = multistart(members, last.bracket[0], confirm, rng, np.concatenate([last.before[None], both]))
    return TrapFree(sum(last.bracket) / 2, last.bracket, below, above, levels, last)
