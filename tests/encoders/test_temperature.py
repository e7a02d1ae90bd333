"""Temperatures of a training: the text form, functions of the step, and values that no chunk can change."""

from __future__ import annotations

import math

import numpy as np
import optax
import pytest

from infonce_jax.encoders import Learned, learned, parse_temperature
from infonce_jax.encoders.temperature import Taus
from tests.refusals import THREE_PARTS, message_of

STEPS = np.array([0, 1, 750, 1500, 2999, 3000, 5000])


def values(text, num_steps=3000):
    return parse_temperature(text).over(num_steps)(STEPS)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "schedule"),
    [
        ("0.5", optax.constant_schedule(0.5)),
        ("constant:0.5", optax.constant_schedule(0.5)),
        ("linear:5:0.5", optax.linear_schedule(5.0, 0.5, 3000)),
        ("linear:0.1:0.5:1000", optax.linear_schedule(0.1, 0.5, 1000)),
        ("exponential:5:0.5:2500", optax.exponential_decay(5.0, 2500, 0.1, end_value=0.5)),
        ("cosine:5:0.5:2500", optax.cosine_decay_schedule(5.0, 2500, alpha=0.1)),
    ],
)
def test_text_means_what_optax_means(text, schedule):
    np.testing.assert_allclose(values(text), [schedule(step) for step in STEPS], rtol=2e-6)


def test_the_logarithm_has_the_form_of_the_table():
    wanted = [max(0.5, 2 / math.log(2.7 + 0.02 * t)) for t in STEPS]
    np.testing.assert_allclose(values("logarithmic:2:0.5"), wanted, rtol=1e-14)
    assert wanted[0] > 2
    assert wanted[-1] == 0.5


def test_learned_from_text():
    assert parse_temperature("learned:0.1") == Learned(0.1) == learned(0.1)


def test_the_chunks_of_a_run_do_not_change_a_temperature():
    taus = Taus(optax.cosine_decay_schedule(5.0, 2500, alpha=0.1), 3000)
    whole = taus(0, 3001)
    for first, count in ((0, 1), (1000, 100), (1023, 2), (1024, 1), (2048, 953), (37, 2000)):
        np.testing.assert_array_equal(taus(first, count), whole[first : first + count])
    assert whole.dtype == np.float64
    assert taus.lowest == whole.min()


def test_a_function_of_one_step_will_do():
    taus = Taus(lambda step: 5.0 if step < 10 else 0.5, 20)
    np.testing.assert_array_equal(taus(8, 4), [5, 5, 0.5, 0.5])


BAD = {
    "a word": lambda: parse_temperature("warm"),
    "no end": lambda: parse_temperature("cosine:5"),
    "an unknown family": lambda: parse_temperature("quadratic:5:0.5"),
    "no number": lambda: parse_temperature("cosine:5:low"),
    "half a step": lambda: parse_temperature("cosine:5:0.5:2.5"),
    "no step": lambda: parse_temperature("cosine:5:0.5:0"),
    "zero at the end": lambda: parse_temperature("linear:5:0"),
    "below the clip": lambda: learned(0.001),
    "too many numbers": lambda: parse_temperature("logarithmic:5:0.5:100"),
    "negative": lambda: Taus(-0.5, 10),
    "nothing": lambda: Taus(None, 10),
    "zero late in the run": lambda: Taus(optax.linear_schedule(1.0, 0.0, 2000), 3000),
    "a function that fails": lambda: Taus(lambda step: {}["tau"], 10),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_in_one_line(name):
    assert THREE_PARTS.fullmatch(message_of(BAD[name]))


def test_the_step_at_which_a_schedule_ends_is_named():
    assert "tau = 0 at step 2000" in message_of(BAD["zero late in the run"])
    Taus(optax.linear_schedule(1.0, 0.0, 2000), 1999)  # which never gets there
