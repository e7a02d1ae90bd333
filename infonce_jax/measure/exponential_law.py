"""Is a waiting time exponential? A test for times of which some were cut off at one limit."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from infonce_jax.checks import count, finite, numbers, refuse

__all__ = ["ExponentialTest", "exponential_test"]

_BLOCK = 2_000_000  # numbers simulated at once
# The law of sqrt(n) times the distance no longer depends on n to three digits: larger samples are compared with this.
_LARGEST = 4096


@dataclasses.dataclass(frozen=True)
class ExponentialTest:
    """The outcome of `exponential_test`.

    Attributes:
        statistic: largest distance between the observed and the fitted survival curve.
        p_value: share of exponential samples whose own distance is at least as large; NaN with fewer than 5 passages.
        cut: where the tested part of the times begins.
        tested: how many times were longer than the cut.
        passed: how many of those were seen to their end.
    """

    statistic: float
    p_value: float
    cut: float
    tested: int
    passed: int


def _distances(times: np.ndarray, limit: np.ndarray) -> np.ndarray:
    """Largest |survival seen - survival fitted| up to each row's limit; times sorted along the last axis."""
    n = times.shape[1]
    seen = times < limit[:, None]
    passed = seen.sum(axis=1)
    mean = np.minimum(times, limit[:, None]).sum(axis=1) / np.maximum(passed, 1)
    fitted = np.exp(-np.minimum(times, limit[:, None]) / mean[:, None])
    before, after = 1 - np.arange(n) / n, 1 - (np.arange(n) + 1) / n
    gap = np.maximum(np.abs(fitted - before), np.abs(fitted - after))
    at_limit = np.abs(1 - passed / n - np.where(np.isfinite(limit), np.exp(-limit / mean), 0.0))
    return np.maximum(np.max(np.where(seen, gap, 0.0), axis=1), at_limit)


def exponential_test(
    times: Any, censored: Any = None, cut: float = 0.0, seed: int = 0, num_samples: int = 999
) -> ExponentialTest:
    """Test whether times beyond `cut` are exponential, by the distance of the survival curves.

    The mean is fitted from the same data, so the tables of Kolmogorov and Smirnov do not apply (Lilliefors 1969); the
    p-value is the share of simulated exponential samples, cut off at the same share of their fitted mean and fitted in
    the same way, that lie at least as far from their own fit. An exponential time forgets: given that it exceeds the
    cut, what is left is exponential again, so the cut takes away a short start (the relaxation within a basin) and
    nothing else.

    Args:
        times: shape (chains,), >= 0; where censored, the limit of observation, the same for all.
        censored: shape (chains,), whether the end was not seen.
        cut: >= 0, in the unit of the times; shorter times are left out.
        seed: of the simulated samples.
        num_samples: how many of them; the p-value is a multiple of 1/(num_samples + 1).

    Raises:
        InputError: shapes that differ, times that are not finite and >= 0, or several limits of observation.
    """
    t, seed = numbers("times", times, "one per chain"), count("seed", seed, least=0, mend="for example 0")
    c = np.zeros(t.shape, dtype=bool) if censored is None else np.asarray(censored, dtype=bool)
    number, cut = count("num_samples", num_samples, least=99), finite("cut", cut)
    if t.ndim != 1 or t.shape != c.shape or not len(t) or not np.all(np.isfinite(t)) or np.any(t < 0) or cut < 0:
        raise refuse("times, censored, cut", f"shapes {t.shape}, {c.shape}, cut {cut:g}",
                     "two lists of one length, finite and >= 0", "one entry per chain")  # fmt: skip
    limits = np.unique(t[c])
    if len(limits) > 1 or (len(limits) and np.any(t[~c] > limits[0])):
        raise refuse("censored", f"{len(limits)} limits of observation", "one, beyond every passage seen",
                     "watch all chains for the same time")  # fmt: skip
    limit = float(limits[0]) - cut if len(limits) else math.inf
    # A passage at the limit itself was seen: half a rounding beyond keeps it apart from the censored ones.
    left = np.where(c, math.inf, t - cut)[t > cut] if limit > 0 else np.zeros(0)
    edge = np.nextafter(limit, math.inf)
    passed = int(np.sum(np.isfinite(left)))
    if passed < 5:
        return ExponentialTest(math.nan, math.nan, cut, len(left), passed)
    statistic = float(_distances(np.sort(left)[None], np.array([edge]))[0])
    mean = np.minimum(left, limit).sum() / passed
    n, rng = min(len(left), _LARGEST), np.random.default_rng(np.random.SeedSequence([seed, 0xE4]))
    rows = max(1, _BLOCK // n)
    null = np.concatenate([
        _distances(np.sort(rng.exponential(size=(min(rows, number - k), n)), axis=1),
                   np.full(min(rows, number - k), edge / mean))
        for k in range(0, number, rows)
    ])  # fmt: skip
    # Scaled by the square root of the sizes, which differ only where the sample is larger than what is simulated.
    larger = int(np.sum(null * math.sqrt(n) >= statistic * math.sqrt(len(left))))
    return ExponentialTest(statistic, (1 + larger) / (1 + number), cut, len(left), passed)
