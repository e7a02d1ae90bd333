"""Explore a landscape: its minima, its saddles, the network of them, and the depths E* and m."""

from __future__ import annotations

import dataclasses
import math

import networkx as nx
import numpy as np

from infonce_jax.checks import count
from infonce_jax.energies.base import Energy
from infonce_jax.landscape.derivatives import derivatives, displace, energies_of
from infonce_jax.landscape.network import CopyBook, add_passage, critical_depth, spectral_depth
from infonce_jax.landscape.quench import newton_polish, quench
from infonce_jax.landscape.saddles import SaddlePoints, find_saddles, internal_spectrum
from infonce_jax.landscape.symmetry import Symmetry, find_symmetry

__all__ = ["Landscape", "Minimum", "Saddle", "explore"]

_SAME_ENERGY = 1e-7
_SAME_SPECTRUM = 1e-4


@dataclasses.dataclass(frozen=True)
class Minimum:
    """One class of minima: all copies under rotations, reflections and relabellings that keep the energy.

    Attributes:
        energy: E.
        position: one representative, shape (n, d).
        eigenvalues: of the Hessian without those of rotations, ascending.
        gradient_norm: of the representative.
        share: fraction of uniform starts whose quench ended in the class.
        copies: components of the class that no rotation joins, or None where they were not counted.
    """

    energy: float
    position: np.ndarray
    eigenvalues: np.ndarray
    gradient_norm: float
    share: float
    copies: int | None = None


@dataclasses.dataclass(frozen=True)
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


@dataclasses.dataclass(frozen=True)
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

    def basin_of(self, points: np.ndarray) -> np.ndarray:
        """Index into `minima` of the class each configuration falls to along the gradient flow, -1 where none is known.

        Args:
            points: shape (..., n, d).

        Returns:
            Integers, shape (...).
        """
        points = np.asarray(points, dtype=np.float64)
        flat = points.reshape(-1, *points.shape[-2:])
        levels = np.array([m.energy for m in self.minima])
        window = _window(levels, np.array([s.energy for s in self.saddles]))
        softest = min((float(np.nanmin(m.eigenvalues)) for m in self.minima), default=1.0)
        # At this gradient a point of the softest valley is within half the window of its floor.
        tolerance = math.sqrt(max(softest, 1e-4) * window) / 2
        _, energies, _ = quench(self.energy, flat, tolerance, levels, window)
        distance = np.abs(energies[:, None] - levels[None])
        nearest = np.argmin(distance, axis=1)
        found = np.where(distance[np.arange(len(flat)), nearest] < window, nearest, -1)
        return found.reshape(points.shape[:-2])

    def statement(self) -> str:
        """One sentence on how far the search can be trusted."""
        quenches, searches = self.searches
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
    gaps = gaps[gaps > _SAME_ENERGY]
    return float(np.clip(0.01 * gaps.min() if len(gaps) else 1e-4, 1e-8, 1e-4))


def _tail(total: int) -> float:
    """Where the last tenth of the searches begins; of a short search the last ten, so that it cannot look saturated."""
    return total - max(0.1 * total, 10)


class _Classes:
    """Classes of critical points by energy and spectrum, in the order of discovery."""

    def __init__(self) -> None:
        self.energies: list[float] = []
        self.spectra: list[np.ndarray] = []
        self.first_seen: list[int] = []

    def assign(self, energy: float, spectrum: np.ndarray, search: int) -> int:
        scale = 1 + abs(energy)
        for k, (e, s) in enumerate(zip(self.energies, self.spectra, strict=True)):
            close = abs(e - energy) < _SAME_ENERGY * scale
            if close and np.allclose(s, spectrum, rtol=_SAME_SPECTRUM, atol=_SAME_SPECTRUM, equal_nan=True):
                return k
        self.energies.append(energy)
        self.spectra.append(spectrum)
        self.first_seen.append(search)
        return len(self.energies) - 1


def _find_minima(
    energy: Energy, symmetry: Symmetry, starts: np.ndarray, extra: np.ndarray
) -> tuple[list[Minimum], bool]:
    """Classes of minima below the starts and below extra configurations, and whether the last tenth brought none."""
    total = len(starts)
    x, _, _ = quench(energy, np.concatenate([starts, extra]), gradient_below=1e-5)
    x, here = newton_polish(energy, x)
    spectra = internal_spectrum(symmetry, x, here.hessian)
    norms = np.linalg.norm(here.gradient, axis=1)
    lowest = np.array([np.nanmin(row) if np.isfinite(row).any() else 0.0 for row in spectra])
    classes, members = _Classes(), {}
    for p in np.flatnonzero((norms < 1e-9) & (lowest > -1e-6)):
        k = classes.assign(float(here.energy[p]), spectra[p], int(p))
        members.setdefault(k, []).append(p)
    minima = []
    for group in members.values():
        best = min(group, key=lambda p: norms[p])
        spectrum = spectra[best][np.isfinite(spectra[best])]
        share = sum(p < total for p in group) / total
        minima.append(Minimum(float(here.energy[best]), x[best], spectrum, float(norms[best]), share))
    late = any(_tail(total) <= seen < total for seen in classes.first_seen)
    return sorted(minima, key=lambda m: m.energy), not late


def _saddle_starts(rng: np.random.Generator, minima: list[Minimum], shape: tuple[int, int], number: int) -> np.ndarray:
    """A third uniform, a third displaced from minima by random amounts, a third between two random copies."""
    uniform = rng.normal(size=(number, *shape))
    near = np.stack([minima[k % len(minima)].position for k in range(number)])
    away = rng.normal(size=uniform.shape) * rng.uniform(0.1, 0.8, size=(number, 1, 1))
    partner = np.stack([minima[k].position for k in rng.integers(len(minima), size=number)])
    turns, _ = np.linalg.qr(rng.normal(size=(number, shape[1], shape[1])))
    between = near + rng.uniform(0.2, 0.8, size=(number, 1, 1)) * (partner @ turns - near) + 0.1 * away
    kinds = np.arange(number) % 3
    x = np.where((kinds == 0)[:, None, None], uniform, np.where((kinds == 1)[:, None, None], near + away, between))
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def _downhill_ends(energy: Energy, found: SaddlePoints, which: np.ndarray) -> np.ndarray:
    """Both ends of each saddle, polished: shape (2, points, n, d).

    A descent from a symmetric saddle stays symmetric and can end at another saddle; a nudge off the path breaks that.
    """
    rng = np.random.default_rng(11)
    ends = []
    for sign in (1.0, -1.0):
        direction = found.directions[which]
        x = displace(found.positions[which], sign * 1e-2 * direction + 1e-4 * rng.normal(size=direction.shape))
        x, _, _ = quench(energy, x, gradient_below=1e-5)
        here = derivatives(energy, x)
        values, vectors = np.linalg.eigh(here.hessian)
        stuck = np.flatnonzero(values[:, 0] < -1e-4)
        if len(stuck):
            x[stuck], _, _ = quench(energy, displace(x[stuck], 0.05 * vectors[stuck, :, 0]), gradient_below=1e-5)
        ends.append(newton_polish(energy, x)[0])
    return np.stack(ends)


def explore(energy: Energy, seed: int = 0, num_quenches: int = 2048, num_searches: int = 1024) -> Landscape:
    """Find the minima, the index-1 saddles and the network of a landscape, in float64.

    Minima come from gradient-flow quenches of uniform starts, polished by Newton's method to a Riemannian gradient
    below 1e-10; saddles from eigenvector following with rotations projected out, both downhill ends classified.
    Critical points are one class when energy and Hessian spectrum agree, which holds for all copies under symmetries.

    Args:
        energy: what to explore; small systems, since the search uses full Hessians of size n(d-1).
        seed: of the starts.
        num_quenches: uniform starts for minima.
        num_searches: saddle searches.

    Returns:
        A `Landscape`.

    Raises:
        InputError: numbers of starts that are not positive whole numbers.
    """
    num_quenches, num_searches = count("num_quenches", num_quenches), count("num_searches", num_searches)
    rng = np.random.default_rng(np.random.SeedSequence([int(seed), 0x5EED]))
    symmetry = find_symmetry(energy)
    starts = rng.normal(size=(num_quenches, *energy.shape))
    starts /= np.linalg.norm(starts, axis=-1, keepdims=True)
    minima, quiet = _find_minima(energy, symmetry, starts, starts[:0])
    if not minima:
        raise RuntimeError("no quench ended at a minimum: the energy has a flat valley or a cusp everywhere")
    found = find_saddles(energy, symmetry, _saddle_starts(rng, minima, energy.shape, num_searches))
    # One saddle per copy to follow down: enough, and no more than a large symmetry group allows.
    distinct = _distinct_copies(symmetry, found)
    ends = _downhill_ends(energy, found, distinct) if len(distinct) else np.zeros((2, 0, *energy.shape))
    end_classes = _match(energy, minima, ends)
    if np.any(end_classes < 0):  # a minimum with a basin too small for the quenches to hit
        minima, quiet = _find_minima(energy, symmetry, starts, ends[end_classes < 0])
        end_classes = _match(energy, minima, ends)
    return _assemble(energy, symmetry, minima, found, distinct, ends, end_classes, quiet, (num_quenches, num_searches))


def _assemble(
    energy: Energy,
    symmetry: Symmetry,
    minima: list[Minimum],
    found: SaddlePoints,
    distinct: np.ndarray,
    ends: np.ndarray,
    end_classes: np.ndarray,
    quiet: bool,
    searches: tuple[int, int],
) -> Landscape:
    classes = _Classes()
    kind = np.array([classes.assign(float(e), s, int(p)) for e, s, p in
                     zip(found.energies, found.spectra, found.searches, strict=True)], dtype=int)  # fmt: skip
    levels = np.array([m.energy for m in minima])
    saddles, passages = [], []
    for k, height in enumerate(classes.energies):
        for row in np.flatnonzero(kind[distinct] == k):
            first, second = sorted(int(c) for c in end_classes[:, row])
            pair = (first, second)
            if pair[0] < 0:
                continue
            passages.append((row, height))
            if not any(s.energy == height and s.ends == pair for s in saddles):
                spectrum = classes.spectra[k][np.isfinite(classes.spectra[k])]
                position = found.positions[distinct[row]]
                saddles.append(Saddle(height, position, spectrum, pair, _number_of_copies(symmetry, position)))
    saddles.sort(key=lambda s: s.energy)

    network = nx.Graph()
    network.add_nodes_from((k, {"energy": m.energy}) for k, m in enumerate(minima))
    for number, saddle in enumerate(saddles):
        add_passage(network, *saddle.ends, height=saddle.energy, saddle=number)
    e_star = critical_depth(network, levels.tolist())
    copies, m, counts = _copy_network(symmetry, minima, ends, end_classes, passages, e_star)
    late = max(classes.first_seen, default=0) >= _tail(searches[1])
    minima = [dataclasses.replace(minimum, copies=c) for minimum, c in zip(minima, counts, strict=True)]
    curvature = max(float(np.max(minimum.eigenvalues)) for minimum in minima)
    return Landscape(energy, tuple(minima), tuple(saddles), network, copies, e_star, m, curvature,
                     quiet and not late, searches, symmetry)  # fmt: skip


def _distinct_copies(symmetry: Symmetry, found: SaddlePoints) -> np.ndarray:
    """Indices of the saddles to follow down: one per copy, at most 200 of the same energy."""
    book, chosen, taken = CopyBook(), [], set()
    counts: dict[float, int] = {}
    numbers = book.number(symmetry.invariants(found.positions)) if len(found.energies) else []
    for p, number in enumerate(numbers):
        level = round(float(found.energies[p]), 6)
        if number not in taken and counts.get(level, 0) < 200:
            taken.add(number)
            counts[level] = counts.get(level, 0) + 1
            chosen.append(p)
    return np.array(chosen, dtype=int)


def _match(energy: Energy, minima: list[Minimum], x: np.ndarray) -> np.ndarray:
    """Class of each polished configuration, x of shape (2, points, n, d), by its energy; -1 where none is close."""
    if not x.shape[1]:
        return np.zeros(x.shape[:2], dtype=int)
    levels = np.array([m.energy for m in minima])
    distance = np.abs(energies_of(energy, x.reshape(-1, *x.shape[2:]))[:, None] - levels[None])
    nearest = np.argmin(distance, axis=1)
    close = distance[np.arange(len(nearest)), nearest] < _SAME_ENERGY * (1 + np.abs(levels[nearest]))
    return np.where(close, nearest, -1).reshape(x.shape[:2])


def _number_of_copies(symmetry: Symmetry, x: np.ndarray) -> int | None:
    """How many images of one configuration no rotation maps to each other."""
    if not (symmetry.complete and symmetry.standard):
        return None
    return len(set(CopyBook().number(symmetry.invariants(symmetry.copies(x)))))


def _copy_network(
    symmetry: Symmetry,
    minima: list[Minimum],
    ends: np.ndarray,
    end_classes: np.ndarray,
    passages: list[tuple[int, float]],
    e_star: float,
) -> tuple[nx.Graph, float, list[int | None]]:
    """The network of single copies and m; without them where the symmetry is too large or not of a known kind."""
    graph: nx.Graph = nx.Graph()
    if not (symmetry.complete and symmetry.standard):
        return graph, math.nan, [None] * len(minima)
    book = CopyBook()
    classes: dict[int, int] = {}
    for k, minimum in enumerate(minima):
        for number in book.number(symmetry.invariants(symmetry.copies(minimum.position))):
            classes[number] = k
    for row, height in passages[: max(1, 200_000 // symmetry.order)]:
        numbers = [book.number(symmetry.invariants(symmetry.copies(ends[side, row]))) for side in (0, 1)]
        for side in (0, 1):
            classes.update(dict.fromkeys(numbers[side], int(end_classes[side, row])))
        for first, second in zip(*numbers, strict=True):
            add_passage(graph, first, second, height, row)
    graph.add_nodes_from((number, {"minimum": k}) for number, k in classes.items())
    m = spectral_depth(graph, classes, [minimum.energy for minimum in minima], e_star)
    counts = [sum(kind == k for kind in classes.values()) for k in range(len(minima))]
    return graph, (m if math.isfinite(m) else math.nan), list(counts)
