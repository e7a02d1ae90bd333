"""Losses that pull views together without a softmax over negatives, and the two halves of InfoNCE taken apart.

As in `losses`: two views are two arguments, half precision is computed in float32; rows are L2-normalised inside,
except by Barlow Twins.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from infonce_jax.energies.contrast import log_sum_exp, normalise, similarities, working
from infonce_jax.energies.inputs import embedding_pair, embedding_rows, number

__all__ = ["alignment", "barlow_twins", "byol", "uniformity"]


def alignment(a: Any, b: Any, exponent: Any = 2.0) -> jax.Array:
    """How close the two views of a pair are: mean_i |a_i - b_i|^exponent on the sphere.

    Args:
        a: first view, shape (n, d), n >= 1.
        b: second view, shape (n, d).
        exponent: > 0. The gradient at a_i = b_i is taken as zero also where the distance has none.

    Returns:
        A scalar >= 0; 0 for equal views.

    Raises:
        InputError: shapes that differ, an exponent that is not positive.

    Wang & Isola 2020, section 4.1.
    """
    a, b = embedding_pair(a, b, least=1)
    power = number("exponent", exponent, above=0)
    squared = jnp.sum((a - b) ** 2, axis=1)
    if isinstance(power, float) and power == 2.0:
        return jnp.mean(squared)
    apart = squared > 0
    return jnp.mean(jnp.where(apart, jnp.where(apart, squared, 1.0) ** (jnp.asarray(power, a.dtype) / 2), 0.0))


def uniformity(z: Any, t: Any = 2.0) -> jax.Array:
    """How evenly embeddings cover the sphere: log mean_{i<j} exp(-t |z_i - z_j|^2); the lower, the more evenly.

    Args:
        z: embeddings of one view, shape (n, d), n >= 2.
        t: inverse width of the Gaussian potential, > 0.

    Returns:
        A scalar between -4t and 0; 0 when all embeddings coincide.

    Raises:
        InputError: fewer than two rows, t not positive.

    Wang & Isola 2020, section 4.1.
    """
    z = normalise(embedding_rows("z", z, least=2))
    n = z.shape[0]
    width = jnp.asarray(number("t", t, above=0), z.dtype)
    pairs = jnp.asarray(np.triu(np.ones((n, n)), 1), z.dtype)
    return log_sum_exp(2 * width * (similarities(z, z) - 1), pairs, axis=(0, 1)) - math.log(n * (n - 1) / 2)


def barlow_twins(a: Any, b: Any, redundancy: Any = 0.005, eps: Any = 1e-5) -> jax.Array:
    """Make the features of two views agree and each feature say something else.

    sum_k (1 - c_kk)^2 + redundancy sum_{k != l} c_kl^2, with c = (1/n) sum_i f(a)_ik f(b)_il the correlation over the
    batch and f the standardisation of each feature, (x - mean)/sqrt(variance + eps) with the biased variance. The
    rows are not normalised.

    Args:
        a: first view, shape (n, d), n >= 2.
        b: second view, shape (n, d).
        redundancy: weight >= 0 of the off-diagonal terms.
        eps: > 0, keeps a constant feature finite.

    Returns:
        A scalar >= 0.

    Raises:
        InputError: shapes that differ, fewer than two rows, a negative weight, eps not positive.

    Zbontar et al. 2021, equations 1 and 2.
    """
    a, b = embedding_pair(a, b, unit=False)
    weight = jnp.asarray(number("redundancy", redundancy, least=0), working(a).dtype)
    floor = number("eps", eps, above=0)
    correlation = similarities(_standardise(a, floor).T, _standardise(b, floor).T) / a.shape[0]
    eye = jnp.eye(a.shape[1], dtype=correlation.dtype)
    return jnp.sum(jnp.where(eye > 0, (1 - correlation) ** 2, weight * correlation**2))


def byol(prediction: Any, target: Any) -> jax.Array:
    """Predict the target network's embedding, one direction: mean_i (2 - 2 cos(prediction_i, target_i)).

    Computed as the squared distance of the unit rows, which stays exact for near views. The target carries no gradient.
    Add the loss with the views exchanged for the symmetric form.

    Args:
        prediction: output of the predictor, shape (n, d), n >= 1.
        target: output of the target network for the other view, shape (n, d).

    Returns:
        A scalar between 0 and 4.

    Raises:
        InputError: shapes that differ.

    Grill et al. 2020, equation 2.
    """
    prediction, target = embedding_pair(prediction, target, least=1, names=("prediction", "target"))
    return jnp.mean(jnp.sum((prediction - jax.lax.stop_gradient(target)) ** 2, axis=1))


def _standardise(x: jax.Array, eps: Any) -> jax.Array:
    x = working(x)
    x = x - jnp.mean(x, axis=0, keepdims=True)
    return x / jnp.sqrt(jnp.mean(x * x, axis=0, keepdims=True) + jnp.asarray(eps, x.dtype))
