"""However the work is cut, the chains are the same: one digest of everything a run ends with."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

import infonce_jax as ij
from infonce_jax.fingerprint import digest

CHAINS, STEPS = 1003, 2000  # no multiple of devices, processes, batches or chunks


def run(**cut):
    result = ij.run_chains(
        ij.scenarios.ring(3).energy,
        ij.schedules.logarithmic(1.0),
        ij.integrators.mala(0.1),
        num_chains=CHAINS,
        num_steps=STEPS,
        seed=5,
        observers=(ij.observers.energies(), ij.observers.first_passage(energy_below=2.0), ij.observers.acceptance()),
        **cut,
    )
    assert result.data.sizes["chain"] == CHAINS
    return digest([result.final_positions, *(result.data[name].values for name in sorted(result.data))])


SCRIPT = """
import importlib.util, sys
import infonce_jax as ij
from infonce_jax.processes import join_processes
from infonce_jax.study.cache import use_cache

use_cache()
ij.use_all_cores(2)
join_processes(sys.argv[1], 2, int(sys.argv[2]))
spec = importlib.util.spec_from_file_location("one_hash", sys.argv[3])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print("digest", module.run(max_memory=sys.argv[4]))
"""


def two_processes(*arguments, script=("-c", SCRIPT)):
    """Run the same script twice, as processes 0 and 1 of two; what each printed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{free.getsockname()[1]}"
    both = [subprocess.Popen([sys.executable, *script, coordinator, str(index), *arguments], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True) for index in range(2)]  # fmt: skip
    out = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], out
    return [text for text, _ in out]


@pytest.fixture(scope="module")
def one_device():
    return run(num_devices=1)


@pytest.mark.parametrize(
    "cut",
    [
        {"num_devices": 2},
        {"num_devices": 4},
        {"max_memory": "40KB"},
        {"max_memory": "200 kB", "num_devices": 2},
        {"chunk": 1},
        {"chunk": 37},
    ],
    ids=str,
)
def test_devices_batches_and_chunks_leave_the_same_bits(cut, one_device, capsys):
    bits = run(**cut)
    with capsys.disabled():
        print(f"\n{bits[:32]} {cut}")
    assert bits == one_device


@pytest.mark.parametrize("max_memory", ["1GB", "40KB"])
def test_two_processes_leave_the_same_bits(max_memory, one_device, capsys):
    texts = two_processes(str(Path(__file__)), max_memory)
    found = [text.split("digest ")[1].split()[0] for text in texts]
    with capsys.disabled():
        print(f"\n{found[0][:32]} two processes, {max_memory}")
    assert found == [one_device] * 2


def test_batches_are_batches(monkeypatch):
    # A limit that is never reached would make the test above empty.
    from infonce_jax.chains import run as module

    blocks = []
    loop = module.Loop
    monkeypatch.setattr(module, "Loop", lambda plan, block, *rest: blocks.append(block) or loop(plan, block, *rest))
    run(max_memory="40KB", num_devices=1)
    assert len(blocks) > 3
    assert blocks[0][0] == 0
    assert [stop for _, stop in blocks[:-1]] == [first for first, _ in blocks[1:]]
    assert blocks[-1][1] == CHAINS


@pytest.mark.parametrize(
    ("limit", "words"), [("4 parsecs", "KB, MB, GB or TB"), (0, "above zero"), ("10B", "at least"), (-1, "above zero")]
)
def test_a_limit_that_is_none_is_refused(limit, words):
    with pytest.raises(ij.InputError, match=rf"^max_memory: got .+; needs .*{words}") as caught:
        run(max_memory=limit)
    assert "\n" not in str(caught.value)
