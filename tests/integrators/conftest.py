"""Quadrature in the place of random numbers, shared by the tests of the schemes: laws without sampling error."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.polynomial import hermite_e, legendre

from infonce_jax import energies


def gauss_hermite(count, dimension):
    """Nodes (count^dimension, dimension) and weights of the standard normal law."""
    node, weight = hermite_e.hermegauss(count)
    nodes = np.stack([g.ravel() for g in np.meshgrid(*[node] * dimension, indexing="ij")], axis=-1)
    weights = np.prod(np.meshgrid(*[weight / weight.sum()] * dimension, indexing="ij"), axis=0).ravel()
    return nodes, weights


class ZonalOperator:
    """The transition operator of a scheme for E = -kappa z on S^2, beta = 1, on functions of z.

    Rotations about the z axis make z a Markov chain on [-1, 1]; E[f(z') | z] is analytic in z, so polynomials on
    Gauss-Legendre points resolve it. All three numbers of the noise are integrated over: a scheme may draw its noise
    away from where it starts. `matrix[k, l]` is the coefficient of P_k in E[P_l(z')], P the Legendre polynomials.
    """

    def __init__(self, scheme, kappa, grid=30, count=16):
        z, _ = legendre.leggauss(grid)
        x = np.stack([np.sqrt(1 - z**2), np.zeros(grid), z], axis=-1)
        nodes, weights = gauss_hermite(count, 3)
        energy = energies.from_function(lambda x: -kappa * jnp.sum(x[:, -1]), shape=(1, 3))

        def one(start, normal):
            return scheme.step(scheme.init(energy, start[None]), normal[None], jnp.ones(()))[0].positions[0, -1]

        with jax.enable_x64(True):
            after = np.asarray(jax.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))(x, nodes))
        moments = np.einsum("k,ikl->il", weights, legendre.legvander(np.clip(after, -1, 1), grid - 1))
        self.matrix = np.linalg.solve(legendre.legvander(z, grid - 1), moments)

    def stationary_mean(self):
        """Mean of z under the stationary law."""
        values, vectors = np.linalg.eig(self.matrix.T)
        law = np.real(vectors[:, np.argmin(np.abs(values - 1))])  # means of the polynomials, up to a factor
        return law[1] / law[0]

    def mean_after(self, steps, start):
        """Mean of z after some steps from z = start."""
        mean = np.linalg.matrix_power(self.matrix, steps)[:, 1]
        return legendre.legval(start, mean)


@pytest.fixture(scope="session")
def zonal_operator():
    return ZonalOperator


@pytest.fixture(scope="session")
def normal_nodes():
    return gauss_hermite
