"""Rare passages by multilevel splitting: mean first passage times far beyond what plain simulation reaches.

A chain that leaves a trap climbs in a reaction coordinate xi. With A = {xi <= z_A} around the start, B the target and
levels z_A < z_0 < z_1 < ... < z_K, it goes from A to {xi > z_0} and back many times before one excursion reaches B:

    E[T] = E[first entrance above z_0] + (1/p - 1) E[loop] + E[way of the excursion that succeeds],

p the probability that an excursion reaches B before A, a loop the way from above z_0 down to A and up again (Cerou,
Guyader, Lelievre and Pommier 2011, "A multiple replica approach to simulate reactive trajectories"). Loops come from
ordinary simulation; p is a product of conditional probabilities, each from the same number of replicas, started where
successful ones of the stage before first exceeded their level (fixed effort). With levels fixed beforehand the product
is an unbiased estimate of p for the discrete-time chain, whatever the coordinate, overshoots and ties included, because
replicas restart from the states actually reached (Cerou and Guyader 2007; Brehier, Gazeau, Goudenege, Lelievre and
Rousset 2016 for the general argument). An independent pilot places the levels. The formula for E[T] takes it that an
excursion forgets the ones before while in A; what that neglects is of the order of one loop, not of E[T].
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import t as student

from infonce_jax.checks import InputError, as_unit_rows, confidence, count, finite, positive, refuse
from infonce_jax.energies.base import Energy
from infonce_jax.integrators import geodesic_euler
from infonce_jax.landscape.derivatives import derivatives
from infonce_jax.measure.passages import (
    ABOVE,
    ARRIVED,
    BELOW,
    MOST_STEPS,
    RUNNING,
    Ball,
    EnergyBelow,
    LaneLoop,
    Race,
    check_target,
)
from infonce_jax.noise import chain_keys

__all__ = ["Splitting", "splitting"]

# Share of the replicas that pass a level in the pilot. The variance for a given effort is flat around e^{-1}.
_SHARE = 0.37
_PILOT = 1024
_MOST_LEVELS = 200
# Loops before counting starts, so that the start at one point is forgotten, and loops that count.
_BURN_IN, _LOOPS = 1, 3


@dataclasses.dataclass(frozen=True, eq=False)
class Splitting:
    """A mean first passage time by splitting, and what it is made of.

    Attributes:
        mean: E[T], time units, from the averages over repeats.
        low, high: confidence interval from the scatter of the repeats (jackknife of log mean, Student's t).
        standard_error: of the mean.
        level: of confidence.
        probability: p, average over the repeats.
        probabilities: p of each repeat, shape (repeats,); unbiased, zero where all replicas fell back.
        entrance_times, loop_times, reactive_times: averages of each repeat, time units, shape (repeats,); reactive
            times are NaN where p is zero.
        levels: z_A, z_0, ..., z_K.
        stages: conditional probabilities, shape (repeats, K + 1), the last one of reaching the target from z_K.
        chain_steps: work done, pilot included.
    """

    mean: float
    low: float
    high: float
    standard_error: float
    level: float
    probability: float
    probabilities: np.ndarray
    entrance_times: np.ndarray
    loop_times: np.ndarray
    reactive_times: np.ndarray
    levels: np.ndarray
    stages: np.ndarray
    chain_steps: int

    def __str__(self) -> str:
        return f"{self.mean:.4g} [{self.low:.4g}, {self.high:.4g}]"


@dataclasses.dataclass(frozen=True, eq=False)
class _Race:
    """Replicas that race between levels, each call with noise of its own."""

    loop: LaneLoop
    beta: float
    watcher: Any
    coordinate: Callable[[jax.Array], jax.Array]
    seed: int
    max_steps: int

    def run(self, starts: np.ndarray, stream: int, floor: float, ceiling: float) -> tuple[np.ndarray, ...]:
        """(outcome, step, highest coordinate, positions) of replicas started at (replicas, n, d)."""
        observer = Race(self.watcher, np.asarray(floor), np.asarray(ceiling), self.coordinate)
        keys = chain_keys(self.seed, np.arange(len(starts)), stream)
        result = self.loop.run(self.beta, starts, keys, observer, lambda c: c[0] == RUNNING, self.max_steps)
        if np.isinf(floor) and np.isinf(ceiling):  # nothing to decide: positions after max_steps
            return result
        if np.any(result[0] == RUNNING):
            raise InputError(
                f"max_steps: got {self.max_steps}; needs enough for every replica to fall back or to rise, "
                f"{np.mean(result[0] == RUNNING):.2g} of them did neither between {floor:.4g} and {ceiling:.4g}; "
                "pass more, or a coordinate that falls on the way into the trap"
            )
        return result


def splitting(
    energy: Energy,
    beta: float,
    start: Any,
    reaction_coordinate: Callable[[jax.Array], jax.Array],
    levels: Sequence[float] | None = None,
    num_replicas: int = 1024,
    seed: int = 0,
    *,
    step_size: float,
    target: EnergyBelow | Ball,
    num_repeats: int = 8,
    max_steps: int = 1_000_000,
    level: float = 0.95,
) -> Splitting:
    """Mean first passage time from a minimum to a target, by fixed-effort multilevel splitting.

    Args:
        energy: the energy.
        beta: inverse temperature, 1/energy.
        start: shape (n, d), the minimum of the trap.
        reaction_coordinate: JAX function of positions (n, d) -> scalar, growing on the way out; see
            `measure.reaction_coordinates`. It decides the variance, never the expectation of p.
        levels: z_A < z_0 < ... < z_K, at least two; by default from a pilot run with a seed of its own.
        num_replicas: per stage and repeat.
        seed: of everything random.
        step_size: h, time units; at most .2/L for an unbiased Gibbs law.
        target: `EnergyBelow` or `Ball`.
        num_repeats: independent estimates, at least 2, run side by side.
        max_steps: of one stage of one replica.
        level: of confidence.

    Returns:
        A `Splitting`.

    Raises:
        InputError: arguments that cannot be used, levels that no replica reached, or max_steps too small.
    """
    b, h = positive("beta", beta), positive("step_size", step_size)
    x, target = _checked(energy, start, reaction_coordinate, check_target(energy, target))
    replicas, repeats = count("num_replicas", num_replicas, least=2), count("num_repeats", num_repeats, least=2)
    if count("max_steps", max_steps) > MOST_STEPS:
        raise refuse("max_steps", max_steps, f"at most {MOST_STEPS}", "leave it out")
    confidence("level", level)
    pilot_seed, own_seed, host_seed = np.random.SeedSequence([count("seed", seed, least=0), 0x5B]).generate_state(
        3, np.uint64
    )
    race = _Race(LaneLoop(energy, geodesic_euler(h)), b, target.watcher(h, b), reaction_coordinate, int(own_seed),
                 int(max_steps))  # fmt: skip
    if levels is None:
        z = _pilot_levels(dataclasses.replace(race, seed=int(pilot_seed)), energy, x, h)
    else:
        z = _checked_levels(levels)
    rng = np.random.default_rng(host_seed)
    parts = _estimate(race, x, z, (repeats, replicas), rng)
    return _assembled(parts, z, h, level, race.loop.chain_steps)


def _checked(energy: Any, start: Any, coordinate: Any, target: Any) -> tuple[np.ndarray, EnergyBelow | Ball]:
    if not isinstance(energy, Energy):
        raise refuse("energy", type(energy).__name__, "an Energy", "wrap a function with energies.from_function")
    x = as_unit_rows("start", start)
    if x.shape != energy.shape:
        raise refuse("start", f"shape {x.shape}", f"shape {energy.shape}", "one row per embedding")
    try:
        value = jax.eval_shape(coordinate, jax.ShapeDtypeStruct(x.shape, jnp.float32))
    except Exception as error:
        raise refuse("reaction_coordinate", f"one that fails with {error}", "a JAX function of positions (n, d)",
                     "see measure.reaction_coordinates") from error  # fmt: skip
    if getattr(value, "shape", None) != ():
        raise refuse("reaction_coordinate", f"a result of shape {getattr(value, 'shape', None)}", "a scalar",
                     "see measure.reaction_coordinates")  # fmt: skip
    return x, target


def _checked_levels(levels: Any) -> np.ndarray:
    z = np.array([finite("levels", value) for value in levels])
    if len(z) < 2 or np.any(np.diff(z) <= 0):
        raise refuse("levels", levels, "at least two numbers, increasing", "z_A, then z_0, z_1, ...")
    return z


def _pilot_levels(race: _Race, energy: Energy, start: np.ndarray, step_size: float) -> np.ndarray:
    """z_A at the median of the coordinate in the trap, z_0 at its .9 quantile, then levels passed by a fixed share."""
    here = derivatives(energy, start[None])
    curvatures = np.linalg.eigvalsh(here.hessian[0])
    soft = float(np.min(curvatures[curvatures > 1e-3], initial=np.inf))
    if not np.isfinite(soft) or curvatures[0] < -1e-3 or np.linalg.norm(here.gradient) > 1e-2:
        raise refuse("start", "a configuration that is no minimum", "a minimum of the trap",
                     "pass landscape.minima[k].position")  # fmt: skip
    relaxation = min(int(np.ceil(3 / (soft * step_size))), race.max_steps)
    settle = dataclasses.replace(race, max_steps=relaxation)
    outcome, _, _, x = settle.run(np.broadcast_to(start, (_PILOT, *start.shape)), 1, -np.inf, np.inf)
    rng = np.random.default_rng(race.seed)
    if np.all(outcome == ARRIVED):
        raise refuse("beta", f"{race.beta:g}, at which all reach the target while they relax",
                     "a target that is rarely reached", "use measure.hitting_times")  # fmt: skip
    x = x[_offspring(outcome == RUNNING, _PILOT, rng)]  # who is at the target already has no place in the trap's law
    heights = np.asarray(jax.vmap(race.coordinate)(jnp.asarray(x, jnp.float32)))
    floor, ceiling = (float(q) for q in np.quantile(heights, (0.5, 0.9)))
    z = [floor, ceiling]
    _, _, _, x = race.run(x, 2, -np.inf, ceiling)
    for stage in range(_MOST_LEVELS):
        outcome, _, highest, _ = race.run(x, 3 + stage, floor, np.inf)
        if np.mean(outcome == ARRIVED) >= _SHARE:
            return np.array(z)
        nearest = float(np.quantile(np.where(outcome == ARRIVED, np.inf, highest), 1 - _SHARE))
        if not nearest > z[-1]:
            break
        z.append(nearest)
        # The same noise once more, stopped at the new level: where these replicas entered it.
        outcome, _, _, places = race.run(x, 3 + stage, floor, nearest)
        x = places[_offspring(outcome >= ABOVE, len(x), rng)]
    raise InputError(
        f"reaction_coordinate: got stuck at {z[-1]:.6g} after {len(z)} levels, away from the target; needs one that "
        "grows all the way to the target; see measure.reaction_coordinates"
    )


def _offspring(successful: np.ndarray, number: int, rng: np.random.Generator) -> np.ndarray:
    """Indices of `number` parents drawn from the successful ones, each as often as the others up to one.

    Every parent has the same expected number of children, which is all that unbiasedness asks, and the scatter is the
    least possible.
    """
    parents = np.flatnonzero(successful)
    times, rest = divmod(number, len(parents))
    return np.concatenate([np.tile(parents, times), rng.choice(parents, rest, replace=False)])


def _resampled(successful: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Parents within each repeat, shape (repeats, replicas) to flat indices; a repeat without success keeps its own."""
    repeats, replicas = successful.shape
    rows = [
        replicas * r + (_offspring(successful[r], replicas, rng) if successful[r].any() else np.arange(replicas))
        for r in range(repeats)
    ]
    return np.concatenate(rows)


def _mean_where(values: np.ndarray, use: np.ndarray) -> np.ndarray:
    """Average along the last axis over the entries in use; NaN where there are none."""
    number = use.sum(axis=-1)
    return np.where(number, np.sum(values * use, axis=-1) / np.maximum(number, 1), np.nan)


@dataclasses.dataclass(frozen=True, eq=False)
class _Parts:
    """Steps and probabilities of each repeat."""

    entrance: np.ndarray
    loops: np.ndarray
    reactive: np.ndarray
    stages: np.ndarray


def _estimate(race: _Race, start: np.ndarray, z: np.ndarray, shape: tuple[int, int], rng: Any) -> _Parts:
    floor, surface = float(z[0]), float(z[1])
    total = shape[0] * shape[1]
    _, steps, _, x = race.run(np.broadcast_to(start, (total, *start.shape)), 1, -np.inf, surface)
    entrance = steps.reshape(shape).mean(axis=1)
    loops = []
    for k in range(_BURN_IN + _LOOPS):
        outcome, down, _, places = race.run(x, 2 + 2 * k, floor, np.inf)
        back = (outcome == BELOW).reshape(shape)
        if not back.any(axis=1).all():
            raise refuse("beta", f"{race.beta:g}, at which every excursion reaches the target",
                         "a target that is rarely reached", "use measure.hitting_times")  # fmt: skip
        # Those that reached the target are no loops; others stand in for them, so that all go on from the same law.
        _, up, _, x = race.run(places[_resampled(back, rng)], 3 + 2 * k, -np.inf, surface)
        loops.append(_mean_where(down.reshape(shape), back) + up.reshape(shape).mean(axis=1))
    stages, elapsed = [], np.zeros(total)
    alive = np.ones(shape[0], dtype=bool)
    for k, ceiling in enumerate([*z[2:], np.inf]):
        outcome, steps, _, places = race.run(x, 2 + 2 * (_BURN_IN + _LOOPS) + k, floor, float(ceiling))
        successful = (outcome >= ABOVE).reshape(shape) & alive[:, None]
        stages.append(successful.mean(axis=1))
        alive &= successful.any(axis=1)
        elapsed = elapsed + steps
        if np.isfinite(ceiling):
            parents = _resampled(successful, rng)
            x, elapsed = places[parents], elapsed[parents]
    reactive = _mean_where(elapsed.reshape(shape), successful)
    return _Parts(entrance, np.mean(loops[_BURN_IN:], axis=0), reactive, np.stack(stages, axis=1))


def _mean_time(entrance: Any, p: Any, loop: Any, reactive: Any) -> Any:
    return entrance + (1 / p - 1) * loop + reactive


def _assembled(parts: _Parts, z: np.ndarray, step_size: float, level: float, chain_steps: int) -> Splitting:
    p = parts.stages.prod(axis=1)
    if np.sum(p > 0) < 2:
        raise refuse("levels", f"{len(z)} levels at which all but {np.sum(p > 0)} repeats fell back",
                     "levels that replicas pass", "pass more replicas, or leave levels out")  # fmt: skip
    repeats = len(p)
    # Reactive times count with the weight of their successes, so that a repeat without any drops out.
    columns = np.stack([parts.entrance, p, parts.loops, p * np.nan_to_num(parts.reactive)])

    def mean_of(use: np.ndarray) -> float:
        entrance, probability, loop, weighted = columns[:, use].mean(axis=1)
        return float(step_size * _mean_time(entrance, probability, loop, weighted / probability))

    mean = mean_of(np.ones(repeats, dtype=bool))
    everyone = np.arange(repeats)
    without = np.log([mean_of(everyone != r) for r in everyone])
    error = float(np.sqrt((repeats - 1) / repeats * np.sum((without - without.mean()) ** 2)))
    reach = float(student.ppf((1 + level) / 2, repeats - 1)) * error
    return Splitting(
        mean, mean * float(np.exp(-reach)), mean * float(np.exp(reach)), mean * error, level, float(p.mean()), p,
        parts.entrance * step_size, parts.loops * step_size, parts.reactive * step_size, z, parts.stages, chain_steps,
    )  # fmt: skip
