"""How the cost of a chain-step grows with chains, steps, embeddings and dimension: `python -m benchmarks.growth`.

Cost should be flat in the number of chains from 1024 to 65536 and in the number of steps from 1e3 to 1e6. In the steps
part the time of a run of one step is taken off, and printed: the fixed start of a call, some hundredths of a second, is
as long as a thousand steps of so few chains. In n and d, log-log slopes with the standard error of the fit, for each
path apart.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import infonce_jax as ij
from benchmarks.implementations import OURS, LeftOut
from benchmarks.systems import BETA, System, system
from benchmarks.timing import REPEATS, Record, Timing, fitted, header, interleaved, record, slope, write

__all__ = ["against_chains", "against_size", "against_steps", "main", "measure", "slopes"]

FLAT = 1.25  # largest over smallest cost
_CHAINS = tuple(1024 * 2**k for k in range(7))
_STEPS = (1_000, 10_000, 100_000, 1_000_000)
_NUMBER, _DIMENSION = (4, 8, 16, 32, 64), (2, 4, 8, 16, 32)


def _timed(what: dict[Any, tuple[System, int, Timing]]) -> dict[Any, np.ndarray]:
    calls = {key: functools.partial(t.prepared.run, t.prepared.begin(0)) for key, (_, _, t) in what.items()}
    return interleaved(calls)


def against_chains(counts: Sequence[int] = _CHAINS, shape: tuple[int, int] = (5, 2)) -> list[Record]:
    """Cost of a chain-step for several numbers of chains."""
    what = system(*shape)
    prepared = {c: (what, c, fitted(OURS, what, c, 1e-7)) for c in counts}
    seconds = _timed(prepared)
    records = [record("chains", OURS.name, what, c, t, seconds[c]) for c, (_, c, t) in prepared.items()]
    _print_flat("chains", f"{what.name}", counts, records)
    return records


def against_steps(counts: Sequence[int] = _STEPS, shape: tuple[int, int] = (5, 2), chains: int = 256) -> list[Record]:
    """Cost of a chain-step for several lengths of the run."""
    what = system(*shape)
    compiled = fitted(OURS, what, chains, 1e-7).prepared
    beta, scheme = ij.schedules.constant(BETA), ij.integrators.geodesic_euler(what.step_size)

    def loop(steps: int) -> float:
        return ij.run_chains(what.energy, beta, scheme, num_chains=chains, num_steps=steps, progress=False).seconds

    loop(1)
    rounds = np.array([[loop(steps) for steps in (1, *counts)] for _ in range(REPEATS)])
    start = float(np.median(rounds[:, 0]))
    net = np.maximum(rounds[:, 1:] - start, 1e-2 * rounds[:, 1:])
    records = [
        record("steps", OURS.name, what, chains, Timing(compiled, s), net[:, i], start_seconds=start)
        for i, s in enumerate(counts)
    ]
    print(f"\na call of a single step takes {1e3 * start:.2g} ms, taken off below")
    _print_flat("steps", f"{what.name}, {chains} chains", counts, records)
    return records


def _print_flat(name: str, where: str, values: Sequence[int], records: Sequence[Record]) -> None:
    cost = [r.nanoseconds for r in records]
    rise, error = slope(values, cost)
    spread = max(cost) / min(cost)
    print(f"\nns per chain-step against {name} ({where})")
    print("  " + ", ".join(f"{v}: {c:.3g}" for v, c in zip(values, cost, strict=True)))
    print(f"  log-log slope {rise:+.3f} +- {error:.3f}; largest over smallest {spread:.3g}: "
          f"{'flat' if spread <= FLAT else 'NOT flat'} (at most {FLAT})")  # fmt: skip


def against_size(
    name: str, values: Sequence[int], shape_of: Callable[[int], tuple[int, int]], chains: int = 1024
) -> list[Record]:
    """Cost of a chain-step for several sizes of the system, with a slope for each path.

    Args:
        name: of the variable, "n" or "d".
        values: of the variable.
        shape_of: value -> (n, d).
        chains: how many.
    """
    prepared: dict[int, tuple[System, int, Timing]] = {}
    print(f"\nns per chain-step against {name} ({chains} chains)")
    for value in values:
        what = system(*shape_of(value))
        try:
            prepared[value] = what, chains, fitted(OURS, what, chains, 2e-10 * what.n**2 * what.d)
        except LeftOut as reason:
            print(f"  {name} = {value} left out: {reason}")
    seconds = _timed(prepared)
    records = {v: record("size", OURS.name, what, chains, t, seconds[v]) for v, (what, _, t) in prepared.items()}
    for r in records.values():
        print(f"  n = {r.n:3d}, d = {r.d:3d}  {r.path:8s} {r.nanoseconds:8.3g} ns  compile {r.compile_seconds:.2g} s")
    print(*slopes(name, records), sep="\n")
    return list(records.values())


def slopes(name: str, records: Mapping[int, Record]) -> list[str]:
    """A line with the log-log slope for each path that holds two values of the variable or more."""
    lines = []
    for path in dict.fromkeys(r.path for r in records.values()):
        cost = {v: r.nanoseconds for v, r in records.items() if r.path == path}
        rise, error = slope(list(cost), list(cost.values()))
        if len(cost) > 1:
            lines.append(f"  {path}: cost ~ {name}^{rise:.2f} +- {error:.2f}, {name} = {min(cost)} to {max(cost)}")
    return lines


def measure() -> list[Record]:
    """All four parts."""
    return [
        *against_chains(),
        *against_steps(),
        *against_size("n", _NUMBER, lambda n: (n, 3)),
        *against_size("d", _DIMENSION, lambda d: (8, d)),
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables and write the records."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="file for the records")
    chosen = parser.parse_args(argv)
    jax.config.update("jax_enable_compilation_cache", False)
    ij.use_all_cores()
    print(header())
    write(chosen.json, measure())
    return 0


if __name__ == "__main__":
    sys.exit(main())
