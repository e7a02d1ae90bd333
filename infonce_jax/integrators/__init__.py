"""Schemes for the annealed Langevin equation, one file each."""

from infonce_jax.integrators.geodesic_euler import geodesic_euler
from infonce_jax.integrators.hmc import hmc
from infonce_jax.integrators.kinetic import kinetic
from infonce_jax.integrators.mala import mala
from infonce_jax.integrators.projected_euler import projected_euler
from infonce_jax.integrators.protocol import Info, Integrator, State
from infonce_jax.integrators.replica_exchange import replica_exchange
from infonce_jax.integrators.strang import strang

__all__ = [
    "Info",
    "Integrator",
    "State",
    "geodesic_euler",
    "hmc",
    "kinetic",
    "mala",
    "projected_euler",
    "replica_exchange",
    "strang",
]
