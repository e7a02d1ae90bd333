"""What a run leaves behind, whole or cut short."""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

__all__ = ["Run", "RunInterrupted", "RunStopped", "joined"]


@dataclasses.dataclass(frozen=True)
class Run:
    """What a run leaves behind.

    Attributes:
        data: observed variables over chain and time, with the schedule along the time axis.
        final_positions: shape (chains, n, d).
        num_steps: steps made.
        seconds: wall-clock time of the loop, compilation included; of all sittings where it was resumed.
        path: "scalars" or "arrays", the way the inner loop was compiled.
    """

    data: xr.Dataset
    final_positions: np.ndarray
    num_steps: int
    seconds: float
    path: str

    @property
    def chain_steps_per_second(self) -> float:
        """Chains times steps over wall-clock time."""
        return len(self.final_positions) * self.num_steps / max(self.seconds, 1e-9)


class RunStopped(RuntimeError):
    """A chain's energy or gradient stopped being finite, or it left the sphere.

    Attributes:
        chain, step: where it happened first.
        state: positions of that chain before that step, shape (n, d).
        run: what had been observed until the chunk before.
    """

    def __init__(self, message: str, chain: int, step: int, state: np.ndarray, run: Run) -> None:
        super().__init__(message)
        self.chain, self.step, self.state, self.run = chain, step, state, run

    def __reduce__(self) -> tuple[Any, ...]:  # it travels between processes
        return RunStopped, (str(self), self.chain, self.step, self.state, self.run)


class RunInterrupted(KeyboardInterrupt):
    """Ctrl-C or SIGTERM during a run.

    Attributes:
        run: what had been observed.
        signal: which of the two.
        checkpoint: the directory that a second call continues from, or None.
    """

    def __init__(self, run: Run, number: int = signal.SIGINT, checkpoint: Path | None = None) -> None:
        self.run, self.signal, self.checkpoint = run, signal.Signals(number), checkpoint
        again = "" if checkpoint is None else f"; the same call continues from {checkpoint}"
        super().__init__(f"interrupted by {self.signal.name} after {run.num_steps} steps{again}")

    def __reduce__(self) -> tuple[Any, ...]:
        return RunInterrupted, (self.run, self.signal.value, self.checkpoint)


def joined(runs: Sequence[Run]) -> Run:
    """The run whose chains are those of `runs`, one after another; all have made the same steps."""
    if len(runs) == 1:
        return runs[0]
    data = xr.concat([run.data for run in runs], dim="chain", coords="minimal", compat="override", join="exact",
                     combine_attrs="override")  # fmt: skip
    positions = np.concatenate([run.final_positions for run in runs])
    return Run(data, positions, runs[0].num_steps, sum(run.seconds for run in runs), runs[0].path)
