"""The shares that rates predict: present beside the measured ones, and in words where the two part."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
import xarray as xr

import infonce_jax as ij
from infonce_jax.measure import proportion
from infonce_jax.study import StudyConfiguration, outputs, prediction, run, run_study
from infonce_jax.study.prediction import Prediction, differences, rate_model, statements


def _small(**changes):
    configuration = StudyConfiguration(scenario="double_well", chains=256, steps=2000, quick=True)
    return run_study(dataclasses.replace(configuration, **changes), say=lambda _: None, progress=False)


@pytest.fixture(scope="module")
def study(well):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "explored", lambda *_, **__: well)
        return _small()


def _with(study, factor):
    """The same study, with every prediction wrong by a factor."""
    wrong = [dataclasses.replace(o, predicted=Prediction(*(factor * np.asarray(part) for part in (
        o.predicted.probability, o.predicted.low, o.predicted.high)))) for o in study.outcomes]  # fmt: skip
    return dataclasses.replace(study, outcomes=wrong)


def test_prediction_stands_in_data_summary_page_and_figure(study, tmp_path):
    page = outputs.write_study(study, tmp_path).read_text()
    data = xr.open_zarr(tmp_path / "results.zarr", consolidated=False)
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert data["predicted"].dims == ("schedule", "quench_time")
    for entry in summary["schedules"]:
        stored = data.sel(schedule=entry["name"])
        parts = np.stack([stored[name].values for name in ("predicted", "predicted_low", "predicted_high")], axis=1)
        assert np.array(entry["predicted"]) == pytest.approx(parts)
        assert np.all((parts[:, 1] <= parts[:, 0]) & (parts[:, 0] <= parts[:, 2]))
        assert f"{parts[-1, 0]:.3f} [{parts[-1, 1]:.3f}, {parts[-1, 2]:.3f}]" in page
    assert "the two ends of log Z differ by" in summary["prediction"]
    assert "Under no schedule" in page


def test_figure_draws_a_line_for_each_prediction_and_bars_for_each_measurement(study):
    from infonce_jax.study import figures

    panel = figures.draw_trapping(study).axes[1]
    assert len(panel.containers) == 8
    lines = [line for line in panel.lines if line.get_linestyle() != "None" and len(line.get_xdata()) > 2]
    assert [line.get_ydata().tolist() for line in lines] == [o.predicted.probability.tolist() for o in study.outcomes]


def test_prediction_agrees_with_the_exact_law(study):
    # P(trapped) from the Fokker-Planck equation on the circle, whose trap lies between its two saddles (THEORY section
    # 3, degrees). Slow schedules only: 20 % covers three standard errors of the quick free energies (about 5 % in log Z
    # each, so 15 % of a share that has fallen) and the 3 % of the master equation itself.
    def trap(x):
        angle = np.degrees(np.arctan2(x[..., 0, 1], x[..., 0, 0]))
        return (angle > -176.525455) & (angle < -13.987553)

    for outcome in study.outcomes[1:4]:
        t = outcome.times[-3:]
        law = ij.theory.fokker_planck.annealed(ij.scenarios.double_well().energy, outcome.schedule, t)
        exact = law.probability(trap)
        assert outcome.predicted.probability[-3:] == pytest.approx(exact, rel=0.2)


def test_words_appear_where_the_prediction_is_wrong_and_not_where_it_agrees(study, tmp_path):
    # 104 comparisons of 95 % intervals on both sides, 10 % apart at least: with this seed none differ.
    assert [s["differences"] for s in outputs.summarise(study)["schedules"]] == [[]] * 8
    wrong = outputs.write_study(_with(study, 0.3), tmp_path).read_text()
    assert "Under no schedule" not in wrong
    assert wrong.count("more chains were trapped than predicted") >= 8
    few = [s["differences"] for s in outputs.summarise(_with(study, 2.0))["schedules"]]
    assert all("fewer chains were trapped than predicted" in sentence for sentences in few for sentence in sentences)
    assert all(few)


def test_differences_are_runs_of_times_with_their_worst():
    predicted = Prediction(np.full(5, 0.2), np.full(5, 0.19), np.full(5, 0.21))
    counts = (200, 300, 500, 205, 100)  # of 1000
    found = differences([proportion(k, 1000) for k in counts], predicted)
    assert [(d.above, d.first, d.last, d.worst) for d in found] == [(True, 1, 2, 2), (False, 4, 4, 4)]
    assert [d.relative for d in found] == pytest.approx([0.6, 0.5])


def test_a_difference_within_ten_per_cent_or_within_the_bars_is_not_one():
    sharp = Prediction(np.array([0.5]), np.array([0.5]), np.array([0.5]))
    assert differences([proportion(53_000, 100_000)], sharp) == []
    assert len(differences([proportion(57_000, 100_000)], sharp)) == 1
    assert differences([proportion(13, 20)], sharp) == []


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        (lambda e: ij.schedules.constant(1.0 / e), "below 3"),
        (lambda e: ij.schedules.linear(20.0 / e, 0.1 / e), "cannot settle"),
        (lambda e: ij.schedules.constant(6.0 / e), "rates should hold"),
    ],
)
def test_reason_follows_from_the_schedule_where_the_difference_begins(well, schedule, words):
    predicted = Prediction(np.array([0.2]), np.array([0.19]), np.array([0.21]))
    beta = schedule(well.critical_depth)
    (sentence,) = statements(well, beta, np.array([1.0]), [proportion(400, 1000)], predicted, outputs.plain)
    assert words in sentence
    assert "at t = 1 more chains were trapped than predicted, by 50 %" in sentence


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: {"minima": (m.minima[0], dataclasses.replace(m.minima[1], flat=True))}, "flat valleys"),
        (lambda m: {"minima": (m.minima[0], dataclasses.replace(m.minima[1], copies=None))}, "not counted"),
        (lambda m: {"saddles": (dataclasses.replace(m.saddles[0], copies=None), *m.saddles[1:])}, "not counted"),
        (lambda m: {"minima": m.minima[:1] + m.minima[1:] * 8}, "9 classes"),
    ],
)
def test_landscapes_without_rates_are_refused_before_anything_is_measured(well, change, words, monkeypatch):
    monkeypatch.setattr(prediction.measure, "basin_free_energies", lambda *_, **__: pytest.fail("measured"))
    with pytest.raises(ij.InputError, match=f"^no prediction: .*{words}"):
        rate_model(dataclasses.replace(well, **change(well)))


def test_saddles_with_too_few_copies_are_refused(well, monkeypatch):
    monkeypatch.setattr(prediction.measure, "basin_free_energies", lambda *_, **__: pytest.fail("measured"))
    copies = well.copies.copy()
    copies.add_edge(0, 17, height=well.saddles[0].energy)  # a second passage at the same height
    with pytest.raises(ij.InputError, match=r"^no prediction: the saddle at E = 3\.826976"):
        rate_model(dataclasses.replace(well, copies=copies))


def test_study_is_whole_without_a_prediction(well, monkeypatch, tmp_path):
    def stopped(*_):
        raise RuntimeError("the stiff solver stopped")

    monkeypatch.setattr(run, "explored", lambda *_, **__: well)
    monkeypatch.setattr(run, "rate_model", lambda *_: None)
    monkeypatch.setattr(run, "predict", stopped)
    study = _small(chains=32, steps=300)
    assert study.complete
    page = outputs.write_study(study, tmp_path).read_text()
    assert "There is no prediction: the stiff solver stopped." in page
    assert "predicted" not in xr.open_zarr(tmp_path / "results.zarr", consolidated=False)
    assert [s["predicted"] for s in json.loads((tmp_path / "summary.json").read_text())["schedules"]] == [None] * 8
