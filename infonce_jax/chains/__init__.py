"""Thousands of chains: run, observe, on every device."""

from infonce_jax.chains import observers
from infonce_jax.chains.checkpoints import Checkpoints, CheckpointWarning
from infonce_jax.chains.run import Run, RunInterrupted, RunStopped, run_chains, uniform_positions
from infonce_jax.devices import use_all_cores

__all__ = [
    "CheckpointWarning",
    "Checkpoints",
    "Run",
    "RunInterrupted",
    "RunStopped",
    "observers",
    "run_chains",
    "uniform_positions",
    "use_all_cores",
]
