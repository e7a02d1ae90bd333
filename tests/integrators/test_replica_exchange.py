"""Replica exchange: swaps as written down by hand, the law of every replica, and traps it leaves that others do not."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from numpy.polynomial import legendre

import infonce_jax as ij
from infonce_jax import noise
from infonce_jax.checks import InputError
from infonce_jax.integrators import Info, Integrator, State
from infonce_jax.noise import Noise

ZONAL = ij.energies.from_function(lambda x: -2 * jnp.sum(x[:, -1]), shape=(1, 3))


def random_points(count, n, d, seed):
    x = np.random.default_rng(seed).normal(size=(count, n, d))
    return (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32)


@functools.cache
def still():
    """A scheme that does not move, with its energy in the cache as MALA has it: only swaps are left."""
    return Integrator(
        "still", 1.0, lambda energy, x: State(x, energy, energy(x)),
        lambda state, normal, beta: (state, Info(state.cache, jnp.ones(()))),
    )  # fmt: skip


@pytest.mark.parametrize("size", [2, 3, 4, 5])
@pytest.mark.parametrize("swap_every", [1, 3])
def test_swaps_are_those_of_the_definition(size, swap_every):
    ratios = tuple(0.6**r for r in range(size))
    scheme, beta = ij.integrators.replica_exchange(still(), ratios, swap_every), 2.5
    points = random_points(size, 1, 3, size)
    state = scheme.init(ZONAL, jnp.asarray(points[0]))
    energies = -2 * points[:, 0, 2].astype(np.float64)
    state = state._replace(cache=state.cache._replace(hot=jnp.asarray(points[1:]), caches=jnp.float32(energies)))
    step = jax.jit(lambda s, u: scheme.step(s, Noise(jnp.zeros((size, 1, 3)), u), jnp.float32(beta)))
    order, swaps, tried, rng = list(range(size)), 0, 0, np.random.default_rng(3)
    for k in range(24):
        uniform = rng.uniform(size=scheme.uniforms).astype(np.float32)
        state, info = step(state, jnp.asarray(uniform))
        here = energies[order]
        chance = [min(1, np.exp(beta * (ratios[i] - ratios[i + 1]) * (here[i] - here[i + 1]))) for i in range(size - 1)]
        assert float(info.energy) == pytest.approx(here[0], abs=1e-6)
        assert float(info.acceptance) == pytest.approx(np.mean(chance), abs=1e-5)
        turn = 0 if size == 2 else k // swap_every % 2
        for j, i in enumerate(range(turn, size - 1, 2) if k % swap_every == 0 else ()):
            tried += 1
            if uniform[j] < chance[i]:
                order[i], order[i + 1], swaps = order[i + 1], order[i], swaps + 1
        np.testing.assert_array_equal(state.positions, points[order[0]])
        np.testing.assert_array_equal(state.cache.hot, points[order[1:]])
        np.testing.assert_array_equal(state.cache.caches, np.float32(energies[order]))
    assert 0 < swaps < tried


@pytest.mark.parametrize("inner", [ij.integrators.mala(0.03), ij.integrators.strang(0.1)], ids=lambda s: s.name)
def test_between_swaps_each_copy_takes_the_inner_step_at_its_own_temperature(inner):
    ratios, beta = (1.0, 0.5, 0.2), jnp.float32(3.0)
    scheme = ij.integrators.replica_exchange(inner, ratios)
    energy = ij.scenarios.ring(3).energy
    normal = np.random.default_rng(4).normal(size=(3, 3, 2)).astype(np.float32)
    own = np.array([0.2, 0.5, 0.8], np.float32)
    x = random_points(1, 3, 2, 5)[0]
    never = np.ones(1, np.float32)  # a swap needs a number below its chance
    uniform = np.concatenate([own, never]) if inner.needs_uniform else never
    state, _ = scheme.step(scheme.init(energy, jnp.asarray(x)), Noise(jnp.asarray(normal), jnp.asarray(uniform)), beta)
    got = np.concatenate([state.positions[None], state.cache.hot])
    for r, ratio in enumerate(ratios):
        noise = Noise(normal[r], own[r]) if inner.needs_uniform else normal[r]
        want = inner.step(inner.init(energy, jnp.asarray(x)), noise, beta * ratio)[0].positions
        np.testing.assert_allclose(got[r], want, atol=2e-6)
    assert len(np.unique(got[:, 0, 0])) == 3


def test_another_energy_renews_the_caches_and_keeps_the_hot_copies():
    first, second = (ij.scenarios.ring(3, temperature=t).energy for t in (0.5, 0.3))
    inner = ij.integrators.mala(0.1)
    scheme = ij.integrators.replica_exchange(inner, (1, 0.5, 0.2))
    draws = Noise(jnp.asarray(random_points(3, 3, 2, 6)), jnp.full(scheme.uniforms, 0.1))
    state = scheme.step(scheme.init(first, jnp.asarray(random_points(1, 3, 2, 7)[0])), draws, jnp.float32(1.0))[0]
    new = scheme.under(state, second)
    np.testing.assert_array_equal(new.positions, state.positions)
    np.testing.assert_array_equal(new.cache.hot, state.cache.hot)
    assert not np.array_equal(new.cache.hot[0], new.positions)
    assert int(new.cache.clock) == int(state.cache.clock) == 1
    for r, x in enumerate([state.positions, *state.cache.hot]):
        gradient, value = inner.init(second, x).cache
        np.testing.assert_allclose(new.cache.caches[0][r], gradient, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(new.cache.caches[1][r], value, rtol=1e-5)


def test_every_replica_has_its_gibbs_law_and_swaps_are_accepted_as_often_as_they_should_be():
    # 4096 chains on S^2, E = -2z, beta = 1 after 60 steps, started together; the slowest copy forgets at a rate above
    # 2 per unit of time. Three means and one acceptance, 4.5 standard errors each: false-alarm rate 3e-5.
    ratios, chains = (1.0, 0.5, 0.1), 4096
    scheme = ij.integrators.replica_exchange(ij.integrators.mala(0.4), ratios)
    state = jax.vmap(lambda x: scheme.init(ZONAL, x)._replace(energy=None))(random_points(chains, 1, 3, 8))
    keys = jnp.asarray(noise.chain_keys(9, np.arange(chains)))

    @jax.jit
    def run(state):
        def body(k, carry):
            state, _ = carry
            normal = noise.normals(keys, k, 9).T.reshape(chains, 3, 1, 3)
            uniform = noise.uniforms(keys, k, 9, count=scheme.uniforms[0]).T
            move = jax.vmap(lambda s, draws: scheme.step(s._replace(energy=ZONAL), draws, jnp.float32(1.0)))
            state, info = move(state, Noise(normal, uniform))
            return state._replace(energy=None), info.acceptance

        return jax.lax.fori_loop(0, 60, lambda k, c: body(jnp.uint32(k), c), (state, jnp.zeros(chains)))

    state, chance = run(state)
    z = np.concatenate([np.asarray(state.positions)[:, None], np.asarray(state.cache.hot)], axis=1)[:, :, 0, 2]
    nodes, weights = legendre.leggauss(200)
    laws = np.stack([weights * np.exp(2 * b * nodes) for b in ratios])
    laws /= laws.sum(axis=1, keepdims=True)
    for r, law in enumerate(laws):
        mean, square = law @ nodes, law @ nodes**2
        assert abs(z[:, r].mean() - mean) < 4.5 * np.sqrt((square - mean**2) / chains), r
    expected = np.mean([
        np.einsum("i,j,ij->", laws[r], laws[r + 1],
                  np.minimum(1, np.exp((ratios[r] - ratios[r + 1]) * -2 * (nodes[:, None] - nodes))))
        for r in range(2)
    ])  # fmt: skip
    chance = np.asarray(chance)
    assert 0.5 < expected < 0.95
    assert abs(chance.mean() - expected) < 4.5 * chance.std() / np.sqrt(chains)


def in_local_basin(x, energy):
    """Whether the angle lies between the saddles at -176.53 and -13.99 degrees."""
    angle = jnp.arctan2(x[0, 1], x[0, 0])
    return jnp.where((angle > np.deg2rad(-176.525455)) & (angle < np.deg2rad(-13.987553)), 1.0, 0.0)


@pytest.mark.parametrize("beta", [10.0, 20.0])
def test_it_leaves_the_trap_of_the_double_well_where_the_plain_scheme_does_not(beta):
    # 1024 chains from the local minimum, 3000 steps of .1: 300 units of time, relaxation times at beta = 10, 20 are 147
    # and 3134, in the hot copies a few. Averages over the second half; 5 standard errors: false-alarm rate 1e-6.
    scenario = ij.scenarios.double_well()
    circle = ij.theory.Circle(scenario.energy)
    theta = np.deg2rad(np.linspace(-176.525455, 183.474545, 20001))
    density = circle.stationary(beta, theta)
    width = theta[1] - theta[0]
    inside = theta < np.deg2rad(-13.987553)
    exact = np.sum(density[inside]) * width, np.sum(density[:-1] * circle.energy_at(theta[:-1])) * width
    start = np.deg2rad(-108.968789)
    watch = [
        ij.observers.average(in_local_basin, "local", skip_steps=1500),
        ij.observers.average(lambda x, energy: energy, "mean", skip_steps=1500),
        ij.observers.acceptance(),
    ]
    inner = ij.integrators.mala(0.1)
    exchange = ij.integrators.replica_exchange(inner, (1.0, 0.55, 0.3, 0.12))
    runs = [
        ij.run_chains(scenario.energy, ij.schedules.constant(beta), scheme, num_chains=1024, num_steps=3000, seed=11,
                      initial=[[np.cos(start), np.sin(start)]], observers=watch)
        for scheme in (inner, exchange)
    ]  # fmt: skip
    plain, swapped = (run.data for run in runs)
    for name, value in zip(("local", "mean"), exact, strict=True):
        found = swapped[name].values
        assert abs(found.mean() - value) < 5 * found.std() / np.sqrt(len(found)), name
    assert plain["local"].values.mean() > 0.15 + 10 * exact[0]
    assert 0.2 < swapped["acceptance"].values.mean() < 0.95


def test_the_numbers_that_decide_swaps_are_uniform_and_follow_the_normals():
    # Kolmogorov-Smirnov per row and over all, five tests: false-alarm rate 5e-7.
    keys = noise.chain_keys(7, np.arange(4096))
    u = np.asarray(noise.uniforms(keys, jnp.uint32(3), 9, count=5), np.float64)
    assert u.shape == (5, 4096)
    assert min(scipy.stats.kstest(row, "uniform").pvalue for row in u) > 1e-7
    assert np.max(np.abs(np.corrcoef(u) - np.eye(5))) < 5.5 / np.sqrt(4096)
    # The first is the one a step with a single number gets: counters run on after those of the normals.
    np.testing.assert_array_equal(u[0], np.asarray(noise.uniforms(keys, jnp.uint32(3), 9), np.float64))


MALA = ij.integrators.mala(0.1)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((None, (1, 0.5)), "inner"),
        ((ij.integrators.kinetic(0.1), (1, 0.5)), "inner"),
        ((ij.integrators.replica_exchange(MALA, (1, 0.5)), (1, 0.5)), "inner"),
        ((MALA, 0.5), "ratios"),
        ((MALA, "half"), "ratios"),
        ((MALA, (1,)), "ratios"),
        ((MALA, (0.9, 0.5)), "ratios"),
        ((MALA, (1, 1)), "ratios"),
        ((MALA, (1, 0.5, 0.7)), "ratios"),
        ((MALA, (1, 0)), "ratios"),
        ((MALA, (1, np.nan)), "ratios"),
        ((MALA, (1, 0.5), 0), "swap_every"),
        ((MALA, (1, 0.5), 1.5), "swap_every"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, named):
    with pytest.raises(InputError, match=rf"^{named}: got .+; needs .+; .+"):
        ij.integrators.replica_exchange(*arguments)


def test_one_ladder_is_one_object():
    assert ij.integrators.replica_exchange(MALA, [1, 0.5]) is ij.integrators.replica_exchange(MALA, (1.0, 0.5))
