"""The graph form against the losses, the closed forms and plain NumPy."""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import infonce_jax as ij
from infonce_jax.energies import graph_infonce, losses, non_contrastive, reweighted


def _points(rng, n, d):
    x = rng.normal(size=(n, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def _plain(x, w, tau, m):
    s = x @ x.T / tau
    return np.sum(np.log(np.sum(m * np.exp(s), axis=1)) - np.sum(w * s, axis=1))


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@pytest.mark.parametrize("tau", [0.05, 0.3, 1.0])
def test_sum_over_anchors_is_the_formula(rng, tau):
    x, w = _points(rng, 6, 3), rng.uniform(size=(6, 6))
    energy = graph_infonce(w, temperature=tau, dim=3)
    with jax.enable_x64(True):
        value = float(energy(jnp.asarray(x)))
    assert value == pytest.approx(_plain(x, w, tau, 1 - np.eye(6)), rel=1e-13)


@pytest.mark.parametrize("form", ["out", "in"])
def test_bounded_and_safe_forms_agree(rng, form):
    x, w = _points(rng, 7, 2), rng.uniform(size=(7, 7)) * (1 - np.eye(7))
    warm = graph_infonce(w, temperature=0.4, form=form)
    # the same numbers through the form that low temperatures use
    safe = jax.tree.unflatten(jax.tree.structure(graph_infonce(w, temperature=0.01, form=form)), jax.tree.leaves(warm))
    assert warm.bounded
    assert not safe.bounded
    with jax.enable_x64(True):
        values = [jax.value_and_grad(lambda y, e=e: e(y))(jnp.asarray(x)) for e in (warm, safe)]
    np.testing.assert_allclose(values[0][0], values[1][0], rtol=1e-13)
    np.testing.assert_allclose(values[0][1], values[1][1], rtol=1e-11, atol=1e-13)


def test_nt_xent_is_a_graph_whose_positives_are_pairs(rng):
    a, b = _points(rng, 4, 3), _points(rng, 4, 3)
    pairs = np.kron([[0, 1], [1, 0]], np.eye(4))
    energy = graph_infonce(pairs, temperature=0.3, reduction="mean", form="single", dim=3)
    with jax.enable_x64(True):
        value = float(energy(jnp.asarray(np.concatenate([a, b]))))
        expected = float(losses.nt_xent(jnp.asarray(a), jnp.asarray(b), 0.3))
    assert value == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(
    ("build", "loss"),
    [
        (ij.energies.clip_energy, losses.clip),
        (ij.energies.one_way_energy, losses.info_nce),
        (ij.energies.nt_xent_energy, losses.nt_xent),
        (ij.energies.decoupled_energy, reweighted.decoupled),
    ],
)
def test_two_view_energies_are_the_losses(rng, build, loss):
    a, b = _points(rng, 4, 3), _points(rng, 4, 3)
    energy = build(4, 3, temperature=0.3)
    with jax.enable_x64(True):
        value = float(energy(ij.energies.join_views(jnp.asarray(a), jnp.asarray(b))))
        expected = float(loss(jnp.asarray(a), jnp.asarray(b), 0.3))
    assert energy.shape == (8, 3)
    assert value == pytest.approx(expected, rel=1e-12)


def test_views_come_apart_as_they_were_joined(rng):
    a, b = _points(rng, 5, 2), _points(rng, 5, 2)
    first, second = ij.energies.split_views(ij.energies.join_views(a, b))
    np.testing.assert_array_equal(first, np.float32(a))
    np.testing.assert_array_equal(second, np.float32(b))


@pytest.mark.parametrize("form", ["out", "in"])
def test_sup_con_energy_is_the_loss(rng, form):
    z, labels = _points(rng, 7, 3), [0, 0, 1, 1, 1, 2, 2]
    energy = ij.energies.sup_con_energy(labels, 3, temperature=0.4, form=form)
    with jax.enable_x64(True):
        value = float(energy(jnp.asarray(z)))
        expected = float(losses.sup_con(jnp.asarray(z), jnp.asarray(labels), 0.4, form=form))
    assert value == pytest.approx(expected, rel=1e-12)


def test_frozen_queue_energy_is_the_loss(rng):
    a, b, queue = _points(rng, 4, 3), _points(rng, 4, 3), _points(rng, 9, 3)
    energy = ij.energies.queue_energy(b, queue, temperature=0.2)
    with jax.enable_x64(True):
        value = float(energy(jnp.asarray(a)))
        expected = float(losses.info_nce_queue(*(jnp.asarray(v) for v in (a, b, queue)), 0.2))
    assert energy.shape == (4, 3)
    assert value == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("n", "d", "tau"), [(3, 2, 0.1), (3, 2, 0.5), (4, 3, 0.3), (4, 4, 1.0)])
def test_uniformity_of_the_simplex_is_its_closed_form(n, d, tau):
    # THEORY section 5: per-anchor uniformity, n <= d + 1: log(n - 1) - 1/((n - 1) tau)
    gram = np.eye(n) * (1 + 1 / (n - 1)) - 1 / (n - 1)
    values, vectors = np.linalg.eigh(gram)
    x = (vectors * np.sqrt(np.maximum(values, 0)))[:, ::-1][:, :d]
    energy = ij.energies.uniformity_energy(n, d, temperature=tau, reduction="mean")
    with jax.enable_x64(True):
        assert float(energy(jnp.asarray(x))) == pytest.approx(np.log(n - 1) - 1 / ((n - 1) * tau), rel=1e-12)


def test_pair_sum_pools_all_pairs_in_one_logarithm(rng):
    x = _points(rng, 6, 3)
    s = x @ x.T / 0.5
    expected = np.log(np.sum(np.exp(s)[~np.eye(6, dtype=bool)]))
    with jax.enable_x64(True):
        assert float(ij.energies.pair_sum_energy(6, 3, temperature=0.5)(jnp.asarray(x))) == pytest.approx(
            expected, rel=1e-13
        )


def test_alignment_uniformity_is_the_sum_of_the_two_losses(rng):
    a, b = _points(rng, 5, 3), _points(rng, 5, 3)
    energy = ij.energies.alignment_uniformity_energy(5, 3, t=2.0, weight=0.7)
    with jax.enable_x64(True):
        value = float(energy(ij.energies.join_views(jnp.asarray(a), jnp.asarray(b))))
        u = [float(non_contrastive.uniformity(jnp.asarray(z), 2.0)) for z in (a, b)]
        expected = float(non_contrastive.alignment(jnp.asarray(a), jnp.asarray(b))) + 0.7 * (u[0] + u[1]) / 2
    assert value == pytest.approx(expected, rel=1e-12)


def test_coupled_potential_times_beta_is_the_energy(rng):
    # THEORY section 0: V = tau E at tau = 1/beta, so that beta V = E
    x, w = _points(rng, 5, 2), rng.uniform(size=(5, 5))
    energy = graph_infonce(w, temperature=0.5)
    for beta in (1.0, 4.0, 200.0):
        cold = energy.with_temperature(1 / beta)
        with jax.enable_x64(True):
            assert beta * float(cold.coupled()(jnp.asarray(x))) == pytest.approx(float(cold(jnp.asarray(x))), rel=1e-13)


@pytest.mark.parametrize("tau", [1e-3, 5e-3, 0.05, 1e3])
def test_values_and_gradients_are_finite_in_float32_at_any_temperature(rng, tau):
    x, w = jnp.asarray(_points(rng, 6, 2), jnp.float32), np.roll(np.eye(6), 1, axis=0)
    for form in ("out", "in", "single", "pairs"):
        value, gradient = jax.value_and_grad(lambda y, f=form: graph_infonce(w, tau, form=f)(y))(x)
        assert np.isfinite(value)
        assert np.all(np.isfinite(gradient))


def test_new_weights_and_temperature_do_not_recompile(rng):
    traces = []

    @jax.jit
    def value(energy, x):
        traces.append(1)
        return energy(x)

    x = jnp.asarray(_points(rng, 5, 2))
    for seed in range(3):
        value(graph_infonce(np.random.default_rng(seed).uniform(size=(5, 5)), temperature=0.5 + 0.1 * seed), x)
    assert len(traces) == 1


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"weights": np.ones((3, 2))}, ["weights", "(3, 2)", "square"]),
        ({"weights": -np.ones((3, 3))}, ["weights", "-1", ">= 0"]),
        ({"weights": np.zeros((1, 1))}, ["anchor 0", "n >= 2"]),
        ({"weights": np.eye(3), "temperature": -0.5}, ["temperature", "-0.5"]),
        ({"weights": np.eye(3), "temperature": 0}, ["temperature", "0"]),
        ({"weights": np.eye(3), "reduction": "median"}, ["reduction", "median", "mean"]),
        ({"weights": np.eye(3), "form": "both"}, ["form", "both"]),
        ({"weights": np.eye(3), "dim": 1}, ["dim", "1", "at least 2"]),
        ({"weights": np.ones((1, 3)), "keys": [[1.0, 0.0], [2.0, 0.0]]}, ["keys", "norm", "normalise"]),
        ({"weights": np.ones((1, 3)), "keys": [[1.0, 0.0], [0.0, 1.0]], "dim": 3}, ["dim", "3", "2"]),
    ],
)
def test_bad_graphs_are_refused_in_one_line(kwargs, words):
    with pytest.raises(ij.InputError) as refusal:
        graph_infonce(**kwargs)
    message = str(refusal.value)
    assert len(message.splitlines()) == 1
    assert all(word in message for word in words)


def test_a_batch_is_refused_with_a_hint_at_vmap(rng):
    energy = graph_infonce(np.eye(4))
    with pytest.raises(ij.InputError, match="vmap"):
        energy(jnp.zeros((3, 4, 2)))


def test_a_function_that_is_not_scalar_is_refused():
    with pytest.raises(ij.InputError, match="scalar"):
        ij.energies.from_function(lambda x: x, shape=(2, 2))
    with pytest.raises(ij.InputError, match="shape"):
        ij.energies.from_function(lambda x: x[0, 0], shape=(2, 1))
    with pytest.raises(ij.InputError, match="function"):
        ij.energies.from_function(lambda x: x[5, 0] + undefined_name, shape=(2, 2))  # noqa: F821


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("temperature", [1e-3, 0.05, 0.5, 100.0])
@pytest.mark.parametrize("form", ["out", "in", "single", "pairs"])
def test_where_the_energy_is_not_finite_its_gradient_is_not_either(rng, form, temperature, bad):
    # What `gradient_shows_failure` promises: the loop then looks at positions alone, which costs nothing. (Finite rows
    # off the sphere are found by their norms.)
    plain = np.roll(np.eye(4), 1, axis=0)
    with_keys = np.hstack([plain, np.zeros((4, 2))])
    for energy in (
        graph_infonce(plain, temperature, form=form, dim=3),
        graph_infonce(with_keys, temperature, form=form, keys=_points(rng, 2, 3)),
    ):
        assert energy.gradient_shows_failure
        for place in ((0, 0), (2, 1), (3,)):
            x = _points(rng, 4, 3).astype(np.float32)
            x[place] = bad
            value, gradient = jax.value_and_grad(lambda y, e=energy: e(y))(jnp.asarray(x))
            assert np.isfinite(value) or not np.all(np.isfinite(gradient))


@pytest.mark.parametrize(
    ("n", "temperature", "alike"), [(5, 0.5, True), (15, 0.5, True), (25, 0.5, False), (5, 0.05, False)]
)
def test_one_logarithm_serves_anchors_alike_while_their_product_is_a_normal_number(rng, n, temperature, alike):
    energy = ij.scenarios.ring(n, temperature=temperature).energy
    assert energy.alike == alike
    for x in (_points(rng, n, 2), np.tile([[1.0, 0.0]], (n, 1)), np.tile([[1.0, 0.0], [-1.0, 0.0]], (n, 1))[:n]):
        value, gradient = jax.value_and_grad(lambda y: energy(y))(jnp.asarray(x, jnp.float32))
        with jax.enable_x64(True):
            exact = jax.value_and_grad(lambda y: dataclasses.replace(energy, alike=False)(y))(jnp.asarray(x))
        assert float(value) == pytest.approx(float(exact[0]), rel=3e-6)
        np.testing.assert_allclose(gradient, exact[1], rtol=1e-4, atol=3e-5)
