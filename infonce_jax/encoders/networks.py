"""The layers behind the architectures, as Flax NNX modules.

Importing this module imports Flax, most of a second. Every weight starts as N(0, 1/fan_in), every bias at 0.

Convolutions are written as products of patches with a matrix: under `jax.vmap` over seeds, whose kernels all differ,
XLA turns a convolution into one with as many groups as seeds, and on a CPU runs it entry by entry. Products of a few
rows with a matrix have a derivative of their own, for the gradient of the matrix.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

__all__ = ["Convolutional", "Perceptron", "Text"]

_NORMAL = nnx.initializers.variance_scaling(1.0, "fan_in", "normal")
# Full precision on every device, as the energies: accelerators may otherwise round products to tf32.
_FULL = jax.lax.Precision.HIGHEST
# Rows of a batch up to which the gradient of a matrix is written as a sum of outer products. Measured on one core,
# microseconds per seed-step of the encoder 7-64-64-2 with Adam, sixteen seeds, without and with it: 4 rows 10.6 and
# 6.3, 8 rows 13.1 and 8.2, 12 rows 16.2 and 13.0, 16 rows 18.6 and 17.7, 32 rows 29 and 40.
_FEW_ROWS = 12


def _dense(inputs: int, outputs: int, rngs: nnx.Rngs) -> nnx.Linear:
    return nnx.Linear(inputs, outputs, kernel_init=_NORMAL, precision=_FULL, dot_general=_product, rngs=rngs)


def _product(x: jax.Array, matrix: jax.Array, numbers: Any, **options: Any) -> jax.Array:
    """What `nnx.Linear` calls: `jax.lax.dot_general` of x, shape (..., i), with a matrix, shape (i, o)."""
    if x.ndim == 2 and x.shape[0] <= _FEW_ROWS:
        return _few_rows(x, matrix)
    return jax.lax.dot_general(x, matrix, numbers, **options)


@jax.custom_jvp
def _few_rows(x: jax.Array, matrix: jax.Array) -> jax.Array:
    return jnp.matmul(x, matrix, precision=_FULL)


@functools.partial(_few_rows.defjvp, symbolic_zeros=True)
def _few_rows_jvp(primals: Any, tangents: Any) -> tuple[jax.Array, Any]:
    """The derivative in the matrix row by row: transposed, it is a sum of outer products.

    XLA computes that sum in one pass together with the optimiser's step. The product it stands for, with so few terms
    to sum, is slower on a CPU than all others of a step together.
    """
    (x, matrix), (dx, dmatrix) = primals, tangents
    out = _few_rows(x, matrix)
    parts = []
    if not _is_zero(dx):
        parts.append(jnp.matmul(dx, matrix, precision=_FULL))
    if not _is_zero(dmatrix):
        parts.append(jnp.stack([jnp.sum(row[:, None] * dmatrix, axis=0) for row in x]))
    return out, sum(parts) if parts else jnp.zeros_like(out)


def _is_zero(tangent: Any) -> bool:
    return isinstance(tangent, jax.custom_derivatives.SymbolicZero)


class Perceptron(nnx.Module):
    """Dense layers with ReLU between them; inputs with more than one axis are flattened."""

    def __init__(self, shape: tuple[int, ...], dim: int, widths: Sequence[int], *, rngs: nnx.Rngs) -> None:
        sizes = [_entries(shape), *widths]
        self.hidden = nnx.List([_dense(a, b, rngs) for a, b in itertools.pairwise(sizes)])
        self.output = _dense(sizes[-1], dim, rngs)

    def features(self, x: jax.Array) -> jax.Array:
        x = x.reshape(x.shape[0], -1)
        for layer in self.hidden:
            x = jax.nn.relu(layer(x))
        return x

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.output(self.features(x))


class Convolutional(nnx.Module):
    """Convolutions of 3 x 3 pixels that halve height and width each, with ReLU, then dense layers."""

    def __init__(
        self, shape: tuple[int, ...], dim: int, channels: Sequence[int], widths: Sequence[int], *, rngs: nnx.Rngs
    ) -> None:
        height, width, depth = shape if len(shape) == 3 else (*shape, 1)
        self.layers = nnx.List([])
        for channel in channels:
            self.layers.append(_dense(9 * depth, channel, rngs))
            height, width, depth = -(-height // 2), -(-width // 2), channel
        self.head = Perceptron((height, width, depth), dim, widths, rngs=rngs)

    def features(self, x: jax.Array) -> jax.Array:
        x = x if x.ndim == 4 else x[..., None]
        for layer in self.layers:
            x = jax.nn.relu(layer(_patches(x)))
        return self.head.features(x)

    def __call__(self, x: jax.Array) -> jax.Array:
        return self.head.output(self.features(x))


class Text(nnx.Module):
    """A window slides over characters, with ReLU; the mean over the text goes through dense layers.

    (Character-level convolutions as in Zhang, Zhao and LeCun 2015, with a mean in place of their pooling.)
    """

    def __init__(
        self, shape: tuple[int, ...], dim: int, vocabulary: int, channels: int, window: int, widths: Sequence[int],
        *, rngs: nnx.Rngs,
    ) -> None:  # fmt: skip
        self.vocabulary, self.window = vocabulary, window
        self.convolution = _dense(window * (vocabulary - 1), channels, rngs)
        self.head = Perceptron((channels,), dim, widths, rngs=rngs)

    def features(self, codes: jax.Array) -> jax.Array:
        letters = jax.nn.one_hot(codes - 1, self.vocabulary - 1)  # padding, code 0, is a row of zeros
        before = (self.window - 1) // 2
        length = codes.shape[1]
        padded = jnp.pad(letters, ((0, 0), (before, self.window - 1 - before), (0, 0)))
        windows = jnp.concatenate([padded[:, k : k + length] for k in range(self.window)], axis=-1)
        present = (codes > 0)[..., None]
        seen = jnp.where(present, jax.nn.relu(self.convolution(windows)), 0.0)
        mean = jnp.sum(seen, axis=1) / jnp.maximum(jnp.sum(present, axis=1), 1)
        return self.head.features(mean)

    def __call__(self, codes: jax.Array) -> jax.Array:
        return self.head.output(self.features(codes))


def _entries(shape: tuple[int, ...]) -> int:
    size = 1
    for length in shape:
        size *= length
    return size


def _patches(x: jax.Array) -> jax.Array:
    """The 3 x 3 neighbourhoods of every other pixel: (N, H, W, C) to (N, ceil(H/2), ceil(W/2), 9 C)."""
    height, width = x.shape[1:3]
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [padded[:, i : i + height : 2, j : j + width : 2] for i in range(3) for j in range(3)]
    return jnp.concatenate(shifted, axis=-1)
