"""What an integrator is, and the arithmetic that the small-step schemes share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from infonce_jax.energies.base import Energy
from infonce_jax.noise import Noise
from infonce_jax.sphere import to_tangent

__all__ = [
    "Info",
    "Integrator",
    "State",
    "brownian_scale",
    "euler_scheme",
    "flow",
    "geodesic",
    "gradient_and_energy",
    "metropolis",
]


class State(NamedTuple):
    """One chain between two steps.

    Attributes:
        positions: shape (n, d), unit rows.
        energy: the energy function (a pytree; the same for all chains).
        cache: what the scheme carries from step to step, or ().
    """

    positions: jax.Array
    energy: Energy | None
    cache: Any = ()


class Info(NamedTuple):
    """What a step tells about the state it started from.

    Attributes:
        energy: E at the positions before the step.
        acceptance: probability that the proposal was accepted, 1 for schemes without rejection. Replica exchange
            reports that of its swaps.
    """

    energy: jax.Array
    acceptance: jax.Array


@dataclasses.dataclass(frozen=True)
class Integrator:
    """A scheme for dX = -grad E dt + sqrt(2/beta) dB: `init(energy, positions)`, `step(state, noise, beta)`.

    A step receives its random numbers and draws none, so it is a deterministic function that a test can feed quadrature
    nodes.

    Attributes:
        name: as reports print it.
        step_size: how far one step advances the clock of a run, > 0, in time units.
        init: (energy, positions) -> `State`.
        step: (state, noise, beta) -> (`State`, `Info`). Noise is an array (*normals, n, d) of standard normals, or a
            `infonce_jax.noise.Noise` where `needs_uniform`.
        normals: axes of the normals before (n, d): (), or (R,) for a scheme that moves R copies.
        uniforms: shape of the uniform numbers of a step that accepts or rejects, () for a single one, or None.
        retemper: (state, energy) -> the same state under an energy that has changed since the last step, as it does
            when tau moves. None where the cache is a function of energy and positions, so that `init` renews it.
    """

    name: str
    step_size: float
    init: Callable[[Energy, jax.Array], State] = dataclasses.field(repr=False)
    step: Callable[[State, Any, jax.Array], tuple[State, Info]] = dataclasses.field(repr=False)
    normals: tuple[int, ...] = ()
    uniforms: tuple[int, ...] | None = None
    retemper: Callable[[State, Energy], State] | None = dataclasses.field(default=None, repr=False)

    @property
    def needs_uniform(self) -> bool:
        """Whether the step accepts or rejects and so takes a `infonce_jax.noise.Noise`."""
        return self.uniforms is not None

    def noise_example(self, shape: tuple[int, ...], dtype: Any) -> Any:
        """Shapes of the random numbers of one step of one configuration of shape (n, d)."""
        normal = jax.ShapeDtypeStruct((*self.normals, *shape), dtype)
        return normal if self.uniforms is None else Noise(normal, jax.ShapeDtypeStruct(self.uniforms, dtype))

    def under(self, state: State, energy: Energy) -> State:
        """The same state under another energy: what the cache holds of the energy is computed anew, the rest kept."""
        return self.init(energy, state.positions) if self.retemper is None else self.retemper(state, energy)


def gradient_and_energy(energy: Energy | None, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Euclidean gradient, shape (n, d), and energy at x. A tangent projection must follow."""
    assert energy is not None
    value, gradient = jax.value_and_grad(lambda y: energy(y))(x)
    return gradient, value


def brownian_scale(step_size: float, beta: jax.Array, correction: float) -> jax.Array:
    """Standard deviation of a Brownian step of duration h/beta under generator Laplace-Beltrami.

    sqrt(2 s (1 + correction s)) with s = h/beta. The correction makes the step of weak order 2: -(d-2)/3 for the
    exponential map, d + 2 for projection (THEORY: matching the decay of the harmonics to second order). It is bounded
    where s is so large that the expansion says nothing.
    """
    s = step_size / beta
    if correction == 0:
        return jnp.sqrt(2 * s)
    return jnp.sqrt(2 * s * jnp.clip(1 + correction * s, 0.25, 4.0))


# Taylor coefficients in r^2: at r = pi the first term left out is below 4e-9.
_COSINE = tuple((-1) ** k / float(np.prod(np.arange(1.0, 2 * k + 1))) for k in range(10))
_SINC = tuple((-1) ** k / float(np.prod(np.arange(1.0, 2 * k + 2))) for k in range(9))


def _horner(coefficients: tuple[float, ...], x: jax.Array) -> jax.Array:
    value = jnp.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        value = value * x + c
    return value


def _cos_sinc(r2: jax.Array) -> tuple[jax.Array, jax.Array]:
    """cos r and sin(r)/r from r^2.

    In single precision both, with r reduced to [-pi, pi], are short polynomials; in double precision they are written
    with the library functions.
    """
    if r2.dtype == jnp.float32:
        r = jnp.sqrt(r2)
        turns = jnp.round(r * (1 / (2 * np.pi)))
        near = turns == 0
        reduced = r - turns * (2 * np.pi)
        square = jnp.where(near, r2, reduced * reduced)
        sinc = _horner(_SINC, square) * jnp.where(near, 1.0, reduced / jnp.where(near, 1.0, r))
        return _horner(_COSINE, square), sinc
    safe = jnp.where(r2 > 1e-12, r2, 1.0)
    r = jnp.sqrt(safe)
    return jnp.where(r2 > 1e-12, jnp.cos(r), 1 - r2 / 2), jnp.where(r2 > 1e-12, jnp.sin(r) / r, 1 - r2 / 6)


def geodesic(x: jax.Array, v: jax.Array) -> jax.Array:
    """The exponential map for the inner loop: x, v of shape (n, d), v tangent.

    The renormalisation is one Newton step, which squares the error of the norm and so keeps it at rounding level for
    ever.
    """
    cosine, sinc = _cos_sinc(jnp.sum(v * v, axis=-1, keepdims=True))
    return renormalise(cosine * x + sinc * v)


def flow(x: jax.Array, p: jax.Array, time: float) -> tuple[jax.Array, jax.Array]:
    """Free motion on the spheres: position and momentum (unit mass) after `time`, from x with tangent momentum p.

    Great circles, whatever their length: x' = cos(r) x + t sinc(r) p and p' = cos(r) p - (r^2/t) sinc(r) x with
    r = t|p|, so that running it with -p' leads back.
    """
    speed2 = jnp.sum(p * p, axis=-1, keepdims=True)
    cosine, sinc = _cos_sinc(time * time * speed2)
    y = renormalise(cosine * x + time * sinc * p)
    return y, to_tangent(y, cosine * p - time * speed2 * sinc * x)


def metropolis(log_ratio: jax.Array) -> jax.Array:
    """min(1, exp(log_ratio)), and 0 where the ratio is not a number: such a move counts as one to infinite energy."""
    possible = ~jnp.isnan(log_ratio)
    return jnp.where(possible, jnp.exp(jnp.minimum(jnp.where(possible, log_ratio, 0.0), 0.0)), 0.0)


def renormalise(y: jax.Array) -> jax.Array:
    """Unit rows from rows whose norm is already 1 up to a small error: y (3 - |y|^2)/2, one Newton step for 1/|y|."""
    return y * (1.5 - 0.5 * jnp.sum(y * y, axis=-1, keepdims=True))


def euler_scheme(
    name: str, step_size: float, move: Callable[[jax.Array, jax.Array], jax.Array], correction: Callable[[int], float]
) -> Integrator:
    """Drift and noise of one step as one tangent vector v = -h grad E + scale P_x xi, and a map that follows it.

    Args:
        name: as reports print it.
        step_size: h, in time units.
        move: (x, v) -> new positions.
        correction: dimension d -> the factor of `brownian_scale`.
    """

    def init(energy: Energy, positions: jax.Array) -> State:
        return State(positions, energy)

    def step(state: State, noise: jax.Array, beta: jax.Array) -> tuple[State, Info]:
        x = state.positions
        gradient, value = gradient_and_energy(state.energy, x)
        v = to_tangent(x, brownian_scale(step_size, beta, correction(x.shape[-1])) * noise - step_size * gradient)
        return state._replace(positions=move(x, v)), Info(value, jnp.ones_like(value))

    return Integrator(name, step_size, init, step)
