"""What `infonce-jax train` can train, and how each is judged: one `Recipe` per kind of data."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import scipy.stats

from infonce_jax import encoders
from infonce_jax.fingerprint import digest
from infonce_jax.landscape import Landscape
from infonce_jax.measure import proportion
from infonce_jax.scenarios import Scenario
from infonce_jax.study.cache import explored
from infonce_jax.study.train_configuration import TrainConfiguration

__all__ = ["Outcome", "Recipe", "mean_interval", "recipe_of"]

_TARGET = 0.5  # tau of the loss whose minima tell the orbits' encoders apart, whatever tau they were trained at
_WIDTHS = (64, 64)


@dataclasses.dataclass(frozen=True, eq=False)
class Outcome:
    """How the encoders of all seeds are judged.

    Attributes:
        lines: the result in words and numbers.
        values: by name, one number per seed, shape (seeds,).
        reference: for each name the number to compare with (an untrained encoder, a guess) and what it is.
        landscape: of an orbit, with its scenario, for pictures; otherwise None.
    """

    lines: list[str]
    values: dict[str, np.ndarray]
    reference: dict[str, tuple[str, float]]
    landscape: tuple[Scenario, Landscape] | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class Recipe:
    """Data, what is minimised on them, and a judge.

    Attributes:
        name: as the command line takes it.
        description: for the reader.
        objective: what is minimised.
        digest: of everything that it computes with.
        evaluate: a training to its outcome.
    """

    name: str
    description: str
    objective: Any
    digest: str
    evaluate: Callable[[encoders.Training], Outcome]


def recipe_of(configuration: TrainConfiguration) -> Recipe:
    """The recipe a configuration asks for.

    Raises:
        InputError: data that there are not, a batch larger than they are.
    """
    make = {"orbit": _orbit, "simclr": _digits, "moco": _digits, "clip": _clip}[configuration.recipe]
    description, objective, evaluate = make(configuration)
    return Recipe(configuration.recipe, description, objective, digest(jax.tree.leaves(objective))[:16], evaluate)


def mean_interval(values: np.ndarray) -> tuple[float, float, float]:
    """Mean over seeds and its 95 % interval by Student's law; of equal values it is the value itself."""
    mean, error = float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))
    reach = float(scipy.stats.t.ppf(0.975, len(values) - 1)) * error
    return mean, mean - reach, mean + reach


def _orbit(configuration: TrainConfiguration) -> tuple[str, Any, Callable[[encoders.Training], Outcome]]:
    data = encoders.orbit(configuration.digit, configuration.views, _TARGET)
    objective = encoders.full_batch(
        encoders.mlp(_WIDTHS, 2), data.features, data.energy, configuration.temperature, configuration.steps or 0
    )
    title = f"{configuration.views} rotations of digit {configuration.digit}"
    scenario = Scenario("orbit", data.energy, data.energy.shape, title, data.images)

    def evaluate(training: encoders.Training) -> Outcome:
        land = explored(data.energy, configuration.seed)
        basins, _ = land.quench(training.embeddings)
        saved = proportion(int(np.sum(basins == 0)), len(basins))
        words = f"in the basin of the global minimum (E = {land.minima[0].energy:.4f} at tau = {_TARGET:g}): {saved}"
        others = [f"trap {k} (E = {m.energy:.4f}): {np.mean(basins == k):.3f}" for k, m in enumerate(land.minima) if k]
        unknown = [f"no known minimum: {np.mean(basins < 0):.3f}"] if np.any(basins < 0) else []
        free = ("free embeddings from uniform starts, downhill", land.minima[0].share)
        return Outcome([words, *others, *unknown], {"global minimum": (basins == 0).astype(float)},
                       {"global minimum": free}, (scenario, land))  # fmt: skip

    return f"{title} through dense layers {_WIDTHS[0]}-{_WIDTHS[1]}-2 to the circle", objective, evaluate


def _digits(configuration: TrainConfiguration) -> tuple[str, Any, Callable[[encoders.Training], Outcome]]:
    data = encoders.digits()
    make = encoders.simclr if configuration.recipe == "simclr" else encoders.moco
    objective = make(data.images, batch_size=configuration.batch_size)

    def evaluate(training: encoders.Training) -> Outcome:
        embed = jax.jit(objective.encoder.apply)
        found = [encoders.accuracy(functools.partial(embed, one), data) for one in training.per_seed()]
        # One draw of the weights, not those that any seed began with: what the architecture gives for nothing.
        raw = encoders.accuracy(functools.partial(embed, objective.init(jax.random.key(configuration.seed))[0]), data)
        values = {"5 nearest neighbours": np.array([f.neighbours for f in found]),
                  "linear probe": np.array([f.probe for f in found])}  # fmt: skip
        untrained = {name: ("an untrained encoder", own)
                     for name, own in zip(values, (raw.neighbours, raw.probe), strict=True)}  # fmt: skip
        return Outcome(_spoken("accuracy on held-out digits", values, untrained), values, untrained)

    text = f"{len(data.images)} handwritten digits without labels, {len(data.held_out_images)} held out"
    return text, objective, evaluate


def _clip(configuration: TrainConfiguration) -> tuple[str, Any, Callable[[encoders.Training], Outcome]]:
    data = encoders.glyphs()
    bags, held_out = data.bags()
    objective = encoders.clip(data.images, bags, batch_size=configuration.batch_size)

    def evaluate(training: encoders.Training) -> Outcome:
        embed = jax.jit(objective.embed)
        found = [encoders.retrieval(*embed(one, data.held_out_images, held_out)) for one in training.per_seed()]
        values = {"name of a glyph": np.array([f.forward for f in found]),
                  "glyph of a name": np.array([f.backward for f in found])}  # fmt: skip
        chance: dict[str, tuple[str, float]] = dict.fromkeys(values, ("a guess", found[0].chance))
        return Outcome(_spoken("top-1 retrieval on held-out pairs", values, chance), values, chance)

    text = (f"{len(data.images)} glyphs and their Unicode names, {len(data.held_out_images)} held out; "
            f"{data.identical} look like an earlier one and {data.blank} are blank, left out")  # fmt: skip
    return text, objective, evaluate


def _spoken(what: str, values: dict[str, np.ndarray], reference: dict[str, tuple[str, float]]) -> list[str]:
    lines = []
    for name, own in values.items():
        mean, low, high = mean_interval(own)
        label, beside = reference[name]
        lines.append(f"{what}, {name}: {mean:.3f} [{low:.3f}, {high:.3f}]; {label} {beside:.3g}")
    return lines
