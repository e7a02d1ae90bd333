"""Annealed Langevin dynamics of contrastive embeddings on products of spheres."""

from infonce_jax import encoders, energies, integrators, landscape, measure, scenarios, schedules, sphere, theory
from infonce_jax.chains import Checkpoints, Run, RunInterrupted, RunStopped, observers, run_chains
from infonce_jax.checks import InputError
from infonce_jax.devices import use_all_cores

__all__ = [
    "Checkpoints",
    "InputError",
    "Run",
    "RunInterrupted",
    "RunStopped",
    "encoders",
    "energies",
    "integrators",
    "landscape",
    "measure",
    "observers",
    "run_chains",
    "scenarios",
    "schedules",
    "sphere",
    "theory",
    "use_all_cores",
]
