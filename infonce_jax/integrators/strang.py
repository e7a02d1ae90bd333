"""Strang splitting: half a drift, a Brownian step, half a drift; weak order 2."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from infonce_jax.checks import positive
from infonce_jax.energies.base import Energy
from infonce_jax.integrators.protocol import (
    Info,
    Integrator,
    State,
    brownian_scale,
    geodesic,
    gradient_and_energy,
)
from infonce_jax.sphere import to_tangent, transport

__all__ = ["strang"]


def strang(step_size: float) -> Integrator:
    """Strang splitting of drift and noise, weak order 2, four gradients a step.

    Half a drift flow, by the midpoint rule on geodesics (order 2; an Euler drift would drop the whole step to order 1);
    a Brownian step exp_x(sqrt(2s (1 - (d-2)s/3)) P_x xi) with s = h/beta, whose variance is corrected to weak order 2;
    half a drift flow. (Strang 1968 for the splitting; Hairer, Lubich and Wanner 2006 for the midpoint rule.)

    Args:
        step_size: h > 0, time units; the largest step that follows the drift is about 2/L, L the largest eigenvalue of
            the Hessian.

    Raises:
        InputError: a step size that is not positive.
    """
    return _scheme(positive("step_size", step_size, "a time step, for example 0.05"))


@functools.cache  # the same scheme twice compiles once
def _scheme(h: float) -> Integrator:
    def init(energy: Energy, positions: jax.Array) -> State:
        return State(positions, energy)

    def step(state: State, noise: jax.Array, beta: jax.Array) -> tuple[State, Info]:
        start, value = _drift(state.energy, state.positions, h / 2)
        scale = brownian_scale(h, beta, -(start.shape[-1] - 2) / 3)
        end, _ = _drift(state.energy, geodesic(start, scale * to_tangent(start, noise)), h / 2)
        return state._replace(positions=end), Info(value, jnp.ones_like(value))

    return Integrator("Strang", h, init, step)


def _drift(energy: Energy | None, x: jax.Array, time: float) -> tuple[jax.Array, jax.Array]:
    """The gradient flow from x by one midpoint step, and the energy at x: the slope halfway, carried back to x."""
    gradient, value = gradient_and_energy(energy, x)
    middle = geodesic(x, -time / 2 * to_tangent(x, gradient))
    slope = to_tangent(middle, gradient_and_energy(energy, middle)[0])
    return geodesic(x, -time * to_tangent(x, transport(middle, x, slope))), value
