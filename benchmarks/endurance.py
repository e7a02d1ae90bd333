"""A thousand million chain-steps in one run: `python -m benchmarks.endurance`, or `make endurance`.

4096 chains of ring5 at constant beta, settled beforehand, in one call of `run_chains` on all local devices. Nothing may
drift: the mean energies of the two halves agree (their difference for each chain, in standard errors over the chains;
correct chains exceed `LIMIT` with probability 6e-5), and after the last step every row still has norm 1 to single
precision. The mean must also be that of the plain program, which shares no code and no noise, within the limit of
`benchmarks.agreement`. Beside it stands the exact Gibbs mean, from a grid of angles; the chains lie above it by the
bias of geodesic Euler, of first order in the step, which the plain program has too.

The exit code is 1 when any of these fails.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import resource
import sys
import time
from collections.abc import Sequence

import jax
import numpy as np

import infonce_jax as ij
from benchmarks import agreement
from benchmarks.implementations import PLAIN
from benchmarks.systems import BETA, System, system
from benchmarks.timing import header

__all__ = ["LIMIT", "NORM_LIMIT", "Endurance", "endure", "exact_mean", "main", "peak_bytes"]

LIMIT, NORM_LIMIT = 4.0, 1e-6
_CHAINS, _SETTLE = 4096, 4000


@dataclasses.dataclass(frozen=True)
class Endurance:
    """What one long run shows.

    Attributes:
        chains, steps: its size.
        seconds: of the call, compilation included.
        worst_norm: largest | |x_i| - 1 | over all final rows, in float64.
        halves: mean energy over chains of the first and the second half.
        errors: their standard errors.
        z: mean difference of the halves over its standard error, chain by chain.
        mean, error: of the whole run.
    """

    chains: int
    steps: int
    seconds: float
    worst_norm: float
    halves: tuple[float, float]
    errors: tuple[float, float]
    z: float
    mean: float
    error: float

    @property
    def holds(self) -> bool:
        """No drift, no row off the sphere; what is not a number does not hold."""
        return abs(self.z) <= LIMIT and self.worst_norm <= NORM_LIMIT


def _energy_of(x: jax.Array, energy: jax.Array) -> jax.Array:
    return energy


def endure(what: System, chain_steps: float, chains: int = _CHAINS, settle: int = _SETTLE, seed: int = 0) -> Endurance:
    """One run of at least that many chain-steps.

    Args:
        what: the system.
        chain_steps: chains times steps, at least.
        chains: how many.
        settle: steps of a run before, from uniform starts with another seed.
        seed: of the run.
    """
    beta, scheme = ij.schedules.constant(BETA), ij.integrators.geodesic_euler(what.step_size)
    run = functools.partial(ij.run_chains, what.energy, beta, scheme, num_chains=chains)
    half = math.ceil(chain_steps / chains / 2)
    settled = run(num_steps=settle, seed=seed + 1, progress=False).final_positions
    observers = [ij.observers.average(_energy_of, "whole"), ij.observers.average(_energy_of, "second", half)]
    start = time.perf_counter()
    out = run(num_steps=2 * half, seed=seed, initial=settled, observers=observers)
    seconds = time.perf_counter() - start
    whole, second = (out.data[name].values for name in ("whole", "second"))
    first = 2 * whole - second
    worst = np.abs(np.linalg.norm(out.final_positions.astype(np.float64), axis=-1) - 1).max()
    (a, b, m, change), errors = zip(*(_estimate(v) for v in (first, second, whole, second - first)), strict=True)
    return Endurance(chains, 2 * half, seconds, float(worst), (a, b), errors[:2], change / errors[3], m, errors[2])


def _estimate(values: np.ndarray) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))


def exact_mean(what: System, beta: float = BETA, points: int = 24) -> float:
    """Gibbs mean of the energy on the circle, by the trapezium rule over all angles but one, which a rotation removes.

    The integrand is periodic and analytic, so the rule converges exponentially in `points`.

    Args:
        what: a system on the circle without keys; its cost is points^(n-1).
        beta: inverse temperature.
        points: per angle.
    """
    grid = np.stack(np.meshgrid(*[np.arange(points) * (2 * np.pi / points)] * (what.n - 1), indexing="ij"))
    angles = np.concatenate([np.zeros((1, grid[0].size)), grid.reshape(what.n - 1, -1)])
    s = np.cos(angles[:, None] - angles[None]) / what.temperature
    spread = np.log(np.einsum("ij,ijk->ik", what.counts, np.exp(s))).sum(axis=0)
    energies = spread - np.einsum("ij,ijk->k", what.positives, s)
    weights = np.exp(-beta * (energies - energies.min()))
    return float(weights @ energies / weights.sum())


def peak_bytes() -> int:
    """Largest memory that this process has held; `getrusage` counts kibibytes, on macOS bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _report(found: Endurance, peak: int) -> None:
    total = found.chains * found.steps
    print(f"ring5, {found.chains} chains x {found.steps} steps = {total:.4g} chain-steps, beta = {BETA:g}")
    print(f"  time {found.seconds:.3g} s, {total / found.seconds:.3g} chain-steps per second")
    print(f"  peak memory of the process {peak / 1e6:.0f} MB")
    print(f"  largest | |x| - 1 | at the end {found.worst_norm:.2g}, at most {NORM_LIMIT:g}")
    (a, b), (da, db) = found.halves, found.errors
    print(f"  mean energy of the first half {a:.5f} +- {da:.5f}, of the second {b:.5f} +- {db:.5f}; "
          f"z of the difference {found.z:.2f}, at most {LIMIT:g}")  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run, print, and return 1 when something drifts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chain-steps", type=float, default=1e9)
    chosen = parser.parse_args(argv)
    ij.use_all_cores()
    print(header(), flush=True)
    what = system(5, 2)
    found = endure(what, chosen.chain_steps)
    _report(found, peak_bytes())
    means = agreement.stationary_means(PLAIN.prepare(what, 1024, agreement.WINDOW, True), seed=7)
    plain = agreement.Agreement(PLAIN.name, what.n, what.d, (found.mean, found.error), _estimate(means), math.nan)
    print(plain)
    exact = exact_mean(what)
    print(f"  exact Gibbs mean {exact:.5f}; the chains lie {found.mean - exact:+.4f} off, the bias of the step")
    holds = found.holds and plain.holds
    print("holds" if holds else "DOES NOT HOLD")
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
