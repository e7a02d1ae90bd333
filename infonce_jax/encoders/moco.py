"""MoCo: views attract the views that a slow copy of the encoder makes, and are repelled by a queue of older ones."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from infonce_jax.checks import count, finite, refuse
from infonce_jax.encoders.architectures import Architecture
from infonce_jax.encoders.augmentations import Augmentation
from infonce_jax.encoders.data import batch_size_for, draw_batch, grey_images
from infonce_jax.encoders.objective import Views
from infonce_jax.encoders.simclr import DIGIT_VIEWS, digit_encoder
from infonce_jax.energies.losses import info_nce_queue
from infonce_jax.sphere import project

__all__ = ["MoCo", "MoCoMemory", "moco"]

_STATIC = {"static": True}


class MoCoMemory(NamedTuple):
    """What no gradient reaches.

    Attributes:
        slow: parameters of the slow encoder.
        queue: the last keys, shape (queue_size, d), unit rows; random ones until the first lap is over.
        position: the row that the next key overwrites, the oldest; an integer.
    """

    slow: Any
    queue: jax.Array
    position: jax.Array


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class MoCo:
    """An `Objective`; see `moco`. Images and momentum are leaves, so that others do not recompile."""

    images: jax.Array
    momentum: Any
    encoder: Architecture = dataclasses.field(metadata=_STATIC)
    augmentation: Augmentation = dataclasses.field(metadata=_STATIC)
    batch_size: int = dataclasses.field(metadata=_STATIC)
    queue_size: int = dataclasses.field(metadata=_STATIC)
    name: ClassVar[str] = "moco"

    @property
    def batch_log(self) -> float:
        """log(1 + queue), the loss of a collapsed encoder."""
        return math.log(1 + self.queue_size)

    def init(self, key: jax.Array) -> tuple[Any, MoCoMemory]:
        """Parameters, the slow encoder equal to the fast one, and a queue of random unit rows."""
        weights, rows = jax.random.split(key)
        parameters = self.encoder.init(weights, self.images[:1])
        dim = jax.eval_shape(self.encoder.apply, parameters, self.images[:1]).shape[-1]
        queue = project(jax.random.normal(rows, (self.queue_size, dim)))
        return parameters, MoCoMemory(parameters, queue, jnp.zeros((), jnp.int32))

    def loss(self, parameters: Any, memory: MoCoMemory, key: jax.Array, temperature: Any) -> tuple[jax.Array, Views]:
        """InfoNCE of the batch's queries against their keys and the queue, which does not yet hold these keys."""
        draw, view = jax.random.split(key)
        batch = self.images[draw_batch(draw, len(self.images), self.batch_size)]
        first, second = self.augmentation.two_views(view, batch)
        queries = self.encoder.apply(parameters, first)
        keys = jax.lax.stop_gradient(self.encoder.apply(memory.slow, second))
        return info_nce_queue(queries, keys, memory.queue, temperature), Views(queries, keys)

    def after(self, parameters: Any, memory: MoCoMemory, views: Views) -> MoCoMemory:
        """The slow encoder a step nearer to the fast one, and the keys in the places of the oldest."""
        share = 1 - self.momentum
        slow = jax.tree.map(lambda old, new: old + share * (new - old), memory.slow, parameters)
        # A ring: keys are written over the oldest, nothing is shifted (openxla issue 49176).
        places = (memory.position + jnp.arange(self.batch_size)) % self.queue_size
        queue = memory.queue.at[places].set(views.positives, unique_indices=True, mode="promise_in_bounds")
        return MoCoMemory(slow, queue, (memory.position + self.batch_size) % self.queue_size)


def moco(
    images: Any,
    encoder: Architecture | None = None,
    augmentation: Augmentation = DIGIT_VIEWS,
    batch_size: int = 128,
    queue_size: int = 512,
    momentum: float = 0.99,
) -> MoCo:
    """MoCo on grey images, without labels.

    The queue should hold fewer keys than there are images: what is still in it when its image is drawn again is a
    negative of its own image.

    Args:
        images: shape (n, height, width), grey values from 0 to 1.
        encoder: ends on the sphere; `digit_encoder()` where it is None.
        augmentation: how a view differs from its image.
        batch_size: images in a batch, drawn without replacement, from 1 to n.
        queue_size: keys kept, at least batch_size; it need not be a multiple of it.
        momentum: share of the slow encoder that stays at each step, from 0 (a copy of the fast one) to below 1.

    Raises:
        InputError: images of another shape or range, a batch larger than the data or the queue, another momentum.

    He et al. 2020, algorithm 1.
    """
    images = grey_images("images", images)
    batch_size = batch_size_for(len(images), batch_size, least=1)
    queue_size = count("queue_size", queue_size)
    if queue_size < batch_size:
        raise refuse("queue_size", queue_size, f"at least {batch_size}", "the queue holds one batch or more")
    momentum = finite("momentum", momentum)
    if not 0 <= momentum < 1:
        raise refuse("momentum", f"{momentum:g}", "a number from 0 to below 1", "for example 0.99")
    return MoCo(images, momentum, encoder or digit_encoder(), augmentation, batch_size, queue_size)
