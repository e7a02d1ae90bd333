"""What is kept of a run: observers reduce while the chains move, so memory does not grow with the number of steps.

An observer is a pytree. Its device part, `start` and `update`, sees every step of one chain and is compiled into the
loop; its host part, `record`, is called at the chosen times only, with all chains. A new observer is one class here or
in the user's code; nothing registers it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from infonce_jax.checks import as_unit_rows, count, finite, numbers, positive, refuse
from infonce_jax.energies.base import Energy
from infonce_jax.sphere import product_distance

__all__ = [
    "Observation",
    "Observer",
    "acceptance",
    "average",
    "best_energy",
    "energies",
    "first_passage",
    "log_spaced_times",
    "snapshots",
]


class Observation(NamedTuple):
    """One chain before a step.

    Attributes:
        step: steps made so far, int32 scalar (uint32 on long runs wraps nowhere: steps stay below 2^31 per observer).
        positions: shape (n, d).
        energy: E(positions), scalar.
        acceptance: acceptance probability of the step that follows.
    """

    step: jax.Array
    positions: jax.Array
    energy: jax.Array
    acceptance: jax.Array


class Variable(NamedTuple):
    """One variable of the result: dimensions after "chain", values with a leading chain axis, attributes."""

    dims: tuple[str, ...]
    values: np.ndarray
    attributes: dict[str, Any]


@dataclasses.dataclass(frozen=True, eq=False)
class Observer:
    """Base of all observers; every method has a default that does nothing.

    Attributes:
        times: when `record` is called, in time units; None for the default log-spaced grid, () for never.
    """

    times: tuple[float, ...] | None = dataclasses.field(default=(), kw_only=True, metadata={"static": True})
    sees_last: ClassVar[bool] = False  # whether `update` also sees the state after the last step

    def names(self) -> tuple[str, ...]:
        """Names of the variables it adds to the result."""
        return tuple(self.describe())

    def start(self, x: jax.Array, energy: jax.Array) -> Any:
        """Carry of one chain at the start, a pytree of arrays; () when the observer needs no step."""
        return ()

    def update(self, carry: Any, seen: Observation) -> Any:
        """New carry after seeing one chain before one step."""
        return carry

    def record(self, energy: Energy, x: jax.Array, carry: Any) -> dict[str, jax.Array]:
        """Arrays of one chain at one of `times`."""
        return {}

    def describe(self) -> dict[str, tuple[tuple[str, ...], dict[str, Any]]]:
        """Dimensions (after chain and time) and attributes of what `record` returns."""
        return {}

    def finish(self, carry: Any, step_size: float, num_steps: int) -> dict[str, Variable]:
        """Variables of the result from the final carries of all chains (leading axis: chain)."""
        return {}


def _observer(cls: type) -> type:
    return jax.tree_util.register_dataclass(dataclasses.dataclass(frozen=True, eq=False)(cls))


def _times(times: Any) -> tuple[float, ...] | None:
    if times is None:
        return None
    t = np.atleast_1d(numbers("times", times, "a list of times >= 0, in time units"))
    if t.ndim != 1 or not np.all(np.isfinite(t)) or np.any(t < 0):
        raise refuse("times", repr(times), "a list of times >= 0", "times are in time units: steps * step_size")
    return tuple(np.unique(t).tolist())


def log_spaced_times(horizon: float, step_size: float, num: int = 61, first: float | None = None) -> np.ndarray:
    """Times 0 and log-spaced ones up to the horizon, on the grid of steps and without repeats.

    Args:
        horizon: the last time, in time units.
        step_size: h, in time units.
        num: how many before repeats are dropped.
        first: the first positive time; by default one step.
    """
    h, last = positive("step_size", step_size), positive("horizon", horizon)
    start = h if first is None else max(positive("first", first), h)
    steps = np.unique(np.round(np.geomspace(start, max(last, start), count("num", num)) / h).astype(np.int64))
    return np.concatenate([[0.0], steps * h])


@_observer
class Energies(Observer):
    """See `energies`."""

    def record(self, energy: Energy, x: jax.Array, carry: Any) -> dict[str, jax.Array]:
        return {"energy": energy(x)}

    def describe(self) -> dict[str, tuple[tuple[str, ...], dict[str, Any]]]:
        return {"energy": ((), {"long_name": "energy", "units": "1"})}


def energies(times: Any = None) -> Observer:
    """The energy of every chain at the given times; `energy(chain, time)`.

    Args:
        times: in time units; by default log-spaced over the run.
    """
    return Energies(times=_times(times))


@_observer
class Snapshots(Observer):
    """See `snapshots`."""

    def record(self, energy: Energy, x: jax.Array, carry: Any) -> dict[str, jax.Array]:
        return {"positions": x}

    def describe(self) -> dict[str, tuple[tuple[str, ...], dict[str, Any]]]:
        return {"positions": (("embedding", "coordinate"), {"long_name": "positions, unit rows", "units": "1"})}


def snapshots(times: Any = None) -> Observer:
    """The positions of every chain at the given times; `positions(chain, time, embedding, coordinate)`."""
    return Snapshots(times=_times(times))


@_observer
class BestEnergy(Observer):
    """See `best_energy`; the carry is the lowest energy so far."""

    def start(self, x: jax.Array, energy: jax.Array) -> Any:
        return energy

    def update(self, carry: Any, seen: Observation) -> Any:
        return jnp.minimum(carry, seen.energy)

    def record(self, energy: Energy, x: jax.Array, carry: Any) -> dict[str, jax.Array]:
        return {"best_energy": jnp.minimum(carry, energy(x))}

    def describe(self) -> dict[str, tuple[tuple[str, ...], dict[str, Any]]]:
        return {"best_energy": ((), {"long_name": "lowest energy so far", "units": "1"})}


def best_energy(times: Any = None) -> Observer:
    """The lowest energy each chain has seen, at every step, by the given times; `best_energy(chain, time)`."""
    return BestEnergy(times=_times(times))


_NEVER = -1


@_observer
class FirstPassage(Observer):
    """See `first_passage`; the carry is the step of the passage, or -1."""

    level: Any
    targets: Any
    radius: Any
    name: str = dataclasses.field(metadata={"static": True})
    sees_last: ClassVar[bool] = True

    def names(self) -> tuple[str, ...]:
        return f"{self.name}_time", f"{self.name}_censored"

    def start(self, x: jax.Array, energy: jax.Array) -> Any:
        return jnp.where(self.inside(x, energy), 0, _NEVER).astype(jnp.int32)

    def update(self, carry: Any, seen: Observation) -> Any:
        hit = self.inside(seen.positions, seen.energy)
        return jnp.where((carry == _NEVER) & hit, seen.step, carry).astype(jnp.int32)

    def inside(self, x: jax.Array, energy: jax.Array) -> jax.Array:
        if self.targets is None:
            return energy <= self.level
        if self.targets.shape[1:] != x.shape:
            raise refuse("of", f"centres of shape {self.targets.shape[1:]}", f"shape {x.shape}, that of a chain",
                         "one row per embedding")  # fmt: skip
        targets = jnp.asarray(self.targets, x.dtype)
        near = [product_distance(targets[i], x) <= self.radius for i in range(targets.shape[0])]
        return jnp.any(jnp.stack(near))

    def finish(self, carry: Any, step_size: float, num_steps: int) -> dict[str, Variable]:
        steps = np.asarray(carry)
        passed = steps != _NEVER
        time = np.where(passed, steps, num_steps).astype(np.float64) * step_size
        note = "the time of the first step inside the set; where not passed, the length of the run (censored)"
        return {
            f"{self.name}_time": Variable((), time, {"long_name": "first passage time", "units": "time", "note": note}),
            f"{self.name}_censored": Variable((), ~passed, {"long_name": "no passage during the run"}),
        }


def first_passage(
    energy_below: float | None = None, *, within: float | None = None, of: Any = None, name: str = "first_passage"
) -> Observer:
    """The first time a chain is in a set, seen at every step: {E <= level}, or a ball around given points.

    Results are `first_passage_time(chain)` and `first_passage_censored(chain)`; a chain that never passes is censored
    at the end of the run, never given a time it did not have.

    Args:
        energy_below: the level of the set {E <= level}.
        within: radius in radians of a ball in the geodesic distance of the product, (sum_i angle_i^2)^(1/2).
        of: the centres, shape (n, d) or (m, n, d), unit rows; needed with `within`.
        name: prefix of the variables, for several passages in one run.

    Raises:
        InputError: not exactly one of the two sets is described.
    """
    if (energy_below is None) == (within is None) or (within is None) != (of is None):
        raise refuse("first_passage", f"energy_below={energy_below}, within={within}", "one set",
                     "pass energy_below=level, or within=radius with of=points")  # fmt: skip
    if energy_below is not None:
        return FirstPassage(np.asarray(finite("energy_below", energy_below)), None, None, name)
    centres = as_unit_rows("of", of, ndims=(2, 3))
    centres = centres[None] if centres.ndim == 2 else centres
    return FirstPassage(None, centres, np.asarray(positive("within", within)), name)


@_observer
class Average(Observer):
    """See `average`; the carry is a Kahan sum, its compensation and the number of terms."""

    function: Callable[[jax.Array, jax.Array], jax.Array] = dataclasses.field(metadata={"static": True})
    start_step: Any
    name: str = dataclasses.field(metadata={"static": True})

    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def start(self, x: jax.Array, energy: jax.Array) -> Any:
        try:
            zero = jnp.zeros_like(jnp.asarray(self.function(x, energy), x.dtype))
        except Exception as error:
            given = f"a function that fails with {type(error).__name__} on positions of shape {x.shape}"
            raise refuse(
                self.name, given, "a JAX function of (positions, energy)", "try it on one chain first"
            ) from error
        return zero, zero, jnp.zeros((), jnp.int32)

    def update(self, carry: Any, seen: Observation) -> Any:
        total, lost, counted = carry
        active = seen.step >= self.start_step
        value = jnp.asarray(self.function(seen.positions, seen.energy), total.dtype)
        # Kahan summation: a plain float32 sum stops growing after some 10^7 terms.
        term = jnp.where(active, value - lost, -lost)
        new = total + term
        return new, (new - total) - term, counted + jnp.where(active, 1, 0).astype(jnp.int32)

    def finish(self, carry: Any, step_size: float, num_steps: int) -> dict[str, Variable]:
        total, lost, counted = (np.asarray(c, dtype=np.float64) for c in carry)
        counted = counted.reshape(counted.shape + (1,) * (total.ndim - 1))
        mean = (total - lost) / np.where(counted > 0, counted, np.nan)
        dims = tuple(f"{self.name}_axis{i}" for i in range(total.ndim - 1))
        return {self.name: Variable(dims, mean, {"long_name": f"time average of {self.name}"})}


def average(
    function: Callable[[jax.Array, jax.Array], jax.Array], name: str = "average", skip_steps: int = 0
) -> Observer:
    """The time average of a function of the state over every step after the first `skip_steps`; `name(chain, ...)`.

    Args:
        function: `function(positions, energy)` of one chain -> array.
        name: the variable's name.
        skip_steps: steps left out as burn-in.
    """
    if not callable(function):
        raise refuse("function", type(function).__name__, "a JAX function of (positions, energy)",
                     "for example lambda x, energy: energy")  # fmt: skip
    return Average(function, np.asarray(count("skip_steps", skip_steps, least=0)), name)


def _probability(x: jax.Array, energy: jax.Array) -> jax.Array:
    return energy


@_observer
class Acceptance(Average):
    """See `acceptance`."""

    def update(self, carry: Any, seen: Observation) -> Any:
        return Average.update(self, carry, seen._replace(energy=seen.acceptance))


def acceptance(skip_steps: int = 0) -> Observer:
    """The mean acceptance probability of each chain; `acceptance(chain)`, 1 for schemes without rejection."""
    return Acceptance(_probability, np.asarray(count("skip_steps", skip_steps, least=0)), "acceptance")


def default_times(observer: Observer, horizon: float, step_size: float) -> Sequence[float]:
    """The times an observer records at in a run of this length."""
    return log_spaced_times(horizon, step_size).tolist() if observer.times is None else observer.times
