"""The plain version and the other implementations make the steps they claim to."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import infonce_jax as ij
from benchmarks.plain import plain_energy, plain_step
from benchmarks.systems import BETA, SHAPES, System, system


@pytest.mark.parametrize("shape", SHAPES[:-1])
def test_plain_energy_is_the_energy(shape):
    what = system(*shape)
    x = what.uniform(3, seed=1)
    mine = [float(what.energy(row)) for row in x]
    assert [float(plain_energy(what)(row)) for row in x] == pytest.approx(mine, rel=2e-6)


@pytest.mark.parametrize("shape", SHAPES[:4])
def test_plain_step_is_the_step(shape):
    what = system(*shape)
    x = what.uniform(1, seed=2)[0]
    noise = np.random.default_rng(3).normal(size=x.shape).astype(np.float32)
    scheme = ij.integrators.geodesic_euler(what.step_size)
    ours = jax.jit(lambda x: scheme.step(scheme.init(what.energy, x), noise, BETA))
    plain = jax.jit(plain_step(plain_energy(what), what.step_size))
    (new, info), (y, value) = ours(x), plain(x, noise, BETA)
    np.testing.assert_allclose(y, new.positions, atol=1e-6)
    assert float(value) == pytest.approx(float(info.energy), rel=2e-6)
    assert np.abs(np.asarray(y) - x).max() > 0.01  # it moves


def test_shapes_that_are_no_system_are_refused():
    with pytest.raises(ij.InputError, match="single query with keys is on the circle"):
        system(1, 3)
    with pytest.raises(ij.InputError, match="at least three views"):
        system(2, 2)


def test_blackjax_density_has_the_gibbs_law_in_its_directions():
    # The log density may depend on the radii only through a part of its own.
    pytest.importorskip("blackjax")
    from benchmarks.blackjax_mala import blackjax_chains

    what = system(5, 2)
    y, key = jnp.asarray(what.uniform(1, seed=4)), jax.random.split(jax.random.key(0), 1)
    energy = plain_energy(what)
    stretched, _, mean = blackjax_chains(energy, BETA, 1e-9, 1)(2 * y, key)
    assert float(mean[0]) == pytest.approx(float(energy(y[0])), rel=1e-4)
    np.testing.assert_allclose(np.linalg.norm(stretched, axis=-1), 2, rtol=1e-3)


def test_geoopt_step_is_projected_euler():
    torch = pytest.importorskip("torch")
    pytest.importorskip("geoopt")
    from benchmarks.geoopt_langevin import GeooptChains

    what: System = system(5, 2)
    x = what.uniform(2, seed=5)
    chains = GeooptChains(what, BETA, 2, x, seed=6)
    chains.run(1)
    torch.manual_seed(6)
    noise = torch.randn(*x.shape).numpy()
    scheme = ij.integrators.projected_euler(what.step_size)
    for start, normal, end in zip(x, noise, chains.x.detach().numpy(), strict=True):
        new, _ = scheme.step(scheme.init(what.energy, jnp.asarray(start)), normal, jnp.float32(BETA))
        np.testing.assert_allclose(end, new.positions, atol=1e-6)
