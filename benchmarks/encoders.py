"""What training many seeds at once is worth: `python -m benchmarks.encoders [--seeds 128] [--steps 500]`.

The encoder 7-64-64-2 on the eight rotations of a digit, Adam, all in one process, taking turns, medians of five rounds.
The seeds of one call of `train`, on all cores, against one seed after another in four ways:

- scan: one seed's steps as one compiled loop, the fastest there is for a single seed;
- step by step: one seed's step compiled, called from a loop in Python;
- Flax: the same with `nnx.Optimizer` and `nnx.jit`, as its guides have it;
- train: whole calls of `train` for one seed, which pads it to a tile of sixteen.

Compilation counts nowhere. Throughputs are seed-steps per second.
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import infonce_jax as ij
from benchmarks.timing import header, interleaved
from infonce_jax.encoders import FullBatch, mlp
from infonce_jax.encoders.networks import Perceptron
from infonce_jax.encoders.orbit import orbit
from infonce_jax.energies.contrast import normalise

__all__ = ["main", "measure"]

TAU, WIDTHS, DIM = 0.5, (64, 64), 2
_SHORT = 200  # steps of the loops in Python


def _plain(objective: FullBatch, optimizer: Any) -> tuple[Any, Callable[[Any], Any]]:
    """One seed before its first step, and its step."""
    parameters = objective.init(jax.random.key(0))[0]

    def step(carry: Any) -> Any:
        parameters, state = carry
        loss = lambda p: objective.loss(p, (), jax.random.key(0), jnp.float32(TAU))[0]  # noqa: E731
        updates, state = optimizer.update(jax.grad(loss)(parameters), state, parameters)
        return optax.apply_updates(parameters, updates), state

    return (parameters, optimizer.init(parameters)), step


def _flax(objective: FullBatch, optimizer: Any) -> Callable[[], Any]:
    """Some steps in the way of Flax's guides."""
    data = jnp.asarray(objective.data)
    module = Perceptron(data.shape[1:], DIM, WIDTHS, rngs=nnx.Rngs(0))
    keeper = nnx.Optimizer(module, optimizer, wrt=nnx.Param)

    @nnx.jit
    def step(module: Any, keeper: Any) -> None:
        keeper.update(module, nnx.grad(lambda m: objective.energy(normalise(m(data))))(module))

    def run() -> Any:
        for _ in range(_SHORT):
            step(module, keeper)
        return jax.block_until_ready(nnx.state(module, nnx.Param))

    return run


def measure(seeds: int = 128, steps: int = 500) -> dict[str, float]:
    """Seed-steps per second of every way, medians.

    Args:
        seeds: trained at once.
        steps: of the compiled runs.
    """
    views, encoder, adam = orbit(), mlp(WIDTHS, DIM), optax.adam(1e-3)
    energy = jax.tree.map(lambda a: np.asarray(a, np.float32), views.energy)
    objective = FullBatch.of(encoder, views.features, energy)
    start, step = _plain(objective, adam)
    scan = jax.jit(lambda carry: jax.lax.fori_loop(0, steps, lambda _, c: step(c), carry))
    once = jax.jit(step)

    def by_step() -> Any:
        carry = start
        for _ in range(_SHORT):
            carry = once(carry)
        return jax.block_until_ready(carry)

    call = functools.partial(ij.encoders.train, encoder, views.features, views.energy, TAU, adam, steps,
                             record_every=steps, progress=False)  # fmt: skip
    ways: dict[str, tuple[Callable[[], Any], int]] = {
        "at once": (lambda: call(seeds), seeds * steps),
        "scan": (lambda: jax.block_until_ready(scan(start)), steps),
        "step by step": (by_step, _SHORT),
        "Flax": (_flax(objective, adam), _SHORT),
        "train": (lambda: call(1), steps),
    }
    seconds = interleaved({name: run for name, (run, _) in ways.items()})
    return {name: work / float(np.median(seconds[name])) for name, (_, work) in ways.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=128)
    parser.add_argument("--steps", type=int, default=500)
    wishes = parser.parse_args(arguments)
    ij.use_all_cores()
    print(header())
    found = measure(wishes.seeds, wishes.steps)
    whole = found.pop("at once")
    print(f"{wishes.seeds} seeds at once: {whole:9.0f} seed-steps/s ({1e6 / whole:.1f} us each)")
    for name, rate in found.items():
        print(f"one after another, {name:13s} {rate:9.0f} seed-steps/s ({1e6 / rate:6.1f} us each), "
              f"at once is {whole / rate:5.1f} times faster")  # fmt: skip


if __name__ == "__main__":
    main()
