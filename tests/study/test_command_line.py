"""What a person meets at the command line: results that are whole, and one clear line for every mistake."""

from __future__ import annotations

import json
import re

import pytest
import xarray as xr

from infonce_jax.study import cli

# Without the prediction, which test_prediction.py tests and which takes longer than all the rest.
SMALL = ["study", "--scenario", "square_keys", "--chains", "64", "--steps", "600", "--no-predict"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A small finished study in a directory of its own."""
    out = tmp_path_factory.mktemp("study") / "square"
    assert cli.main([*SMALL, "--out", str(out)]) == 0
    return out


def test_study_writes_everything(finished):
    names = {path.name for path in finished.iterdir()}
    pictures = {"trapping.png", "configurations.png", "levels.png", "schedules.png", "energies.png"}
    assert names == {"results.zarr", "summary.json", "report.html"} | pictures


def test_report_needs_no_network_and_no_other_file(finished):
    page = (finished / "report.html").read_text()
    sources = re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?([^"')\s>]+)""", page)
    assert len(sources) == 5
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert "nan" not in re.sub(r"base64,[^\"]+", "", page).lower().split()


def test_summary_holds_configuration_versions_and_device(finished):
    summary = json.loads((finished / "summary.json").read_text())
    assert summary["complete"] is True
    assert summary["configuration"]["chains"] == 64
    assert summary["configuration"]["seed"] == 0
    assert summary["environment"]["versions"]["jax"].count(".") >= 2
    assert summary["environment"]["device"].startswith("cpu")
    assert [s["kind"] for s in summary["schedules"]] == ["fixed"] * 7 + ["to horizon"]


def test_proportions_in_summary_agree_with_the_data_set(finished):
    summary = json.loads((finished / "summary.json").read_text())
    data = xr.open_zarr(finished / "results.zarr", consolidated=False)
    assert data.sizes["chain"] == 64
    assert data.sizes["schedule"] == 8
    for entry in summary["schedules"]:
        trapped = (data["basin"].sel(schedule=entry["name"]) != 0).mean("chain").values
        assert [row[0] for row in entry["trapped"]] == pytest.approx(trapped.tolist())
        assert all(low <= p <= high for p, low, high in entry["trapped"])


def test_same_seed_gives_the_same_bits_and_another_seed_other_ones(finished, tmp_path):
    same, other = tmp_path / "same", tmp_path / "other"
    assert cli.main([*SMALL, "--out", str(same)]) == 0
    assert cli.main([*SMALL, "--seed", "1", "--out", str(other)]) == 0
    first, again, changed = (xr.open_zarr(p / "results.zarr", consolidated=False)["energy"].values
                             for p in (finished, same, other))  # fmt: skip
    assert first.tobytes() == again.tobytes()
    assert first.tobytes() != changed.tobytes()


def test_a_second_study_replaces_the_first(finished, tmp_path):
    out = tmp_path / "twice"
    assert cli.main([*SMALL, "--out", str(out)]) == 0
    assert cli.main([*SMALL, "--chains", "32", "--steps", "300", "--out", str(out)]) == 0
    assert json.loads((out / "summary.json").read_text())["configuration"]["chains"] == 32
    assert not list(out.glob("*.new"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--scenario", "nowhere"], ["nowhere", "digit_orbit", "ring<n>"]),
        (["--temperature", "-0.5"], ["temperature", "-0.5", "above zero"]),
        (["--temperature", "nan"], ["temperature", "nan", "finite"]),
        (["--chains", "1"], ["chains", "1", "at least 2"]),
        (["--steps", "0"], ["steps", "0", "at least 10"]),
        (["--seed", "-3"], ["seed", "-3", ">= 0"]),
        (["--step-size", "0"], ["step_size", "0", "above zero"]),
        (["--step-size", "5", "--scenario", "double_well"], ["step_size", "5", "1/L"]),
        (["--scenario", "ring2"], ["n", "2", "at least three"]),
        (["--scenario", "ring5", "--temperature", "5", "--chains", "64"], ["ring5", "E* = 0", "trap"]),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(arguments, words, tmp_path, capsys):
    out = tmp_path / "out"
    assert cli.main(["study", *arguments, "--out", str(out)]) == 2
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1
    assert all(word in error for word in words)
    assert not (out / "report.html").exists()
    assert not (out / "results.zarr").exists()


def test_unwritable_directory_is_refused_before_any_work(tmp_path, capsys):
    blocker = tmp_path / "file"
    blocker.write_text("not a directory")
    assert cli.main([*SMALL, "--out", str(blocker / "inside")]) == 2
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1
    assert "--out" in error
    assert blocker.read_text() == "not a directory"


def test_interrupted_study_says_what_it_had_and_where(tmp_path, capsys, monkeypatch):
    from infonce_jax.chains import RunInterrupted
    from infonce_jax.study import run

    real, calls = run.run_chains, []

    def interrupted_at_the_third(*args, **kwargs):
        calls.append(1)
        result = real(*args, **kwargs)
        if len(calls) == 3:
            raise RunInterrupted(result)
        return result

    monkeypatch.setattr(run, "run_chains", interrupted_at_the_third)
    out = tmp_path / "cut"
    assert cli.main([*SMALL, "--out", str(out)]) == 130
    error = capsys.readouterr().err
    assert "log, c = 0.5 E*, log, c = 1 E*" in error
    assert str(out / "partial.zarr") in error
    assert not (out / "report.html").exists()
    assert not (out / "results.zarr").exists()
    summary = json.loads((out / "partial.json").read_text())
    assert summary["complete"] is False
    assert len(summary["schedules"]) == 2


def test_landscape_command_prints_the_depths(capsys):
    assert cli.main(["landscape", "--scenario", "double_well", "--quenches", "128", "--searches", "64"]) == 0
    printed = capsys.readouterr().out
    assert "E* = 0.329855" in printed
    assert "saddle 0-1" in printed


def test_scenarios_command_lists_every_name(capsys):
    from infonce_jax import scenarios

    assert cli.main(["scenarios"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in scenarios.names())


def test_help_names_the_commands(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--help"])
    assert stop.value.code == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("study", "landscape", "scenarios"))
