"""Encoders that end on the unit sphere: what a network looks like, apart from its parameters.

ReLU between the layers; weights start as N(0, 1/fan_in), biases at 0; everything is float32.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from infonce_jax.checks import count, refuse
from infonce_jax.energies.contrast import normalise

__all__ = ["Architecture", "conv", "mlp", "text"]


@dataclasses.dataclass(frozen=True)
class Architecture:
    """A network without its parameters; hashable, so that it can be a static argument of compiled code.

    Attributes:
        name: as a report prints it.
        dim: d of the sphere S^{d-1} that embeddings lie on.
        network: the class in `encoders.networks`.
        settings: its arguments, in order.
        axes: how many axes a batch of inputs may have.
        codes: inputs are whole numbers (text), not real ones.
    """

    name: str
    dim: int
    network: str
    settings: tuple[tuple[str, Any], ...]
    axes: tuple[int, ...] = (2,)
    codes: bool = False

    def init(self, key: jax.Array, example: Any) -> Any:
        """Fresh parameters, a pytree of dictionaries of float32 arrays.

        Args:
            key: a JAX random key; may be traced.
            example: a batch of inputs, or its `jax.ShapeDtypeStruct`; only its shape counts.

        Raises:
            InputError: a batch of another kind than this network takes.
        """
        from flax import nnx

        rngs = nnx.Rngs(params=key)
        return nnx.to_pure_dict(nnx.state(self._module(self.check(example), rngs), nnx.Param))

    def apply(self, parameters: Any, inputs: Any) -> jax.Array:
        """Embeddings as unit rows, shape (N, dim). Where the last layer gives exactly zero, so is the row.

        Args:
            parameters: of `init` for inputs of this shape.
            inputs: shape (N, ...).
        """
        module = self._merged(parameters, inputs)
        return normalise(module(self._array(inputs)))

    def features(self, parameters: Any, inputs: Any) -> jax.Array:
        """The last hidden layer, shape (N, width): the representation under the projection onto the sphere."""
        module = self._merged(parameters, inputs)
        return module.features(self._array(inputs))

    def num_parameters(self, example: Any) -> int:
        """How many numbers a network for such inputs has."""
        shapes = jax.eval_shape(lambda: self.init(jax.random.key(0), example))
        return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))

    def _module(self, shape: tuple[int, ...], rngs: Any) -> Any:
        from infonce_jax.encoders import networks

        return getattr(networks, self.network)(shape, self.dim, **dict(self.settings), rngs=rngs)

    def _merged(self, parameters: Any, inputs: Any) -> Any:
        from flax import nnx

        graph, state = _skeleton(self, self.check(inputs))
        state = jax.tree.map(lambda leaf: leaf, state)  # a copy: the one that is kept must not be written to
        nnx.replace_by_pure_dict(state, parameters)
        return nnx.merge(graph, state)

    def _array(self, inputs: Any) -> jax.Array:
        return jnp.asarray(inputs, jnp.int32 if self.codes else jnp.float32)

    def check(self, inputs: Any) -> tuple[int, ...]:
        """The shape of one input, out of a batch of them.

        Raises:
            InputError: the batch has another number of axes, or an empty one.
        """
        shape = tuple(np.shape(inputs))
        if len(shape) not in self.axes or min(shape[1:], default=0) < 1:
            kinds = {2: "(N, features)", 3: "(N, height, width)", 4: "(N, height, width, channels)"}
            wanted = "(N, length)" if self.codes else " or ".join(kinds[axes] for axes in self.axes)
            raise refuse("inputs", f"shape {shape}", f"shape {wanted}", f"{self.name} takes a batch of those")
        return shape[1:]


@functools.lru_cache(maxsize=256)  # building a module takes a millisecond or so, and `apply` is traced often
def _skeleton(architecture: Architecture, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """The graph of a module and its state without numbers."""
    from flax import nnx

    abstract = nnx.eval_shape(lambda: architecture._module(shape, nnx.Rngs(params=0)))
    return nnx.split(abstract, nnx.Param)


def mlp(widths: Sequence[int], dim: int) -> Architecture:
    """Dense layers with ReLU, then a linear one onto S^{dim-1}.

    Args:
        widths: of the hidden layers; () for a linear encoder.
        dim: d >= 2.

    Raises:
        InputError: a width below 1, dim below 2.

    >>> import jax, numpy as np
    >>> encoder = mlp((64, 64), 2)
    >>> parameters = encoder.init(jax.random.key(0), np.ones((8, 7)))
    >>> encoder.apply(parameters, np.ones((8, 7))).shape
    (8, 2)
    """
    widths, dim = _sizes("widths", widths), _dim(dim)
    name = f"mlp {'-'.join(map(str, (*widths, dim)))}"
    return Architecture(name, dim, "Perceptron", (("widths", widths),), axes=(2, 3, 4))


def conv(dim: int, channels: Sequence[int] = (16, 32), widths: Sequence[int] = (64,)) -> Architecture:
    """A small convolutional encoder for images such as 8 x 8 digits, onto S^{dim-1}.

    Args:
        dim: d >= 2.
        channels: of the 3 x 3 convolutions, each of stride 2; at least one.
        widths: of the dense layers after them; () for none.

    Raises:
        InputError: a size below 1, no convolution, dim below 2.
    """
    channels, widths, dim = _sizes("channels", channels), _sizes("widths", widths), _dim(dim)
    if not channels:
        raise refuse("channels", "()", "at least one convolution", "use mlp for an encoder without any")
    name = f"conv {'-'.join(map(str, channels))}, {'-'.join(map(str, (*widths, dim)))}"
    return Architecture(name, dim, "Convolutional", (("channels", channels), ("widths", widths)), axes=(3, 4))


def text(dim: int, vocabulary: int, channels: int = 64, window: int = 5, widths: Sequence[int] = (64,)) -> Architecture:
    """An encoder of short texts, rows of codes of characters, onto S^{dim-1}.

    Args:
        dim: d >= 2.
        vocabulary: how many codes there are, 0 (padding, at the end of a row) among them; at least 2.
        channels: of the convolution along the text.
        window: characters that it sees at once.
        widths: of the dense layers after the mean over the text; () for none.

    Raises:
        InputError: a size below 1, a vocabulary below 2, dim below 2.
    """
    widths, dim = _sizes("widths", widths), _dim(dim)
    settings = (("vocabulary", count("vocabulary", vocabulary, least=2)), ("channels", count("channels", channels)),
                ("window", count("window", window)), ("widths", widths))  # fmt: skip
    name = f"text {channels}, {'-'.join(map(str, (*widths, dim)))}"
    return Architecture(name, dim, "Text", settings, codes=True)


def _dim(dim: Any) -> int:
    return count("dim", dim, least=2, mend="the sphere S^0 is two points, nothing can move")


def _sizes(name: str, sizes: Any) -> tuple[int, ...]:
    if isinstance(sizes, str) or not isinstance(sizes, Sequence | np.ndarray):
        raise refuse(name, repr(sizes), "a sequence of whole numbers", "for example (64, 64)")
    return tuple(count(name, size, mend="for example (64, 64)") for size in sizes)
