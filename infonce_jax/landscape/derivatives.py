"""Energies, Riemannian gradients and Hessians of many configurations, always in double precision."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from infonce_jax import sphere
from infonce_jax.checks import instance
from infonce_jax.energies.base import Energy

__all__ = ["Derivatives", "derivatives", "displace", "double_precision", "energies_of"]


@dataclasses.dataclass(frozen=True)
class Derivatives:
    """Second-order picture of many configurations, in the orthonormal tangent bases of `sphere.tangent_basis`.

    Attributes:
        energy: shape (points,).
        gradient: shape (points, n(d-1)).
        hessian: shape (points, n(d-1), n(d-1)).
    """

    energy: np.ndarray
    gradient: np.ndarray
    hessian: np.ndarray


def double_precision(energy: Energy) -> Energy:
    """The energy with every floating leaf as float64 on the host."""
    return jax.tree.map(
        lambda a: np.asarray(a, np.float64) if jnp.issubdtype(jnp.result_type(a), jnp.floating) else a, energy
    )


@jax.jit
def _derivatives(energy: Energy, x: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    def one(y: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        value, euclidean = jax.value_and_grad(lambda z: energy(z))(y)
        coordinates = jnp.einsum("iak,ik->ia", sphere.tangent_basis(y), euclidean).ravel()
        return value, coordinates, sphere.hessian(lambda z: energy(z))(y)

    return jax.vmap(one)(x)


@jax.jit
def _energies(energy: Energy, x: jax.Array) -> jax.Array:
    return jax.vmap(lambda y: energy(y))(x)


_BATCH = 1024
_SMALL_BATCH = 64


def _in_batches(function: Any, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """Apply a compiled function of batches to arrays of any length, in two batch sizes only: each compiles once."""
    if not len(arrays[0]):  # shapes and dtypes of nothing, from one configuration that is thrown away
        one = _in_batches(function, *(np.ones((1, *a.shape[1:])) for a in arrays))
        return tuple(part[:0] for part in one)
    parts = []
    for start in range(0, len(arrays[0]), _BATCH):
        blocks = [np.asarray(a[start : start + _BATCH], np.float64) for a in arrays]
        length = len(blocks[0])
        extra = (_SMALL_BATCH if length <= _SMALL_BATCH else _BATCH) - length
        filled = [np.concatenate([b, np.broadcast_to(b[:1], (extra, *b.shape[1:]))]) for b in blocks]
        out = function(*filled)
        parts.append([np.asarray(part)[:length] for part in (out if isinstance(out, tuple) else (out,))])
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


@jax.jit
def _displace(x: jax.Array, coordinates: jax.Array) -> jax.Array:
    points, n, d = x.shape
    v = jnp.einsum("piak,pia->pik", sphere.tangent_basis(x), coordinates.reshape(points, n, d - 1))
    return sphere.exp(x, v)


_basis = jax.jit(sphere.tangent_basis)


def derivatives(energy: Energy, x: np.ndarray) -> Derivatives:
    """Energy, gradient and Hessian at configurations x, shape (points, n, d)."""
    with jax.enable_x64(True):
        energy = double_precision(energy)
        return Derivatives(*_in_batches(lambda block: _derivatives(energy, block), x))


def energies_of(energy: Energy, x: np.ndarray) -> np.ndarray:
    """Energies of many configurations in float64.

    Args:
        energy: the energy.
        x: shape (..., n, d), unit rows.

    Returns:
        Shape (...).
    """
    instance("energy", energy, Energy, "wrap a function with energies.from_function")
    x = np.asarray(x)
    flat = x.reshape(-1, *x.shape[-2:])
    with jax.enable_x64(True):
        energy = double_precision(energy)
        return _in_batches(lambda block: _energies(energy, block), flat)[0].reshape(x.shape[:-2])


def displace(x: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
    """Follow geodesics from x, shape (points, n, d), along tangent coordinates, shape (points, n(d-1))."""
    with jax.enable_x64(True):
        return _in_batches(_displace, x, coordinates)[0]


def frame(x: np.ndarray, vectors: Any) -> np.ndarray:
    """Tangent coordinates, shape (points, n(d-1)), of ambient vectors of x's shape."""
    with jax.enable_x64(True):
        basis = _in_batches(_basis, x)[0]
    return np.einsum("piak,pik->pia", basis, vectors).reshape(len(x), basis.shape[1] * basis.shape[2])
