"""A study that anneals the temperature inside the loss as well."""

from __future__ import annotations

import json

import numpy as np
import pytest
import xarray as xr

from infonce_jax.study import cli
from infonce_jax.study.configuration import moving_temperatures, standard_schedules

MOVING = ("tau, no noise", "tau, beta = 20/E*", "tau and beta", "coupled, tau = 1/beta")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("study") / "moving"
    arguments = ["--scenario", "square_keys", "--chains", "64", "--steps", "500", "--no-predict"]
    assert cli.main(["study", *arguments, "--from-temperature", "1", "--out", str(out)]) == 0
    return out


def test_four_schedules_move_tau_and_eight_do_not(finished):
    entries = json.loads((finished / "summary.json").read_text())["schedules"]
    assert [entry["name"] for entry in entries[-4:]] == list(MOVING)
    assert [entry["temperature"] for entry in entries] == [None] * 8 + [[1.0, pytest.approx(0.2)]] * 4


def test_the_data_tell_tau_in_time_and_which_passages_were_watched(finished):
    data = xr.open_zarr(finished / "results.zarr", consolidated=False)
    for name in data["schedule"].values:
        own, moves = data.sel(schedule=name), name in MOVING
        assert own["temperature"].values[0] == pytest.approx(1.0 if moves else 0.2)
        assert own["temperature"].values[-1] == pytest.approx(0.2)
        assert np.all(np.isnan(own["first_passage_time"].values)) == moves
    assert data["first_passage_censored"].dtype == bool


def test_without_noise_the_energy_at_the_end_is_that_of_a_minimum(finished):
    data = xr.open_zarr(finished / "results.zarr", consolidated=False).sel(schedule="tau, no noise")
    minima = [m["energy"] for m in json.loads((finished / "summary.json").read_text())["landscape"]["minima"]]
    ends = data["energy"].values[:, -1]
    # The last step was made under a tau just above .2: the flow lags behind by less than this.
    assert np.max(np.min(np.abs(ends[:, None] - np.asarray(minima)), axis=1)) < 0.02


def test_the_report_says_that_no_theorem_covers_it(finished):
    text = " ".join((finished / "report.html").read_text().split())
    assert "from &tau; = 1 down to 0.2" in text
    assert "no theorem of annealing covers that" in text


def test_tau_ends_where_the_landscape_of_the_study_is():
    for name, (beta, tau) in moving_temperatures(0.7, 50.0, 2.0, 0.5).items():
        taus = 1 / beta([0.0, 50.0]) if isinstance(tau, str) else tau([0.0, 50.0])
        np.testing.assert_allclose(taus, [2.0, 0.5], err_msg=name)
    assert not set(moving_temperatures(0.7, 50.0, 2.0, 0.5)) & set(standard_schedules(0.7, 50.0))


@pytest.mark.parametrize(
    ("scenario", "start", "words"),
    [
        ("square_keys", "0.1", "from_temperature: got 0.1; needs more than 0.2, the temperature it falls to"),
        ("ring5", "nan", "from_temperature: got nan"),
    ],
)
def test_a_start_that_cannot_be_is_refused(scenario, start, words, tmp_path, capsys):
    asked = ["study", "--scenario", scenario, "--from-temperature", start, "--out", str(tmp_path)]
    assert cli.main(asked) == 2
    assert words in capsys.readouterr().err


def test_an_energy_without_a_temperature_is_refused(tmp_path, capsys):
    mine = tmp_path / "mine.py"
    mine.write_text(
        "import infonce_jax as ij\n"
        "energy = ij.energies.from_function(lambda x: x[0, 0] ** 3 - x[0, 0] + 0.2 * x[0, 1], shape=(1, 2))\n"
    )
    asked = ["study", "--scenario", f"{mine}:energy", "--from-temperature", "1", "--out", str(tmp_path / "out")]
    assert cli.main(asked) == 2
    assert "from_temperature: got 1 for 'mine', whose energy has no temperature" in capsys.readouterr().err
