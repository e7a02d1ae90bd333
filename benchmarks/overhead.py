"""What watching costs: a run with observers against the same run without, taking turns.

Target: less than a tenth more. Chains and steps are those a study runs by default; of a shorter run the moments at
which observers record, some fifty whatever its length and two milliseconds each, would be a larger part.
"""

from __future__ import annotations

import functools
import tempfile
from typing import Any

import numpy as np

import infonce_jax as ij
from benchmarks.implementations import OURS, ours
from benchmarks.systems import system
from benchmarks.timing import Record, Timing, interleaved, record

__all__ = ["checkpointed", "measure", "watched"]

TARGET = 0.10
_SHAPE, _CHAINS, _STEPS = (5, 2), 1024, 100_000
_LEVEL = 4.5  # between the global minimum of ring5, 3.97, and its trap, 6.17


def watched(steps: int, step_size: float) -> dict[str, Any]:
    """Arguments of `run_chains` with what a study watches: energies and best energies at log-spaced times, passages."""
    times = ij.observers.log_spaced_times(steps * step_size, step_size)
    observe = ij.observers
    return {"observers": (observe.energies(times), observe.first_passage(_LEVEL), observe.best_energy(times))}


def checkpointed(parent: str) -> dict[str, Any]:
    """Arguments of `run_chains` that write checkpoints, as a study does; every run into a directory of its own."""
    return {"checkpoints": lambda: tempfile.mkdtemp(dir=parent)}


def measure(shape: tuple[int, int] = _SHAPE, chains: int = _CHAINS, steps: int = _STEPS) -> list[Record]:
    """Time both, print the overhead and its quartiles over rounds, return one record for each.

    Args:
        shape: (n, d).
        chains: how many.
        steps: per run.
    """
    what = system(*shape)
    watching = watched(steps, what.step_size)
    place = tempfile.TemporaryDirectory()
    variants = {"bare": {}, "observers": watching, "observers and checkpoints": watching | checkpointed(place.name)}
    print(f"\nobservers and checkpoints on: {what.name}, {chains} chains, {steps} steps")
    runs = {name: ours(ij.integrators.geodesic_euler, **arguments) for name, arguments in variants.items()}
    timings = {name: Timing(prepare(what, chains, steps), steps) for name, prepare in runs.items()}
    seconds = interleaved({n: functools.partial(t.prepared.run, t.prepared.begin(0)) for n, t in timings.items()})
    records = []
    for name, timing in timings.items():
        extra = seconds[name] / seconds["bare"] - 1
        low, middle, high = np.quantile(extra, [0.25, 0.5, 0.75])
        records.append(record("observers", f"{OURS.name}, {name}", what, chains, timing, seconds[name],
                              overhead=float(middle)))  # fmt: skip
        if name != "bare":
            verdict = "met" if middle < TARGET else "NOT met"
            print(f"  {name}: {100 * middle:+.2g} % ({100 * low:+.2g} to {100 * high:+.2g})  target < "
                  f"{100 * TARGET:.0f} %: {verdict}")  # fmt: skip
    place.cleanup()
    return records
