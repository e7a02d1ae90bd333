"""Geodesic Euler-Maruyama: the drift and the noise of one step as one tangent vector, followed along its geodesic."""

from __future__ import annotations

import functools

from infonce_jax.checks import positive
from infonce_jax.integrators.protocol import Integrator, euler_scheme, geodesic

__all__ = ["geodesic_euler"]


def geodesic_euler(step_size: float, corrected_noise: bool = False) -> Integrator:
    """Geodesic Euler-Maruyama, weak order 1.

    v = -h grad E(x) + sqrt(2h/beta) P_x xi, then x' = cos|v| x + (sin|v|/|v|) v.

    Args:
        step_size: h > 0, time units. Use at most .35/L for annealing and .2/L for statistics, L the largest eigenvalue
            of the Hessian: the bias grows silently, the space is compact and nothing blows up.
        corrected_noise: scale the noise variance by 1 - (d-2)h/(3 beta), which makes the Brownian part of weak order 2.

    Raises:
        InputError: a step size that is not positive.
    """
    return _scheme(positive("step_size", step_size, "a time step, for example 0.03"), bool(corrected_noise))


@functools.cache  # the same scheme twice compiles once
def _scheme(h: float, corrected_noise: bool) -> Integrator:
    if corrected_noise:
        return euler_scheme("geodesic Euler, corrected noise", h, geodesic, lambda d: -(d - 2) / 3)
    return euler_scheme("geodesic Euler", h, geodesic, lambda d: 0.0)
