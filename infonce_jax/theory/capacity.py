"""The conductance of a saddle beyond the harmonic approximation.

By Dirichlet's principle the rate between two basins is Z_basin^{-1} times the least value of
(1/beta) int |grad q|^2 e^{-beta E} over functions q that go from 0 in one to 1 in the other (Bovier, Eckhoff, Gayrard
and Klein 2004). Among functions of one coordinate y, here the one along the unstable mode, the least value is
(1/beta) / int dy/W(y), with W(y) the integral of |grad y|^2 e^{-beta E} over the sheet at y. A Gaussian W gives back
Eyring and Kramers; in one dimension the result is exact; in more it is an upper bound, and so is the rate. The sheets
are curved as the border between the basins is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import qmc

from infonce_jax import sphere
from infonce_jax.checks import positive, refuse
from infonce_jax.landscape import Landscape, Symmetry
from infonce_jax.landscape.derivatives import derivatives, double_precision
from infonce_jax.landscape.saddles import internal_modes

__all__ = ["conductance_ratios"]

_SHEETS = 15
_WIDTHS = 3.6  # half the range of y, in standard deviations of the Gaussian W
_FIRST_POINTS, _POINTS = 512, 1024  # quasi-random ones on every sheet, to fit the proposal and to integrate
_FITS = 2
# Sheets from flat to curved as the border is near the saddle; far from it a parabola may be worse than a plane, and of
# several upper bounds the least is the best.
_BENDS = (0.0, 0.5, 1.0)
# The proposal is a mixture of the fitted Gaussian and wider ones: weights stay bounded where the ridge is soft.
_INFLATIONS = (1.0, 1.25, 1.6)
# A passage is a barrier where it stands this many 1/beta above its upper end; below, the formula says nothing.
_LEAST_BARRIER = 3.0
# A ratio beyond this means that the sheet is no ridge between two basins, but runs through others.
_TRUSTED = 4.0


def _features(symmetry: Symmetry, x: jax.Array) -> jax.Array:
    """Coordinates, shape (...), that rotations leave alone: inner products within V, and what lies outside it."""
    free = jnp.asarray(symmetry.free)
    if len(symmetry.free) < 2:
        return x.reshape(-1)
    inside = x @ free.T
    return jnp.concatenate([(inside @ inside.T).reshape(-1), (x - inside @ free).reshape(-1)])


def _nearest(landscape: Landscape, saddle: int) -> Callable[[jax.Array], jax.Array]:
    """Whether a configuration belongs to this saddle: no other copy, nor one of a twin on the same ridge, is nearer.

    Several saddles on one ridge each see all of it; this divides it among them.
    """
    symmetry, top = landscape.symmetry, landscape.saddles[saddle]
    twins = [s.position for s in landscape.saddles if sorted(s.ends) == sorted(top.ends)]
    images = np.concatenate([symmetry.copies(position) for position in twins])
    marks = np.unique(np.round([np.asarray(_features(symmetry, jnp.asarray(x))) for x in images], 7), axis=0)
    own = _features(symmetry, jnp.asarray(top.position))
    others = jnp.asarray(marks[np.linalg.norm(marks - np.asarray(own), axis=1) > 1e-4])

    def belongs(x: jax.Array) -> jax.Array:
        if not len(others):
            return jnp.asarray(True)
        here = _features(symmetry, x)
        return jnp.sum((here - own) ** 2) <= jnp.min(jnp.sum((here - others) ** 2, axis=1))

    return belongs


def _curvature(energy: Callable[[jax.Array], jax.Array], values: jax.Array) -> jax.Array:
    """Second derivatives c of xi(y) = y_0 + y c y/2, whose sheets the flow maps to each other, shape (modes, modes).

    <grad E, grad xi> = lambda_0 xi to second order gives c_ab = -T_0ab/(lambda_a + lambda_b - lambda_0), T the third
    derivatives of E: the sheet xi = 0 is the border between the basins, which is curved where the saddle is skew.
    """
    unit = jnp.zeros(len(values)).at[0].set(1.0)
    _, third = jax.jvp(jax.hessian(energy), (jnp.zeros(len(values)),), (unit,))
    return -third / (values[:, None] + values[None, :] - values[0])


def _neighbourhood(landscape: Landscape, saddle: int) -> tuple[np.ndarray, Any]:
    """Eigenvalues of the internal modes at a saddle, and a function of internal coordinates y, shape (points, modes).

    The function gives E, the volume element of (rotation, y), zero where another saddle is nearer, and |grad y_0|^2.
    """
    x0 = landscape.saddles[saddle].position
    n, d = x0.shape
    values, vectors = internal_modes(landscape.symmetry, x0[None], derivatives(landscape.energy, x0[None]).hessian)
    kept = values[0] < 1e5  # rotations stand at the far end
    values, vectors = values[0][kept], vectors[0][:, kept]
    generators = landscape.symmetry.generators
    moves = np.einsum("nd,ged->gne", x0, generators).reshape(len(generators), n * d)
    left, sizes, _ = np.linalg.svd(moves, full_matrices=False)
    turning = left[:, sizes > 1e-6].T  # combinations of rotations that move the saddle, one for each direction
    with jax.enable_x64(True):
        energy = double_precision(landscape.energy)
        origin, modes = jnp.asarray(x0), jnp.asarray(vectors)
        belongs = _nearest(landscape, saddle)
        axes, turns = sphere.tangent_basis(origin), jnp.einsum("kg,ged->ked", jnp.asarray(turning), generators)

        def flat(y: jax.Array) -> jax.Array:
            return sphere.exp(origin, jnp.einsum("iak,ia->ik", axes, (modes @ y).reshape(n, d - 1)))

        bend = _curvature(lambda y: energy(flat(y)), jnp.asarray(values))

        def place(u: jax.Array, part: jax.Array) -> jax.Array:
            across = u[1:]
            lowered = u[0] * (1 - part * bend[0, 1:] @ across) - part * across @ bend[1:, 1:] @ across / 2
            return flat(jnp.concatenate([lowered[None], across]))

        def look(u: jax.Array, part: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
            x = place(u, part)
            along = jnp.moveaxis(jax.jacfwd(place)(u, part), -1, 0).reshape(len(values), n * d)
            around = jnp.einsum("ked,nd->kne", turns, x).reshape(len(turning), n * d)
            tangents = jnp.concatenate([along, around])
            metric = tangents @ tangents.T
            own = jnp.where(belongs(x), jnp.sqrt(jnp.linalg.det(metric)), 0.0)
            return energy(x), own, jnp.linalg.inv(metric)[0, 0]

        compiled = jax.jit(jax.vmap(look, in_axes=(0, None)))

    def evaluate(y: np.ndarray, part: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        with jax.enable_x64(True):
            return tuple(np.asarray(a) for a in compiled(jnp.asarray(y), jnp.asarray(part)))  # type: ignore[return-value]

    return values, evaluate


def _barrier_integral(sheets: np.ndarray, y: np.ndarray) -> float:
    """int dy/W(y) between the two sheets where W is largest: beyond them y has left the barrier."""
    middle = len(y) // 2
    first, last = int(np.argmax(sheets[: middle + 1])), middle + int(np.argmax(sheets[middle:]))
    return float(np.trapezoid(1 / np.maximum(sheets[first : last + 1], 1e-300), y[first : last + 1]))


def _draw(mean: np.ndarray, root: np.ndarray, normals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points of a mixture of Gaussians, mean and covariance root root^T widened by each inflation; log densities."""
    size, modes = normals.shape
    scales = np.resize(_INFLATIONS, size)
    points = mean + (normals * scales[:, None]) @ root.T
    squares = np.sum(normals**2, axis=1) * scales**2
    parts = [-squares / (2 * c * c) - modes * math.log(c) for c in _INFLATIONS]
    constant = np.linalg.slogdet(root)[1] + modes * math.log(2 * math.pi) / 2 + math.log(len(parts))
    return points, np.logaddexp.reduce(parts, axis=0) - constant


def _sheet(look: Any, y: float, beta: float, floor: float, values: np.ndarray, normals: np.ndarray) -> float:
    """W at one sheet relative to its value at y = 0 as a Gaussian, by adaptive importance sampling.

    Points far below the energy that the unstable mode has at y lie in a basin which the flat sheet cuts: not counted.
    """
    stable = values[1:]
    if not len(stable):
        energies, volumes, slopes = look(np.array([[y]]))
        return float((np.exp(-beta * (energies - floor)) * volumes * slopes)[0])
    mean, root = np.zeros(len(stable)), np.diag(1 / np.sqrt(beta * stable))
    gaussian = float(np.sum(np.log(2 * math.pi / (beta * stable)))) / 2
    lowest = floor - abs(values[0]) * y * y - 1 / beta

    def weigh(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        across, density = _draw(mean, root, draws)
        energies, volumes, slopes = look(np.concatenate([np.full((len(across), 1), y), across], axis=1))
        logs = -beta * (energies - floor) - density
        return across, np.where(energies > lowest, np.exp(np.minimum(logs - gaussian, 50.0)) * volumes * slopes, 0.0)

    for _ in range(_FITS):
        across, weights = weigh(normals[:_FIRST_POINTS])
        weights = np.minimum(weights, np.quantile(weights, 0.99))  # one lucky point must not make the fit
        if not weights.sum() > 0:
            return 0.0
        mean = weights @ across / weights.sum()
        spread = (across - mean).T * weights @ (across - mean) / weights.sum()
        root = np.linalg.cholesky(spread + 1e-3 * np.diag(1 / (beta * stable)))
    return float(weigh(normals)[1].mean())


def conductance_ratios(landscape: Landscape, saddle: int, betas: np.ndarray) -> np.ndarray:
    """Conductance of a saddle relative to Eyring and Kramers, at each inverse temperature.

    The sheets are integrated by adaptive importance sampling with quasi-random points (error about one per cent at
    eight embeddings), with the volume element of rotations and modes together. It tends to 1 as beta grows. Where the
    saddle stands less than 3/beta above its upper end it is no barrier: the ratio is held at its value there. It is
    left at 1 where the sheet is no ridge (a ratio beyond a factor 4).

    Args:
        landscape: from `landscape.explore`.
        saddle: index into its saddles.
        betas: positive, shape (k,).

    Returns:
        Shape (k,).

    Raises:
        InputError: no such saddle, or a beta that is not positive.
    """
    betas = np.array([positive("betas", beta) for beta in np.ravel(betas)])
    if not 0 <= saddle < len(landscape.saddles):
        raise refuse("saddle", saddle, f"0 to {len(landscape.saddles) - 1}", "an index into landscape.saddles")
    top = landscape.saddles[saddle]
    barrier = top.energy - max(landscape.minima[end].energy for end in top.ends)
    values, look = _neighbourhood(landscape, saddle)
    normals = np.zeros((1, 0))
    if len(values) > 1:
        normals = qmc.MultivariateNormalQMC(np.zeros(len(values) - 1), rng=np.random.default_rng(0)).random(_POINTS)
    (floor,), (volume,), _ = look(np.zeros((1, len(values))), 0.0)
    ratios = np.ones(len(betas))
    for k, beta in enumerate(np.maximum(betas, _LEAST_BARRIER / barrier)):
        width = 1 / math.sqrt(beta * abs(values[0]))
        y = np.linspace(-_WIDTHS, _WIDTHS, _SHEETS) * width
        bounds = []
        for part in _BENDS if len(values) > 1 else (0.0,):
            sheets = [_sheet(functools.partial(look, part=part), float(at), beta, float(floor), values, normals)
                      for at in y]  # fmt: skip
            bounds.append(math.sqrt(2 * math.pi) * width / _barrier_integral(np.array(sheets) / volume, y))
        least = min(bounds)
        ratios[k] = least if 1 / _TRUSTED < least < _TRUSTED else 1.0
    return ratios
