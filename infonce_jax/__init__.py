"""Annealed Langevin dynamics of contrastive embeddings on products of spheres."""

from infonce_jax import energies, integrators, schedules, sphere
from infonce_jax.chains import observers
from infonce_jax.devices import use_all_cores
from infonce_jax.chains.run import run_chains

__all__ = ["energies", "integrators", "observers", "run_chains", "schedules", "sphere", "use_all_cores"]
