"""Train encoders from many seeds at once under a schedule of the temperature inside the loss."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import xarray as xr
from tqdm import tqdm

from infonce_jax.checks import InputError, count, instance, numbers, refuse
from infonce_jax.encoders import metrics
from infonce_jax.encoders.architectures import Architecture
from infonce_jax.encoders.objective import FullBatch, Objective
from infonce_jax.encoders.temperature import COLDEST, Learned, Taus, parse_temperature
from infonce_jax.encoders.trainer import Snapshot, Trainer
from infonce_jax.energies import Energy
from infonce_jax.noise import chain_keys

__all__ = ["Training", "TrainingStopped", "full_batch", "optimise", "train"]

_RECORDS = 100
_MOST_STEPS = 2**31 - 1


@dataclasses.dataclass(frozen=True, eq=False)
class Training:
    """What a training leaves behind.

    Attributes:
        data: over (seed, step): loss, alignment, uniformity, temperature, gradient_norm (of the objective's
            parameters), each before the step it stands at; the last step is the end. Attributes: objective, batch_log.
        parameters: of the objective, a pytree with a leading axis of seeds.
        memory: of the objective, likewise.
        objective: what was minimised.
        num_steps: steps made.
        seconds: wall-clock time, compilation included; of all sittings where it was resumed.
    """

    data: xr.Dataset
    parameters: Any
    memory: Any
    objective: Any
    num_steps: int
    seconds: float

    @property
    def flags(self) -> tuple[str, ...]:
        """What went wrong, in words: see `metrics.flags`."""
        return metrics.flags(self.data)

    def encode(self, inputs: Any) -> np.ndarray:
        """Embeddings of inputs by every seed's encoder, unit rows, shape (seeds, N, dim).

        Raises:
            InputError: the objective has not one encoder but several, or none; inputs of another shape.
        """
        return self._mapped("apply", inputs)

    def features(self, inputs: Any) -> np.ndarray:
        """The last hidden layer of every seed's encoder, shape (seeds, N, width)."""
        return self._mapped("features", inputs)

    def per_seed(self) -> Iterator[Any]:
        """The parameters of one seed after another, without the axis of seeds."""
        for seed in range(self.data.sizes["seed"]):
            yield jax.tree.map(lambda leaf, s=seed: leaf[s], self.parameters)

    @property
    def embeddings(self) -> np.ndarray:
        """Embeddings of the objective's own data at the end, shape (seeds, n, dim).

        Raises:
            InputError: the objective holds no data of its own as `data`.
        """
        data = getattr(self.objective, "data", None)
        if data is None:
            raise refuse("embeddings", f"the objective {self.objective.name}", "one with data of its own",
                         "use encode(inputs)")  # fmt: skip
        return self.encode(data)

    def _mapped(self, method: str, inputs: Any) -> np.ndarray:
        encoder = getattr(self.objective, "encoder", None)
        if not isinstance(encoder, Architecture):
            raise refuse("encode", f"the objective {self.objective.name}", "one with a single encoder",
                         "apply its architectures to .parameters")  # fmt: skip
        return np.asarray(_encode(self.parameters, jnp.asarray(inputs), encoder=encoder, method=method))


@functools.partial(jax.jit, static_argnames=("encoder", "method"))
def _encode(parameters: Any, inputs: Any, *, encoder: Architecture, method: str) -> jax.Array:
    return jax.lax.map(lambda one: getattr(encoder, method)(one, inputs), parameters)


class TrainingStopped(RuntimeError):
    """A loss stopped being finite.

    Attributes:
        seed, step, value: where it happened first, and the loss there.
        training: what there was: records so far, and the parameters before the chunk of steps it happened in.
    """

    def __init__(self, seed: int, step: int, value: float, training: Training) -> None:
        super().__init__(
            f"seed {seed}: the loss became {value} at step {step}; records up to step {training.num_steps} are kept in "
            ".training; lower the learning rate or raise the temperature"
        )
        self.seed, self.step, self.value, self.training = seed, step, value, training

    def __reduce__(self) -> tuple[Any, ...]:  # it travels between processes
        return TrainingStopped, (self.seed, self.step, self.value, self.training)


def optimise(
    objective: Objective,
    *,
    temperature: Any,
    optimizer: optax.GradientTransformation,
    num_steps: int,
    num_seeds: int = 1,
    seed: int = 0,
    record_every: int | None = None,
    progress: bool | None = None,
    num_devices: int | None = None,
    on_chunk: Callable[[Trainer], Any] | None = None,
    resume: Snapshot | None = None,
) -> Training:
    """Minimise an objective from many seeds, vmapped, on all local devices.

    Seed s is a function of (seed, s) alone: how many seeds there are, the devices, the records, the chunks and an
    interruption do not change one bit of it. Programs are compiled once for an optimizer *object*: pass the same one to
    every call.

    Args:
        objective: see `Objective`.
        temperature: tau > 0, a number; an optax schedule, or any function of the step; text or its schedule, see
            `parse_temperature`; or `learned()`. Schedules are evaluated on the host.
        optimizer: of optax; state per seed.
        num_steps: below 2^31.
        num_seeds: how many.
        seed: 0 <= seed < 2^64.
        record_every: steps between two records; by default a hundredth of the steps.
        progress: a bar on standard error; by default when that is a terminal.
        num_devices: how many local devices; by default all.
        on_chunk: called with the `Trainer` after every chunk of steps; `trainer.snapshot()` is what to save. An
            exception that it raises ends the training.
        resume: a snapshot of the same training, to continue from.

    Returns:
        A `Training`.

    Raises:
        InputError: arguments that cannot be used, found before anything compiles.
        TrainingStopped: a loss stopped being finite.
    """
    num_steps, num_seeds = count("num_steps", num_steps), count("num_seeds", num_seeds)
    if num_steps > _MOST_STEPS:
        raise refuse("num_steps", num_steps, f"at most {_MOST_STEPS}", "split the training")
    chain_keys(seed, np.arange(1))  # refuses a seed that is none
    _check_optimizer(optimizer)
    _check_objective(objective)
    taus = _temperature(temperature, num_steps)
    every = max(num_steps // _RECORDS, 1) if record_every is None else count("record_every", record_every)
    if progress not in (None, True, False):
        raise refuse("progress", repr(progress), "True, False or None", "by default a bar is shown on a terminal")
    devices = jax.local_devices()[: None if num_devices is None else _devices(num_devices)]
    trainer = Trainer(objective, taus, optimizer, num_steps, num_seeds, seed, every, devices, resume)
    shown = sys.stderr.isatty() if progress is None else progress
    bar = tqdm(total=num_steps * num_seeds, unit=" seed-steps", unit_scale=True, disable=not shown, dynamic_ncols=True)
    with contextlib.closing(bar):
        failure = trainer.run(bar, on_chunk)
    training = outcome(trainer, objective)
    if failure is not None:
        raise TrainingStopped(*failure, training)
    return training


def train(
    encoder: Architecture,
    data: Any,
    energy: Energy,
    temperature: Any = None,
    optimizer: optax.GradientTransformation | None = None,
    num_steps: int = 1000,
    num_seeds: int = 1,
    seed: int = 0,
    **options: Any,
) -> Training:
    """Train an encoder on an energy of the embeddings of all data: the loss is energy(encoder(data)).

    Args:
        encoder: for example `mlp((64, 64), 2)`.
        data: shape (n, ...), row i the input of embedding i.
        energy: of configurations of shape (n, dim), for example a scenario's.
        temperature: as in `optimise`; None keeps the energy's own tau.
        optimizer: of optax; by default `optax.adam(1e-3)`.
        num_steps, num_seeds, seed: as in `optimise`.
        **options: the others of `optimise`.

    Returns:
        A `Training`; `.embeddings` are those of the data at the end, shape (seeds, n, dim).

    Raises:
        InputError, TrainingStopped: as in `optimise`; besides, data, energy and encoder that do not fit each other.

    >>> import infonce_jax as ij, numpy as np, optax
    >>> scenario = ij.scenarios.ring(5)
    >>> encoder = ij.encoders.mlp((16,), 2)
    >>> done = ij.encoders.train(encoder, np.eye(5), scenario.energy, 0.5, optax.adam(1e-2), num_steps=20, num_seeds=3)
    >>> done.embeddings.shape
    (3, 5, 2)
    """
    objective = full_batch(encoder, data, energy, temperature, num_steps)
    if temperature is None:
        own = getattr(energy, "temperature", None)
        temperature = 1.0 if own is None else float(own)
    return optimise(objective, temperature=temperature, optimizer=_ADAM if optimizer is None else optimizer,
                    num_steps=num_steps, num_seeds=num_seeds, seed=seed, **options)  # fmt: skip


def full_batch(encoder: Architecture, data: Any, energy: Energy, temperature: Any, num_steps: int) -> FullBatch:
    """What `train` minimises, with the energy in the form that the lowest temperature of the schedule needs.

    Args:
        encoder, data, energy, temperature, num_steps: as in `train`.

    Raises:
        InputError: as in `train`.
    """
    instance("encoder", encoder, Architecture, "for example infonce_jax.encoders.mlp((64, 64), 2)")
    instance("energy", energy, Energy, "for example a scenario's energy")
    inputs = _data(encoder, data, energy)
    own = getattr(energy, "temperature", None)
    if own is None and temperature is not None:
        raise refuse("temperature", temperature, f"None, since {type(energy).__name__} has none to change",
                     "use an energy built with one")  # fmt: skip
    if own is not None:
        taus = _temperature(float(own) if temperature is None else temperature, count("num_steps", num_steps))
        # A traced tau keeps the form of the exponentials its energy was built for.
        energy = energy.with_temperature(COLDEST if isinstance(taus, Learned) else taus.lowest)
    return FullBatch.of(encoder, inputs, jax.tree.map(_single, energy))


_ADAM = optax.adam(1e-3)


def outcome(trainer: Trainer, objective: Any) -> Training:
    """What there is after the steps made so far."""
    steps = np.array([step for step, _ in trainer.records], dtype=np.int64)
    names = ("loss", "alignment", "uniformity", "temperature", "gradient_norm")
    variables = {
        name: (("seed", "step"), np.array([values[name] for _, values in trainer.records]).reshape(len(steps), -1).T)
        for name in names
    }
    coordinates = {"seed": np.arange(trainer.num_seeds), "step": steps}
    variables = {n: (d, v if len(steps) else np.zeros((trainer.num_seeds, 0))) for n, (d, v) in variables.items()}
    attributes = {"objective": objective.name, "batch_log": float(objective.batch_log)}
    trained, memory = trainer.gathered([(carry.trained, carry.memory) for carry in trainer.carries])
    data = xr.Dataset(variables, coordinates, attributes)
    return Training(data, trained.parameters, memory, objective, trainer.step, trainer.seconds())


def _single(leaf: Any) -> np.ndarray:
    array = np.asarray(leaf)
    return array.astype(np.float32) if np.issubdtype(array.dtype, np.floating) else array


def _temperature(temperature: Any, num_steps: int) -> Taus | Learned:
    if isinstance(temperature, str):
        temperature = parse_temperature(temperature)
    return temperature if isinstance(temperature, Learned) else Taus(temperature, num_steps)


def _data(encoder: Architecture, data: Any, energy: Energy) -> np.ndarray:
    inputs = numbers("data", data, "one row per embedding")
    if not np.all(np.isfinite(inputs)):
        raise refuse("data", "NaN or infinite entries", "finite entries", "check where they come from")
    encoder.check(inputs)
    n, d = energy.shape
    if len(inputs) != n:
        raise refuse("data", f"{len(inputs)} rows", f"{n}, one for each embedding of the energy",
                     "row i is the input of embedding i")  # fmt: skip
    fixed = getattr(energy, "dim", d) is not None  # an energy built without dim takes any
    if fixed and d != encoder.dim:
        raise refuse("encoder", f"dim = {encoder.dim}", f"dim = {d}, as the energy", "build it with that dim")
    return inputs.astype(np.int32 if encoder.codes else np.float32)


def _check_optimizer(optimizer: Any) -> None:
    if not isinstance(optimizer, optax.GradientTransformation):
        raise refuse("optimizer", type(optimizer).__name__, "an optax.GradientTransformation",
                     "for example optax.adam(1e-3)")  # fmt: skip


def _check_objective(objective: Any) -> None:
    if not isinstance(objective, Objective):
        raise refuse("objective", type(objective).__name__, "an Objective", "see infonce_jax.encoders.Objective")
    if any(leaf is objective for leaf in jax.tree.leaves(objective)):
        raise refuse("objective", f"{type(objective).__name__}, which is no pytree", "a pytree of its data",
                     "register its class with jax.tree_util.register_dataclass")  # fmt: skip


def _devices(num_devices: Any) -> int:
    wanted, there = count("num_devices", num_devices), len(jax.local_devices())
    if wanted > there:
        raise InputError(f"num_devices: got {wanted}; needs 1 to {there}, the local devices; call "
                         "infonce_jax.use_all_cores() first to get one per core")  # fmt: skip
    return wanted
