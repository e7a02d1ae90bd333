"""What one would write first: jit(vmap(scan(step))) of the same dynamics, with jax.grad and jax.random."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

__all__ = ["plain_chains"]


def plain_chains(
    energy: Callable[[jax.Array], jax.Array], step_size: float
) -> Callable[..., tuple[jax.Array, jax.Array]]:
    """A compiled function (x, keys, betas) -> (final x, mean energy of the second half), vmapped over chains.

    Args:
        energy: scalar function of one configuration, shape (n, d).
        step_size: of geodesic Euler.
    """

    def chain(x: jax.Array, key: jax.Array, betas: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(x: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            beta, key = now
            value, gradient = jax.value_and_grad(energy)(x)
            v = jnp.sqrt(2 * step_size / beta) * jax.random.normal(key, x.shape) - step_size * gradient
            v = v - jnp.sum(v * x, axis=-1, keepdims=True) * x
            r = jnp.linalg.norm(v, axis=-1, keepdims=True)
            y = jnp.cos(r) * x + jnp.sinc(r / jnp.pi) * v
            return y / jnp.linalg.norm(y, axis=-1, keepdims=True), value

        x, values = jax.lax.scan(step, x, (betas, jax.random.split(key, len(betas))))
        return x, jnp.mean(values[len(betas) // 2 :])

    return jax.jit(jax.vmap(chain, in_axes=(0, 0, None)))
