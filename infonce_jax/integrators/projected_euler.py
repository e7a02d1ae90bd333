"""Projected Euler-Maruyama: step in the tangent plane, then pull back to the sphere by normalising."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from infonce_jax.checks import positive
from infonce_jax.energies.base import Energy
from infonce_jax.integrators.protocol import Info, Integrator, State, brownian_scale, gradient_and_energy
from infonce_jax.sphere import to_tangent

__all__ = ["projected_euler"]


def projected_euler(step_size: float, corrected_noise: bool = False) -> Integrator:
    """Projected Euler-Maruyama, weak order 1: x' = (x + v)/|x + v| with the v of `geodesic_euler`.

    Its bias on Brownian motion is 3(d+2)/(d-2) times that of the geodesic step, with the other sign; it is here as a
    yardstick, being what most code does.

    Args:
        step_size: h > 0, time units.
        corrected_noise: scale the noise variance by 1 + (d+2)h/beta, which makes the Brownian part of weak order 2.

    Raises:
        InputError: a step size that is not positive.
    """
    return _scheme(positive("step_size", step_size, "a time step, for example 0.03"), bool(corrected_noise))


@functools.cache  # the same scheme twice compiles once
def _scheme(h: float, corrected_noise: bool) -> Integrator:
    def init(energy: Energy, positions: jax.Array) -> State:
        return State(positions, energy)

    def step(state: State, noise: jax.Array, beta: jax.Array) -> tuple[State, Info]:
        x = state.positions
        gradient, value = gradient_and_energy(state.energy, x)
        scale = brownian_scale(h, beta, x.shape[-1], x.shape[-1] + 2 if corrected_noise else 0)
        v = to_tangent(x, scale * noise - h * gradient)
        # |x + v|^2 = 1 + |v|^2, since v is tangent; one exact normalisation, whatever the size of the step.
        y = x + v
        y = y * jax.lax.rsqrt(jnp.sum(y * y, axis=-1, keepdims=True))
        return state._replace(positions=y), Info(value, jnp.ones_like(value))

    name = "projected Euler, corrected noise" if corrected_noise else "projected Euler"
    return Integrator(name, h, init, step)
