"""Chain-steps per second against the plain version, in one process: `python -m benchmarks.throughput`.

Every row is a ratio of medians from the same run; absolute numbers of a shared machine mean little. Both versions must
give the same stationary mean energy, or there is no row.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import infonce_jax as ij
from benchmarks.plain import plain_chains

BETA, PLAIN_STEPS, OUR_STEPS, REPEATS = 4.0, 200, 4000, 5


@dataclasses.dataclass(frozen=True)
class Record:
    """One implementation on one system."""

    implementation: str
    n: int
    d: int
    chains: int
    chain_steps_per_second: float
    compile_seconds: float
    device: str


def _timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    out = jax.block_until_ready(call())
    return time.perf_counter() - start, out


def _measure(name: str, shape: tuple[int, int], chains: int, steps: int, call: Callable[[], Any]) -> tuple[Record, Any]:
    first, _ = _timed(call)
    runs = [_timed(call) for _ in range(REPEATS)]
    median = statistics.median(seconds for seconds, _ in runs)
    device = f"{jax.devices()[0].platform} x {len(jax.devices())}"
    return Record(name, *shape, chains, chains * steps / median, max(first - median, 0.0), device), runs[-1][1]


def compare(n: int, d: int, chains: int) -> list[Record]:
    """Ours and the plain version on a ring of n views (or, for n = 1, one query and four keys) in dimension d.

    Raises:
        RuntimeError: their mean energies differ by more than five standard errors, so they do not compute the same.
    """
    scenario = ij.scenarios.ring(n, dim=d) if n > 2 else ij.scenarios.square_keys()
    h = 0.01 if n <= 2 else 0.03
    integrator, beta = ij.integrators.geodesic_euler(h), ij.schedules.constant(BETA)
    # Both start in equilibrium, so that short runs can be compared.

    def chains_of(steps: int, **options: Any) -> ij.Run:
        return ij.run_chains(scenario.energy, beta, integrator, num_chains=chains, num_steps=steps, **options)

    settled = chains_of(4000, seed=1).final_positions
    watch = (ij.observers.average(lambda x, energy: energy, "mean_energy"),)
    ours, run = _measure(
        "infonce_jax", scenario.shape, chains, OUR_STEPS, lambda: chains_of(OUR_STEPS, initial=settled, observers=watch)
    )
    step = plain_chains(scenario.energy, h)
    x, keys = settled.astype(np.float32), jax.random.split(jax.random.key(0), chains)
    betas = np.full(PLAIN_STEPS, BETA, np.float32)
    plain, (_, values) = _measure(
        "plain vmap of scan", scenario.shape, chains, PLAIN_STEPS, lambda: step(x, keys, betas)
    )
    means = run.data["mean_energy"].values, np.asarray(values)
    error = np.hypot(*(np.std(m) / np.sqrt(chains) for m in means))
    if abs(means[0].mean() - means[1].mean()) > 5 * error:
        raise RuntimeError(f"mean energies differ: {means[0].mean():.5f}, {means[1].mean():.5f} +- {error:.5f}")
    return [ours, plain]


def main() -> None:
    """Print the table, and write the records as JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="file for the records")
    parser.add_argument("--chains", type=int, default=4096)
    parser.add_argument("--systems", nargs="+", default=["1,2", "5,2", "8,2", "8,3"], help="n,d pairs")
    options = parser.parse_args()
    ij.use_all_cores()
    print("   n   d  chains  ours, ns/chain-step  plain, ns/chain-step   ratio  compile, s")
    records = []
    for system in options.systems:
        n, d = (int(v) for v in system.split(","))
        ours, plain = compare(n, d, options.chains)
        cost = [1e9 / r.chain_steps_per_second for r in (ours, plain)]
        row = f"{n:4d} {d:3d} {options.chains:7d} {cost[0]:20.0f} {cost[1]:21.0f} {cost[1] / cost[0]:7.1f}"
        print(f"{row} {ours.compile_seconds:11.1f}")
        records += [ours, plain]
    if options.json:
        options.json.write_text(json.dumps([dataclasses.asdict(r) for r in records], indent=1))


if __name__ == "__main__":
    main()
