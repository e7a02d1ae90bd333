"""Minimum energy paths between classes of minima, and the cross-check of barriers that a saddle search found.

A saddle search gives upper bounds: a lower passage may have been missed. An elastic band that starts on great circles
between two minima knows nothing of the saddles, and so either confirms a barrier or finds a lower one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

import networkx as nx
import numpy as np

from infonce_jax.checks import count, instance, positive, refuse
from infonce_jax.landscape.band import (
    ElasticBand,
    align,
    elastic_band,
    geodesic_path,
    nudged,
    relax_bands,
    require_rotations,
)
from infonce_jax.landscape.derivatives import displace
from infonce_jax.landscape.model import SAME_ENERGY, Landscape
from infonce_jax.landscape.network import CopyBook, communicating_height
from infonce_jax.landscape.quench import newton_polish, quench
from infonce_jax.landscape.reaction import ReactionPath, steepest_descent_path

__all__ = ["ElasticBand", "ReactionPath", "SaddleCheck", "SaddleTable", "barrier_saddles", "check_saddles",
           "elastic_band", "path", "steepest_descent_path"]  # fmt: skip

_SAME_DISTANCE = 1e-6
_SAME_COPY = 1e-4
_QUENCHES = 64
_NEAREST = 4  # copies of the target that a search tries
_DETOUR = 0.3  # radians per coordinate, of the random starts


def path(
    landscape: Landscape,
    source: int,
    target: int,
    start: str = "geodesic",
    num_images: int = 15,
    detours: int = 4,
    gradient_below: float = 1e-5,
    max_iterations: int = 3_000,
    seed: int = 0,
) -> ElasticBand:
    """The lowest minimum energy path that bands find between a minimum of one class and one of another.

    With start "geodesic" the saddles of the landscape are not used: bands start on great circles from the source to the
    nearest copies of the target under all symmetries, on the circle (d = 2) also with each row in turn going the long
    way, which no small change could reach, and with `detours` random detours to the nearest copy. With start "saddle"
    the one band starts on the steepest-descent path of the lowest saddle between the two classes, and its ends are the
    two copies that this saddle joins.

    Args:
        landscape: from `landscape.explore`.
        source: index into its minima, where the path begins.
        target: index into its minima; the same class means another copy of it.
        start: "geodesic" or "saddle".
        num_images: images of a band, both ends included, at least 5.
        detours: random starts besides the regular ones.
        gradient_below: see `elastic_band`.
        max_iterations: see `elastic_band`.
        seed: of detours and nudges.

    Returns:
        The converged band of the lowest barrier, with one negative mode at its top where there is such a band;
        otherwise the lowest of what there is, and its `converged` and `negative_modes` say so.

    Raises:
        InputError: an index out of range, a class that has no second copy, no saddle between the classes for the start
            "saddle", or numbers out of range.
    """
    for name, index in (("source", source), ("target", target)):
        if not 0 <= index < len(landscape.minima):
            raise refuse(name, index, f"0 to {len(landscape.minima) - 1}", "an index into landscape.minima")
    if start not in ("geodesic", "saddle"):
        raise refuse("start", repr(start), "'geodesic' or 'saddle'", "geodesic starts know nothing of the saddles")
    num_images = count("num_images", num_images, least=5, mend="for example 15, both ends included")
    detours = count("detours", detours, least=0, mend="for example 4")
    goal = positive("gradient_below", gradient_below)
    most = count("max_iterations", max_iterations)
    rng = np.random.default_rng(count("seed", seed, least=0, mend="for example 0"))
    require_rotations(landscape.symmetry)
    if start == "saddle":
        starts = _over_the_saddle(landscape, source, target, num_images)[None]
    else:
        starts = np.stack(list(_between_copies(landscape, source, target, num_images, detours, rng)))
    bands = relax_bands(landscape.energy, landscape.symmetry, starts, True, goal, most)
    scale = SAME_ENERGY * (1 + abs(landscape.minima[source].energy))
    # Bands over one saddle differ by rounding; the shortest of them makes no detour through other minima.
    return min(bands, key=lambda b: (not b.converged, b.negative_modes != 1, round(float(b.energies[b.top]) / scale),
                                     b.arc_length[-1]))  # fmt: skip


def _between_copies(
    landscape: Landscape, source: int, target: int, num_images: int, detours: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Starting bands that use no saddle, from one copy of the source to the nearest copies of the target."""
    x = landscape.minima[source].position
    ends = _nearest_copies(landscape, x, target)
    if source == target and not len(ends):
        raise refuse("target", f"class {target}, which has one copy", "two different copies", "pass two classes")
    n, d = x.shape
    for y in ends:
        yield nudged(geodesic_path(x, y, num_images, rng), rng, 1e-3)
    for row in range(n if d == 2 else 0):
        yield nudged(geodesic_path(x, ends[0], num_images, rng, (row,)), rng, 1e-3)
    for _ in range(detours):
        yield nudged(geodesic_path(x, ends[0], num_images, rng), rng, _DETOUR)


def _nearest_copies(landscape: Landscape, x: np.ndarray, target: int) -> np.ndarray:
    """The nearest copies of a class of minima, rotated onto x, one for each distance from x; x itself left out."""
    copies = align(landscape.symmetry, x, _copies(landscape, target))
    chords = np.linalg.norm(copies - x, axis=-1)
    distances = np.linalg.norm(2 * np.arcsin(np.minimum(chords / 2, 1.0)), axis=1)
    order = [k for k in np.argsort(distances, kind="stable") if distances[k] > _SAME_COPY]
    firsts = [k for place, k in enumerate(order)
              if place == 0 or distances[k] - distances[order[place - 1]] > _SAME_DISTANCE]  # fmt: skip
    return copies[firsts[:_NEAREST]]


def _copies(landscape: Landscape, target: int) -> np.ndarray:
    """Copies of a class of minima, shape (copies, n, d), some perhaps twice.

    Where the network has more of them than the symmetries explain, by a symmetry that was not recognised, quenches of
    random starts find the others.
    """
    minimum, symmetry = landscape.minima[target], landscape.symmetry
    images = symmetry.copies(minimum.position)
    known = len(set(CopyBook().number(symmetry.invariants(images))))
    if minimum.copies is None or known >= minimum.copies:
        return images
    starts = np.random.default_rng(3).normal(size=(_QUENCHES, *minimum.position.shape))
    ends, _, _ = quench(landscape.energy, starts / np.linalg.norm(starts, axis=-1, keepdims=True), gradient_below=1e-5)
    ends, here = newton_polish(landscape.energy, ends)
    ends = ends[np.abs(here.energy - minimum.energy) < SAME_ENERGY * (1 + abs(minimum.energy))]
    return np.concatenate([images, *(symmetry.copies(end) for end in ends)])


def _over_the_saddle(landscape: Landscape, source: int, target: int, num_images: int) -> np.ndarray:
    """A starting band along the steepest-descent path of the lowest saddle between two classes."""
    pair = tuple(sorted((source, target)))
    between = [k for k, saddle in enumerate(landscape.saddles) if saddle.ends == pair]
    if not between:
        raise refuse("target", f"class {target}, which no known saddle joins to class {source}",
                     "a saddle between them", "search more, or use start='geodesic'")  # fmt: skip
    whole = steepest_descent_path(landscape, between[0])
    positions = whole.positions
    for side in (0, -1):
        if whole.ends[side] < 0:  # a symmetric descent ended at another saddle: on from there to a minimum beside it
            tail = _off_a_ridge(landscape, positions[side])
            positions = np.concatenate([tail[::-1], positions] if side == 0 else [positions, tail])
    steps = np.linalg.norm(np.diff(positions, axis=0), axis=(1, 2))
    lengths = np.concatenate([[0.0], np.cumsum(steps)])
    chosen = [int(np.argmin(np.abs(lengths - s))) for s in np.linspace(0, lengths[-1], num_images)]
    begins_at_target = source != target and landscape.basin_of(positions[:1])[0] == target
    return positions[chosen[::-1] if begins_at_target else chosen]


def _off_a_ridge(landscape: Landscape, x: np.ndarray) -> np.ndarray:
    """Great circles from a saddle that a descent ran into to a minimum below it, without the first point."""
    rng = np.random.default_rng(5)
    beside = displace(x[None], 0.02 * rng.normal(size=(1, x.size - len(x))))
    end, _, _ = quench(landscape.energy, beside, gradient_below=1e-5)
    end = align(landscape.symmetry, x, newton_polish(landscape.energy, end)[0][0])
    return geodesic_path(x, end, 51, rng)[1:]


@dataclasses.dataclass(frozen=True)
class SaddleCheck:
    """One saddle beside the best band that did not know of it.

    Attributes:
        saddle: index into `landscape.saddles`.
        ends: classes of minima it joins.
        saddle_energy: from the saddle search.
        band_energy: at the climbing image of the lowest converged band; NaN where none converged.
        difference: band minus saddle.
        statement: what that says, in a sentence.
    """

    saddle: int
    ends: tuple[int, int]
    saddle_energy: float
    band_energy: float
    difference: float
    statement: str


@dataclasses.dataclass(frozen=True)
class SaddleTable:
    """The checks of several saddles; prints as a table.

    Attributes:
        rows: one for each saddle.
        tolerance: difference up to which the two count as equal, in units of energy.
    """

    rows: tuple[SaddleCheck, ...]
    tolerance: float

    @property
    def agrees(self) -> bool:
        """Whether every band ended at its saddle."""
        return all(abs(row.difference) <= self.tolerance for row in self.rows)

    def lines(self) -> list[str]:
        """One line of text for each saddle."""
        return [
            f"saddle {row.saddle} ({row.ends[0]}-{row.ends[1]})  search {row.saddle_energy:.6f}  band "
            f"{row.band_energy:.6f}  difference {row.difference:+.1e}  {row.statement}" for row in self.rows
        ]  # fmt: skip

    def __str__(self) -> str:
        return "\n".join(self.lines())


def barrier_saddles(landscape: Landscape) -> list[int]:
    """Indices of the saddles that set E* and, where m is known and larger, m."""
    found = set()
    if math.isfinite(landscape.critical_depth) and landscape.critical_depth > 0:
        for k in range(landscape.number_global, len(landscape.minima)):
            height = min(communicating_height(landscape.network, k, g) for g in range(landscape.number_global))
            if _same(height - landscape.minima[k].energy, landscape.critical_depth, height):
                found.add(_joining(landscape, height, _edges_at(landscape.network, height)))
    m, bottom = landscape.spectral_depth, landscape.minima[0].energy
    if math.isfinite(m) and m > landscape.critical_depth:
        classes = nx.get_node_attributes(landscape.copies, "minimum")
        pairs = [(classes[a], classes[b]) for a, b in _edges_at(landscape.copies, bottom + m)]
        found.add(_joining(landscape, bottom + m, pairs))
    return sorted(found)


def _same(a: float, b: float, scale: float) -> bool:
    return abs(a - b) < SAME_ENERGY * (1 + abs(scale))


def _edges_at(graph: nx.Graph, height: float) -> list[tuple[int, int]]:
    return [(a, b) for a, b, h in graph.edges(data="height") if _same(h, height, height)]


def _joining(landscape: Landscape, height: float, pairs: Sequence[tuple[int, int]]) -> int:
    """The saddle of this height that joins one of these pairs of classes."""
    ends = {tuple(sorted(pair)) for pair in pairs}
    return next(k for k, s in enumerate(landscape.saddles) if s.ends in ends and _same(s.energy, height, height))


def check_saddles(
    landscape: Landscape,
    saddles: Sequence[int] | None = None,
    tolerance: float = 1e-6,
    num_images: int = 15,
    detours: int = 4,
    seed: int = 0,
) -> SaddleTable:
    """Compare saddles with the lowest path that bands find between their ends without knowing of them.

    Args:
        landscape: from `landscape.explore`.
        saddles: indices into `landscape.saddles`; by default those that set E* and m, see `barrier_saddles`. A saddle
            that is not the lowest between its ends is met by a lower band, which is no contradiction.
        tolerance: difference in energy up to which band and saddle agree.
        num_images: see `path`.
        detours: see `path`.
        seed: see `path`.

    Raises:
        InputError: an index out of range, or numbers out of range.
    """
    instance("landscape", landscape, Landscape, "from landscape.explore(energy)")
    tolerance = positive("tolerance", tolerance)
    chosen = barrier_saddles(landscape) if saddles is None else list(saddles)
    for k in chosen:
        if not 0 <= k < len(landscape.saddles):
            raise refuse("saddles", k, f"0 to {len(landscape.saddles) - 1}", "indices into landscape.saddles")
    barriers = {landscape.saddles[k].ends for k in chosen}
    energies = {}
    for first, second in barriers:
        band = path(landscape, second, first, num_images=num_images, detours=detours, seed=seed)
        energies[first, second] = float(band.energies[band.top]) if band.converged else math.nan
    return SaddleTable(tuple(_compare(landscape, k, energies[landscape.saddles[k].ends], tolerance) for k in chosen),
                       tolerance)  # fmt: skip


def _compare(landscape: Landscape, number: int, found: float, tolerance: float) -> SaddleCheck:
    saddle = landscape.saddles[number]
    difference = found - saddle.energy
    first, second = saddle.ends
    known = any(abs(s.energy - found) <= tolerance for s in landscape.saddles)
    contradicts = first != second and found < communicating_height(landscape.network, first, second) - tolerance
    if math.isnan(found):
        statement = "no band converged: not checked"
    elif abs(difference) <= tolerance:
        statement = "the band confirms the saddle"
    elif difference > 0:
        statement = "no band came as low as the saddle: not confirmed, not contradicted"
    elif known and not contradicts:
        statement = "the band went another way, over a lower saddle that is known"
    else:
        statement = "the band found a LOWER passage: the barrier of the search is too high"
    return SaddleCheck(number, saddle.ends, saddle.energy, found, difference, statement)
