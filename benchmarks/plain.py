"""What one would write first: jit(vmap(scan(step))) of the same dynamics, with jax.grad and jax.random.

Nothing here comes from the package, the energy included, so agreement of the two is agreement of two programs.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

from benchmarks.systems import System

__all__ = ["plain_chains", "plain_energy", "plain_step"]

Step = Callable[[jax.Array, jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


def plain_energy(system: System) -> Callable[[jax.Array], jax.Array]:
    """The energy of one configuration, shape (n, d).

    The exponents are at most 1/tau = 5 here, so no row maximum is subtracted: of the ways to write this that were tried
    none is faster under vmap.
    """

    def energy(x: jax.Array) -> jax.Array:
        s = x @ jnp.concatenate([x, system.keys]).T / system.temperature
        return jnp.sum(jnp.log(jnp.sum(system.counts * jnp.exp(s), axis=1))) - jnp.sum(system.positives * s)

    return energy


def plain_step(energy: Callable[[jax.Array], jax.Array], step_size: float) -> Step:
    """Geodesic Euler: (x, noise, beta) -> (new x, energy at x), for one chain, x and noise of shape (n, d)."""

    def step(x: jax.Array, noise: jax.Array, beta: jax.Array) -> tuple[jax.Array, jax.Array]:
        value, gradient = jax.value_and_grad(energy)(x)
        v = jnp.sqrt(2 * step_size / beta) * noise - step_size * gradient
        v = v - jnp.sum(v * x, axis=-1, keepdims=True) * x
        r = jnp.linalg.norm(v, axis=-1, keepdims=True)
        y = jnp.cos(r) * x + jnp.sinc(r / jnp.pi) * v
        return y / jnp.linalg.norm(y, axis=-1, keepdims=True), value

    return step


def plain_chains(step: Step) -> Callable[..., tuple[jax.Array, jax.Array, jax.Array]]:
    """A compiled function (x, keys, betas) -> (x, keys, mean energy over the steps), vmapped over chains.

    The mean is carried along: stacked outputs of a scan would cost the plain version more.
    """

    def chain(x: jax.Array, key: jax.Array, betas: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        def body(carry: tuple[jax.Array, jax.Array], now: tuple[jax.Array, jax.Array]) -> tuple[tuple, None]:
            (x, total), (beta, key) = carry, now
            x, value = step(x, jax.random.normal(key, x.shape), beta)
            return (x, total + value), None

        key, own = jax.random.split(key)
        (x, total), _ = jax.lax.scan(body, (x, jnp.float32(0)), (betas, jax.random.split(own, len(betas))))
        return x, key, total / len(betas)

    return jax.jit(jax.vmap(chain, in_axes=(0, 0, None)))
