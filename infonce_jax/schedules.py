"""Inverse temperature as a function of time.

A schedule is a function beta(t) of time in the units of the dynamics dX = -grad E dt + sqrt(2/beta) dB, never of a step
index. Two kinds exist and are two types: a `FixedSchedule` is one function of t, whatever the length of the run; a
`HorizonSchedule` is stretched to the length T of its run. Annealing theory speaks of the first kind only: a fast fixed
schedule traps for ever, the same shape stretched to its horizon does not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from infonce_jax.checks import finite, numbers, positive, refuse

__all__ = [
    "FixedSchedule",
    "HorizonSchedule",
    "Schedule",
    "constant",
    "cosine_to_horizon",
    "exponential",
    "from_optax",
    "geometric_to_horizon",
    "linear",
    "linear_to_horizon",
    "logarithmic",
    "piecewise",
    "power",
]

# Beyond this the noise is below the rounding of single precision; it keeps e^{rate t} finite on the way to the device.
_COLDEST = 1e30


@dataclasses.dataclass(frozen=True)
class Schedule:
    """beta(t) with a name; call it with times in time units, get float64.

    Attributes:
        name: the family and its parameters, as a report prints them.
        family: the function of this module that built it.
        function: vectorised map from times (float64 array) to inverse temperatures.
        parameters: the numbers it was built from.
    """

    name: str
    function: Callable[[np.ndarray], np.ndarray] = dataclasses.field(repr=False, compare=False)
    parameters: tuple[tuple[str, Any], ...] = ()
    family: str = ""
    kind = "schedule"

    def __call__(self, t: Any) -> np.ndarray:
        """Inverse temperature at times t >= 0, as a float64 array of t's shape.

        Raises:
            InputError: a negative time, or a value that is NaN or not positive.
        """
        t = numbers("t", t, "one time or an array of them")
        if not np.all(t >= 0):
            raise refuse("t", float(np.min(t)), "times >= 0", "time counts from the start of the run")
        with np.errstate(over="ignore"):
            beta = np.asarray(self.function(t), dtype=np.float64)
        beta = np.minimum(np.broadcast_to(beta, t.shape), _COLDEST)
        bad = ~(beta > 0)
        if np.any(bad):
            raise refuse(f"schedule {self.name}", f"beta({t[bad].ravel()[0]:g}) = {beta[bad].ravel()[0]:g}",
                         "beta(t) > 0 at every time", "beta = 0 is infinite noise; start above it")  # fmt: skip
        return beta


@dataclasses.dataclass(frozen=True)
class FixedSchedule(Schedule):
    """One function of time for runs of every length; the asymptotic statements of annealing theory are about these."""

    kind = "fixed"


@dataclasses.dataclass(frozen=True)
class HorizonSchedule(Schedule):
    """A shape stretched to its horizon T; it holds its final value after T. No statement about trapping as t grows."""

    horizon: float = 0.0
    kind = "to horizon"


def _fixed(family: str, name: str, function: Callable[[np.ndarray], np.ndarray], **parameters: Any) -> FixedSchedule:
    schedule = FixedSchedule(name, function, tuple(parameters.items()), family)
    schedule(0.0)  # refuse beta(0) <= 0 here, not in the middle of a run
    return schedule


def logarithmic(depth: float, t0: float = 1.0, offset: float = 2.0) -> FixedSchedule:
    """beta(t) = log(offset + t/t0)/depth, the schedule of Geman, Hajek and Holley-Kusuoka-Stroock.

    Args:
        depth: c > 0, an energy. Convergence in probability needs c above the critical depth E*; the law itself
            converges for c above the spectral depth m. (Papers that write the noise sqrt(c'/log(2+t)) have c = c'/2.)
        t0: time scale > 0.
        offset: > 1, so that beta(0) > 0.

    Raises:
        InputError: depth or t0 not positive, or offset <= 1 (beta(0) would be zero or negative: infinite noise).
    """
    c = positive("depth", depth, "c is an energy, for example 1.5 * critical_depth")
    t0 = positive("t0", t0, "the time scale of the logarithm")
    offset = finite("offset", offset)
    if offset <= 1:
        raise refuse(
            "offset", f"{offset:g}, so beta(0) = log({offset:g})/c <= 0", "offset > 1", "the usual choice is 2"
        )
    return _fixed(
        "logarithmic", f"log, c = {c:.4g}", lambda t: np.log(offset + t / t0) / c, depth=c, t0=t0, offset=offset
    )


def power(exponent: float, initial: float = 1.0, t0: float = 1.0) -> FixedSchedule:
    """beta(t) = initial (1 + t/t0)^exponent, exponent > 0: faster than any logarithm."""
    a, b = positive("exponent", exponent), positive("initial", initial, "beta(0) must be positive")
    t0 = positive("t0", t0)
    return _fixed("power", f"power {a:g}", lambda t: b * (1 + t / t0) ** a, exponent=a, initial=b, t0=t0)


def exponential(rate: float, initial: float = 1.0) -> FixedSchedule:
    """beta(t) = initial e^{rate t} at a fixed rate > 0 per unit time."""
    r, b = positive("rate", rate), positive("initial", initial, "beta(0) must be positive")
    return _fixed("exponential", f"exponential, rate {r:.3g}", lambda t: b * np.exp(r * t), rate=r, initial=b)


def linear(rate: float, initial: float = 1.0) -> FixedSchedule:
    """beta(t) = initial + rate t, a ramp of fixed rate >= 0 per unit time."""
    r, b = finite("rate", rate), positive("initial", initial, "beta(0) must be positive")
    if r < 0:
        raise refuse("rate", r, "a rate >= 0", "annealing cools: beta grows")
    return _fixed("linear", f"linear, rate {r:.3g}", lambda t: b + r * t, rate=r, initial=b)


def constant(value: float) -> FixedSchedule:
    """beta(t) = value > 0: Langevin sampling at one temperature."""
    b = positive("value", value, "an inverse temperature, for example 5.0")
    return _fixed("constant", f"constant {b:.4g}", lambda t: np.full(np.shape(t), b), value=b)


def piecewise(times: Sequence[float], values: Sequence[float]) -> FixedSchedule:
    """Linear interpolation between (time, beta) points; the last value holds afterwards.

    Args:
        times: increasing, the first one 0.
        values: positive, one per time.
    """
    t, b = numbers("times", times), numbers("values", values)
    if t.ndim != 1 or t.shape != b.shape or len(t) < 2:
        raise refuse(
            "times, values", f"shapes {t.shape}, {b.shape}", "two lists of the same length >= 2", "pair them up"
        )
    if t[0] != 0 or not np.all(np.isfinite(t)) or not np.all(np.diff(t) > 0):
        raise refuse("times", t.tolist(), "finite increasing times from 0", "sort them and start at 0")
    if not np.all((b > 0) & np.isfinite(b)):
        worst = float(b[~((b > 0) & np.isfinite(b))][0])
        raise refuse("values", worst, "positive inverse temperatures", "beta = 0 is infinite noise")
    return _fixed(
        "piecewise", f"piecewise, {len(t)} points", lambda s: np.interp(s, t, b), times=tuple(t), values=tuple(b)
    )


def from_optax(schedule: Callable[[Any], Any], time_per_count: float = 1.0) -> FixedSchedule:
    """An optax schedule as beta(t): its count is t / time_per_count.

    Optax evaluates in single precision on the device; values are taken as they come and handed on in float64.
    """
    dt = positive("time_per_count", time_per_count, "time units per count of the optax schedule")

    def function(t: np.ndarray) -> np.ndarray:
        return np.asarray(schedule(t / dt), dtype=np.float64)

    try:
        np.broadcast_to(function(np.zeros(2)), 2)
    except Exception as error:
        raise refuse("schedule", f"one that fails on two counts with {type(error).__name__}",
                     "a function from an array of counts to one of numbers",
                     "for example optax.linear_schedule(1.0, 9.0, 1000)") from error  # fmt: skip

    return _fixed("from_optax", f"optax {getattr(schedule, '__name__', 'schedule')}", function, time_per_count=dt)


def _to_horizon(
    name: str, blend: Callable[[np.ndarray], np.ndarray], initial: Any, final: Any, horizon: Any
) -> HorizonSchedule:
    T = positive("horizon", horizon, "the length of the run in time units: num_steps * step_size")
    parameters = (("initial", initial), ("final", final), ("horizon", T))
    title = f"{name} to horizon, {initial:.3g} to {final:.3g}"
    return HorizonSchedule(title, lambda t: blend(np.minimum(t / T, 1.0)), parameters, f"{name}_to_horizon", T)


def geometric_to_horizon(initial: float, final: float, horizon: float) -> HorizonSchedule:
    """beta(t) = initial (final/initial)^{t/T}: equal ratios per unit time, from `initial` at 0 to `final` at T."""
    b0, b1 = positive("initial", initial), positive("final", final)
    return _to_horizon("geometric", lambda u: b0 * (b1 / b0) ** u, b0, b1, horizon)


def linear_to_horizon(initial: float, final: float, horizon: float) -> HorizonSchedule:
    """beta(t) = initial + (final - initial) t/T."""
    b0, b1 = positive("initial", initial), positive("final", final)
    return _to_horizon("linear", lambda u: b0 * (1 - u) + b1 * u, b0, b1, horizon)


def cosine_to_horizon(initial: float, final: float, horizon: float) -> HorizonSchedule:
    """beta(t) = initial + (final - initial) (1 - cos(pi t/T))/2."""
    b0, b1 = positive("initial", initial), positive("final", final)
    return _to_horizon(
        "cosine", lambda u: b0 * (1 + np.cos(np.pi * u)) / 2 + b1 * (1 - np.cos(np.pi * u)) / 2, b0, b1, horizon
    )
