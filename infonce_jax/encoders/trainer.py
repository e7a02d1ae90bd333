"""The compiled steps of a training and the host loop around them: chunks, records, progress, state to save.

Seeds are independent. They are dealt out to the devices, each of which runs the same program by itself: a program over
several devices at once (`jax.shard_map`) is fused differently, and rounds differently, from that for one. On a device
they are worked off in tiles of one size, each a `jax.vmap` inside a loop over steps of its own, so that no seed's bits
depend on how many others there are, and a tile stays in the cache.
"""

from __future__ import annotations

import functools
import math
import time as clock
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from tqdm import tqdm

from infonce_jax.encoders import metrics
from infonce_jax.encoders.langevin import with_key
from infonce_jax.encoders.objective import Objective
from infonce_jax.encoders.temperature import COLDEST, Learned, Taus
from infonce_jax.noise import chain_keys

__all__ = ["Snapshot", "Trainer"]

# Seeds per tile on a CPU. Measured on one core, microseconds per seed-step of the encoder 7-64-64-2 with 8 views and
# Adam: 1 seed 20, 2 18, 4 15, 8 14, 16 13, 32 13, 128 (out of the second cache) 20.
_TILE = 16
# Rows of a batch times parameters beyond which a seed's own products fill a core and its arrays the cache: then seeds
# go one by one, which wastes none on padding.
_LARGE = 1_000_000
# Steps of one call of the compiled loop at most, and how long a call should take at most, in seconds: an interruption
# waits for it.
_CHUNK, _PATIENCE = 1024, 2.0
_FIRST = 16
_STREAM_INIT, _STREAM_STEPS, _STREAM_LANGEVIN = 0, 1, 2


class Trained(NamedTuple):
    """What the optimiser moves: an objective's parameters, and log(1/tau) where that is learned, otherwise ()."""

    parameters: Any
    sharpness: Any


class Carry(NamedTuple):
    """One seed between two steps.

    Attributes:
        trained: what the optimiser moves.
        optimiser: its state.
        memory: of the objective.
        key: two words of the key that steps fold their number into.
        failed: the first step whose loss was not finite, or -1.
        value: that loss.
    """

    trained: Trained
    optimiser: Any
    memory: Any
    key: jax.Array
    failed: jax.Array
    value: jax.Array


class Snapshot(NamedTuple):
    """All that a training needs to continue to the same bits.

    Attributes:
        step: steps made.
        seconds: wall-clock time they took.
        leaves: of the carry, leading axis seeds; plain numbers.
        records: (step, metrics by name, each of shape (seeds,)) so far.
    """

    step: int
    seconds: float
    leaves: list[np.ndarray]
    records: list[tuple[int, dict[str, np.ndarray]]]


def _threefry(words: jax.Array) -> jax.Array:
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def _start(objective: Any, words: jax.Array, *, optimizer: Any, learned: Learned | None) -> Carry:
    """One seed before its first step; `words` holds its three keys, shape (3, 2)."""
    parameters, memory = objective.init(_threefry(words[_STREAM_INIT]))
    sharpness = () if learned is None else jnp.asarray(-math.log(learned.initial), jnp.float32)
    trained = Trained(parameters, sharpness)
    state = with_key(optimizer.init(trained), _threefry(words[_STREAM_LANGEVIN]))
    none, nan = jnp.full((), -1, jnp.int32), jnp.full((), jnp.nan, jnp.float32)
    return Carry(trained, state, memory, words[_STREAM_STEPS], none, nan)


def _differentiate(objective: Any, carry: Carry, step: jax.Array, tau: jax.Array) -> Any:
    """((loss, (views, tau)), gradient) of one seed at a step."""
    key = jax.random.fold_in(_threefry(carry.key), step)

    def loss(trained: Trained) -> tuple[jax.Array, Any]:
        temperature = tau if isinstance(trained.sharpness, tuple) else jnp.exp(-trained.sharpness)
        value, views = objective.loss(trained.parameters, carry.memory, key, temperature)
        return value, (views, temperature)

    return jax.value_and_grad(loss, has_aux=True)(carry.trained)


def _advance(objective: Any, carry: Carry, step: jax.Array, tau: jax.Array, *, optimizer: Any) -> Carry:
    """One step of one seed."""
    (value, (views, _)), gradient = _differentiate(objective, carry, step, tau)
    updates, state = optimizer.update(gradient, carry.optimiser, carry.trained, value=value, grad=gradient)
    trained: Any = optax.apply_updates(carry.trained, updates)
    if not isinstance(trained.sharpness, tuple):
        trained = trained._replace(sharpness=jnp.minimum(trained.sharpness, -math.log(COLDEST)))
    memory = objective.after(trained.parameters, carry.memory, views)
    first = ~jnp.isfinite(value) & (carry.failed < 0)
    failed, seen = jnp.where(first, step, carry.failed), jnp.where(first, value, carry.value)
    return Carry(trained, state, memory, carry.key, failed, seen)


def _measure(objective: Any, carry: Carry, step: jax.Array, tau: jax.Array) -> dict[str, jax.Array]:
    """The metrics of one seed at a step, before that step changes it."""
    (value, (views, temperature)), gradient = _differentiate(objective, carry, step, tau)
    return {
        "loss": value,
        "alignment": metrics.alignment(views),
        "uniformity": metrics.uniformity(views),
        "temperature": jnp.asarray(temperature, jnp.float32),
        "gradient_norm": metrics.gradient_norm(gradient.parameters),
    }


def _map_seeds(function: Callable[[Any], Any], seeds: Any, tile: int) -> Any:
    """A function of one seed over all of them, whose number is a multiple of `tile`, so many at a time."""
    if tile == 1:  # not a batch of one, which is another program than no batch
        return jax.lax.map(function, seeds)
    split = jax.tree.map(lambda a: a.reshape(-1, tile, *a.shape[1:]), seeds)
    out = jax.lax.map(jax.vmap(function), split)
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), out)


@functools.partial(jax.jit, static_argnames=("optimizer", "learned", "tile"))
def _start_all(objective: Any, words: jax.Array, *, optimizer: Any, learned: Any, tile: int) -> Carry:
    return _map_seeds(functools.partial(_start, objective, optimizer=optimizer, learned=learned), words, tile)


@functools.partial(jax.jit, static_argnames=("optimizer", "tile"))
def _advance_all(
    objective: Any, carry: Carry, taus: jax.Array, first: jax.Array, count: jax.Array, *, optimizer: Any, tile: int
) -> Carry:
    step = functools.partial(_advance, objective, optimizer=optimizer)
    one = step if tile == 1 else jax.vmap(step, (0, None, None))

    def run(part: Carry) -> Carry:
        return jax.lax.fori_loop(0, count, lambda i, c: one(c, first + i, taus[i]), part)

    if tile == 1:
        return jax.lax.map(run, carry)
    split = jax.tree.map(lambda a: a.reshape(-1, tile, *a.shape[1:]), carry)
    return jax.tree.map(lambda a: a.reshape(-1, *a.shape[2:]), jax.lax.map(run, split))


@functools.partial(jax.jit, static_argnames=("tile",))
def _measure_all(objective: Any, carry: Carry, tau: jax.Array, step: jax.Array, *, tile: int) -> Any:
    return _map_seeds(lambda one: _measure(objective, one, step, tau), carry, tile)


class Trainer:
    """A training in progress: all seeds on the devices, steps and records on the host.

    Args:
        objective: registered as a pytree of arrays.
        taus: temperatures of the steps, or `Learned`.
        optimizer: of optax.
        num_steps, num_seeds, seed: as in `optimise`.
        record_every: steps between two records.
        devices: to spread the seeds over.
        resume: continue from there.
    """

    def __init__(
        self, objective: Objective, taus: Taus | Learned, optimizer: Any, num_steps: int, num_seeds: int, seed: int,
        record_every: int, devices: Sequence[Any], resume: Snapshot | None = None,
    ) -> None:  # fmt: skip
        self.taus, self.optimizer = taus, optimizer
        self.num_steps, self.num_seeds, self.record_every = num_steps, num_seeds, record_every
        self.tile = _tile(objective, devices[0].platform)
        used = devices[: math.ceil(num_seeds / self.tile)]
        each = math.ceil(num_seeds / len(used) / self.tile) * self.tile
        lanes = np.arange(each * len(used))
        # Spare seeds are copies of the first: an error in one of them is an error in that one.
        owners = np.where(lanes < num_seeds, lanes, 0)
        self.objectives = [jax.device_put(objective, device) for device in used]
        self.step, self.seconds_before, self.records = 0, 0.0, []
        self.started = clock.perf_counter()
        learned = taus if isinstance(taus, Learned) else None
        start = functools.partial(_start_all, optimizer=optimizer, learned=learned, tile=self.tile)
        words = np.stack([chain_keys(seed, owners, stream).T for stream in range(3)], axis=1)
        if resume is None:
            parts = [
                jax.device_put(part, device) for part, device in zip(np.split(words, len(used)), used, strict=True)
            ]
            self.carries = [start(own, part) for own, part in zip(self.objectives, parts, strict=True)]
        else:
            tree = jax.tree.structure(jax.eval_shape(start, objective, words))
            rows = [np.split(leaf[owners], len(used)) for leaf in resume.leaves]
            self.carries = [jax.device_put(tree.unflatten([row[k] for row in rows]), used[k]) for k in range(len(used))]
            self.step, self.seconds_before, self.records = resume.step, resume.seconds, list(resume.records)
        self.pace = _FIRST

    def run(self, bar: tqdm, on_chunk: Callable[[Trainer], Any] | None = None) -> tuple[int, int, float] | None:
        """Train to the end; `bar` and `on_chunk` are told of every chunk.

        Returns:
            None, or (seed, step, loss) of the first loss that was not finite. The carry is then that before the chunk.
        """
        bar.update(self.step * self.num_seeds)
        failure = self._record()
        while failure is None and self.step < self.num_steps:
            began = clock.perf_counter()
            until_record = self.record_every - self.step % self.record_every
            steps = min(self.pace, _CHUNK, until_record, self.num_steps - self.step)
            carries = self._call(steps)
            failure = self._failure(carries)
            if failure is not None:
                return failure
            self.carries, self.step = carries, self.step + steps
            took = clock.perf_counter() - began
            self.pace = min(4 * self.pace, _CHUNK) if took < _PATIENCE / 8 else self.pace
            self.pace = max(self.pace // 2, 1) if took > _PATIENCE else self.pace
            bar.update(steps * self.num_seeds)
            failure = self._record()
            if failure is None and on_chunk is not None:
                on_chunk(self)
        return failure

    def _call(self, steps: int) -> list[Carry]:
        taus = np.zeros(_CHUNK) if isinstance(self.taus, Learned) else np.resize(self.taus(self.step, steps), _CHUNK)
        when = taus.astype(np.float32), np.int32(self.step), np.int32(steps)
        options = {"optimizer": self.optimizer, "tile": self.tile}
        pairs = zip(self.objectives, self.carries, strict=True)
        return [_advance_all(own, carry, *when, **options) for own, carry in pairs]  # devices work at the same time

    def gathered(self, parts: list[Any]) -> Any:
        """One pytree of NumPy arrays, leading axis seeds, of what the devices have."""
        return jax.tree.map(lambda *leaves: np.concatenate([np.asarray(x) for x in leaves])[: self.num_seeds], *parts)

    def _failure(self, carries: list[Carry]) -> tuple[int, int, float] | None:
        steps, values = self.gathered([(carry.failed, carry.value) for carry in carries])
        if np.all(steps < 0):
            return None
        seed = int(np.argmin(np.where(steps < 0, self.num_steps, steps)))
        return seed, int(steps[seed]), float(values[seed])

    def _record(self) -> tuple[int, int, float] | None:
        due = self.step % self.record_every == 0 or self.step == self.num_steps
        if not due or (self.records and self.records[-1][0] == self.step):
            return None
        tau = 0.0 if isinstance(self.taus, Learned) else self.taus(self.step, 1)[0]
        found = [_measure_all(own, carry, np.float32(tau), np.int32(self.step), tile=self.tile)
                 for own, carry in zip(self.objectives, self.carries, strict=True)]  # fmt: skip
        values = self.gathered(found)
        bad = ~np.isfinite(values["loss"])
        if bad.any():  # the last steps of a training have no later one that would notice
            seed = int(np.argmax(bad))
            return seed, self.step, float(values["loss"][seed])
        self.records.append((self.step, values))
        return None

    def seconds(self) -> float:
        """Wall-clock time so far, of all sittings."""
        return self.seconds_before + clock.perf_counter() - self.started

    def snapshot(self) -> Snapshot:
        """What to save, as arrays of NumPy."""
        leaves = jax.tree.leaves(self.gathered(self.carries))
        return Snapshot(self.step, self.seconds(), leaves, list(self.records))


def _tile(objective: Any, platform: str) -> int:
    """Seeds at a time on one device; the same for every number of them."""
    if platform != "cpu":
        return _TILE
    key = jax.eval_shape(lambda: jax.random.key(0))
    parameters, memory = jax.eval_shape(objective.init, key)
    tau = jax.ShapeDtypeStruct((), jnp.float32)
    _, views = jax.eval_shape(objective.loss, parameters, memory, key, tau)
    size = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(parameters))
    return 1 if size * views.anchors.shape[0] > _LARGE else _TILE
