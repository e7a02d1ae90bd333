"""Rotation orbits: all views of one image as a data set, with the energy whose traps an encoder may fall into."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from infonce_jax.checks import numbers, refuse
from infonce_jax.energies import Energy, graph_infonce
from infonce_jax.scenarios import digit_images, rotations, similarity_weights

__all__ = ["Orbit", "orbit"]

_SQUARED_NORM = 64.0  # of a view, on average: one per pixel of a digit


@dataclasses.dataclass(frozen=True, eq=False)
class Orbit:
    """The rotations of one image.

    Attributes:
        features: what an encoder sees, shape (views, views - 1), float32: the centred pixels in their singular basis,
            largest first, scaled to a mean squared norm of 64. Distances between views are those between their pixels.
        energy: InfoNCE of the embeddings of all views on the circle, the sum over anchors, positives by pixel
            similarity as in `scenarios.digit_orbit`.
        images: the views, shape (views, height, width), for pictures.
    """

    features: np.ndarray
    energy: Energy
    images: np.ndarray


def orbit(image: Any = 4, views: int = 8, temperature: float = 0.5) -> Orbit:
    """The rotation orbit of a digit of scikit-learn, or of one's own image.

    Args:
        image: the number of a digit, 0 to 1796, or a grey image of shape (height, width) with background 0.
        views: rotations by 360/views degrees, at least 3.
        temperature: tau > 0 of the energy; training replaces it step by step.

    Raises:
        InputError: no such digit, fewer than three views, an image that is not a matrix of finite numbers or whose
            rotations all look the same.
    """
    images = rotations(_grey(image), views) if np.shape(image) else digit_images(image, views)
    flat = images.reshape(len(images), -1)
    centred = flat - flat.mean(axis=0)
    spread = np.mean(np.sum(centred**2, axis=1))
    if spread <= 1e-12 * np.mean(np.sum(flat**2, axis=1)):
        raise refuse("image", "one whose rotations are all alike", "views that differ", "take an image with a shape")
    energy = graph_infonce(similarity_weights(images), temperature=temperature, dim=2)
    return Orbit(_in_singular_basis(centred) * np.sqrt(_SQUARED_NORM / spread).astype(np.float32), energy, images)


def _in_singular_basis(centred: np.ndarray) -> np.ndarray:
    left, lengths, _ = np.linalg.svd(centred, full_matrices=False)
    coordinates = (left * lengths)[:, :-1]  # centred rows span one dimension less than there are rows
    # The sign of a singular vector is the solver's whim: its largest entry is made positive.
    largest = np.argmax(np.abs(coordinates), axis=0)
    return (coordinates * np.sign(coordinates[largest, np.arange(len(largest))])).astype(np.float32)


def _grey(image: Any) -> np.ndarray:
    pixels = numbers("image", image)
    if pixels.ndim != 2 or min(pixels.shape) < 2:
        raise refuse("image", f"shape {pixels.shape}", "the number of a digit or shape (height, width)",
                     "average over colours first")  # fmt: skip
    if not np.all(np.isfinite(pixels)):
        raise refuse("image", "NaN or infinite entries", "finite grey values", "check where they come from")
    return pixels
