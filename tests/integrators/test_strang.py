"""Strang splitting against the tabulated law, and that each of its parts is needed for order 2."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from infonce_jax import energies, integrators, sphere

EXACT = 1 / np.tanh(2) - 1 / 2  # A_3(2)
# theory.json, integrators/vmf_S2_kappa2, "Strang midpoint flow+corrected Gaussian BM": stationary mean of z.
STATIONARY = {0.1: 0.5384317373941978, 0.05: 0.5375960533819083, 0.025: 0.5373853153935446}


@pytest.mark.parametrize("h", STATIONARY)
def test_stationary_mean_is_the_tabulated_one(zonal_operator, h):
    assert zonal_operator(integrators.strang(h), 2.0).stationary_mean() == pytest.approx(STATIONARY[h], abs=2e-10)


def test_stationary_error_is_of_order_two(zonal_operator):
    errors = [zonal_operator(integrators.strang(h), 2.0).stationary_mean() - EXACT for h in (0.05, 0.025)]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(2, abs=0.02)


def lopsided(x):
    weights = jnp.arange(1.0, x.size + 1, dtype=x.dtype).reshape(x.shape)
    return jnp.sum(jnp.cos(weights * x)) - 1.3 * x[0, -1] + 0.7 * jnp.sum(x[0] * x[-1] ** 2)


def test_without_noise_it_is_the_gradient_flow_to_order_two():
    # Over the time .2 of an energy without symmetry on (S^2)^2, against a solver of high order.
    energy = energies.from_function(lopsided, shape=(2, 3))
    x = np.array([[0.6, 0.8, 0.0], [0.0, 0.6, -0.8]])
    with jax.enable_x64(True):
        slope = jax.jit(sphere.gradient(energy))
        exact = solve_ivp(
            lambda _, y: -np.asarray(slope(jnp.asarray(y.reshape(2, 3)))).ravel(), (0, 0.2), x.ravel(),
            method="DOP853", rtol=1e-11, atol=1e-12,
        ).y[:, -1].reshape(2, 3)  # fmt: skip
        errors = []
        for steps in (20, 40):
            scheme = integrators.strang(0.2 / steps)
            step = jax.jit(lambda s, scheme=scheme: scheme.step(s, jnp.zeros((2, 3)), jnp.ones(()))[0])
            state = scheme.init(energy, jnp.asarray(x))
            for _ in range(steps):
                state = step(state)
            errors.append(np.max(np.abs(state.positions - exact)))
    assert np.log2(errors[0] / errors[1]) == pytest.approx(2, abs=0.15)
    assert errors[1] < 1e-3


def test_a_flat_energy_leaves_the_corrected_brownian_step():
    # With no drift the step is that of geodesic Euler with the corrected variance, number for number.
    flat = energies.from_function(lambda x: 0.0 * jnp.sum(x), shape=(2, 4))
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        x = sphere.project(jnp.asarray(rng.normal(size=(2, 4))))
        normal = jnp.asarray(rng.normal(size=(2, 4)))
        ends = [
            scheme.step(scheme.init(flat, x), normal, jnp.asarray(0.7))[0].positions
            for scheme in (integrators.strang(0.05), integrators.geodesic_euler(0.05, corrected_noise=True))
        ]
    np.testing.assert_allclose(*ends, rtol=0, atol=1e-15)
