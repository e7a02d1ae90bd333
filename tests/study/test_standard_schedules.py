"""The eight schedules that a study compares."""

from __future__ import annotations

import numpy as np
import pytest

from infonce_jax.schedules import FixedSchedule, HorizonSchedule
from infonce_jax.study import StudyConfiguration, standard_schedules
from infonce_jax.study.configuration import quench_steps


def test_logarithms_stand_on_both_sides_of_the_critical_depth():
    schedules = standard_schedules(0.7, 100.0)
    depths = [dict(s.parameters)["depth"] / 0.7 for name, s in schedules.items() if name.startswith("log")]
    assert depths == pytest.approx([0.5, 1.0, 1.5, 2.0])


def test_only_the_stretched_schedule_depends_on_the_horizon():
    short, long = standard_schedules(0.7, 100.0), standard_schedules(0.7, 1000.0)
    for name in short:
        same = np.array_equal(short[name]([0.0, 10.0, 50.0]), long[name]([0.0, 10.0, 50.0]))
        assert same == isinstance(short[name], FixedSchedule)
        assert same != isinstance(short[name], HorizonSchedule)


def test_quench_steps_are_increasing_and_end_with_the_run():
    for steps in (10, 31, 3000, 100_000):
        grid = quench_steps(steps)
        assert grid[-1] == steps
        assert np.all(np.diff(grid) > 0)


def test_quick_makes_a_study_smaller_and_never_larger():
    quick = StudyConfiguration(quick=True, chains=64).checked()
    assert (quick.chains, quick.steps) == (64, 3000)
