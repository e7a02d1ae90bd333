"""What training minimises: a function of parameters that draws its own batch, and the simplest one of them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from infonce_jax.encoders.architectures import Architecture
from infonce_jax.energies import Energy

__all__ = ["FullBatch", "Objective", "Views"]

_STATIC = {"static": True}


class Views(NamedTuple):
    """Embeddings of one batch.

    Attributes:
        anchors: unit rows, shape (batch, dim).
        positives: shape (batch, dim); row i is a positive of anchor i, or the weighted mean of several (inside the
            sphere), or NaN where anchor i has none.
    """

    anchors: jax.Array
    positives: jax.Array


@runtime_checkable
class Objective(Protocol):
    """What training minimises; it draws its batch and its augmentations from a key, so a run is a function of keys.

    Write one as a frozen dataclass registered with `jax.tree_util.register_dataclass`: data as arrays (then they are
    arguments of the compiled program, not constants in it), choices as static fields.

    Attributes:
        name: for reports.
        batch_log: the loss where all similarities are equal, for example log(2N - 1) for NT-Xent of N pairs; NaN where
            there is no such number.
    """

    name: ClassVar[str]

    @property
    def batch_log(self) -> float: ...

    def init(self, key: jax.Array) -> tuple[Any, Any]:
        """Parameters, and memory: what no gradient reaches (a queue, a momentum encoder), () where there is none."""
        ...

    def loss(self, parameters: Any, memory: Any, key: jax.Array, temperature: jax.Array) -> tuple[jax.Array, Views]:
        """The loss of a batch drawn with `key`, and its views. Pure; the temperature is a traced scalar."""
        ...

    def after(self, parameters: Any, memory: Any, views: Views) -> Any:
        """The memory after the optimiser's step: momentum update, enqueue after the loss."""
        ...


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class FullBatch:
    """An energy of the embeddings of all data at once; nothing is drawn.

    Attributes:
        encoder: maps row i of the data to embedding i.
        data: shape (n, ...).
        energy: of a configuration of shape (n, dim).
        batch_log, name: as in `Objective`.
    """

    encoder: Architecture = dataclasses.field(metadata=_STATIC)
    data: Any
    energy: Energy
    batch_log: float = math.nan  # a leaf: its last digits depend on the weights, and must not compile anew
    name: ClassVar[str] = "full batch"

    @classmethod
    def of(cls, encoder: Architecture, data: Any, energy: Energy) -> FullBatch:
        """The objective with its `batch_log`."""
        return cls(encoder, data, energy, loss_of_equal_similarities(energy, encoder.dim))

    def init(self, key: jax.Array) -> tuple[Any, Any]:
        return self.encoder.init(key, self.data), ()

    def loss(self, parameters: Any, memory: Any, key: jax.Array, temperature: jax.Array) -> tuple[jax.Array, Views]:
        z = self.encoder.apply(parameters, self.data)
        energy = self.energy if _has_no_temperature(self.energy) else self.energy.with_temperature(temperature)
        return energy(z), Views(z, _mean_positives(self.energy, z))

    def after(self, parameters: Any, memory: Any, views: Views) -> Any:
        return memory


def _has_no_temperature(energy: Energy) -> bool:
    return getattr(energy, "temperature", None) is None


def _mean_positives(energy: Energy, z: jax.Array) -> jax.Array:
    """The mean of each anchor's positives by the weights of the energy's graph; NaN rows where it names none."""
    weights = getattr(energy, "positives", None)
    if weights is None:
        return jnp.full_like(z, jnp.nan)
    keys = getattr(energy, "keys", None)
    candidates = z if keys is None else jnp.concatenate([z, jnp.asarray(keys, z.dtype)])
    weights = jnp.asarray(weights, z.dtype)
    total = jnp.sum(weights, axis=1, keepdims=True)
    mean = jnp.matmul(weights, candidates, precision=jax.lax.Precision.HIGHEST) / jnp.where(total > 0, total, 1)
    return jnp.where(total > 0, mean, jnp.nan)


def loss_of_equal_similarities(energy: Energy, dim: int) -> float:
    """The energy where all embeddings coincide, if that is one number at every temperature; otherwise NaN.

    For InfoNCE whose weights sum to one in each row it is the sum over anchors of the log of their candidates: "the log
    of the batch". With frozen keys embeddings cannot be equally similar to all candidates.
    """
    if _has_no_temperature(energy) or getattr(energy, "keys", None) is not None:
        return math.nan
    with jax.enable_x64(True):
        together = jnp.asarray(np.eye(1, dim).repeat(energy.shape[0], axis=0))
        values = [float(_value(energy.with_temperature(tau), together)) for tau in (1.0, 2.0)]
    return values[0] if abs(values[0] - values[1]) <= 1e-5 * max(1.0, abs(values[0])) else math.nan


@jax.jit  # its operations one by one would each compile by themselves
def _value(energy: Energy, x: jax.Array) -> jax.Array:
    return energy(x)
