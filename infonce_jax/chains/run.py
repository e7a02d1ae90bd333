"""Run thousands of annealed Langevin chains: the host loop around the compiled chunks."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import time as clock
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tqdm import tqdm

from infonce_jax.chains.engine import (
    advance_chunk,
    cast,
    lane_count,
    look_again,
    start_carry,
    start_energies,
    unrolls,
)
from infonce_jax.chains.observers import Observer, default_times
from infonce_jax.chains.recorder import Recorder
from infonce_jax.checks import as_unit_rows, count, refuse
from infonce_jax.devices import chain_mesh
from infonce_jax.energies.base import Energy
from infonce_jax.integrators.protocol import Integrator
from infonce_jax.noise import chain_keys, normals
from infonce_jax.schedules import Schedule

__all__ = ["Run", "RunInterrupted", "RunStopped", "run_chains", "uniform_positions"]

# Steps per call of the compiled loop at most: long enough to hide the call, short enough for a lively progress bar.
_CHUNK = 2048
_STREAM_INITIAL = 1
_MOST_STEPS = 2**31 - 1
_COLDEST_TAU = 1e-5


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run leaves behind.

    Attributes:
        data: observed variables over chain and time, with the schedule along the time axis.
        final_positions: shape (chains, n, d).
        num_steps: steps made.
        seconds: wall-clock time of the loop, compilation included.
        path: "scalars" or "arrays", the way the inner loop was compiled.
    """

    data: xr.Dataset
    final_positions: np.ndarray
    num_steps: int
    seconds: float
    path: str

    @property
    def chain_steps_per_second(self) -> float:
        """Chains times steps over wall-clock time."""
        return len(self.final_positions) * self.num_steps / max(self.seconds, 1e-9)


class RunStopped(RuntimeError):
    """A chain's energy or gradient stopped being finite, or it left the sphere.

    Attributes:
        chain, step: where it happened first.
        state: positions of that chain before that step, shape (n, d).
        run: what had been observed until the chunk before.
    """

    def __init__(self, message: str, chain: int, step: int, state: np.ndarray, run: Run) -> None:
        super().__init__(message)
        self.chain, self.step, self.state, self.run = chain, step, state, run


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C during a run; `run` holds what had been observed."""

    def __init__(self, run: Run) -> None:
        super().__init__(f"interrupted after {run.num_steps} steps")
        self.run = run


def uniform_positions(seed: int, num_chains: int, shape: tuple[int, int]) -> np.ndarray:
    """The uniform starting positions of chains 0 ... num_chains - 1, shape (chains, n, d), float64.

    Chain c's position depends on (seed, c) alone, through a stream of its own.
    """
    n, d = shape
    lanes = lane_count(num_chains, 1)
    keys = jnp.asarray(chain_keys(seed, np.arange(lanes), _STREAM_INITIAL))
    gauss = np.asarray(normals(keys, jnp.uint32(0), n * d), dtype=np.float64).T.reshape(lanes, n, d)
    return (gauss / np.linalg.norm(gauss, axis=-1, keepdims=True))[:num_chains]


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
) -> Run:
    """Run independent annealed Langevin chains, vmapped, on all local devices.

    Chain c is a function of (seed, c) alone: how many chains there are, the chunk length, the devices and the observers
    of this package do not change one bit of it. (An observer of your own whose code has no scalar form, a sort for
    example, makes a small system run as arrays, with other rounding; `Run.path` tells.)

    Args:
        energy: what to anneal on.
        beta: inverse temperature as a function of time t = step * step_size.
        integrator: the scheme, for example `integrators.geodesic_euler(step_size=0.03)`.
        num_chains: how many chains.
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

    Returns:
        A `Run`.

    Raises:
        InputError: arguments that cannot be used, found before anything compiles.
        RunStopped: a chain's energy stopped being finite at the end of a chunk, or it left the sphere; found within one
            chunk and traced to its step.
        RunInterrupted: Ctrl-C; carries what there was.
    """
    num_chains, num_steps = count("num_chains", num_chains), count("num_steps", num_steps)
    chunk = count("chunk", chunk)
    if num_steps > _MOST_STEPS:
        raise refuse("num_steps", num_steps, f"at most {_MOST_STEPS}", "split the run")
    _check_arguments(energy, beta, integrator, observers, dtype)
    x = _initial(energy, initial, num_chains, seed)
    energy, taus = _tempered(energy, beta, temperature, integrator.step_size, num_steps)
    mesh = chain_mesh(None if num_devices is None else count("num_devices", num_devices))
    with jax.enable_x64(dtype == "float64"):
        loop = _Loop(energy, beta, taus, integrator, tuple(observers), x, seed, num_steps, np.dtype(dtype), mesh, chunk)
        return loop.run(sys.stderr.isatty() if progress is None else progress)


def _check_arguments(energy: Any, beta: Any, integrator: Any, observers: Any, dtype: Any) -> None:
    wanted = (("energy", energy, Energy), ("beta", beta, Schedule), ("integrator", integrator, Integrator))
    for name, value, kind in wanted:
        if not isinstance(value, kind):
            raise refuse(name, type(value).__name__, f"an infonce_jax {kind.__name__}",
                         f"see infonce_jax.{kind.__module__.split('.')[1]}")  # fmt: skip
    if not isinstance(observers, Sequence) or not all(isinstance(o, Observer) for o in observers):
        raise refuse("observers", repr(observers), "a list of observers",
                     "for example [infonce_jax.observers.energies()]")  # fmt: skip
    if dtype not in ("float32", "float64"):
        raise refuse("dtype", repr(dtype), "'float32' or 'float64'", "chains run in single precision by default")


def _initial(energy: Energy, initial: Any, num_chains: int, seed: int) -> np.ndarray:
    n, d = energy.shape
    if isinstance(initial, str):
        if initial != "uniform":
            raise refuse(
                "initial", repr(initial), "'uniform' or an array", "pass unit rows of shape (n, d) or (chains, n, d)"
            )
        return uniform_positions(seed, num_chains, (n, d))
    x = as_unit_rows("initial", initial, ndims=(2, 3))
    any_sphere = getattr(energy, "dim", d) is None  # an energy built without dim takes configurations of any dimension
    if x.shape[-2] != n or (x.shape[-1] != d and not any_sphere) or (x.ndim == 3 and len(x) != num_chains):
        raise refuse("initial", f"shape {x.shape}", f"shape {(n, d)} or {(num_chains, n, d)}",
                     "one row per embedding, one configuration per chain")  # fmt: skip
    return np.broadcast_to(x, (num_chains, *x.shape[-2:]))


def _tempered(energy: Energy, beta: Schedule, temperature: Any, step_size: float, num_steps: int) -> tuple[Energy, Any]:
    """The energy and the function t -> tau, or None, for the three modes of the temperature inside the loss."""
    if temperature is None:
        return energy, None
    if isinstance(temperature, str):
        if temperature != "coupled":
            raise refuse("temperature", repr(temperature), "None, a schedule or 'coupled'", "see run_chains")
        energy, taus = energy.coupled(), lambda t: 1 / beta(t)
    elif isinstance(temperature, Schedule):
        taus = temperature
    else:
        raise refuse("temperature", type(temperature).__name__, "None, a schedule or 'coupled'",
                     "build the energy with the fixed temperature you want")  # fmt: skip
    # The lowest tau of the run decides the form of the exponentials, since a traced tau cannot; a run too long to look
    # at every step takes the form that is safe at any temperature.
    every = num_steps <= 2_000_000
    times = (np.arange(num_steps + 1) if every else np.linspace(0, num_steps, 100_001)) * step_size
    lowest = float(np.min(taus(times)))
    if lowest < _COLDEST_TAU:
        raise refuse("temperature", f"tau = {lowest:.3g} during the run", f"tau of at least {_COLDEST_TAU:g}",
                     "single precision cannot resolve s/tau below; end the schedule earlier")  # fmt: skip
    return energy.with_temperature(lowest if every else _COLDEST_TAU), taus


class _Loop:
    """One run: carries on the devices, time and records on the host."""

    def __init__(
        self,
        energy: Energy,
        beta: Schedule,
        taus: Any,
        integrator: Integrator,
        observers: tuple[Observer, ...],
        x: np.ndarray,
        seed: int,
        num_steps: int,
        dtype: np.dtype,
        mesh: Mesh,
        chunk: int,
    ) -> None:
        self.beta, self.taus, self.integrator, self.mesh, self.chunk = beta, taus, integrator, mesh, chunk
        self.num_chains, self.num_steps, self.dtype = len(x), num_steps, dtype
        self.energy = cast(energy, dtype)
        horizon = num_steps * integrator.step_size
        moments = [default_times(o, horizon, integrator.step_size) for o in observers]
        self.recorder = Recorder(observers, moments, integrator.step_size, num_steps, self.num_chains)
        self.watching = tuple(cast(dataclasses.replace(o, times=()), dtype) for o in observers)
        lanes = lane_count(self.num_chains, mesh.size)
        across, spread = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((None, "chains"), ("chains",)))
        self.keys = jax.device_put(chain_keys(seed, np.arange(lanes)), across)
        padded = np.concatenate([x, np.broadcast_to(x[:1], (lanes - len(x), *x.shape[1:]))]).astype(dtype)
        carry = start_carry(jnp.asarray(padded), self._energy_at(0), self.watching, integrator=integrator)
        self.carry = jax.device_put(carry, spread)  # as the loop returns it, or it would compile once more for that
        self.scalars = unrolls(integrator, self.carry, taus is not None, self.energy, self.watching)
        self.step = 0
        self._check_start()
        self.started = clock.perf_counter()

    def _check_start(self) -> None:
        values = np.asarray(start_energies(self.carry[0].positions, self._energy_at(0)))[: self.num_chains]
        if not np.all(np.isfinite(values)):
            chain = int(np.argmin(np.isfinite(values)))
            raise refuse("initial", f"energy {values[chain]} of chain {chain}", "a finite energy at every start",
                         "check the energy at that configuration")  # fmt: skip

    def _energy_at(self, step: int) -> Energy:
        if self.taus is None:
            return self.energy
        tau = np.asarray(self.taus(step * self.integrator.step_size), self.dtype)
        return dataclasses.replace(self.energy, temperature=tau)  # type: ignore[type-var]

    def run(self, progress: bool) -> Run:
        bar = tqdm(total=self.num_steps * self.num_chains, unit=" chain-steps", unit_scale=True, disable=not progress,
                   dynamic_ncols=True)  # fmt: skip
        with contextlib.closing(bar):
            try:
                self._record()
                while self.step < self.num_steps:
                    before = self.step
                    self._advance(min(self.chunk, self.recorder.next_moment(self.step) - self.step))
                    bar.update((self.step - before) * self.num_chains)
                    self._record()
            except KeyboardInterrupt:
                raise RunInterrupted(self._result()) from None
        return self._result()

    def _record(self) -> None:
        if self.recorder.due(self.step):
            self.recorder.record(self.step, self._energy_at(self.step), self.carry[0].positions, self.carry[1])

    def _call(self, steps: int) -> tuple[Any, jax.Array]:
        times = (self.step + np.arange(steps, dtype=np.float64)) * self.integrator.step_size
        pad = (0, max(self.chunk - steps, 0))
        betas = np.pad(self.beta(times), pad, mode="edge").astype(self.dtype)
        taus = None if self.taus is None else np.pad(self.taus(times), pad, mode="edge").astype(self.dtype)
        return advance_chunk(
            self.carry, self.keys, self.energy, self.watching, betas, taus, np.int32(self.step), np.int32(steps),
            integrator=self.integrator, scalars=self.scalars, mesh=self.mesh,
        )  # fmt: skip

    def _advance(self, steps: int) -> None:
        carry, healthy = self._call(steps)
        if not bool(jnp.all(healthy[: self.num_chains])):
            self._stop(steps, np.asarray(healthy))
        self.carry, self.step = carry, self.step + steps

    def _stop(self, steps: int, healthy: np.ndarray) -> None:
        """Find the first bad step by bisection (a chunk can be repeated exactly) and say what happened where."""
        good, bad = 0, steps
        while bad - good > 1:
            middle = (good + bad) // 2
            state = np.asarray(self._call(middle)[1])[: self.num_chains]
            good, bad, healthy = (middle, bad, healthy) if state.all() else (good, middle, state)
        chain = int(np.argmin(healthy[: self.num_chains]))
        carry = self._call(good)[0] if good else self.carry
        state = np.asarray(carry[0].positions[chain])
        step = self.step + bad
        raise RunStopped(
            f"chain {chain} failed at step {step} (time {step * self.integrator.step_size:g}): energy or gradient not "
            f"finite; the step from the positions in .state leads there; check the energy around them",
            chain, step, state, self._result(),
        )  # fmt: skip

    def _result(self) -> Run:
        positions = np.asarray(self.carry[0].positions)[: self.num_chains]
        # The state after the last step has been seen by no step; observers that look for passages see it here.
        last = look_again(self.watching, self.carry, self._energy_at(self.step), np.int32(self.step))
        carries = jax.tree.map(lambda a: np.asarray(a)[: self.num_chains], last)
        data = self.recorder.dataset(carries, self.beta, self.taus, self.step)
        seconds = clock.perf_counter() - self.started
        return Run(data, positions, self.step, seconds, "scalars" if self.scalars else "arrays")
