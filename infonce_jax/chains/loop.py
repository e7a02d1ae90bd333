"""The host loop around the compiled chunks, for one block of chains: time, records, health, checkpoints, signals."""

from __future__ import annotations

import time as clock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tqdm import tqdm

from infonce_jax.chains.checkpoints import Saved, Store
from infonce_jax.chains.engine import advance_chunk, lane_count, look_again, start_carry, start_energies, unrolls
from infonce_jax.chains.observers import default_times
from infonce_jax.chains.outcome import Run, RunInterrupted, RunStopped
from infonce_jax.chains.plan import Plan
from infonce_jax.chains.recorder import Recorder
from infonce_jax.chains.signals import Signals
from infonce_jax.checks import InputError, refuse
from infonce_jax.noise import chain_keys

__all__ = ["Loop"]

# An interruption waits for a chunk. The first one has so many steps that chains x steps x n^2 d stays below this, some
# tenth of a second; they grow while they take less than a quarter of `_PATIENCE` seconds.
_FIRST_WORK, _FEWEST, _PATIENCE = 2e8, 16, 2.0
# Temperatures handed over per call at least: arrays of one length compile once, and XLA turned one of a single entry
# into other arithmetic (the last bits of MALA differed).
_CLOCK = 2048


class Loop:
    """Chains first ... stop - 1 of a plan: carries on the devices, time and records on the host.

    Args:
        plan: the run they are part of.
        chains: (first, stop).
        mesh: devices.
        chunk: steps per call of the compiled loop at most.
        store: where checkpoints go and come from, or None.
    """

    def __init__(self, plan: Plan, chains: tuple[int, int], mesh: Mesh, chunk: int, store: Store | None) -> None:
        self.plan, self.mesh, self.chunk, self.store = plan, mesh, chunk, store
        self.first, self.num_chains = chains[0], chains[1] - chains[0]
        h, lanes = plan.integrator.step_size, lane_count(self.num_chains, mesh.size)
        moments = [default_times(o, plan.num_steps * h, h) for o in plan.observers]
        self.recorder = Recorder(plan.observers, moments, h, plan.num_steps, chains)
        across, spread = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((None, "chains"), ("chains",)))
        # Spare lanes are copies of the first chain: an error in one of them is an error in that chain.
        owners = self.first + np.where(np.arange(lanes) < self.num_chains, np.arange(lanes), 0)
        self.keys = jax.device_put(chain_keys(plan.seed, owners), across)
        # Placed once: handing over a dozen small arrays with every chunk takes longer than the shortest chunks do.
        self.energy, self.watching = jax.device_put(
            (plan.energy, plan.watching()), NamedSharding(mesh, PartitionSpec())
        )
        self.step, self.seconds_before = 0, 0.0
        self.started = clock.perf_counter()
        x = plan.positions(*chains)
        padded = np.concatenate([x, np.broadcast_to(x[:1], (lanes - len(x), *x.shape[1:]))]).astype(plan.dtype)
        saved = None if store is None else store.newest()
        carry = self._begin(padded) if saved is None else self._continue(saved, padded)
        self.carry = jax.device_put(carry, spread)  # as the loop returns it, or it would compile once more for that
        self.scalars = unrolls(plan.integrator, self.carry, plan.taus is not None, plan.energy, self.watching)
        self.saved_at = clock.perf_counter()
        n, d = plan.shape
        self.pace = min(max(int(_FIRST_WORK / (self.num_chains * n * n * d)), _FEWEST), chunk)

    def _begin(self, x: np.ndarray) -> Any:
        energy = self.plan.energy_at(0)
        try:
            carry = start_carry(jnp.asarray(x), energy, self.watching, integrator=self.plan.integrator)
            values = np.asarray(start_energies(carry[0].positions, energy))[: self.num_chains]
        except InputError:
            raise
        except Exception as error:  # whatever the user's code throws
            raise refuse("energy", f"an error at the starts ({_own_words(error)})", "a function of one configuration",
                         "try it on one configuration first") from error  # fmt: skip
        if not np.all(np.isfinite(values)):
            chain = int(np.argmin(np.isfinite(values)))
            raise refuse("initial", f"energy {values[chain]} of chain {self.first + chain}",
                         "a finite energy at every start", "check the energy at that configuration")  # fmt: skip
        return carry

    def _continue(self, saved: Saved, x: np.ndarray) -> Any:
        """The carry of a checkpoint, its lanes filled up for the devices there are now."""
        energy = self.plan.energy_at(0)
        shapes = jax.eval_shape(lambda y: start_carry(y, energy, self.watching, integrator=self.plan.integrator), x)
        self.step, self.seconds_before = saved.step, saved.seconds
        self.recorder.records = saved.records
        spare = len(x) - self.num_chains
        filled = [np.concatenate([a, np.repeat(a[:1], spare, axis=0)]) for a in saved.carry]
        return jax.tree.unflatten(jax.tree.structure(shapes), filled)

    def run(self, bar: tqdm, signals: Signals) -> Run:
        """Advance to the end; `bar` is told of every chunk.

        Raises:
            RunStopped, RunInterrupted: with what there was; a checkpoint is written before where there is a store.
        """
        bar.update(self.step * self.num_chains)
        self._record()
        while self.step < self.plan.num_steps:
            before, began = self.step, clock.perf_counter()
            try:
                self._advance(min(self.pace, self.recorder.next_moment(self.step) - self.step))
            except RunStopped:
                self._save()
                raise
            if clock.perf_counter() - began < _PATIENCE / 4:
                self.pace = min(4 * self.pace, self.chunk)
            elif clock.perf_counter() - began > _PATIENCE:
                self.pace = max(self.pace // 2, min(_FEWEST, self.chunk))
            bar.update((self.step - before) * self.num_chains)
            self._record()
            if signals.received is not None and self.step < self.plan.num_steps:
                self._save()
                where = None if self.store is None else self.store.root
                raise RunInterrupted(self.result(), signals.received, where)
            if self.store is not None and clock.perf_counter() - self.saved_at > self.store.every:
                self._save()
        self._save()
        return self.result()

    def _save(self) -> None:
        if self.store is None or self.store.last_step == self.step:
            return
        carry = [np.asarray(leaf)[: self.num_chains] for leaf in jax.tree.leaves(self.carry)]
        self.store.save(Saved(self.step, self._seconds(), carry, self.recorder.records))
        self.saved_at = clock.perf_counter()

    def _seconds(self) -> float:
        return self.seconds_before + clock.perf_counter() - self.started

    def _record(self) -> None:
        if self.recorder.due(self.step):
            energy = self.energy if self.plan.taus is None else self.plan.energy_at(self.step)
            self.recorder.record(self.step, self.watching, energy, self.carry[0].positions, self.carry[1])

    def _call(self, steps: int, only: np.ndarray | None = None) -> tuple[Any, np.ndarray]:
        """Carry and health after some steps; with `only`, all lanes are copies of those chains."""
        plan = self.plan
        times = (self.step + np.arange(steps, dtype=np.float64)) * plan.integrator.step_size
        pad = (0, max(self.chunk, _CLOCK) - steps)
        betas = np.pad(plan.beta(times), pad, mode="edge").astype(plan.dtype)
        taus = None if plan.taus is None else np.pad(plan.taus(times), pad, mode="edge").astype(plan.dtype)
        carry, keys = self.carry, self.keys
        if only is not None:
            rows = np.resize(only, keys.shape[1])
            carry = jax.tree.map(lambda a: jax.device_put(np.asarray(a)[rows], a.sharding), carry)
            keys = jax.device_put(np.asarray(keys)[:, rows], keys.sharding)
        carry, healthy = advance_chunk(
            carry, keys, self.energy, self.watching, betas, taus, np.int32(self.step), np.int32(steps),
            integrator=plan.integrator, scalars=self.scalars, mesh=self.mesh,
        )  # fmt: skip
        return carry, np.asarray(healthy)[: self.num_chains]

    def _advance(self, steps: int) -> None:
        try:
            carry, healthy = self._call(steps)
        except InputError as reason:  # the schedule left what is allowed
            raise self._stopped(self.step, 0, str(reason)) from reason
        except Exception as error:  # an energy that throws while it runs
            raise self._thrown(steps, error) from error
        if not healthy.all():
            raise self._unhealthy(steps, healthy)
        self.carry, self.step = carry, self.step + steps

    def _unhealthy(self, steps: int, healthy: np.ndarray) -> RunStopped:
        """Find the first bad step by bisection (a chunk can be repeated exactly) and say what happened where."""
        good, bad = 0, steps
        while bad - good > 1:
            middle = (good + bad) // 2
            state = self._call(middle)[1]
            good, bad, healthy = (middle, bad, healthy) if state.all() else (good, middle, state)
        return self._stopped(
            self.step + bad, int(np.argmin(healthy)), "energy or gradient not finite; the step from the positions in "
            ".state leads there; check the energy around them", self._positions(good),
        )  # fmt: skip

    def _thrown(self, steps: int, error: Exception) -> RunStopped:
        """Find the step at which the energy throws, and the chain, by repeating the chunk for fewer and fewer."""
        good, bad = 0, steps
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (good, middle) if self._throws(middle) else (middle, bad)
        chains = np.arange(self.num_chains)
        while len(chains) > 1:
            half = chains[: len(chains) // 2]
            chains = half if self._throws(bad, half) else chains[len(half) :]
        reason = f"the energy raised an error ({_own_words(error)}); the step from the positions in .state leads there"
        return self._stopped(self.step + bad, int(chains[0]), reason, self._positions(good))

    def _throws(self, steps: int, only: np.ndarray | None = None) -> bool:
        try:
            self._call(steps, only)
        except Exception:
            return True
        return False

    def _positions(self, steps: int) -> np.ndarray:
        """Positions some steps into the chunk, shape (chains, n, d)."""
        carry = self._call(steps)[0] if steps else self.carry
        return np.asarray(carry[0].positions)[: self.num_chains]

    def _stopped(self, step: int, chain: int, reason: str, x: np.ndarray | None = None) -> RunStopped:
        x = self._positions(0) if x is None else x
        time = step * self.plan.integrator.step_size
        message = f"chain {self.first + chain} failed at step {step} (time {time:g}): {reason}"
        return RunStopped(message, self.first + chain, step, x[chain], self.result())

    def result(self) -> Run:
        """What there is after the steps made so far."""
        positions = self._positions(0)
        # The state after the last step has been seen by no step; observers that look for passages see it here.
        last = look_again(self.watching, self.carry, self.plan.energy_at(self.step), np.int32(self.step))
        carries = jax.tree.map(lambda a: np.asarray(a)[: self.num_chains], last)
        data = self.recorder.dataset(carries, self.plan.beta, self.plan.taus, self.step)
        return Run(data, positions, self.step, self._seconds(), "scalars" if self.scalars else "arrays")


def _own_words(error: Exception) -> str:
    """The last line of an error's text: runtimes put the user's own message at the end of a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
