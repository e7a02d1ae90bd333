"""CLIP: images and names of the same thing attract each other; encoders of both end on one sphere."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from infonce_jax.checks import numbers, refuse
from infonce_jax.encoders.architectures import Architecture, mlp
from infonce_jax.encoders.augmentations import Augmentation
from infonce_jax.encoders.data import batch_size_for, draw_batch, grey_images
from infonce_jax.encoders.objective import Views
from infonce_jax.energies.losses import clip as clip_loss

__all__ = ["CLIP", "GLYPH_VIEWS", "Towers", "bag_encoder", "clip", "glyph_encoder"]

_STATIC = {"static": True}

# Chosen by retrieval on a split of the training pairs, never on those held out (`Glyphs.for_tuning`): .34 against .335
# without any change (tau = .1, 800 steps).
GLYPH_VIEWS = Augmentation(shift=1.0)


class Towers(NamedTuple):
    """Parameters of the encoder of images and of that of names."""

    images: Any
    names: Any


def glyph_encoder() -> Architecture:
    """Dense layers 576-256-128-32 for images of 24 x 24 pixels."""
    return mlp((256, 128), 32)


def bag_encoder() -> Architecture:
    """Dense layers onto the same sphere as `glyph_encoder`, for names as bags of character trigrams.

    On a split of the training pairs it found .34 of the partners after 800 steps, at a third of what a step costs with
    a convolution along the characters (`text`), which was at .16 after 400.
    """
    return mlp((128,), 32)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class CLIP:
    """An `Objective`; see `clip`. The pairs are leaves, so other data of the same size do not recompile."""

    images: jax.Array
    names: jax.Array
    image_encoder: Architecture = dataclasses.field(metadata=_STATIC)
    name_encoder: Architecture = dataclasses.field(metadata=_STATIC)
    augmentation: Augmentation = dataclasses.field(metadata=_STATIC)
    batch_size: int = dataclasses.field(metadata=_STATIC)
    name: ClassVar[str] = "clip"

    @property
    def batch_log(self) -> float:
        """log(batch), the loss of collapsed encoders."""
        return math.log(self.batch_size)

    def init(self, key: jax.Array) -> tuple[Towers, tuple[()]]:
        """Parameters of both towers, and no memory."""
        first, second = jax.random.split(key)
        images = self.image_encoder.init(first, self.images[:1])
        return Towers(images, self.name_encoder.init(second, self.names[:1])), ()

    def loss(self, parameters: Towers, memory: Any, key: jax.Array, temperature: Any) -> tuple[jax.Array, Views]:
        """The symmetric loss of a batch of pairs drawn from the key: images are the anchors, names the positives."""
        draw, view = jax.random.split(key)
        rows = draw_batch(draw, len(self.images), self.batch_size)
        a, b = self.embed(parameters, self.augmentation.views(view, self.images[rows]), self.names[rows])
        return clip_loss(a, b, temperature), Views(a, b)

    def after(self, parameters: Towers, memory: Any, views: Views) -> Any:
        """Nothing to remember."""
        return memory

    def embed(self, parameters: Towers, images: Any, names: Any) -> tuple[jax.Array, jax.Array]:
        """Embeddings of images, as they are, and of names: unit rows, shapes (n, dim) and (m, dim)."""
        a = self.image_encoder.apply(parameters.images, images)
        return a, self.name_encoder.apply(parameters.names, names)


def clip(
    images: Any,
    names: Any,
    image_encoder: Architecture | None = None,
    name_encoder: Architecture | None = None,
    augmentation: Augmentation = GLYPH_VIEWS,
    batch_size: int = 128,
) -> CLIP:
    """CLIP on grey images and names; row i of both is a pair.

    Args:
        images: shape (n, height, width), grey values from 0 to 1.
        names: shape (n, ...), as the encoder of names takes them: `Glyphs.bags` for the default one, `Glyphs.names` for
            `text`.
        image_encoder: ends on the sphere; `glyph_encoder()` where it is None.
        name_encoder: ends on the same sphere; `bag_encoder()` where it is None.
        augmentation: how an image is changed each time it is drawn; names stay as they are.
        batch_size: pairs in a batch, drawn without replacement, from 2 to n.

    Raises:
        InputError: images of another shape or range, another number of names, encoders that end on different spheres,
            a batch larger than the data.

    Radford et al. 2021, figure 3.
    """
    images = grey_images("images", images)
    names = numbers("names", names)
    if len(names) != len(images):
        raise refuse("names", f"{len(names)} beside {len(images)} images", "as many", "row i of both is a pair")
    towers = image_encoder or glyph_encoder(), name_encoder or bag_encoder()
    if towers[0].dim != towers[1].dim:
        raise refuse("name_encoder", f"dim {towers[1].dim} beside {towers[0].dim} of image_encoder", "the same dim",
                     "both end on one sphere")  # fmt: skip
    batch_size = batch_size_for(len(images), batch_size)
    names = jnp.asarray(names, jnp.int32 if towers[1].codes else jnp.float32)
    return CLIP(images, names, *towers, augmentation, batch_size)
