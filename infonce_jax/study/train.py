"""The command `infonce-jax train`: encoders from many seeds under a schedule of tau, and what became of them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import optax
import tyro

from infonce_jax import encoders
from infonce_jax.chains.checkpoints import Checkpoints, Saved, Store, open_directory
from infonce_jax.chains.signals import Signals
from infonce_jax.checks import InputError, count, positive, refuse
from infonce_jax.study.recipes import Recipe, recipe_of

__all__ = ["TrainConfiguration", "TrainingInterrupted", "begun_in", "configuration_in", "train_command"]

_FOLDER, _MANIFEST, _ASKED = "checkpoints", "run.json", "asked"


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
        encoders.parse_temperature(text)
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


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM during a training: the chunk was finished and a checkpoint written.

    Attributes:
        signal: which.
        step: steps made.
    """

    def __init__(self, signal: int, step: int) -> None:
        super().__init__(f"interrupted at step {step}")
        self.signal, self.step = signal, step


def train_command(configuration: TrainConfiguration) -> int:
    """Train, or go on, evaluate, and write the report.

    Returns:
        The exit code: 0; 1 where a loss stopped being finite; 130 or 143 after Ctrl-C or SIGTERM.

    Raises:
        InputError: the configuration cannot be used, or another training is unfinished in its directory.
    """
    from infonce_jax.study import outputs, train_page

    configuration = configuration.checked()
    recipe = recipe_of(configuration)  # what cannot be is refused before a directory is made for it
    out, began = outputs.prepare_directory(configuration.directory), time.perf_counter()
    print(f"{recipe.name}: {recipe.description}")
    print(f"{configuration.seeds} seeds, {configuration.steps} steps, tau {configuration.temperature}")
    try:
        training = _trained(configuration, recipe, out, print)
    except TrainingInterrupted as stop:
        print(f"{stop}\ncontinue with: infonce-jax resume {out}", file=sys.stderr)
        return 128 + stop.signal
    except encoders.TrainingStopped as stop:
        outputs.replace_zarr(out / "partial.zarr", stop.training.data)
        print(f"infonce-jax: {stop}\nsaved as {out / 'partial.zarr'}", file=sys.stderr)
        return 1
    outcome = recipe.evaluate(training)
    for line in (*outcome.lines, *training.flags):
        print(f"  {line}")
    page = train_page.write_training(configuration, recipe, training, outcome, out)
    shutil.rmtree(out / _FOLDER, ignore_errors=True)
    print(f"{time.perf_counter() - began:.0f} s; report: {page}")
    return 0


def _trained(
    configuration: TrainConfiguration, recipe: Recipe, out: Path, say: Callable[[str], None]
) -> encoders.Training:
    place = out / _FOLDER
    if configuration.fresh:
        shutil.rmtree(place, ignore_errors=True)
    saving = Checkpoints(place, configuration.checkpoint_every, configuration.skip_damaged)
    description = {_ASKED: configuration.settings(), "data": recipe.digest}
    try:
        open_directory(saving, description, [(0, configuration.seeds or 0)])
    except InputError as refused:
        raise InputError(f"{refused}, or drop that one with --fresh") from None
    store = Store(saving, (0, configuration.seeds or 0))
    with contextlib.closing(store), Signals() as signals:
        saved = store.newest()
        if saved is not None:
            say(f"going on with the training that was begun in {out}, from step {saved.step}")
        last = time.perf_counter()

        def after_chunk(trainer: encoders.Trainer) -> None:
            nonlocal last
            if signals.received is None and time.perf_counter() - last < store.every:
                return
            now = trainer.snapshot()
            store.save(Saved(now.step, now.seconds, now.leaves, [now.records]))
            last = time.perf_counter()
            if signals.received is not None and now.step < trainer.num_steps:
                raise TrainingInterrupted(signals.received, now.step)

        resume = None if saved is None else encoders.Snapshot(saved.step, saved.seconds, saved.carry, saved.records[0])
        return encoders.optimise(
            recipe.objective, temperature=configuration.temperature, optimizer=_optimizer(configuration),
            num_steps=configuration.steps or 0, num_seeds=configuration.seeds or 0, seed=configuration.seed,
            on_chunk=after_chunk, resume=resume,
        )  # fmt: skip


def _optimizer(configuration: TrainConfiguration) -> optax.GradientTransformation:
    step = {"adam": optax.adam, "sgd": optax.sgd}[configuration.optimizer](configuration.learning_rate)
    beta = configuration.inverse_temperature
    return step if beta is None else optax.chain(step, encoders.langevin(beta, configuration.learning_rate))


def begun_in(out: Path) -> bool:
    """Whether a training is unfinished in a directory."""
    manifest = out / _FOLDER / _MANIFEST
    if not manifest.is_file():
        return False
    try:
        return _ASKED in json.loads(manifest.read_text())["run"]
    except (OSError, ValueError, KeyError, TypeError):
        return False


def configuration_in(out: Path) -> TrainConfiguration:
    """What was asked of the unfinished training in a directory.

    Raises:
        InputError: another version wrote it.
    """
    asked = json.loads((out / _FOLDER / _MANIFEST).read_text())["run"][_ASKED]
    known = {f.name for f in dataclasses.fields(TrainConfiguration)}
    if unknown := sorted(set(asked) - known):
        raise refuse("resume", f"settings {', '.join(unknown)}, which this version does not know",
                     "the version that began the training", "install that")  # fmt: skip
    return TrainConfiguration(**asked, out=out)
