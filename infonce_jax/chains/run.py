"""Run thousands of annealed Langevin chains."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh
from tqdm import tqdm

from infonce_jax.chains.blocks import as_bytes, cut
from infonce_jax.chains.checkpoints import Checkpoints, Store, open_directory
from infonce_jax.chains.loop import Loop
from infonce_jax.chains.observers import Observer
from infonce_jax.chains.outcome import Run, RunInterrupted, RunStopped, joined
from infonce_jax.chains.plan import Plan, make_plan, uniform_positions
from infonce_jax.chains.signals import Signals
from infonce_jax.checks import InputError, count, refuse
from infonce_jax.devices import chain_mesh
from infonce_jax.energies.base import Energy
from infonce_jax.integrators.protocol import Integrator
from infonce_jax.processes import exchange
from infonce_jax.schedules import Schedule

__all__ = ["Run", "RunInterrupted", "RunStopped", "run_chains", "uniform_positions"]

# Steps per call of the compiled loop at most: long enough to hide the call, short enough for a lively progress bar.
_CHUNK = 2048


def run_chains(
    energy: Energy,
    beta: Schedule,
    integrator: Integrator,
    *,
    num_chains: int = 1024,
    num_steps: int = 10_000,
    seed: int = 0,
    initial: Any = "uniform",
    observers: Sequence[Observer] = (),
    temperature: Schedule | str | None = None,
    dtype: str = "float32",
    progress: bool | None = None,
    num_devices: int | None = None,
    chunk: int = _CHUNK,
    max_memory: int | str | None = None,
    checkpoints: Checkpoints | Path | str | None = None,
) -> Run:
    """Run independent annealed Langevin chains, vmapped, on all local devices.

    Chain c is a function of (seed, c) alone: how many chains there are, the chunk length, the devices, the batches, the
    processes, an interruption and the observers of this package do not change one bit of it. (An observer of your own
    whose code has no scalar form, a sort for example, makes a small system run as arrays, with other rounding;
    `Run.path` tells.)

    Args:
        energy: what to anneal on.
        beta: inverse temperature as a function of time t = step * step_size.
        integrator: the scheme, for example `integrators.geodesic_euler(step_size=0.03)`.
        num_chains: how many chains, of all processes together.
        num_steps: how many steps, below 2^31.
        seed: 0 <= seed < 2^64.
        initial: "uniform", or unit rows of shape (n, d) for all chains, or (chains, n, d).
        observers: what to keep; see `infonce_jax.observers`.
        temperature: None keeps the energy's own tau; a schedule moves tau(t) inside the loss; "coupled" sets
            tau = 1/beta(t) and the potential V = tau * E, so that beta V = E at every time. Annealing tau changes the
            landscape itself: no theorem of annealing covers it.
        dtype: "float32" or "float64".
        progress: a bar on standard error; by default when that is a terminal.
        num_devices: how many local devices; by default all.
        chunk: steps per call of the compiled loop at most.
        max_memory: bytes, or text such as "4GB", for the chains that move at the same time on one process; more chains
            run in batches, one after another. By default half of what the devices have. What observers keep comes on
            top.
        checkpoints: a directory, or `Checkpoints` with one, in which the run saves itself; the same call continues
            from there and ends with the same bits. By default nothing is written.

    Returns:
        A `Run`, on each process the whole one.

    Raises:
        InputError: arguments that cannot be used, found before anything compiles; a directory of checkpoints that
            belongs to another run; a damaged checkpoint.
        RunStopped: a chain's energy stopped being finite, it left the sphere, the energy raised an error or the
            schedule became NaN or not positive; found within one chunk and traced to its step.
        RunInterrupted: Ctrl-C or SIGTERM; the chunk was finished, a checkpoint written, and it carries what there was.
    """
    plan = make_plan(energy, beta, integrator, num_chains=num_chains, num_steps=num_steps, seed=seed, initial=initial,
                     observers=observers, temperature=temperature, dtype=dtype)  # fmt: skip
    chunk, limit = count("chunk", chunk), as_bytes(max_memory)
    saving = _checked(checkpoints)
    if progress not in (None, True, False):
        raise refuse("progress", repr(progress), "True, False or None", "by default a bar is shown on a terminal")
    mesh = chain_mesh(None if num_devices is None else count("num_devices", num_devices))
    with jax.enable_x64(dtype == "float64"):
        blocks = cut(plan, mesh, limit)
        if saving is not None:
            blocks = open_directory(saving, plan.description(), blocks)
        return _run_blocks(plan, blocks, mesh, chunk, saving, sys.stderr.isatty() if progress is None else progress)


def _checked(checkpoints: Any) -> Checkpoints | None:
    if checkpoints is None or isinstance(checkpoints, Checkpoints):
        return checkpoints
    if not isinstance(checkpoints, Path | str):
        raise refuse("checkpoints", type(checkpoints).__name__, "a directory, or infonce_jax.Checkpoints(directory)",
                     "leave it out to save nothing")  # fmt: skip
    return Checkpoints(checkpoints)


def _run_blocks(
    plan: Plan, blocks: list[tuple[int, int]], mesh: Mesh, chunk: int, saving: Checkpoints | None, progress: bool
) -> Run:
    """This process's blocks, one after another, and then those of the others."""
    mine = blocks[jax.process_index() :: jax.process_count()]
    runs: dict[int, Run] = {}
    stop: RunStopped | RunInterrupted | InputError | None = None
    steps = plan.num_steps * sum(last - first for first, last in mine)
    bar = tqdm(total=steps, unit=" chain-steps", unit_scale=True, disable=not progress, dynamic_ncols=True)
    with contextlib.closing(bar), Signals() as signals:
        try:
            for block in mine:
                store = None if saving is None else Store(saving, block)
                with contextlib.closing(store) if store is not None else contextlib.nullcontext():
                    runs[block[0]] = Loop(plan, block, mesh, chunk, store).run(bar, signals)
            if signals.received is not None:  # it came with the last chunk
                where = None if saving is None else Path(saving.directory)
                stop = RunInterrupted(joined([runs[first] for first in sorted(runs)]), signals.received, where)
        except (RunStopped, RunInterrupted, InputError) as error:
            stop = error
    return _together(runs, stop)


def _together(runs: dict[int, Run], stop: RunStopped | RunInterrupted | InputError | None) -> Run:
    """The whole run out of the processes' parts; where one stopped, all stop."""
    if isinstance(stop, RunStopped | RunInterrupted) and runs:
        stop.run = joined([runs[first] for first in sorted(runs)])  # finished batches are worth more than a begun one
    parts = exchange((runs, stop))
    for error in (stop, *(error for _, error in parts)):
        if error is not None:
            raise error
    whole = {first: run for part, _ in parts for first, run in part.items()}
    slowest = max(sum(run.seconds for run in part.values()) for part, _ in parts)
    return dataclasses.replace(joined([whole[first] for first in sorted(whole)]), seconds=slowest)
