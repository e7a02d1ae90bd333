"""Energies, Riemannian gradients and Hessians of many configurations, in double precision whatever the global setting."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from infonce_jax import sphere
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


def padded_length(count: int) -> int:
    """Batch sizes rounded up to a power of two, so that a shrinking batch does not compile anew at each size."""
    return max(16, 1 << (count - 1).bit_length())


def padded(x: np.ndarray) -> np.ndarray:
    """x with its first row repeated up to `padded_length`."""
    extra = padded_length(len(x)) - len(x)
    return np.concatenate([x, np.broadcast_to(x[:1], (extra, *x.shape[1:]))])


def derivatives(energy: Energy, x: np.ndarray, batch: int = 1024) -> Derivatives:
    """Energy, gradient and Hessian at configurations x, shape (points, n, d)."""
    with jax.enable_x64(True):
        energy = double_precision(energy)
        parts = []
        for start in range(0, len(x), batch):
            block = x[start : start + batch]
            out = _derivatives(energy, padded(block))
            parts.append([np.asarray(part)[: len(block)] for part in out])
    return Derivatives(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def energies_of(energy: Energy, x: np.ndarray) -> np.ndarray:
    """Energies of configurations x, shape (points, n, d), in float64."""
    with jax.enable_x64(True):
        return np.asarray(_energies(double_precision(energy), padded(np.asarray(x, np.float64))))[: len(x)]


def displace(x: np.ndarray, coordinates: np.ndarray) -> np.ndarray:
    """Follow geodesics from x, shape (points, n, d), along tangent coordinates, shape (points, n(d-1))."""
    with jax.enable_x64(True):
        basis = np.asarray(sphere.tangent_basis(jnp.asarray(x)))
        points, n, d = x.shape
        v = np.einsum("piak,pia->pik", basis, coordinates.reshape(points, n, d - 1))
        return np.asarray(sphere.exp(jnp.asarray(x), jnp.asarray(v)))


def frame(x: np.ndarray, vectors: Any) -> np.ndarray:
    """Tangent coordinates, shape (points, n(d-1)), of ambient vectors of x's shape."""
    with jax.enable_x64(True):
        basis = np.asarray(sphere.tangent_basis(jnp.asarray(x)))
    return np.einsum("piak,pik->pia", basis, vectors).reshape(len(x), -1)
