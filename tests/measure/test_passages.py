"""How a chain that is seen at its steps only should see a ball."""

from __future__ import annotations

import numpy as np
import pytest

from infonce_jax.measure import Ball

POINT = [[1.0, 0.0]]


def test_a_ball_is_wider_for_a_chain_that_is_seen_at_its_steps_only():
    # THEORY section 3: the chain enters a ball as the diffusion enters one smaller by .5826 sqrt(2h/beta). The mean
    # times of deep traps hardly tell a wider ball from a narrower one, so the radius itself is checked.
    watcher = Ball(np.array(POINT), 0.2).watcher(step_size=0.02, beta=5.0)
    assert float(watcher.radius) == pytest.approx(0.2 + 0.5826 * np.sqrt(2 * 0.02 / 5.0), abs=1e-5)


def test_without_the_correction_a_ball_is_what_it_is():
    assert float(Ball(np.array(POINT), 0.2, continuity=False).watcher(0.02, 5.0).radius) == 0.2
