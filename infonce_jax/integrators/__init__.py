"""Schemes for the annealed Langevin equation, one file each."""

from infonce_jax.integrators.geodesic_euler import geodesic_euler
from infonce_jax.integrators.mala import mala
from infonce_jax.integrators.projected_euler import projected_euler
from infonce_jax.integrators.protocol import Info, Integrator, State

__all__ = ["Info", "Integrator", "State", "geodesic_euler", "mala", "projected_euler"]
