"""Kinetic (underdamped) Langevin dynamics: geodesic BAOAB."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from infonce_jax.checks import positive
from infonce_jax.energies.base import Energy
from infonce_jax.integrators.protocol import Info, Integrator, State, flow, gradient_and_energy
from infonce_jax.sphere import to_tangent

__all__ = ["Motion", "kinetic"]


class Motion(NamedTuple):
    """What a chain carries besides its positions.

    Attributes:
        momentum: tangent, shape (n, d).
        gradient: Euclidean gradient at the positions, shape (n, d).
        energy: E(positions), scalar.
        drawn: whether the momentum has been drawn yet.
    """

    momentum: jax.Array
    gradient: jax.Array
    energy: jax.Array
    drawn: jax.Array


def kinetic(step_size: float, friction: float = 1.0) -> Integrator:
    """Kinetic Langevin with unit mass, dX = P dt, dP = -grad E dt - gamma P dt + sqrt(2 gamma/beta) dB, by BAOAB.

    B(h/2) A(h/2) O(h) A(h/2) B(h/2): kicks by the gradient, geodesic flows, and in the middle
    p <- e^{-gamma h} p + sqrt((1 - e^{-2 gamma h})/beta) P xi (Leimkuhler and Matthews 2016, geodesic integrator). Weak
    order 2, one gradient a step, no rejection.

    Its positions tend to the Gibbs law of E, but in their own time: for large friction gamma, t here is t/gamma of the
    overdamped equation. A chain starts with momentum zero and draws it in the O part of its first step, which forgets
    the momentum altogether; a start at rest would not be in equilibrium, and a draw in `init` would need random
    numbers there. The error of that one half step is of order h^2, like the rest.

    Args:
        step_size: h > 0, time units of Newton's equation; below 2/sqrt(L), L the largest eigenvalue of the Hessian.
        friction: gamma > 0, per time.

    Raises:
        InputError: a step size or a friction that is not positive.
    """
    h = positive("step_size", step_size, "a time step, for example 0.1")
    return _scheme(h, positive("friction", friction, "a rate, for example 1.0"))


@functools.cache  # the same scheme twice compiles once
def _scheme(h: float, friction: float) -> Integrator:
    memory = math.exp(-friction * h)
    fresh = math.sqrt(-math.expm1(-2 * friction * h))

    def init(energy: Energy, positions: jax.Array) -> State:
        gradient, value = gradient_and_energy(energy, positions)
        return State(positions, energy, Motion(jnp.zeros_like(positions), gradient, value, jnp.zeros((), bool)))

    def retemper(state: State, energy: Energy) -> State:
        gradient, value = gradient_and_energy(energy, state.positions)
        return State(state.positions, energy, state.cache._replace(gradient=gradient, energy=value))

    def step(state: State, noise: jax.Array, beta: jax.Array) -> tuple[State, Info]:
        x, (p, gradient, value, drawn) = state.positions, state.cache
        p = p - h / 2 * to_tangent(x, gradient)
        x, p = flow(x, p, h / 2)
        keep, draw = jnp.where(drawn, memory, 0.0), jnp.where(drawn, fresh, 1.0)
        p = keep.astype(x.dtype) * p + draw.astype(x.dtype) / jnp.sqrt(beta) * to_tangent(x, noise)
        x, p = flow(x, p, h / 2)
        gradient, new_value = gradient_and_energy(state.energy, x)
        p = p - h / 2 * to_tangent(x, gradient)
        moved = Motion(p, gradient, new_value, jnp.ones((), bool))
        return State(x, state.energy, moved), Info(value, jnp.ones_like(value))

    return Integrator("kinetic BAOAB", h, init, step, retemper=retemper)
