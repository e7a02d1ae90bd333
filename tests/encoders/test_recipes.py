"""SimCLR, MoCo, CLIP and rotation orbits: what they minimise, what they remember, and that they learn something."""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import infonce_jax as ij
from infonce_jax.encoders.architectures import mlp, text
from infonce_jax.encoders.augmentations import Augmentation
from infonce_jax.encoders.clip import clip
from infonce_jax.encoders.data import digits
from infonce_jax.encoders.evaluation import accuracy, retrieval
from infonce_jax.encoders.glyphs import ALPHABET, glyphs
from infonce_jax.encoders.moco import moco
from infonce_jax.encoders.objective import Objective, Views
from infonce_jax.encoders.orbit import orbit
from infonce_jax.encoders.simclr import simclr
from infonce_jax.encoders.training import optimise
from infonce_jax.energies import losses

SMALL, NAMES = mlp((12,), 4), text(4, len(ALPHABET) + 1, channels=8, widths=(8,))
IMAGES = np.random.default_rng(0).random((20, 6, 6))
CODES = np.random.default_rng(1).integers(1, 39, size=(20, 5))
VIEWS = Augmentation(shift=1.0, noise=0.1)
KEY, TAU = jax.random.key(3), 0.5
TRACES = []


@jax.jit
def step(objective, parameters, memory, key, temperature):
    """Loss, views, and the gradients to the parameters and to the temperature, which a learned one needs."""
    TRACES.append(objective.name)
    take = jax.value_and_grad(objective.loss, argnums=(0, 3), has_aux=True)
    (loss, views), (gradient, slope) = take(parameters, memory, key, temperature)
    return loss, views, gradient, slope


@functools.cache
def started(name):
    """An objective, its parameters and its memory."""
    objective = {
        "simclr": lambda: simclr(IMAGES, SMALL, VIEWS, batch_size=8),
        "moco": lambda: moco(IMAGES, SMALL, VIEWS, batch_size=4, queue_size=10, momentum=0.9),
        "clip": lambda: clip(IMAGES, CODES, SMALL, NAMES, VIEWS, batch_size=8),
    }[name]()
    return objective, *jax.jit(objective.init)(jax.random.key(0))


@pytest.fixture(params=("simclr", "moco", "clip"))
def start(request):
    return started(request.param)


def size(tree):
    return [float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(tree)]


def test_a_recipe_is_an_objective(start):
    objective, parameters, memory = start
    assert isinstance(objective, Objective)
    loss, views, gradient, _ = step(*start, KEY, TAU)
    assert loss.shape == ()
    assert views.anchors.shape == views.positives.shape == (objective.batch_size, 4)
    for rows in views:
        np.testing.assert_allclose(jnp.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert min(size(gradient)) > 0
    assert jax.tree.structure(objective.after(parameters, memory, views)) == jax.tree.structure(memory)


def test_the_loss_of_a_collapsed_encoder_is_the_log_of_the_batch(start):
    objective, *rest = start
    loss = step(objective, *jax.tree.map(jnp.zeros_like, rest), KEY, TAU)[0]  # all cosines are 0
    assert float(loss) == pytest.approx(objective.batch_log, rel=1e-6)


def test_the_loss_is_a_function_of_key_and_temperature(start):
    loss, _, _, slope = step(*start, KEY, TAU)
    assert loss == step(*start, KEY, TAU)[0]
    assert loss != step(*start, jax.random.key(4), TAU)[0]
    around = (step(*start, KEY, TAU + 0.01)[0] - step(*start, KEY, TAU - 0.01)[0]) / 0.02
    assert float(slope) == pytest.approx(float(around), rel=0.02)


def test_other_data_do_not_recompile(start):
    objective, *rest = start
    loss = step(objective, *rest, KEY, TAU)[0]
    assert loss != step(dataclasses.replace(objective, images=objective.images[::-1]), *rest, KEY, TAU)[0]
    assert TRACES.count(objective.name) == 1


def test_simclr_is_nt_xent_of_two_different_views():
    loss, views, _, _ = step(*started("simclr"), KEY, TAU)
    assert float(loss) == pytest.approx(float(losses.nt_xent(*views, TAU)), rel=1e-6)
    assert np.abs(views.anchors - views.positives).max(axis=1).min() > 1e-4


def test_clip_is_the_symmetric_loss_of_pairs():
    objective, parameters, memory = started("clip")
    loss, views, _, _ = step(objective, parameters, memory, KEY, TAU)
    assert float(loss) == pytest.approx(float(losses.clip(*views, TAU)), rel=1e-6)
    # names are not changed: each of the batch's is the embedding of one of the data's
    every = objective.embed(parameters, objective.images, objective.names)[1]
    assert np.abs(views.positives[:, None] - every[None]).max(axis=-1).min(axis=1).max() < 1e-5


def test_no_gradient_reaches_the_keys_of_moco():
    objective, parameters, memory = started("moco")

    @jax.jit
    @functools.partial(jax.value_and_grad, argnums=(0, 1))
    def loss(slow, queue):
        return objective.loss(parameters, memory._replace(slow=slow, queue=queue), KEY, TAU)[0]

    value, gradients = loss(memory.slow, memory.queue)
    assert max(size(gradients)) == 0
    # though the loss depends on both
    assert loss(jax.tree.map(lambda leaf: leaf + 0.1, memory.slow), memory.queue)[0] != value
    assert loss(memory.slow, memory.queue[::2].repeat(2, 0))[0] != value


def test_the_queue_of_moco_starts_as_different_random_unit_rows():
    queue = started("moco")[2].queue
    np.testing.assert_allclose(jnp.linalg.norm(queue, axis=1), 1, atol=1e-6)
    assert len({row.tobytes() for row in np.asarray(queue)}) == 10


def test_moco_enqueues_after_the_loss():
    objective, parameters, memory = started("moco")
    loss, views, _, _ = step(objective, parameters, memory, KEY, TAU)
    assert float(loss) == pytest.approx(float(losses.info_nce_queue(*views, memory.queue, TAU)), rel=1e-6)
    # had the keys been in the queue already, each query would have met its own as a negative
    later = objective.after(parameters, memory, views)
    assert float(loss) < float(losses.info_nce_queue(*views, later.queue, TAU)) - 0.05


def test_keys_replace_the_oldest_round_and_round():
    objective, parameters, memory = started("moco")  # batches of 4 in a queue of 10: the third wraps
    ring, enqueue = np.array(memory.queue), jax.jit(objective.after)
    for batch in range(7):
        keys = np.full((4, 4), float(batch)) + np.arange(4)[:, None] / 10
        memory = enqueue(parameters, memory, Views(jnp.zeros((4, 4)), jnp.asarray(keys, jnp.float32)))
        for row in range(4):
            ring[(4 * batch + row) % 10] = keys[row]
        np.testing.assert_allclose(memory.queue, ring, rtol=1e-6)
        assert int(memory.position) == 4 * (batch + 1) % 10


def test_the_slow_encoder_follows_the_parameters_after_the_step():
    objective, parameters, memory = started("moco")
    _, views, gradient, _ = step(objective, parameters, memory, KEY, TAU)
    moved = jax.tree.map(lambda p, g: p - g, parameters, gradient)
    later = objective.after(moved, memory, views)
    jax.tree.map(np.testing.assert_array_equal, memory.slow, parameters)
    expected = jax.tree.map(lambda old, new: 0.9 * np.float64(old) + 0.1 * np.float64(new), parameters, moved)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), later.slow, expected)
    assert max(size(jax.tree.map(jnp.subtract, later.slow, moved))) > 1e-3


def test_an_orbit_has_the_geometry_of_its_pixels_and_the_energy_of_the_scenario():
    views = orbit(4, views=8)
    assert views.features.shape == (8, 7)
    assert np.mean(np.sum(views.features.astype(np.float64) ** 2, axis=1)) == pytest.approx(64, rel=1e-5)
    np.testing.assert_allclose(views.features.sum(axis=0), 0, atol=1e-4)
    squared = [np.sum((x[:, None] - x[None]) ** 2, axis=-1)
               for x in (views.features.astype(np.float64), views.images.reshape(8, -1))]  # fmt: skip
    np.testing.assert_allclose(squared[0] / squared[0].mean(), squared[1] / squared[1].mean(), atol=1e-5)
    gram = views.features.T.astype(np.float64) @ views.features  # singular basis: orthogonal columns, largest first
    np.testing.assert_allclose(gram - np.diag(np.diag(gram)), 0, atol=1e-3)
    assert np.all(np.diff(np.diag(gram)) <= 0)
    x = np.random.default_rng(0).normal(size=(1, 8, 2))
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    reference = ij.scenarios.digit_orbit().energy
    np.testing.assert_allclose(
        ij.landscape.energies_of(views.energy, x), ij.landscape.energies_of(reference, x), rtol=1e-12
    )


def test_an_orbit_of_ones_own_image():
    from sklearn.datasets import load_digits

    own = orbit(load_digits().images[4], views=6)
    np.testing.assert_allclose(own.features, orbit(4, views=6).features)
    assert orbit(IMAGES[0], views=12).features.shape == (12, 11)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: simclr(np.ones((4, 8))), "height"),
        (lambda: simclr(IMAGES), "batch_size"),
        (lambda: moco(IMAGES, SMALL, batch_size=8, queue_size=7), "queue_size"),
        (lambda: moco(IMAGES, SMALL, batch_size=4, queue_size=8, momentum=1.0), "momentum"),
        (lambda: clip(IMAGES, CODES[:3], batch_size=4), "names"),
        (lambda: clip(IMAGES, np.ones((20, 5)), SMALL, mlp((4,), 3), batch_size=4), "one sphere"),
        (lambda: orbit(1797), "1796"),
        (lambda: orbit(np.zeros((8, 8))), "alike"),
        (lambda: orbit(np.ones(64)), "height"),
        (lambda: orbit(4, views=2), "views"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(call, words):
    with pytest.raises(ij.InputError, match=words):
        call()


# Training, short and small. A run is a function of its seed, so the margins need no statistics; they are about a third
# of what is reached, which leaves room for another order of rounding.
ADAM = optax.adam(2e-3)


def trained_and_not(objective, score, num_steps):
    parameters, _ = jax.jit(objective.init)(jax.random.key(0))
    done = optimise(objective, temperature=0.1, optimizer=ADAM, num_steps=num_steps, progress=False)
    return score(jax.tree.map(lambda leaf: leaf[0], done.parameters)), score(parameters), done


@pytest.mark.parametrize("recipe", [simclr, moco])
def test_training_without_labels_finds_the_classes_of_digits(recipe):
    tuning = digits().for_tuning()
    objective = recipe(tuning.images, mlp((64,), 8), batch_size=64)

    def score(parameters):
        return accuracy(jax.jit(functools.partial(objective.encoder.apply, parameters)), tuning).neighbours

    after, before, done = trained_and_not(objective, score, 150)
    assert after > before + 0.07
    assert done.flags == ()


def test_training_on_pairs_finds_names_of_glyphs_it_has_not_seen():
    tuning = glyphs(12).for_tuning()
    names, held_out_names = tuning.bags(length=2)
    objective = clip(tuning.images, names, mlp((64,), 16), mlp((), 16), batch_size=64)

    def score(parameters):
        return retrieval(*objective.embed(parameters, tuning.held_out_images, held_out_names))

    after, before, _ = trained_and_not(objective, score, 200)
    assert min(after.forward, after.backward) > 20 * after.chance
    assert max(before.forward, before.backward) < 5 * before.chance
