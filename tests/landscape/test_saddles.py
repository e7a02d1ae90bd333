"""The search for saddles on a landscape that is known in closed form."""

from __future__ import annotations

import numpy as np
import pytest

import infonce_jax as ij
from infonce_jax.landscape.saddles import find_saddles
from infonce_jax.landscape.symmetry import find_symmetry

# E = x^2 + 2 y^2 + 3 z^2 on S^2: critical points are the axes, with eigenvalues 2 (a_j - a_i); minima at +-x.
QUADRIC = ij.energies.from_function(lambda x: x[0, 0] ** 2 + 2 * x[0, 1] ** 2 + 3 * x[0, 2] ** 2, shape=(1, 3))


def test_critical_points_of_another_index_are_dropped():
    found = find_saddles(QUADRIC, find_symmetry(QUADRIC), np.eye(3)[:, None])
    assert found.searches.tolist() == [1]
    assert found.energies == pytest.approx([2.0], abs=1e-12)
    np.testing.assert_allclose(found.spectra, [[-2.0, 2.0]], atol=1e-10)


def test_curvature_is_the_largest_eigenvalue_at_any_minimum():
    # THEORY section 3: E'' at the two minima of the double well is 2.891013 and 3.350305
    land = ij.landscape.explore(ij.scenarios.double_well().energy, num_quenches=64, num_searches=16)
    assert land.curvature == pytest.approx(3.350305, abs=1e-6)
