"""Views of an image: a function of the key, within the grey values, no further from the image than asked for."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import infonce_jax as ij
from infonce_jax.encoders.augmentations import Augmentation, erased, moved, noisy

STRONG = Augmentation(shift=1.5, turn=20.0, noise=0.3, erase=0.5)


def keys(number, seed=0):
    return jax.random.split(jax.random.key(seed), number)


def blob(rows, columns, size=21):
    """A smooth spot, so that interpolation keeps its mass and its place."""
    y, x = np.mgrid[:size, :size]
    return jnp.asarray(np.exp(-((y - rows) ** 2 + (x - columns) ** 2) / 4), jnp.float32)


def centre_of_mass(images):
    images = np.asarray(images, np.float64)
    y, x = np.mgrid[: images.shape[1], : images.shape[2]]
    return np.stack([np.sum(images * axis, axis=(1, 2)) for axis in (y, x)], -1) / images.sum(axis=(1, 2))[:, None]


def test_a_view_is_a_function_of_its_key():
    image = jax.random.uniform(jax.random.key(1), (8, 8))
    together = jax.jit(jax.vmap(STRONG, in_axes=(0, None)))(keys(6), image)
    for key, view in zip(keys(6), together, strict=True):
        np.testing.assert_allclose(jax.jit(STRONG)(key, image), view, atol=1e-6)
    assert len({view.tobytes() for view in np.asarray(together)}) == 6


def test_images_of_a_batch_are_changed_independently():
    images = jnp.broadcast_to(jax.random.uniform(jax.random.key(1), (8, 8)), (5, 8, 8))
    views = jax.jit(STRONG.views)(jax.random.key(0), images)
    assert len({view.tobytes() for view in np.asarray(views)}) == 5


def test_grey_values_stay_in_range():
    image = jnp.round(jax.random.uniform(jax.random.key(1), (8, 8)))  # black and white: nothing to spare
    views = jax.jit(jax.vmap(STRONG, in_axes=(0, None)))(keys(500), image)
    assert float(views.min()) == 0.0
    assert float(views.max()) == 1.0


def test_strength_zero_is_the_image_itself():
    image = jax.random.uniform(jax.random.key(1), (8, 6))
    np.testing.assert_array_equal(Augmentation()(jax.random.key(0), image), image)
    np.testing.assert_allclose(moved(jax.random.key(0), image, 0.0, 0.0), image, atol=1e-6)
    np.testing.assert_array_equal(erased(jax.random.key(0), image, 0.0), image)


def test_shifts_fill_their_square():
    views = jax.vmap(lambda key: moved(key, blob(10, 10), 2.0))(keys(300))
    offsets = centre_of_mass(views) - 10
    assert np.abs(offsets).max() <= 2.001
    # 300 uniform draws per axis leave the outer tenth on one side empty with probability 2e-7; four sides
    assert (offsets.max(axis=0) > 1.8).all()
    assert (offsets.min(axis=0) < -1.8).all()


def test_turns_keep_the_distance_from_the_middle_and_fill_their_angle():
    views = jax.vmap(lambda key: moved(key, blob(10, 15), 0.0, 30.0))(keys(300))
    down, right = (centre_of_mass(views) - 10).T
    np.testing.assert_allclose(np.hypot(down, right), 5, atol=0.01)
    angles = np.rad2deg(np.arctan2(down, right))
    assert np.abs(angles).max() <= 30.1
    # as above, two sides
    assert angles.max() > 27
    assert angles.min() < -27


def test_noise_has_the_standard_deviation_asked_for():
    noise = noisy(jax.random.key(0), jnp.full((200, 200), 0.5), 0.1) - 0.5
    # the relative error of 40 000 draws is .0035: five of them, false alarm 6e-7; nothing is clipped at five sigma
    assert float(jnp.std(noise)) == pytest.approx(0.1, rel=0.018)


def test_erasing_removes_one_rectangle_within_its_bounds():
    image = jnp.ones((10, 20))
    views = np.asarray(jax.vmap(lambda key: erased(key, image, 0.5))(keys(400)))
    areas = set()
    for view in views:
        assert np.isin(view, (0, 1)).all()
        gone = view == 0
        rows, columns = gone.any(axis=1), gone.any(axis=0)
        np.testing.assert_array_equal(gone, rows[:, None] & columns[None, :])
        for line, most in ((rows, 5), (columns, 10)):
            where = np.flatnonzero(line)
            assert len(where) <= most
            assert len(where) == 0 or where[-1] - where[0] + 1 == len(where)
        areas.add(int(gone.sum()))
    assert max(areas) >= 30  # of 50; most draws are smaller
    assert (views == 0).any(axis=(0, 1)).all()  # the rectangles reach every column
    assert (views == 0).any(axis=(0, 2)).all()  # and every row


@pytest.mark.parametrize("bad", [{"shift": -1.0}, {"erase": 1.5}, {"noise": float("nan")}, {"turn": "much"}])
def test_impossible_strengths_are_refused(bad):
    with pytest.raises(ij.InputError, match=next(iter(bad))):
        Augmentation(**bad)
