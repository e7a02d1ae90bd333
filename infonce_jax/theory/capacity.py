"""The conductance of a saddle beyond the harmonic approximation.

By Dirichlet's principle the rate between two basins is Z_basin^{-1} times the least value of
(1/beta) int |grad q|^2 e^{-beta E} over functions q that go from 0 in one to 1 in the other (Bovier, Eckhoff, Gayrard
and Klein 2004). Among functions of one coordinate y, here the one along the unstable mode, the least value is
(1/beta) / int dy/W(y), with W(y) the integral of |grad y|^2 e^{-beta E} over the sheet at y. A Gaussian W gives back
Eyring and Kramers; in one dimension the result is exact; in more it is an upper bound, and so is the rate. The sheets
are curved as the border between the basins is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.stats import qmc

from infonce_jax import sphere
from infonce_jax.checks import positive, refuse
from infonce_jax.energies.base import Energy
from infonce_jax.landscape import Landscape
from infonce_jax.landscape.derivatives import derivatives, double_precision
from infonce_jax.landscape.saddles import internal_modes

__all__ = ["conductance_ratios"]

_SHEETS = 19
_WIDTHS = 5.0  # half the range of y, in standard deviations of the Gaussian W
_FIRST_POINTS, _POINTS = 512, 1024  # quasi-random ones across the barrier, to fit the proposal and to integrate
_FITS = 2
# Coordinates from straight to bent as the border is near the saddle; far from it a parabola may be worse than a plane,
# and of several bounds the closest is the best.
_BENDS = (0.0, 0.5, 1.0)
# The proposal is a mixture of the fitted Gaussian and wider ones: weights stay bounded where the ridge is soft.
_INFLATIONS = (1.0, 1.25, 1.6)
# A passage is a barrier where it stands this many 1/beta above its upper end; below, the formula says nothing.
_LEAST_BARRIER = 3.0
# A ratio beyond this means that the sheet is no ridge between two basins, but runs through others.
_TRUSTED = 4.0


class _Frame(NamedTuple):
    """What stands still at one saddle, as arrays, so that saddles of one shape share their compiled code.

    Attributes:
        origin: the saddle, shape (n, d).
        axes: tangent basis of every row, shape (n, d-1, d).
        modes: internal modes in columns, the unstable one first, shape (n(d-1), modes).
        turns: one antisymmetric matrix for each direction in which rotations move the saddle, shape (r, d, d).
        free: the rotating subspace, shape (k, d).
        own: features of the saddle.
        others: features of the other copies and of its twins, shape (copies, features).
        bend: second derivatives of the border between the basins, shape (modes, modes).
    """

    origin: Any
    axes: Any
    modes: Any
    turns: Any
    free: Any
    own: Any
    others: Any
    bend: Any


def _features(free: Any, x: jax.Array) -> jax.Array:
    """Coordinates, shape (...), that rotations leave alone: inner products within V, and what lies outside it."""
    if len(free) < 2:
        return x.reshape(-1)
    inside = x @ free.T
    return jnp.concatenate([(inside @ inside.T).reshape(-1), (x - inside @ free).reshape(-1)])


def _flat(frame: _Frame, y: jax.Array) -> jax.Array:
    """The configuration at internal coordinates y, along a geodesic from the saddle."""
    n, d = frame.origin.shape
    return sphere.exp(frame.origin, jnp.einsum("iak,ia->ik", frame.axes, (frame.modes @ y).reshape(n, d - 1)))


@jax.jit
def _curvature(energy: Energy, frame: _Frame, values: jax.Array) -> jax.Array:
    """Second derivatives c of xi(y) = y_0 + y c y/2, whose sheets the flow maps to each other, shape (modes, modes).

    <grad E, grad xi> = lambda_0 xi to second order gives c_ab = -T_0ab/(lambda_a + lambda_b - lambda_0), T the third
    derivatives of E: the sheet xi = 0 is the border between the basins, which is curved where the saddle is skew.
    """
    unit = jnp.zeros(len(values)).at[0].set(1.0)
    hessian = jax.hessian(lambda y: energy(_flat(frame, y)))
    _, third = jax.jvp(hessian, (jnp.zeros(len(values)),), (unit,))
    return -third / (values[:, None] + values[None, :] - values[0])


class _At(NamedTuple):
    """What there is at points of the coordinates u, arrays of shape (points,).

    Attributes:
        energy: E.
        volume: volume element of rotations and u together.
        slope: |grad u_0|^2.
        nearest: whether no other copy of the saddle, nor of a twin on the same ridge, is nearer: each sees all of it.
    """

    energy: Any
    volume: Any
    slope: Any
    nearest: Any


_Look = Callable[[np.ndarray], _At]


@jax.jit
def _look(energy: Energy, frame: _Frame, points: jax.Array, part: jax.Array) -> _At:
    """Look at coordinates u, shape (points, modes), with this part of the bend."""

    def place(u: jax.Array) -> jax.Array:
        across = u[1:]
        bend = part * frame.bend
        lowered = u[0] * (1 - bend[0, 1:] @ across) - across @ bend[1:, 1:] @ across / 2
        return _flat(frame, jnp.concatenate([lowered[None], across]))

    def one(u: jax.Array) -> _At:
        x = place(u)
        along = jnp.moveaxis(jax.jacfwd(place)(u), -1, 0).reshape(len(u), -1)
        around = jnp.einsum("ked,nd->kne", frame.turns, x).reshape(-1, x.size)
        tangents = jnp.concatenate([along, around])
        metric = tangents @ tangents.T
        nearest = jnp.asarray(True)
        if len(frame.others):
            here = _features(frame.free, x)
            nearest = jnp.sum((here - frame.own) ** 2) <= jnp.min(jnp.sum((here - frame.others) ** 2, axis=1))
        volume = jnp.sqrt(jnp.maximum(jnp.linalg.det(metric), 1e-300))
        return _At(energy(x), volume, jnp.linalg.inv(metric)[0, 0], nearest)

    return jax.vmap(one)(points)


def _frame(landscape: Landscape, saddle: int) -> tuple[np.ndarray, _Frame]:
    """Eigenvalues of the internal modes at a saddle, ascending, and its frame."""
    symmetry, top = landscape.symmetry, landscape.saddles[saddle]
    x0 = top.position
    values, vectors = internal_modes(symmetry, x0[None], derivatives(landscape.energy, x0[None]).hessian)
    kept = values[0] < 1e5  # rotations stand at the far end
    values, vectors = values[0][kept], vectors[0][:, kept]
    generators = symmetry.generators
    moves = np.einsum("nd,ged->gne", x0, generators).reshape(len(generators), x0.size)
    left, sizes, _ = np.linalg.svd(moves, full_matrices=False)
    turns = np.einsum("gk,ged->ked", left[:, sizes > 1e-6], generators)
    twins = [s.position for s in landscape.saddles if sorted(s.ends) == sorted(top.ends)]
    images = np.concatenate([symmetry.copies(position) for position in twins])
    with jax.enable_x64(True):
        marks = np.asarray(jax.vmap(lambda x: _features(symmetry.free, x))(jnp.asarray(images)))
        own = np.asarray(_features(symmetry.free, jnp.asarray(x0)))
        marks = np.unique(np.round(marks, 7), axis=0)
        others = marks[np.linalg.norm(marks - own, axis=1) > 1e-4]
        axes = np.asarray(sphere.tangent_basis(jnp.asarray(x0)))
        flat = _Frame(x0, axes, vectors, turns, symmetry.free, own, others, np.zeros((len(values), len(values))))
        bend = np.asarray(_curvature(double_precision(landscape.energy), flat, jnp.asarray(values)))
    return values, flat._replace(bend=bend)


_BLOCK = 512  # configurations per call, so that one compilation serves all


def _looker(landscape: Landscape, frame: _Frame, part: float) -> _Look:
    """`_look` of NumPy arrays of any length, at one share of the bend."""

    def look(points: np.ndarray) -> _At:
        blocks = -(-len(points) // _BLOCK)
        filled = np.resize(points, (blocks * _BLOCK, points.shape[1]))
        with jax.enable_x64(True):
            energy = double_precision(landscape.energy)
            out = [_look(energy, frame, block, part) for block in filled.reshape(blocks, _BLOCK, -1)]
            columns = zip(*out, strict=True)
            return _At(*(np.concatenate([np.asarray(o) for o in column])[: len(points)] for column in columns))

    return look


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


def _sheet(look: _Look, y: float, beta: float, floor: float, values: np.ndarray, normals: np.ndarray) -> float:
    """W at one sheet relative to its value at y = 0 as a Gaussian, by adaptive importance sampling.

    Points far below the energy that the unstable mode has at y lie in a basin which the sheet cuts: not counted.
    """
    stable = values[1:]
    if not len(stable):
        at = look(np.array([[y]]))
        return float((np.exp(-beta * (at.energy - floor)) * at.volume * at.slope)[0])
    mean, root = np.zeros(len(stable)), np.diag(1 / np.sqrt(beta * stable))
    gaussian = float(np.sum(np.log(2 * math.pi / (beta * stable)))) / 2
    lowest = floor - abs(values[0]) * y * y - 1 / beta

    def weigh(draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        across, density = _draw(mean, root, draws)
        at = look(np.concatenate([np.full((len(across), 1), y), across], axis=1))
        logs = -beta * (at.energy - floor) - density
        counts = at.nearest & (at.energy > lowest)
        return across, np.where(counts, np.exp(np.minimum(logs - gaussian, 50.0)) * at.volume * at.slope, 0.0)

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
    """Conductance of a saddle relative to Eyring and Kramers, at each inverse temperature: the least of some bounds.

    The sheets are integrated by adaptive importance sampling with quasi-random points (error about one per cent at
    eight embeddings), with the volume element of rotations and modes together. It tends to 1 as beta grows. Where the
    saddle stands less than 3/beta above its upper end it is no barrier: the ratio is held at its value there. It is
    left at 1 where it comes out beyond a factor 4, which means that the sheet is no ridge.

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
    values, frame = _frame(landscape, saddle)
    normals = np.zeros((1, 0))
    if len(values) > 1:
        normals = qmc.MultivariateNormalQMC(np.zeros(len(values) - 1), rng=np.random.default_rng(0)).random(_POINTS)
    looks = [_looker(landscape, frame, part) for part in (_BENDS if len(values) > 1 else (0.0,))]
    origin = looks[0](np.zeros((1, len(values))))
    floor, volume = float(origin.energy[0]), float(origin.volume[0])
    ratios = np.ones(len(betas))
    for k, beta in enumerate(np.maximum(betas, _LEAST_BARRIER / barrier)):
        width = 1 / math.sqrt(beta * abs(values[0]))
        y = np.linspace(-_WIDTHS, _WIDTHS, _SHEETS) * width
        bounds = []
        for look in looks:
            sheets = np.array([_sheet(look, float(at), float(beta), floor, values, normals) for at in y]) / volume
            bounds.append(math.sqrt(2 * math.pi) * width / _barrier_integral(sheets, y))
        least = min(bounds)
        ratios[k] = least if 1 / _TRUSTED < least < _TRUSTED else 1.0
    return ratios
