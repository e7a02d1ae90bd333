"""Encoders end on the sphere, start as they say, and compute what their names promise."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from infonce_jax.encoders import conv, mlp, text
from infonce_jax.encoders.networks import _FEW_ROWS, _patches
from tests.refusals import THREE_PARTS, message_of

RNG = np.random.default_rng(0)
KEY = jax.random.key(0)
CASES = {
    "mlp": (mlp((64, 32), 2), RNG.normal(size=(8, 7)), (8, 2), (8, 32), 7 * 64 + 64 + 64 * 32 + 32 + 32 * 2 + 2),
    "linear": (mlp((), 3), RNG.normal(size=(4, 5)), (4, 3), (4, 5), 5 * 3 + 3),
    "conv": (conv(3, (4, 8), (16,)), RNG.random((5, 8, 8)), (5, 3), (5, 16), 40 + 36 * 8 + 8 + 32 * 16 + 16 + 51),
    "text": (text(4, 40, 8, 3, (6,)), RNG.integers(1, 40, (3, 9)), (3, 4), (3, 6), 117 * 8 + 8 + 54 + 28),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_shapes_and_unit_rows(name):
    architecture, inputs, shape, width, parameters = CASES[name]
    fresh = architecture.init(KEY, inputs)
    z = architecture.apply(fresh, inputs)
    assert z.shape == shape
    assert z.dtype == jnp.float32
    np.testing.assert_allclose(np.linalg.norm(z, axis=1), 1, atol=1e-6)
    assert architecture.features(fresh, inputs).shape == width
    assert architecture.num_parameters(inputs) == parameters


@pytest.mark.parametrize("name", CASES)
def test_an_exactly_zero_output_has_a_finite_gradient(name):
    architecture, inputs, *_ = CASES[name]
    dead = jax.tree.map(jnp.zeros_like, architecture.init(KEY, inputs))
    gradient = jax.jit(jax.grad(lambda p: jnp.sum(architecture.apply(p, inputs))))(dead)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))


def test_the_perceptron_by_hand():
    architecture, inputs, *_ = CASES["mlp"]
    p = architecture.init(KEY, inputs)
    x = np.asarray(inputs, np.float32)
    for layer in p["hidden"].values():
        x = np.maximum(x @ np.asarray(layer["kernel"]) + np.asarray(layer["bias"]), 0)
    x = x @ np.asarray(p["output"]["kernel"]) + np.asarray(p["output"]["bias"])
    np.testing.assert_allclose(architecture.apply(p, inputs), x / np.linalg.norm(x, axis=1, keepdims=True), atol=2e-6)


@pytest.mark.parametrize("rows", [1, _FEW_ROWS, _FEW_ROWS + 1])
def test_gradients_of_few_and_of_many_rows_are_those_of_the_plain_product(rows):
    architecture = mlp((6, 5), 3)
    x = jnp.asarray(RNG.normal(size=(rows, 4)), jnp.float32)
    p = architecture.init(KEY, x)

    def plain(p, x):
        for layer in (*p["hidden"].values(), None):
            last = p["output"] if layer is None else layer
            x = jnp.matmul(x, last["kernel"], precision="highest") + last["bias"]
            x = x if layer is None else jax.nn.relu(x)
        return x / jnp.linalg.norm(x, axis=1, keepdims=True)

    # Both modes, both arguments, and twice; roundings of sums of at most 13 terms.
    for derivative in (jax.jacrev, jax.jacfwd):
        ours, theirs = (jax.jit(derivative(f, (0, 1)))(p, x) for f in (architecture.apply, plain))
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), ours, theirs)
    ours, theirs = (jax.jit(jax.hessian(lambda p, f=f: jnp.sum(f(p, x) ** 3)))(p) for f in (architecture.apply, plain))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), ours, theirs)


def test_weights_start_with_variance_one_over_fan_in_and_biases_at_zero():
    p = jax.jit(lambda k: mlp((200,), 2).init(k, np.ones((1, 300))))(KEY)
    kernel = np.asarray(p["hidden"][0]["kernel"], np.float64) * np.sqrt(300)
    n = kernel.size
    # Mean and variance of 60,000 normals: five standard errors each, false alarm 1e-6. A law cut at two standard
    # deviations has the fourth moment 2.4 instead of 3 (standard error sqrt(96/n) = .04) once its variance is restored.
    assert abs(kernel.mean()) < 5 / np.sqrt(n)
    assert abs(kernel.var() - 1) < 5 * np.sqrt(2 / n)
    assert abs(np.mean(kernel**4) - 3) < 5 * np.sqrt(96 / n)
    assert not np.any(p["hidden"][0]["bias"])


def test_patches_are_a_convolution_of_stride_two():
    x, kernel = RNG.normal(size=(2, 7, 8, 3)).astype(np.float32), RNG.normal(size=(3, 3, 3, 5)).astype(np.float32)
    wanted = jax.lax.conv_general_dilated(
        x, kernel, (2, 2), ((1, 1), (1, 1)), dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    np.testing.assert_allclose(_patches(jnp.asarray(x)) @ kernel.reshape(27, 5), wanted, atol=1e-5)


def test_padding_says_nothing():
    architecture, codes, *_ = CASES["text"]
    p = architecture.init(KEY, codes)
    padded = np.pad(codes, ((0, 0), (0, 4)))
    np.testing.assert_allclose(architecture.apply(p, padded), architecture.apply(p, codes), atol=1e-6)
    assert np.all(np.isfinite(architecture.apply(p, np.zeros((2, 9), int))))


def test_equal_architectures_are_one_static_argument():
    assert mlp([64, 64], 2) == mlp((64, 64), 2)
    assert len({mlp((64, 64), 2), mlp([64, 64], 2), mlp((64,), 2), conv(2)}) == 3


BAD = {
    "dim": lambda: mlp((4,), 1),
    "width": lambda: mlp((4, 0), 2),
    "one width": lambda: mlp(64, 2),  # type: ignore[arg-type]
    "no convolution": lambda: conv(2, ()),
    "vocabulary": lambda: text(2, 1),
    "a single row": lambda: mlp((4,), 2).init(KEY, np.ones(3)),
    "no image": lambda: conv(2).init(KEY, np.ones((4, 9))),
    "no features": lambda: mlp((4,), 2).init(KEY, np.ones((4, 0))),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_in_one_line(name):
    assert THREE_PARTS.fullmatch(message_of(BAD[name]))
