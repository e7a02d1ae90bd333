"""Array code with the lanes last computes what `jax.vmap` computes."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from infonce_jax import energies, integrators
from infonce_jax.trailing import largest_array, over_trailing_lanes

LANES = 24
TABLE = np.array([[1.5, -2.0, 0.5], [0.0, 4.0, -1.0]], np.float32)

FUNCTIONS = {
    "matrix product": lambda x: x @ x.T,
    "matrix times constant": lambda x: TABLE @ x.T,
    "constant times matrix": lambda x: x @ TABLE.T,
    "vector product": lambda x: jnp.dot(x[0], x[1]),
    "outer product": lambda x: jnp.outer(x[0], x[1]),
    "batched product": lambda x: jnp.einsum("ia,ja,ib->iab", x, x, x),
    "contraction of two axes": lambda x: lax.dot_general(x, x, (((0, 1), (0, 1)), ((), ()))),
    "batch axis last": lambda x: lax.dot_general(x, x, (((0,), (0,)), ((1,), (1,)))),
    "long product": lambda x: jnp.tile(x, (1, 25)) @ jnp.tile(x, (1, 25)).T / 25,  # 75 terms: left to XLA
    "product of whole numbers": lambda x: lax.dot_general(jnp.floor(4 * x).astype(int), TABLE.T.astype(int),
                                                          (((1,), (0,)), ((), ()))),
    "sums": lambda x: (jnp.sum(x), jnp.sum(x, axis=0), jnp.mean(x, axis=1), jnp.var(x)),
    "long sum": lambda x: jnp.sum(jnp.repeat(x, 30, axis=0), axis=0) / 30,
    "empty pieces": lambda x: (jnp.sum(x[:0], axis=0), x[:, :0] @ x[:, :0].T + x[0, 0]),
    "max and min": lambda x: (jnp.max(x, axis=0), jnp.min(x, axis=1), jnp.max(x)),
    "transpose and reshape": lambda x: (x.T * TABLE.T[:, [0, 1, 1, 0]], x.reshape(2, 6), x[None, :, None]),
    "broadcast": lambda x: x[:, None, :] - x[None] + jnp.arange(3.0),
    "slices": lambda x: (x[1:3], x[::2], x[:, -1], x[2, 1], x[::-1]),
    "gather": lambda x: x[np.array([0, 3, 3, -1])],
    "an index that moves": lambda x: x[jnp.argmax(x[:, 0])],
    "scatter-add": lambda x: x.at[np.array([0, 2, 0])].add(2 * x[:3]),
    "where": lambda x: jnp.where(x > 0.1, x * x, -x),
    "where of one number": lambda x: jnp.where(x[0, 0] > 0.1, x, TABLE[0]),
    "clip": lambda x: jnp.clip(x, x[0, 0] - 1, 0.7),
    "concatenate": lambda x: jnp.concatenate([x, TABLE, x[:1]]),
    "logsumexp": lambda x: jax.scipy.special.logsumexp(x, axis=1),
    "softmax": lambda x: jax.nn.softmax(x, axis=0),
    "vmap and jit inside": lambda x: jax.vmap(jax.jit(lambda row: jnp.dot(row, row) * row))(x),
    "a loop": lambda x: lax.fori_loop(0, 3, lambda _, c: c * jnp.sum(c, axis=1, keepdims=True), x),
    "a sort": lambda x: jnp.sort(x, axis=0),
    "a solver": lambda x: jnp.linalg.solve(x[:3] @ x[:3].T + 3 * np.eye(3, dtype=np.float32), x[0]),
    "constants out": lambda x: (jnp.zeros(2), x[0], jnp.array(3)),
}  # fmt: skip
NOT_DIFFERENTIABLE = {"product of whole numbers", "constants out", "a loop"}


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=(LANES, *shape)).astype(np.float32)


def trailing(function, *examples):
    """The function over a leading axis of lanes, computed with the lanes last."""
    run = over_trailing_lanes(function, tuple(jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in examples), ())

    def over(*arguments):
        out = run(LANES, *(jnp.moveaxis(x, 0, -1) for x in arguments))
        return jax.tree.map(lambda a: jnp.moveaxis(a, -1, 0), out)

    return jax.jit(over)


def assert_same(function, *examples, rtol=1e-5, atol=1e-5):
    got, want = trailing(function, *examples)(*examples), jax.jit(jax.vmap(function))(*examples)
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_lanes_last_computes_what_lanes_first_does_and_so_does_its_gradient(name):
    function = FUNCTIONS[name]
    if name in NOT_DIFFERENTIABLE:
        assert_same(function, draw(4, 3))
        return

    def total(x):
        return sum(jnp.sum(jnp.square(y)) for y in jax.tree.leaves(function(x)))

    assert_same(lambda x: (function(x), jax.grad(total)(x)), draw(4, 3), rtol=1e-4, atol=1e-4)


def test_nan_and_infinity_pass_through():
    x = np.tile(np.array([np.nan, np.inf, -np.inf, 0.0], np.float32), (LANES, 1))
    assert_same(lambda x: (x * 0, jnp.maximum(x, 0.0), jnp.sum(x), jnp.max(x), jnp.outer(x, x)), x)


def test_shared_arguments_have_no_lanes():
    run = over_trailing_lanes(lambda x, w: w @ x, (jax.ShapeDtypeStruct((3,), np.float32),),
                              (jax.ShapeDtypeStruct((2, 3), np.float32),))  # fmt: skip
    x = draw(3)
    np.testing.assert_allclose(run(LANES, x.T, TABLE), TABLE @ x.T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", ["out", "in", "pairs"])
def test_a_step_of_a_chain(form):
    weights = (np.roll(np.eye(12), 1, axis=0) + np.roll(np.eye(12), -1, axis=0)) / 2
    energy = energies.graph_infonce(weights, temperature=0.5, form=form, dim=4)
    scheme = integrators.geodesic_euler(0.03)

    def step(x, noise):
        state, info = scheme.step(scheme.init(energy, x), noise, jnp.float32(2.0))
        return state.positions, info.energy

    x = draw(12, 4)
    assert_same(step, x / np.linalg.norm(x, axis=-1, keepdims=True), draw(12, 4, seed=1))


def test_double_precision_stays_double():
    with jax.enable_x64(True):
        x = draw(3, 2).astype(np.float64)
        assert_same(lambda x: (jnp.exp(x @ x.T), jnp.ones(2) * 0.1, jnp.sum(x, axis=1)), x, rtol=1e-13, atol=1e-13)


def test_the_largest_array_is_found_also_inside_of_other_functions():
    example = jax.ShapeDtypeStruct((4, 3), np.float32)
    assert largest_array(lambda x: jnp.sum(x @ x.T), example) == 16
    assert largest_array(functools.partial(jax.jit(lambda x: jnp.sum(x[:, None] * x[None]))), example) == 48
    # What is not read is not there.
    assert largest_array(lambda x: (x[0], jnp.sort(x[:, None] * x[None]))[0], example) == 3
