"""What users rely on, over shapes, precisions, inverse temperatures 1e-6 to 1e6 and steps of any size.

Hypothesis draws the same examples on every run (see conftest.py). `energies/test_temperatures.py` has the energies.
"""

from __future__ import annotations

import functools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import infonce_jax as ij
from infonce_jax import integrators, schedules, sphere
from infonce_jax.energies import graph_infonce
from infonce_jax.noise import Noise, chain_keys, normals, uniforms
from infonce_jax.unroll import as_entries, unroll
from tests.drawn import (
    DTYPES,
    another_seed,
    decades,
    dimensions,
    examples,
    moved,
    numbers,
    points,
    precision,
    precisions,
    rotation,
    seeds,
    unit,
)

# The sphere.


@jax.jit
def end_and_turned_end(x, v, turn):
    return sphere.exp(x, v), sphere.exp(x @ turn, v @ turn)


@examples(max_examples=4)
@hypothesis.given(numbers, dimensions, seeds, precisions, st.lists(st.floats(-12, 8), min_size=12, max_size=12))
def test_a_geodesic_of_any_length_ends_on_the_sphere_and_turns_with_a_rotation(n, d, seed, dtype, exponents):
    rng, eps = np.random.default_rng(seed), np.finfo(dtype).eps
    for exponent in exponents:
        x, turn = points(rng, n, d), rotation(rng, d)
        v = rng.normal(size=(n, d))
        v = 10.0**exponent * unit(v - np.sum(v * x, axis=-1, keepdims=True) * x)
        with precision(dtype):
            y, turned = map(np.asarray, end_and_turned_end(*(array.astype(dtype) for array in (x, v, turn))))
        assert y.dtype == dtype
        np.testing.assert_allclose(np.linalg.norm(y.astype(np.float64), axis=-1), 1, rtol=0, atol=4 * eps)
        if exponent < 2:  # beyond, rounding of the length alone turns the end anywhere
            np.testing.assert_allclose(turned, y @ turn, rtol=0, atol=20 * eps * (1 + 10.0**exponent))


@jax.jit
def distances(x, y, z):
    return tuple(sphere.product_distance(a, b) for a, b in ((x, y), (y, z), (x, z)))


@examples(max_examples=4)
@hypothesis.given(numbers, dimensions, seeds, precisions)
def test_distances_are_a_metric_that_rotations_keep(n, d, seed, dtype):
    rng, eps = np.random.default_rng(seed), np.finfo(dtype).eps
    for _ in range(10):
        corners = points(rng, 3, n, d)
        with precision(dtype):
            there, onward, direct = map(float, distances(*corners.astype(dtype)))
            turned = map(float, distances(*(corners @ rotation(rng, d)).astype(dtype)))
        assert direct <= there + onward + 50 * eps
        np.testing.assert_allclose(list(turned), [there, onward, direct], rtol=0, atol=50 * eps)
        assert min(there, onward, direct) >= 0
        assert max(there, onward, direct) <= np.pi * np.sqrt(n) * (1 + 4 * eps)


@jax.jit
def projections(x, v, factor):
    once = sphere.to_tangent(x, v)
    return once, sphere.to_tangent(x, once), sphere.project(factor * x)


@examples(max_examples=4)
@hypothesis.given(numbers, dimensions, seeds, precisions, st.lists(st.floats(-15, 15), min_size=8, max_size=8))
def test_projections_can_be_made_twice(n, d, seed, dtype, exponents):
    rng, eps = np.random.default_rng(seed), np.finfo(dtype).eps
    for exponent in exponents:
        x = points(rng, n, d).astype(dtype)
        v = (10.0**exponent * rng.normal(size=(n, d))).astype(dtype)
        with precision(dtype):
            once, twice, back = map(np.asarray, projections(x, v, dtype(10.0**exponent)))
        size = np.linalg.norm(v, axis=-1, keepdims=True)
        assert np.all(np.abs(np.sum(x * once, axis=-1, keepdims=True)) <= 8 * eps * size)
        assert np.all(np.abs(twice - once) <= 8 * eps * size)
        np.testing.assert_allclose(back, x, rtol=0, atol=4 * eps)


# Schedules.

FAMILIES = {
    "logarithmic": lambda a, b, t: schedules.logarithmic(a, t0=t, offset=1 + b),
    "power": lambda a, b, t: schedules.power(a, initial=b, t0=t),
    "exponential": lambda a, b, t: schedules.exponential(a, initial=b),
    "linear": lambda a, b, t: schedules.linear(a, initial=b),
    "constant": lambda a, b, t: schedules.constant(a),
    "piecewise": lambda a, b, t: schedules.piecewise([0, t, 2 * t], [a, a + b, a + 2 * b]),
    "geometric": lambda a, b, t: schedules.geometric_to_horizon(a, a + b, t),
    "straight": lambda a, b, t: schedules.linear_to_horizon(a, a + b, t),
    "cosine": lambda a, b, t: schedules.cosine_to_horizon(a, a + b, t),
}


@pytest.mark.parametrize("name", FAMILIES)
@examples(max_examples=40)
@hypothesis.given(decades(-6, 6), decades(-6, 6), decades(-3, 6), st.lists(decades(-6, 15), min_size=1, max_size=8))
def test_schedules_of_any_parameters_are_positive_finite_and_cool(name, a, b, t0, times):
    beta = FAMILIES[name](a, b, t0)
    clock = np.concatenate([[0.0], np.sort(times)])
    values = beta(clock)
    assert values.dtype == np.float64
    assert np.all(np.isfinite(values) & (values > 0))
    assert np.all(np.diff(values) >= -1e-14 * values[1:])
    assert np.all(np.isfinite(values.astype(np.float32)) & (values.astype(np.float32) > 0))  # as the device sees them
    for t, value in zip(clock, values, strict=True):
        assert float(beta(t)) == pytest.approx(value, rel=1e-14)


# Integrators.

SCHEMES = {
    "geodesic": integrators.geodesic_euler,
    "geodesic corrected": lambda h: integrators.geodesic_euler(h, corrected_noise=True),
    "projected": integrators.projected_euler,
    "projected corrected": lambda h: integrators.projected_euler(h, corrected_noise=True),
    "strang": integrators.strang,
    "mala": integrators.mala,
    "hmc": lambda h: integrators.hmc(h, num_leapfrog=2),
    "kinetic": integrators.kinetic,
    "exchange": lambda h: integrators.replica_exchange(integrators.mala(h), (1, 0.5)),
}


def draw(scheme, rng, shape, dtype):
    normal = rng.normal(size=(*scheme.normals, *shape)).astype(dtype)
    return Noise(normal, np.asarray(rng.uniform(size=scheme.uniforms), dtype)) if scheme.needs_uniform else normal


@pytest.mark.parametrize("name", SCHEMES)
@examples(max_examples=1)
@hypothesis.given(numbers, dimensions, another_seed, st.lists(decades(-6, 2), min_size=9, max_size=9), decades(-6, 6))
def test_a_step_of_any_size_at_any_temperature_ends_on_the_sphere(name, n, d, seed, sizes, beta):
    index = list(SCHEMES).index(name)
    (n, d), h, dtype = moved(n, d, index), sizes[index], DTYPES[index % 2]
    scheme, rng = SCHEMES[name](h), np.random.default_rng(seed)
    energy = graph_infonce(rng.uniform(size=(n, n + 2)), 0.1, keys=points(rng, 2, d))
    with precision(dtype):
        start, step = jax.jit(scheme.init), jax.jit(scheme.step)
        for b in (1e-6, beta, 1e6):
            state = start(energy, jnp.asarray(points(rng, n, d), dtype))
            for _ in range(3):
                noise = draw(scheme, rng, (n, d), dtype)
                (new, info), (again, _) = step(state, noise, dtype(b)), step(state, noise, dtype(b))
                jax.tree.map(np.testing.assert_array_equal, new.positions, again.positions)
                assert np.isfinite(info.energy)
                assert 0 <= info.acceptance <= 1
                state = new
                norms = np.linalg.norm(np.asarray(state.positions, np.float64), axis=-1)
                np.testing.assert_allclose(norms, 1, rtol=0, atol=20 * np.finfo(dtype).eps)


@pytest.mark.parametrize("name", ["geodesic", "projected corrected", "mala", "kinetic"])
@examples(max_examples=1)
@hypothesis.given(
    st.integers(1, 4), st.integers(2, 4), another_seed, st.sampled_from(["out", "in", "pairs"]), decades(-2, 2)
)
def test_a_step_written_out_in_scalars_is_the_step(name, n, d, seed, form, tau):
    scheme, rng = SCHEMES[name](0.05), np.random.default_rng(seed)
    with jax.enable_x64(True):
        energy = graph_infonce(rng.uniform(0.1, 1, size=(n, n + 2)), tau, keys=points(rng, 2, d), form=form)
        begin = jax.jit(jax.vmap(lambda x: scheme.init(energy, x)._replace(energy=None)))
        state = begin(jnp.asarray(points(rng, 16, n, d)))
        noise = jax.tree.map(
            lambda *leaves: np.stack(leaves), *(draw(scheme, rng, (n, d), np.float64) for _ in range(16))
        )

        def step(state, noise):
            new, info = scheme.step(state._replace(energy=energy), noise, jnp.asarray(2.0))
            return new.positions, info.energy, info.acceptance

        one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), (state, noise))
        scalar = unroll(step, *one)

        def lane(state, noise):
            out = scalar(*jax.tree.map(as_entries, (state, noise)))
            return tuple(jnp.stack([jnp.asarray(e) for e in array.ravel()]).reshape(array.shape) for array in out)

        got, want = jax.jit(jax.vmap(lane))(state, noise), jax.jit(jax.vmap(step))(state, noise)
        for a, b in zip(got, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-11 * (1 + 1 / tau) * (1 + np.max(np.abs(b))))


# Noise.


@functools.partial(jax.jit, static_argnames="size")
def drawn(keys, step, size):
    return normals(keys, step, size), uniforms(keys, step, size, count=3)


@examples(max_examples=30)
@hypothesis.given(
    st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), st.sampled_from([1, 6, 11])
)
def test_the_numbers_of_a_chain_are_finite_and_know_nothing_of_the_batch(seed, chain, step, size):
    neighbours = (chain + np.arange(32, dtype=np.uint64) * 977) % 2**32
    keys = chain_keys(seed, neighbours.astype(np.uint32))
    alone = chain_keys(seed, np.full(16, chain, np.uint32))
    (many, chance), (one, own) = (drawn(k, np.uint32(step), size) for k in (keys, alone))
    np.testing.assert_array_equal(many[:, 0], one[:, 0])
    np.testing.assert_array_equal(chance[:, 0], own[:, 0])
    assert np.all(np.abs(np.asarray(many)) < 6.7)
    assert np.all((np.asarray(chance) > 0) & (np.asarray(chance) < 1))
    assert len(np.unique(many[0])) == 32  # a collision among 32 numbers of 31 bits has chance 2e-7


# Whole runs.


@examples(max_examples=2)
@hypothesis.given(
    st.integers(1, 4), st.integers(2, 5), another_seed, st.sampled_from(["float32", "float64"]), decades(-6, 6)
)
def test_chains_of_any_shape_keep_unit_rows_and_know_nothing_of_each_other(n, d, seed, dtype, beta):
    rng = np.random.default_rng(seed)
    energy = graph_infonce(rng.uniform(size=(n, n + 2)), 0.3, keys=points(rng, 2, d))
    few, many = (
        ij.run_chains(energy, schedules.constant(beta), integrators.geodesic_euler(0.02), num_chains=chains,
                      num_steps=12, seed=seed, dtype=dtype, num_devices=1).final_positions
        for chains in (3, 37)
    )  # fmt: skip
    assert many.shape == (37, n, d)
    assert many.dtype == few.dtype == np.dtype(dtype)
    norms = np.linalg.norm(many.astype(np.float64), axis=-1)
    np.testing.assert_allclose(norms, 1, rtol=0, atol=4 * np.finfo(dtype).eps)
    np.testing.assert_array_equal(many[:3], few)


def test_chains_in_batches_keep_their_own_numbers():
    # From one start, so that two chains with the same numbers would end in the same place.
    start = np.tile([[1.0, 0.0]], (3, 1))
    whole, cut = (
        ij.run_chains(ij.scenarios.ring(3).energy, schedules.constant(1.0), integrators.geodesic_euler(0.02),
                      num_chains=50, num_steps=5, initial=start, num_devices=1, max_memory=limit).final_positions
        for limit in (None, "5KB")
    )  # fmt: skip
    np.testing.assert_array_equal(cut, whole)
    assert len(np.unique(cut.reshape(50, -1), axis=0)) == 50
