"""An energy as a function of configuration and loss temperature: derivatives, descents and steps along tau, in lanes.

Everything here is compiled once for a shape and a kind of energy: weights, temperatures and rotations are arguments.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from infonce_jax import sphere
from infonce_jax.checks import InputError, instance, refuse
from infonce_jax.energies.base import Energy
from infonce_jax.landscape.derivatives import double_precision
from infonce_jax.landscape.symmetry import Symmetry

__all__ = ["Family", "Look", "Settled", "advance", "displaced", "family", "in_lanes", "look", "look_once",
           "require_temperature", "settle"]  # fmt: skip

_LANES = (8, 64, 512)
_FURTHEST = 0.1  # radians, all embeddings together: how far one step of a descent goes
_MOST_STEPS = 400
_TIMES = 2.0 ** np.arange(-12, 25)  # of a step along the flow, in units of 1/curvature
_CONVERGED = 1e-11  # of the gradient, relative to 1 + curvature
_STABLE = 1e-7  # of the curvature: below minus this a mode is unstable


@dataclasses.dataclass(frozen=True, eq=False)
class Family:
    """One energy at every temperature from the lowest it was made for upwards.

    Attributes:
        energy: float64 leaves; its form is one that is safe at the lowest temperature, and so at all higher ones.
        generators: of the rotations that leave it alone, shape (g, d, d).
        symmetry: of the energy, at every temperature.
    """

    energy: Energy
    generators: np.ndarray
    symmetry: Symmetry

    def at(self, temperature: float) -> Energy:
        """The energy at one temperature, always of the same form, so that nothing compiles twice."""
        with jax.enable_x64(True):
            return _at(self.energy, np.float64(temperature))


@jax.jit
def _at(energy: Energy, temperature: Any) -> Energy:
    return energy.with_temperature(temperature)


def family(energy: Energy, lowest: float, symmetry: Symmetry) -> Family:
    """Prepare an energy for temperatures from `lowest` upwards.

    Raises:
        InputError: it is no energy, or it has no temperature.
    """
    instance("energy", energy, Energy, "wrap a function with energies.from_function")
    require_temperature(energy)
    with jax.enable_x64(True):
        exact = jax.tree.map(jnp.asarray, double_precision(energy.with_temperature(lowest)))
    return Family(exact, symmetry.generators, symmetry)


def require_temperature(energy: Energy) -> None:
    """Refuse an energy whose temperature cannot be changed."""
    instance("energy", energy, Energy, "wrap a function with energies.from_function")
    try:
        energy.with_temperature(1.0)
    except InputError:
        raise refuse("energy", f"a {type(energy).__name__} without a temperature", "a temperature inside the loss",
                     "build it with energies.graph_infonce or another energy that has one") from None  # fmt: skip


class Look(NamedTuple):
    """Critical or not: what a configuration looks like, in the coordinates of `sphere.tangent_basis`, m = n(d-1).

    Attributes:
        energy: shape (...).
        gradient: without the directions of rotations, shape (..., m).
        hessian: rotations cut out and put far above all other modes, shape (..., m, m).
        values: its eigenvalues, ascending; those of rotations are the last `rank`.
        vectors: its eigenvectors in columns.
        slope: d gradient / d tau, without rotations, shape (..., m).
        rank: how many directions rotations have here.
        curvature: largest entry of the plain Hessian, the scale for all tolerances.
    """

    energy: Any
    gradient: Any
    hessian: Any
    values: Any
    vectors: Any
    slope: Any
    rank: Any
    curvature: Any

    def spectrum(self) -> np.ndarray:
        """Eigenvalues of the modes that are no rotation, padded at the end with NaN, shape (points, m)."""
        place = np.arange(self.values.shape[-1])
        return np.where(place < self.values.shape[-1] - np.asarray(self.rank)[..., None], self.values, np.nan)


def look_once(energy: Energy, generators: jax.Array, x: jax.Array, tau: jax.Array) -> Look:
    """`look` at one configuration x, shape (n, d); array code, for loops that are compiled as a whole.

    Args:
        energy: at any temperature.
        generators: of the rotations, shape (number, d, d).
        x: unit rows.
        tau: the temperature.
    """
    basis = sphere.tangent_basis(x)

    def coordinates(t: jax.Array) -> jax.Array:
        euclidean = jax.grad(lambda z: energy.with_temperature(t)(z))(x)
        return jnp.einsum("iak,ik->ia", basis, euclidean).ravel()

    here = energy.with_temperature(tau)
    gradient, slope = jax.jvp(coordinates, (tau,), (jnp.ones_like(tau),))
    hessian = sphere.hessian(lambda z: here(z))(x)
    onto, rank = _rotations(generators, x, basis)
    kept = jnp.eye(len(gradient)) - onto
    curvature = jnp.max(jnp.abs(hessian))
    # No eigenvalue exceeds the largest sum of a row.
    above = 1.0 + 2 * jnp.max(jnp.sum(jnp.abs(hessian), axis=1))
    internal = kept @ hessian @ kept + above * onto
    internal = (internal + internal.T) / 2
    values, vectors = jnp.linalg.eigh(internal)
    return Look(here(x), kept @ gradient, internal, values, vectors, kept @ slope, rank, curvature)


def _rotations(generators: jax.Array, x: jax.Array, basis: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Projector onto the directions in which rotations move x, and how many there are."""
    m = basis.shape[0] * basis.shape[1]
    if not len(generators):
        return jnp.zeros((m, m)), jnp.zeros((), int)
    moves = jnp.einsum("nd,ged->gne", x, generators)
    rows = jnp.einsum("iak,gik->gia", basis, moves).reshape(len(generators), m)
    sizes, turn = jnp.linalg.eigh(rows @ rows.T)
    there = sizes > 1e-12  # collinear configurations have fewer directions than there are rotations
    inverse = jnp.where(there, 1 / jnp.where(there, sizes, 1.0), 0.0)
    scaled = turn.T @ rows
    return scaled.T @ (inverse[:, None] * scaled), jnp.sum(there)


def _along_flow(here: Look, radius: jax.Array) -> jax.Array:
    """The longest step, up to `radius`, along the gradient flow of the quadratic that fits here.

    In each mode the flow goes as (1 - exp(-lambda t))/lambda; in a bowl it ends at Newton's step.
    """
    slopes = here.vectors.T @ here.gradient
    least = 1e-9 * here.curvature
    ridge = (here.values < -_STABLE * here.curvature) & (jnp.abs(slopes) < least)
    slopes = jnp.where(ridge, least, slopes)  # the flow would stay on a ridge for ever
    times = jnp.asarray(_TIMES)[:, None] / jnp.maximum(here.curvature, 1e-300)
    z = jnp.maximum(here.values * times, -60.0)
    tiny = jnp.abs(z) < 1e-8
    reached = times * jnp.where(tiny, 1.0, -jnp.expm1(-z) / jnp.where(tiny, 1.0, z))
    lengths = jnp.linalg.norm(reached * slopes, axis=1)
    chosen = jnp.maximum(jnp.sum(lengths <= radius) - 1, 0)
    step = -reached[chosen] * slopes
    return here.vectors @ (step * jnp.minimum(1.0, radius / jnp.maximum(lengths[chosen], 1e-300)))


def displaced(x: jax.Array, coordinates: jax.Array) -> jax.Array:
    """The end of the geodesic from x, shape (n, d), along coordinates in its tangent basis, shape (n(d-1),)."""
    n, d = x.shape
    return sphere.exp(x, jnp.einsum("iak,ia->ik", sphere.tangent_basis(x), coordinates.reshape(n, d - 1)))


class Settled(NamedTuple):
    """Where descents ended, shape (points, n, d), what it looks like there, and whether it is a minimum."""

    x: Any
    look: Look
    converged: Any


class _State(NamedTuple):
    x: Any
    here: Look
    radius: Any
    step: Any


def _at_rest(here: Look) -> jax.Array:
    small = jnp.linalg.norm(here.gradient) < _CONVERGED * (1 + here.curvature)
    return small & (here.values[0] > -_STABLE * here.curvature)


def _settle(energy: Energy, generators: jax.Array, x: jax.Array, tau: jax.Array, furthest: jax.Array) -> Settled:
    def descend(s: _State) -> _State:
        # The first pass only looks, so that the derivatives are compiled once.
        y = jnp.where(s.step == 0, s.x, displaced(s.x, _along_flow(s.here, s.radius)))
        there = look_once(energy, generators, y, tau)
        rounding = 1e-13 * (1 + jnp.abs(there.energy))
        lower = there.energy < s.here.energy - rounding
        level = jnp.abs(there.energy - s.here.energy) <= rounding
        smaller = jnp.sum(there.gradient**2) < jnp.sum(s.here.gradient**2)
        better = lower | (level & (smaller | (s.here.values[0] < -_STABLE * s.here.curvature)))
        x, here = jax.tree.map(lambda new, old: jnp.where(better, new, old), (y, there), (s.x, s.here))
        radius = jnp.where(better, jnp.minimum(2 * s.radius, furthest), s.radius / 4)
        return _State(x, here, radius, s.step + 1)

    def busy(s: _State) -> jax.Array:
        return (s.step == 0) | (~_at_rest(s.here) & (s.step < _MOST_STEPS) & (s.radius > 1e-12))

    shapes = jax.eval_shape(lambda y: look_once(energy, generators, y, tau), x)
    nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), shapes)._replace(energy=jnp.full((), jnp.inf))
    last = jax.lax.while_loop(busy, descend, _State(x, nothing, furthest, jnp.zeros((), int)))
    # Rounding may stop a descent a little before the goal.
    near = jnp.linalg.norm(last.here.gradient) < 1e-8 * (1 + last.here.curvature)
    stable = jnp.isfinite(last.here.energy) & (last.here.values[0] > -_STABLE * last.here.curvature)
    return Settled(last.x, last.here, near & stable)


def _advance(
    energy: Energy, generators: jax.Array, x: jax.Array, tau: jax.Array, new_tau: jax.Array
) -> tuple[Settled, jax.Array, jax.Array]:
    """From a minimum at tau to the one below its continuation at another temperature.

    Returns:
        Where it settles, how far the predicted continuation is from x, and how far the minimum from the prediction.
    """
    here = look_once(energy, generators, x, tau)
    slopes = here.vectors.T @ here.slope
    values = jnp.maximum(here.values, 1e-6 * here.curvature)
    velocity = -here.vectors @ (slopes / values)
    step = velocity * (new_tau - tau)
    length = jnp.linalg.norm(step)
    predicted = displaced(x, step * jnp.minimum(1.0, 0.2 / jnp.maximum(length, 1e-300)))
    end = _settle(energy, generators, predicted, new_tau, jnp.asarray(_FURTHEST))
    return end, length, sphere.product_distance(predicted, end.x)


_look_lanes = jax.jit(jax.vmap(look_once, (None, None, 0, 0)))
_settle_lanes = jax.jit(jax.vmap(_settle, (None, None, 0, 0, 0)))
_advance_lanes = jax.jit(jax.vmap(_advance, (None, None, 0, 0, 0)))


def in_lanes(function: Any, members: Family, *arrays: Any) -> Any:
    """Apply a compiled function of lanes to arrays of any length, in three sizes only: each compiles once."""
    total = len(arrays[0])
    size = next((lanes for lanes in _LANES if total <= lanes), _LANES[-1])
    parts = []
    with jax.enable_x64(True):
        for start in range(0, max(total, 1), size):
            blocks = [np.asarray(a[start : start + size], np.float64) for a in arrays]
            length = len(blocks[0])
            filled = [np.concatenate([b, np.broadcast_to(b[:1], (size - length, *b.shape[1:]))]) for b in blocks]
            out = function(members.energy, members.generators, *filled)
            parts.append(jax.tree.map(lambda a, k=length: np.asarray(a)[:k], out))
    return jax.tree.map(lambda *columns: np.concatenate(columns), *parts)


def _full(x: np.ndarray, tau: Any) -> np.ndarray:
    return np.broadcast_to(np.asarray(tau, np.float64), (len(x),))


def look(members: Family, x: np.ndarray, tau: Any) -> Look:
    """Derivatives at configurations x, shape (points, n, d), at one temperature or one for each; NumPy arrays."""
    return in_lanes(_look_lanes, members, x, _full(x, tau))


def settle(members: Family, x: np.ndarray, tau: Any, furthest: float = _FURTHEST) -> Settled:
    """Descend from x, shape (points, n, d), along the gradient flow to minima, polished to rounding.

    Each step follows the flow of the local quadratic over at most `furthest` radians, an exponential integrator
    (Hochbruck and Ostermann 2010, "Exponential integrators"), which becomes Newton's step at the bottom; points on a
    ridge are pushed off it.
    """
    return in_lanes(_settle_lanes, members, x, _full(x, tau), _full(x, furthest))


def advance(members: Family, x: np.ndarray, tau: Any, new_tau: Any) -> tuple[Settled, np.ndarray, np.ndarray]:
    """Minima x at tau followed to another temperature in one step: see `_advance`."""
    return in_lanes(_advance_lanes, members, x, _full(x, tau), _full(x, new_tau))
