"""Geodesic Hamiltonian Monte Carlo: exact stationary law, long moves."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from infonce_jax.checks import count, positive
from infonce_jax.energies.base import Energy
from infonce_jax.integrators.protocol import Info, Integrator, State, flow, gradient_and_energy, metropolis
from infonce_jax.noise import Noise
from infonce_jax.sphere import to_tangent

__all__ = ["Phase", "hmc", "leapfrog"]


class Phase(NamedTuple):
    """A point of phase space with what the energy says there.

    Attributes:
        positions, momentum, gradient: shape (n, d); the gradient is the Euclidean one.
        energy: E(positions), scalar.
    """

    positions: jax.Array
    momentum: jax.Array
    gradient: jax.Array
    energy: jax.Array


def hmc(step_size: float, num_leapfrog: int = 5) -> Integrator:
    """Geodesic Hamiltonian Monte Carlo (Byrne and Girolami 2013), unit mass.

    The momentum is drawn from N(0, 1/beta) on the tangent space, moved by `num_leapfrog` leapfrog steps (half a kick, a
    geodesic, half a kick), and the end is accepted with probability min(1, e^{-beta (H' - H)}), H = E + |p|^2/2. Kick
    and geodesic flow preserve volume exactly, so no Jacobian enters and geodesics may be of any length.

    Its time is not that of the overdamped equation. `step_size` is a time of Newton's equation x'' = -grad E, one call
    runs for T = num_leapfrog * step_size of it, and by T the clock of a run, and so the schedule, advances. A short
    call moves like T^2/2 of overdamped time. Compare hitting times with other schemes in gradients, of which a call
    takes `num_leapfrog`.

    Args:
        step_size: length of a leapfrog step, > 0; below 2/sqrt(L), L the largest eigenvalue of the Hessian.
        num_leapfrog: leapfrog steps per call, at least 1; the code grows with it, as it is unrolled.

    Raises:
        InputError: a step size that is not positive, a number of steps that is not a whole number above zero.
    """
    h = positive("step_size", step_size, "a time step, for example 0.2")
    return _scheme(h, count("num_leapfrog", num_leapfrog, mend="leapfrog steps per call, for example 5"))


def leapfrog(energy: Energy | None, start: Phase, step_size: float, num_steps: int) -> Phase:
    """Leapfrog steps with geodesic flow from `start`; reversed by changing the sign of the momentum at the end."""
    x, p, gradient, value = start
    p = p - step_size / 2 * to_tangent(x, gradient)
    for k in range(num_steps):
        x, p = flow(x, p, step_size)
        gradient, value = gradient_and_energy(energy, x)
        kick = step_size if k < num_steps - 1 else step_size / 2
        p = p - kick * to_tangent(x, gradient)
    return Phase(x, p, gradient, value)


@functools.cache  # the same scheme twice compiles once
def _scheme(h: float, num_leapfrog: int) -> Integrator:
    def init(energy: Energy, positions: jax.Array) -> State:
        return State(positions, energy, gradient_and_energy(energy, positions))

    def step(state: State, noise: Noise, beta: jax.Array) -> tuple[State, Info]:
        x, (gradient, value) = state.positions, state.cache
        start = Phase(x, to_tangent(x, noise.normal) / jnp.sqrt(beta), gradient, value)
        end = leapfrog(state.energy, start, h, num_leapfrog)
        kinetic = (jnp.sum(end.momentum**2) - jnp.sum(start.momentum**2)) / 2
        acceptance = metropolis(-beta * (end.energy - value + kinetic))
        accepted = noise.uniform < acceptance
        y, _, new_gradient, new_value = (jnp.where(accepted, new, old) for new, old in zip(end, start, strict=True))
        return State(y, state.energy, (new_gradient, new_value)), Info(value, acceptance)

    return Integrator(f"HMC of {num_leapfrog} steps", h * num_leapfrog, init, step, uniforms=())
