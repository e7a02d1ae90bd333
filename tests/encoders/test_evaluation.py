"""Scores of embeddings: right where they are known, chance where there is nothing to know."""

from __future__ import annotations

import numpy as np
import pytest

import infonce_jax as ij
from infonce_jax.encoders.evaluation import Retrieval, chance, linear_probe, nearest_neighbours, retrieval


def on_sphere(number, dim, seed):
    rows = np.random.default_rng(seed).normal(size=(number, dim))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def clusters(number, seed):
    """Points near the axes of R^4, labelled by their axis."""
    labels = np.arange(number) % 4
    rows = np.eye(4)[labels] + 0.2 * on_sphere(number, 4, seed)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), labels


SCORES = (nearest_neighbours, linear_probe)


@pytest.mark.parametrize("score", SCORES)
def test_clusters_are_told_apart(score):
    assert score(*clusters(200, 0), *clusters(80, 1)) == 1.0


@pytest.mark.parametrize("score", SCORES)
def test_collapsed_embeddings_score_at_chance(score):
    labels, held_out_labels = np.arange(200) % 4, np.arange(80) % 4
    point = on_sphere(1, 4, 0)
    collapsed = np.repeat(point, 200, axis=0), labels, np.repeat(point, 80, axis=0), held_out_labels
    assert score(*collapsed) == chance(held_out_labels) == 0.25


@pytest.mark.parametrize("score", SCORES)
def test_labels_that_have_nothing_to_do_with_embeddings_score_at_chance(score):
    labels = np.random.default_rng(0).integers(4, size=1200)
    rows = on_sphere(1200, 4, 1)
    # standard deviation sqrt(.25 .75/600) = .018: five of them, false alarm 6e-7
    assert score(rows[:600], labels[:600], rows[600:], labels[600:]) == pytest.approx(0.25, abs=0.09)


def test_neighbours_vote():
    rows, labels = [[0.0], [1.0], [1.1], [5.0]], [0, 1, 1, 2]
    assert nearest_neighbours(rows, labels, [[0.1], [5.0]], [0, 2], neighbours=1) == 1.0
    assert nearest_neighbours(rows, labels, [[0.1], [5.0]], [1, 1], neighbours=3) == 1.0


def test_retrieval_of_perfect_and_of_shuffled_pairs():
    rows = on_sphere(50, 8, 0)
    assert retrieval(rows, rows) == Retrieval(1.0, 1.0, 0.02)
    shuffled = retrieval(rows, np.roll(rows, 1, axis=0))
    assert (shuffled.forward, shuffled.backward) == (0, 0)


def test_retrieval_is_counted_in_each_direction():
    a = np.eye(3)
    b = np.array([[1.0, 0, 0], [0.8, 0.6, 0], [0, 0, 1.0]])
    # every a finds its b, 1 against 0 and .8, .6 against 0; b[1] finds a[0], .8 against .6
    assert retrieval(a, b).forward == 1.0
    assert retrieval(a, b).backward == pytest.approx(2 / 3)


def test_ties_count_what_random_choice_would_score():
    point = on_sphere(1, 8, 0).astype(np.float32)
    collapsed = np.repeat(point, 40, axis=0)
    assert retrieval(collapsed, collapsed).forward == pytest.approx(1 / 40)
    jitter = collapsed + 3e-8 * on_sphere(40, 8, 1)  # the rounding of single precision is no information
    assert retrieval(jitter, jitter).backward == pytest.approx(1 / 40)
    twins = np.repeat(np.eye(4), 2, axis=0)
    assert retrieval(twins, twins).forward == 0.5
    one_sided = retrieval(twins, on_sphere(1, 4, 0).repeat(8, axis=0))
    assert one_sided.forward == pytest.approx(1 / 8)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: retrieval(np.eye(3), np.eye(4)), "same shape"),
        (lambda: retrieval(np.eye(3), 2 * np.eye(3)), "norm"),
        (lambda: nearest_neighbours(np.eye(3), [0, 1], np.eye(3), [0, 1, 2]), "embeddings"),
        (lambda: nearest_neighbours(np.eye(3), [0, 1, 2], np.eye(3), [0, 1, 2]), "neighbours"),
        (lambda: nearest_neighbours(np.eye(5), range(5), np.full((5, 5), np.nan), range(5)), "held_out"),
        (lambda: linear_probe(np.eye(3), [1, 1, 1], np.eye(3), [1, 1, 1]), "one class"),
        (lambda: linear_probe(np.eye(3), [0, 1, 2], np.eye(2), [0, 1]), "one encoder"),
        (lambda: chance([]), "labels"),
    ],
)
def test_what_cannot_be_scored_is_refused(call, words):
    with pytest.raises(ij.InputError, match=words):
        call()
