"""Eigenvalues far below rounding, and the refusal of laws that the modes do not resolve."""

from __future__ import annotations

import numpy as np
import pytest

import infonce_jax as ij
from infonce_jax.theory import fokker_planck
from infonce_jax.theory.circle import Circle
from infonce_jax.theory.witten import cutoff


@pytest.mark.parametrize("beta", [5.0, 40.0, 80.0])
def test_turning_the_landscape_over_keeps_the_spectrum_of_the_circle(beta):
    # In one dimension A A* is A* A for -E: both have the same positive eigenvalues, from unlike ground states. At
    # beta = 80 the gap is 1e-12, and each matrix alone has rounding errors of that size.
    energy = ij.scenarios.double_well().energy
    over = ij.energies.from_function(lambda x: -energy(x), shape=(1, 2))
    upright, inverted = (Circle(e, modes=128).spectrum(beta, 4) for e in (energy, over))
    assert upright[1:] == pytest.approx(inverted[1:], rel=1e-8)
    assert upright[1] < {5.0: 1, 40.0: 1e-6, 80.0: 2e-12}[beta]


def test_laws_too_narrow_for_the_modes_are_refused():
    energy = ij.scenarios.double_well().energy
    three = ij.energies.uniformity_energy(3, 2)
    with pytest.raises(ij.InputError, match="beta: got 1000, whose law is narrower"):
        fokker_planck.spectral_gap(three, 1000)
    with pytest.raises(ij.InputError, match="modes: got 256"):
        fokker_planck.spectral_gap(energy, 1e6)
    with pytest.raises(ij.InputError, match="modes: got 16"):
        Circle(energy, modes=16).gap(40)
    with pytest.raises(ij.InputError, match="number: got 33"):
        Circle(energy, modes=32).spectrum(1.0, 33)


def test_cutoff_is_the_smallest_that_resolves_the_ground_state():
    shells = 10.0 ** -np.arange(0, 40, 1.0)  # the norm beyond degree k is about 10^{-(k+1)/2}
    assert cutoff(shells, 1.0, most=39, least=2) == 14
    assert cutoff(shells, 1.0, most=39, least=20) == 20
    assert cutoff(shells, 1.0, most=39, least=2, given=11) == 11
    with pytest.raises(ij.InputError, match="modes"):
        cutoff(shells, 1.0, most=39, least=2, given=8)
