"""Chains that run until something happens to each of them, and the sets that they may run into.

`run_chains` makes the same number of steps with every chain. Waiting times have a long tail, so here lanes that are
done are put aside and the others move closer together; a lane keeps its key and its step count, so chain c remains a
function of (seed, c) alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from infonce_jax.chains import observers
from infonce_jax.chains.engine import advance_chunk, cast, lane_count, start_carry, unrolls
from infonce_jax.chains.observers import FirstPassage, Observation, Observer
from infonce_jax.checks import as_unit_rows, finite, positive, refuse
from infonce_jax.devices import chain_mesh
from infonce_jax.energies.base import Energy
from infonce_jax.integrators.protocol import Integrator

__all__ = ["ABOVE", "ARRIVED", "BELOW", "CONTINUITY", "MOST_STEPS", "RUNNING", "Ball", "EnergyBelow", "LaneLoop",
           "Race", "check_target"]  # fmt: skip

# -zeta(1/2)/sqrt(2 pi): how far, in standard deviations of one step, a random walk seen at its steps only must be asked
# to come closer than the diffusion (Chernoff 1965; Siegmund 1979; Broadie, Glasserman and Kou 1997).
CONTINUITY = 0.5825971579
MOST_STEPS = 2**31 - 2
_CHUNKS = (64, 2048)  # steps per compiled call, the first and the largest
_SHRINK = 16  # lanes are packed when only one in so many is still running; every width compiles once, for seconds


@dataclasses.dataclass(frozen=True)
class EnergyBelow:
    """The set {E <= level}.

    A chain is seen at its steps only and misses excursions between them. Where the level lies far below the saddle this
    costs a time of order h at the end of the passage and is negligible beside the wait for the crossing.
    """

    level: float

    def watcher(self, step_size: float, beta: float) -> FirstPassage:
        """The set as chains of step h at this inverse temperature should see it."""
        watcher = observers.first_passage(energy_below=self.level)
        assert isinstance(watcher, FirstPassage)
        return watcher


@dataclasses.dataclass(frozen=True, eq=False)
class Ball:
    """Balls of one radius around points, in the geodesic distance of the product of spheres.

    Attributes:
        points: centres, shape (n, d) or (m, n, d).
        radius: radians, > 0.
        continuity: enlarge the ball that the discrete chain must enter by .5826 sqrt(2h/beta), so that its mean time is
            that of the diffusion to the ball of the given radius up to O(h); without it the error is O(sqrt(h)).
    """

    points: np.ndarray
    radius: float
    continuity: bool = True

    def watcher(self, step_size: float, beta: float) -> FirstPassage:
        """The set as chains of step h at this inverse temperature should see it."""
        wider = CONTINUITY * np.sqrt(2 * step_size / beta) if self.continuity else 0.0
        watcher = observers.first_passage(within=self.radius + float(wider), of=self.points)
        assert isinstance(watcher, FirstPassage)
        return watcher


def check_target(energy: Energy, target: Any) -> EnergyBelow | Ball:
    """The target, refused when it is no set of configurations of this energy."""
    if isinstance(target, EnergyBelow):
        finite("target.level", target.level)
        return target
    if not isinstance(target, Ball):
        raise refuse("target", type(target).__name__, "measure.EnergyBelow(level) or measure.Ball(points, radius)",
                     "wrap the level or the points")  # fmt: skip
    points = as_unit_rows("target.points", target.points, ndims=(2, 3))
    if points.shape[-2:] != energy.shape:
        raise refuse("target.points", f"shape {points.shape}", f"shape {energy.shape} or (m, n, d)",
                     "one row per embedding")  # fmt: skip
    positive("target.radius", target.radius)
    return target


RUNNING, BELOW, ABOVE, ARRIVED = 0, 1, 2, 3


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class Race(Observer):
    """Which comes first, falling to {coordinate <= floor} or rising into {coordinate > ceiling} or the target.

    The carry is (outcome, step, highest coordinate, positions), of the latest step seen until one decides and of that
    one from then on; the outcome is RUNNING, BELOW, ABOVE or ARRIVED (in the target).
    """

    target: FirstPassage
    floor: Any
    ceiling: Any
    coordinate: Callable[[jax.Array], jax.Array] = dataclasses.field(metadata={"static": True})

    def start(self, x: jax.Array, energy: jax.Array) -> Any:
        zero = jnp.zeros((), jnp.int32)
        return zero, zero, jnp.full((), -jnp.inf, x.dtype), x

    def update(self, carry: Any, seen: Observation) -> Any:
        outcome, step, highest, place = carry
        xi = jnp.asarray(self.coordinate(seen.positions), seen.positions.dtype)
        arrived = self.target.inside(seen.positions, seen.energy)
        now = jnp.where(arrived, ARRIVED, jnp.where(xi > self.ceiling, ABOVE, jnp.where(xi <= self.floor, BELOW, 0)))
        running = outcome == RUNNING
        return (
            jnp.where(running, now, outcome).astype(jnp.int32),
            jnp.where(running, seen.step, step).astype(jnp.int32),
            jnp.where(running, jnp.maximum(highest, xi), highest),
            jnp.where(running, seen.positions, place),
        )


_PRECISION = np.dtype(np.float32)  # in which chains run


class LaneLoop:
    """Chains at constant temperature, each until an observer says that it is done; compiled once for many calls.

    Args:
        energy: of the chains.
        integrator: the scheme.
    """

    def __init__(self, energy: Energy, integrator: Integrator) -> None:
        self.energy, self.integrator = cast(energy, _PRECISION), integrator
        self.mesh = chain_mesh(None)
        self.chain_steps = 0  # made so far, those of lanes that only waited included
        self._scalars: bool | None = None

    def run(
        self, beta: float, starts: np.ndarray, keys: np.ndarray, observer: Observer,
        running: Callable[[Any], Any], max_steps: int,
    ) -> Any:  # fmt: skip
        """Run every chain until `running` is false of its carry, or for `max_steps` steps.

        Args:
            beta: inverse temperature.
            starts: shape (chains, n, d).
            keys: shape (2, chains), from `noise.chain_keys`.
            observer: one; it sees the states at steps 0 ... max_steps.
            running: carries of many chains -> booleans.
            max_steps: below 2^31 - 1.

        Returns:
            The carries of all chains, as NumPy arrays with a leading chain axis.

        Raises:
            RuntimeError: a chain's energy stopped being finite.
        """
        with jax.enable_x64(False):
            betas = np.full(_CHUNKS[1], beta, np.float32)
            watcher = cast(observer, _PRECISION)
            return self._run(betas, np.asarray(starts), np.asarray(keys), watcher, running, max_steps)

    def _run(
        self, betas: np.ndarray, starts: np.ndarray, keys: np.ndarray, observer: Any, running: Any, max_steps: int
    ) -> Any:
        whole = lane_count(len(starts), self.mesh.size)
        index, rows = _filled(np.arange(len(starts)), whole)
        carry = start_carry(jnp.asarray(starts[rows], jnp.float32), self.energy, (observer,),
                            integrator=self.integrator)  # fmt: skip
        if self._scalars is None:
            self._scalars = unrolls(self.integrator, carry, False, self.energy, (observer,))
        carry, keys = self._put(carry, keys[:, rows])
        final = jax.tree.map(lambda a: np.zeros((len(starts), *a.shape[1:]), a.dtype), carry[1][0])
        step, chunk = 0, _CHUNKS[0]
        while True:
            steps = min(chunk, max_steps + 1 - step)  # one more step than asked: the state after the last is seen too
            carry, healthy = advance_chunk(
                carry, keys, self.energy, (observer,), betas, None, np.int32(step), np.int32(steps),
                integrator=self.integrator, scalars=self._scalars, mesh=self.mesh,
            )  # fmt: skip
            step, chunk = step + steps, min(2 * chunk, _CHUNKS[1])
            self.chain_steps += steps * len(index)
            if not np.asarray(healthy).all():
                raise RuntimeError(f"a chain's energy stopped being finite within {step} steps; use a smaller step_size"
                                   " or check the energy")  # fmt: skip
            watched = jax.tree.map(np.asarray, carry[1][0])
            active = np.asarray(running(watched)) & (index >= 0)
            over = not active.any() or step > max_steps
            width = self._width(whole, int(active.sum()))
            if over or width < len(index):
                _store(final, watched, index)
            if over:
                return final
            if width < len(index):
                new, rows = _filled(np.flatnonzero(active), width)
                index = np.where(new >= 0, index[rows], -1)
                carry, keys = self._put(_rows(carry, rows), np.asarray(keys)[:, rows])

    def _put(self, carry: Any, keys: np.ndarray) -> tuple[Any, Any]:
        spread, across = (NamedSharding(self.mesh, PartitionSpec(*a)) for a in (("chains",), (None, "chains")))
        return jax.device_put(carry, spread), jax.device_put(keys, across)

    def _width(self, whole: int, active: int) -> int:
        """The smallest of whole, whole/16, whole/256, ... lanes that holds the active ones."""
        width = whole
        while (narrower := lane_count(-(-width // _SHRINK), self.mesh.size)) < width and active <= narrower:
            width = narrower
        return width


def _filled(chains: np.ndarray, lanes: int) -> tuple[np.ndarray, np.ndarray]:
    """Chains in lanes, spare lanes marked -1, and the row that each lane is filled from."""
    spare = lanes - len(chains)
    return (
        np.concatenate([chains, np.full(spare, -1)]),
        np.concatenate([chains, np.full(spare, chains[0])]),
    )


def _rows(tree: Any, rows: np.ndarray) -> Any:
    return jax.tree.map(lambda a: np.asarray(a)[rows], tree)


def _store(final: Any, watched: Any, index: np.ndarray) -> None:
    lanes = np.flatnonzero(index >= 0)
    jax.tree.map(lambda whole, part: whole.__setitem__(index[lanes], part[lanes]), final, watched)
