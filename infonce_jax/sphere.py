"""Geometry of a product of spheres (S^{d-1})^n.

A point is an array of shape (..., d) with unit rows: the last axis is R^d, every leading axis counts factors. Tangent
vectors have the same shape and are orthogonal to the point row by row. All functions are pure, differentiable where the
mathematics is, and safe in single precision at zero, near coincidence and near the antipode.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

__all__ = [
    "distance",
    "exp",
    "gradient",
    "hessian",
    "log",
    "product_distance",
    "project",
    "tangent_basis",
    "to_tangent",
    "transport",
    "uniform",
]

# Below this angle sin(r)/r and its inverse come from series: a quotient of two small numbers has no gradient at 0.
_SMALL = 1e-2


def _dot(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.sum(x * y, axis=-1, keepdims=True)


def _norm(x: jax.Array) -> jax.Array:
    """Row norms, shape (..., 1), with gradient zero (not NaN) at zero."""
    squared = _dot(x, x)
    positive = squared > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, squared, 1.0)), 0.0)


def project(x: jax.Array) -> jax.Array:
    """Nearest point of the product of spheres: every row divided by its norm.

    Args:
        x: shape (..., d), no zero row.

    Returns:
        Unit rows, shape (..., d). A zero row has no nearest point and becomes NaN.
    """
    return x / jnp.linalg.norm(x, axis=-1, keepdims=True)


def to_tangent(x: jax.Array, v: jax.Array) -> jax.Array:
    """Orthogonal projection of v onto the tangent space at x: v - <v, x> x, row by row.

    Args:
        x: point, shape (..., d).
        v: ambient vector, shape (..., d).
    """
    return v - _dot(v, x) * x


def exp(x: jax.Array, v: jax.Array) -> jax.Array:
    """Exponential map: follow the geodesic from x with velocity v for unit time.

    exp_x(v) = cos|v| x + (sin|v|/|v|) v, renormalised, so that rounding does not accumulate over a long chain.

    Args:
        x: point, shape (..., d).
        v: tangent vector at x, shape (..., d); any length.
    """
    squared = _dot(v, v)
    small = squared < _SMALL * _SMALL  # as a series in |v|^2 the map has all its derivatives at v = 0
    r = jnp.sqrt(jnp.where(small, 1.0, squared))
    cosine = jnp.where(small, 1 - squared / 2 * (1 - squared / 12), jnp.cos(r))
    sinc = jnp.where(small, 1 - squared / 6 * (1 - squared / 20), jnp.sin(r) / r)
    return project(cosine * x + sinc * v)


def distance(x: jax.Array, y: jax.Array) -> jax.Array:
    """Great-circle distance of each pair of rows, in radians: 2 atan2(|x - y|, |x + y|).

    Accurate at every angle, where arccos<x, y> loses half its digits near 0 and pi (Kahan's formula).

    Returns:
        Shape (...), between 0 and pi; its gradient is zero at coincidence.
    """
    return 2 * jnp.arctan2(_norm(x - y), _norm(x + y))[..., 0]


def product_distance(x: jax.Array, y: jax.Array) -> jax.Array:
    """Geodesic distance on the product manifold, (sum over the factors of distance^2)^(1/2).

    Args:
        x: shape (..., n, d).
        y: shape (..., n, d).

    Returns:
        Shape (...), in radians.
    """
    return _norm(distance(x, y))[..., 0]


def log(x: jax.Array, y: jax.Array) -> jax.Array:
    """Logarithm map: the shortest tangent vector v at x with exp(x, v) = y.

    Args:
        x: point, shape (..., d).
        y: point, shape (..., d).

    Returns:
        Tangent vector, shape (..., d), zero where y = x. At the antipode y = -x every direction is shortest and the
        result is NaN: there is no right answer to return silently.
    """
    behind = _dot(x, y) < 0
    # y - x and y + x keep digits that y - <x, y> x would cancel; at the antipode y + x is exactly zero, not rounding.
    chord = to_tangent(x, jnp.where(behind, y + x, y - x))
    length = _norm(chord)
    angle = distance(x, y)[..., None]
    small = length < _SMALL
    series = 1 + length * length * (1 / 6 + length * length * (3 / 40))  # arcsin(s)/s
    ratio = jnp.where(small, series, angle / jnp.where(small, 1.0, length))
    # Near the antipode the chord is short but the angle is not: the plain quotient is right there.
    safe = jnp.where(length > 0, length, 1.0)
    ratio = jnp.where(small & behind, jnp.where(length > 0, angle / safe, jnp.nan), ratio)
    return ratio * chord


def transport(x: jax.Array, y: jax.Array, v: jax.Array) -> jax.Array:
    """Parallel transport of the tangent vector v from x to y along the shortest geodesic.

    v - <y, v>/(1 + <x, y>) (x + y), which needs no angle. Not finite at the antipode, where no geodesic is shortest.

    Args:
        x: start, shape (..., d).
        y: end, shape (..., d).
        v: tangent vector at x, shape (..., d).
    """
    middle = x + y
    return v - _dot(y, v) * 2 / _dot(middle, middle) * middle


def uniform(key: jax.Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.Array:
    """Independent uniform points, shape (..., d), from normalised Gaussians.

    Args:
        key: a JAX random key.
        shape: shape of the result; the last entry is d.
        dtype: float type of the result.
    """
    return project(jax.random.normal(key, shape, dtype))


def gradient(function: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
    """Riemannian gradient of a scalar function of one configuration: the tangent part of its Euclidean gradient.

    >>> import jax.numpy as jnp
    >>> gradient(lambda x: x[0, 1])(jnp.array([[1.0, 0.0]]))
    Array([[0., 1.]], dtype=float32)
    """
    euclidean = jax.grad(function)

    def riemannian(x: jax.Array) -> jax.Array:
        return to_tangent(x, euclidean(x))

    return riemannian


def tangent_basis(x: jax.Array) -> jax.Array:
    """Orthonormal basis of the tangent space of each row: shape (..., d - 1, d).

    The Householder reflection that maps the last axis to +-x maps the other axes to the basis; choosing the sign away
    from x keeps it stable everywhere.
    """
    d = x.shape[-1]
    sign = jnp.where(x[..., -1:] >= 0, 1.0, -1.0).astype(x.dtype)
    axis = jnp.zeros(d, x.dtype).at[-1].set(1)
    w = x + sign * axis
    w = w / jnp.linalg.norm(w, axis=-1, keepdims=True)
    return jnp.eye(d, dtype=x.dtype)[:-1] - 2 * w[..., :-1, None] * w[..., None, :]


def hessian(function: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
    """Riemannian Hessian of a scalar function of one configuration, in the basis of `tangent_basis`.

    Hess_ij = P_i (d^2 E/dz_i dz_j) P_j - delta_ij <z_i, dE/dz_i> P_i: the second derivative along geodesics. (Absil,
    Mahony and Trumpf 2013, "An extrinsic look at the Riemannian Hessian".)

    Returns:
        A function from x, shape (n, d), to a symmetric matrix, shape (n(d-1), n(d-1)).
    """
    euclidean = jax.grad(function)

    def riemannian(x: jax.Array) -> jax.Array:
        n, d = x.shape
        basis = tangent_basis(x)
        second = jax.jacfwd(euclidean)(x)
        curved = jnp.einsum("iak,ikjl,jbl->iajb", basis, second, basis, precision=jax.lax.Precision.HIGHEST)
        radial = jnp.sum(x * euclidean(x), axis=-1)
        flat = curved.reshape(n * (d - 1), n * (d - 1)) - jnp.diag(jnp.repeat(radial, d - 1))
        return (flat + flat.T) / 2

    return riemannian
