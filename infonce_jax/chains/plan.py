"""What a run is to do, checked before anything compiles: everything that its bits depend on, and nothing else."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from infonce_jax.chains.engine import cast, lane_count
from infonce_jax.chains.observers import Observation, Observer
from infonce_jax.checks import as_unit_rows, count, refuse
from infonce_jax.energies.base import Energy
from infonce_jax.fingerprint import digest, program_digest
from infonce_jax.integrators.protocol import Integrator
from infonce_jax.noise import chain_keys, normals
from infonce_jax.schedules import Schedule

__all__ = ["Plan", "make_plan", "uniform_positions"]

_STREAM_INITIAL = 1
_MOST_STEPS, _MOST_CHAINS = 2**31 - 1, 2**32
_COLDEST_TAU = 1e-5
_EVERY_STEP = 2_000_000  # steps up to which a schedule is looked at as a whole before a run


@functools.partial(jax.jit, static_argnums=1)
def _first_normals(keys: jax.Array, size: int) -> jax.Array:
    return normals(keys, jnp.uint32(0), size)


def uniform_positions(seed: int, num_chains: int, shape: tuple[int, int], first: int = 0) -> np.ndarray:
    """The uniform starting positions of chains first ... first + num_chains - 1, shape (chains, n, d), float64.

    Chain c's position depends on (seed, c) alone, through a stream of its own.
    """
    n, d = shape
    lanes = lane_count(num_chains, 1)
    keys = jnp.asarray(chain_keys(seed, first + np.arange(lanes), _STREAM_INITIAL))
    gauss = np.asarray(_first_normals(keys, n * d), dtype=np.float64).T.reshape(lanes, n, d)
    return (gauss / np.linalg.norm(gauss, axis=-1, keepdims=True))[:num_chains]


@dataclasses.dataclass(frozen=True)
class Plan:
    """A run before it runs.

    Attributes:
        energy: in the precision of the run.
        beta: inverse temperature of time.
        taus: the function t -> tau, or None.
        integrator: the scheme.
        observers: as the user gave them.
        starts: given positions, shape (chains, n, d), or None for uniform ones.
        seed, num_chains, num_steps: as in `run_chains`.
        dtype: of the chains.
    """

    energy: Energy
    beta: Schedule
    taus: Any
    integrator: Integrator
    observers: tuple[Observer, ...]
    starts: np.ndarray | None
    seed: int
    num_chains: int
    num_steps: int
    dtype: np.dtype

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d) of one configuration."""
        return self.energy.shape if self.starts is None else self.starts.shape[1:]

    def positions(self, first: int, stop: int) -> np.ndarray:
        """Where chains first ... stop - 1 begin, shape (stop - first, n, d)."""
        if self.starts is not None:
            return self.starts[first:stop]
        return uniform_positions(self.seed, stop - first, self.energy.shape, first)

    def energy_at(self, step: int) -> Energy:
        """The energy with the temperature inside the loss that belongs to a step."""
        if self.taus is None:
            return self.energy
        tau = np.asarray(self.taus(step * self.integrator.step_size), self.dtype)
        return dataclasses.replace(self.energy, temperature=tau)  # type: ignore[type-var]

    def watching(self) -> tuple[Observer, ...]:
        """The observers' device parts: their times are the host's business and must not compile the loop anew."""
        return tuple(cast(dataclasses.replace(o, times=()), self.dtype) for o in self.observers)

    def description(self) -> dict[str, Any]:
        """What the bits of the run depend on, as plain JSON types: by name where there is one, else by digest.

        The dynamics, the energy and the observers are known by the program that one traced step is, and by its numbers.
        """
        h = self.integrator.step_size
        grid = np.linspace(0, self.num_steps, 1025) * h
        values = [self.beta(grid)] if self.taus is None else [self.beta(grid), np.asarray(self.taus(grid))]
        return {
            "num_chains": self.num_chains,
            "num_steps": self.num_steps,
            "seed": int(self.seed),
            "dtype": self.dtype.name,
            "integrator": self.integrator.name,
            "step_size": h,
            "schedule": self.beta.name,
            "schedule values": _short(values),
            "initial": "uniform" if self.starts is None else _short([self.starts]),
            "observers": [[*o.names(), None if o.times is None else _short([np.asarray(o.times)])]
                          for o in self.observers],
            "energy and step": self._program(),
        }  # fmt: skip

    def _program(self) -> str:
        position, beta = (jax.ShapeDtypeStruct(size, self.dtype) for size in (self.shape, ()))
        noise = self.integrator.noise_example(self.shape, self.dtype)
        return program_digest(
            _observed_step(self.integrator), position, noise, beta, self.energy_at(0), self.watching()
        )[:16]


@functools.cache
def _observed_step(integrator: Integrator) -> Any:
    """One step from the start, with everything that observers do in it: the program that tells runs apart."""

    def one(x: jax.Array, noise: Any, beta: jax.Array, energy: Energy, watching: tuple[Observer, ...]) -> Any:
        new, info = integrator.step(integrator.init(energy, x), noise, beta)
        seen = Observation(jnp.int32(0), x, info.energy, info.acceptance)
        carries = [o.update(o.start(x, info.energy), seen) for o in watching]
        return new.positions, new.cache, carries

    return one


def _short(arrays: Sequence[Any]) -> str:
    return digest(arrays)[:16]


def make_plan(
    energy: Any, beta: Any, integrator: Any, *, num_chains: Any, num_steps: Any, seed: Any, initial: Any,
    observers: Any, temperature: Any, dtype: Any,
) -> Plan:  # fmt: skip
    """The plan of a run, every argument checked; see `run_chains` for their meaning.

    Raises:
        InputError: an argument that cannot be used.
    """
    num_chains, num_steps = count("num_chains", num_chains), count("num_steps", num_steps)
    if num_steps > _MOST_STEPS:
        raise refuse("num_steps", num_steps, f"at most {_MOST_STEPS}", "split the run")
    if num_chains > _MOST_CHAINS:
        raise refuse("num_chains", num_chains, f"at most {_MOST_CHAINS}", "the noise tells chains apart by 32 bits")
    _check_arguments(energy, beta, integrator, observers, dtype)
    chain_keys(seed, np.arange(1))  # refuses a seed that is none
    starts = _starts(energy, initial, num_chains)
    _ahead(beta, integrator.step_size, num_steps)  # a schedule that breaks off late must not cost a night
    energy, taus = _tempered(energy, beta, temperature, integrator.step_size, num_steps)
    kind = np.dtype(dtype)
    return Plan(cast(energy, kind), beta, taus, integrator, tuple(observers), starts, seed, num_chains, num_steps, kind)


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


def _starts(energy: Energy, initial: Any, num_chains: int) -> np.ndarray | None:
    n, d = energy.shape
    if isinstance(initial, str):
        if initial != "uniform":
            raise refuse(
                "initial", repr(initial), "'uniform' or an array", "pass unit rows of shape (n, d) or (chains, n, d)"
            )
        return None
    x = as_unit_rows("initial", initial, ndims=(2, 3))
    any_sphere = getattr(energy, "dim", d) is None  # an energy built without dim takes configurations of any dimension
    if x.shape[-2] != n or (x.shape[-1] != d and not any_sphere) or (x.ndim == 3 and len(x) != num_chains):
        raise refuse("initial", f"shape {x.shape}", f"shape {(n, d)} or {(num_chains, n, d)}",
                     "one row per embedding, one configuration per chain")  # fmt: skip
    return np.broadcast_to(x, (num_chains, *x.shape[-2:]))


def _ahead(schedule: Any, step_size: float, num: int) -> np.ndarray:
    """Values of a schedule at the first `num` steps, or at many of them in a very long run."""
    steps = np.arange(num) if num <= _EVERY_STEP + 1 else np.linspace(0, num - 1, 100_001)
    return np.asarray(schedule(steps * step_size))


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
    lowest = float(np.min(_ahead(taus, step_size, num_steps + 1)))
    if lowest < _COLDEST_TAU:
        raise refuse("temperature", f"tau = {lowest:.3g} during the run", f"tau of at least {_COLDEST_TAU:g}",
                     "single precision cannot resolve s/tau below; end the schedule earlier")  # fmt: skip
    return energy.with_temperature(lowest if num_steps <= _EVERY_STEP else _COLDEST_TAU), taus
