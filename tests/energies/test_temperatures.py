"""Every energy of the family at temperatures from 1e-3 to 1e3, in both precisions, against plain NumPy.

A compilation costs far more than an evaluation, so each example puts all its questions to one compiled function.
"""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp

from infonce_jax import energies
from infonce_jax.energies import graph_infonce
from tests.drawn import another_seed, decades, dimensions, examples, moved, numbers, points, rotation, unit

# Energies. Each entry: (rng, N, d, tau) -> the energy and what a plain float64 evaluation needs: weights W, counts m,
# anchors a, keys, form, each written out here again from the definition of the loss.


def plain(x, tau, w, m, a, keys=None, form="out"):
    """sum_i a_i [log sum_j m_ij e^{s_ij/tau} - positives] in NumPy."""
    logits = x @ np.concatenate([x, np.zeros((0, x.shape[1])) if keys is None else keys]).T / tau
    if form == "pairs":
        return logsumexp(logits, b=a[:, None] * m) - np.sum(a[:, None] * w * logits)
    active = a > 0
    total = logsumexp(logits[active], b=m[active], axis=1)
    if form == "in":
        return np.sum(a[active] * (total - logsumexp(logits[active], b=w[active], axis=1)))
    return np.sum(a[active] * (total - np.sum(w * logits, axis=1)[active]))


def others(n):
    return 1.0 - np.eye(n)


def matching(n):
    """Row i of the first view and row i of the second are each other's positive."""
    return np.roll(np.eye(2 * n), n, axis=1)


def across(n):
    views = np.repeat([0, 1], n)
    return (views[:, None] != views[None]).astype(float)


def weighted(form):
    def build(rng, n, d, tau):
        n = max(n, 2)
        w = rng.uniform(0.1, 1, size=(n, n)) * others(n)
        return graph_infonce(w, tau, form=form, dim=d), (w, others(n), np.ones(n), None, form)

    return build


def with_keys(rng, n, d, tau):
    keys = points(rng, 3, d)
    w, m = rng.uniform(size=(n, n + 3)), rng.uniform(0.5, 8, size=(n, n + 3))
    a = rng.uniform(0.5, 2, size=n)
    return graph_infonce(w, tau, keys=keys, multiplicity=m, anchors=a), (w, m, a, keys, "out")


def two_views(build, counts, anchors=None):
    def member(rng, n, d, tau):
        n = max(n // 2, 2)
        a = np.ones(2 * n) if anchors is None else anchors(n)
        return build(n, d, temperature=tau), (matching(n), counts(n), a / a.sum(), None, "out")

    return member


def labelled(form):
    def build(rng, n, d, tau):
        labels = np.arange(2 * max(n // 2, 2)) // 2
        same = (labels[:, None] == labels[None]) * others(len(labels))
        w = same / same.sum(axis=1, keepdims=True)
        return energies.sup_con_energy(labels, d, tau, form), (w, others(len(w)), np.full(len(w), 1 / len(w)), None,
                                                               form)  # fmt: skip

    return build


def queued(rng, n, d, tau):
    keys, queue = points(rng, n, d), points(rng, 4, d)
    w = np.concatenate([np.zeros((n, n)), np.eye(n), np.zeros((n, 4))], axis=1)
    m = np.concatenate([np.zeros((n, n)), np.eye(n), np.ones((n, 4))], axis=1)
    return energies.queue_energy(keys, queue, tau), (w, m, np.full(n, 1 / n), np.concatenate([keys, queue]), "out")


def repelling(build, form):
    def member(rng, n, d, tau):
        n = max(n, 2)
        return build(n, d, temperature=tau), (np.zeros((n, n)), others(n), np.ones(n), None, form)

    return member


MEMBERS = {
    "weights": weighted("out"),
    "weights inside": weighted("in"),
    "pooled": weighted("pairs"),
    "keys and counts": with_keys,
    "one way": two_views(energies.one_way_energy, across, lambda n: np.repeat([1.0, 0.0], n)),
    "clip": two_views(energies.clip_energy, across),
    "nt_xent": two_views(energies.nt_xent_energy, lambda n: others(2 * n)),
    "decoupled": two_views(energies.decoupled_energy, lambda n: others(2 * n) - matching(n)),
    "sup_con": labelled("out"),
    "sup_con inside": labelled("in"),
    "queue": queued,
    "uniformity": repelling(energies.uniformity_energy, "out"),
    "pair sum": repelling(energies.pair_sum_energy, "pairs"),
}


@jax.jit
def value_and_gradient(energy, x):
    return jax.value_and_grad(lambda y: energy(y))(x)


@pytest.mark.parametrize("name", MEMBERS)
@examples(max_examples=1)
@hypothesis.given(numbers, dimensions, another_seed, st.lists(decades(-3, 3), min_size=3, max_size=3))
def test_energies_at_any_temperature(name, n, d, seed, temperatures):
    n, d = moved(n, d, list(MEMBERS).index(name))
    for tau in (1e-3, 1e3, *temperatures):
        rng = np.random.default_rng(seed)
        energy, (w, m, a, keys, form) = MEMBERS[name](rng, n, d, tau)
        x = points(rng, *energy.shape)
        want = plain(x, tau, w, m, a, keys, form)
        size = np.sum(a) * (1 + np.max(np.sum(w, axis=1))) * (1 / tau + 5)  # of the terms that are summed
        with jax.enable_x64(True):
            value, gradient = map(np.asarray, value_and_gradient(energy, jnp.asarray(x)))
            assert np.all(np.isfinite(gradient))
            assert value == pytest.approx(want, rel=0, abs=1e-13 * size)
            # The tangent gradient along a geodesic: a difference of the plain energy, at a step below tau.
            v = rng.normal(size=x.shape)
            v -= np.sum(v * x, axis=-1, keepdims=True) * x
            v /= np.linalg.norm(v)
            step = min(1e-4, 1e-2 * tau)
            ends = [plain(unit(x + s * step * v), tau, w, m, a, keys, form) for s in (-1, 1)]
            slope, bound = np.sum(gradient * v), size * (1e-3 + 1e-14 / step)
            assert slope == pytest.approx((ends[1] - ends[0]) / (2 * step), rel=1e-4, abs=bound)
            # Turning everything, the keys included, changes nothing, and turns the gradient.
            turn = rotation(rng, d)
            if energy.keys is None:
                turned, turned_gradient = map(np.asarray, value_and_gradient(energy, jnp.asarray(x @ turn)))
                assert turned == pytest.approx(value, rel=0, abs=1e-13 * size)
                np.testing.assert_allclose(turned_gradient, gradient @ turn, rtol=0, atol=1e-12 * size / tau)
        value32, gradient32 = map(np.asarray, value_and_gradient(energy, jnp.asarray(x, jnp.float32)))
        assert value32.dtype == gradient32.dtype == np.float32
        assert np.all(np.isfinite(gradient32))
        # x is rounded to 6e-8, so logits to 6e-8/tau.
        assert value32 == pytest.approx(want, rel=0, abs=1e-6 * size)


@pytest.mark.parametrize("name", ["uniformity", "pair sum", "alignment and uniformity", "clip", "nt_xent"])
@examples(max_examples=1)
@hypothesis.given(numbers, dimensions, another_seed, decades(-3, 3))
def test_relabelling_what_is_alike_changes_nothing(name, n, d, seed, tau):
    n, d = moved(n, d, len(name))
    rng = np.random.default_rng(seed)
    if name == "alignment and uniformity":
        energy = energies.alignment_uniformity_energy(max(n // 2, 2), d, t=tau, weight=0.7)
    else:
        energy, _ = MEMBERS[name](rng, n, d, tau)
    rows = energy.shape[0]
    paired = name not in ("uniformity", "pair sum")
    order = rng.permutation(rows // 2 if paired else rows)
    order = np.concatenate([order, order + rows // 2]) if paired else order
    x = points(rng, *energy.shape)
    with jax.enable_x64(True):
        (value, gradient), (other, elsewhere) = (value_and_gradient(energy, jnp.asarray(y)) for y in (x, x[order]))
        scale = rows * (5 + tau + 1 / tau)
        assert float(other) == pytest.approx(float(value), rel=0, abs=1e-13 * scale)
        np.testing.assert_allclose(elsewhere, np.asarray(gradient)[order], rtol=0, atol=1e-12 * scale * (1 + 1 / tau))
