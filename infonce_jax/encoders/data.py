"""Handwritten digits of scikit-learn with a split that never changes, and batches of any images."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from infonce_jax.checks import count, numbers, refuse

__all__ = ["Digits", "batch_size_for", "digits", "draw_batch", "grey_images"]

_HELD_OUT = 0.3
_SPLIT = 0  # the seed of the split; another one would be another experiment


@dataclasses.dataclass(frozen=True, eq=False)
class Digits:
    """Labelled images in two parts. Training sees the images of the first; labels are for evaluation only.

    Attributes:
        images: the training part, shape (n, height, width), grey values from 0 to 1, float32.
        labels: shape (n,).
        held_out_images: the other part, shape (m, height, width).
        held_out_labels: shape (m,).
    """

    images: np.ndarray
    labels: np.ndarray
    held_out_images: np.ndarray
    held_out_labels: np.ndarray

    def for_tuning(self) -> Digits:
        """The training part, split once more in the same way: where settings are chosen, so that the held-out digits
        have no say in them."""
        return _split(self.images, self.labels)


def digits() -> Digits:
    """The 1797 digits of scikit-learn, 8 x 8 pixels: 1257 for training, 540 held out, every class in proportion."""
    from sklearn.datasets import load_digits

    flat, labels = load_digits(return_X_y=True)
    images = np.asarray(flat, dtype=np.float32).reshape(-1, 8, 8) / 16
    return _split(images, np.asarray(labels))


def _split(images: np.ndarray, labels: np.ndarray) -> Digits:
    from sklearn.model_selection import train_test_split

    if len(labels) < 40:
        raise refuse("digits", f"{len(labels)} images", "at least 40", "split the whole set, not a part of a part")
    seen, held_out = train_test_split(np.arange(len(labels)), test_size=_HELD_OUT, stratify=labels, random_state=_SPLIT)
    return Digits(images[seen], labels[seen], images[held_out], labels[held_out])


def draw_batch(key: jax.Array, number: int, size: int) -> jax.Array:
    """Indices of `size` different items out of `number`, in random order, shape (size,).

    Without replacement: an image drawn twice would be its own negative.
    """
    return jnp.argsort(jax.random.bits(key, (number,)))[:size]  # one sort, where random.choice takes several


def batch_size_for(number: int, size: Any, least: int = 2) -> int:
    """A batch size from `least` to the number of items there are, otherwise an InputError."""
    size = count("batch_size", size, least=least, mend="the others of a batch are the negatives")
    if size > number:
        raise refuse("batch_size", size, f"at most {number}", "a batch holds every item at most once")
    return size


def grey_images(name: str, value: Any) -> jax.Array:
    """Images of shape (n, height, width) with grey values from 0 to 1 as float32, otherwise an InputError."""
    images = numbers(name, value, mend="images of one size, shape (n, height, width)")
    if images.ndim != 3 or min(images.shape) < 2:
        raise refuse(name, f"shape {images.shape}", "shape (n, height, width)", "reshape flat pixels first")
    if not (np.min(images) >= 0 and np.max(images) <= 1):  # NaN fails both
        raise refuse(name, f"values from {images.min():g} to {images.max():g}", "grey values from 0 to 1",
                     "divide by the largest value")  # fmt: skip
    return jnp.asarray(images, jnp.float32)
