"""Does a schedule of tau make better encoders than a well chosen fixed tau? SimCLR, MoCo and CLIP on real data.

SimCLR and MoCo on handwritten digits, judged by five nearest neighbours and a linear probe on held-out ones; CLIP on
glyphs and their names, judged by top-1 retrieval of held-out pairs, mean of both ways. Two fixed temperatures, cosine
and exponential cooling from one to the other, logarithmic cooling, a learned temperature, and cosine heating.

The claim: a schedule does not replace the choice of a temperature. The worse of the two fixed temperatures falls behind
the better one; no schedule gets ahead of the better one; and those that end there get ahead of the worse one. "Ahead"
and "behind" mean by more than chance. The claim, batch and steps were chosen on a split of the training data, never on
those held out. All temperatures share their seeds; Welch's intervals do not use that.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import scipy.stats
from matplotlib.figure import Figure

import infonce_jax as ij
from experiments import common
from experiments.common import Rows, Verdict
from infonce_jax.encoders import Digits, Glyphs, Views, metrics
from infonce_jax.study.recipes import mean_interval

TEMPERATURES = ("constant:0.1", "constant:1", "cosine:1:0.1", "exponential:1:0.1", "logarithmic:1:0.1", "learned:1",
                "cosine:0.1:1")  # fmt: skip
UNTRAINED = "untrained"
STEPS = {"simclr": 1500, "moco": 1500, "clip": 1000}
BATCH, SEEDS = 64, 12
QUICK, QUICK_STEPS, QUICK_SEEDS = ("constant:0.1", "constant:1", "exponential:1:0.1"), 600, 8
ADAM = optax.adam(1e-3)
STILL = optax.sgd(0.0)  # leaves a seed's weights as they start
COLOURS = ("#2171b5", "#cb181d", "#238b45", "#74c476", "#8c6d31", "#6a51a3", "#fd8d3c")
SHOWN = ("accuracy", "alignment", "uniformity")
MEASURES = ("accuracy", "probe", "alignment", "uniformity", "tau")
# What is to be shown of the best temperature, at the worse end of its interval.
NEIGHBOURS, GAIN, BEHIND, TIMES_CHANCE = 0.94, 0.07, 0.03, 5
JOINT_LEVEL = 0.05  # probability that any of the comparisons of a verdict differs by chance


def measure(
    quick: bool = False,
    seed: int = 0,
    recipes: Sequence[str] | None = None,
    digits: Digits | None = None,
    glyphs: Glyphs | None = None,
) -> Rows:
    """One row per recipe and temperature, the first of each recipe its untrained encoders; others instead of the data.

    `accuracy` is that of five nearest neighbours or of retrieval, `probe` that of the linear probe, `tau` the last one;
    means over seeds, with 95 % intervals by Student's law. Alignment and uniformity are those of held-out data.
    """
    rows: Rows = []
    for recipe in recipes or (("simclr",) if quick else tuple(STEPS)):
        case = _on_glyphs(glyphs) if recipe == "clip" else _on_digits(recipe, digits)
        seeds, steps = (QUICK_SEEDS, QUICK_STEPS) if quick else (SEEDS, STEPS[recipe])
        train = functools.partial(ij.encoders.optimise, case.objective, num_seeds=seeds, seed=seed, progress=False)
        still = train(temperature=1.0, optimizer=STILL, num_steps=1)
        rows.append({"recipe": recipe, "temperature": UNTRAINED, **_summary(case, still)})
        for temperature in QUICK if quick else TEMPERATURES:
            done = train(temperature=temperature, optimizer=ADAM, num_steps=steps, record_every=steps)
            taus = done.data["temperature"].isel(step=-1).values
            rows.append({"recipe": recipe, "temperature": temperature, **_summary(case, done, taus)})
    return rows


class _Case(NamedTuple):
    """What is minimised, and what is measured of the parameters of one seed."""

    objective: Any
    judge: Callable[[Any], dict[str, float]]


def _on_digits(recipe: str, data: Digits | None) -> _Case:
    data = data or ij.encoders.digits()
    make = {"simclr": ij.encoders.simclr, "moco": ij.encoders.moco}[recipe]
    objective = make(data.images, batch_size=BATCH)
    embed = jax.jit(objective.encoder.apply)
    pairs = objective.augmentation.two_views(jax.random.key(0), data.held_out_images)  # the same for every encoder

    def judge(parameters: Any) -> dict[str, float]:
        found = ij.encoders.accuracy(functools.partial(embed, parameters), data)
        views = Views(*(embed(parameters, images) for images in pairs))
        return {"accuracy": found.neighbours, "probe": found.probe, "chance": found.chance, **_shape(views)}

    return _Case(objective, judge)


def _on_glyphs(data: Glyphs | None) -> _Case:
    data = data or ij.encoders.glyphs()
    names, held_out = data.bags()
    objective = ij.encoders.clip(data.images, names, batch_size=BATCH)
    embed = jax.jit(objective.embed)

    def judge(parameters: Any) -> dict[str, float]:
        views = Views(*embed(parameters, data.held_out_images, held_out))
        found = ij.encoders.retrieval(*views)
        both = (found.forward + found.backward) / 2
        return {"accuracy": both, "probe": math.nan, "chance": found.chance, **_shape(views)}

    return _Case(objective, judge)


def _shape(views: Views) -> dict[str, float]:
    return {"alignment": float(metrics.alignment(views)), "uniformity": float(metrics.uniformity(views))}


def _summary(case: _Case, training: Any, taus: Any = math.nan) -> dict[str, Any]:
    """Means over seeds and their intervals."""
    seeds = training.data.sizes["seed"]
    found = [case.judge(one) for one in training.per_seed()]
    values = {name: np.array([one[name] for one in found]) for name in found[0]}
    values["tau"] = np.broadcast_to(np.asarray(taus, np.float64), seeds)
    row: dict[str, Any] = {}
    for name in MEASURES:
        row |= dict(zip((name, f"{name} low", f"{name} high"), mean_interval(values[name]), strict=True))
    return {**row, "chance": found[0]["chance"], "seeds": seeds}


def _student(degrees: float, level: float = 0.05) -> float:
    return float(scipy.stats.t.ppf(1 - level / 2, degrees))


class Difference(NamedTuple):
    """By how much an accuracy is above another one, and an interval for it."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:+.3f} [{self.low:+.3f}, {self.high:+.3f}]"


def difference(row: dict[str, Any], other: dict[str, Any], level: float = 0.05) -> Difference:
    """Accuracy of a row less that of another one, with Welch's interval of probability 1 - level."""
    parts = [((one["accuracy high"] - one["accuracy"]) / _student(one["seeds"] - 1)) ** 2 for one in (row, other)]
    degrees = sum(p * p / (one["seeds"] - 1) for p, one in zip(parts, (row, other), strict=True))
    reach = _student(sum(parts) ** 2 / degrees, level) * math.sqrt(sum(parts)) if degrees else 0.0
    value = row["accuracy"] - other["accuracy"]
    return Difference(value, value - reach, value + reach)


class _Recipe(NamedTuple):
    """Rows of one recipe: before training, the better and the worse fixed temperature, all that are not fixed."""

    untrained: dict[str, Any]
    best: dict[str, Any]
    worst: dict[str, Any]
    schedules: Rows

    @property
    def ending_at_best(self) -> Rows:
        """Schedules whose last temperature is that of the better fixed one."""
        return [row for row in self.schedules if math.isclose(row["tau"], self.best["tau"], rel_tol=1e-3)]

    @property
    def top(self) -> dict[str, Any]:
        """The row of the highest accuracy."""
        return max((self.best, *self.schedules), key=lambda row: row["accuracy"])


def _by_recipe(rows: Rows) -> dict[str, _Recipe]:
    found = {}
    for recipe in dict.fromkeys(row["recipe"] for row in rows):
        own = {row["temperature"]: row for row in rows if row["recipe"] == recipe}
        untrained = own.pop(UNTRAINED)
        fixed = sorted((own.pop(name) for name in [*own] if name.startswith("constant")), key=lambda r: r["accuracy"])
        found[recipe] = _Recipe(untrained, fixed[-1], fixed[0], [*own.values()])
    return found


def verdict(rows: Rows) -> Verdict:
    """The claim in every recipe, by Welch's intervals of a joint level, and what is to be shown of the best of each."""
    recipes = _by_recipe(rows)
    comparisons = sum(1 + len(own.schedules) + len(own.ending_at_best) for own in recipes.values())
    level = JOINT_LEVEL / comparisons  # Bonferroni
    claims = {recipe: _claim(recipe, own, level) for recipe, own in recipes.items()}
    failed = [recipe for recipe, (holds, _) in claims.items() if not holds]
    short = _shortfalls(recipes)
    parts = [
        "no schedule is ahead of the better fixed tau, those that end there are ahead of the worse one"
        + (f"; not so for {', '.join(failed)}" if failed else ""),
        f"Accuracy less that of the better fixed tau, {comparisons} comparisons at a joint level of {JOINT_LEVEL:g}",
        *(words for _, words in claims.values()),
        f"Short of what was to be shown: {'; '.join(short)}" if short else "All that was to be shown is",
    ]
    return Verdict(not short and not failed, ". ".join(parts))


def _claim(recipe: str, own: _Recipe, level: float) -> tuple[bool, str]:
    """Whether the claim holds in one recipe, and how its temperatures compare with the better fixed one."""
    gap = difference(own.worst, own.best, level)
    from_best = {spoken(row["temperature"]): difference(row, own.best, level) for row in own.schedules}
    from_worst = [difference(row, own.worst, level) for row in own.ending_at_best]
    holds = gap.high < 0 and all(d.low <= 0 for d in from_best.values()) and all(d.low > 0 for d in from_worst)
    groups = {
        "ahead": {name: d for name, d in from_best.items() if d.low > 0},
        "behind": {name: d for name, d in from_best.items() if d.high < 0},
        "no difference": {name: d for name, d in from_best.items() if d.low <= 0 <= d.high},
    }
    listed = [f"{key}: " + ", ".join(f"{name} {d}" for name, d in part.items()) for key, part in groups.items() if part]
    return holds, (
        f"{recipe}, {spoken(own.best['temperature'])}: {_interval(own.best)} (untrained {_interval(own.untrained)}); "
        f"{spoken(own.worst['temperature'])} {gap}; {'; '.join(listed)}"
    )


def _shortfalls(recipes: dict[str, _Recipe]) -> list[str]:
    """What the best temperature of a recipe does not reach at the worse ends of the intervals, in words."""
    top, needed = {recipe: own.top for recipe, own in recipes.items()}, {}
    if "simclr" in top:
        needed["simclr"] = max(NEIGHBOURS, recipes["simclr"].untrained["accuracy high"] + GAIN)
    if "moco" in top and "simclr" in top:
        needed["moco"] = top["simclr"]["accuracy high"] - BEHIND
    if "clip" in top:
        needed["clip"] = TIMES_CHANCE * top["clip"]["chance"]
    return [f"{recipe} {_interval(top[recipe])}, needed {least:.4f}" for recipe, least in needed.items()
            if not top[recipe]["accuracy low"] >= least]  # fmt: skip


def _interval(row: dict[str, Any]) -> str:
    return f"{row['accuracy']:.3f} [{row['accuracy low']:.3f}, {row['accuracy high']:.3f}]"


def spoken(temperature: str) -> str:
    """A temperature as text for the eye: "cosine:1:0.1" is "cosine 1 to 0.1"."""
    family, *numbers = temperature.split(":")
    return {"constant": "fixed ", "learned": "learned from "}.get(family, f"{family} ") + " to ".join(numbers)


def draw(rows: Rows) -> Figure:
    """Above, accuracy per temperature; below, where the embeddings lie between alignment and uniformity."""
    recipes = _by_recipe(rows)
    figure = Figure(figsize=(2 + 3 * len(recipes), 6.6), layout="constrained")
    panels: Any = figure.subplots(2, len(recipes), squeeze=False)
    for place, (recipe, own) in enumerate(recipes.items()):
        above, below = panels[:, place]
        trained = [row for row in rows if row["recipe"] == recipe and row["temperature"] != UNTRAINED]
        _draw_recipe(above, below, trained, own.best)
        before, chance = own.untrained["accuracy"], own.best["chance"]
        above.set_title(f"{recipe}\nuntrained {before:.2g}, chance {chance:.1g}", fontsize=10)
        above.set_xlabel(f"held-out {'pairs, top-1 retrieval' if recipe == 'clip' else 'digits, 5-NN accuracy'}")
        if place:
            above.set_yticklabels([])
    return figure


def _draw_recipe(above: Any, below: Any, trained: Rows, best: dict[str, Any]) -> None:
    """The two panels of one recipe."""
    above.axvspan(best["accuracy low"], best["accuracy high"], color="#cccccc", alpha=0.5, linewidth=0)
    for place, row in enumerate(trained):
        style: dict[str, Any] = {"fmt": "o", "color": COLOURS[place % len(COLOURS)], "capsize": 3, "markersize": 4}
        accuracy, alignment, uniformity = (row[f"{name} high"] - row[name] for name in SHOWN)
        above.errorbar(row["accuracy"], -place, xerr=accuracy, **style)
        below.errorbar(row["alignment"], row["uniformity"], uniformity, alignment, **style)
    above.set(yticks=-np.arange(len(trained)), yticklabels=[spoken(row["temperature"]) for row in trained])
    for label, place in zip(above.get_yticklabels(), range(len(trained)), strict=True):
        label.set_color(COLOURS[place % len(COLOURS)])
    below.set(xlabel="alignment (lower: views closer)", ylabel="uniformity (lower: more even)")


if __name__ == "__main__":
    sys.exit(common.main(sys.modules[__name__]))
