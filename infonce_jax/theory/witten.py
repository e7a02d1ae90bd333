"""The lowest eigenvalues of -L from a Galerkin matrix of its symmetric (Witten) form.

With f = e^{-beta E/2} u, the generator L = (1/beta) Laplacian - <grad E, grad> becomes minus

    H = -(1/beta) Laplacian + beta |grad E|^2/4 - (Laplacian E)/2 = (1/beta) A* A,   A = grad + (beta/2) grad E,

whose ground state e^{-beta E/2} is known (Witten 1982, "Supersymmetry and Morse theory"). Gaps are exponentially small
in beta, far below the rounding of a matrix with entries of order one: read off H they lose all digits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from infonce_jax.checks import count, refuse

__all__ = ["check_number", "cutoff", "lowest_eigenvalues"]

_GUARD = 10
_MOST_ROUNDS = 200


def lowest_eigenvalues(
    matrix: np.ndarray,
    ground: np.ndarray,
    slopes: Callable[[np.ndarray], np.ndarray],
    number: int,
    beta: float,
) -> np.ndarray:
    """The lowest eigenvalues of H, ascending, the first one zero.

    Inverse iteration on a block of vectors orthogonal to the ground state; the values are squares of the singular
    values of A on the vectors it settles on, sums of squares in which nothing cancels.

    Args:
        matrix: H in an orthonormal basis, shape (size, size).
        ground: coefficients of e^{-beta E/2}, shape (size,), any norm.
        slopes: columns of coefficients, shape (size, k), to A f/sqrt(beta) at quadrature points with the square roots
            of their weights in it, shape (points, k).
        number: of eigenvalues.
        beta: inverse temperature, which sets the unit 1/beta of the spectrum.

    Returns:
        Shape (number,), 1/time.
    """
    size = len(ground)
    if number == 1:
        return np.zeros(1)
    ground = ground / np.linalg.norm(ground)
    # The shift keeps the factorisation away from the ground state's zero and below the spacing of the others.
    factor = cho_factor(matrix + 1e-2 / beta * np.eye(size), lower=True, check_finite=False)
    block = np.random.default_rng(0).normal(size=(size, min(number - 1 + _GUARD, size - 1)))
    values = np.zeros(number - 1)
    for _ in range(_MOST_ROUNDS):
        block, _ = np.linalg.qr(block - np.outer(ground, ground @ block))
        solved = cho_solve(factor, block, check_finite=False)
        inverse, turns = np.linalg.eigh(block.T @ solved)
        block = solved @ turns[:, ::-1]
        before, values = values, inverse[::-1][: number - 1]
        if np.all(np.abs(values - before) <= 1e-12 * values):
            break
    else:
        raise RuntimeError(f"inverse iteration did not settle in {_MOST_ROUNDS} rounds at beta = {beta:g}")
    block, _ = np.linalg.qr(block[:, : number - 1] - np.outer(ground, ground @ block[:, : number - 1]))
    sizes = np.linalg.svd(slopes(block), compute_uv=False)
    return np.concatenate([[0.0], sizes[::-1] ** 2])


def check_number(number: int, most: int = 64) -> int:
    """A number of eigenvalues that the basis can give."""
    if count("number", number) > most:
        raise refuse("number", number, f"at most {most}", "ask for fewer eigenvalues, or more modes")
    return int(number)


def cutoff(shells: np.ndarray, beta: float, most: int, least: int, given: int | None = None) -> int:
    """A cutoff of the basis at which the ground state is resolved.

    The error of an eigenvalue goes with the square of what is cut off.

    Args:
        shells: squared norm of the ground state's coefficients of each degree, shape (degrees,).
        beta: inverse temperature, for the message.
        most: the largest cutoff that is affordable.
        least: the smallest cutoff for the eigenvalues asked for.
        given: the user's choice; without one, the smallest cutoff that keeps all but 1e-7 of the norm.

    Raises:
        InputError: no such cutoff up to `most`, or a given one that cuts off more than 1e-5 of the norm.
    """
    tail = np.sqrt(np.concatenate([np.cumsum(shells[::-1])[::-1][1:], [0.0]]) / shells.sum())
    if given is not None:
        if tail[given] > 1e-5:
            raise refuse("modes", f"{given} at beta = {beta:g}", "enough modes to resolve exp(-beta E/2)",
                         "use more modes or a smaller beta")  # fmt: skip
        return given
    fits = np.flatnonzero(tail[: most + 1] < 1e-7)
    if not len(fits):
        raise refuse("beta", f"{beta:g}, whose law is narrower than {most} modes resolve", "a smaller beta",
                     "at low temperature the gap follows theory.rate")  # fmt: skip
    return max(int(fits[0]), least)
