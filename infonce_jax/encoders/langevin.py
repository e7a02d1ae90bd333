"""Langevin noise on the updates of any optax optimiser, with its own inverse temperature."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from infonce_jax.checks import count, positive, refuse
from infonce_jax.schedules import Schedule

__all__ = ["LangevinState", "langevin", "with_key"]


class LangevinState(NamedTuple):
    """State of `langevin`.

    Attributes:
        key: two uint32 words of a threefry key; plain numbers, so that a checkpoint can hold them.
        count: updates made.
        step_size: h of the last update whose gradient was not zero.
    """

    key: jax.Array
    count: jax.Array
    step_size: jax.Array


def langevin(
    inverse_temperature: float | Callable[[Any], Any],
    step_size: float | Callable[[Any], Any] | None = None,
    seed: int = 0,
) -> optax.GradientTransformationExtraArgs:
    """Add Langevin noise to updates: u becomes u + sqrt(2 h/beta) xi, for an update u = -h g of gradient descent.

    Put it last in a chain: with `optax.sgd(h)` before it, parameters follow the Euler scheme of dx = -grad dt +
    sqrt(2/beta) dB with time step h (Welling and Teh 2011). On the quadratic k x^2/2 its stationary variance is
    1/(beta k (1 - h k/2)), of which 1/(beta k) is that of the diffusion.

    The noise has to know h. Given as `step_size`, it is that number or schedule, which must be the one of the chain.
    Left out, it is read off each update as the h for which -h g comes closest to u; that is exact for `optax.sgd`, also
    with a schedule. Behind a preconditioner such as Adam it is the mean step, and the result has no known stationary
    law. Where the gradient is exactly zero, the last h holds.

    Args:
        inverse_temperature: beta > 0, or an optax schedule of it: a traceable function of the count of updates.
        step_size: h > 0, or an optax schedule of it, or None.
        seed: of the noise; `optimise` and `train` put a key of their own in its place, another for each seed.

    Returns:
        A transformation; without `step_size` its `update` needs the gradient as `grad=`, which `optimise` passes.

    Raises:
        InputError: beta or h not positive, a schedule of `infonce_jax.schedules` (a function of time on the host).

    >>> import optax
    >>> optimizer = optax.chain(optax.sgd(0.1), langevin(4.0))
    """
    beta = _schedule("inverse_temperature", inverse_temperature)
    size = None if step_size is None else _schedule("step_size", step_size)
    words = np.asarray(jax.random.key_data(jax.random.key(count("seed", seed, least=0))))

    def init(params: Any) -> LangevinState:
        return LangevinState(jnp.asarray(words), jnp.zeros((), jnp.int32), jnp.zeros((), jnp.float32))

    def update(
        updates: Any, state: Any, params: Any = None, *, grad: Any = None, **_: Any
    ) -> tuple[Any, LangevinState]:
        h = _read_off(updates, grad, state.step_size) if size is None else jnp.asarray(size(state.count), jnp.float32)
        scale = jnp.sqrt(2 * h / beta(state.count))
        key = jax.random.fold_in(jax.random.wrap_key_data(state.key, impl="threefry2x32"), state.count)
        leaves, tree = jax.tree.flatten(updates)
        keys = jax.random.split(key, len(leaves))
        noisy = [u + scale.astype(u.dtype) * jax.random.normal(k, u.shape, u.dtype)
                 for u, k in zip(leaves, keys, strict=True)]  # fmt: skip
        return tree.unflatten(noisy), LangevinState(state.key, state.count + 1, h)

    return optax.GradientTransformationExtraArgs(init, update)


def _schedule(name: str, value: Any) -> Callable[[Any], Any]:
    if isinstance(value, Schedule):
        raise refuse(name, f"the schedule {value.name} of time", "a number or an optax schedule of the count",
                     "write it as a function of the count with jax.numpy")  # fmt: skip
    if callable(value):
        return value
    number = positive(name, value)
    return lambda count: number


def _read_off(updates: Any, grad: Any, last: jax.Array) -> jax.Array:
    """The h that minimises |u + h g|^2, or the last one where g = 0."""
    if grad is None:
        raise refuse("langevin", "neither step_size nor grad", "one of them, to know the scale of the noise",
                     "pass step_size to langevin, or grad=gradient to update")  # fmt: skip
    pairs = list(zip(jax.tree.leaves(updates), jax.tree.leaves(grad), strict=True))
    along = sum(jnp.sum(u * g) for u, g in pairs)
    square = sum(jnp.sum(g * g) for _, g in pairs)
    there = jnp.asarray(square > 0)
    return jnp.where(there, jnp.maximum(-along / jnp.where(there, square, 1.0), 0.0), last).astype(jnp.float32)


def with_key(state: Any, key: jax.Array) -> Any:
    """An optimiser's state in which every Langevin noise draws from a key of its own, derived from `key`.

    Args:
        state: of any optax chain.
        key: a JAX random key; may be traced.
    """
    place = iter(range(2**31))

    def keyed(node: Any) -> Any:
        if not isinstance(node, LangevinState):
            return node
        return node._replace(key=jax.random.key_data(jax.random.fold_in(key, next(place))))

    return jax.tree.map(keyed, state, is_leaf=lambda node: isinstance(node, LangevinState))
