"""Partition functions: harmonic ones, tables, and what lies between and beyond their rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate

import infonce_jax as ij
from infonce_jax.checks import InputError
from infonce_jax.theory.partition import PartitionTable, harmonic_log_partitions, log_partitions

SADDLES = np.deg2rad([-13.987552870473186, -176.52545468418643])  # theory.json, s1_fixed


def quadrature(well, betas):
    """log Z of the two wells, split at the two maxima, by adaptive quadrature: shape (..., 2) for betas (...)."""
    circle, betas = ij.theory.Circle(well.energy), np.asarray(betas)
    arcs = [(SADDLES[0], SADDLES[1] + 2 * np.pi), (SADDLES[1], SADDLES[0])]  # global, local
    logs = []
    for (low, high), minimum in zip(arcs, well.minima, strict=True):

        def density(angle, floor=minimum.energy):
            return np.exp(-betas * (circle.energy_at(angle) - floor))

        logs.append(np.log(integrate.quad_vec(density, low, high, norm="max")[0]) - betas * minimum.energy)
    return np.stack(logs, axis=-1)


def test_harmonic_partitions_approach_quadrature_as_one_over_beta(well):
    errors = [harmonic_log_partitions(well, beta) - quadrature(well, beta) for beta in (100.0, 200.0, 400.0)]
    # halving 1/beta halves the error, to second order in it
    np.testing.assert_allclose(errors[0] / errors[1], 2.0, rtol=0.1)
    np.testing.assert_allclose(errors[1] / errors[2], 2.0, rtol=0.05)
    assert np.all(np.abs(errors[2]) < 0.01)


def test_a_table_is_met_at_its_rows_and_joins_the_harmonic_values(well):
    betas = np.geomspace(5.0, 100.0, 120)
    table = PartitionTable(betas, quadrature(well, betas))
    np.testing.assert_allclose(log_partitions(well, betas[7], table), table.log_z[7], rtol=1e-12)
    np.testing.assert_allclose(log_partitions(well, 100.0 * (1 + 1e-9), table), table.log_z[-1], rtol=1e-7)
    # between rows, and above the table where the shift of its end is kept
    np.testing.assert_allclose(log_partitions(well, 17.0, table), quadrature(well, 17.0), atol=1e-3)
    end = np.max(np.abs(harmonic_log_partitions(well, 100.0) - quadrature(well, 100.0)))
    np.testing.assert_allclose(log_partitions(well, 200.0, table), quadrature(well, 200.0), atol=end)


@pytest.mark.parametrize(
    ("betas", "log_z", "named"),
    [([2.0, 1.0], np.zeros((2, 2)), "betas"), ([1.0, 2.0], np.zeros((3, 2)), "log_z"),
     ([1.0, 2.0], np.full((2, 2), np.nan), "log_z")],
)  # fmt: skip
def test_a_bad_table_is_refused(betas, log_z, named):
    with pytest.raises(InputError, match=named):
        PartitionTable(np.array(betas), log_z)


def test_a_table_of_another_landscape_is_refused(well):
    with pytest.raises(InputError, match="table"):
        log_partitions(well, 5.0, PartitionTable(np.array([1.0, 9.0]), np.zeros((2, 3))))
