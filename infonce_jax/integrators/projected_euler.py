"""Projected Euler-Maruyama: step in the tangent plane, then pull back to the sphere by normalising."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp

from infonce_jax.checks import positive
from infonce_jax.integrators.protocol import Integrator, euler_scheme

__all__ = ["projected_euler"]


def projected_euler(step_size: float, corrected_noise: bool = False) -> Integrator:
    """Projected Euler-Maruyama, weak order 1: x' = (x + v)/|x + v| with the v of `geodesic_euler`.

    Its bias on Brownian motion is 3(d+2)/(d-2) times that of the geodesic step, with the other sign; it is here as a
    yardstick, being what most code does.

    Args:
        step_size: h > 0, time units.
        corrected_noise: scale the noise variance by 1 + (d+2)h/beta, which makes the Brownian part of weak order 2
            where there is no drift; with one, the whole step stays of order 1 and its bias can even grow.

    Raises:
        InputError: a step size that is not positive.
    """
    return _scheme(positive("step_size", step_size, "a time step, for example 0.03"), bool(corrected_noise))


def _pull_back(x: jax.Array, v: jax.Array) -> jax.Array:
    # One exact normalisation, whatever the length of the step.
    y = x + v
    return y * jax.lax.rsqrt(jnp.sum(y * y, axis=-1, keepdims=True))


@functools.cache  # the same scheme twice compiles once
def _scheme(h: float, corrected_noise: bool) -> Integrator:
    if corrected_noise:
        return euler_scheme("projected Euler, corrected noise", h, _pull_back, lambda d: d + 2.0)
    return euler_scheme("projected Euler", h, _pull_back, lambda d: 0.0)
