"""Critical points followed in the loss temperature, against closed forms, scalar roots and separate explorations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq

import infonce_jax as ij
from infonce_jax.landscape.branches import grow
from infonce_jax.landscape.following import follow, settled_pool
from infonce_jax.landscape.relaxation import family, look
from tests.refusals import THREE_PARTS, message_of


@pytest.fixture(scope="module")
def well():
    """The double well, one embedding on the circle, from tau = .3 to 3."""
    return ij.landscape.continuation(ij.scenarios.double_well().energy, (0.3, 3.0), num_quenches=128, num_searches=64)


@pytest.fixture(scope="module")
def ring():
    return ij.landscape.continuation(ij.scenarios.ring(5).energy, (0.5, 4.0), num_quenches=512, num_searches=384)


def one_query(pull, counts, tau):
    """A query with frozen keys at 60, -60, 0 and 180 degrees, as in THEORY section 3, with other weights."""
    keys = np.deg2rad([60, -60, 0, 180])
    keys = np.stack([np.cos(keys), np.sin(keys)], axis=1)
    return ij.energies.graph_infonce([[0, *pull]], temperature=tau, keys=keys, multiplicity=[[0, *counts]])


def number_of_minima(tau, pull=(0.55, 0.45, 0, 0), counts=(1, 1, 8, 1)):
    """Of the double well, from the sign changes of its slope, by hand, on a fine grid of angles."""
    lag = np.linspace(-np.pi, np.pi, 40_001)[:-1, None] - np.deg2rad([60, -60, 0, 180])
    p = np.array(counts) * np.exp(np.cos(lag) / tau)
    slope = np.sum((np.array(pull) - p / p.sum(axis=1, keepdims=True)) * np.sin(lag), axis=1)
    return int(np.sum((slope < 0) & (np.roll(slope, -1) >= 0)))


def twisted_eigenvalue(n, q, m, tau):
    """Of the Hessian at the state that winds q times round the circle, for the wave m: a circulant matrix.

    E = sum_i [-(cos t_{i,i+1} + cos t_{i,i-1})/2 tau + log sum_{j != i} exp(cos t_ij/tau)] to second order in the wave
    exp(2 pi i m k/n).
    """
    k = np.arange(1, n)
    turn, wave = 2 * np.pi * q * k / n, 2 * np.pi * m * k / n
    p = np.exp(np.cos(turn) / tau)
    p = p / p.sum()
    spread = p @ ((-np.cos(turn) / tau + np.sin(turn) ** 2 / tau**2) * 2 * (1 - np.cos(wave)))
    mean = np.sum(p * np.sin(turn) / tau * (np.exp(1j * wave) - 1))
    return spread - abs(mean) ** 2 + 2 * np.cos(turn[0]) * (1 - np.cos(wave[0])) / tau


def twisted_state(n, q):
    turn = 2 * np.pi * q * np.arange(n) / n
    return np.stack([np.cos(turn), np.sin(turn)], axis=1)


@pytest.fixture(scope="module")
def seven():
    """Seven views on a ring at every temperature from .5."""
    energy = ij.scenarios.ring(7).energy
    return family(energy, 0.5, ij.landscape.find_symmetry(energy))


@pytest.fixture(scope="module")
def ends_of_twist():
    """Where the state of seven views that winds twice becomes stable and ceases to be, from the closed form alone."""

    def softest(tau):
        return min(twisted_eigenvalue(7, 2, m, tau) for m in range(1, 7))

    return brentq(softest, 0.45, 1.0), brentq(softest, 1.0, 2.0)


def test_the_double_well_s_trap_ends_where_its_slope_has_no_more_sign_change(well):
    low, high = 0.6, 1.0
    assert (number_of_minima(low), number_of_minima(high)) == (2, 1)
    while high - low > 1e-6:
        middle = (low + high) / 2
        low, high = (middle, high) if number_of_minima(middle) > 1 else (low, middle)
    # on a grid of 1.6e-4 rad the two zeros of the slope are told apart down to (1.6e-4)^2 below the fold
    assert any(event.indices == (0, 1) and abs(event.temperature - low) < 2e-6 for event in well.folds)
    assert well.trap_free.bracket[0] < high + 1e-6
    assert well.trap_free.bracket[1] > low - 1e-6
    assert well.trap_free.bracket[1] - well.trap_free.bracket[0] < 1e-4


def test_spectrum_of_a_twisted_state_is_its_circulant_formula(seven):
    for tau in (0.5, 1.0, 2.5):
        expected = np.sort([twisted_eigenvalue(7, 2, m, tau) for m in range(1, 7)])
        assert look(seven, twisted_state(7, 2)[None], tau).spectrum()[0][:-1] == pytest.approx(expected, abs=1e-10)


def test_a_twisted_state_is_followed_until_its_eigenvalue_vanishes(seven, ends_of_twist):
    """Two modes vanish together; the end is sharp where the descent from it goes far away, and it does."""
    x = twisted_state(7, 2)[None]
    _, jumps = follow(seven, x, 1.0, 2.5, 2e-5)
    low, high = jumps[0].bracket
    assert low - 2e-5 < ends_of_twist[1] < high + 2e-5
    assert high - low < 2.01e-5


def test_the_branch_of_a_twisted_state_ends_where_its_eigenvalue_vanishes(seven, ends_of_twist):
    branches, _ = grow(seven, [(1.0, twisted_state(7, 2)[None])], (0.5, 2.5), np.random.default_rng(0))
    stable = next(b for b in branches if b.index == 0 and b.covers(1.0))
    assert stable.temperatures[[0, -1]] == pytest.approx(ends_of_twist, abs=1e-6)
    assert stable.ends == ("branch point", "branch point")
    turn = 4 * np.pi * np.arange(1, 7) / 7
    closed = [7 * (-np.cos(turn[0]) / t + np.log(np.sum(np.exp(np.cos(turn) / t)))) for t in stable.temperatures]
    assert stable.energies == pytest.approx(closed, abs=1e-8)


# Random starts and gradient descent: ring5 has its trap at 1.05 and not at 1.10, cube at .5 and not at .7, digit_orbit
# at 2 and not at 3. With 512 starts a basin of .01 is missed with probability .006.
@pytest.mark.parametrize(("name", "ends", "within"), [("cube", (0.4, 0.8), (0.5, 0.7)),
                                                      ("digit_orbit", (1.5, 3.0), (2.0, 3.0))])  # fmt: skip
def test_trap_free_temperatures_are_bracketed_and_confirmed(name, ends, within):
    free = ij.landscape.trap_free_temperature(ij.scenarios.get(name).energy, *ends, levels=4, confirm=1024)
    assert within[0] < free.temperature < within[1]
    assert free.bracket[1] - free.bracket[0] < 1e-4
    assert free.confirmed
    assert free.above.counts == (1024,)
    assert free.below.traps >= 1
    assert sum(free.below.counts[1:]) > 0
    assert free.above.missed == pytest.approx(1 - 0.05 ** (1 / 1024))


def test_ring5_is_trap_free_above_its_fold(ring):
    assert 1.05 < ring.trap_free_temperature < 1.10
    assert ring.trap_free.confirmed
    low, high = ring.trap_free.bracket
    fold = next(event for event in ring.folds if event.indices == (0, 1))
    assert low < fold.temperature < high
    assert ring.critical_depth(1.2) == 0
    assert ring.descent.arrives
    assert "leads continuously to the global minimum" in ring.summary()


@pytest.mark.parametrize("tau", [0.5, 0.8, 1.0])
def test_critical_depth_is_that_of_a_separate_search(ring, tau):
    land = ij.landscape.explore(ij.scenarios.ring(5, temperature=tau).energy, 5, num_quenches=512, num_searches=384)
    assert ring.critical_depth(tau) == pytest.approx(land.critical_depth, abs=1e-8)
    assert ring.at(tau).energies == pytest.approx([m.energy for m in land.minima], abs=1e-9)


def test_barriers_fall_to_zero_at_the_fold(ring):
    ((at, heights),) = ring.barriers().values()
    assert np.all(np.diff(heights) < 0)
    assert heights[0] == pytest.approx(0.66304837, abs=1e-7)  # E* of SCENARIOS
    # near a fold the barrier goes as the distance to the power 3/2: its 2/3 power meets zero at the fold
    a, b = at[-2:]
    u, v = heights[-2:] ** (2 / 3)
    assert b + v * (b - a) / (u - v) == pytest.approx(ring.trap_free_temperature, abs=2e-3)


def test_results_do_not_depend_on_the_seed(ring):
    again = ij.landscape.trap_free_temperature(ij.scenarios.ring(5).energy, 0.5, 4.0, seed=9)
    assert again.temperature == pytest.approx(ring.trap_free_temperature, abs=4e-5)
    assert again.levels[0].energies == pytest.approx(ring.trap_free.levels[0].energies, abs=1e-9)
    assert again.levels[0].counts != ring.trap_free.levels[0].counts


def test_a_trap_at_the_highest_temperature_is_said():
    free = ij.landscape.trap_free_temperature(ij.scenarios.ring(5).energy, 0.5, 1.0, levels=2, confirm=512)
    assert math.isinf(free.temperature)
    assert free.bracket == (1.0, math.inf)
    assert "Traps remain at tau = 1" in free.statement()


def test_a_landscape_without_a_trap_is_said():
    # SCENARIOS: one more dimension removes the trap; the planar global minimum has the full orbit of SO(3)
    energy = ij.scenarios.ring(5, dim=3).energy
    free = ij.landscape.trap_free_temperature(energy, 0.5, 1.0, starts=64, levels=2, confirm=64)
    assert free.bracket == (0.0, 0.5)
    assert free.temperature == 0.5
    assert "No trap at any temperature looked at" in free.statement()


def test_a_branch_that_does_not_lead_to_the_global_minimum_is_said():
    energy = one_query((0.6, 0.4, 0, 0), (6, 1, 8, 1), 0.1)
    found = ij.landscape.continuation(energy, (0.1, 2.0), num_quenches=128, num_searches=64, confirm=256)
    assert not found.descent.arrives
    assert 0.1 < found.descent.first_above < 0.3  # on a grid of angles another well is the lowest at .2, not at .3
    assert "does NOT lead to the global minimum" in found.summary()
    # the same with nothing but descents in small steps of tau, from the one minimum at tau = 2
    x = np.array([[[-0.8, -0.6]]])
    for tau in np.geomspace(2.0, 0.1, 200):
        x, energies, _ = ij.landscape.quench(energy.with_temperature(tau), x, 1e-6)
    assert found.descent.energy == pytest.approx(energies[0], abs=1e-6)
    assert found.descent.lowest < energies[0] - 1


def test_descents_from_one_place_make_one_class(seven):
    x = np.stack([twisted_state(7, 1), twisted_state(7, 2), np.roll(twisted_state(7, 2), 3, axis=0)])
    assert settled_pool(seven, x, 1.0).members.tolist() == [0, 1, 1]


RING = ij.scenarios.ring(5).energy
BAD = {
    "a function": lambda: ij.landscape.continuation(ij.energies.from_function(lambda x: x[0, 0], (2, 2)), (0.5, 1)),
    "no energy": lambda: ij.landscape.continuation(3, (0.5, 1)),
    "one temperature": lambda: ij.landscape.continuation(RING, [0.5]),
    "equal temperatures": lambda: ij.landscape.continuation(RING, [0.5, 0.5]),
    "negative temperature": lambda: ij.landscape.continuation(RING, (-0.5, 1)),
    "a word": lambda: ij.landscape.continuation(RING, "hot"),
    "seed": lambda: ij.landscape.continuation(RING, (0.5, 1), seed=-1),
    "low above high": lambda: ij.landscape.trap_free_temperature(RING, 2, 1),
    "one level": lambda: ij.landscape.trap_free_temperature(RING, 1, 2, levels=1),
    "no starts": lambda: ij.landscape.trap_free_temperature(RING, 1, 2, starts=0),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_in_one_line(name):
    assert THREE_PARTS.fullmatch(message_of(BAD[name]))


def test_temperatures_beyond_the_ends_are_refused(ring):
    assert THREE_PARTS.fullmatch(message_of(lambda: ring.critical_depth(9.0)))
