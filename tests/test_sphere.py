from __future__ import annotations

import functools
import itertools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from infonce_jax import sphere

DTYPES = (np.float32, np.float64)
ROWS = 16

exp, log, distance, transport = (jax.jit(f) for f in (sphere.exp, sphere.log, sphere.distance, sphere.transport))
dimensions = st.integers(2, 8)
seeds = st.integers(0, 2**32 - 1)
examples = functools.partial(hypothesis.settings, max_examples=20)


def precision(dtype):
    """Double precision as a context: a global switch would change every other test."""
    return jax.enable_x64(dtype == np.float64)


def unit(array):
    return array / np.linalg.norm(array, axis=-1, keepdims=True)


def point_and_direction(d, seed, rows=ROWS):
    """Points and unit tangent vectors there, float64."""
    draw = np.random.default_rng(seed)
    x = unit(draw.normal(size=(rows, d)))
    t = draw.normal(size=(rows, d))
    for _ in range(2):  # once leaves rounding behind where t starts almost parallel to x
        t = unit(t - np.sum(t * x, axis=-1, keepdims=True) * x)
    return x, t


def pair(d, seed, angle, dtype, rows=ROWS):
    """x, unit direction t and the point y at `angle` from x along t, rounded to dtype only at the end."""
    x, t = point_and_direction(d, seed, rows)
    return tuple(a.astype(dtype) for a in (x, t, np.cos(angle) * x + np.sin(angle) * t))


def test_quarter_turn_lands_on_the_axis_to_a_few_ulps():
    # geomstats 1640: off by 1e-8 in double precision.
    for dtype in DTYPES:
        with precision(dtype):
            e1, e2 = np.eye(2, dtype=dtype)
            np.testing.assert_allclose(exp(e1, dtype(np.pi / 2) * e2), e2, rtol=0, atol=2 * np.finfo(dtype).eps)


@pytest.mark.parametrize("d", [2, 3, 8])
def test_log_at_the_antipode_is_nan_in_every_entry(d):
    # geomstats 1218 returned 0. Random points matter: in them <x, x> is not exactly 1 after rounding.
    for dtype in DTYPES:
        with precision(dtype):
            x = point_and_direction(d, 0, rows=200)[0].astype(dtype)
            assert np.all(np.isnan(log(x, -x)))


def test_transport_to_the_antipode_is_not_finite():
    x, t = (a.astype(np.float32) for a in point_and_direction(3, 1))
    assert not np.any(np.isfinite(transport(x, -x, t)))


@examples()
@hypothesis.given(dimensions, seeds)
def test_exp_of_zero_is_the_point(d, seed):
    x = point_and_direction(d, seed)[0].astype(np.float32)
    np.testing.assert_allclose(exp(x, np.zeros_like(x)), x, rtol=0, atol=1.2e-7)


@examples()
@hypothesis.given(dimensions, seeds)
def test_log_and_distance_of_a_point_to_itself_are_exactly_zero(d, seed):
    x = point_and_direction(d, seed)[0].astype(np.float32)
    assert np.all(np.asarray(log(x, x)) == 0)
    assert np.all(np.asarray(distance(x, x)) == 0)
    assert float(sphere.product_distance(x, x)) == 0


def test_exp_has_the_identity_as_derivative_at_zero():
    # jax-rb gave NaN; the derivative along the sphere is the projection to the tangent space.
    x, _ = point_and_direction(3, 2, rows=1)
    jacobian = jax.jacobian(lambda v: sphere.exp(x[0].astype(np.float32), v))(jnp.zeros(3))
    np.testing.assert_allclose(jacobian, np.eye(3) - np.outer(x, x), atol=3e-7)


def test_exp_has_the_right_second_derivative_at_zero():
    # The acceleration of a geodesic is -|v|^2 x; a guarded square root loses it exactly at v = 0.
    x, t = (a[0].astype(np.float32) for a in point_and_direction(4, 3, rows=1))

    def curve(s):
        return sphere.exp(x, s * 2 * t)

    np.testing.assert_allclose(jax.jacfwd(jax.jacfwd(curve))(0.0), -4 * x, atol=3e-6)


def test_log_has_the_identity_as_derivative_at_coincidence():
    x = point_and_direction(3, 4, rows=1)[0][0].astype(np.float32)
    jacobian = jax.jacobian(lambda y: sphere.log(x, y))(x)
    np.testing.assert_allclose(jacobian, np.eye(3) - np.outer(x, x), atol=3e-7)


@pytest.mark.parametrize("function", [sphere.distance, sphere.product_distance])
@pytest.mark.parametrize("argument", [0, 1])
def test_distances_have_gradient_zero_at_coincidence(function, argument):
    x = point_and_direction(3, 5)[0].astype(np.float32)
    gradient = jax.grad(lambda a, b: jnp.sum(function(a, b)), argnums=argument)(x, x)
    assert np.all(np.asarray(gradient) == 0)


def test_distance_has_a_unit_gradient_everywhere_else():
    # arccos would give 0/0 or infinity at the small angles.
    for angle in (1e-4, 1e-2, 1.0, 3.0, np.pi - 1e-4):
        x, _, y = pair(3, 6, angle, np.float32)
        gradient = jax.grad(lambda a, y=y: jnp.sum(sphere.distance(a, y)))(x)
        lengths = np.linalg.norm(sphere.to_tangent(x, gradient), axis=-1)
        np.testing.assert_allclose(lengths, 1, atol=5e-3)  # inputs rounded to 6e-8 over an angle of 1e-4


@examples()
@hypothesis.given(dimensions, seeds, st.floats(-7, np.log10(3.1)))
def test_exp_undoes_log(d, seed, exponent):
    for dtype in DTYPES:
        with precision(dtype):
            x, _, y = pair(d, seed, 10.0**exponent, dtype)
            # Near the antipode log stretches the rounding of its inputs by 1/sin, and exp shrinks it again.
            np.testing.assert_allclose(exp(x, log(x, y)), y, rtol=0, atol=8 * np.finfo(dtype).eps)


@examples()
@hypothesis.given(dimensions, seeds, st.floats(-7, np.log10(3.1)))
def test_log_undoes_exp(d, seed, exponent):
    angle = 10.0**exponent
    for dtype in DTYPES:
        with precision(dtype):
            x, t, _ = pair(d, seed, angle, dtype)
            v = dtype(angle) * t
            error = np.abs(np.asarray(log(x, exp(x, v))) - v)
            # y is known to an ulp, which is eps/sin(angle) in direction times the length of v.
            assert np.all(error <= 6 * np.finfo(dtype).eps * max(1, angle / np.sin(angle)))


@examples()
@hypothesis.given(dimensions, seeds, st.floats(0, np.pi))
def test_distance_is_the_angle(d, seed, angle):
    for dtype in DTYPES:
        with precision(dtype):
            x, _, y = pair(d, seed, angle, dtype)
            np.testing.assert_allclose(distance(x, y), angle, rtol=0, atol=4 * np.finfo(dtype).eps)
            np.testing.assert_array_equal(distance(x, y), distance(y, x))


@pytest.mark.parametrize("angle", [1e-6, 1e-4])
def test_small_angles_keep_their_digits_in_single_precision(angle):
    # arccos<x, y> returns 0 for both. On an axis nothing is lost to the rounding of the inputs.
    x = np.array([1, 0, 0], np.float32)
    y = np.array([np.cos(angle), np.sin(angle), 0], np.float32)
    np.testing.assert_allclose(distance(x, y), angle, rtol=3e-7)
    np.testing.assert_allclose(log(x, y), [0, angle, 0], rtol=3e-7, atol=1e-12)


@pytest.mark.parametrize("angle", [1e-6, 1e-4])
def test_log_of_near_coincident_points_is_right_for_the_rounded_points(angle):
    x, _, y = pair(5, 7, angle, np.float32, rows=100)
    a, b = x.astype(np.float64), y.astype(np.float64)
    chord = b - a
    want = chord - np.sum(chord * a, axis=-1, keepdims=True) * a  # the angle and its sine agree to 1e-8 here
    assert np.max(np.abs(log(x, y) - want)) < 1e-6 * angle


@pytest.mark.parametrize("gap", [1e-3, 1e-4, 1e-5])
def test_log_near_the_antipode_has_the_right_length_and_direction(gap):
    x, t, y = pair(3, 8, np.pi - gap, np.float32, rows=100)
    v = np.asarray(log(x, y), np.float64)
    length = np.linalg.norm(v, axis=-1)
    np.testing.assert_allclose(length, np.pi - gap, rtol=0, atol=1e-6)
    cosine = np.sum(v * t, axis=-1) / length
    # Inputs rounded to 6e-8 turn the direction by about 1e-7/gap, and the cosine by half its square.
    assert np.min(cosine) > 1 - (3e-7 / gap) ** 2 - 3e-7
    assert np.max(np.abs(np.sum(v * x, axis=-1))) < 2e-6  # tangent, not along x


@examples()
@hypothesis.given(dimensions, seeds, st.floats(-6, np.log10(3.1)))
def test_transport_is_an_isometry_into_the_new_tangent_space(d, seed, exponent):
    for dtype in DTYPES:
        with precision(dtype):
            x, _, y = pair(d, seed, 10.0**exponent, dtype)
            draw = np.random.default_rng(seed + 1)
            v, w = (a - np.sum(a * x, -1, keepdims=True) * x for a in draw.normal(size=(2, *x.shape)).astype(dtype))
            tv, tw = np.asarray(transport(x, y, v)), np.asarray(transport(x, y, w))
            # |x + y| = 2 cos(angle/2) divides the rounding of the inputs.
            scale = 20 * np.finfo(dtype).eps / np.cos(10.0**exponent / 2) ** 2
            size = 1 + np.linalg.norm(v, axis=-1) * np.linalg.norm(w, axis=-1)
            assert np.all(np.abs(np.sum(tv * tw, -1) - np.sum(v * w, -1)) <= scale * size)
            assert np.all(np.abs(np.sum(tv * y, -1)) <= scale * size)


@examples()
@hypothesis.given(dimensions, seeds, st.floats(-3, np.log10(3.0)))
def test_transport_carries_the_velocity_of_its_geodesic(d, seed, exponent):
    angle = 10.0**exponent
    for dtype in DTYPES:
        with precision(dtype):
            x, t, y = pair(d, seed, angle, dtype)
            arrival = np.cos(angle) * t - np.sin(angle) * x
            np.testing.assert_allclose(
                transport(x, y, t), arrival, rtol=0, atol=30 * np.finfo(dtype).eps / np.cos(angle / 2)
            )


def test_transport_back_undoes_transport():
    x, t, y = pair(4, 9, 2.0, np.float32)
    np.testing.assert_allclose(transport(y, x, transport(x, y, t)), t, atol=2e-6)


def test_a_long_chain_of_exp_stays_on_the_sphere():
    x, t = (a.astype(np.float32) for a in point_and_direction(3, 10))
    end = jax.lax.fori_loop(0, 10_000, lambda _, y: sphere.exp(y, sphere.to_tangent(y, 0.1 * t)), jnp.asarray(x))
    np.testing.assert_allclose(np.linalg.norm(end, axis=-1), 1, rtol=0, atol=2.5e-7)


def test_product_distance_is_the_root_of_the_sum_of_squares():
    x = np.array([[1, 0], [1, 0]], np.float32)
    y = np.array([[0, 1], [-1, 0]], np.float32)
    np.testing.assert_allclose(sphere.product_distance(x, y), np.hypot(np.pi / 2, np.pi), rtol=3e-7)


def test_project_of_a_zero_row_is_nan_and_of_others_a_unit_row():
    out = np.asarray(sphere.project(jnp.array([[3.0, 4.0], [0.0, 0.0]])))
    np.testing.assert_allclose(out[0], [0.6, 0.8], rtol=2e-7)
    assert np.all(np.isnan(out[1]))


def smooth(x):
    """A function without symmetries whose derivatives along geodesics do not vanish."""
    weights = jnp.arange(1.0, x.size + 1, dtype=x.dtype).reshape(x.shape) / 4
    return jnp.sum(jnp.sin(weights * x)) + jnp.exp(jnp.sum(x[0] * x[-1])) + jnp.log(2 + jnp.sum(x[:, 0]) ** 2)


def stencil(f, step):
    """First and second derivative at 0 by central differences of fourth order."""
    a, b, c, d, e = (float(f(k * step)) for k in (-2, -1, 0, 1, 2))
    return (a - 8 * b + 8 * d - e) / (12 * step), (-a + 16 * b - 30 * c + 16 * d - e) / (12 * step**2)


@pytest.mark.parametrize(("n", "d"), [(1, 2), (2, 3), (3, 4)])
def test_gradient_and_hessian_are_the_derivatives_along_geodesics(n, d):
    with jax.enable_x64(True):
        draw = np.random.default_rng(11)
        x = jnp.asarray(unit(draw.normal(size=(n, d))))
        basis = sphere.tangent_basis(x)
        gradient, matrix = sphere.gradient(smooth)(x), np.asarray(sphere.hessian(smooth)(x))
        energy = jax.jit(lambda v: smooth(sphere.exp(x, v)))
        for _ in range(5):
            c = draw.normal(size=(n, d - 1))
            c /= np.linalg.norm(c)
            v = jnp.einsum("ia,iak->ik", c, basis)
            first, second = stencil(lambda s, v=v: energy(s * v), 2e-3)
            assert abs(first - float(jnp.sum(gradient * v))) < 1e-8
            assert abs(second - c.ravel() @ matrix @ c.ravel()) < 1e-6


def test_hessian_is_the_projected_second_derivative_minus_the_radial_one():
    # THEORY section 2: P_i (d^2 E/dz_i dz_j) P_j - delta_ij <z_i, dE/dz_i> P_i, block by block for a quadratic E.
    n, d = 3, 3
    draw = np.random.default_rng(12)
    m = draw.normal(size=(n * d, n * d))
    m, b = m + m.T, draw.normal(size=n * d)
    with jax.enable_x64(True):
        x = unit(draw.normal(size=(n, d)))

        def quadratic(z):
            return z.ravel() @ (m @ z.ravel()) / 2 + b @ z.ravel()

        matrix = np.asarray(sphere.hessian(quadratic)(jnp.asarray(x)))
        basis = np.asarray(sphere.tangent_basis(jnp.asarray(x)))
    euclidean = (m @ x.ravel() + b).reshape(n, d)
    for i, j in itertools.product(range(n), repeat=2):
        p_i, p_j = np.eye(d) - np.outer(x[i], x[i]), np.eye(d) - np.outer(x[j], x[j])
        block = p_i @ m[i * d : (i + 1) * d, j * d : (j + 1) * d] @ p_j - (i == j) * (x[i] @ euclidean[i]) * p_i
        got = matrix.reshape(n, d - 1, n, d - 1)[i, :, j]
        np.testing.assert_allclose(got, basis[i] @ block @ basis[j].T, atol=1e-12)
    np.testing.assert_array_equal(matrix, matrix.T)


def test_hessian_of_a_rotation_invariant_energy_vanishes_along_rotations():
    def energy(z):
        return jnp.exp(2 * jnp.sum(z[0] * z[1]))

    with jax.enable_x64(True):
        x = jnp.array([[0.6, 0.8, 0.0], [0.6, 0.8, 0.0]])  # a critical point
        matrix = np.asarray(sphere.hessian(energy)(x))
        turn = jnp.array([[0.0, 1.0, 2.0], [-1.0, 0.0, 3.0], [-2.0, -3.0, 0.0]])
        c = jnp.einsum("iak,ik->ia", sphere.tangent_basis(x), x @ turn.T).ravel()
        np.testing.assert_allclose(matrix @ c, 0, atol=1e-12)


def poles(d):
    """Points where a basis is prone to break: axes of both signs, and points next to them."""
    axes = np.concatenate([np.eye(d), -np.eye(d)])
    near = [unit(axes + s * np.roll(axes, 1, axis=-1)) for s in (1e-3, 1e-7, -1e-7)]
    return np.concatenate([axes, *near])


@examples()
@hypothesis.given(dimensions, seeds)
def test_tangent_basis_is_orthonormal_everywhere(d, seed):
    for dtype in DTYPES:
        with precision(dtype):
            x = np.concatenate([poles(d), point_and_direction(d, seed)[0]]).astype(dtype)
            frame = np.concatenate([np.asarray(sphere.tangent_basis(x)), x[:, None]], axis=1)
            gram = np.einsum("iak,ibk->iab", frame, frame)
            np.testing.assert_allclose(gram, np.broadcast_to(np.eye(d), gram.shape), atol=8 * np.finfo(dtype).eps)


def test_uniform_points_have_the_first_two_moments_of_the_sphere():
    # 14 numbers within 5 standard deviations at a fixed key; a wrong law fails by far, a right one with chance 8e-6.
    count, d = 2**16, 4
    x = np.asarray(sphere.uniform(jax.random.key(0), (count, d)), np.float64)
    assert np.all(np.abs(x.mean(axis=0)) < 5 / np.sqrt(d * count))
    second = x.T @ x / count
    # Var x_i^2 = 3/(d(d+2)) - 1/d^2 and Var x_i x_j = 1/(d(d+2)).
    spread = np.where(np.eye(d) > 0, 3 / (d * (d + 2)) - 1 / d**2, 1 / (d * (d + 2)))
    assert np.all(np.abs(second - np.eye(d) / d) < 5 * np.sqrt(spread / count))


def test_uniform_points_on_the_2_sphere_have_a_uniform_height():
    # Archimedes. Kolmogorov-Smirnov at a fixed key, refused below p = 1e-6, its false-alarm rate.
    z = np.asarray(sphere.uniform(jax.random.key(1), (2**16, 3)))[:, 2]
    assert scipy.stats.kstest(z, scipy.stats.uniform(-1, 2).cdf).pvalue > 1e-6


def test_uniform_has_the_shape_and_type_asked_for():
    with jax.enable_x64(True):
        x = sphere.uniform(jax.random.key(2), (3, 4, 5), jnp.float64)
    assert x.shape == (3, 4, 5)
    assert x.dtype == np.float64
    np.testing.assert_allclose(np.linalg.norm(x, axis=-1), 1, atol=1e-15)
