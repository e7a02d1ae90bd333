"""Partition functions of basins, against quadrature and on purpose wrong."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from infonce_jax.checks import InputError
from infonce_jax.measure import basin_free_energies
from infonce_jax.theory.partition import harmonic_log_partitions, log_partitions


@pytest.fixture(scope="module")
def free(well):
    return basin_free_energies(well, num_chains=512, num_betas=14, num_moves=6)


def test_both_basins_agree_with_quadrature(well, free, exact_log_z):
    # Eight values; errors of up to mismatch_error, about .02, from common chains: 4 of them, false alarm below 1e-3.
    for beta in (1.0, 3.0, 10.0, 30.0):
        errors = log_partitions(well, beta, free.table) - exact_log_z(beta)
        for error, seen in zip(errors, free.classes, strict=True):
            assert abs(error) < 4 * seen.mismatch_error + 0.005
        # the harmonic values are off by more where the wells are wide
        if beta <= 3.0:
            assert np.max(np.abs(harmonic_log_partitions(well, beta) - exact_log_z(beta))) > 3 * np.max(np.abs(errors))


def test_the_two_ends_meet(free):
    for seen in free.classes:
        assert abs(seen.mismatch) < 3.5 * seen.mismatch_error  # false alarm 1e-3 for both
        assert seen.mismatch_error < 0.05
    assert free.statement().endswith("the two ends meet")


def test_a_wrong_number_of_copies_is_noticed(well):
    minima = (dataclasses.replace(well.minima[0], copies=2), well.minima[1])
    wrong = dataclasses.replace(well, minima=minima)
    found = basin_free_energies(wrong, num_chains=256, num_betas=12, num_moves=4)
    assert found.classes[0].mismatch == pytest.approx(-np.log(2), abs=4 * found.classes[0].mismatch_error)
    assert "do not trust" in found.statement()


def test_chains_stay_where_they_belong_and_repeat(well):
    first, again = (basin_free_energies(well, num_chains=32, num_betas=6, num_moves=2, seed=5) for _ in range(2))
    np.testing.assert_array_equal(first.table.log_z, again.table.log_z)
    assert all(np.all((c.undone >= 0) & (c.undone < 0.9)) for c in first.classes)


@pytest.mark.parametrize("options", [{"num_chains": 3}, {"num_betas": 2}, {"num_moves": 0}])
def test_bad_numbers_are_refused(well, options):
    with pytest.raises(InputError, match=next(iter(options))):
        basin_free_energies(well, **options)


def test_flat_valleys_are_refused(well):
    flat = dataclasses.replace(well, minima=(dataclasses.replace(well.minima[0], flat=True), well.minima[1]))
    with pytest.raises(InputError, match="flat"):
        basin_free_energies(flat)
