"""A study that was cut off goes on, a finished one is left alone, and what cannot be written costs nothing earlier."""

from __future__ import annotations

import errno
import json
import signal
import socket
import subprocess
import sys

import pytest
import xarray as xr

from infonce_jax.chains.loop import Loop
from infonce_jax.study import cli, outputs, sittings

SMALL = ["study", "--scenario", "square_keys", "--chains", "33", "--steps", "400", "--no-predict"]


def data(out):
    # Attributes hold times of day; the numbers may not differ in one bit.
    return xr.open_zarr(out / "results.zarr", consolidated=False).drop_attrs().load()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A small study that nothing cut off."""
    out = tmp_path_factory.mktemp("study") / "whole"
    assert cli.main([*SMALL, "--out", str(out)]) == 0
    return data(out)


def cut_off(monkeypatch, out, number, chunks=60, arguments=SMALL):
    """Run the command until it has made so many chunks; its exit code."""
    with monkeypatch.context() as patch:
        advance, calls = Loop._advance, []

        def counted(self, steps):
            advance(self, steps)
            calls.append(steps)
            if len(calls) == chunks:
                signal.raise_signal(number)

        patch.setattr(Loop, "_advance", counted)
        return cli.main([*arguments, "--out", str(out)])


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_says_how_to_go_on_and_resume_ends_with_the_same_bits(
    number, code, whole, tmp_path, monkeypatch, capsys
):
    out = tmp_path / "cut"
    assert cut_off(monkeypatch, out, number) == code
    assert f"continue with: infonce-jax resume {out}" in capsys.readouterr().err
    assert not (out / "report.html").exists()
    assert 0 < len(json.loads((out / "partial.json").read_text())["schedules"]) < 8
    assert cli.main(["resume", str(out)]) == 0
    assert "going on with the study" in capsys.readouterr().out
    assert data(out).identical(whole)
    assert not sittings.place_of(out).exists()
    assert not list(out.glob("partial*"))


def test_the_same_command_goes_on_too(whole, tmp_path, monkeypatch):
    cut_off(monkeypatch, tmp_path, signal.SIGINT)
    assert cli.main([*SMALL, "--out", str(tmp_path)]) == 0
    assert data(tmp_path).identical(whole)


def test_another_study_in_the_same_place_is_refused_unless_it_may_drop_the_first(tmp_path, monkeypatch, capsys):
    cut_off(monkeypatch, tmp_path, signal.SIGINT)
    capsys.readouterr()
    other = [*SMALL, "--seed", "4", "--out", str(tmp_path)]
    assert cli.main(other) == 2
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1
    assert all(words in error for words in ("seed 0 there, 4 here", f"infonce-jax resume {tmp_path}", "--fresh"))
    assert cli.main([*other, "--fresh"]) == 0


def test_memory_and_checkpoints_change_nothing(whole, tmp_path):
    how = ["--max-memory", "20KB", "--checkpoint-every", "0.01"]
    assert cli.main([*SMALL, *how, "--out", str(tmp_path)]) == 0
    assert data(tmp_path).identical(whole)


def test_a_damaged_checkpoint_is_refused_and_skipped_when_told(whole, tmp_path, monkeypatch, capsys):
    cut_off(monkeypatch, tmp_path, signal.SIGINT, arguments=[*SMALL, "--checkpoint-every", "1e-6"])
    place = max(sittings.place_of(tmp_path).glob("schedule_*"))
    newest = max(place.glob("chains_*/*"), key=lambda path: int(path.name))
    (newest / "default" / "arrays.npz").write_bytes(b"")
    capsys.readouterr()
    assert cli.main(["resume", str(tmp_path)]) == 2
    assert "continue from there with skip_damaged" in capsys.readouterr().err
    assert cli.main(["resume", str(tmp_path), "--skip-damaged"]) == 0
    assert data(tmp_path).identical(whole)


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (lambda out: None, "which is no directory"),
        (lambda out: out.mkdir(), "without checkpoints"),
        (lambda out: (out.mkdir(), (out / "report.html").touch()), "a finished study"),
        (lambda out: ((out / "checkpoints").mkdir(parents=True), (out / "checkpoints/study.json").write_text("{")),
         "cannot be read"),
        (lambda out: ((out / "checkpoints").mkdir(parents=True),
                      (out / "checkpoints/study.json").write_text('{"colour": 1}')), "colour"),
    ],
)  # fmt: skip
def test_what_cannot_be_resumed_is_refused_in_one_line(prepare, words, tmp_path, capsys):
    out = tmp_path / "out"
    prepare(out)
    assert cli.main(["resume", str(out)]) == 2
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1
    assert words in error


def test_a_full_disk_at_the_end_leaves_the_earlier_report_and_the_runs(whole, tmp_path, monkeypatch, capsys):
    assert cli.main([*SMALL, "--out", str(tmp_path)]) == 0
    before = (tmp_path / "report.html").read_bytes()
    with monkeypatch.context() as patch:

        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device", "results.zarr")

        patch.setattr(outputs, "replace_zarr", full)
        assert cli.main([*SMALL, "--seed", "7", "--out", str(tmp_path)]) == 1
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1
    assert "No space left on device" in error
    assert (tmp_path / "report.html").read_bytes() == before
    assert data(tmp_path).identical(whole)
    monkeypatch.setattr(Loop, "_advance", lambda *_: pytest.fail("a finished run moved"))
    assert cli.main(["resume", str(tmp_path)]) == 0  # nothing of the second study was lost either
    assert not data(tmp_path).identical(whole)


def test_two_processes_write_one_study_with_the_same_bits(whole, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    share = ["--distributed", "--coordinator", coordinator, "--processes", "2", "--index"]
    command = [sys.executable, "-m", "infonce_jax", *SMALL, "--out", str(tmp_path), *share]
    both = [subprocess.Popen([*command, str(k)], stdout=subprocess.PIPE, text=True) for k in range(2)]
    first, second = (process.communicate(timeout=300)[0] for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert "report.html" in first
    assert "trapped" not in second  # one of them speaks
    assert data(tmp_path).identical(whole)


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (["--coordinator", "127.0.0.1:1"], "no processes and no index"),
        (["--coordinator", "127.0.0.1:1", "--processes", "2", "--index", "2"], "0 to 1"),
        (["--coordinator", "127.0.0.1:1", "--processes", "0", "--index", "0"], "at least 1"),
    ],
)
def test_processes_that_do_not_fit_are_refused(share, words, tmp_path, capsys):
    assert cli.main([*SMALL, "--out", str(tmp_path), "--distributed", *share]) == 2
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1
    assert words in error
