"""An interrupted run goes on and ends with the same bits; what cannot go on is refused, with what to do instead."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

import infonce_jax as ij
from infonce_jax.chains import CheckpointWarning, RunStopped
from infonce_jax.chains import checkpoints as module
from infonce_jax.chains.loop import Loop

STEPS = 900
BETA = ij.schedules.logarithmic(1.0)
EULER = ij.integrators.geodesic_euler(0.03)
RING = ij.scenarios.ring(3).energy
SORTED = ij.energies.from_function(  # no scalar form: the array path
    lambda x: jnp.sum(jnp.sort(x[:, 0]) * jnp.arange(1.0, 4.0)), shape=(3, 3)
)


def mean_energy(x, energy):
    return energy


def run(directory=None, energy=RING, integrator=EULER, beta=BETA, every=60.0, skip_damaged=False, **options):
    watching = (ij.observers.energies(), ij.observers.first_passage(energy_below=2.0), ij.observers.best_energy(),
                ij.observers.average(mean_energy))  # fmt: skip
    given = {"num_chains": 21, "num_steps": STEPS, "seed": 3, "observers": watching, "chunk": 64} | options
    saving = None if directory is None else ij.Checkpoints(directory, every, skip_damaged)
    return ij.run_chains(energy, beta, integrator, checkpoints=saving, **given)


def after_chunks(monkeypatch, number, act):
    """Let something happen after so many chunks of every run that begins from here on."""
    advance = Loop._advance
    calls = []

    def counted(self, steps):
        advance(self, steps)
        calls.append(steps)
        if len(calls) == number:
            act()

    monkeypatch.setattr(Loop, "_advance", counted)


def interrupted(directory, monkeypatch, chunks=20, number=signal.SIGINT, **options):
    with monkeypatch.context() as patch:
        after_chunks(patch, chunks, lambda: signal.raise_signal(number))
        with pytest.raises(ij.RunInterrupted) as caught:
            run(directory, **options)
    return caught.value


def assert_same(one, other):
    assert one.final_positions.tobytes() == other.final_positions.tobytes()
    assert one.data.identical(other.data)


CASES = {
    "scalars": {},
    "arrays": {"energy": SORTED},
    "mala": {"integrator": ij.integrators.mala(0.1)},
    "kinetic": {"integrator": ij.integrators.kinetic(0.1)},
    "exchange": {"integrator": ij.integrators.replica_exchange(EULER, (1.0, 0.4))},
    "double": {"dtype": "float64"},
    "coupled": {"temperature": "coupled", "beta": ij.schedules.constant(2.0)},
    "given starts": {"initial": np.tile([[1.0, 0.0]], (3, 1))},
    "batches": {"max_memory": "5KB", "num_devices": 1, "num_chains": 50},
}


@pytest.mark.parametrize("case", CASES)
def test_an_interrupted_run_ends_with_the_same_bits(case, tmp_path, monkeypatch):
    stop = interrupted(tmp_path / "run", monkeypatch, **CASES[case])
    assert 0 < stop.run.num_steps < STEPS or case == "batches"
    assert_same(run(tmp_path / "run", **CASES[case]), run(**CASES[case]))


def test_any_number_of_interruptions_and_other_devices_and_chunks_leave_the_same_bits(tmp_path, monkeypatch):
    for k, options in enumerate(({"chunk": 7}, {"num_devices": 2}, {"num_devices": 1, "chunk": 100}, {"every": 1e-6})):
        interrupted(tmp_path, monkeypatch, chunks=k + 5, **options)
    assert_same(run(tmp_path), run())


def test_a_finished_run_is_read_and_not_repeated(tmp_path, monkeypatch):
    first = run(tmp_path)
    monkeypatch.setattr(Loop, "_advance", lambda *_: pytest.fail("a finished run moved"))
    assert_same(run(tmp_path), first)


def test_the_seconds_of_all_sittings_add_up(tmp_path, monkeypatch):
    before = interrupted(tmp_path, monkeypatch).run.seconds
    assert run(tmp_path).seconds > before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_chunk_and_says_how_to_go_on(number, tmp_path, monkeypatch):
    stop = interrupted(tmp_path, monkeypatch, chunks=3, number=number)
    assert stop.signal == number
    assert stop.checkpoint == tmp_path
    assert stop.run.num_steps in (int(path.name) for path in next(tmp_path.glob("chains_*")).iterdir())
    assert number.name in str(stop)
    assert str(tmp_path) in str(stop)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler  # handlers are put back


def test_a_signal_without_checkpoints_keeps_what_was_observed(monkeypatch):
    stop = interrupted(None, monkeypatch)
    assert stop.checkpoint is None
    assert np.all(np.isfinite(stop.run.data["energy"]))


def test_a_signal_in_the_last_chunk_is_not_lost(tmp_path, monkeypatch):
    # One chunk is the whole run.
    stop = interrupted(tmp_path, monkeypatch, chunks=1, num_steps=20, observers=())
    assert stop.run.num_steps == 20
    assert_same(stop.run, run(tmp_path, num_steps=20, observers=()))


def test_the_last_two_are_kept(tmp_path):
    run(tmp_path, every=1e-6)
    names = {path.name for path in next(tmp_path.glob("chains_*")).iterdir()}
    assert len(names) == 2
    assert str(STEPS) in names


def steps_in(directory):
    return sorted((int(p.name) for p in next(directory.glob("chains_*")).iterdir()), reverse=True)


def damage(path, how):
    if how == "a flipped bit":
        whole = bytearray(path.read_bytes())
        whole[len(whole) // 2] ^= 1
        path.write_bytes(whole)
    elif how == "cut short":
        path.write_bytes(path.read_bytes()[:-100])
    elif how == "empty":
        path.write_bytes(b"")
    else:
        path.unlink()


@pytest.mark.parametrize("how", ["a flipped bit", "cut short", "empty", "gone"])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_it_offered(how, tmp_path, monkeypatch):
    interrupted(tmp_path, monkeypatch, every=1e-6)
    newest, before = steps_in(tmp_path)
    damage(next(tmp_path.glob(f"chains_*/{newest}/default/arrays.npz")), how)
    with pytest.raises(ij.InputError, match=rf"^checkpoints: got a damaged one of step {newest} in .+; needs a whole "
                       rf"one; the one before it, of step {before}, is whole: .+skip_damaged") as caught:  # fmt: skip
        run(tmp_path)
    assert "\n" not in str(caught.value)
    assert steps_in(tmp_path) == [newest, before]
    assert_same(run(tmp_path, skip_damaged=True), run())


def test_when_all_are_damaged_nothing_is_offered(tmp_path, monkeypatch):
    interrupted(tmp_path, monkeypatch, every=1e-6)
    for path in tmp_path.glob("chains_*/*/default/arrays.npz"):
        damage(path, "cut short")
    for skip in (False, True):
        with pytest.raises(ij.InputError, match="none before it is whole: begin again in another directory"):
            run(tmp_path, skip_damaged=skip)


OTHERS = {
    "num_chains 21 there, 22 here": {"num_chains": 22},
    "num_steps 900 there, 901 here": {"num_steps": 901},
    "seed 3 there, 4 here": {"seed": 4},
    "dtype float32 there, float64 here": {"dtype": "float64"},
    "step_size 0.03 there, 0.02 here": {"integrator": ij.integrators.geodesic_euler(0.02)},
    "schedule log, c = 1 there, log, c = 1.1 here": {"beta": ij.schedules.logarithmic(1.1)},
    "schedule values": {"beta": ij.schedules.logarithmic(1.0, t0=2.0)},
    "integrator geodesic Euler there, MALA here": {"integrator": ij.integrators.mala(0.03)},
    "initial uniform there": {"initial": np.tile([[1.0, 0.0]], (3, 1))},
    "observers": {"observers": ()},
    "energy and step": {"energy": ij.scenarios.ring(3, temperature=0.6).energy},
}


@pytest.mark.parametrize("words", OTHERS)
def test_another_run_is_refused_and_told_what_differs(words, tmp_path, monkeypatch):
    interrupted(tmp_path, monkeypatch, chunks=2)
    with pytest.raises(ij.InputError, match=r"^checkpoints: got .+, of another run") as caught:
        run(tmp_path, **OTHERS[words])
    assert words in str(caught.value)
    assert "begin again in another directory" in str(caught.value)
    assert_same(run(tmp_path), run())


def test_another_formula_under_the_same_name_is_another_run(tmp_path, monkeypatch):
    def made(scale):
        return ij.energies.from_function(lambda x: scale * x[0, 1], shape=(1, 3))

    interrupted(tmp_path, monkeypatch, chunks=2, energy=made(1.0))
    with pytest.raises(ij.InputError, match="energy and step"):
        run(tmp_path, energy=made(2.0))
    run(tmp_path, energy=made(1.0))


def test_other_versions_are_refused(tmp_path, monkeypatch):
    interrupted(tmp_path, monkeypatch, chunks=2)
    text = (tmp_path / "run.json").read_text()
    before = json.loads(text)["versions"]["jax"]
    (tmp_path / "run.json").write_text(text.replace(f'"jax": "{before}"', '"jax": "0.11.9"'))
    with pytest.raises(ij.InputError, match=rf"other versions \(jax 0.11.9 there, {before} here\).+install those"):
        run(tmp_path)


def test_a_lost_or_damaged_manifest_is_refused(tmp_path, monkeypatch):
    interrupted(tmp_path, monkeypatch, chunks=2)
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(ij.InputError, match=r"^checkpoints: got a damaged .+run\.json; needs"):
        run(tmp_path)
    (tmp_path / "run.json").unlink()
    with pytest.raises(ij.InputError, match=r"^checkpoints: got .+ without its run\.json; needs"):
        run(tmp_path)


def test_a_directory_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ij.InputError, match=r"^checkpoints: got .+\(Not a directory\); needs .+; choose"):
        run(tmp_path / "file" / "inside")


@pytest.mark.parametrize(("given", "name"), [(3, "checkpoints"), (True, "checkpoints")])
def test_what_is_no_directory_is_refused(given, name):
    with pytest.raises(ij.InputError, match=rf"^{name}: got (int|bool); needs a directory"):
        ij.run_chains(RING, BETA, EULER, num_chains=2, num_steps=2, checkpoints=given)


@pytest.mark.parametrize("every", [0, -1, float("nan")])
def test_an_interval_that_is_none_is_refused(every, tmp_path):
    with pytest.raises(ij.InputError, match=r"^every: got"):
        ij.Checkpoints(tmp_path, every)


def test_a_lost_directory_warns_and_costs_nothing_else(tmp_path, monkeypatch):
    after_chunks(monkeypatch, 10, lambda: shutil.rmtree(tmp_path / "run"))
    with pytest.warns(CheckpointWarning, match=r"could not be written \(No such file.+; the run goes on") as caught:
        whole = run(tmp_path / "run", every=1e-6)
    assert "\n" not in str(caught[0].message)
    monkeypatch.undo()
    assert_same(whole, run())


def test_a_run_that_fails_saves_itself_first(tmp_path):
    cap = ij.energies.from_function(lambda x: -jnp.sqrt(0.5 - x[0, 2]) - 3 * x[0, 2], shape=(1, 3))
    stops = []
    for _ in range(2):  # the second call goes on from there and fails at the same step
        with pytest.raises(RunStopped) as caught:
            run(tmp_path, energy=cap, initial=[[0.0, 0.0, -1.0]], beta=ij.schedules.constant(1.0),
                observers=[ij.observers.energies()])  # fmt: skip
        stops.append(caught.value)
    assert steps_in(tmp_path)[0] == stops[0].run.num_steps
    assert (stops[0].chain, stops[0].step) == (stops[1].chain, stops[1].step)


FULL = """
import resource, signal, sys, warnings
import infonce_jax as ij
from infonce_jax.chains import loop

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
advance, calls = loop.Loop._advance, []
def counted(self, steps):
    advance(self, steps)
    calls.append(steps)
    if len(calls) == 8:  # no file may grow beyond this from here on, as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, resource.RLIM_INFINITY))
loop.Loop._advance = counted
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    run = ij.run_chains(ij.scenarios.double_well().energy, ij.schedules.logarithmic(1.0),
                        ij.integrators.geodesic_euler(0.03), num_chains=64, num_steps=3000, chunk=64,
                        checkpoints=ij.Checkpoints(sys.argv[1], every=1e-6))
print(run.num_steps, len(caught) > 1)
print(caught[0].message)
"""


def test_a_full_disk_warns_and_leaves_earlier_checkpoints_whole(tmp_path):
    done = subprocess.run([sys.executable, "-c", FULL, tmp_path], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    steps, message = done.stdout.splitlines()
    assert steps == "3000 True"
    assert "could not be written (File too large)" in message
    stands = steps_in(tmp_path)[0]
    assert f"that of step {stands} stands" in message
    again = ij.run_chains(ij.scenarios.double_well().energy, BETA, EULER, num_chains=64, num_steps=3000,
                          checkpoints=tmp_path)  # fmt: skip
    alone = ij.run_chains(ij.scenarios.double_well().energy, BETA, EULER, num_chains=64, num_steps=3000)
    assert stands < 3000
    assert_same(again, alone)


def test_nothing_is_written_without_being_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run(num_steps=10)
    assert os.listdir(tmp_path) == []
    assert module.Store(ij.Checkpoints(tmp_path), (0, 1)).newest() is None
