"""Experiments on the temperature inside the loss: verdicts of full runs, and data that must flip them.

Quick versions run in test_experiments.py. A verdict on stored rows has no false alarm: the rows do not change.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import infonce_jax as ij
from experiments import starting_temperature, trapped_encoders

STORED = Path(__file__).parent / "stored"


def stored(experiment):
    """Rows of a full run with seed 0."""
    name = experiment.__name__.rpartition(".")[2]
    rows = json.loads((STORED / f"{name}.json").read_text())["rows"]
    return [{key: math.nan if value is None else value for key, value in row.items()} for row in rows]


def test_cooling_saves_encoders_and_the_reported_table_is_met():
    verdict = trapped_encoders.verdict(stored(trapped_encoders))
    assert verdict.holds
    assert "12 of 12 reported shares" in verdict.line


def test_a_cooled_encoder_in_the_fold_or_a_share_that_differs_flips_the_verdict():
    rows = stored(trapped_encoders)
    trapped = [{**row, "on the circle": 0.6, "low": 0.54, "high": 0.66} if row["temperature"] == "cosine:5:0.5:2500"
               else row for row in rows]  # fmt: skip
    assert not trapped_encoders.verdict(trapped).holds
    other = [{**row, "reported": 0.6} if row["temperature"] == "constant:1" else row for row in rows]
    verdict = trapped_encoders.verdict(other)
    assert not verdict.holds
    assert "off from the reported share: constant:1" in verdict.line


@pytest.mark.parametrize("winding", [-2, -1, 0, 1, 2])
def test_windings_are_counted_with_their_sign(winding):
    angles = 2 * np.pi * winding * np.arange(8) / 8 + 0.3 + 0.2 * np.sin(np.arange(8))
    z = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    assert trapped_encoders.windings(z[None]).tolist() == [winding]


def test_the_saving_temperature_is_where_the_share_crosses():
    starts = (0.5, 1.0, 2.0, 4.0)
    assert starting_temperature.saving_temperature(starts, [0.1, 0.8, 1.0, 1.0]) == pytest.approx(2**0.5)
    assert starting_temperature.saving_temperature(starts, [1.0, 0.2, 1.0, 1.0]) > 1  # all higher ones must save too
    assert starting_temperature.saving_temperature(starts, [1.0, 0.9, 1.0, 1.0]) == 0.25
    assert starting_temperature.saving_temperature(starts, [0.0, 0.0, 0.0, 0.5]) == 8


def test_orbits_of_one_energy_are_the_scenario_of_that_digit():
    orbit = ij.encoders.orbit(4, 8, 0.5)
    np.testing.assert_allclose(orbit.energy.positives, ij.scenarios.digit_orbit().energy.positives)


def test_the_free_landscape_predicts_where_cooling_must_start():
    rows = stored(starting_temperature)
    assert len({row["digit"] for row in rows}) == 60
    assert {row["views"] for row in rows} == {6, 8, 12}
    assert starting_temperature.verdict(rows).holds


def test_temperatures_of_other_orbits_predict_nothing():
    rows = stored(starting_temperature)
    order = np.random.default_rng(1).permutation(len(rows))
    mixed = [{**row, "trap-free tau": rows[k]["trap-free tau"]} for row, k in zip(rows, order, strict=True)]
    assert not starting_temperature.verdict(mixed).holds
    # Nor does the difference between orbits with a trap and without one suffice: inside the range it must rank too.
    turned = [{**row, "trap-free tau": 18 / (1 + row["saving tau"])} if 0.5 < row["trap-free tau"] < 24 else row
              for row in rows]  # fmt: skip
    assert not starting_temperature.verdict(turned).holds
