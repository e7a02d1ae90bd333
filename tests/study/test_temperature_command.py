"""`infonce-jax temperature`: the answer in words, the files, and one clear line for every mistake."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import xarray as xr

from infonce_jax.study import cli

SMALL = ["temperature", "--scenario", "double_well", "--from", "0.3", "--to", "3", "--starts", "512"]


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """The directory of a finished run and what it printed."""
    out = tmp_path_factory.mktemp("temperature") / "well"
    with pytest.MonkeyPatch.context() as patch:
        lines = []
        patch.setattr("builtins.print", lambda *words, **_: lines.append(" ".join(map(str, words))))
        assert cli.main([*SMALL, "--out", str(out)]) == 0
    return out, "\n".join(lines)


@pytest.fixture(scope="module")
def finished(printed):
    return printed[0]


def test_everything_is_written(finished):
    names = {path.name for path in finished.iterdir()}
    assert names == {"temperature.zarr", "temperature.json", "report.html", "branches.png", "barriers.png"}


def test_the_answer_is_printed(printed):
    out, text = printed
    summary = json.loads((out / "temperature.json").read_text())
    assert f"Trap-free above tau = {summary['trap_free_temperature']:.6f}" in text
    assert "all of 512 random starts end at a global minimum" in text
    assert "leads continuously to the global minimum at tau = 0.3" in text
    assert str(out / "report.html") in text


def test_page_needs_no_other_file_and_shows_no_nan(finished):
    page = (finished / "report.html").read_text()
    sources = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"')\s>]+)""", page)
    assert len(sources) == 2
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    words = re.sub(r"base64,[^\"]+", "", page)
    assert not {"nan", "inf", "none"} & set(re.findall(r"[a-z]+", words.lower()))


def test_summary_agrees_with_the_data(finished):
    data = xr.open_zarr(finished / "temperature.zarr", consolidated=False).load()
    summary = json.loads((finished / "temperature.json").read_text())
    low, high = summary["bracket"]
    assert data.attrs["trap_free_temperature"] == pytest.approx((low + high) / 2)
    assert 0 < high - low < 1e-4
    assert summary["confirmed"]
    assert summary["above"]["counts"] == [512]
    assert sum(summary["below"]["counts"]) == 512
    assert data["critical_depth"].values[0] == pytest.approx(0.3298550045, abs=1e-8)  # E* of THEORY section 3
    assert data["critical_depth"].values == pytest.approx([max(d["barriers"]) for d in summary["depths"]])
    above = data["temperature"] >= high
    assert np.all(data["critical_depth"].values[above] == 0)
    below = ~above.values
    assert np.nanmax(data["barrier"].values[:, below], axis=0) == pytest.approx(data["critical_depth"].values[below])
    folds = [event["temperature"] for event in summary["bifurcations"] if event["kind"] == "fold"]
    assert any(low < fold < high for fold in folds)
    # every branch is a set of rows: energies of minima and of saddles, ascending in temperature
    for branch in np.unique(data["branch"]):
        rows = data.isel(point=data["branch"].values == branch)
        assert np.all(np.diff(rows["branch_temperature"]) >= 0)
        assert len(np.unique(rows["index"])) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--from", "-1"], ["from", "-1", "above zero"]),
        (["--to", "0"], ["to", "0", "above zero"]),
        (["--from", "2", "--to", "1"], ["from, to", "2 and 1", "below"]),
        (["--to", "0.1"], ["to", "0.1", "own temperature"]),
        (["--starts", "1"], ["starts", "1", "at least 4"]),
        (["--seed", "-1"], ["seed", "-1"]),
        (["--scenario", "nowhere"], ["nowhere", "double_well"]),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(arguments, words, tmp_path, capsys):
    out = tmp_path / "out"
    assert cli.main(["temperature", *arguments, "--out", str(out)]) == 2
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1
    assert all(word in error for word in words)
    assert not out.exists()


def test_an_energy_without_a_temperature_is_refused(tmp_path, capsys):
    mine = tmp_path / "mine.py"
    mine.write_text("import infonce_jax as ij\nscenario = ij.energies.from_function(lambda x: x[0, 1], (1, 2))\n")
    assert cli.main(["temperature", "--scenario", str(mine), "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1
    assert "without a temperature" in error
