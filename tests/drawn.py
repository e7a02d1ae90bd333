"""What tests of properties draw: shapes, precisions, seeds, numbers over many decades, points and rotations."""

from __future__ import annotations

import functools

import hypothesis
import hypothesis.strategies as st
import jax
import numpy as np

DTYPES = (np.float32, np.float64)
examples = functools.partial(hypothesis.settings, print_blob=False)
numbers, dimensions, seeds = st.integers(1, 8), st.integers(2, 6), st.integers(0, 2**32 - 1)
# The first example is always the simplest one; where a second would cost a compilation, it is left out.
another_seed = seeds.filter(lambda seed: seed > 1000)
precisions = st.sampled_from(DTYPES)


def decades(low, high):
    """Numbers whose logarithm is uniform."""
    return st.floats(low, high).map(lambda exponent: 10.0**exponent)


def moved(n, d, index):
    """Another shape for each member of a table: the same example is drawn for all of them."""
    return 1 + (n + index) % 8, 2 + (d + index) % 5


def precision(dtype):
    return jax.enable_x64(dtype == np.float64)


def unit(array):
    return array / np.linalg.norm(array, axis=-1, keepdims=True)


def points(rng, *shape):
    return unit(rng.normal(size=shape))


def rotation(rng, d):
    return np.linalg.qr(rng.normal(size=(d, d)))[0]
