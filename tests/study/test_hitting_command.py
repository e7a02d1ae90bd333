"""`infonce-jax hitting`: the table, the files, and one clear line for every mistake."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import xarray as xr

from infonce_jax.study import cli
from infonce_jax.study.hitting import HittingConfiguration

SMALL = ["hitting", "--scenario", "double_well", "--depths", "2,3", "--num-chains", "96", "--step-size", "0.05"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The directory of a small finished run."""
    out = tmp_path_factory.mktemp("hitting") / "well"
    assert cli.main([*SMALL, "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def data(finished):
    return xr.open_zarr(finished / "hitting.zarr", consolidated=False).load()


def test_everything_is_written(finished):
    names = {path.name for path in finished.iterdir()}
    assert names == {"hitting.zarr", "hitting.json", "hitting.html", "survival.png", "arrhenius.png"}


def test_page_needs_no_other_file_and_shows_no_nan(finished):
    page = (finished / "hitting.html").read_text()
    sources = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"')\s>]+)""", page)
    assert len(sources) == 2
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    words = re.sub(r"base64,[^\"]+", "", page)
    assert "nan" not in words.lower().split()
    assert not re.search(r"\d\.\d{7}", words)


def test_summary_agrees_with_the_data(finished, data):
    summary = json.loads((finished / "hitting.json").read_text())
    assert summary["configuration"]["num_chains"] == 96
    assert summary["beta"] == pytest.approx([2 / 0.3298550045, 3 / 0.3298550045], rel=1e-6)  # E* from SCENARIOS
    total, passed = data["time"].sum("chain").values, (~data["censored"]).sum("chain").values
    assert summary["mean"] == pytest.approx(total / passed)
    assert summary["attributes"]["slope"] == pytest.approx(data.attrs["slope"])
    assert data.attrs["slope_low"] < data.attrs["slope"] < data.attrs["slope_high"]


def test_measured_times_are_near_the_exact_ones(data):
    # relative standard error 1/sqrt(96); 3.5 of them for two temperatures and 2 % for the step: false alarm below .001
    assert data["mean"].values == pytest.approx(data["exact"].values, rel=3.5 / np.sqrt(96) + 0.02)


def test_corrected_times_are_nearer_to_the_exact_ones_than_harmonic_ones(data):
    wrong = {name: np.abs(np.log(data[name] / data["exact"])).values for name in ("corrected", "eyring_kramers")}
    # the ball of the target and the motion within the wells are no part of a rate: 30 % at beta E* = 2 and 3
    assert np.all(wrong["corrected"] < 0.3)
    assert np.all(wrong["corrected"] < wrong["eyring_kramers"])


def test_table_holds_every_column_and_the_slope(finished, capsys):
    arguments = ["hitting", "--scenario", "double_well", "--betas", "5", "--num-chains", "32", "--max-steps", "200",
                 "--no-corrected"]  # fmt: skip
    assert cli.main([*arguments, "--step-size", "0.05", "--out", str(finished.parent / "again")]) == 0
    printed = capsys.readouterr().out
    for head in (
        "beta E*",
        "mean time [95 %]",
        "censored",
        "p(exponential)",
        "Eyring-Kramers",
        "corrected",
        "exact",
        "bias of step",
    ):
        assert head in printed
    row = next(line for line in printed.splitlines() if line.strip().startswith("5.000"))
    assert "1.65" in row
    assert "17.1" in row  # Eyring-Kramers at beta 5, THEORY section 3: 17.084844
    assert "no slope" in printed
    again = xr.open_zarr(finished.parent / "again" / "hitting.zarr", consolidated=False)
    assert 0 < int(again["censored"].sum()) < 32
    assert float(again["time"].max()) == pytest.approx(200 * 0.05)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--betas", "5", "--depths", "3"], ["betas, depths", "one of the two"]),
        (["--betas", "5,x"], ["betas", "'x'", "a number"]),
        (["--depths", "0,1"], ["depths", "0", "above zero"]),
        (["--depths", "1,1"], ["depths", "distinct"]),
        (["--num-chains", "1"], ["num_chains", "1", "at least 2"]),
        (["--seed", "-1"], ["seed", "-1"]),
        (["--max-steps", "0"], ["max_steps", "0"]),
        (["--step-size", "-0.1"], ["step_size", "-0.1", "above zero"]),
        (["--scenario", "nowhere"], ["nowhere", "double_well"]),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(arguments, words, tmp_path, capsys):
    out = tmp_path / "out"
    assert cli.main(["hitting", *arguments, "--out", str(out)]) == 2
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1
    assert all(word in error for word in words)
    assert not (out / "hitting.html").exists()


def test_temperatures_are_read_in_ascending_order():
    assert HittingConfiguration(betas="7, 3,5").numbers() == [3.0, 5.0, 7.0]
    assert HittingConfiguration().numbers() == [3.0, 4.0, 5.0, 6.0]
