"""Curves of critical points in (configuration, log tau), followed by arc length so that they go round folds.

Keller 1977, "Numerical solution of bifurcation and nonlinear eigenvalue problems"; Allgower and Georg 1990, "Numerical
continuation methods". Rotations are cut out: a step has no component along the orbit of a configuration.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from infonce_jax import sphere
from infonce_jax.energies.base import Energy
from infonce_jax.landscape.relaxation import Family, Look, displaced, in_lanes, look, look_once

__all__ = ["Curve", "Turn", "aside", "correct", "leave", "trace"]

_FIRST, _LONGEST, _SHORTEST = 0.02, 0.08, 1e-7  # arc length: radians of all embeddings, and log tau
_ITERATIONS = 8
_CONVERGED = 1e-9
_MOST_STEPS = 1500
_LOCATED = 22  # halvings of the step that holds an event
_HIGHEST_INDEX = 2
_ASIDE = 0.03  # how far from a bifurcation a crossing branch is entered
_DIRECTIONS = 6  # tried where several modes vanish together


class _Point(NamedTuple):
    x: Any  # (n, d)
    log_tau: Any
    tangent: Any  # (m + 1,), in the basis of x, of length one
    look: Look
    residual: Any
    correction: Any


def _arc(
    energy: Energy, generators: jax.Array, x: jax.Array, log_tau: jax.Array, tangent: jax.Array, length: jax.Array
) -> _Point:
    """Predict along the tangent, correct at right angles to it, and turn the tangent."""
    n, d = x.shape
    predicted = displaced(x, length * tangent[:-1])

    def carried(y: jax.Array) -> jax.Array:
        ambient = jnp.einsum("iak,ia->ik", sphere.tangent_basis(x), tangent[:-1].reshape(n, d - 1))
        moved = sphere.transport(x, y, ambient)
        return jnp.append(jnp.einsum("iak,ik->ia", sphere.tangent_basis(y), moved).ravel(), tangent[-1])

    def bordered(here: Look, y: jax.Array, p: jax.Array) -> jax.Array:
        rows = jnp.concatenate([here.hessian, (here.slope * jnp.exp(p))[:, None]], axis=1)
        return jnp.concatenate([rows, carried(y)[None]])

    def newton(_: int, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        y, p = state
        here = look_once(energy, generators, y, jnp.exp(p))
        step = jnp.linalg.solve(bordered(here, y, p), -jnp.append(here.gradient, 0.0))
        size = jnp.linalg.norm(step)
        step = jnp.where(jnp.isfinite(size), step * jnp.minimum(1.0, 0.2 / jnp.maximum(size, 1e-300)), 0.0)
        return displaced(y, step[:-1]), p + step[-1]

    start = (predicted, log_tau + length * tangent[-1])
    y, p = jax.lax.fori_loop(0, _ITERATIONS, newton, start)
    here = look_once(energy, generators, y, jnp.exp(p))
    onward = jnp.linalg.solve(bordered(here, y, p), jnp.zeros(len(tangent)).at[-1].set(1.0))
    residual = jnp.linalg.norm(here.gradient) / (1 + here.curvature)
    correction = jnp.hypot(sphere.product_distance(predicted, y), p - start[1])
    return _Point(y, p, onward / jnp.linalg.norm(onward), here, residual, correction)


_arc_lanes = jax.jit(jax.vmap(_arc, (None, None, 0, 0, 0, 0)))


def _step(members: Family, x: np.ndarray, log_tau: np.ndarray, tangent: np.ndarray, length: np.ndarray) -> _Point:
    return in_lanes(_arc_lanes, members, x, log_tau, tangent, length)


def correct(members: Family, x: np.ndarray, tau: np.ndarray) -> tuple[np.ndarray, Look, np.ndarray]:
    """Newton's method at fixed temperatures from x close to critical points: positions, look, whether it got there.

    Args:
        members: the energy at every temperature.
        x: shape (points, n, d).
        tau: shape (points,).
    """
    upright = np.zeros((len(x), x.shape[1] * (x.shape[2] - 1) + 1))
    upright[:, -1] = 1.0
    point = _step(members, x, np.log(tau), upright, np.zeros(len(x)))
    return point.x, point.look, (point.residual < _CONVERGED) & (point.correction < 0.3)


@dataclasses.dataclass(frozen=True, eq=False)
class Turn:
    """An event on a curve.

    Attributes:
        kind: "fold", where the curve turns back in tau and a mode changes sign; "crossing", where a mode changes sign
            while tau goes on; "mirror", where the curve turns back into its own mirror image, at a crossing of another.
        after: the event lies after this point of the curve.
        temperature: tau.
        energy: E.
        position: shape (n, d).
        modes: the vanishing directions, shape (number, n(d-1)), in the basis of the position.
        spectrum: there, see `Look.spectrum`.
    """

    kind: str
    after: int
    temperature: float
    energy: float
    position: np.ndarray
    modes: np.ndarray
    spectrum: np.ndarray


@dataclasses.dataclass(eq=False)
class Curve:
    """Critical points in their order along a curve, and the events on it.

    Attributes:
        positions, temperatures, energies, spectra, tangents: of its points.
        turns: events in their order.
        ends: why the curve stops at either side: "range", "mirror", "index", "closed", "lost" or "start".
        origin: the crossing that it was entered from, or None.
    """

    positions: list[np.ndarray]
    temperatures: list[float]
    energies: list[float]
    spectra: list[np.ndarray]
    tangents: list[np.ndarray]
    turns: list[Turn]
    ends: list[str]
    origin: Turn | None = None

    def add(self, point: _Point, row: int) -> None:
        """One more point at the end."""
        self.positions.append(point.x[row])
        self.temperatures.append(float(np.exp(point.log_tau[row])))
        self.energies.append(float(point.look.energy[row]))
        self.spectra.append(point.look.spectrum()[row])
        self.tangents.append(point.tangent[row])

    def index(self, place: int) -> int:
        """How many modes are unstable at a point."""
        return int(np.sum(self.spectra[place] < 0))

    def reversed(self) -> Curve:
        """The same curve the other way; without its events, which are of the other way's points."""
        tangents = [-t for t in self.tangents[::-1]]
        return Curve(self.positions[::-1], self.temperatures[::-1], self.energies[::-1], self.spectra[::-1], tangents,
                     [], self.ends[::-1])  # fmt: skip


def trace(members: Family, x: np.ndarray, tau: np.ndarray, low: float, high: float) -> list[Curve]:
    """Curves through critical points x, shape (k, n, d), at temperatures tau, both ways, within [low, high]."""
    if not len(x):
        return []
    here = look(members, x, tau)
    velocity = -np.linalg.solve(here.hessian, here.slope[..., None])[..., 0] * tau[:, None]
    tangent = np.concatenate([velocity, np.ones((len(x), 1))], axis=1)
    tangent /= np.linalg.norm(tangent, axis=1, keepdims=True)
    both = _run(members, np.concatenate([x, x]), np.tile(tau, 2), np.concatenate([tangent, -tangent]), (low, high))
    curves = []
    for forward, backward in zip(both[: len(x)], both[len(x) :], strict=True):
        curve = backward.reversed()
        for part in ("positions", "temperatures", "energies", "spectra", "tangents"):
            getattr(curve, part).extend(getattr(forward, part)[1:])
        curve.ends = [backward.ends[1], forward.ends[1]]
        curves.append(curve)
    locate(members, curves)
    return curves


def aside(members: Family, turn: Turn, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, Look]:
    """Points, a little to the side of a crossing, of the curves that cross there, each class once.

    Returns:
        Positions (k, n, d), log tau (k,), tangents (k, m + 1) that lead away from the crossing, and the look there.
    """
    directions = np.concatenate([turn.modes, -turn.modes])
    if len(turn.modes) > 1:  # the crossing branches go in some directions of the space only
        mixed = rng.normal(size=(_DIRECTIONS, len(turn.modes))) @ turn.modes
        directions = np.concatenate([directions, mixed / np.linalg.norm(mixed, axis=1, keepdims=True)])
    k = len(directions)
    sideways = np.concatenate([directions, np.zeros((k, 1))], axis=1)
    x = np.broadcast_to(turn.position, (k, *turn.position.shape))
    point = _step(members, x, np.full(k, math.log(turn.temperature)), sideways, np.full(k, _ASIDE))
    good = (point.residual < _CONVERGED) & (point.correction < _ASIDE / 2) & np.isfinite(point.tangent).all(axis=1)
    kept: list[int] = []
    for row in np.flatnonzero(good):
        place = np.array([point.log_tau[row], point.look.energy[row]])
        if all(np.abs(place - [point.log_tau[k], point.look.energy[k]]).max() > 1e-6 for k in kept):
            kept.append(int(row))
    rows = np.array(kept, dtype=int)
    return point.x[rows], point.log_tau[rows], point.tangent[rows], Look(*(part[rows] for part in point.look))


def leave(
    members: Family, turn: Turn, x: np.ndarray, log_tau: np.ndarray, tangent: np.ndarray, ends: tuple[float, float]
) -> list[Curve]:
    """Curves from points that `aside` gave, away from the crossing, within the range of temperatures."""
    inside = (log_tau > math.log(ends[0])) & (log_tau < math.log(ends[1]))
    if not inside.any():
        return []
    curves = _run(members, x[inside], np.exp(log_tau[inside]), tangent[inside], ends)
    for curve in curves:
        curve.origin = turn
    locate(members, curves)
    return curves


class _Lane:
    """One curve under way."""

    def __init__(self, curve: Curve) -> None:
        self.curve, self.length, self.steps, self.done = curve, _FIRST, 0, False

    def finish(self, why: str) -> None:
        self.curve.ends[1] = why
        self.done = True


def _run(
    members: Family, x: np.ndarray, tau: np.ndarray, tangent: np.ndarray, ends: tuple[float, float]
) -> list[Curve]:
    lanes = [_Lane(Curve([], [], [], [], [], [], ["start", "lost"])) for _ in x]
    first = _step(members, x, np.log(tau), tangent, np.zeros(len(x)))
    for row, lane in enumerate(lanes):
        lane.curve.add(first, row)
        lane.curve.tangents[0] = tangent[row]
    while live := [lane for lane in lanes if not lane.done]:
        point = _step(
            members, np.stack([lane.curve.positions[-1] for lane in live]),
            np.log([lane.curve.temperatures[-1] for lane in live]),
            np.stack([lane.curve.tangents[-1] for lane in live]), np.array([lane.length for lane in live]),
        )  # fmt: skip
        for row, lane in enumerate(live):
            _take(members, lane, point, row, ends)
    return [lane.curve for lane in lanes]


def _take(members: Family, lane: _Lane, point: _Point, row: int, ends: tuple[float, float]) -> None:
    """Accept a step, shorten it, or end the curve."""
    curve = lane.curve
    bend = _cosine(curve, point, row)
    lane.steps += 1
    if not (point.residual[row] < _CONVERGED and point.correction[row] < 0.3 * lane.length and bend > 0.97):
        lane.length /= 2
        if lane.length < _SHORTEST or lane.steps > _MOST_STEPS:
            lane.finish("lost")
        return
    log_tau = float(point.log_tau[row])
    outside = not math.log(ends[0]) < log_tau < math.log(ends[1])
    before = len(curve.temperatures) - 1
    curve.add(point, row)
    turned = curve.tangents[before][-1] * curve.tangents[-1][-1] < 0
    if turned and curve.index(before) == curve.index(before + 1):
        lane.finish("mirror")
    elif outside:
        _cut(members, curve, ends[1] if log_tau > math.log(ends[0]) else ends[0])
        lane.finish("range")
    elif curve.index(before + 1) > _HIGHEST_INDEX:
        lane.finish("index")
    elif before > 10 and _close(curve, lane.length):
        lane.finish("closed")
    elif lane.steps > _MOST_STEPS:
        lane.finish("lost")
    if point.correction[row] < 0.05 * lane.length and bend > 0.995:
        lane.length = min(1.5 * lane.length, _LONGEST)


def _cosine(curve: Curve, point: _Point, row: int) -> float:
    """Of the angle between the tangents before and after a step."""
    with jax.enable_x64(True):
        return float(_bend(curve.positions[-1], point.x[row], curve.tangents[-1], point.tangent[row]))


@jax.jit
def _bend(x: jax.Array, y: jax.Array, before: jax.Array, after: jax.Array) -> jax.Array:
    n, d = x.shape
    ambient = jnp.einsum("iak,ia->ik", sphere.tangent_basis(x), before[:-1].reshape(n, d - 1))
    moved = jnp.einsum("iak,ik->ia", sphere.tangent_basis(y), sphere.transport(x, y, ambient)).ravel()
    return jnp.append(moved, before[-1]) @ after


def _close(curve: Curve, length: float) -> bool:
    gap = np.linalg.norm(curve.positions[-1] - curve.positions[0])
    return bool(np.hypot(gap, np.log(curve.temperatures[-1] / curve.temperatures[0])) < length / 2)


def _cut(members: Family, curve: Curve, end: float) -> None:
    """Replace the last point, outside the range, by one at its end."""
    (a, b), (x, y) = curve.temperatures[-2:], curve.positions[-2:]
    share = (math.log(end) - math.log(a)) / (math.log(b) - math.log(a))
    between = x + share * (y - x)
    between /= np.linalg.norm(between, axis=-1, keepdims=True)
    upright = np.append(np.zeros(len(curve.tangents[-1]) - 1), math.copysign(1.0, math.log(b / a)))
    point = _step(members, between[None], np.array([math.log(end)]), upright[None], np.zeros(1))
    for part in (curve.positions, curve.temperatures, curve.energies, curve.spectra, curve.tangents):
        part.pop()
    if point.residual[0] < _CONVERGED:
        curve.add(point, 0)


def locate(members: Family, curves: list[Curve]) -> None:
    """Find the events on curves by halving the steps that hold them, all at the same time."""
    found: list[tuple[Curve, int, str, int]] = []
    for curve in curves:
        for k in range(len(curve.temperatures) - 1):
            turned = curve.tangents[k][-1] * curve.tangents[k + 1][-1] < 0
            first, second = curve.index(k), curve.index(k + 1)
            if turned or first != second:
                kind = ("mirror" if first == second else "fold") if turned else "crossing"
                found.append((curve, k, kind, min(first, second)))
    if not found:
        return
    x = np.stack([curve.positions[k] for curve, k, _, _ in found])
    log_tau = np.log([curve.temperatures[k] for curve, k, _, _ in found])
    tangent = np.stack([curve.tangents[k] for curve, k, _, _ in found])
    low, high = np.zeros(len(found)), np.array([_arc_between(curve, k) for curve, k, _, _ in found])
    last = None
    for _ in range(_LOCATED):
        middle = (low + high) / 2
        last = _step(members, x, log_tau, tangent, middle)
        here, there = _signs(found, last)
        low, high = np.where(here == there, middle, low), np.where(here == there, high, middle)
    assert last is not None
    spectra = last.look.spectrum()
    for row, (curve, k, kind, mode) in enumerate(found):
        if not last.residual[row] < 1e-6:
            continue
        number = abs(curve.index(k + 1) - curve.index(k)) or 1
        modes = last.look.vectors[row][:, mode : mode + number].T
        curve.turns.append(Turn(kind, k, float(np.exp(last.log_tau[row])), float(last.look.energy[row]), last.x[row],
                                modes, spectra[row]))  # fmt: skip


def _arc_between(curve: Curve, k: int) -> float:
    """The step along the tangent of point k that reached point k + 1, a little more for the curvature of the curve."""
    gap = np.linalg.norm(2 * np.arcsin(np.clip(np.linalg.norm(curve.positions[k + 1] - curve.positions[k], axis=1) / 2,
                                               0, 1)))  # fmt: skip
    return 1.02 * float(np.hypot(gap, np.log(curve.temperatures[k + 1] / curve.temperatures[k])))


def _signs(found: list[tuple[Curve, int, str, int]], point: _Point) -> tuple[np.ndarray, np.ndarray]:
    """Signs, before an event and at a point, of what changes its own at the event."""
    before, here = [], []
    for row, (curve, k, kind, mode) in enumerate(found):
        if kind == "crossing":
            before.append(np.sign(curve.spectra[k][mode]))
            here.append(np.sign(point.look.values[row][mode]))
        else:
            before.append(np.sign(curve.tangents[k][-1]))
            here.append(np.sign(point.tangent[row][-1]))
    return np.array(before), np.array(here)
