"""What annealing theory says of a schedule, with its assumptions.

All statements are about fixed schedules (one function of time, whatever the length of the run) and long times. They
take the critical depth E*, the spectral depth m and energies as plain numbers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from scipy import integrate

from infonce_jax.checks import finite, instance, numbers, positive, refuse
from infonce_jax.schedules import HorizonSchedule, Schedule

__all__ = ["Exponent", "Trapping", "horizon_law", "logarithmic_exponent", "trapping_criterion", "two_state_law"]


@dataclasses.dataclass(frozen=True)
class Exponent:
    """How fast P(E >= min E + delta) falls, as a power of t, under beta = log(t)/c.

    Attributes:
        converges: whether the probability goes to zero at all (c > E*; c = E* is not settled on manifolds).
        bound: exponent of the proven bound, min(delta/c, (1 - E*/c)/2); 0 where there is none.
        sharp: delta/c where c exceeds the spectral depth, so that the law follows the Gibbs law; otherwise NaN.
        assumptions: in words.
    """

    converges: bool
    bound: float
    sharp: float
    assumptions: str


def logarithmic_exponent(c: float, critical_depth: float, spectral_depth: float, delta: float) -> Exponent:
    """The predicted decay under beta(t) = log(offset + t/t0)/c.

    P(E >= min E + delta) is at most a constant times t^{-min(delta/c, (1 - E*/c)/2)} for c > E* (Tang and Zhou 2021,
    "Tail probability estimates of continuous-time simulated annealing processes", up to logarithms), and behaves as
    t^{-delta/c} for c > m. At the times a computer reaches, slopes can exceed the asymptotic ones.

    Args:
        c: the depth of the schedule, > 0.
        critical_depth: E* >= 0.
        spectral_depth: m >= E*; NaN where unknown.
        delta: > 0, how far above the minimum counts as not having converged.
    """
    c, delta = positive("c", c), positive("delta", delta)
    e, m = finite("critical_depth", critical_depth), float(numbers("spectral_depth", spectral_depth, "NaN if unknown"))
    if e < 0 or m < e:
        raise refuse("critical_depth, spectral_depth", f"{e:g} and {m:g}", "0 <= E* <= m", "m is NaN where unknown")
    converges = c > e
    bound = min(delta / c, (1 - e / c) / 2) if converges else 0.0
    sharp = delta / c if c > m else math.nan
    return Exponent(
        converges, bound, sharp,
        "fixed logarithmic schedule, beta(0) > 0, compact state space, minima that are points or orbits; exponents "
        "hold as t grows, up to logarithms; it does not apply to schedules stretched to a horizon or to a temperature "
        "inside the loss that moves",
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Trapping:
    """Whether a schedule can leave a trap for ever behind it.

    Attributes:
        total: Lambda, the integral of the escape rate over all times; infinite when every chain escapes.
        traps: whether Lambda is finite, so that a trap holds a share e^{-Lambda} of what is in it.
        source: how it was found.
    """

    total: float
    traps: bool
    source: str


def trapping_criterion(schedule: Schedule, prefactor: float, depth: float) -> Trapping:
    """Lambda = int_0^infinity kappa e^{-beta(t) depth} dt: finite means trapped with positive probability.

    In closed form for logarithmic schedules (finite if and only if depth/c > 1), powers (always finite, an incomplete
    gamma function), exponentials (finite, an exponential integral), constants and, by its tail, linear ramps. The same
    criterion in words: the two-state chain escapes surely if and only if its total rate diverges.

    Args:
        schedule: a fixed one; the criterion says nothing about one stretched to its horizon.
        prefactor: kappa > 0, 1/time.
        depth: of the trap, > 0.

    Raises:
        InputError: a schedule to a horizon, or a family without a closed form.
    """
    kappa, e = positive("prefactor", prefactor), positive("depth", depth)
    instance("schedule", schedule, Schedule, "for example schedules.logarithmic(depth)")
    if isinstance(schedule, HorizonSchedule):
        raise refuse("schedule", schedule.name, "a fixed schedule", "use horizon_law for one stretched to its horizon")
    p = dict(schedule.parameters)
    family = schedule.family
    if family == "logarithmic":
        ratio = e / p["depth"]
        total = kappa * p["t0"] * p["offset"] ** (1 - ratio) / (ratio - 1) if ratio > 1 else math.inf
    elif family == "power":
        a, b = p["exponent"], p["initial"] * e
        # substituting u = (1 + t/t0)^a: a generalised gamma integral; quad is exact to rounding on it
        tail, _ = integrate.quad(lambda u: math.exp(-b * u) * u ** (1 / a - 1) / a, 1, math.inf)
        total = kappa * p["t0"] * tail
    elif family == "exponential":
        tail, _ = integrate.quad(lambda u: math.exp(-p["initial"] * e * u) / u, 1, math.inf)
        total = kappa * tail / p["rate"]
    elif family == "linear":
        total = kappa * math.exp(-p["initial"] * e) / (p["rate"] * e) if p["rate"] > 0 else math.inf
    elif family == "constant":
        total = math.inf
    else:
        raise refuse("schedule", schedule.name, "a logarithmic, power, exponential, linear or constant schedule",
                     "integrate the rate numerically with two_state_law")  # fmt: skip
    return Trapping(total, math.isfinite(total), f"closed form for the {family} family")


def horizon_law(delta: float, critical_depth: float, horizon: float) -> float:
    """The order of P(trapped) at the end of beta_T(t) = b0 (b1/b0)^{t/T}: (log T/T)^{delta/E*}.

    The clock runs through every temperature for a time in proportion to T, so that a longer run always does better: it
    does not trap. Up to a constant, for T large and b1 E* above log T.

    Args:
        delta: energy of the trap above the global minimum, > 0.
        critical_depth: E* > 0.
        horizon: T > e, in units of the trap's relaxation time 1/kappa.
    """
    exponent = positive("delta", delta) / positive("critical_depth", critical_depth)
    t = finite("horizon", horizon)
    if t <= math.e:
        raise refuse("horizon", t, "a horizon above e", "give it in units of the relaxation time 1/kappa")
    return (math.log(t) / t) ** exponent


def two_state_law(
    schedule: Schedule,
    times: np.ndarray,
    escape: Callable[[float], float],
    trapped: Callable[[float], float],
    initial: float,
) -> np.ndarray:
    """P(in the trap, t) of the two-level master equation p' = -r(beta) (p - pi(beta)).

    With r the sum of the two rates, or the exact spectral gap where one is known (2 to 3 per cent accurate), and pi the
    equilibrium share of the trap.

    Args:
        schedule: beta(t).
        times: increasing, positive, shape (k,).
        escape: beta -> r, 1/time.
        trapped: beta -> pi.
        initial: P(in the trap, 0).

    Returns:
        Probabilities at `times`, shape (k,).
    """
    instance("schedule", schedule, Schedule, "for example schedules.logarithmic(depth)")
    for name, function in (("escape", escape), ("trapped", trapped)):
        if not callable(function):
            raise refuse(name, type(function).__name__, "a function of beta", "for example Circle(energy).gap")
    start = finite("initial", initial)
    if not 0 <= start <= 1:
        raise refuse("initial", f"{start:g}", "a probability", "P(in the trap, 0) lies between 0 and 1")
    t = numbers("times", times, "increasing positive times")
    if t.ndim != 1 or not len(t) or not np.all(np.isfinite(t)) or t[0] <= 0 or np.any(np.diff(t) <= 0):
        raise refuse("times", repr(times), "increasing positive times", "the law at 0 is the initial one")

    def slope(clock: float, p: np.ndarray) -> np.ndarray:
        beta = float(schedule(np.expm1(clock)))
        return -np.exp(clock) * escape(beta) * (p - trapped(beta))

    solution = integrate.solve_ivp(slope, (0.0, np.log1p(t[-1])), [start], method="LSODA", t_eval=np.log1p(t),
                                   rtol=1e-9, atol=1e-14)  # fmt: skip
    if not solution.success:
        raise RuntimeError(f"the stiff solver stopped: {solution.message}")
    return solution.y[0]
