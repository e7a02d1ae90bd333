"""Functions of a configuration that grow on the way out of a trap, for `measure.splitting`.

Splitting is unbiased with any of them; a good one only makes its intervals short. Any JAX function of positions (n, d)
that returns a scalar will do.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from infonce_jax.checks import as_unit_rows
from infonce_jax.sphere import product_distance

__all__ = ["Coordinate", "distance_from", "distance_to", "winding"]


@dataclasses.dataclass(frozen=True, eq=False)
class Coordinate:
    """Signed distance to the nearest of some configurations; see `distance_to` and `distance_from`."""

    points: np.ndarray
    sign: float
    up_to_rotation: bool

    def __call__(self, x: jax.Array) -> jax.Array:
        points = jnp.asarray(self.points, x.dtype)
        if self.up_to_rotation:
            gram = x @ x.T
            squared = [jnp.sum((gram - p @ p.T) ** 2) for p in points]
            return self.sign * jnp.sqrt(jnp.min(jnp.stack(squared)))
        return self.sign * jnp.min(jnp.stack([product_distance(p, x) for p in points]))


def _coordinate(points: Any, sign: float, up_to_rotation: bool) -> Coordinate:
    p = as_unit_rows("points", points, ndims=(2, 3))
    return Coordinate(p[None] if p.ndim == 2 else p, sign, bool(up_to_rotation))


def distance_to(points: Any, up_to_rotation: bool = False) -> Coordinate:
    """Minus the distance to the nearest of some configurations: grows towards a target.

    Args:
        points: shape (n, d) or (m, n, d), for example the copies of the global minimum.
        up_to_rotation: measure |X X^T - P P^T| (Frobenius norm of the difference of all inner products, which rotations
            and reflections leave alone) in place of the geodesic distance in radians; right for energies without
            frozen keys.

    Raises:
        InputError: points that are not unit rows.
    """
    return _coordinate(points, -1.0, up_to_rotation)


def distance_from(points: Any, up_to_rotation: bool = False) -> Coordinate:
    """The distance to the nearest of some configurations: grows away from a start, whichever way the chain leaves.

    Arguments and errors as `distance_to`.
    """
    return _coordinate(points, 1.0, up_to_rotation)


def winding(x: jax.Array) -> jax.Array:
    """How far a closed chain of embeddings on the circle is on the way from winding number 0 to another one.

    Between neighbours i, i + 1 (and last, first) lies an angle in (-pi, pi]; their sum is 2 pi times the winding
    number, which changes when one of them passes pi and at no other time. So the coordinate is the largest of their
    sizes where the chain does not wind, and 2 pi minus it where it does: continuous, pi on the border, and not changed
    by rotations, reflections or a shift of the order. Right for rings (`scenarios.ring`, `digit_orbit`), whose saddle
    has one link stretched to some 145 degrees.

    Args:
        x: shape (n, 2), embeddings in the order of the ring.

    Returns:
        Scalar, radians.
    """
    y = jnp.roll(x, -1, axis=0)
    link = jnp.arctan2(x[:, 0] * y[:, 1] - x[:, 1] * y[:, 0], jnp.sum(x * y, axis=1))
    longest = jnp.max(jnp.abs(link))
    return jnp.where(jnp.abs(jnp.sum(link)) < np.pi, longest, 2 * np.pi - longest)
