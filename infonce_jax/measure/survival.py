"""Times with censoring: Kaplan-Meier curves and means of exponential laws."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import numpy as np
from scipy.stats import CensoredData, chi2, ecdf

from infonce_jax.checks import confidence, numbers, refuse

__all__ = ["ExponentialMean", "Survival", "exponential_mean", "kaplan_meier"]


@dataclasses.dataclass(frozen=True)
class Survival:
    """A Kaplan-Meier estimate of P(time > t).

    Attributes:
        times: the distinct times at which something happened, increasing.
        probability: P(time > t) just after each of them.
        low, high: pointwise confidence band (log-log), NaN where it does not exist.
        passed, censored: how many times were seen to their end, and how many were cut off.
    """

    times: np.ndarray
    probability: np.ndarray
    low: np.ndarray
    high: np.ndarray
    passed: int
    censored: int

    def median(self) -> float:
        """The first time at which the curve is at or below one half; NaN where it stays above."""
        below = np.flatnonzero(self.probability <= 0.5)
        return float(self.times[below[0]]) if len(below) else float("nan")


def _checked(times: Any, censored: Any, level: float) -> tuple[np.ndarray, np.ndarray]:
    t = numbers("times", times, "one per chain")
    c = np.zeros(t.shape, dtype=bool) if censored is None else np.asarray(censored, dtype=bool)
    if t.ndim != 1 or t.shape != c.shape or not len(t):
        raise refuse(
            "times, censored", f"shapes {t.shape}, {c.shape}", "two lists of the same length", "one entry per chain"
        )
    confidence("level", level)
    if not np.all(np.isfinite(t)) or np.any(t < 0):
        raise refuse("times", "negative or not finite ones", "times >= 0", "mark what never passed as censored")
    return t, c


def kaplan_meier(times: Any, censored: Any = None, level: float = 0.95) -> Survival:
    """Survival curve of times of which some are only known to exceed what was seen (Kaplan and Meier 1958).

    Args:
        times: shape (chains,), the passage time, or the time of censoring.
        censored: shape (chains,), whether the passage was not seen; none by default.
        level: confidence of the band.
    """
    t, c = _checked(times, censored, level)
    curve = ecdf(CensoredData.right_censored(t, c)).sf
    # Where the curve has not moved or has hit zero the band does not exist: NaN, as documented, and no cause for alarm.
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The confidence interval is undefined", RuntimeWarning)
        band = curve.confidence_interval(confidence_level=level, method="log-log")
    return Survival(
        np.asarray(curve.quantiles), np.asarray(curve.probabilities), np.asarray(band.low.probabilities),
        np.asarray(band.high.probabilities), int(np.sum(~c)), int(np.sum(c)),
    )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class ExponentialMean:
    """Mean time under an exponential law, with censoring: total time at risk over passages seen."""

    estimate: float
    low: float
    high: float
    passed: int
    censored: int


def exponential_mean(times: Any, censored: Any = None, level: float = 0.95) -> ExponentialMean:
    """Mean of exponential times and its interval, from 2 T_total/mean ~ chi^2 (Epstein and Sobel 1953).

    The interval is exact without censoring, and close to nominal with it. No passage at all gives an infinite estimate
    and a finite lower end.
    """
    t, c = _checked(times, censored, level)
    total, passed = float(t.sum()), int(np.sum(~c))
    low = 2 * total / chi2.ppf((1 + level) / 2, 2 * passed + 2 * bool(c.any()))
    high = 2 * total / chi2.ppf((1 - level) / 2, 2 * passed) if passed else np.inf
    return ExponentialMean(total / passed if passed else np.inf, float(low), float(high), passed, int(c.sum()))
