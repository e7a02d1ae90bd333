"""Quenches: follow the gradient flow downhill from many configurations, then polish with Newton's method."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from infonce_jax.checks import instance
from infonce_jax.devices import chain_mesh
from infonce_jax.energies.base import Energy
from infonce_jax.landscape.derivatives import Derivatives, derivatives, displace, double_precision
from infonce_jax.lanes import from_columns, lane_examples, to_columns, vectorise
from infonce_jax.sphere import to_tangent
from infonce_jax.unroll import CannotUnrollError

__all__ = ["newton_polish", "quench"]

_ROUND = 50  # iterations between looks at who has arrived
_MOST_ROUNDS = 400
_LANES, _FEW_LANES = 1024, 64  # per device
_MANY = 512  # configurations from which scalar code earns back its longer compilation
# Armijo's constant near 1/2 keeps a step near 1/curvature, and no step moves further than a tenth of a radian: the
# descent follows the flow, and only points next to a separatrix may end on its other side.
_SUFFICIENT, _FURTHEST = 0.4, 0.1


class _Descent(NamedTuple):
    x: Any  # (n, d); lanes in front where many descend together
    energy: Any
    gradient: Any
    step: Any


def _descend_once(state: _Descent, energy: Energy) -> _Descent:
    """One step of steepest descent with a step size that adapts to each configuration."""
    squared = jnp.sum(state.gradient**2)
    size = jnp.minimum(state.step, _FURTHEST / jnp.sqrt(jnp.maximum(squared, _FURTHEST**2 / 100)))
    y = state.x - size * state.gradient
    y = y * jax.lax.rsqrt(jnp.sum(y * y, axis=-1, keepdims=True))
    value, euclidean = jax.value_and_grad(lambda z: energy(z))(y)
    gradient = to_tangent(y, euclidean)
    # Rounding of the energy hides the decrease near a minimum; there the gradient's own decrease decides.
    small = size * squared < 1e-12 * (1 + jnp.abs(state.energy))
    enough = value <= state.energy - _SUFFICIENT * size * squared
    accepted = jnp.where(small, jnp.sum(gradient**2) <= squared, enough)
    step = jnp.where(accepted, jnp.minimum(size * 1.2, 10.0), size * 0.5)
    moved = _Descent(y, value, gradient, step)
    kept = state._replace(step=step)
    return _Descent(*(jnp.where(accepted, new, old) for new, old in zip(moved, kept, strict=True)))


@functools.partial(jax.jit, static_argnames=("scalars", "mesh"))
def _descend(state: _Descent, energy: Energy, *, scalars: bool, mesh: Mesh) -> _Descent:
    def on_device(state: _Descent, energy: Energy) -> _Descent:
        if not scalars:
            one = jax.vmap(_descend_once, (0, None))
            return jax.lax.fori_loop(0, _ROUND, lambda _, s: one(s, energy), state)
        example, shared = lane_examples(state), jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), energy)
        step = vectorise(_descend_once, (example,), (shared,))
        return from_columns(jax.lax.fori_loop(0, _ROUND, lambda _, c: step(c, energy), to_columns(state)), example)

    lanes, everywhere = PartitionSpec("chains"), PartitionSpec()
    return jax.shard_map(on_device, mesh=mesh, in_specs=(lanes, everywhere), out_specs=lanes, check_vma=False)(
        state, energy
    )


@jax.jit
def _begin(x: jax.Array, energy: Energy) -> _Descent:
    value, gradient = jax.vmap(jax.value_and_grad(lambda z: energy(z)))(x)
    return _Descent(x, value, to_tangent(x, gradient), jnp.full(x.shape[0], 0.01, x.dtype))


@functools.lru_cache(maxsize=64)
def _has_scalar_form(structure: Any, shapes: tuple[Any, ...], n: int, d: int) -> bool:
    """Whether descent on this energy unrolls; asked once per kind of energy."""
    if n * d > 48:
        return False
    energy = jax.tree.unflatten(structure, [jax.ShapeDtypeStruct(s, t) for s, t in shapes])
    x, one = jax.ShapeDtypeStruct((n, d), jnp.float64), jax.ShapeDtypeStruct((), jnp.float64)
    try:
        vectorise(_descend_once, (_Descent(x, one, x, one),), (energy,))
    except CannotUnrollError:
        return False
    return True


def quench(
    energy: Energy,
    x: np.ndarray,
    gradient_below: float = 1e-4,
    levels: np.ndarray | None = None,
    window: float = 0.0,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Follow the steepest descent from x until the gradient is small.

    Args:
        energy: the energy.
        x: shape (points, n, d), unit rows.
        gradient_below: stop where the norm of the Riemannian gradient is below this.
        levels: energies of known minima. When given, a configuration stops only within `window` above one of them (or
            with a gradient a thousand times smaller): slow passages near a saddle are not arrivals.
        window: see `levels`.

    Returns:
        Positions (points, n, d), energies (points,), gradient norms (points,), in float64. A configuration that has not
        arrived after 20,000 steps is returned where it is.
    """
    instance("energy", energy, Energy, "wrap a function with energies.from_function")
    x = np.asarray(x, np.float64)
    with jax.enable_x64(True):
        energy = jax.tree.map(jnp.asarray, double_precision(energy))
        leaves, structure = jax.tree.flatten(energy)
        shapes = tuple((a.shape, a.dtype) for a in leaves)
        scalars = len(x) >= _MANY and _has_scalar_form(structure, shapes, *x.shape[1:])
        pool = _Pool(energy, scalars, x)
        while pool.busy:
            pool.advance(_Arrival(gradient_below, levels, window))
    return pool.x, pool.energies, pool.norms


class _Arrival(NamedTuple):
    """When a configuration has reached the bottom."""

    gradient_below: float
    levels: np.ndarray | None
    window: float

    def __call__(self, energy: np.ndarray, norm: np.ndarray) -> np.ndarray:
        arrived = norm < self.gradient_below
        if self.levels is not None and len(self.levels):
            above = energy[:, None] - np.asarray(self.levels)[None]
            close = np.any(np.abs(above) < self.window, axis=1)
            arrived &= close | (norm < 1e-3 * self.gradient_below)
        return arrived


class _Pool:
    """A fixed number of lanes that descend together; a lane that has arrived takes the next configuration in line.

    The shape never changes, so the loop compiles once however many configurations there are and however unevenly they
    converge.
    """

    def __init__(self, energy: Energy, scalars: bool, x: np.ndarray) -> None:
        self.energy, self.scalars, self.mesh = energy, scalars, chain_mesh()
        lanes = (_FEW_LANES if len(x) <= _FEW_LANES * self.mesh.size else _LANES) * self.mesh.size
        self.x, self.energies, self.norms = x.copy(), np.empty(len(x)), np.empty(len(x))
        self.waiting = min(lanes, len(x))
        self.owner = np.where(np.arange(lanes) < len(x), np.arange(lanes), -1)
        self.rounds = np.zeros(lanes, dtype=int)
        self.state = self._begin(x[np.maximum(self.owner, 0)])

    def _begin(self, x: np.ndarray) -> _Descent:
        return _Descent(*(np.array(part) for part in _begin(jnp.asarray(x), self.energy)))

    @property
    def busy(self) -> bool:
        return bool(np.any(self.owner >= 0))

    def advance(self, arrival: _Arrival) -> None:
        new = _descend(_Descent(*map(jnp.asarray, self.state)), self.energy, scalars=self.scalars, mesh=self.mesh)
        self.state = _Descent(*(np.array(part) for part in new))
        self.rounds += 1
        norm = np.sqrt(np.sum(self.state.gradient**2, axis=(1, 2)))
        leaving = (self.owner >= 0) & (arrival(self.state.energy, norm) | (self.rounds >= _MOST_ROUNDS))
        lanes = np.flatnonzero(leaving)
        if not len(lanes):
            return
        who = self.owner[lanes]
        self.x[who], self.energies[who], self.norms[who] = self.state.x[lanes], self.state.energy[lanes], norm[lanes]
        self.owner[lanes] = -1
        self._refill(lanes)

    def _refill(self, lanes: np.ndarray) -> None:
        number = min(len(lanes), len(self.x) - self.waiting)
        lanes = lanes[:number]
        if not number:
            return
        self.owner[lanes] = self.waiting + np.arange(number)
        self.waiting += number
        self.rounds[lanes] = 0
        fresh = self._begin(self.x[np.maximum(self.owner, 0)])
        for part, new in zip(self.state, fresh, strict=True):
            part[lanes] = new[lanes]


def newton_polish(
    energy: Energy, x: np.ndarray, iterations: int = 30, gradient_below: float = 1e-12
) -> tuple[np.ndarray, Derivatives]:
    """Newton's method on the gradient, from points already close to critical ones, zero modes left out.

    Returns:
        Positions (points, n, d) and their derivatives. What does not converge stays where it is least bad.
    """
    here = derivatives(energy, x)
    for _ in range(iterations):
        norm = np.linalg.norm(here.gradient, axis=1)
        if np.all(norm < gradient_below):
            break
        values, vectors = np.linalg.eigh(here.hessian)
        slope = np.einsum("pij,pi->pj", vectors, here.gradient)
        flat = np.abs(values) < 1e-7 * np.max(np.abs(values), axis=1, keepdims=True)
        step = -np.where(flat, 0.0, slope / np.where(flat, 1.0, values))
        length = np.linalg.norm(step, axis=1, keepdims=True)
        step *= np.minimum(1.0, 0.2 / np.maximum(length, 1e-300))
        moved = displace(x, np.einsum("pij,pj->pi", vectors, step))
        there = derivatives(energy, moved)
        better = np.linalg.norm(there.gradient, axis=1) < norm
        if not better.any():
            break
        x = np.where(better[:, None, None], moved, x)
        here = Derivatives(*(np.where(better.reshape(-1, *[1] * (a.ndim - 1)), b, a)
                             for a, b in ((here.energy, there.energy), (here.gradient, there.gradient),
                                          (here.hessian, there.hessian))))  # fmt: skip
    return x, here
