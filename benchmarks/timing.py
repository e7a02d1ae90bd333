"""How anything here is timed: steps to fit the clock, interleaved rounds, medians, records."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import math
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.implementations import Implementation, LeftOut, Prepared, timed
from benchmarks.systems import System

__all__ = ["REPEATS", "Record", "Timing", "device_name", "fitted", "header", "interleaved", "record", "slope", "write"]

REPEATS = 5
# One timing takes about this long, and where a call has a start that does not depend on its steps, so long that the
# start is a fifteenth of it, up to the second number.
SECONDS, LONGEST_CALL = 0.2, 3.0
_ATTEMPTS = 4
LONGEST = 30.0  # for all repeats of one combination, estimated beforehand


@dataclasses.dataclass(frozen=True)
class Record:
    """One measurement of one implementation; what the JSON file holds.

    Attributes:
        kind: "throughput", "chains", "steps", "size", "observers" or "large": the part of the benchmark.
        implementation: name.
        n, d, chains, steps: what was run; steps per timing.
        chain_steps_per_second: median of the repeats.
        chain_steps_per_second_quartiles: lower and upper.
        compile_seconds: tracing and compiling, apart.
        device: kind and number of devices used.
        path: "scalars" or "arrays" for ours.
        repeats: how many timings.
        versions: of the packages.
        numbers: what else this part measures.
    """

    kind: str
    implementation: str
    n: int
    d: int
    chains: int
    steps: int
    chain_steps_per_second: float
    chain_steps_per_second_quartiles: tuple[float, float]
    compile_seconds: float
    device: str
    path: str
    repeats: int
    versions: Mapping[str, str]
    numbers: Mapping[str, float] = dataclasses.field(default_factory=dict)

    @property
    def nanoseconds(self) -> float:
        """Per chain-step."""
        return 1e9 / self.chain_steps_per_second


@dataclasses.dataclass(frozen=True)
class Timing:
    """Something prepared and the steps that one call of it makes."""

    prepared: Prepared
    steps: int


def _steps(cost: float, chains: int, least: int, start: float) -> int:
    return max(least, round(min(max(SECONDS, 15 * start), LONGEST_CALL) / (cost * chains)))


def fitted(implementation: Implementation, system: System, chains: int, cost: float | None = None) -> Timing:
    """Prepare with as many steps as one timing should have.

    Args:
        implementation: which.
        system: which.
        chains: how many.
        cost: seconds per chain-step, roughly, or None.

    Raises:
        LeftOut: it would take too long or too much memory.
    """
    least = implementation.least_steps
    predicted = (cost or 0.0) * chains * least * (REPEATS + 2)
    if predicted > LONGEST:
        raise LeftOut(f"would take {predicted:.0f} s")
    steps = least if cost is None else _steps(cost, chains, least, 0.0)
    prepared = implementation.prepare(system, chains, steps, False)
    compile_seconds = prepared.compile_seconds
    for _ in range(_ATTEMPTS):  # of a call that is mostly its start, little can be told about a step
        running = max(prepared.seconds - prepared.start_seconds, 0.2 * prepared.seconds)
        better = _steps(running / (chains * steps), chains, least, prepared.start_seconds)
        if max(better / steps, steps / better) < 1.5:
            break
        steps = better
        prepared = implementation.prepare(system, chains, steps, False)
    return Timing(dataclasses.replace(prepared, compile_seconds=compile_seconds), steps)


def interleaved(calls: Mapping[Any, Callable[[], Any]], repeats: int = REPEATS) -> dict[Any, np.ndarray]:
    """Seconds of each call, shape (repeats,), after one call of each to warm up; one of each per round."""
    for call in calls.values():
        call()
    rounds = [{name: timed(call)[0] for name, call in calls.items()} for _ in range(repeats)]
    return {name: np.array([r[name] for r in rounds]) for name in calls}


def record(
    kind: str, name: str, system: System, chains: int, timing: Timing, seconds: np.ndarray, **numbers: float
) -> Record:
    """A record from the seconds of all repeats."""
    slow, median, fast = (float(chains * timing.steps / q) for q in np.quantile(seconds, [0.75, 0.5, 0.25]))
    device = device_name(timing.prepared.devices)
    return Record(kind, name, system.n, system.d, chains, timing.steps, median, (slow, fast),
                  timing.prepared.compile_seconds, device, timing.prepared.path, len(seconds), _versions(),
                  numbers)  # fmt: skip


def device_name(count: int | None = None) -> str:
    """Kind and number of devices, as "cpu x 2"."""
    return f"{jax.devices()[0].device_kind.lower()} x {count or jax.local_device_count()}"


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("infonce-jax", "jax", "jaxlib", "numpy", "blackjax", "geoopt", "torch"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def header() -> str:
    """One line: devices, cores, load, versions."""
    packages = ", ".join(f"{name} {version}" for name, version in _versions().items())
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    return f"{device_name()}, {os.cpu_count()} cores{load}; {packages}"


def slope(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Least-squares slope of log y against log x and its standard error; NaN where too few points."""
    u, v = np.log(np.asarray(x, float)), np.log(np.asarray(y, float))
    if len(u) < 2:
        return math.nan, math.nan
    u = u - u.mean()
    rise = float(u @ v / (u @ u))
    residual = v - v.mean() - rise * u
    return rise, math.sqrt(residual @ residual / (len(u) - 2) / (u @ u)) if len(u) > 2 else math.nan


def write(path: Path | None, records: Sequence[Record]) -> None:
    """Write the records as a JSON list, where a file is asked for."""
    if path is not None:
        path.write_text(json.dumps([dataclasses.asdict(r) for r in records], indent=1) + "\n")
        print(f"{len(records)} records in {path}")
