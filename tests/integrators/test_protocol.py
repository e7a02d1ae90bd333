"""What every scheme promises, asserted over all of them."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.polynomial import legendre
from scipy.linalg import expm

import infonce_jax as ij
from infonce_jax import integrators, sphere
from infonce_jax.checks import InputError
from infonce_jax.integrators import protocol
from infonce_jax.noise import Noise

SCHEMES = {
    "geodesic": integrators.geodesic_euler,
    "geodesic corrected": lambda h: integrators.geodesic_euler(h, corrected_noise=True),
    "projected": integrators.projected_euler,
    "strang": integrators.strang,
    "mala": integrators.mala,
    "hmc": lambda h: integrators.hmc(h, num_leapfrog=3),
    "kinetic": integrators.kinetic,
    "exchange, mala": lambda h: integrators.replica_exchange(integrators.mala(h), (1, 0.6, 0.3)),
    "exchange, geodesic": lambda h: integrators.replica_exchange(integrators.geodesic_euler(h), (1, 0.5), swap_every=2),
}
every_scheme = pytest.mark.parametrize("name", SCHEMES)


def pairs(x):
    """An energy of products <x_i, x_j>, so blind to rotations, with no other symmetry."""
    products = x @ x.T
    return jnp.sum(jnp.arange(1.0, 10.0, dtype=x.dtype).reshape(3, 3) * products) / 5 + jnp.sum(products[0, 1:] ** 2)


PAIRS = ij.energies.from_function(pairs, shape=(3, 3))
FLAT = ij.energies.from_function(lambda x: jnp.zeros((), x.dtype), shape=(3, 3))


def draws(scheme, shape, seed, turn=None, dtype=np.float32):
    """The random numbers of one step, normals turned by a matrix if one is given."""
    rng = np.random.default_rng(seed)
    normal = rng.normal(size=(*scheme.normals, *shape))
    normal = jnp.asarray(normal if turn is None else normal @ turn.T, dtype)
    return Noise(normal, jnp.asarray(rng.uniform(size=scheme.uniforms), dtype)) if scheme.needs_uniform else normal


def start(seed=0, n=3, d=3):
    x = np.random.default_rng(seed).normal(size=(n, d))
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@functools.cache  # one compilation for all tests of a scheme
def stepper(scheme, energy):
    return jax.jit(lambda state, draw, beta: scheme.step(state._replace(energy=energy), draw, beta))


def walk(scheme, energy, x, steps, beta=2.0, seed=10, turn=None, dtype=np.float32):
    """States and infos of a few steps from x."""
    state = scheme.init(energy, jnp.asarray(x, dtype))._replace(energy=None)
    states, infos = [state], []
    for k in range(steps):
        draw = draws(scheme, np.shape(x), seed + k, turn, dtype)
        state, info = stepper(scheme, energy)(state, draw, np.asarray(beta, dtype))
        state = state._replace(energy=None)
        states.append(state)
        infos.append(info)
    return states, infos


@every_scheme
@pytest.mark.parametrize(("energy", "dtype"), [(PAIRS, np.float32), (PAIRS, np.float64), (FLAT, np.float32)],
                         ids=["single", "double", "flat"])  # fmt: skip
def test_states_keep_their_form_and_stay_on_the_sphere(name, dtype, energy):
    with jax.enable_x64(dtype == np.float64):
        states, infos = walk(SCHEMES[name](0.05), energy, start(), 12, dtype=dtype)
        for state, info in zip(states[1:], infos, strict=True):
            assert state.positions.dtype == info.energy.dtype == info.acceptance.dtype == dtype
            # The loop carries the cache, whose shapes and types must not change from step to step.
            jax.tree.map(lambda new, old: (new.shape, new.dtype) == (old.shape, old.dtype) or pytest.fail(name),
                         state.cache, states[0].cache)  # fmt: skip
            norms = np.linalg.norm(np.asarray(state.positions, np.float64), axis=-1)
            np.testing.assert_allclose(norms, 1, rtol=0, atol=4 * np.finfo(dtype).eps)
            assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((state.cache, info)))
    assert np.any(states[-1].positions != states[0].positions)


@every_scheme
@pytest.mark.parametrize("beta", [1e-3, 1e30])
def test_steps_stay_on_the_sphere_from_the_hottest_to_the_coldest(name, beta):
    states, infos = walk(SCHEMES[name](0.05), PAIRS, start(), 30, beta=beta)
    np.testing.assert_allclose(np.linalg.norm(states[-1].positions, axis=-1), 1, rtol=0, atol=4e-7)
    assert all(np.isfinite(info.energy) for info in infos)


@every_scheme
def test_info_tells_of_the_state_before_the_step(name):
    scheme = SCHEMES[name](0.05)
    states, infos = walk(scheme, PAIRS, start(), 6)
    for state, info in zip(states[:-1], infos, strict=True):
        assert info.energy.shape == info.acceptance.shape == ()
        np.testing.assert_allclose(info.energy, PAIRS(state.positions), rtol=1e-5, atol=1e-5)
        assert 0 <= info.acceptance <= 1
        assert scheme.needs_uniform or info.acceptance == 1
    if scheme.needs_uniform:
        assert any(info.acceptance < 1 for info in infos)


@every_scheme
def test_a_step_is_a_function_of_its_random_numbers(name):
    scheme = SCHEMES[name](0.05)
    once, twice, other = (walk(scheme, PAIRS, start(), 3, seed=s)[0][-1] for s in (1, 1, 2))
    jax.tree.map(np.testing.assert_array_equal, once, twice)
    assert np.all(once.positions != other.positions)


@every_scheme
def test_rotating_everything_rotates_the_chain(name):
    turn = np.linalg.qr(np.random.default_rng(5).normal(size=(3, 3)))[0]
    with jax.enable_x64(True):
        scheme = SCHEMES[name](0.05)
        plain = walk(scheme, PAIRS, start(), 5, dtype=np.float64)[0][-1]
        turned = walk(scheme, PAIRS, start() @ turn.T, 5, turn=turn, dtype=np.float64)[0][-1]
    np.testing.assert_allclose(turned.positions, np.asarray(plain.positions) @ turn.T, rtol=0, atol=1e-12)


@every_scheme
def test_units_of_energy_and_time_are_free(name):
    # With E -> cE the overdamped path at (h/c, beta/c) is the same one; Newton's time goes with the root of c.
    c = 4.0
    scaled = ij.energies.from_function(lambda x: c * pairs(x), shape=(3, 3))
    builders = {
        "hmc": lambda: integrators.hmc(0.05 / 2, 3),
        "kinetic": lambda: integrators.kinetic(0.05 / 2, friction=2.0),
    }
    with jax.enable_x64(True):
        plain = walk(SCHEMES[name](0.05), PAIRS, start(), 5, dtype=np.float64)[0][-1]
        scheme = builders.get(name, lambda: SCHEMES[name](0.05 / c))()
        other = walk(scheme, scaled, start(), 5, beta=2.0 / c, dtype=np.float64)[0][-1]
    np.testing.assert_allclose(other.positions, plain.positions, rtol=0, atol=1e-12)


@every_scheme
def test_temperature_enters(name):
    ends = [walk(SCHEMES[name](0.05), PAIRS, start(), 2, beta=beta)[0][-1].positions for beta in (2.0, 2.5)]
    assert np.all(ends[0] != ends[1])


def tilted(x):
    """A cheap energy without symmetry."""
    return jnp.sum(x[0] * x[1]) + x[0, 0] ** 2 - 1.5 * x[1, 2]


BOTH_WAYS = ["strang", "hmc", "kinetic", "exchange, geodesic"]


@pytest.mark.parametrize("name", BOTH_WAYS)
def test_scalars_and_arrays_run_the_same_chain(name):
    # The energy with a sort has no scalar form. 25 steps in double precision: rounding alone tells the runs apart.
    functions = tilted, lambda x: tilted(x) + 0.0 * jnp.sort(x[:, 0])[0]
    scalars, arrays = (
        ij.run_chains(ij.energies.from_function(f, shape=(2, 3)), ij.schedules.logarithmic(0.5), SCHEMES[name](0.05),
                      num_chains=5, num_steps=25, dtype="float64")
        for f in functions
    )  # fmt: skip
    assert (scalars.path, arrays.path) == ("scalars", "arrays")
    np.testing.assert_allclose(arrays.final_positions, scalars.final_positions, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", ["kinetic", "exchange, geodesic"])
def test_a_constant_tau_changes_nothing(name):
    # Where tau is scheduled the caches are renewed at every step; momenta and hot copies must survive that.
    energy = ij.scenarios.double_well(temperature=0.3).energy
    fixed, scheduled = (
        ij.run_chains(energy, ij.schedules.constant(2.0), SCHEMES[name](0.05), num_chains=5, num_steps=25,
                      dtype="float64", temperature=tau)
        for tau in (None, ij.schedules.constant(0.3))
    )  # fmt: skip
    np.testing.assert_allclose(scheduled.final_positions, fixed.final_positions, rtol=0, atol=1e-9)


# Laws.

# THEORY section 4 and theory.json (mc_checks): A_d(2) = I_{d/2}(2)/I_{d/2-1}(2), the mean of z under e^{2z} on S^(d-1).
MEAN = {3: 0.537314720727548, 5: 0.3611066502067084}


def zonal(d):
    return ij.energies.from_function(lambda x: -2 * jnp.sum(x[:, -1]), shape=(1, d))


@pytest.mark.parametrize(("name", "h", "d"), [("mala", 0.8, 5), ("hmc", 0.7, 3), ("exchange, mala", 0.8, 3)])
def test_adjusted_schemes_have_the_gibbs_law_at_coarse_steps(name, h, d):
    # 1024 chains of 1000 steps, 4.5 standard errors of the mean over chains: false-alarm rate 7e-6 each. The bound on
    # the standard error keeps the test sharp: an unadjusted Euler step is off by .03 at an eighth of these steps.
    watch = [ij.observers.average(lambda x, energy: x[0, -1], "z", skip_steps=50), ij.observers.acceptance()]
    run = ij.run_chains(zonal(d), ij.schedules.constant(1.0), SCHEMES[name](h), num_chains=1024, num_steps=1000, seed=6,
                        observers=watch)  # fmt: skip
    z = run.data["z"].values
    error = np.std(z) / np.sqrt(len(z))
    assert error < 1e-3
    assert abs(np.mean(z) - MEAN[d]) < 4.5 * error
    assert 0.3 < run.data["acceptance"].values.mean() < 0.97


def exact_mean(time, z, kappa=2.0, size=30):
    """E[z_t] from z under L f = ((1 - z^2) f')' + kappa (1 - z^2) f', a matrix on Legendre polynomials."""
    points, _ = legendre.leggauss(size)
    values = legendre.legvander(points, size - 1)
    slopes = np.stack([legendre.legval(points, legendre.legder(row)) for row in np.eye(size)], axis=-1)
    degrees = np.arange(size)
    generator = np.linalg.solve(values, -degrees * (degrees + 1) * values + kappa * (1 - points[:, None] ** 2) * slopes)
    return legendre.legval(z, expm(time * generator)[:, 1])


@pytest.mark.parametrize(
    ("name", "order"), [("geodesic", 1), ("geodesic corrected", 1), ("projected", 1), ("strang", 2)]
)
def test_weak_order_over_half_a_unit_of_time(zonal_operator, name, order):
    # E[z] at t = 1/2 from z = -.6, where the drift still pushes; no sampling, against the exact semigroup.
    exact = exact_mean(0.5, -0.6)
    errors = [zonal_operator(SCHEMES[name](h), 2.0).mean_after(round(0.5 / h), -0.6) - exact for h in (0.02, 0.01)]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.15)
    assert 1e-6 < abs(errors[1]) < 0.02


def test_the_operator_of_these_tests_gives_the_tabulated_mean_of_euler(zonal_operator):
    # theory.json, integrators/vmf_S2_kappa2, "geodesic EM": computed there by another discretisation.
    mean = zonal_operator(integrators.geodesic_euler(0.05), 2.0).stationary_mean()
    assert mean == pytest.approx(0.5206165998236086, abs=1e-10)


# Arguments.

BUILDERS = (
    integrators.geodesic_euler, integrators.projected_euler, integrators.strang, integrators.mala, integrators.hmc,
    integrators.kinetic,
)  # fmt: skip


@pytest.mark.parametrize("build", BUILDERS)
@pytest.mark.parametrize("bad", [0, -0.1, np.nan, np.inf, "small", None, [0.1]])
def test_a_bad_step_size_is_refused_in_one_line(build, bad):
    with pytest.raises(InputError, match=r"^step_size: got .+; needs .+; a time step, for example") as caught:
        build(bad)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("build", BUILDERS)
def test_the_same_scheme_is_one_object_however_it_is_written(build):
    # The compiled loop is cached by the scheme: another object would compile again.
    same = {id(build(h)) for h in (0.5, np.float64(0.5), np.float32(0.5), jnp.float32(0.5))} | {
        id(build(step_size=0.5))
    }
    assert len(same) == 1


def test_different_schemes_are_different_and_have_different_names():
    schemes = [build(h) for build in SCHEMES.values() for h in (0.1, 0.2)]
    assert len(set(schemes)) == len(schemes)
    assert len({scheme.name for scheme in schemes}) == len(SCHEMES)
    assert all(dataclasses.is_dataclass(scheme) and scheme.step_size > 0 for scheme in schemes)


# What they share.


def test_metropolis_accepts_gains_and_refuses_what_is_not_a_number():
    ratios = jnp.array([-np.inf, -1.0, 0.0, 5.0, np.inf, np.nan])
    np.testing.assert_allclose(protocol.metropolis(ratios), [0, np.exp(-1), 1, 1, 1, 0], rtol=1e-6)


@pytest.mark.parametrize("length", [1e-6, 0.3, 3.0, 25.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_flow_keeps_speed_and_tangency_and_is_reversible(length, dtype):
    with jax.enable_x64(dtype == np.float64):
        x = jnp.asarray(start(3), dtype)
        p = sphere.to_tangent(x, jnp.asarray(start(4), dtype))
        p = length / 0.7 * p / jnp.linalg.norm(p, axis=-1, keepdims=True)
        y, q = protocol.flow(x, p, 0.7)
        back, r = protocol.flow(y, -q, 0.7)
    x, p, y, q, back, r = (np.asarray(array) for array in (x, p, y, q, back, r))
    eps = 10 * (1 + length) * np.finfo(dtype).eps
    np.testing.assert_allclose(np.linalg.norm(q, axis=-1), length / 0.7, rtol=eps)
    np.testing.assert_allclose(np.sum(q * y, axis=-1) / length, 0, atol=eps)
    np.testing.assert_allclose(back, x, rtol=0, atol=eps)
    np.testing.assert_allclose(-r, p, rtol=0, atol=eps * length)
