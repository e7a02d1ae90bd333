"""Langevin noise on updates: its scale is exact, its temperature moves, its key is the seed's own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from infonce_jax import schedules
from infonce_jax.encoders.langevin import langevin, with_key
from tests.refusals import THREE_PARTS, message_of

N = 100_000


def quadratic(optimizer, steps, stiffness=1.0, start=0.0):
    """N independent coordinates after some steps on stiffness x^2/2."""

    def step(i, carry):
        x, state = carry
        gradient = stiffness * x
        updates, state = optimizer.update(gradient, state, x, grad=gradient)
        return optax.apply_updates(x, updates), state

    x = jnp.full(N, start)
    return np.asarray(jax.jit(lambda x: jax.lax.fori_loop(0, steps, step, (x, optimizer.init(x))))(x)[0], np.float64)


@pytest.mark.parametrize("step_size", [0.4, None])
def test_stationary_variance_with_the_bias_of_the_scheme(step_size):
    h, beta, k = 0.4, 4.0, 2.0
    # It starts from 1: at gradient zero there is no h to read off.
    x = quadratic(optax.chain(optax.sgd(h), langevin(beta, step_size)), 60, k, start=1.0)
    # .2083, against .125 without the bias; after 60 steps (1 - hk)^60 = 1e-42 is left of the start.
    wanted = 1 / (beta * k * (1 - h * k / 2))
    # Five standard errors of a variance and of a mean: false alarm 1e-6 each.
    assert abs(x.var() / wanted - 1) < 5 * np.sqrt(2 / N)
    assert abs(x.mean()) < 5 * np.sqrt(wanted / N)


def test_inverse_temperature_and_step_size_follow_their_schedules():
    beta, h = optax.linear_schedule(1.0, 9.0, 8), optax.linear_schedule(0.1, 0.3, 8)
    variance, mean = 0.0, 1.0
    for i in range(8):
        variance = (1 - float(h(i))) ** 2 * variance + 2 * float(h(i)) / float(beta(i))
        mean *= 1 - float(h(i))
    for size in (h, None):
        x = quadratic(optax.chain(optax.sgd(h), langevin(beta, size)), 8, start=1.0)
        # The first beta throughout would give 1.02 in the place of this .43. False alarm 1e-6 each.
        assert abs(x.var() / variance - 1) < 5 * np.sqrt(2 / N)
        assert abs(x.mean() - mean) < 5 * np.sqrt(variance / N)


def test_each_key_has_its_own_noise_and_each_step_too():
    optimizer = optax.chain(optax.sgd(0.1), langevin(1.0, 0.1), langevin(1.0, 0.1))
    x, zero = {"a": jnp.ones(3), "b": jnp.ones(3)}, {"a": jnp.zeros(3), "b": jnp.zeros(3)}

    def two(key):
        state = with_key(optimizer.init(x), key)
        first, state = optimizer.update(zero, state, x)
        second, _ = optimizer.update(zero, state, x)
        return first["a"], first["b"], second["a"], second["b"]

    drawn = np.stack(jax.vmap(two)(jax.random.split(jax.random.key(0), 5)), axis=1)  # (seeds, which, 3)
    assert len(np.unique(drawn)) == drawn.size
    np.testing.assert_array_equal(drawn, np.stack(jax.vmap(two)(jax.random.split(jax.random.key(0), 5)), axis=1))


def test_two_noises_of_a_chain_are_independent():
    state = with_key(optax.chain(langevin(1.0, 0.1), langevin(1.0, 0.1)).init(jnp.ones(1)), jax.random.key(0))
    assert not np.array_equal(state[0].key, state[1].key)


BAD = {
    "beta": lambda: langevin(0.0),
    "step size": lambda: langevin(1.0, -0.1),
    "a schedule of time": lambda: langevin(schedules.constant(1.0)),  # type: ignore[arg-type]
    "neither step size nor gradient": lambda: langevin(1.0).update(jnp.ones(2), langevin(1.0).init(jnp.ones(2))),
    "seed": lambda: langevin(1.0, seed=-1),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_in_one_line(name):
    assert THREE_PARTS.fullmatch(message_of(BAD[name]))
