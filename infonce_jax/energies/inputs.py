"""What every loss of embeddings asks of its arguments: checked shapes, one dtype, unit rows, numbers within bounds."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from infonce_jax.checks import finite, refuse
from infonce_jax.energies.base import check_temperature
from infonce_jax.energies.contrast import normalise, similarities

__all__ = ["embedding_pair", "embedding_rows", "number", "scale", "two_views"]


def embedding_rows(name: str, value: Any, least: int = 1) -> jax.Array:
    """A float array of shape (n, d) with n >= `least`, otherwise an InputError."""
    try:
        x = jnp.asarray(value)
    except (TypeError, ValueError):
        raise refuse(name, type(value).__name__, "a rectangular array of numbers, shape (n, d)",
                     "one row per embedding, all of one length") from None  # fmt: skip
    if jnp.issubdtype(x.dtype, jnp.integer):
        x = x.astype(float)
    if not jnp.issubdtype(x.dtype, jnp.floating):
        raise refuse(name, f"dtype {x.dtype}", "real numbers", "convert it to float32")
    if x.ndim != 2 or x.shape[1] < 1:
        raise refuse(name, f"shape {x.shape}", "shape (n, d)", "one row per embedding; use jax.vmap for many batches")
    if x.shape[0] < least:
        mend = "add rows, the others are the negatives" if least > 1 else "pass at least one row"
        raise refuse(name, f"{x.shape[0]} row{'s' * (x.shape[0] != 1)}", f"at least {least}", mend)
    return x


def embedding_pair(
    a: Any, b: Any, least: int = 2, *, names: tuple[str, str] = ("a", "b"), unit: bool = True
) -> tuple[jax.Array, jax.Array]:
    """Two arrays of one shape (n, d) and one dtype, row i of both belonging together; unit rows unless told not to."""
    a, b = embedding_rows(names[0], a, least), embedding_rows(names[1], b, least)
    if a.shape != b.shape:
        raise refuse(names[1], f"shape {b.shape} beside {names[0]} of shape {a.shape}", "the same shape twice",
                     f"row i of {names[0]} and row i of {names[1]} belong together")  # fmt: skip
    common = jnp.promote_types(a.dtype, b.dtype)
    a, b = a.astype(common), b.astype(common)
    return (normalise(a), normalise(b)) if unit else (a, b)


def two_views(a: Any, b: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """All 2n views of a pair: cosines, the positive of each anchor and its candidates, each of shape (2n, 2n)."""
    a, b = embedding_pair(a, b)
    n = a.shape[0]
    z = jnp.concatenate([a, b])
    eye = jnp.eye(2 * n, dtype=z.dtype)
    return similarities(z, z), jnp.roll(eye, n, axis=1), 1 - eye


def scale(temperature: Any, like: jax.Array) -> jax.Array:
    """The checked temperature in the dtype of `like`, so that it never widens a float32 loss."""
    if np.shape(temperature) != ():
        raise refuse("temperature", f"shape {np.shape(temperature)}", "one number", "use jax.vmap for many")
    return jnp.asarray(check_temperature(temperature), like.dtype)


def number(
    name: str, value: Any, *, above: float = -math.inf, least: float = -math.inf, below: float = math.inf
) -> Any:
    """A float within its bounds; a traced value passes through, since nothing is known of it yet."""
    if isinstance(value, Tracer):
        return value
    x = finite(name, value)
    bounds = (("above", above, x > above), ("at least", least, x >= least), ("below", below, x < below))
    if not all(kept for _, _, kept in bounds):
        needed = " and ".join(f"{word} {bound:g}" for word, bound, _ in bounds if math.isfinite(bound))
        raise refuse(name, f"{x:g}", f"a number {needed}", "the docstring has its place in the formula")
    return x
