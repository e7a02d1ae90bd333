"""`infonce-jax recommend`: a prediction that its own chains check."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from infonce_jax.measure import proportion
from infonce_jax.study.cli import main
from infonce_jax.study.recommend import RecommendConfiguration, lines, recommend


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    out = tmp_path_factory.mktemp("recommend")
    return recommend(RecommendConfiguration("double_well", steps=4000, chains=1024, out=out), say=lambda _: None), out


def test_the_optimal_schedule_is_the_best_predicted_and_as_good_measured(found):
    recommendation, _ = found
    best = recommendation.best
    assert best.predicted <= min(c.predicted for c in recommendation.candidates)
    # not worse than the best of the others by more than both intervals: false alarm below 1 %
    rival = min(recommendation.candidates[1:], key=lambda c: c.measured.estimate)
    assert best.measured.low <= rival.measured.high


def test_predictions_are_met_by_chains(found):
    recommendation, _ = found
    for c in recommendation.candidates:
        if c.measured.estimate > 0.02 and c.name.startswith("log"):
            assert c.predicted == pytest.approx(c.measured.estimate, rel=0.5)


def test_files_hold_the_schedule(found):
    recommendation, out = found
    kept = json.loads((out / "recommend.json").read_text())
    times, betas = recommendation.knots()
    np.testing.assert_allclose(kept["optimal"]["times"], times)
    np.testing.assert_allclose(kept["optimal"]["inverse_temperatures"], betas)
    assert times[-1] == pytest.approx(recommendation.horizon)
    assert (out / "schedules.png").stat().st_size > 10_000


def test_the_verdict_follows_the_measurement(found):
    recommendation, _ = found
    assert lines(recommendation)[-1].startswith("use it")
    worse = dataclasses.replace(recommendation.best, measured=proportion(900, 1024))
    spoiled = dataclasses.replace(recommendation, candidates=(worse, *recommendation.candidates[1:]))
    assert lines(spoiled)[-1].startswith("do not use it")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--steps", "3"], "steps"), (["--chains", "1"], "chains"), (["--scenario", "nothing"], "scenario"),
     (["--scenario", "ring3"], "trap")],
)  # fmt: skip
def test_bad_input_gets_one_line(arguments, said, capsys):
    assert main(["recommend", *arguments]) == 2
    error = capsys.readouterr().err.strip()
    assert said in error
    assert "\n" not in error
