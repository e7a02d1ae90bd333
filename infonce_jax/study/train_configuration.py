"""What a training is asked to do: a plain dataclass, which the command line reads through tyro."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from infonce_jax.checks import count, positive
from infonce_jax.encoders import parse_temperature

__all__ = ["TrainConfiguration"]


@dataclasses.dataclass(frozen=True)
class TrainConfiguration:
    """Train encoders from many seeds under a schedule of the temperature inside the loss."""

    recipe: tyro.conf.Positional[Literal["orbit", "simclr", "moco", "clip"]]
    """orbit: the rotations of one digit on the circle; simclr and moco: handwritten digits without labels; clip: glyphs
    and their Unicode names."""
    temperature: Annotated[str | None, tyro.conf.arg(help_behavior_hint="(default: cosine:5:0.5 or 0.1)")] = None
    """A number, linear, exponential or cosine:START:END[:STEPS], logarithmic:START:END, or learned:START."""
    seeds: Annotated[int | None, tyro.conf.arg(help_behavior_hint="(default: orbit 128, others 4)")] = None
    """Independent trainings."""
    steps: Annotated[int | None, tyro.conf.arg(help_behavior_hint="(default: orbit 3000, others 1500)")] = None
    """Steps of the optimiser."""
    seed: int = 0
    """Seed of everything random."""
    optimizer: Literal["adam", "sgd"] = "adam"
    """Adam, or plain gradient descent."""
    learning_rate: float = 1e-3
    """Of the optimiser."""
    inverse_temperature: float | None = None
    """Add Langevin noise of this beta to every update; without it there is none."""
    batch_size: int = 128
    """Images or pairs in a batch; orbit takes all its views at once."""
    digit: int = 4
    """For orbit: which of the 1797 digits."""
    views: int = 8
    """For orbit: how many rotations."""
    out: Annotated[Path | None, tyro.conf.arg(help_behavior_hint="(default: runs/train-RECIPE)")] = None
    """Directory for the report, the figures, the data and the parameters; made if missing."""
    fresh: bool = False
    """Drop an unfinished training in the same directory instead of going on with it."""
    checkpoint_every: float = 60.0
    """Seconds between two checkpoints."""
    skip_damaged: bool = False
    """Go on from the checkpoint before a damaged one."""

    def checked(self) -> TrainConfiguration:
        """The configuration with the defaults of its recipe.

        Raises:
            InputError: a number out of range, or a text that is no temperature.
        """
        orbit = self.recipe == "orbit"
        text = self.temperature or ("cosine:5:0.5" if orbit else "0.1")
        parse_temperature(text)
        positive("learning_rate", self.learning_rate)
        positive("checkpoint_every", self.checkpoint_every)
        if self.inverse_temperature is not None:
            positive("inverse_temperature", self.inverse_temperature)
        count("seed", self.seed, least=0, mend="for example 0")
        seeds = count("seeds", (128 if orbit else 4) if self.seeds is None else self.seeds, least=2,
                      mend="one training tells nothing about the next; use at least 2")  # fmt: skip
        steps = count("steps", (3000 if orbit else 1500) if self.steps is None else self.steps)
        return dataclasses.replace(self, temperature=text, seeds=seeds, steps=steps)

    @property
    def directory(self) -> Path:
        """Where it writes."""
        return self.out or Path("runs") / f"train-{self.recipe}"

    def settings(self) -> dict[str, Any]:
        """All that the results depend on, by name."""
        apart = ("out", "fresh", "checkpoint_every", "skip_damaged")
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in apart}
