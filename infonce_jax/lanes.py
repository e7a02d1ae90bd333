"""Many configurations side by side, as columns: one vector per scalar of a configuration, one lane per copy.

The bridge between pytrees with a leading lane axis, which people read, and the scalar code of `infonce_jax.unroll`,
which processors like.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from infonce_jax.unroll import as_entries, unroll

__all__ = ["from_columns", "lane_examples", "to_columns", "vectorise"]

Columns = tuple[jax.Array, ...]


def lane_examples(tree: Any) -> Any:
    """Shapes of one lane of a pytree whose leaves have a leading lane axis."""
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape[1:], a.dtype), tree)


def to_columns(tree: Any) -> Columns:
    """Leaves of shape (lanes, ...) as one vector (lanes,) per entry, in the order of the leaves."""
    flat = [leaf.reshape(leaf.shape[0], -1) for leaf in jax.tree.leaves(tree)]
    return tuple(block[:, j] for block in flat for j in range(block.shape[1]))


def from_columns(columns: Sequence[jax.Array], examples: Any) -> Any:
    """The inverse of `to_columns`, for leaves shaped like `examples` behind the lane axis."""
    lanes, rest = columns[0].shape[0], iter(columns)
    leaves, tree = jax.tree.flatten(examples)

    def rebuild(leaf: Any) -> jax.Array:
        entries = [next(rest) for _ in range(math.prod(leaf.shape))]
        if not entries:
            return jnp.zeros((lanes, *leaf.shape), leaf.dtype)
        return jnp.stack(entries, axis=-1).reshape(lanes, *leaf.shape)

    return tree.unflatten([rebuild(leaf) for leaf in leaves])


def vectorise(function: Callable[..., Any], examples: tuple[Any, ...], shared_examples: tuple[Any, ...]) -> Any:
    """Turn `function(*lane, *shared)` of one configuration into a function of columns.

    Args:
        function: array code; the first `len(examples)` arguments differ from lane to lane, the others are shared.
        examples: shapes of one lane's arguments.
        shared_examples: shapes of the shared arguments.

    Returns:
        `run(columns, *shared)` -> columns of the result, every one of shape (lanes,).

    Raises:
        CannotUnrollError: the code has no scalar form.
    """
    scalar = unroll(function, *examples, *shared_examples)
    leaves, tree = jax.tree.flatten(examples)

    def run(columns: Columns, *shared: Any) -> Columns:
        shared_entries = jax.tree.map(as_entries, shared)

        def one(entries: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
            rest = iter(entries)
            arguments = [as_entries(leaf.shape, [next(rest) for _ in range(math.prod(leaf.shape))]) for leaf in leaves]
            out = scalar(*tree.unflatten(arguments), *shared_entries)
            arrays = jax.tree.leaves(out, is_leaf=lambda leaf: isinstance(leaf, np.ndarray))
            return tuple(jnp.asarray(entry) for array in arrays for entry in array.ravel())

        # An output that no lane changes comes out of vmap as one number; broadcasting keeps the columns uniform.
        lanes = columns[0].shape
        return tuple(jnp.broadcast_to(c, lanes) for c in jax.vmap(one)(columns))

    return run
