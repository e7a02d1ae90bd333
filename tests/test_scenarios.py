"""Named landscapes: the data they are made of, and the names they answer to."""

from __future__ import annotations

import numpy as np
import pytest

import infonce_jax as ij
from infonce_jax.scenarios import similarity_weights

# first and second row of W of digit_orbit (reference data of SCENARIOS.md)
FIRST_ROW = [0.0, 0.4059869517317169, 0.09379527687803185, 0.0003277923714054044, 1.8042316665630032e-05,
             0.00032962242420341335, 0.0937952768780315, 0.40574703739994533]  # fmt: skip
SECOND_ROW = [0.3151028876365401, 0.0, 0.31491668042370957, 0.1847111554034707, 0.00025583329033906633,
              4.787493009735818e-05, 0.0002544129123719396, 0.18471115540347136]  # fmt: skip


def test_digit_orbit_is_built_from_the_images_as_documented():
    weights = ij.scenarios.digit_orbit().energy.positives
    np.testing.assert_allclose(weights[0], FIRST_ROW, atol=1e-12)
    np.testing.assert_allclose(weights[1], SECOND_ROW, atol=1e-12)
    np.testing.assert_allclose(weights.sum(axis=1), 1)
    assert ij.scenarios.digit_orbit().images.shape == (8, 48, 48)


def test_similarity_weights_are_rows_of_probabilities_without_a_diagonal():
    weights = similarity_weights(np.random.default_rng(0).normal(size=(6, 4, 4)))
    np.testing.assert_allclose(np.diag(weights), 0)
    np.testing.assert_allclose(weights.sum(axis=1), 1)


@pytest.mark.parametrize(
    ("angle", "energy"), [(105.795808, 2.946184453), (-108.968789, 3.497121262), (-13.987553, 3.826976266)]
)
def test_double_well_has_the_energies_of_the_reference(angle, energy):
    # THEORY section 3
    x = np.array([[[np.cos(np.deg2rad(angle)), np.sin(np.deg2rad(angle))]]])
    assert ij.landscape.energies_of(ij.scenarios.double_well().energy, x)[0] == pytest.approx(energy, abs=1e-8)


def test_every_name_builds_a_scenario_that_knows_its_shape():
    for name in ij.scenarios.names():
        scenario = ij.scenarios.get(name)
        assert scenario.energy.shape == scenario.shape
        assert len(scenario.description.splitlines()) == 1
    assert ij.scenarios.get("ring12").shape == (12, 2)


def test_unknown_name_lists_those_there_are():
    with pytest.raises(ij.InputError) as refusal:
        ij.scenarios.get("ring")
    assert all(name in str(refusal.value) for name in ij.scenarios.names())


def test_own_energy_comes_from_a_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("import infonce_jax as ij\nenergy = ij.energies.from_function(lambda x: -x[0, 0], shape=(1, 2))\n")
    scenario = ij.scenarios.get(f"{path}:energy")
    assert (scenario.name, scenario.shape) == ("mine", (1, 2))
    for name, words in ((f"{path}:other", "other"), (str(tmp_path / "none.py"), "exists")):
        with pytest.raises(ij.InputError, match=words):
            ij.scenarios.get(name)
    path.write_text("1 / 0\n")
    with pytest.raises(ij.InputError, match="ZeroDivisionError") as refusal:
        ij.scenarios.get(f"{path}:energy")
    assert len(str(refusal.value).splitlines()) == 1
