"""Numbers on the way of a training, and the words for what went wrong."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import xarray as xr

import infonce_jax as ij
from infonce_jax.encoders import FullBatch, Views, metrics, mlp
from infonce_jax.encoders.objective import _mean_positives
from infonce_jax.energies import non_contrastive

Z = np.asarray(ij.sphere.project(jnp.asarray(np.random.default_rng(0).normal(size=(5, 3)))))


def test_alignment_of_pairs_and_of_weighted_positives():
    a, b = jnp.asarray(Z[:3]), jnp.asarray(Z[2:])
    np.testing.assert_allclose(metrics.alignment(Views(a, b)), non_contrastive.alignment(a, b), rtol=1e-5)
    weights = np.random.default_rng(1).random((5, 5)) * (1 - np.eye(5))
    weights[2] = 0  # an anchor without a positive is left out
    energy = ij.energies.graph_infonce(weights, dim=3)
    squared = np.sum((Z[:, None] - Z[None]) ** 2, axis=-1)
    rows = [i for i in range(5) if i != 2]
    wanted = np.mean([np.sum(weights[i] * squared[i]) / np.sum(weights[i]) for i in rows])
    z = jnp.asarray(Z)
    np.testing.assert_allclose(metrics.alignment(Views(z, _mean_positives(energy, z))), wanted, rtol=1e-5)


def test_an_energy_that_names_no_positives_has_no_alignment():
    z = jnp.asarray(Z)
    energy = ij.energies.from_function(lambda x: x[0, 0], (5, 3))
    assert math.isnan(metrics.alignment(Views(z, _mean_positives(energy, z))))


def test_uniformity():
    z = jnp.asarray(Z)
    np.testing.assert_allclose(metrics.uniformity(Views(z, z)), non_contrastive.uniformity(z), rtol=1e-6)
    assert abs(float(metrics.uniformity(Views(jnp.asarray(Z[[0, 0, 0]]), z)))) < 1e-6
    assert math.isnan(metrics.uniformity(Views(z[:1], z[:1])))


def test_gradient_norm():
    assert float(metrics.gradient_norm({"a": jnp.array([3.0]), "b": jnp.array([[4.0]])})) == 5


def test_log_of_the_batch():
    ring = ij.scenarios.ring(5).energy
    assert abs(FullBatch.of(mlp((4,), 2), np.eye(5), ring).batch_log - 5 * math.log(4)) < 1e-12
    keys = ij.scenarios.square_keys().energy
    assert math.isnan(FullBatch.of(mlp((4,), 2), np.ones((1, 3)), keys).batch_log)
    uneven = ij.energies.graph_infonce(2 * np.roll(np.eye(3), 1, axis=1), dim=2)  # depends on tau where all coincide
    assert math.isnan(FullBatch.of(mlp((4,), 2), np.eye(3), uneven).batch_log)


def data(loss, uniformity, tau=0.5):
    over = ("seed", "step")
    values = {"loss": loss, "uniformity": uniformity, "temperature": np.full(len(loss), tau)}
    columns = {name: (over, np.stack([np.full(len(loss), 9.0), value], 1)) for name, value in values.items()}
    return xr.Dataset(columns, {"seed": range(len(loss)), "step": [0, 100]}, {"batch_log": 2.0})


def test_flags_in_words_with_numbers_and_counts():
    assert metrics.flags(data([1.0, 1.2, 1.1], [-1.0, -2.0, -1.5])) == ()
    assert metrics.flags(data([1.0, 2.001, 1.1], [-1.0, -0.001, -1.5])) == (
        "collapse: at step 100 all embeddings lie together in 1 of 3 seeds (uniformity -0.001, where 0 is one point)",
        "the loss equals the log of the batch: 2.001 at step 100 against 2 in 1 of 3 seeds; the encoder has collapsed",
    )
    hot = metrics.flags(data([1.99, 2.0, 1.1], [-1.0, -2.0, -1.5], tau=50.0))
    assert hot == ("the loss equals the log of the batch: 1.99 to 2 at step 100 against 2 in 2 of 3 seeds; tau = 50 is "
                   "too high for the loss to tell embeddings apart, or nothing was learned",)  # fmt: skip
