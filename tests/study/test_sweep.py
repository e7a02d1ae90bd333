"""Sweeps: every study of the grid, whole, once, and with the bits it has alone."""

from __future__ import annotations

import csv
import io
import json
import shutil
import signal

import numpy as np
import pytest
import xarray as xr

from infonce_jax.chains import RunStopped, loop
from infonce_jax.chains.engine import advance_chunk
from infonce_jax.checks import InputError
from infonce_jax.study import cli, outputs, run, sweep, sweep_grid, sweep_page
from infonce_jax.study.sweep_grid import SharedSettings, SweepConfiguration

SMALL = ["--scenario", "square_keys", "--chains", "32", "--steps", "100", "--no-predict", "--step-size", "0.02"]
STEPS = ("--vary", "steps=60,100")
NAMES = ["log, c = 1 E*", "power 1", "geometric to horizon"]


def swept(out, *vary, extra=()):
    return cli.main(["sweep", *vary, *SMALL, *extra, "--out", str(out)])


def grid(*vary, how="product", **settings):
    return sweep_grid.grid(SweepConfiguration(vary, how, SharedSettings(**{"scenario": "square_keys"} | settings)))


def content(out):
    return json.loads((out / "sweep.json").read_text())


def bits(out):
    """Every array of every study's data, by directory."""
    found = {}
    for place in sorted(path.parent for path in out.glob("*/results.zarr")):
        data = xr.open_zarr(place / "results.zarr", consolidated=False)
        found[place.name] = {name: data[name].values.tobytes() for name in data.variables if name != "schedule"}
    return found


@pytest.fixture(scope="module", autouse=True)
def _short_studies():
    """Three schedules of the eight, and no pages of single studies: test_command_line.py looks at those."""
    real = run.standard_schedules
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "standard_schedules", lambda *given: {n: s for n, s in real(*given).items() if n in NAMES})
        patch.setattr(outputs, "_page", lambda *_: "")
        patch.setattr(outputs, "embedded_png", lambda figure, path: "AAAA")
        yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished sweep over steps, and how many programs its chains needed."""
    out = tmp_path_factory.mktemp("sweep") / "steps"
    before = advance_chunk._cache_size()
    assert swept(out, *STEPS) == 0
    return out, advance_chunk._cache_size() - before


def test_every_study_is_whole_and_has_a_directory_that_says_which_it_is(finished):
    out, _ = finished
    places = ["001-steps=60", "002-steps=100"]
    assert [path.name for path in sorted(out.iterdir()) if path.is_dir()] == places
    for place, steps in zip(places, (60, 100), strict=True):
        names = {path.name for path in (out / place).iterdir()}
        assert {"results.zarr", "summary.json", "report.html"} <= names
        assert "checkpoints" not in names
        assert json.loads((out / place / "summary.json").read_text())["configuration"]["steps"] == steps
    assert content(out)["complete"] is True


def test_the_table_says_what_the_studies_say(finished):
    out, _ = finished
    with (out / "sweep.csv").open() as file:
        table = list(csv.DictReader(file))
    assert len(table) == 2 * len(NAMES)
    for k, row in enumerate(table):
        summary = json.loads((out / row["directory"] / "summary.json").read_text())
        entry = summary["schedules"][k % 3]
        assert row["schedule"] == entry["name"] == NAMES[k % 3]
        for key in ("chains", "steps", "seed"):
            assert int(row[key]) == summary["configuration"][key]
        for key in ("trapped", "raw"):
            assert [float(row[key + end]) for end in ("", "_low", "_high")] == entry[key][-1]
        assert float(row["critical_depth"]) == summary["landscape"]["critical_depth"]
        assert float(row["step_size"]) == summary["step_size"] == 0.02
        assert int(row["chain_steps_per_second"]) == entry["chain_steps_per_second"]
        assert (row["state"], row["predicted"], row["temperature"]) == ("finished", "", "")
        # The same in the JSON file, with its types.
        beside = content(out)["rows"][k]
        assert {key: "" if value is None else str(value) for key, value in beside.items()} == row


def test_the_page_shows_every_row_and_a_figure_and_needs_no_network(finished):
    out, _ = finished
    page = (out / "sweep.html").read_text()
    for row in content(out)["rows"]:
        assert f"{row['trapped']:.3f} [{row['trapped_low']:.3f}, {row['trapped_high']:.3f}]" in page
    assert page.count('src="data:image/png;base64,') == 1
    assert page.count("src=") == 1
    assert all(f'href="{place}/report.html"' in page for place in ("001-steps%3D60", "002-steps%3D100"))
    assert "2 of 2 studies finished" in page


def test_the_chains_of_all_studies_share_one_program(finished, tmp_path):
    # As in chains/test_safety.py. Steps change nothing in shape; nor do seeds, temperatures of one form of the energy
    # and other weights. A step size is a constant of the program, so it is kept.
    assert finished[1] <= 1
    mine = tmp_path / "mine.py"
    keys = "[[1, 0], [0, 1], [-1, 0], [0, -1]]"
    mine.write_text("import infonce_jax as ij\n" + "".join(
        f"{name} = ij.energies.graph_infonce([[0, 0, {w}, 0, {1 - w:.2f}]], temperature=0.2, keys={keys})\n"
        for name, w in (("one", 0.55), ("two", 0.6))))  # fmt: skip
    before = advance_chunk._cache_size()
    vary = ("--vary", "seed=0,1", "--vary", "temperature=0.2,0.22", "--vary", f"scenario={mine}:one,{mine}:two")
    assert swept(tmp_path / "out", *vary, extra=("--how", "zip")) == 0
    studies = content(tmp_path / "out")["studies"]
    assert [study["directory"] for study in studies] == [
        "001-seed=0,temperature=0.2,scenario=mine.py_one", "002-seed=1,temperature=0.22,scenario=mine.py_two"
    ]  # fmt: skip
    assert all(study["state"] == "finished" for study in studies)
    assert advance_chunk._cache_size() == before


def test_a_sweep_that_was_stopped_within_a_run_is_resumed_to_the_same_bits(finished, tmp_path, monkeypatch, capsys):
    out, real_run, real_chunk, begun = tmp_path / "out", run.run_chains, loop.advance_chunk, []

    def counted(*arguments, **options):
        begun.append(options["num_steps"])
        return real_run(*arguments, **options)

    def interrupted(*arguments, **options):
        if len(begun) == 5 and arguments[6] > 0:  # the second run of the second study, not its first chunk
            signal.raise_signal(signal.SIGTERM)
        return real_chunk(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(run, "run_chains", counted)
        patch.setattr(loop, "advance_chunk", interrupted)
        assert swept(out, *STEPS) == 143
    said = capsys.readouterr()
    assert f"continue with: infonce-jax resume {out}" in said.err
    assert "1 of 2 studies finished" in said.out
    assert [study["state"] for study in content(out)["studies"]] == ["finished", "interrupted"]
    assert content(out)["complete"] is False
    assert (out / "002-steps=100" / "partial.json").exists()
    page = (out / "001-steps=60" / "report.html").stat().st_mtime_ns

    assert cli.main(["resume", str(out)]) == 0
    said = capsys.readouterr().out
    assert "[1/2] 001-steps=60 is finished" in said
    assert "going on with the study" in said
    assert (out / "001-steps=60" / "report.html").stat().st_mtime_ns == page
    assert content(out)["complete"] is True
    assert bits(out) == bits(finished[0])


def test_the_same_command_runs_only_what_is_missing(finished, tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    shutil.copytree(finished[0], out)
    shutil.rmtree(out / "002-steps=100")

    def ctrl_c(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run, "explored", ctrl_c)
        assert swept(out, *STEPS) == 130
    assert f"continue with: infonce-jax resume {out}" in capsys.readouterr().err
    assert content(out)["studies"][1]["note"] == "before a schedule had begun"
    assert swept(out, *STEPS) == 0
    assert bits(out) == bits(finished[0])
    monkeypatch.setattr(sweep, "carry_out", lambda *_: pytest.fail("a finished study was run again"))
    assert cli.main(["resume", str(out)]) == 0


def test_studies_without_a_result_do_not_end_a_sweep_and_the_table_says_why(tmp_path, monkeypatch, capsys):
    real, calls = run.run_chains, []

    def failing_once(*arguments, **options):
        done = real(*arguments, **options)
        calls.append(1)
        if len(calls) == 1:
            raise RunStopped("chain 3 failed at step 7 (time 0.14): as told", 3, 7, done.final_positions[3], done)
        return done

    monkeypatch.setattr(run, "run_chains", failing_once)
    out = tmp_path / "out"
    assert swept(out, "--vary", "temperature=5,0.2,default") == 1
    studies = content(out)["studies"]
    assert [study["state"] for study in studies] == ["no result", "failed", "finished"]
    assert "E* = 0" in studies[0]["note"]
    assert "chain 3 failed at step 7" in studies[1]["note"]
    with (out / "sweep.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [(row["temperature"], row["state"]) for row in table[:2]] == [("5.0", "no result"), ("0.2", "failed")]
    assert [row["note"] for row in table[:2]] == [study["note"] for study in studies[:2]]
    assert len(table) == 2 + len(NAMES)
    page = (out / "sweep.html").read_text()
    assert "no result: scenario: got" in page
    assert "1 of 3 studies finished" in page
    error = capsys.readouterr().err
    assert "001-temperature=5: no result: scenario: got 'square_keys' with 1 kind(s) of minima" in error
    assert "002-temperature=0.2: failed: " in error
    assert not (out / "001-temperature=5").exists()
    assert (out / "002-temperature=0.2" / "partial.json").exists()


def test_a_sweep_without_any_result_exits_with_two(tmp_path):
    assert swept(tmp_path / "out", "--vary", "temperature=5") == 2
    assert content(tmp_path / "out")["studies"][0]["state"] == "no result"


def test_another_grid_in_the_same_directory_is_refused_and_fresh_keeps_finished_studies(
    finished, tmp_path, monkeypatch, capsys
):
    out, asked = tmp_path / "out", []
    shutil.copytree(finished[0], out)

    def begun(configuration, place, say):
        asked.append(place.name)
        (place / "checkpoints").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(sweep, "carry_out", begun)
    before = bits(out), (out / "sweep.json").read_text()
    for vary, extra, words in (
        (("--vary", "steps=60,100,200"), (), "steps 60,100 there, 60,100,200 here"),
        (STEPS, ("--seed", "1"), "seed 0 there, 1 here"),
        (STEPS, ("--how", "zip"), "how product there, zip here"),
    ):
        assert swept(out, *vary, extra=extra) == 2
        error = capsys.readouterr().err.strip()
        assert len(error.splitlines()) == 1
        assert words in error
        assert "--fresh" in error
    # Not even --fresh replaces a finished study by another one.
    assert swept(out, *STEPS, extra=("--seed", "1", "--fresh")) == 2
    assert "001-steps=60, the finished study of another configuration (seed 0 there, 1 here)" in capsys.readouterr().err
    assert (bits(out), (out / "sweep.json").read_text()) == before
    assert asked == []
    # A longer grid keeps what is finished of it; a shorter one drops what was only begun.
    assert swept(out, "--vary", "steps=60,100,200", extra=("--fresh",)) == 130
    assert asked == ["003-steps=200"]
    assert (out / "003-steps=200" / "checkpoints").exists()
    assert swept(out, *STEPS, extra=("--fresh",)) == 0
    assert not (out / "003-steps=200").exists()
    assert bits(out) == before[0]
    assert content(out)["complete"] is True


def test_product_and_zip_span_the_grid_in_order():
    names = [point.name for point in grid("steps=60,100", "seed=0,1,2")]
    assert names == [f"{k + 1:03d}-steps={s},seed={q}" for k, (s, q) in enumerate(
        (s, q) for s in (60, 100) for q in (0, 1, 2))]  # fmt: skip
    pairs = [(p.configuration.steps, p.configuration.seed) for p in grid("steps=60,100", "seed=5,3", how="zip")]
    assert pairs == [(60, 5), (100, 3)]


def test_every_setting_of_a_study_that_changes_results_can_vary():
    values = {"scenario": ("ring5", "cube"), "chains": (8, 16), "steps": (50, 60), "seed": (1, 2**60 + 1),
              "step_size": (None, 0.01), "temperature": (0.5, 1e-3), "from_temperature": (None, 1.5),
              "predict": (True, False), "quick": (False, True)}  # fmt: skip
    assert set(values) == set(sweep_grid.SETTINGS)
    for name, pair in values.items():
        text = f"{name.replace('_', '-')}={','.join(map(sweep_grid.text_of, pair))}"
        points = grid(text)
        assert tuple(getattr(point.configuration, name) for point in points) == pair
        assert len({point.name for point in points}) == 2


@pytest.mark.parametrize(
    ("vary", "words"),
    [
        ([], ["vary", "nothing", "--vary steps=1000,10000"]),
        (["steps"], ["vary", "'steps'", "NAME=VALUE"]),
        (["stepz=10,20"], ["vary", "'stepz'", "scenario, chains, steps"]),
        (["out=a,b"], ["vary", "'out'", "one of"]),
        (["checkpoint_every=1,2"], ["vary", "'checkpoint_every'", "one of"]),
        (["steps=100,1e4"], ["steps", "'1e4'", "whole number"]),
        (["steps=100,"], ["steps", "''", "whole number"]),
        (["temperature=0.2,hot"], ["temperature", "'hot'", "a number, or 'default'"]),
        (["predict=yes,no"], ["predict", "'yes'", "true or false"]),
        (["temperature=0.3,0.30"], ["temperature", "0.3,0.30", "distinct"]),
        (["steps=100,200", "steps=300"], ["vary", "steps twice", "once"]),
        (["steps=100,200", "seed=0,1,2", "zip"], ["vary", "2 of steps, 3 of seed", "equally many"]),
        (["steps=100,5"], ["steps", "5", "at least 10"]),
        (["chains=1,32"], ["chains", "1", "at least 2"]),
        (["temperature=0.2,-1"], ["temperature", "-1", "above zero"]),
        (["temperature=0.2,nan"], ["temperature", "nan", "finite"]),
        (["step_size=0.01,inf"], ["step_size", "inf", "finite"]),
        (["seed=0,-1"], ["seed", "-1", ">= 0"]),
        (["scenario=square_keys,nowhere"], ["scenario", "nowhere", "digit_orbit"]),
        (["steps=5000,10000", "quick=true"], ["001-steps=5000,quick=true and 002-steps=10000,quick=true", "--quick"]),
    ],
)  # fmt: skip
def test_a_bad_grid_is_one_line_and_exit_code_two_before_anything_runs(vary, words, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sweep, "carry_out", lambda *_: pytest.fail("a study ran before the grid was checked"))
    how = ["--how", "zip"] if "zip" in vary else []
    arguments = [part for text in vary if text != "zip" for part in ("--vary", text)]
    out = tmp_path / "out"
    assert cli.main(["sweep", *how, *arguments, "--out", str(out)]) == 2
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1
    assert all(word in error for word in words), error
    assert not out.exists()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"asked": {}}', '{"asked": {"vary": {}, "how": "zip", "base": {}}}'])
def test_a_damaged_sweep_file_is_refused_in_one_line(text, tmp_path, capsys):
    (tmp_path / "sweep.json").write_text(text)
    assert cli.main(["resume", str(tmp_path)]) == 2
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1
    assert str(tmp_path / "sweep.json") in error


def test_a_sweep_of_another_version_is_refused(tmp_path):
    asked = {"vary": {"colour": [1]}, "how": "product", "base": {"scenario": "ring5"}}
    (tmp_path / "sweep.json").write_text(json.dumps({"asked": asked, "studies": []}))
    with pytest.raises(InputError, match="settings colour"):
        sweep.configuration_in(tmp_path)


def test_resume_takes_up_what_was_asked_from_any_directory(tmp_path, monkeypatch):
    # A landscape from a file is remembered by its whole path, and every number by all its digits.
    monkeypatch.chdir(tmp_path)
    base = SharedSettings("mine.py:one", seed=2**60 + 1, step_size=0.1 + 0.2, out=tmp_path)
    asked = SweepConfiguration(("temperature=default,0.30000000000000004", "predict=true,false"), "zip", base)
    (tmp_path / "sweep.json").write_text(json.dumps({"asked": sweep._asked(asked), "studies": []}))
    remembered = sweep._asked(asked)
    monkeypatch.chdir("/")
    again = sweep.configuration_in(tmp_path)
    assert again.base.scenario == f"{tmp_path}/mine.py:one"
    assert sweep._asked(again) == remembered


@pytest.mark.parametrize(
    "vary", [{"steps": [1, 2], "chains": [3, 4]}, {"scenario": ["ring5", "cube"]}, {"steps": [60]}], ids=str
)
def test_no_figure_without_one_number_on_its_axis(vary):
    row = {"directory": "a", "schedule": "power 1", "trapped": 0.5, "trapped_low": 0.4, "trapped_high": 0.6}
    studies = [{"directory": name, "parameters": {key: values[k % len(values)] for key, values in vary.items()}}
               for k, name in enumerate("ab")]  # fmt: skip
    rows = [row, {**row, "directory": "b"}]
    assert sweep_page.draw_sweep({"asked": {"vary": vary}, "studies": studies, "rows": rows}) is None


def test_the_figure_has_a_panel_for_each_value_that_is_no_number_and_axes_with_units():
    rows, studies = [], []
    for scenario in ("ring5", "cube"):
        for tau, trapped in ((0.3, 0.0), (0.5, 0.25), (None, 1.0)):  # the default has no place on the axis
            name = f"{scenario}-{tau}"
            studies.append({"directory": name, "parameters": {"scenario": scenario, "temperature": tau}})
            rows.append({"directory": name, "schedule": "power 1", "trapped": trapped,
                         "trapped_low": 0.9 * trapped, "trapped_high": 0.1 + 0.9 * trapped})  # fmt: skip
    vary = {"scenario": ["ring5", "cube"], "temperature": [0.3, 0.5, None]}
    figure = sweep_page.draw_sweep({"asked": {"vary": vary}, "studies": studies, "rows": rows})
    assert figure is not None
    assert [axes.get_title() for axes in figure.axes] == ["ring5", "cube"]
    for axes in figure.axes:
        assert "(1)" in axes.get_xlabel()
        seen, unseen = (np.asarray(line.get_ydata()) for line in axes.lines if line.get_marker() in "ov")
        np.testing.assert_array_equal(seen, [0.25])
        np.testing.assert_array_equal(unseen, [0.1])
    assert figure.axes[0].get_ylabel().startswith("P(")
    figure.savefig(io.BytesIO())
