"""Does the trap-free temperature of the free landscape predict at which starting tau an encoder is saved?

Rotations of sixty handwritten digits, six of each class, as 6, 8 and 12 views. For each orbit the landscape of free
embeddings gives the temperature above which it has no trap, without training anything. Then small ReLU networks are
trained while tau falls to .5 from one of several temperatures; the lowest start from which nine in ten seeds reach the
global minimum at tau = .5, interpolated between the starts tried, is what the prediction is held against. Orbits whose
two lowest minima differ by less than .01 in energy are left out: to miss the lower one is not to be trapped.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import optax
from matplotlib.figure import Figure
from scipy.stats import rankdata
from sklearn.datasets import load_digits

import infonce_jax as ij
from experiments import common
from experiments.common import Rows, Verdict

TARGET, HOTTEST = 0.5, 24.0
VIEWS = (6, 8, 12)
PER_CLASS = 6
QUICK = (0, 24, 4, 65, 58)  # as 6 views: two without a trap, three with one
STARTS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # the first one is training at the target throughout
SAVED = 0.9
SEEDS, STEPS, COOLING = 32, 800, 500
SAME_ENERGY = 1e-3  # of the end of a training and the global minimum
SAME_MINIMUM = 1e-7
TWINS = 0.01  # of the energies of two minima: neither is a trap
RESAMPLES = 2000
_ADAM = optax.adam(1e-3)


def measure(quick: bool = False, seed: int = 0, views: tuple[int, ...] = VIEWS) -> Rows:
    """One row per digit and number of views."""
    labels = np.asarray(load_digits(return_X_y=True)[1])
    numbers = [int(i) for k in range(10) for i in np.flatnonzero(labels == k)[:PER_CLASS]]
    rows: Rows = []
    for n in views[:1] if quick else views:
        for digit in QUICK if quick else numbers:
            rows.append({"digit": digit, "label": int(labels[digit]), "views": n, **_one(digit, n, seed)})
        print(f"{n} views done", flush=True)
    return rows


def _one(digit: int, views: int, seed: int) -> dict[str, Any]:
    """What is predicted and measured for one orbit; NaN for one whose lowest minima are near twins."""
    orbit = ij.encoders.orbit(digit, views, TARGET)
    lowest, height = lowest_trap(orbit.energy, seed)
    predicted, shares = np.nan, [np.nan] * len(STARTS)
    if not height <= TWINS:
        free = ij.landscape.trap_free_temperature(
            orbit.energy, TARGET, HOTTEST, seed, starts=64, confirm=128, levels=6, tolerance=0.01
        )
        predicted = min(free.temperature, 2 * HOTTEST)
        shares = [_saved(orbit, lowest, start, seed) for start in STARTS]
    return {
        "lowest trap": height, "trap-free tau": predicted,
        **{f"saved from {start:g}": share for start, share in zip(STARTS, shares, strict=True)},
        "saving tau": np.nan if height <= TWINS else saving_temperature(STARTS, shares),
    }  # fmt: skip


def lowest_trap(energy: Any, seed: int, starts: int = 128) -> tuple[float, float]:
    """The lowest energy that random starts find, and the height of the next minimum above it, NaN where none is."""
    x = np.random.default_rng(seed).normal(size=(starts, *energy.shape))
    x, _, _ = ij.landscape.quench(energy, x / np.linalg.norm(x, axis=-1, keepdims=True))
    ends = ij.landscape.newton_polish(energy, x)[1].energy  # twins may differ by less than a quench leaves over
    heights = np.sort(ends) - ends.min()
    return float(ends.min()), float(next((h for h in heights if h > SAME_MINIMUM), np.nan))


def _saved(orbit: Any, lowest: float, start: float, seed: int) -> float:
    """Share of seeds whose embeddings, followed downhill at TARGET, reach the lowest energy known there."""
    falling = f"{TARGET:g}" if start == TARGET else f"exponential:{start:g}:{TARGET:g}:{COOLING}"
    trained = ij.encoders.train(ij.encoders.mlp((64, 64), 2), orbit.features, orbit.energy, falling, _ADAM,
                                num_steps=STEPS, num_seeds=SEEDS, seed=seed, record_every=STEPS)  # fmt: skip
    _, ends, _ = ij.landscape.quench(orbit.energy, trained.embeddings)
    return float(np.mean(ends < lowest + SAME_ENERGY))


def saving_temperature(starts: tuple[float, ...], shares: list[float]) -> float:
    """The lowest start from which SAVED of the seeds are saved, and from all higher ones too, interpolated in log tau.

    Half the lowest start where that saves already, twice the highest where none does: ranks need no more.
    """
    below = [k for k, share in enumerate(shares) if share < SAVED]
    if not below:
        return starts[0] / 2
    last = below[-1]
    if last == len(starts) - 1:
        return 2 * starts[-1]
    weight = (SAVED - shares[last]) / (shares[last + 1] - shares[last])
    return float(starts[last] * (starts[last + 1] / starts[last]) ** weight)


def rank_correlation(rows: Rows, seed: int = 0) -> tuple[float, float, float]:
    """Spearman's correlation of predicted and measured temperatures, and its 95 % interval from resampled digits."""
    predicted, measured, digits = common.columns(rows, "trap-free tau", "saving tau", "digit")
    rho = _spearman(predicted, measured)
    rng, members = np.random.default_rng(seed), [np.flatnonzero(digits == d) for d in np.unique(digits)]
    drawn = []
    for _ in range(RESAMPLES):  # the views of one digit belong together
        chosen = np.concatenate([members[k] for k in rng.integers(len(members), size=len(members))])
        if all(len(np.unique(values[chosen])) > 1 for values in (predicted, measured)):
            drawn.append(_spearman(predicted[chosen], measured[chosen]))
    if not drawn or not np.isfinite(rho):
        return float("nan"), -1.0, 1.0
    low, high = np.quantile(drawn, [0.025, 0.975])
    return rho, float(low), float(high)


def _spearman(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.corrcoef(rankdata(x), rankdata(y))[0, 1]) if len(np.unique(x)) > 1 < len(np.unique(y)) else np.nan


def verdict(rows: Rows) -> Verdict:
    """It predicts where the rank correlation is positive, also among orbits whose traps end within the range alone."""
    whole, rows = rows, [row for row in rows if not row["lowest trap"] <= TWINS]
    traps = [row for row in rows if TARGET < row["trap-free tau"] < HOTTEST]
    all_of, within = rank_correlation(rows), rank_correlation(traps)
    remain = [row for row in rows if row["trap-free tau"] >= HOTTEST]
    never = sum(row["saving tau"] > STARTS[-1] for row in remain)
    parts = []
    for name, wanted in (("above", True), ("below", False)):
        shares = [row[f"saved from {start:g}"] for row in traps for start in STARTS
                  if (start > row["trap-free tau"]) == wanted]  # fmt: skip
        if shares:
            enough = ij.measure.proportion(int(np.sum(np.array(shares) >= SAVED)), len(shares))
            parts.append(f"starts {name} it save nine in ten seeds in {enough} of the cases")
    line = (
        f"over {len(rows)} of {len(whole)} orbits (the others have a second minimum within {TWINS:g} of the lowest) "
        f"Spearman's correlation of the trap-free temperature with the lowest start that saves is {_in_words(all_of)}, "
        f"over the {len(traps)} whose traps end between {TARGET:g} and {HOTTEST:g} alone {_in_words(within)}; there "
        f"{' and '.join(parts)}. Of {len(remain)} orbits with a trap still at tau = {HOTTEST:g}, {never} are saved "
        f"from no start up to {STARTS[-1]:g}"
    )
    return Verdict(all_of[1] > 0 and within[1] > 0, line)


def _in_words(correlation: tuple[float, float, float]) -> str:
    return "{:.2f} [{:.2f}, {:.2f}]".format(*correlation)


def draw(rows: Rows) -> Figure:
    """Predicted against measured temperatures, one point per orbit."""
    figure = Figure(figsize=(7, 5.4), layout="constrained")
    axes = figure.subplots()
    jitter = np.random.default_rng(0)
    for views, colour in zip(VIEWS, ("#9ecae1", "#4292c6", "#08306b"), strict=True):
        own = [row for row in rows if row["views"] == views and not row["lowest trap"] <= TWINS]
        if own:
            x, y = common.columns(own, "trap-free tau", "saving tau")
            spread = np.exp(jitter.uniform(-0.04, 0.04, (2, len(own))))  # many orbits share both ends of the scale
            axes.plot(x * spread[0], y * spread[1], "o", color=colour, markersize=4, alpha=0.8, label=f"{views} views")
    ends = np.array([TARGET, HOTTEST])
    axes.plot(ends, ends, ":", color="#888888", label="equal")
    axes.axhspan(STARTS[-1] * 1.6, STARTS[-1] * 2.5, color="#eeeeee", zorder=0)
    axes.axhspan(STARTS[0] / 2.5, STARTS[0] / 1.6, color="#eeeeee", zorder=0)
    axes.axvspan(2 * HOTTEST / 1.25, 2 * HOTTEST * 1.25, color="#eeeeee", zorder=0)
    axes.annotate("traps remain", (2 * HOTTEST, 0.5), ha="center", va="center", rotation=90, fontsize=8)
    axes.annotate("no start saves", (4, STARTS[-1] * 2), ha="center", va="center", fontsize=8)
    axes.annotate("none needed", (4, STARTS[0] / 2), ha="center", va="center", fontsize=8)
    axes.set(xscale="log", yscale="log", xlabel=r"trap-free temperature of free embeddings, $\tau$ (1)",
             ylabel=rf"lowest starting $\tau$ that saves {100 * SAVED:.0f} % of the seeds (1)")  # fmt: skip
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right center")
    return figure


if __name__ == "__main__":
    sys.exit(common.main(sys.modules[__name__]))
