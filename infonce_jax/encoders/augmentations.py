"""Views of a small grey image: pure functions of (key, image), for jax.vmap over many keys and images.

Every one keeps grey values between 0 and 1, where 0 is the background.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jax.scipy.ndimage import map_coordinates

from infonce_jax.checks import finite, refuse

__all__ = ["Augmentation", "erased", "moved", "noisy"]


@dataclasses.dataclass(frozen=True)
class Augmentation:
    """How strongly an image is changed from one view to the next: move, add noise, erase, in this order.

    Attributes:
        shift: largest shift along each axis, in pixels.
        turn: largest rotation, in degrees.
        noise: standard deviation of the noise of a pixel.
        erase: largest side of the erased rectangle, as a share of the image's.

    Raises:
        InputError: a strength below 0, or `erase` above 1.
    """

    shift: float = 0.0
    turn: float = 0.0
    noise: float = 0.0
    erase: float = 0.0

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            strength = finite(field.name, getattr(self, field.name))
            if strength < 0 or (field.name == "erase" and strength > 1):
                bounds = "between 0 and 1" if field.name == "erase" else "at least 0"
                raise refuse(field.name, f"{strength:g}", f"a number {bounds}", "0 leaves this change out")

    def __call__(self, key: jax.Array, image: jax.Array) -> jax.Array:
        """A view of one image of shape (height, width)."""
        move, grain, hole = jax.random.split(key, 3)
        if self.shift or self.turn:
            image = moved(move, image, self.shift, self.turn)
        if self.noise:
            image = noisy(grain, image, self.noise)
        return erased(hole, image, self.erase) if self.erase else image

    def views(self, key: jax.Array, images: jax.Array) -> jax.Array:
        """One view of each image of a batch, shape (n, height, width), drawn independently."""
        return jax.vmap(self)(jax.random.split(key, images.shape[0]), images)

    def two_views(self, key: jax.Array, images: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Two views of each image, drawn independently: two arrays of the shape of `images`."""
        # Drawn at once: random numbers in two places of a program take twice as long to compile.
        first, second = jnp.split(self.views(key, jnp.concatenate([images, images])), 2)
        return first, second


def moved(key: jax.Array, image: jax.Array, shift: float, turn: float = 0.0) -> jax.Array:
    """An image moved by up to `shift` pixels along each axis and turned about its middle by up to `turn` degrees.

    Shift and angle are uniform on their intervals; pixels are interpolated linearly, once.

    Args:
        key: of jax.random.
        image: shape (height, width).
        shift: pixels, >= 0.
        turn: degrees, >= 0.
    """
    rows, columns = image.shape
    down, right, angle = jax.random.uniform(key, (3,), image.dtype, minval=-1.0)
    angle = jnp.deg2rad(turn) * angle
    cosine, sine = jnp.cos(angle), jnp.sin(angle)
    y = jnp.arange(rows)[:, None] - (rows - 1) / 2 - shift * down
    x = jnp.arange(columns)[None, :] - (columns - 1) / 2 - shift * right
    source = [cosine * y + sine * x + (rows - 1) / 2, cosine * x - sine * y + (columns - 1) / 2]
    return map_coordinates(image, source, order=1, mode="constant")


def noisy(key: jax.Array, image: jax.Array, scale: float) -> jax.Array:
    """An image with normal noise of standard deviation `scale` on each pixel, clipped to [0, 1]."""
    return jnp.clip(image + scale * jax.random.normal(key, image.shape, image.dtype), 0.0, 1.0)


def erased(key: jax.Array, image: jax.Array, most: float) -> jax.Array:
    """An image with a rectangle set to the background (Zhong et al. 2020, random erasing).

    Each side is uniform between 0 and `most` times the image's; the rectangle lies anywhere inside.

    Args:
        key: of jax.random.
        image: shape (height, width).
        most: between 0 and 1.
    """
    extent = jnp.asarray(image.shape, image.dtype)
    side_draw, corner_draw = jax.random.uniform(key, (2, 2), image.dtype)
    side = most * extent * side_draw
    corner = (extent - side) * corner_draw
    inside = [
        (jnp.arange(n) + 0.5 >= start) & (jnp.arange(n) + 0.5 <= start + length)
        for n, start, length in zip(image.shape, corner, side, strict=True)
    ]
    return jnp.where(inside[0][:, None] & inside[1][None, :], 0.0, image)
