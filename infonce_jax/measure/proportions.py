"""Proportions with exact and score intervals."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from scipy.stats import binomtest

from infonce_jax.checks import confidence, count, refuse

__all__ = ["Proportion", "proportion", "proportions"]


@dataclasses.dataclass(frozen=True)
class Proportion:
    """A measured probability.

    Attributes:
        estimate: successes / trials.
        low, high: ends of the confidence interval.
        successes, trials: the counts.
        level: of confidence.
        method: "wilson" or "exact" (Clopper-Pearson).
    """

    estimate: float
    low: float
    high: float
    successes: int
    trials: int
    level: float
    method: str

    def __str__(self) -> str:
        return f"{self.estimate:.3f} [{self.low:.3f}, {self.high:.3f}]"


def proportion(successes: int, trials: int, level: float = 0.95, method: str = "wilson") -> Proportion:
    """Estimate a probability from independent trials.

    Args:
        successes: between 0 and trials.
        trials: at least 1.
        level: confidence, between 0 and 1.
        method: "wilson" (Wilson 1927; near its nominal coverage) or "exact" (Clopper and Pearson 1934; never below it).

    Raises:
        InputError: counts or level out of range, or an unknown method.
    """
    k, n = count("successes", successes, least=0), count("trials", trials)
    if n < 1 or not 0 <= k <= n:
        raise refuse(
            "successes, trials", (successes, trials), "0 <= successes <= trials and trials >= 1", "count again"
        )
    level = confidence("level", level)
    if method not in ("wilson", "exact"):
        raise refuse("method", repr(method), "'wilson' or 'exact'", "see measure.proportion")
    interval = binomtest(k, n).proportion_ci(confidence_level=level, method=method)
    return Proportion(k / n, float(interval.low), float(interval.high), k, n, level, method)


def proportions(events: Any, level: float = 0.95, method: str = "wilson") -> list[Proportion]:
    """One `Proportion` per column of a boolean array, shape (trials, columns)."""
    events = np.asarray(events, dtype=bool)
    if events.ndim != 2:
        raise refuse("events", f"shape {events.shape}", "shape (trials, columns)", "chains first, times second")
    return [proportion(int(k), len(events), level, method) for k in events.sum(axis=0)]
