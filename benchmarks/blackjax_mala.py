"""BlackJAX's MALA on the same energy, as its users write it: one inference loop under jit and vmap.

BlackJAX samples densities on R^N, so the chain moves y in R^(n x d) with log density -beta E(y/|y|) - d |y|^2/2, rows
normalised inside the energy. E does not depend on the radii, and the direction of a Gaussian vector is uniform and
independent of its length; hence y/|y| has exactly the law e^(-beta E) on the product of spheres. Without the radial
part the density could not be normalised and the radii would wander off; its scale puts them near 1, so that a step
turns the rows about as far as one of ours.

What is compared is the cost of a step, one energy with its gradient, and not statistical efficiency: MALA accepts or
rejects where geodesic Euler is biased by its step, and the radii cost it some of its way.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp

__all__ = ["blackjax_chains"]


def blackjax_chains(
    energy: Callable[[jax.Array], jax.Array], beta: float, step_size: float, steps: int
) -> Callable[..., tuple[jax.Array, jax.Array, jax.Array]]:
    """A compiled function (y, keys) -> (y, keys, mean energy over the steps), vmapped over chains.

    Args:
        energy: of one configuration with unit rows, shape (n, d).
        beta: inverse temperature.
        step_size: h in time units at radius 1; BlackJAX's own step is h/beta or less, as it follows grad log density.
        steps: per call.

    Raises:
        ImportError: BlackJAX is not installed.
    """
    import blackjax

    def radial(y: jax.Array) -> jax.Array:
        return y.shape[-1] * jnp.sum(y * y) / 2

    def log_density(y: jax.Array) -> jax.Array:
        x = y / jnp.linalg.norm(y, axis=-1, keepdims=True)
        return -beta * energy(x) - radial(y)

    def chain(y: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        # In N dimensions steps beyond N^(-1/3) are hardly ever accepted (Roberts and Rosenthal 1998); the constant is
        # that of a Gaussian with precision d, accepted every other time.
        step = min(step_size / beta, 1.6 * y.size ** (-1 / 3) / y.shape[-1])
        mala = blackjax.mala(log_density, step)

        def body(carry: tuple, key: jax.Array) -> tuple[tuple, None]:
            state, total = carry
            new, _ = mala.step(key, state)  # type: ignore[call-arg]
            value = -(state.logdensity + radial(state.position)) / beta  # the energy, not computed again
            return (new, total + value), None

        key, own = jax.random.split(key)
        start = mala.init(y)  # type: ignore[call-arg]
        (state, total), _ = jax.lax.scan(body, (start, jnp.float32(0)), jax.random.split(own, steps))
        return state.position, key, total / steps

    return jax.jit(jax.vmap(chain))
