"""Temperatures of the recipes: a short run, the verdict of a full one, and what must flip it."""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path

import numpy as np
import pytest
import scipy.stats

import infonce_jax as ij
from experiments import recipe_temperatures
from experiments.recipe_temperatures import MEASURES, difference, verdict

STORED = Path(__file__).parent / "stored" / "recipe_temperatures.json"


@functools.cache
def stored():
    """Rows of a full run, seed 0, as a tuple of pairs; a fresh copy is `rows()`."""
    return json.loads(STORED.read_text())["rows"]


def rows():
    return [{key: math.nan if value is None else value for key, value in row.items()} for row in stored()]


def replaced(recipe, values, those=lambda temperature: temperature != "untrained"):
    """The stored rows with accuracies of one recipe from other values, one per seed."""
    return [row | interval("accuracy", values(row)) if row["recipe"] == recipe and those(row["temperature"]) else row
            for row in rows()]  # fmt: skip


def interval(name, values):
    low, high = scipy.stats.t.interval(0.95, len(values) - 1, np.mean(values), scipy.stats.sem(values))
    return {name: float(np.mean(values)), f"{name} low": float(low), f"{name} high": float(high)}


def around(mean, row):
    """Numbers of that mean and of the spread that the row has."""
    n = row["seeds"]
    sem = (row["accuracy high"] - row["accuracy"]) / scipy.stats.t.ppf(0.975, n - 1)
    shape = np.linspace(-1, 1, n)
    return mean + shape / scipy.stats.sem(shape) * sem


def row_of(recipe, temperature):
    return next(row for row in rows() if row["recipe"] == recipe and row["temperature"] == temperature)


def test_verdict_of_a_full_run():
    assert len(rows()) == 3 * (1 + len(recipe_temperatures.TEMPERATURES))
    assert min(row["seeds"] for row in rows()) >= 10
    found = verdict(rows())
    assert found.holds
    assert "24 comparisons" in found.line
    assert "All that was to be shown is" in found.line


@pytest.mark.parametrize("recipe", ["simclr", "moco", "clip"])
def test_untrained_encoders_in_the_place_of_trained_ones(recipe):
    untrained = row_of(recipe, "untrained")["accuracy"]
    assert not verdict(replaced(recipe, lambda row: around(untrained, row))).holds


@pytest.mark.parametrize("recipe", ["simclr", "moco", "clip"])
def test_a_third_of_the_seeds_collapsed(recipe):
    def values(row):
        return np.where(np.arange(row["seeds"]) % 3 == 0, row["chance"], around(row["accuracy"], row))

    assert not verdict(replaced(recipe, values)).holds


@pytest.mark.parametrize("recipe", ["simclr", "moco", "clip"])
def test_a_schedule_ahead_of_the_better_fixed_temperature(recipe):
    better = row_of(recipe, "constant:0.1")["accuracy"] + 0.03
    found = verdict(replaced(recipe, lambda row: around(better, row), lambda name: name == "cosine:1:0.1"))
    assert not found.holds
    assert "ahead: cosine 1 to 0.1 +0.030" in found.line


def test_fixed_temperatures_that_make_no_difference():
    better = row_of("moco", "constant:0.1")["accuracy"]
    assert not verdict(replaced("moco", lambda row: around(better, row), lambda name: name == "constant:1")).holds


def test_schedules_no_better_than_the_worse_fixed_temperature():
    worse = row_of("clip", "constant:1")["accuracy"]
    assert not verdict(replaced("clip", lambda row: around(worse, row), lambda name: name.startswith("exp"))).holds


def test_a_schedule_that_makes_no_difference_is_said_to():
    same = row_of("clip", "constant:0.1")["accuracy"]
    found = verdict(replaced("clip", lambda row: around(same, row), lambda name: name == "learned:1"))
    assert found.holds
    assert "no difference: learned from 1 +0.000" in found.line.split("clip")[1]


def test_what_is_not_reached_is_said():
    slow = replaced("moco", lambda row: around(row["accuracy"] - 0.04, row))
    found = verdict(slow)
    assert not found.holds
    assert "Short of what was to be shown: moco" in found.line


def test_differences_are_those_of_welch():
    a, b = np.random.default_rng(0).normal([[0.9], [0.8]], [[0.01], [0.05]], (2, 12))
    a = a[:8]
    left, right = (interval("accuracy", x) | {"seeds": len(x)} for x in (a, b))
    expected = scipy.stats.ttest_ind(a, b, equal_var=False).confidence_interval(0.99)
    assert difference(left, right, 0.01)[1:] == pytest.approx(tuple(expected), rel=1e-9)
    still = interval("accuracy", a) | {"accuracy low": a.mean(), "accuracy high": a.mean(), "seeds": 8}
    assert difference(still, still) == (0, 0, 0)  # collapsed alike, no spread


def test_a_short_run_learns_and_is_measured(monkeypatch):
    # A run is a function of its seed; the margins are less than half of what is reached.
    monkeypatch.setattr(recipe_temperatures, "QUICK", ("constant:0.1",))
    monkeypatch.setattr(recipe_temperatures, "QUICK_SEEDS", 2)
    monkeypatch.setattr(recipe_temperatures, "QUICK_STEPS", 150)
    tuning = ij.encoders.digits().for_tuning()
    before, after = recipe_temperatures.measure(quick=True, recipes=("moco",), digits=tuning)
    assert [before["temperature"], after["temperature"]] == ["untrained", "constant:0.1"]
    assert after["accuracy"] > before["accuracy"] + 0.03
    assert after["uniformity"] < before["uniformity"] - 0.5
    assert after["tau"] == pytest.approx(0.1)
    assert math.isnan(before["tau"])
    assert all(after[f"{name} low"] <= after[name] <= after[f"{name} high"] for name in MEASURES)
    assert set(before) == set(after) == set(stored()[0])
