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

import optax

from infonce_jax import encoders
from infonce_jax.chains.checkpoints import MANIFEST, Checkpoints, Saved, Store, open_directory
from infonce_jax.chains.signals import Signals
from infonce_jax.checks import InputError, refuse
from infonce_jax.study.recipes import Recipe, recipe_of
from infonce_jax.study.train_configuration import TrainConfiguration

__all__ = ["TrainingInterrupted", "begun_in", "configuration_in", "train_command"]

_FOLDER, _ASKED = "checkpoints", "asked"


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
    manifest = out / _FOLDER / MANIFEST
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
    asked = json.loads((out / _FOLDER / MANIFEST).read_text())["run"][_ASKED]
    known = {f.name for f in dataclasses.fields(TrainConfiguration)}
    if unknown := sorted(set(asked) - known):
        raise refuse("resume", f"settings {', '.join(unknown)}, which this version does not know",
                     "the version that began the training", "install that")  # fmt: skip
    return TrainConfiguration(**asked, out=out)
