"""What tells how a training goes: numbers on the way, and what went wrong in words."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from infonce_jax.encoders.objective import Views
from infonce_jax.energies import non_contrastive

__all__ = ["alignment", "flags", "gradient_norm", "uniformity"]

# Embeddings whose uniformity is above this have collapsed: for near points it is -2 mean |z_i - z_j|^2, so they lie
# within .16 of each other, typically.
_COLLAPSED = -0.05
# A loss within this share of the log of the batch equals it: nothing has been told apart.
_AT_LOG = 0.01


def alignment(views: Views) -> jax.Array:
    """How close anchors are to their positives: mean of |a - p|^2 = 2 - 2 <a, p>, over the anchors that have any.

    A positive that is a weighted mean of several unit rows gives the weighted mean of their squared distances. NaN
    where no anchor has a positive. (Wang and Isola 2020, section 4.1.)
    """
    return jnp.nanmean(2 - 2 * jnp.sum(views.anchors * views.positives, axis=-1))


def uniformity(views: Views) -> jax.Array:
    """log mean_{i<j} exp(-2 |a_i - a_j|^2) of the anchors: 0 where they coincide, lower the more evenly they spread.

    (Wang and Isola 2020, section 4.1.) NaN for a single anchor.
    """
    if views.anchors.shape[0] < 2:
        return jnp.full((), jnp.nan, views.anchors.dtype)
    return non_contrastive.uniformity(views.anchors)


def gradient_norm(gradient: Any) -> jax.Array:
    """Euclidean norm over all entries of a pytree."""
    return jnp.sqrt(sum((jnp.sum(leaf * leaf) for leaf in jax.tree.leaves(gradient)), jnp.zeros(())))


def flags(data: xr.Dataset) -> tuple[str, ...]:
    """What a reader should know of how a training ended, one sentence each; empty where there is nothing.

    Args:
        data: `Training.data`.
    """
    last = data.isel(step=-1)
    step, seeds = int(last["step"]), int(data.sizes["seed"])
    spread, loss = np.asarray(last["uniformity"], float), np.asarray(last["loss"], float)
    found = []
    collapsed = spread > _COLLAPSED
    if collapsed.any():
        found.append(f"collapse: at step {step} all embeddings lie together in {int(collapsed.sum())} of {seeds} seeds "
                     f"(uniformity {_range(spread[collapsed])}, where 0 is one point)")  # fmt: skip
    log = float(data.attrs.get("batch_log", math.nan))
    at_log = np.abs(loss - log) <= _AT_LOG * abs(log)
    if at_log.any():
        tau = np.asarray(last["temperature"], float)[at_log]
        cause = (
            "the encoder has collapsed"
            if collapsed[at_log].all()
            else f"tau = {_range(tau)} is too high for the loss to tell embeddings apart, or nothing was learned"
        )
        found.append(f"the loss equals the log of the batch: {_range(loss[at_log])} at step {step} against {log:.4g} "
                     f"in {int(at_log.sum())} of {seeds} seeds; {cause}")  # fmt: skip
    return tuple(found)


def _range(values: np.ndarray) -> str:
    low, high = f"{values.min():.4g}", f"{values.max():.4g}"
    return low if low == high else f"{low} to {high}"
