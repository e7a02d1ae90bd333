"""The host side of observation: what is recorded when, and the data set it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr

from infonce_jax.chains.engine import map_lanes
from infonce_jax.chains.observers import Observer
from infonce_jax.checks import refuse
from infonce_jax.energies.base import Energy
from infonce_jax.schedules import Schedule

__all__ = ["Recorder"]

_INVERSE_TEMPERATURE = {"long_name": "inverse temperature", "units": "1/energy"}


@jax.jit
def _record_all(observers: tuple[Observer, ...], energy: Energy, x: jax.Array, carries: tuple[Any, ...]) -> Any:
    def one(lane: tuple[jax.Array, tuple[Any, ...]]) -> list[dict[str, jax.Array]]:
        return [observer.record(energy, lane[0], carry) for observer, carry in zip(observers, lane[1], strict=True)]

    return map_lanes(one, (x, carries))


class Recorder:
    """Collects the records of all observers at their times and assembles the `xarray.Dataset`."""

    def __init__(
        self,
        observers: Sequence[Observer],
        moments: Sequence[Sequence[float]],
        step_size: float,
        num_steps: int,
        chains: tuple[int, int],
    ) -> None:
        self.observers, self.step_size, self.num_steps = observers, step_size, num_steps
        self.chains = np.arange(*chains)
        names = [name for observer in observers for name in observer.names()]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise refuse(
                "observers", f"two that make {min(twice)!r}", "different names", "pass name=, or one list of times"
            )
        self.steps = [self._on_grid(times) for times in moments]
        self.records: list[list[tuple[int, dict[str, np.ndarray]]]] = [[] for _ in observers]
        self.moments = sorted(set().union(*self.steps) | {num_steps})

    def _on_grid(self, times: Sequence[float]) -> list[int]:
        steps = np.unique(np.round(np.asarray(times, dtype=np.float64) / self.step_size).astype(np.int64))
        if len(steps) and steps[-1] > self.num_steps:
            end = f"times up to {self.num_steps * self.step_size:g}, the end of the run"
            raise refuse("times", f"{np.max(times):g}", end,
                         "make the run longer; times are in time units, steps * step_size")  # fmt: skip
        return steps.tolist()

    def next_moment(self, step: int) -> int:
        """The first step after `step` at which something is recorded or the run ends."""
        return next(moment for moment in self.moments if moment > step)

    def due(self, step: int) -> bool:
        """Whether any observer records at this step."""
        return any(step in steps for steps in self.steps)

    def record(
        self, step: int, watching: Sequence[Observer], energy: Energy, x: jax.Array, carries: Sequence[Any]
    ) -> None:
        """Record what is due at this step, with the observers' device parts; a run resumed here has it already."""
        due = [
            i for i, steps in enumerate(self.steps)
            if step in steps and not (self.records[i] and self.records[i][-1][0] == step)
        ]  # fmt: skip
        if not due:
            return
        out = _record_all(tuple(watching[i] for i in due), energy, x, tuple(carries[i] for i in due))
        for i, values in zip(due, out, strict=True):
            named = {name: np.asarray(value)[: len(self.chains)] for name, value in values.items()}
            self.records[i].append((step, named))

    def dataset(self, carries: Sequence[Any], beta: Schedule, taus: Any, step: int) -> xr.Dataset:
        """The data set after `step` steps: recorded variables, final ones, and the schedule along each time axis."""
        data = xr.Dataset(coords={"chain": self.chains})
        axes: dict[tuple[int, ...], str] = {}
        for observer, kept, carry in zip(self.observers, self.records, carries, strict=True):
            described = observer.describe()
            if kept and described:
                grid = tuple(moment for moment, _ in kept)
                axis = axes.setdefault(grid, "time" if not axes else f"time_{len(axes)}")
                for name, (dims, attributes) in described.items():
                    values = np.stack([record[name] for _, record in kept], axis=1)
                    data[name] = xr.Variable(("chain", axis, *dims), values, attributes)
            for name, variable in observer.finish(carry, self.step_size, step).items():
                data[name] = xr.Variable(("chain", *variable.dims), variable.values, variable.attributes)
        for grid, axis in axes.items():
            times = np.asarray(grid, dtype=np.float64) * self.step_size
            suffix = axis.removeprefix("time")
            data = data.assign_coords({
                axis: xr.Variable(axis, times, {"long_name": "time", "units": "time units"}),
                f"step{suffix}": xr.Variable(axis, np.asarray(grid), {"long_name": "step"}),
                f"inverse_temperature{suffix}": xr.Variable(axis, beta(times), _INVERSE_TEMPERATURE),
            })  # fmt: skip
            if taus is not None:
                data = data.assign_coords(
                    {f"temperature{suffix}": xr.Variable(axis, taus(times), {"long_name": "tau"})}
                )
        data.attrs.update(schedule=beta.name, schedule_kind=beta.kind, step_size=self.step_size, num_steps=step)
        return data
