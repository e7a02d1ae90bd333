"""Explore a landscape: its minima, its saddles, the network of them, and the depths E* and m."""

from __future__ import annotations

import dataclasses
import math

import networkx as nx
import numpy as np

from infonce_jax.checks import InputError, count, refuse
from infonce_jax.energies.base import Energy
from infonce_jax.landscape.derivatives import derivatives, displace
from infonce_jax.landscape.minima import Classes, find_minima, tail
from infonce_jax.landscape.model import SAME_ENERGY, Landscape, Minimum, Saddle
from infonce_jax.landscape.network import CopyBook, add_passage, critical_depth, spectral_depth
from infonce_jax.landscape.quench import newton_polish, quench
from infonce_jax.landscape.saddles import SaddlePoints, find_saddles, internal_spectrum
from infonce_jax.landscape.symmetry import Symmetry, find_symmetry

__all__ = ["explore"]


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
        InputError: numbers that are not positive whole ones, an energy that is not finite everywhere, or one without
            a minimum that a quench could reach.
    """
    num_quenches, num_searches = count("num_quenches", num_quenches), count("num_searches", num_searches)
    seed = count("seed", seed, least=0, mend="for example 0")
    _check_finite(energy)
    rng = np.random.default_rng(np.random.SeedSequence([seed, 0x5EED]))
    symmetry = find_symmetry(energy)
    starts = rng.normal(size=(num_quenches, *energy.shape))
    starts /= np.linalg.norm(starts, axis=-1, keepdims=True)
    minima, quiet = find_minima(energy, symmetry, starts, starts[:0])
    if not minima:
        raise InputError("energy: got no quench that ended at a smooth minimum; needs a twice differentiable energy; "
                         "replace cusps such as abs or max by smooth forms")  # fmt: skip
    found = find_saddles(energy, symmetry, _saddle_starts(rng, minima, energy.shape, num_searches))
    # One saddle per copy to follow down: enough, and no more than a large symmetry group allows.
    distinct = _distinct_copies(symmetry, found)
    ends = _downhill_ends(energy, found, distinct) if len(distinct) else np.zeros((2, 0, *energy.shape))
    end_classes = _match(energy, symmetry, minima, ends)
    if np.any(end_classes < 0):  # a minimum with a basin too small for the quenches to hit
        minima, quiet = find_minima(energy, symmetry, starts, ends[end_classes < 0])
        end_classes = _match(energy, symmetry, minima, ends)
    return _assemble(energy, symmetry, minima, found, distinct, ends, end_classes, quiet, (num_quenches, num_searches))


def _check_finite(energy: Energy) -> None:
    """Refuse what is no energy, or not finite with its gradient at random configurations."""
    if not isinstance(energy, Energy):
        raise refuse("energy", type(energy).__name__, "an Energy", "wrap a function with energies.from_function")
    x = np.random.default_rng(1).normal(size=(256, *energy.shape))
    here = derivatives(energy, x / np.linalg.norm(x, axis=-1, keepdims=True))
    bad = ~(np.isfinite(here.energy) & np.all(np.isfinite(here.gradient), axis=1))
    if bad.any():
        raise refuse("energy", f"NaN or infinite values or slopes at {bad.sum()} of {len(x)} random configurations",
                     "a function finite everywhere on the spheres", "check logarithms and roots in it")  # fmt: skip


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
    classes = Classes()
    kind = np.array([classes.assign(float(e), s, int(p)) for e, s, p in
                     zip(found.energies, found.spectra, found.searches, strict=True)], dtype=int)  # fmt: skip
    levels = np.array([m.energy for m in minima])
    saddles, passages = [], []
    for k, height in enumerate(classes.energies):
        members: dict[tuple[int, int], list[int]] = {}
        for row in np.flatnonzero(kind[distinct] == k):
            first, second = sorted(int(c) for c in end_classes[:, row])
            if first >= 0:
                passages.append((row, height))
                members.setdefault((first, second), []).append(int(row))
        for pair, rows in members.items():
            spectrum = classes.spectra[k][np.isfinite(classes.spectra[k])]
            positions = found.positions[distinct[rows]]
            saddles.append(Saddle(height, positions[0], spectrum, pair, _number_of_copies(symmetry, positions)))
    saddles.sort(key=lambda s: s.energy)

    network = nx.Graph()
    network.add_nodes_from((k, {"energy": m.energy}) for k, m in enumerate(minima))
    for number, saddle in enumerate(saddles):
        add_passage(network, *saddle.ends, height=saddle.energy, saddle=number)
    number_global = int(np.sum(levels - levels[0] < SAME_ENERGY * (1 + abs(levels[0]))))
    e_star = critical_depth(network, levels.tolist(), number_global)
    copies, m, counts = _copy_network(symmetry, minima, ends, end_classes, passages, (e_star, number_global))
    late = max(classes.first_seen, default=0) >= tail(searches[1])
    minima = [dataclasses.replace(minimum, copies=c) for minimum, c in zip(minima, counts, strict=True)]
    curvature = max(float(np.max(minimum.eigenvalues, initial=0.0)) for minimum in minima)
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


def _match(energy: Energy, symmetry: Symmetry, minima: list[Minimum], x: np.ndarray) -> np.ndarray:
    """Class of each polished configuration, x (2, points, n, d), by energy and spectrum; -1 where none fits."""
    known = Classes()
    for k, minimum in enumerate(minima):
        modes = np.full(minimum.position.size - len(minimum.position), np.nan)
        modes[: len(minimum.eigenvalues)] = minimum.eigenvalues
        known.assign(minimum.energy, modes, k, minimum.flat)
    flat = x.reshape(-1, *x.shape[2:])
    here = derivatives(energy, flat)
    spectra = internal_spectrum(symmetry, flat, here.hessian)
    found = [max(known.find(float(e), s), known.find(float(e), s, flat=True))
             for e, s in zip(here.energy, spectra, strict=True)]  # fmt: skip
    return np.array(found, dtype=int).reshape(x.shape[:2])


def _number_of_copies(symmetry: Symmetry, points: np.ndarray) -> int | None:
    """How many images of the points of one class no rotation maps to each other.

    Frozen keys may have symmetries that `Symmetry` does not know, a mirror of the circle for example: then several
    points of one class are no images of each other, and all count.
    """
    if not (symmetry.complete and symmetry.standard):
        return None
    book, most = CopyBook(), max(1, 200_000 // symmetry.order)
    return len({number for x in points[:most] for number in book.number(symmetry.invariants(symmetry.copies(x)))})


def _copy_network(
    symmetry: Symmetry,
    minima: list[Minimum],
    ends: np.ndarray,
    end_classes: np.ndarray,
    passages: list[tuple[int, float]],
    depth: tuple[float, int],
) -> tuple[nx.Graph, float, list[int | None]]:
    """The network of single copies and m; without them where the symmetry is too large or not of a known kind."""
    graph: nx.Graph = nx.Graph()
    # A flat valley has symmetries that are not of the known kind, or none: its points are not countable copies.
    if not (symmetry.complete and symmetry.standard) or any(minimum.flat for minimum in minima):
        return graph, math.nan, [None] * len(minima)
    book = CopyBook()
    classes: dict[int, int] = {}
    for k, minimum in enumerate(minima):
        for number in book.number(symmetry.invariants(symmetry.copies(minimum.position))):
            classes[number] = k
    most = max(1, 200_000 // symmetry.order)
    for row, height in sorted(passages, key=lambda passage: passage[1])[:most]:
        numbers = [book.number(symmetry.invariants(symmetry.copies(ends[side, row]))) for side in (0, 1)]
        for side in (0, 1):
            classes.update(dict.fromkeys(numbers[side], int(end_classes[side, row])))
        for first, second in zip(*numbers, strict=True):
            add_passage(graph, first, second, height, row)
    graph.add_nodes_from((number, {"minimum": k}) for number, k in classes.items())
    m = spectral_depth(graph, classes, [minimum.energy for minimum in minima], *depth)
    counts = [sum(kind == k for kind in classes.values()) for k in range(len(minima))]
    return graph, (m if math.isfinite(m) else math.nan), list(counts)
