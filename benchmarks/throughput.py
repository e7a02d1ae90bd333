"""Chain-steps per second of four implementations, in one process and one table: `python -m benchmarks.throughput`.

- infonce_jax: a whole call of `run_chains`, on all local devices, with as many steps as hide its start;
- plain: jit(vmap(scan(grad))) of the same dynamics (`benchmarks.plain`), on one device, as jit does by itself;
- blackjax MALA (`benchmarks.blackjax_mala`) and geoopt RSGLD (`benchmarks.geoopt_langevin`), where installed: the cost
  of a step with one gradient, not statistical efficiency.

Each number is the median of five timings after a warm-up, the implementations taking turns; compile time is apart
(ahead of time for jitted functions; for ours the first call less a warm one). Ratios of one run mean something on a
shared machine, absolute numbers little. An implementation whose mean energy in equilibrium is not ours
(`benchmarks.agreement`) ends the program with exit code 1. What would take more than half a minute or half the memory
is left out, and says so.

Beside the table: what observers cost (`benchmarks.overhead`), how close a large system comes to the machine's matrix
products (`benchmarks.large`), how cost grows (`benchmarks.growth`).
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence
from pathlib import Path

import jax

import infonce_jax as ij
from benchmarks import agreement, growth, large, overhead
from benchmarks.figures import draw
from benchmarks.implementations import OURS, PLAIN, Implementation, LeftOut, available
from benchmarks.systems import COMPILE_TARGETS, RATIO_TARGETS, SHAPES, System, system
from benchmarks.timing import Record, Timing, fitted, header, interleaved, record, write

__all__ = ["compare", "main", "rows"]

CHAINS = (256, 4096, 65536)
_TARGET_CHAINS = 4096
_PARTS = ("throughput", "observers", "large", "growth")


def compare(
    shape: tuple[int, int], counts: Sequence[int], implementations: Sequence[Implementation]
) -> tuple[list[Record], bool]:
    """Check and time all implementations on one shape, and print their rows.

    Args:
        shape: (n, d).
        counts: numbers of chains.
        implementations: ours among them.

    Returns:
        Records, and whether all mean energies agree.
    """
    what = system(*shape)
    print(f"\n{what.name}, n = {what.n}, d = {what.d}")
    # Ours comes first, where its targets are, so that no earlier trace shortens its compile time.
    first = _TARGET_CHAINS if _TARGET_CHAINS in counts else counts[0]
    ready = {first: fitted(OURS, what, first)}
    costs = {OURS.name: ready[first].prepared.seconds / (first * ready[first].steps)}
    checks = [agreement.agreement(i, what) for i in implementations if i is not OURS]
    print(*checks, sep="\n")
    costs |= {c.implementation: c.cost for c in checks}
    records = []
    for chains in sorted(counts):
        timings, left_out = _prepared(what, chains, implementations, costs, ready)
        begun = {name: t.prepared.begin(0) for name, t in timings.items()}
        seconds = interleaved({n: functools.partial(t.prepared.run, begun[n]) for n, t in timings.items()})
        found = [record("throughput", n, what, chains, timings[n], s) for n, s in seconds.items()]
        costs |= {r.implementation: 1 / r.chain_steps_per_second for r in found}
        print(*rows(found), sep="\n")
        print("".join(f"  {chains:6d}  {name:14s} left out: {why}\n" for name, why in left_out.items()), end="")
        records += found
    return records, all(check.holds for check in checks)


def _prepared(
    what: System,
    chains: int,
    implementations: Sequence[Implementation],
    costs: dict[str, float],
    ready: dict[int, Timing],
) -> tuple[dict[str, Timing], dict[str, str]]:
    timings, left_out = {}, {}
    for one in implementations:
        try:
            timings[one.name] = (one is OURS and ready.get(chains)) or fitted(one, what, chains, costs[one.name])
        except LeftOut as reason:
            left_out[one.name] = str(reason)
    return timings, left_out


def rows(records: Sequence[Record]) -> list[str]:
    """Rows of the table for one shape and number of chains, with ratios to the plain version and the targets."""
    plain = next((r for r in records if r.implementation == PLAIN.name), None)
    out = []
    for r in records:
        ratio = r.chain_steps_per_second / plain.chain_steps_per_second if plain else None
        low, high = (1e9 / q for q in reversed(r.chain_steps_per_second_quartiles))
        text = f"  {r.chains:6d}  {r.implementation:14s} {r.path:8s} {r.device:9s} {r.nanoseconds:9.3g} ns "
        text += f"({low:.3g} to {high:.3g})".ljust(22) + f" compile {r.compile_seconds:5.2g} s"
        text += f"  x {ratio:<6.3g}" if ratio else "  no plain to compare with"
        if r.implementation == OURS.name and r.chains == _TARGET_CHAINS:
            text += _against(ratio, RATIO_TARGETS.get((r.n, r.d)), "x >=", lambda a, b: a >= b)
            text += _against(r.compile_seconds, COMPILE_TARGETS.get((r.n, r.d)), "compile <", lambda a, b: a < b)
        out.append(text)
    return out


def _against(value: float | None, target: float | None, sign: str, holds) -> str:
    if value is None or target is None:
        return ""
    return f"  target {sign} {target}: {'met' if holds(value, target) else 'NOT met'}"


def _shape(text: str) -> tuple[int, int]:
    n, d = (int(v) for v in text.split(","))
    return n, d


def options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="file for the records")
    parser.add_argument("--figure", type=Path, help="file for the figure")
    parser.add_argument("--quick", action="store_true", help="three shapes, two numbers of chains, no growth")
    parser.add_argument("--shapes", nargs="+", type=_shape, help="n,d pairs")
    parser.add_argument("--chains", nargs="+", type=int)
    parser.add_argument("--parts", nargs="+", choices=_PARTS)
    parser.add_argument("--one-device", action="store_true", help="ours on one device, as the plain version")
    chosen = parser.parse_args(argv)
    chosen.shapes = chosen.shapes or (SHAPES[:2] + SHAPES[3:4] if chosen.quick else SHAPES)
    chosen.chains = chosen.chains or (CHAINS[:2] if chosen.quick else CHAINS)
    chosen.parts = chosen.parts or (_PARTS[:2] if chosen.quick else _PARTS)
    return chosen


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables, write records and figure; 1 when an implementation computes something else."""
    chosen = options(argv)
    jax.config.update("jax_enable_compilation_cache", False)  # a compile time read from disk is none
    if not chosen.one_device:
        ij.use_all_cores()
    print(header())
    records: list[Record] = []
    same = True
    if "throughput" in chosen.parts:
        implementations = available()
        print("chains, implementation, path, devices, ns per chain-step (quartiles), compile time, ratio to plain")
        for shape in chosen.shapes:
            found, agree = compare(shape, chosen.chains, implementations)
            records, same = records + found, same and agree
    for part, measure in (("observers", overhead.measure), ("large", large.measure), ("growth", growth.measure)):
        if part in chosen.parts:
            records += measure()
    write(chosen.json, records)
    if chosen.figure:
        draw(records).savefig(chosen.figure)
        print(f"figure in {chosen.figure}")
    return int(not same)


if __name__ == "__main__":
    sys.exit(main())
