"""Spherical harmonics on the grid: orthonormal, right derivatives, exact products."""

from __future__ import annotations

import numpy as np
import pytest

from infonce_jax.theory.harmonics import harmonics


@pytest.fixture(scope="module")
def basis():
    return harmonics(9)


def test_basis_is_orthonormal(basis):
    values, _, _ = basis.synthesise(np.eye(100))
    weights = np.repeat(basis.weights, len(basis.azimuths)) * 2 * np.pi / len(basis.azimuths)
    np.testing.assert_allclose(values.T @ (weights[:, None] * values), np.eye(100), atol=1e-12)
    np.testing.assert_allclose(basis.multiplication(np.ones(len(values))), np.eye(100), atol=1e-12)


def test_slopes_carry_the_eigenvalues_of_the_laplacian(basis):
    # int grad Y_a . grad Y_b = l (l + 1) delta_ab
    _, south, east = basis.synthesise(np.eye(100))
    weights = np.repeat(basis.weights, len(basis.azimuths))[:, None] * 2 * np.pi / len(basis.azimuths)
    expected = np.diag(basis.degrees * (basis.degrees + 1.0))
    np.testing.assert_allclose(south.T @ (weights * south) + east.T @ (weights * east), expected, atol=1e-10)


def test_a_polynomial_is_analysed_and_multiplied_exactly(basis):
    x, y, z = basis.points.T
    f, g = 1 + x * y - 2 * z**3, y + 3 * x * z
    coefficients = basis.analyse(f)
    assert np.abs(coefficients[basis.degrees > 3]).max() < 1e-13
    values, south, east = basis.synthesise(coefficients[:, None])
    np.testing.assert_allclose(values[:, 0], f, atol=1e-12)
    np.testing.assert_allclose(basis.multiplication(g) @ coefficients, basis.analyse(f * g), atol=1e-12)
    gradient = np.stack([y, x, -6 * z**2], axis=1)
    gradient -= np.sum(gradient * basis.points, axis=1)[:, None] * basis.points
    np.testing.assert_allclose(south[:, 0] ** 2 + east[:, 0] ** 2, np.sum(gradient**2, axis=1), atol=1e-11)
    sine = np.hypot(x, y)
    np.testing.assert_allclose(east[:, 0], (-gradient[:, 0] * y + gradient[:, 1] * x) / sine, atol=1e-11)
