from __future__ import annotations

import collections

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core as jex

from infonce_jax import integrators
from infonce_jax.energies import from_function, graph_infonce
from infonce_jax.integrators.protocol import State
from infonce_jax.noise import Noise
from infonce_jax.unroll import CannotUnrollError, as_entries, count_operations, unroll

LANES = 16
TABLE = np.array([[1.5, -2.0, 0.5], [0.0, 4.0, -1.0]], np.float32)


def is_leaf(leaf):
    return isinstance(leaf, np.ndarray)


def whole(leaf):
    """The array with these entries."""
    entries = [jnp.asarray(entry) for entry in leaf.ravel()]
    return jnp.stack(entries).reshape(leaf.shape) if entries else leaf.astype(np.float32)


def batched(function, *examples):
    """The unrolled function over a leading axis of lanes, compiled: what the inner loop of the chains does."""
    shapes = [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in examples]
    unrolled = unroll(function, *shapes)

    def one(*arguments):
        return jax.tree.map(whole, unrolled(*map(as_entries, arguments)), is_leaf=is_leaf)

    return jax.jit(jax.vmap(one))


def assert_same(function, *examples, rtol=3e-6, atol=3e-6):
    got, want = batched(function, *examples)(*examples), jax.jit(jax.vmap(function))(*examples)
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=rtol, atol=atol)


def draw(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=(LANES, *shape)).astype(dtype)


def total(function):
    """Gradient of the sum of the squares of what `function` returns, so that no cotangent is constant."""
    return jax.grad(lambda x: jnp.sum(jnp.square(function(x))))


def triangle(x):
    return jnp.triu(x @ x.T, 1)


FUNCTIONS = {
    "matrix product": lambda x: x @ x.T,
    "matrix times constant": lambda x: TABLE @ x.T,
    "vector product": lambda x: jnp.dot(x[0], x[1]),
    "outer product": lambda x: jnp.outer(x[0], x[1]),
    "batched product": lambda x: jnp.einsum("ia,ja,ib->iab", x, x, x),
    "contraction of two axes": lambda x: lax.dot_general(x, x, (((0, 1), (0, 1)), ((), ()))),
    "batch axis last": lambda x: lax.dot_general(x, x, (((0,), (0,)), ((1,), (1,)))),
    "transpose": lambda x: x.T * TABLE.T[:, [0, 1, 1, 0]],
    "moveaxis": lambda x: jnp.moveaxis(x[:, :, None] * x[:, None, :], 0, 2),
    "reshape": lambda x: x.reshape(2, 6) * 2,
    "slices": lambda x: (x[1:3], x[::2], x[:, -1], x[2, 1]),
    "reverse and roll": lambda x: jnp.roll(x[::-1], 1, axis=0),
    "gather with constants": lambda x: x[np.array([0, 3, 3, -1])],
    "gather of pairs": lambda x: x[np.array([0, 1, 2]), np.array([2, 0, 0])],
    "take beyond the end": lambda x: jnp.take(x, np.array([1, 9, 0]), axis=0),  # NaN, as documented by JAX
    "take with a filler": lambda x: x.at[np.array([1, 9])].get(mode="fill", fill_value=7.0),
    "scatter-add": lambda x: x.at[np.array([0, 2, 0])].add(2 * x[:3]),
    "scatter-add beyond the end": lambda x: x.at[np.array([0, 9])].add(x[:2], mode="drop"),
    "scatter-add of a row": lambda x: x.at[1].add(x[0]),
    "where": lambda x: jnp.where(x > 0.1, x * x, -x),
    "where with a constant mask": lambda x: jnp.where(np.eye(4, 3) > 0, jnp.exp(x), 2.0),
    "clip": lambda x: jnp.clip(x, -0.5, 0.7),
    "logsumexp": lambda x: jax.scipy.special.logsumexp(x, axis=1),
    "logaddexp": lambda x: jnp.logaddexp(x[0], x[1]),
    "softmax": lambda x: jax.nn.softmax(x, axis=0),
    "norm": lambda x: jnp.linalg.norm(x, axis=-1),
    "hypot": lambda x: jnp.hypot(x[0], x[1]),
    "concatenate": lambda x: jnp.concatenate([x, TABLE, x[:1]]),
    "sum over concatenated constants": lambda x: jnp.sum(jnp.concatenate([TABLE, x]) ** 2, axis=0),
    "stack": lambda x: jnp.stack([x, TABLE[[0, 1, 0, 1]]], axis=1),
    "tile and repeat": lambda x: jnp.tile(x, (2, 1)) + jnp.repeat(x, 2, axis=0),
    "pad": lambda x: jnp.pad(x, ((1, 0), (0, 2)), constant_values=3.0),
    "pad inside and cut": lambda x: lax.pad(x, np.float32(0.5), ((-1, 0, 1), (2, -1, 0))),
    "sum, mean and variance": lambda x: (jnp.sum(x), jnp.mean(x, axis=0), jnp.var(x)),
    "max and min": lambda x: (jnp.max(x, axis=0), jnp.min(x, axis=1), jnp.max(x)),
    "product": lambda x: jnp.prod(x, axis=0),
    "all and any": lambda x: (jnp.all(x > -1, axis=0), jnp.any(x > 1, axis=1)),
    "integer powers": lambda x: x**3 + (2 + x * x) ** -2,
    "real powers": lambda x: (1 + x * x) ** 1.7,
    "softplus": jax.nn.softplus,
    "relu": jax.nn.relu,
    "gelu": jax.nn.gelu,
    "log_sigmoid": jax.nn.log_sigmoid,
    "atan2": lambda x: jnp.arctan2(x[0], x[1]),
    "tanh": jnp.tanh,
    "sinc": jnp.sinc,
    "elementary": lambda x: (
        jnp.expm1(x[0]),
        jnp.log1p(x[0] ** 2),
        jnp.cbrt(x[1]),
        jnp.sin(x[2]),
        jnp.sqrt(1 + x[3] ** 2),
    ),
    "upper triangle": triangle,
    "trace": lambda x: jnp.trace(x @ x.T),
    "vmap inside": lambda x: jax.vmap(lambda row: jnp.dot(row, row) * row)(x),
    "jit inside": lambda x: jax.jit(jnp.sin)(x) + jax.jit(jnp.sin)(x + 1),
    "checkpoint": jax.checkpoint(lambda x: jnp.sin(jnp.exp(x))),
    "constants out": lambda x: (jnp.zeros(2), x[0], jnp.array(3), np.float32(2.0)),
    "whole numbers": lambda x: jnp.sum(jnp.floor(4 * x).astype(jnp.int32) % 3, axis=0),
    "stop_gradient": lambda x: lax.stop_gradient(x) * x,
    "empty pieces": lambda x: (jnp.sum(x[:0], axis=0), x[:, :0] @ x[:, :0].T + x[0, 0]),
}
NOT_DIFFERENTIABLE = {"all and any", "whole numbers", "take beyond the end", "constants out"}


@pytest.mark.parametrize("name", sorted(NOT_DIFFERENTIABLE))
def test_unrolled_equals_the_array_code(name):
    assert_same(FUNCTIONS[name], draw(4, 3))


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) - NOT_DIFFERENTIABLE))
def test_unrolled_equals_the_array_code_and_so_does_its_gradient(name):
    function = FUNCTIONS[name]

    def flat(x):
        return jnp.concatenate([jnp.ravel(y) for y in jax.tree.leaves(function(x))])

    # One compilation for both; the gradients reach 100, hence their relative tolerance.
    assert_same(lambda x: (function(x), total(flat)(x)), draw(4, 3), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["matrix product", "softplus", "norm", "logsumexp"])
def test_unrolled_hessian_equals_that_of_the_array_code(name):
    assert_same(jax.jacfwd(total(FUNCTIONS[name])), draw(4, 3, seed=2), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("argument", [0.0, -0.0])
def test_signs_of_zero_constants_are_kept(argument):
    # Sharing f(x, 0.0) with f(x, -0.0), which compare equal, would turn -inf into inf and pi into 0.
    zeros = np.full((LANES, 2), argument, np.float32)
    assert_same(lambda x: (1 / (x * np.float32(0.0) + 1) / np.float32(0), (x + 1) / np.float32(-0.0)), zeros)
    assert_same(lambda x: (jnp.arctan2(x * x, np.float32(0.0)), jnp.arctan2(x * x, np.float32(-0.0))), zeros)


def test_nan_and_infinity_pass_through():
    x = np.tile(np.array([np.nan, np.inf, -np.inf, 0.0], np.float32), (LANES, 1))
    assert_same(lambda x: (x + 0, 1 * x, x / 1, x * 0, jnp.maximum(x, 0.0), x - x[::-1], jnp.max(x)), x)


def test_half_precision_products_are_accumulated_in_the_preferred_type():
    def product(x):
        return lax.dot_general(x, x, (((0,), (0,)), ((), ())), preferred_element_type=jnp.float32)

    assert_same(product, draw(5, seed=3).astype(jnp.bfloat16))


def test_double_precision_stays_double():
    with jax.enable_x64(True):
        x = draw(3, 2, dtype=np.float64)
        assert_same(lambda x: (jnp.exp(x @ x.T), jnp.ones(2) * 0.1, x.at[0].add(1.0)), x, rtol=1e-14, atol=1e-14)


def test_single_precision_constants_stay_single_where_double_is_allowed():
    with jax.enable_x64(True):
        x = draw(3, 2)
        assert_same(lambda x: (jnp.zeros(2, x.dtype), jnp.full((), 0.5, x.dtype), jnp.pad(x, 1), x + 0.1), x)


def test_trees_go_in_and_come_out():
    tree = {"a": draw(2), "b": (draw(2, 2, seed=1), draw(seed=2))}
    shapes = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), tree)

    def function(t):
        return {"sum": t["a"] + t["b"][0][1], "scaled": (t["b"][1] * t["a"],)}

    one = jax.tree.map(lambda a: a[3], tree)
    out = unroll(function, shapes)(jax.tree.map(lambda a: as_entries(jnp.asarray(a)), one))
    want = function(one)
    np.testing.assert_allclose(out["sum"].astype(np.float32), want["sum"], rtol=1e-6)
    np.testing.assert_allclose(out["scaled"][0].astype(np.float32), want["scaled"][0], rtol=1e-6)


CANNOT = {
    "a loop": lambda x: lax.fori_loop(0, 3, lambda _, c: c * 2, x),
    "a while loop": lambda x: lax.while_loop(lambda c: c[0, 0] < 1, lambda c: c + 1, x),
    "a scan": lambda x: lax.scan(lambda c, a: (c + a, c), x[0], x)[0],
    "a branch": lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x),
    "a sort": lambda x: jnp.sort(x, axis=0),
    "a median": jnp.median,
    "a solver": lambda x: jnp.linalg.solve(x[:3] + np.eye(3), x[0]),
    "an eigenvalue": lambda x: jnp.linalg.eigvalsh(x @ x.T),
    "an index that moves": lambda x: x[jnp.argmax(x[:, 0])],
    "a loop inside jit": lambda x: jax.jit(lambda y: lax.fori_loop(0, 3, lambda _, c: c * 2, y))(x),
}


@pytest.mark.parametrize("name", CANNOT)
def test_what_has_no_scalar_form_is_refused_at_once(name):
    example = jax.ShapeDtypeStruct((4, 3), np.float32)
    for refused in (unroll, count_operations):
        with pytest.raises(CannotUnrollError):
            refused(CANNOT[name], example)


def test_an_index_that_moves_with_the_state_is_refused():
    def moving(x):
        return lax.dynamic_slice(x, (jnp.int32(x[0, 0] > 0), 0), (1, 2))

    with pytest.raises(CannotUnrollError, match="depend on the state"):
        batched(moving, draw(4, 3))(draw(4, 3))


def test_dead_code_is_no_obstacle():
    assert_same(lambda x: (x * 2, jnp.sort(x, axis=0))[0], draw(4, 3))


def counts(function, shape):
    """How often each primitive occurs in the unrolled function of one array."""
    unrolled = unroll(function, jax.ShapeDtypeStruct(shape, np.float32))

    def flat(*entries):
        leaves = jax.tree.leaves(unrolled(as_entries(shape, list(entries))), is_leaf=is_leaf)
        return [jnp.asarray(e) for leaf in leaves for e in leaf.ravel()]

    found = collections.Counter()

    def visit(jaxpr):
        for equation in jaxpr.eqns:
            found[equation.primitive.name] += 1
            for inner in equation.params.values():
                if isinstance(inner, jex.ClosedJaxpr | jex.Jaxpr):
                    visit(getattr(inner, "jaxpr", inner))

    visit(jax.make_jaxpr(flat)(*np.ones(int(np.prod(shape)), np.float32)).jaxpr)
    return found


def ring(n, **options):
    weights = (np.roll(np.eye(n), 1, axis=0) + np.roll(np.eye(n), -1, axis=0)) / 2
    return graph_infonce(weights, temperature=0.5, **options)


@pytest.mark.parametrize("n", [3, 4, 5, 7])
def test_energy_and_gradient_need_one_exponential_per_pair(n):
    # s_ij and s_ji share it, and so do value and gradient, where array code has n^2. The n self-similarities, which the
    # mask of candidates leaves out of the sum, may still stand in the code.
    found = counts(lambda x: jax.value_and_grad(lambda y: ring(n)(y))(x), (n, 2))
    assert n * (n - 1) // 2 <= found["exp"] <= n * (n + 1) // 2
    assert found["log"] == 1  # of the product of all sums over candidates


def test_operations_grow_with_the_pairs_and_not_faster():
    shapes = (jax.ShapeDtypeStruct((n, 2), np.float32) for n in (4, 8))
    few, many = (count_operations(jax.grad(lambda y, n=shape.shape[0]: ring(n)(y)), shape) for shape in shapes)
    assert many / few < 4.7  # pairs: 28/6 = 4.67


def test_count_operations_counts_distinct_ones():
    shape = jax.ShapeDtypeStruct((3,), np.float32)
    assert count_operations(jnp.exp, shape) == 3
    assert count_operations(lambda x: jnp.exp(x) + jnp.exp(x), shape) == 6
    assert count_operations(lambda x: jnp.exp(jnp.broadcast_to(x[0], (5,))), shape) == 1
    assert count_operations(lambda x: x[0] * x[1] + x[1] * x[0], shape) == 2
    assert count_operations(lambda x: x[0] - x[1] + (x[1] - x[0]), shape) == 3


@pytest.mark.parametrize("function", [
    lambda x: x + jnp.sin(np.float32(0)),
    lambda x: x * jnp.ones(3),
    lambda x: (x + jnp.zeros(3)) / jnp.exp(np.zeros(3, np.float32)),
    lambda x: jnp.where(np.array([True, False, True]), x, 2.0),
    lambda x: jnp.where(np.array([True, True, True]), x, jnp.exp(x)),
    lambda x: x.reshape(1, 3).T,
])  # fmt: skip
def test_what_is_constant_or_never_read_costs_nothing(function):
    assert count_operations(function, jax.ShapeDtypeStruct((3,), np.float32)) == 0


def test_constant_entries_of_a_mixed_array_fold():
    # Six of nine entries are constants; only the three others may be computed.

    def function(x):
        return jnp.exp(jnp.concatenate([x, np.ones(6, np.float32)]))

    assert count_operations(function, jax.ShapeDtypeStruct((3,), np.float32)) == 3


KEYS = np.array([[0.6, 0.8], [-1.0, 0.0]])
ENERGIES = {
    **{f"ring, {form}": ring(5, form=form) for form in ("out", "in", "pairs")},
    "ring, mean": ring(4, reduction="mean"),
    "ring, cold": graph_infonce(np.roll(np.eye(4), 1, axis=0), temperature=0.02),
    "single": graph_infonce(np.roll(np.eye(4), 1, axis=0), temperature=0.3, form="single"),
    "in, cold": graph_infonce(np.roll(np.eye(4), 1, axis=0), temperature=0.02, form="in"),
    "keys": graph_infonce([[0, 0.5, 0.2, 0.3], [0.5, 0, 0.5, 0]], temperature=0.4, keys=KEYS),
    "multiplicity": graph_infonce([[0, 1, 0, 0], [1, 0, 0, 0]], keys=KEYS, multiplicity=[[0, 1, 8, 2], [1, 0, 0, 2.5]]),
    "anchors": graph_infonce(np.roll(np.eye(4), 1, axis=0), anchors=[1, 0, 2, 0.5]),
    "coupled": ring(4).coupled(),
    "function": from_function(lambda x: jnp.sum(jnp.linalg.norm(x[:, None] - x[None] + 0.1, axis=-1)), shape=(4, 2)),
    "parameters": from_function(lambda x, p: jnp.sum(jnp.exp(p * x)), shape=(2, 2), parameters=np.array([0.5, 2.0])),
}  # fmt: skip


def configurations(shape, seed=5):
    x = draw(*shape, seed=seed)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@pytest.mark.parametrize("name", ENERGIES)
def test_energies_and_their_gradients_unroll(name):
    energy = ENERGIES[name]
    size = 1 / float(getattr(energy, "temperature", 1.0))  # rounding of s/tau
    value_and_gradient = jax.value_and_grad(lambda y: energy(y))
    assert_same(value_and_gradient, configurations(energy.shape), rtol=2e-6 * size, atol=2e-6 * size)


def test_an_energy_handed_over_as_arrays_unrolls():
    # The inner loop passes the leaves of the energy, temperature included, as arguments.
    energy = ENERGIES["multiplicity"]
    x = configurations(energy.shape)
    leaves, tree = jax.tree.flatten(
        jax.tree.map(lambda a: np.broadcast_to(a, (LANES, *np.shape(a))).astype(np.float32), energy)
    )

    def function(y, *arrays):
        return jax.grad(lambda z: tree.unflatten(arrays)(z))(y)

    assert_same(function, x, *leaves, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scheme", [
    integrators.geodesic_euler(0.1),
    integrators.geodesic_euler(0.1, corrected_noise=True),
    integrators.projected_euler(0.1, corrected_noise=True),
    integrators.mala(0.1),
], ids=lambda s: s.name)  # fmt: skip
def test_steps_of_every_scheme_unroll(scheme):
    energy = ENERGIES["ring, out"]

    def step(x, normal, uniform, beta):
        state = scheme.init(energy, x)
        new, info = scheme.step(state, Noise(normal, uniform) if scheme.needs_uniform else normal, beta)
        return new.positions, info

    assert isinstance(scheme.init(energy, configurations(energy.shape)[0]), State)
    uniform = np.linspace(0.05, 0.95, LANES, dtype=np.float32)
    beta = np.linspace(0.5, 20, LANES, dtype=np.float32)
    assert_same(step, configurations(energy.shape), draw(5, 2, seed=6), uniform, beta, rtol=1e-5, atol=1e-5)


few = hypothesis.settings(max_examples=10)
small = st.integers(1, 4)


@few
@hypothesis.given(st.lists(small, max_size=2), small, small, small)
def test_products_of_every_shape_unroll(batch, rows, depth, columns):
    assert_same(jnp.matmul, draw(*batch, rows, depth), draw(*batch, depth, columns, seed=1))


@few
@hypothesis.given(st.lists(st.integers(0, 3), min_size=1, max_size=3), st.data())
def test_sums_over_every_choice_of_axes_unroll(shape, data):
    axes = tuple(data.draw(st.lists(st.integers(0, len(shape) - 1), unique=True)))
    assert_same(lambda x: jnp.sum(jnp.sin(x), axis=axes), draw(*shape))


@few
@hypothesis.given(small, small, st.data())
def test_constant_gathers_and_their_gradients_unroll(rows, columns, data):
    indices = np.array(data.draw(st.lists(st.integers(-rows, rows - 1), min_size=1, max_size=5)))
    assert_same(lambda x: x[indices], draw(rows, columns))
    assert_same(total(lambda x: jnp.sin(x[indices])), draw(rows, columns))


@few
@hypothesis.given(st.tuples(small, small), st.tuples(*[st.integers(-1, 2)] * 4), st.integers(0, 2))
def test_pads_of_every_kind_unroll(shape, edges, interior):
    config = ((edges[0], edges[1], interior), (edges[2], edges[3], 0))
    hypothesis.assume(shape[1] + edges[2] + edges[3] > 0)
    hypothesis.assume(shape[0] + (shape[0] - 1) * interior + edges[0] + edges[1] > 0)
    assert_same(lambda x: lax.pad(jnp.sin(x), np.float32(2), config), draw(*shape))
