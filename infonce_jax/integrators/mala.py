"""Metropolis-adjusted geodesic Langevin: exact stationary law at any step size."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from infonce_jax.checks import positive
from infonce_jax.energies.base import Energy
from infonce_jax.integrators.protocol import Info, Integrator, State, geodesic, gradient_and_energy, metropolis
from infonce_jax.noise import Noise
from infonce_jax.sphere import to_tangent

__all__ = ["mala"]


def mala(step_size: float) -> Integrator:
    """Riemannian MALA with the exponential-map proposal of `geodesic_euler`.

    A proposal y = exp_x(v) is accepted with probability min(1, e^{-beta (E(y) - E(x))} q(y, x)/q(x, y)), where
    log q(x, y) = -|v + h grad E(x)|^2 beta/(4h). The way back has velocity -w, w the velocity of the geodesic at y. The
    volume factor (sin|v|/|v|)^{d-2} of the exponential map is the same both ways and cancels. A move with any
    |v_i| >= pi is rejected: past the cut locus the velocity is not the shortest one and the ratio would be wrong.

    Args:
        step_size: h > 0, time units; about 1/L gives healthy acceptance.

    Raises:
        InputError: a step size that is not positive.
    """
    return _scheme(positive("step_size", step_size, "a time step, for example 0.1"))


@functools.cache  # the same scheme twice compiles once
def _scheme(h: float) -> Integrator:
    def init(energy: Energy, positions: jax.Array) -> State:
        return State(positions, energy, gradient_and_energy(energy, positions))

    def step(state: State, noise: Noise, beta: jax.Array) -> tuple[State, Info]:
        x, (gradient, value) = state.positions, state.cache
        drift = -h * to_tangent(x, gradient)
        v = drift + jnp.sqrt(2 * h / beta) * to_tangent(x, noise.normal)
        y = geodesic(x, v)
        new_gradient, new_value = gradient_and_energy(state.energy, y)
        back = -_arrival(x, v)
        back_drift = -h * to_tangent(y, new_gradient)
        log_ratio = -beta * (new_value - value) + beta / (4 * h) * (
            jnp.sum((v - drift) ** 2) - jnp.sum((back - back_drift) ** 2)
        )
        inside = jnp.all(jnp.sum(v * v, axis=-1) < np.pi**2)
        acceptance = jnp.where(inside, metropolis(log_ratio), 0.0)
        accepted = noise.uniform < acceptance
        kept = [jnp.where(accepted, new, old) for new, old in ((y, x), (new_gradient, gradient), (new_value, value))]
        return State(kept[0], state.energy, (kept[1], kept[2])), Info(value, acceptance)

    return Integrator("MALA", h, init, step, uniforms=())


def _arrival(x: jax.Array, v: jax.Array) -> jax.Array:
    """Velocity at the end of the geodesic that leaves x with velocity v: cos|v| v - |v| sin|v| x."""
    r2 = jnp.sum(v * v, axis=-1, keepdims=True)
    r = jnp.sqrt(jnp.where(r2 > 0, r2, 1.0))
    return jnp.cos(r) * v - r * jnp.sin(r) * jnp.where(r2 > 0, x, 0.0)
