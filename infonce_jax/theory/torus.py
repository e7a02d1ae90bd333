"""Energies of one or two angles: one embedding on the circle, or differences of two or three angles.

With one embedding the angle is its own. With n = 2 or 3 embeddings and an energy that rotations leave alone, the n - 1
angles are phi_k = theta_k - theta_0. All of them share the noise of theta_0, so that a derivative along theta_i is
sum_k R_ik d/dphi_k with R the rows (-1, ..., -1), (1, 0, ...), (0, 1, ...): the diffusion matrix of phi is R^T R,
2 on the diagonal and 1 off it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from infonce_jax.checks import count, positive
from infonce_jax.energies.base import Energy
from infonce_jax.landscape.derivatives import double_precision, energies_of
from infonce_jax.theory.witten import check_number, cutoff, lowest_eigenvalues

__all__ = ["configurations", "derivative_rows", "fourier_spectrum"]


def derivative_rows(n: int) -> np.ndarray:
    """R, shape (n, k): the derivative along each embedding's angle in terms of the k angles of an energy."""
    return np.eye(1) if n == 1 else np.vstack([-np.ones(n - 1), np.eye(n - 1)])


def _frames(n: int) -> np.ndarray:
    """Angles of the embeddings from the k angles of the energy, shape (n, k); with n > 1 the first one stays at 0."""
    return np.eye(1) if n == 1 else np.vstack([np.zeros(n - 1), np.eye(n - 1)])


def configurations(phi: np.ndarray, n: int) -> np.ndarray:
    """Configurations of n embeddings on the circle, shape (points, n, 2), at angles phi, shape (points, k)."""
    angles = phi @ _frames(n).T
    return np.stack([np.cos(angles), np.sin(angles)], axis=-1)


@jax.jit
def _derivatives(energy: Energy, phi: jax.Array, frames: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    def at(angles: jax.Array) -> jax.Array:
        theta = frames @ angles
        return energy(jnp.stack([jnp.cos(theta), jnp.sin(theta)], axis=-1))

    return jax.vmap(lambda angles: (at(angles), jax.grad(at)(angles), jax.hessian(at)(angles)))(phi)


def _angle_derivatives(energy: Energy, phi: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """E (points,), its gradient (points, k) and Hessian (points, k, k) in the angles, in float64."""
    with jax.enable_x64(True):
        frames = jnp.asarray(_frames(energy.shape[0]), jnp.float64)
        parts = _derivatives(double_precision(energy), jnp.asarray(phi, jnp.float64), frames)
        value, gradient, hessian = (np.asarray(part) for part in parts)
    return value, gradient, hessian


def _grid(points: int, k: int) -> np.ndarray:
    axis = 2 * np.pi * np.arange(points) / points
    return np.stack(np.meshgrid(*[axis] * k, indexing="ij"), axis=-1).reshape(-1, k)


def _half_plane(modes: int, k: int) -> np.ndarray:
    """One of each pair of wave vectors +-q other than 0 with entries up to `modes`, shape (pairs, k)."""
    waves = np.array(list(itertools.product(range(-modes, modes + 1), repeat=k)))
    return waves[len(waves) // 2 + 1 :]


def fourier_spectrum(energy: Energy, beta: float, number: int, modes: int | None = None, most: int = 256) -> np.ndarray:
    """The lowest eigenvalues of -L on functions of the angles, ascending, the first one zero, from Fourier modes.

    Args:
        energy: of shape (1, 2), or of shape (2, 2) or (3, 2) and unchanged by rotations.
        beta: inverse temperature.
        number: of eigenvalues.
        modes: waves up to this many per turn; by default as many as resolve e^{-beta E/2}, `most` at most.
        most: see modes.

    Raises:
        InputError: a law too narrow for the modes, or more eigenvalues than they give.
    """
    rows = derivative_rows(energy.shape[0])
    b, k = positive("beta", beta), rows.shape[1]
    number = check_number(number) if modes is None else check_number(number, count("modes", modes, least=8))
    finest = 4 * (most if modes is None else modes)
    energies = energies_of(energy, configurations(_grid(finest, k), energy.shape[0]))
    shells = _shells(np.exp(-b * (energies - energies.min()) / 2), finest, k)
    m = cutoff(shells, b, most, 8 + (number if k == 1 else 2 * math.isqrt(number)), modes)
    points = 4 * m
    value, gradient, hessian = _angle_derivatives(energy, _grid(points, k))
    slope = gradient @ rows.T
    laplacian = np.einsum("ik,pkl,il->p", rows, hessian, rows)
    waves = _half_plane(m, k)
    matrix = _multiplication(b * np.sum(slope**2, axis=1) / 4 - laplacian / 2, waves, points)
    kinetic = np.sum((waves @ rows.T) ** 2, axis=1) / b
    matrix[np.diag_indices_from(matrix)] += np.concatenate([[0.0], kinetic, kinetic])
    ground = _coefficients(np.exp(-b * (value - value.min()) / 2), waves, points)
    return lowest_eigenvalues(matrix, ground, _slopes(slope, rows, waves, points, b), number, b)


def _shells(values: np.ndarray, points: int, k: int) -> np.ndarray:
    """Squared norms of the Fourier coefficients by the largest entry of the wave vector."""
    strengths = np.abs(np.fft.fftn(values.reshape((points,) * k))) ** 2
    axis = np.abs(np.fft.fftfreq(points, 1 / points)).astype(int)
    degree = np.max(np.stack(np.meshgrid(*[axis] * k, indexing="ij")), axis=0)
    return np.bincount(degree.ravel(), strengths.ravel())


def _transform(values: np.ndarray, points: int, k: int) -> np.ndarray:
    return np.fft.fftn(values.reshape((points,) * k)) / points**k


def _coefficients(values: np.ndarray, waves: np.ndarray, points: int) -> np.ndarray:
    """Coefficients in the orthonormal real basis 1, sqrt2 cos(q phi), sqrt2 sin(q phi)."""
    table = _transform(values, points, waves.shape[1])
    there = table[tuple((waves % points).T)]
    return np.concatenate([np.real(table.ravel()[:1]), np.sqrt(2) * np.real(there), -np.sqrt(2) * np.imag(there)])


def _multiplication(values: np.ndarray, waves: np.ndarray, points: int) -> np.ndarray:
    """Matrix of the multiplication by a function in the real basis."""
    table = _transform(values, points, waves.shape[1])
    minus = table[tuple(np.moveaxis((waves[:, None] - waves[None]) % points, -1, 0))]
    plus = table[tuple(np.moveaxis((waves[:, None] + waves[None]) % points, -1, 0))]
    first = _coefficients(values, waves, points)
    size = len(waves)
    matrix = np.empty((2 * size + 1, 2 * size + 1))
    matrix[0], matrix[:, 0] = first, first
    cosine, sine = slice(1, size + 1), slice(size + 1, None)
    matrix[cosine, cosine], matrix[sine, sine] = np.real(minus + plus), np.real(minus - plus)
    matrix[sine, cosine] = -np.imag(plus + minus)
    matrix[cosine, sine] = matrix[sine, cosine].T
    return matrix


def _slopes(
    slope: np.ndarray, rows: np.ndarray, waves: np.ndarray, points: int, beta: float
) -> Callable[[np.ndarray], np.ndarray]:
    """Coefficients to A f/sqrt(beta) on the grid, one row of A per embedding."""
    k, size = waves.shape[1], len(waves)
    plus, minus = tuple((waves % points).T), tuple((-waves % points).T)
    axis = np.fft.fftfreq(points, 1 / points)
    frequency = np.stack(np.meshgrid(*[axis] * k, indexing="ij"), axis=-1)
    scale = np.sqrt(beta * points**k)

    def apply(block: np.ndarray) -> np.ndarray:
        table = np.zeros((*(points,) * k, block.shape[1]), dtype=complex)
        half = (block[1 : size + 1] - 1j * block[size + 1 :]) / np.sqrt(2)
        table[(0,) * k], table[plus], table[minus] = block[0], half, half.conj()
        axes = tuple(range(k))

        def values(coefficients: np.ndarray) -> np.ndarray:
            return np.real(np.fft.ifftn(coefficients, axes=axes)).reshape(points**k, -1) * points**k

        function = values(table)
        parts = [
            values(1j * (frequency @ row)[..., None] * table) + beta / 2 * part[:, None] * function
            for row, part in zip(rows, slope.T, strict=True)
        ]
        return np.concatenate(parts) / scale

    return apply
