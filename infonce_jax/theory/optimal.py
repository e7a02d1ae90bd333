"""The schedule to use: beta(t) that leaves the least in the traps after a given time, by the master equation."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from infonce_jax.checks import count, instance, positive, refuse
from infonce_jax.landscape import Landscape
from infonce_jax.schedules import HorizonSchedule
from infonce_jax.theory.eyring_kramers import Corrections
from infonce_jax.theory.master_equation import RateTable, initial_law, rate_table

__all__ = ["OptimalSchedule", "optimal_schedule"]

_PIECES = 160  # of constant beta, even in log(1 + t/t0): the law is exact within each
_LEARNING_RATE = 0.2
# Noise of one step is sqrt(2h/beta) per direction; above half a radian a step no longer follows the landscape.
_LARGEST_NOISE = 0.5
# Rates between basins mean little where the deepest trap is less than one 1/beta deep ...
_HOTTEST = 1.0
# ... and nothing moves any more where it is this many.
_COLDEST = 25.0


@dataclasses.dataclass(frozen=True)
class OptimalSchedule(HorizonSchedule):
    """A schedule made for one horizon; `probability` is what the master equation says it leaves off the global minimum.

    Attributes:
        probability: predicted P(not at the global minimum) at the horizon, after a quench.
        bounds: the lowest and highest inverse temperature that were allowed.
    """

    probability: float = math.nan
    bounds: tuple[float, float] = (0.0, math.inf)


def optimal_schedule(
    landscape: Landscape,
    horizon: float,
    *,
    step_size: float | None = None,
    corrections: Corrections | None = None,
    initial: Any = "uniform",
    num_knots: int = 12,
    num_iterations: int = 400,
) -> OptimalSchedule:
    """Find beta(t) that minimises P(not at the global minimum at the horizon) under the master equation.

    log beta is linear between knots that are even in log(1 + t/t0), t0 a thousandth of the horizon; Adam descends
    log P through the exact dynamics of 160 pieces of constant beta, from several starts. It is as good as the rates
    are: without corrections soft traps are left three times too slowly.

    Args:
        landscape: from `landscape.explore`, with counted copies and a trap.
        horizon: T > 0, time units: steps times step size.
        step_size: h of the integrator, which bounds beta from below; by default a quarter of 1/L.
        corrections: from `theory.corrections`; None for harmonic rates.
        initial: law over the classes at time 0, as in `master_equation.occupancies`.
        num_knots: of log beta.
        num_iterations: of Adam.

    Returns:
        An `OptimalSchedule`, which runs like any other schedule.

    Raises:
        InputError: a landscape without a trap or without a known passage, or numbers that are not positive.
    """
    T, knots = positive("horizon", horizon, "num_steps * step_size"), count("num_knots", num_knots, least=2)
    instance("landscape", landscape, Landscape, "from landscape.explore(energy)")
    depth = landscape.critical_depth
    if not (0 < depth < math.inf):
        raise refuse("landscape", f"E* = {depth:g}", "a trap with a known passage", "any schedule does without one")
    h = 0.25 / landscape.curvature if step_size is None else positive("step_size", step_size)
    low, high = max(2 * h / _LARGEST_NOISE**2, _HOTTEST / depth), _COLDEST / depth
    table = rate_table(landscape, low, high, corrections)
    law = initial_law(landscape, initial)
    clock = np.linspace(0.0, math.log1p(1000.0), knots)
    with jax.enable_x64(True):
        loss = functools.partial(_log_lost, _Problem.of(table, law, landscape.number_global, clock, T))
        found, losses = _descend(loss, _starts(low, high, clock), count("num_iterations", num_iterations))
    best = int(np.nanargmin(losses))
    beta = np.exp(_log_beta(np.asarray(found[best]), math.log(low), math.log(high)))
    return _as_schedule(beta, clock, T, math.exp(float(losses[best])), (low, high))


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class _Problem:
    """What the loss needs, in double precision."""

    log_betas: Any
    log_rates: Any
    pairs: Any
    law: Any
    lost: Any  # 1 for classes that are not global
    clock: Any
    pieces: Any  # midpoints on the clock
    durations: Any

    @staticmethod
    def of(table: RateTable, law: np.ndarray, number_global: int, clock: np.ndarray, horizon: float) -> _Problem:
        edges = np.linspace(0.0, clock[-1], _PIECES + 1)
        times = np.expm1(edges) * horizon / math.expm1(clock[-1])
        lost = (np.arange(table.minima) >= number_global).astype(float)
        parts = (table.log_betas, table.log_rates, table.pairs, law, lost, clock, (edges[1:] + edges[:-1]) / 2,
                 np.diff(times))  # fmt: skip
        return _Problem(*(jnp.asarray(part) for part in parts))


def _log_beta(free: Any, low: float, high: float) -> Any:
    """From the whole line to between the bounds."""
    return low + (high - low) / (1 + jnp.exp(-free))


def _log_lost(problem: _Problem, free: jax.Array) -> jax.Array:
    """log P(not global at T) of the schedule with these free parameters at the knots."""
    grid = problem.log_betas
    knots = _log_beta(free, grid[0], grid[-1])
    log_beta = jnp.interp(problem.pieces, problem.clock, knots)
    place = jnp.clip((log_beta - grid[0]) / (grid[1] - grid[0]), 0.0, len(grid) - 1.001)
    k = place.astype(int)
    part = (place - k)[:, None]
    rates = jnp.exp(problem.log_rates[:, k] * (1 - part) + problem.log_rates[:, k + 1] * part)
    here, there = problem.pairs

    def move(law: jax.Array, piece: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        (onward, back), duration = piece
        q = jnp.zeros((len(law), len(law))).at[here, there].add(onward).at[there, here].add(back)
        q = q - jnp.diag(q.sum(axis=1))
        return law @ jax.scipy.linalg.expm(q * duration, max_squarings=40), None

    law, _ = jax.lax.scan(move, problem.law, (jnp.moveaxis(rates, 1, 0), problem.durations))
    return jnp.log(jnp.maximum(jnp.sum(law * problem.lost), 1e-300))


def _starts(low: float, high: float, clock: np.ndarray) -> np.ndarray:
    """Free parameters to start from: held at a level for most of the run, then cooled; shape (starts, knots)."""
    span = np.log(high / low)
    late = np.clip((np.expm1(clock) / np.expm1(clock[-1]) - 0.5) * 2, 0, 1)
    shapes = [level + late * span * slope for level in (0.25, 0.6, 1.0, 1.5) for slope in (0.2, 0.6)]
    share = np.clip(np.array(shapes) / span, 0.02, 0.98)
    return np.log(share / (1 - share))


def _descend(loss: Any, starts: np.ndarray, iterations: int) -> tuple[np.ndarray, np.ndarray]:
    """Adam from every start; the best parameters seen and their losses."""
    rule = optax.adam(optax.cosine_decay_schedule(_LEARNING_RATE, iterations, alpha=0.02))

    def one(free: jax.Array) -> tuple[jax.Array, jax.Array]:
        def step(carry: Any, _: None) -> tuple[Any, None]:
            free, state, best, least = carry
            value, slope = jax.value_and_grad(loss)(free)
            better = value < least
            best, least = jnp.where(better, free, best), jnp.where(better, value, least)
            update, state = rule.update(jnp.nan_to_num(slope), state)
            return (optax.apply_updates(free, update), state, best, least), None

        carry = (free, rule.init(free), free, jnp.asarray(jnp.inf))
        (_, _, best, least), _ = jax.lax.scan(step, carry, None, length=iterations)
        return best, least

    found, losses = jax.jit(jax.vmap(one))(jnp.asarray(starts))
    return np.asarray(found), np.asarray(losses)


def _as_schedule(
    beta: np.ndarray, clock: np.ndarray, horizon: float, probability: float, bounds: tuple[float, float]
) -> OptimalSchedule:
    scale = math.expm1(float(clock[-1])) / horizon

    def function(t: np.ndarray) -> np.ndarray:
        return np.exp(np.interp(np.log1p(np.minimum(t, horizon) * scale), clock, np.log(beta)))

    parameters = (("times", tuple((np.expm1(clock) / scale).tolist())), ("values", tuple(beta.tolist())))
    name = f"optimal for T = {horizon:.4g}, {beta.min():.3g} to {beta.max():.3g}"
    return OptimalSchedule(name, function, parameters, "optimal", horizon, probability, bounds)
