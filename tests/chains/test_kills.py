"""Twenty runs killed without warning, half of them while a checkpoint is written, end as one left alone does."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

KILLS = 20
SCRIPT = Path(__file__).with_name("checkpointed_run.py")


def start(every, *directories):
    arguments = [str(every), *map(str, directories)]
    return subprocess.Popen([sys.executable, SCRIPT, *arguments], stdout=subprocess.PIPE, text=True)


def unfinished_writes(directory):
    return list(directory.glob("chains_*/*tmp*"))


def kill_at(directory, process, during_a_write, delay):
    """Kill the process after its first checkpoint and a delay, or as soon as a file of a later one is there."""
    limit = time.monotonic() + 120
    while not list(directory.glob("chains_*/*")) and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.001)
    until = time.monotonic() + delay
    while process.poll() is None and (
        time.monotonic() < until or (during_a_write and not unfinished_writes(directory))
    ):
        pass
    process.kill()
    process.communicate()


def test_killed_runs_end_with_the_bits_of_one_left_alone(tmp_path, capsys):
    moments = random.Random(0)
    directories = [tmp_path / f"run_{k}" for k in range(KILLS)]
    in_writes = 0
    for k, directory in enumerate(directories):
        directory.mkdir()
        kill_at(directory, start(0.02, directory), during_a_write=k % 2 == 0, delay=moments.uniform(0, 0.4))
        in_writes += bool(unfinished_writes(directory))
    steps = [max((int(p.name) for p in d.glob("chains_*/*") if p.name.isdigit()), default=0) for d in directories]
    alone, *resumed = start(60, "none", *directories).communicate(timeout=600)[0].split()
    with capsys.disabled():
        print()
        for k, (step, bits) in enumerate(zip(steps, resumed, strict=True)):
            print(
                f"kill {k + 1:2d}: went on from step {step:6d}, {'same' if bits == alone else 'OTHER'} bits {bits[:16]}"
            )
        print(f"{in_writes} of {KILLS} while a checkpoint was written")
    assert resumed == [alone] * KILLS
    # Kills that find every run finished, or none begun, would test nothing.
    assert sum(0 < step < 250_000 for step in steps) >= KILLS * 3 // 4
    assert in_writes >= 3
