"""Replica exchange (parallel tempering): hot copies find the valleys, swaps hand them to the cold one."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from infonce_jax.checks import count, positive, refuse
from infonce_jax.energies.base import Energy
from infonce_jax.integrators.protocol import Info, Integrator, State, metropolis
from infonce_jax.noise import Noise

__all__ = ["Ladder", "replica_exchange"]


class Ladder(NamedTuple):
    """What a chain carries besides its cold positions.

    Attributes:
        hot: positions of the other replicas, from cold to hot, shape (R - 1, n, d).
        caches: those of the inner scheme, leading axis R, the cold one first.
        clock: steps since the first of the two kinds of swap, int32, between 0 and the period.
    """

    hot: jax.Array
    caches: Any
    clock: jax.Array


def replica_exchange(inner: Integrator, ratios: Sequence[float], swap_every: int = 1) -> Integrator:
    """Parallel tempering: R copies of a chain at inverse temperatures beta(t) ratios[r], with swaps of neighbours.

    Replica 0 is the cold one: `State.positions`, what observers see, follows the schedule. The others live in the cache
    and start from the same positions. Every `swap_every` steps, before the copies move, neighbouring replicas i, j are
    exchanged with probability min(1, exp((b_i - b_j)(E_i - E_j))): the pairs (0, 1), (2, 3), ... and (1, 2), (3, 4),
    ... take turns. (Swendsen and Wang 1986; Geyer 1991; fixed turns: Okabe et al. 2001.) At constant beta the
    stationary law is the product of the Gibbs laws, exact where the inner scheme is (`mala`, `hmc`). The path of the
    cold replica jumps, so its passage times are those of a sampler, not of the Langevin equation.

    `Info.acceptance` is the mean, over all R - 1 neighbouring pairs, of the probability that a swap is accepted,
    at every step, whether one is tried or not; aim at .2 to .6 on average. The inner scheme's own acceptance
    is not reported: tune it alone first.

    A step costs R inner steps and R energies (the inner step's own, where it caches none and the system runs as
    scalars).

    Args:
        inner: the scheme of each copy, one whose state is its positions (not `kinetic`: momenta belong to a
            temperature, nor another exchange).
        ratios: R >= 2 multiples of beta(t), falling from 1 to above 0, for example (1, .5, .25).
        swap_every: steps between swaps, at least 1.

    Raises:
        InputError: an inner scheme that carries more than positions, ratios that do not fall from 1, a bad interval.
    """
    if not isinstance(inner, Integrator):
        raise refuse("inner", type(inner).__name__, "an Integrator", "for example integrators.mala(0.1)")
    if inner.retemper is not None:
        raise refuse("inner", inner.name, "a scheme whose state is its positions", "for example integrators.mala(0.1)")
    return _scheme(inner, _ladder(ratios), count("swap_every", swap_every, mend="steps between swaps, for example 1"))


def _ladder(ratios: Any) -> tuple[float, ...]:
    mend = "multiples of the inverse temperature, for example (1, 0.5, 0.25)"
    try:
        plain = not isinstance(ratios, str) and np.ndim(ratios) == 1
    except ValueError:  # rows of unequal length
        plain = False
    if not plain:
        raise refuse("ratios", repr(ratios), "a list of numbers", mend)
    ladder = tuple(positive("ratios", ratio, mend) for ratio in ratios)
    falling = all(hot < cold for cold, hot in itertools.pairwise(ladder))
    if len(ladder) < 2 or ladder[0] != 1 or not falling:
        raise refuse("ratios", ladder, "two or more numbers that fall from 1", mend)
    return ladder


def _exchange(array: jax.Array, swapped: jax.Array) -> jax.Array:
    """`array`, shape (R, ...), with entries r and r + 1 exchanged where swapped[r]; no two neighbours are."""
    place, never = np.arange(array.shape[0]), jnp.zeros(1, bool)
    above, below = (
        jnp.concatenate(parts).reshape(-1, *[1] * (array.ndim - 1)) for parts in ([swapped, never], [never, swapped])
    )
    next_up, next_down = array[np.minimum(place + 1, place[-1])], array[np.maximum(place - 1, 0)]
    return jnp.where(above, next_up, jnp.where(below, next_down, array))


@functools.cache  # the same scheme twice compiles once
def _scheme(inner: Integrator, ratios: tuple[float, ...], swap_every: int) -> Integrator:
    size = len(ratios)
    pairs = np.arange(size - 1)
    period = swap_every * min(2, size - 1)  # two replicas have one pair, which need not wait for others
    moves = 0 if inner.uniforms is None else size  # uniform numbers that go to the copies; the others decide swaps

    def replicas(energy: Energy, positions: jax.Array, clock: jax.Array) -> State:
        caches = jax.vmap(lambda x: inner.init(energy, x).cache)(positions)
        return State(positions[0], energy, Ladder(positions[1:], caches, clock))

    def init(energy: Energy, positions: jax.Array) -> State:
        return replicas(energy, jnp.broadcast_to(positions, (size, *positions.shape)), jnp.zeros((), jnp.int32))

    def retemper(state: State, energy: Energy) -> State:
        return replicas(energy, jnp.concatenate([state.positions[None], state.cache.hot]), state.cache.clock)

    def step(state: State, noise: Noise, beta: jax.Array) -> tuple[State, Info]:
        energy, (hot, caches, clock) = state.energy, state.cache
        assert energy is not None
        x = jnp.concatenate([state.positions[None], hot])
        b = beta * jnp.asarray(ratios, x.dtype)
        values = jax.vmap(lambda y: energy(y))(x)
        acceptance = metropolis((b[:-1] - b[1:]) * (values[:-1] - values[1:]))
        turn = clock == jnp.asarray(pairs % 2 * swap_every, jnp.int32)
        swapped = turn & (noise.uniform[moves + pairs // 2] < acceptance)

        # Copies that swap exchange their temperatures before they move and their places after: the energies that
        # decide are then those the inner step computes anyway.
        def move(y: jax.Array, cache: Any, own: Any, at: jax.Array) -> tuple[jax.Array, Any]:
            new, _ = inner.step(State(y, energy, cache), own, at)
            return new.positions, new.cache

        own = Noise(noise.normal, noise.uniform[:size]) if moves else noise.normal
        moved = jax.vmap(move)(x, caches, own, _exchange(b, swapped))
        x, caches = jax.tree.map(lambda leaf: _exchange(leaf, swapped), moved)
        later = jnp.where(clock == period - 1, 0, clock + 1).astype(jnp.int32)
        return State(x[0], energy, Ladder(x[1:], caches, later)), Info(values[0], jnp.mean(acceptance))

    return Integrator(
        f"exchange of {size} replicas, {inner.name}", inner.step_size, init, step,
        normals=(size,), uniforms=(moves + size // 2,), retemper=retemper,
    )  # fmt: skip
