"""Digits: the split, and what a batch is."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from sklearn.datasets import load_digits

import infonce_jax as ij
from infonce_jax.encoders.data import Digits, batch_size_for, digits, draw_batch, grey_images


def rows_of(images):
    return sorted(np.asarray(images).reshape(len(images), -1).tolist())


def test_both_parts_together_are_all_digits_in_proportion():
    split = digits()
    every, labels = load_digits(return_X_y=True)
    assert (len(split.images), len(split.held_out_images)) == (1257, 540)
    assert rows_of(np.concatenate([split.images, split.held_out_images])) == rows_of(every / 16)
    np.testing.assert_allclose(np.bincount(split.held_out_labels) / np.bincount(labels), 0.3, atol=0.004)
    assert 0 <= split.images.min() < split.images.max() <= 1


def test_labels_belong_to_their_images():
    split = digits()
    every, labels = load_digits(return_X_y=True)
    known = {(image / 16).astype(np.float32).tobytes(): label for image, label in zip(every, labels, strict=True)}
    for image, label in zip(split.held_out_images, split.held_out_labels, strict=True):
        assert known[image.reshape(-1).tobytes()] == label


def test_the_split_is_fixed_and_the_one_for_tuning_knows_nothing_of_the_held_out_part():
    first, second = digits(), digits()
    np.testing.assert_array_equal(first.held_out_images, second.held_out_images)
    tuning = first.for_tuning()
    assert rows_of(np.concatenate([tuning.images, tuning.held_out_images])) == rows_of(first.images)


def test_a_batch_holds_every_item_at_most_once():
    batches = jax.vmap(lambda key: draw_batch(key, 20, 15))(jax.random.split(jax.random.key(0), 200))
    assert all(len(set(batch.tolist())) == 15 for batch in np.asarray(batches))
    # each item stands in a batch with probability 3/4: 150 of 200, standard deviation 6.1; five of them over 20 items
    np.testing.assert_allclose(np.bincount(np.asarray(batches).ravel(), minlength=20), 150, atol=31)


def test_images_and_batches_that_cannot_be_used_are_refused():
    for bad, words in ((np.ones((3, 64)), "height"), (np.full((3, 8, 8), 2.0), "from 0 to 1"),
                       (np.full((3, 8, 8), np.nan), "0 to 1"), ([[1], [1, 2]], "images")):  # fmt: skip
        with pytest.raises(ij.InputError, match=words):
            grey_images("images", bad)
    for size in (1, 11, 2.5):
        with pytest.raises(ij.InputError, match="batch_size"):
            batch_size_for(10, size)
    few = Digits(np.zeros((20, 8, 8)), np.arange(20) % 2, np.zeros((2, 8, 8)), np.arange(2))
    with pytest.raises(ij.InputError, match="40"):
        few.for_tuning()
