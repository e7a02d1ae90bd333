"""The implementations that are compared, all behind one small interface: prepare, begin, run."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import infonce_jax as ij
from benchmarks.blackjax_mala import blackjax_chains
from benchmarks.geoopt_langevin import GeooptChains
from benchmarks.plain import plain_chains, plain_energy, plain_step
from benchmarks.systems import BETA, System
from infonce_jax.integrators import Integrator

__all__ = ["OURS", "PLAIN", "Implementation", "LeftOut", "Prepared", "available", "compiled_chains", "ours", "timed"]


class LeftOut(Exception):
    """A combination that is not timed; the message says why."""


@dataclasses.dataclass(frozen=True)
class Prepared:
    """Compiled and called once.

    Attributes:
        begin: seed -> state of all chains, started uniformly; (seed, positions) where the implementation is `settled`.
        run: state -> (new state, mean energy of each chain over the steps or None); returns when all is computed.
        compile_seconds: tracing and compiling, without running.
        seconds: of a warm call.
        start_seconds: what of a call does not depend on the number of steps, where that can be told apart.
        devices: how many it runs on.
        path: "scalars" or "arrays" for ours.
    """

    begin: Callable[..., Any]
    run: Callable[[Any], tuple[Any, Any]]
    compile_seconds: float
    seconds: float
    start_seconds: float = 0.0
    devices: int = 1
    path: str = ""


@dataclasses.dataclass(frozen=True)
class Implementation:
    """One row of the table.

    Attributes:
        name: as the table and the records print it.
        prepare: (system, chains, steps, watch) -> `Prepared`; where not `watch` the mean energy may be left out.
        reference: step size -> the scheme of this package with the same stationary law, its bias included.
        least_steps: fewest steps of a call that can be timed fairly.
        settled: whether `benchmarks.agreement` starts it from positions in equilibrium.
    """

    name: str
    prepare: Callable[[System, int, int, bool], Prepared]
    reference: Callable[[float], Integrator]
    least_steps: int = 2
    settled: bool = False


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Wall-clock seconds of a call that waits for its result, and the result."""
    start = time.perf_counter()
    out = jax.block_until_ready(call())
    return time.perf_counter() - start, out


def _energy_of(x: jax.Array, energy: jax.Array) -> jax.Array:
    return energy


def ours(
    scheme: Callable[[float], Integrator], num_devices: int | None = None, **options: Any
) -> Callable[..., Prepared]:
    """`prepare` for `run_chains` as a user calls it, all of the call timed: start, chunks, records, final positions.

    Args:
        scheme: step size -> integrator.
        num_devices: by default all local ones.
        options: further arguments of `run_chains`, or functions that make one for each call.
    """

    def prepare(system: System, chains: int, steps: int, watch: bool = False) -> Prepared:
        beta, integrator = ij.schedules.constant(BETA), scheme(system.step_size)
        mean = {"observers": (ij.observers.average(_energy_of, "mean_energy"),)} if watch else {}
        arguments = {"num_chains": chains, "progress": False, "num_devices": num_devices, **options, **mean}
        path = ""

        def run(state: tuple[Any, int], steps: int = steps) -> tuple[Any, Any]:
            nonlocal path
            x, seed = state
            now = {name: value() if callable(value) else value for name, value in arguments.items()}
            out = ij.run_chains(system.energy, beta, integrator, num_steps=steps, seed=seed, initial=x, **now)
            path = out.path
            return (out.final_positions, seed + 1), out.data["mean_energy"].values if watch else None

        begin = (system.uniform(chains, 0), 0)
        first, second = (timed(lambda: run(begin))[0] for _ in range(2))
        # Options may need the length of the run, so only a bare one is called with a single step.
        single = 0.0 if options else [timed(lambda: run(begin, 1))[0] for _ in range(2)][-1]
        devices = num_devices or jax.local_device_count()
        compile_seconds = max(first - second, 0.0)
        return Prepared(
            lambda seed: (system.uniform(chains, seed), seed), run, compile_seconds, second, single, devices, path
        )

    return prepare


def compiled_chains(function: Any, steps: int, begin: Callable[..., tuple[Any, ...]], extra: tuple) -> Prepared:
    """`Prepared` of a jitted (*state, *extra) -> (*state, means), compiled apart from its first call.

    Raises:
        LeftOut: its temporary arrays do not fit into the memory that is free.
    """
    state = begin(0)
    start = time.perf_counter()
    compiled = function.lower(*state, *extra).compile()
    compile_seconds = time.perf_counter() - start
    analysis, room = compiled.memory_analysis(), free_bytes()
    if analysis is not None and analysis.temp_size_in_bytes > room:
        raise LeftOut(f"needs {analysis.temp_size_in_bytes / 1e9:.0f} GB of {room / 1e9:.0f} GB")

    def run(state: tuple[Any, ...]) -> tuple[Any, Any]:
        *new, means = jax.block_until_ready(compiled(*state, *extra))
        return tuple(new), means

    _, (state, _) = timed(lambda: run(state))
    return Prepared(begin, run, compile_seconds, timed(lambda: run(state))[0])


def free_bytes() -> float:
    """Memory for arrays: what is left on the first device, or half of the machine's for a CPU."""
    stats = jax.devices()[0].memory_stats()
    if stats and "bytes_limit" in stats:
        return stats["bytes_limit"] - stats.get("bytes_in_use", 0)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2


def _keys(seed: int, chains: int) -> jax.Array:
    return jax.random.split(jax.random.key(seed), chains)


def _plain(system: System, chains: int, steps: int, watch: bool = False) -> Prepared:
    function = plain_chains(plain_step(plain_energy(system), system.step_size))
    begin = lambda seed: (system.uniform(chains, seed), _keys(seed, chains))  # noqa: E731
    return compiled_chains(function, steps, begin, (np.full(steps, BETA, np.float32),))


def _blackjax(system: System, chains: int, steps: int, watch: bool = False) -> Prepared:
    function = blackjax_chains(plain_energy(system), BETA, system.step_size, steps)

    def begin(seed: int, positions: Any = None) -> tuple[Any, ...]:
        x = system.uniform(chains, seed) if positions is None else positions
        radii = np.sqrt(np.random.default_rng([seed, 1]).chisquare(system.d, (chains, system.n, 1)) / system.d)
        return (x * radii).astype(np.float32), _keys(seed, chains)

    return compiled_chains(function, steps, begin, ())


def _geoopt(system: System, chains: int, steps: int, watch: bool = False) -> Prepared:
    if 16 * 4 * chains * system.n**2 > free_bytes():  # a dozen matrices (n, n) per chain are alive in a backward pass
        raise LeftOut("does not fit into memory")

    def begin(seed: int) -> GeooptChains:
        return GeooptChains(system, BETA, chains, system.uniform(chains, seed), seed)

    state = begin(0)
    run = lambda state: (state, state.run(steps))  # noqa: E731
    run(state)
    return Prepared(begin, run, 0.0, timed(lambda: run(state))[0])


OURS = Implementation("infonce_jax", ours(ij.integrators.geodesic_euler), ij.integrators.geodesic_euler, least_steps=16)
PLAIN = Implementation("plain", _plain, ij.integrators.geodesic_euler)
_OTHERS = {
    "blackjax": Implementation("blackjax MALA", _blackjax, ij.integrators.mala, settled=True),
    "geoopt": Implementation("geoopt RSGLD", _geoopt, ij.integrators.projected_euler, least_steps=4),
}


def available() -> tuple[Implementation, ...]:
    """Ours, the plain version, and the others that are installed; a line for each that is not."""
    found = [OURS, PLAIN]
    for package, implementation in _OTHERS.items():
        if importlib.util.find_spec(package):
            found.append(implementation)
        else:
            print(f"{implementation.name}: {package} is not installed, left out")
    return tuple(found)
