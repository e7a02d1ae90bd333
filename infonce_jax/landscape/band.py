"""The nudged elastic band: a chain of images between two configurations that relaxes onto a minimum energy path.

Each image feels the gradient across the band only, and springs along it only; the highest one climbs along the band to
the saddle (Henkelman and Jonsson 2000, "Improved tangent estimate in the nudged elastic band method"; Henkelman,
Uberuaga and Jonsson 2000, "A climbing image nudged elastic band method"). Where rotations SO(V) leave the energy alone,
the band lives in the quotient: neighbours are rotated onto each image, and no tangent has a part along a rotation.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from infonce_jax import sphere
from infonce_jax.checks import as_unit_rows, count, positive, refuse
from infonce_jax.energies.base import Energy
from infonce_jax.landscape.derivatives import derivatives, double_precision
from infonce_jax.landscape.saddles import internal_spectrum
from infonce_jax.landscape.symmetry import Symmetry, find_symmetry

__all__ = ["ElasticBand", "align", "elastic_band", "geodesic_path", "lengths_along", "relax_bands"]

_ROUND = 100  # iterations between looks at who has converged
_LONGEST_STEP = 0.1  # radians, of one image
_SPRING = 0.1  # of the largest curvature
_STEP = 0.5  # times 1/sqrt(largest curvature); an oscillation would become unstable at 2
_CLIMB_BELOW = 0.1  # gradient across the band, of the largest gradient on it, from which the top image climbs
_ANTIPODAL = 1e-6  # radians
_NEGATIVE = 1e-6  # of the largest eigenvalue


@dataclasses.dataclass(frozen=True, eq=False)
class ElasticBand:
    """A relaxed band.

    Attributes:
        positions: shape (images, n, d), each rotated onto the one before where rotations are free; the last one is then
            the wanted end up to a rotation.
        arc_length: from the first image, shape (images,), in radians of the product metric.
        energies: shape (images,).
        top: index of the highest image, the climbing one.
        gradient_norm: of the full Riemannian gradient at the top.
        residual: what convergence is judged by: the largest norm of the gradient across the band at an inner image, or
            of the whole gradient at the climbing one.
        negative_modes: negative Hessian eigenvalues at the top; 1 at the saddle of a minimum energy path.
        converged: whether the residual fell below the wanted gradient.
        iterations: how many it took, counted in rounds.
    """

    positions: np.ndarray
    arc_length: np.ndarray
    energies: np.ndarray
    top: int
    gradient_norm: float
    residual: float
    negative_modes: int
    converged: bool
    iterations: int

    @property
    def barrier(self) -> float:
        """Energy of the top above the first image."""
        return float(self.energies[self.top] - self.energies[0])


def align(symmetry: Symmetry, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Rotate configurations y, shape (..., n, d), within V onto x, shape (n, d), as closely as possible.

    A rotation, never a reflection (Kabsch 1976). Rotations of V that the energy does not have are not used.
    """
    with jax.enable_x64(True):
        flat = np.asarray(y, np.float64).reshape(-1, *x.shape)
        return np.asarray(_align_all(x, flat, symmetry.free)).reshape(y.shape)


def lengths_along(symmetry: Symmetry, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each configuration rotated onto the one before, and the arc length up to each, in radians."""
    with jax.enable_x64(True):
        aligned, steps = _align_along(positions, symmetry.free)
        return np.asarray(aligned), np.concatenate([[0.0], np.cumsum(steps)])


def geodesic_path(
    x: np.ndarray, y: np.ndarray, num_images: int, rng: np.random.Generator, long_way: tuple[int, ...] = ()
) -> np.ndarray:
    """Row by row along great circles from x to y, both of shape (n, d): shape (num_images, n, d).

    Args:
        x: start.
        y: end.
        num_images: how many, both ends included.
        rng: directions for rows that end at their antipode, where every great circle is as short.
        long_way: rows that go around the other way.
    """
    chord = y - np.sum(x * y, axis=1, keepdims=True) * x
    sine = np.linalg.norm(chord, axis=1)
    angle = np.arctan2(sine, np.sum(x * y, axis=1))
    across = rng.normal(size=x.shape)
    across -= np.sum(across * x, axis=1, keepdims=True) * x
    lost = sine < _ANTIPODAL
    chord = np.where(lost[:, None], across, chord)
    direction = chord / np.linalg.norm(chord, axis=1, keepdims=True)
    for row in long_way:
        angle[row] -= 2 * np.pi
    turn = np.linspace(0, 1, num_images)[:, None, None] * angle[:, None]
    path = np.cos(turn) * x + np.sin(turn) * direction
    path[-1] = y
    return path / np.linalg.norm(path, axis=-1, keepdims=True)


def _aligned(x: jax.Array, y: jax.Array, free: jax.Array) -> jax.Array:
    k = free.shape[0]
    if k < 2:
        return y
    a, b = x @ free.T, y @ free.T
    cross = b.T @ a
    if k == 2:
        angle = jnp.arctan2(cross[0, 1] - cross[1, 0], cross[0, 0] + cross[1, 1])
        c, s = jnp.cos(angle), jnp.sin(angle)
        turn = jnp.array([[c, s], [-s, c]])
    else:
        u, _, v = jnp.linalg.svd(cross)
        turn = (u * jnp.ones(k).at[-1].set(jnp.linalg.det(u) * jnp.linalg.det(v))) @ v
    return y + (b @ turn - b) @ free


@jax.jit
def _align_all(x: jax.Array, y: jax.Array, free: jax.Array) -> jax.Array:
    return jax.vmap(_aligned, (None, 0, None))(x, y, free)


@jax.jit
def _align_along(x: jax.Array, free: jax.Array) -> tuple[jax.Array, jax.Array]:
    def turn(before: jax.Array, here: jax.Array) -> tuple[jax.Array, jax.Array]:
        aligned = _aligned(before, here, free)
        return aligned, aligned

    aligned = jnp.concatenate([x[:1], jax.lax.scan(turn, x[0], x[1:])[1]])
    return aligned, sphere.product_distance(aligned[:-1], aligned[1:])


def _horizontal(x: jax.Array, v: jax.Array, generators: jax.Array) -> jax.Array:
    """The part of v that is orthogonal to the rotations of x."""
    if not len(generators):
        return v
    moves = jnp.einsum("nd,ged->gne", x, generators).reshape(len(generators), -1)
    gram = moves @ moves.T + 1e-12 * jnp.eye(len(generators))
    return v - (jnp.linalg.solve(gram, moves @ v.ravel()) @ moves).reshape(v.shape)


class _Group(NamedTuple):
    free: Any
    generators: Any


class _Band(NamedTuple):
    x: Any  # (images, n, d)
    velocity: Any  # (images - 2, n, d)
    step: Any  # of time, for unit masses
    climb: Any
    residual: Any


def _tangent(before: jax.Array, after: jax.Array, low: jax.Array, here: jax.Array, high: jax.Array) -> jax.Array:
    """The improved tangent: towards the higher neighbour, mixed by energies at an extremum. `before` points forward."""
    rise, fall = jnp.abs(high - here), jnp.abs(low - here)
    most, least = jnp.maximum(rise, fall), jnp.minimum(rise, fall)
    mixed = jnp.where(high > low, after * most + before * least, after * least + before * most)
    tangent = jnp.where((high > here) & (here > low), after, jnp.where((high < here) & (here < low), before, mixed))
    length = jnp.sqrt(jnp.sum(tangent**2))
    return tangent / jnp.where(length > 0, length, 1.0)


def _forces(x: jax.Array, climb: jax.Array, energy: Energy, group: _Group, spring: jax.Array) -> tuple[jax.Array, ...]:
    """Forces on the inner images, the residual, and whether the band is relaxed enough to climb."""
    energies, euclidean = jax.vmap(jax.value_and_grad(lambda z: energy(z)))(x)
    gradient = sphere.to_tangent(x, euclidean)
    inner = x[1:-1]

    def towards(here: jax.Array, there: jax.Array) -> jax.Array:
        return _horizontal(here, sphere.log(here, _aligned(here, there, group.free)), group.generators)

    before, after = -jax.vmap(towards)(inner, x[:-2]), jax.vmap(towards)(inner, x[2:])
    tangent = jax.vmap(_tangent)(before, after, energies[:-2], energies[1:-1], energies[2:])
    slope = gradient[1:-1]
    along = jnp.sum(slope * tangent, axis=(1, 2), keepdims=True)
    across = slope - along * tangent
    stretch = jnp.sqrt(jnp.sum(after**2, axis=(1, 2), keepdims=True)) - jnp.sqrt(
        jnp.sum(before**2, axis=(1, 2), keepdims=True)
    )
    climbing = (climb & (jnp.arange(1, len(x) - 1) == jnp.argmax(energies)))[:, None, None]
    force = jnp.where(climbing, 2 * along * tangent - slope, spring * stretch * tangent - across)
    left = jnp.sqrt(jnp.sum(jnp.where(climbing, slope, across) ** 2, axis=(1, 2)))
    steepest = jnp.sqrt(jnp.max(jnp.sum(slope**2, axis=(1, 2))))
    return force, jnp.max(left), jnp.max(jnp.sqrt(jnp.sum(across**2, axis=(1, 2)))) < _CLIMB_BELOW * steepest


def _advance(
    band: _Band, energy: Energy, group: _Group, curvature: jax.Array, goal: jax.Array, climbing: jax.Array
) -> _Band:
    """One step of projected velocities (Jonsson, Mills and Jacobsen 1998), each image on its own.

    A velocity is kept only along its image's force, and only while the two agree. One power for the whole band, as in
    FIRE, lets a few images run wild while the others agree: bands on the sphere then knot.
    """
    force, residual, relaxed = _forces(band.x, band.climb, energy, group, _SPRING * curvature)
    finished = (residual < goal) & (band.climb == climbing)
    strength = jnp.sqrt(jnp.sum(force**2, axis=(1, 2), keepdims=True))
    ahead = force / jnp.maximum(strength, 1e-300)
    speed = jnp.maximum(jnp.sum(band.velocity * ahead, axis=(1, 2), keepdims=True), 0.0)
    velocity = speed * ahead + band.step * force
    move = band.step * velocity
    furthest = jnp.sqrt(jnp.sum(move**2, axis=(1, 2), keepdims=True))
    move = move * jnp.minimum(1.0, _LONGEST_STEP / jnp.maximum(furthest, 1e-300))
    inner = sphere.exp(band.x[1:-1], move)
    begins = climbing & relaxed & ~band.climb  # what is left was measured without a climbing image
    moved = _Band(
        band.x.at[1:-1].set(inner), sphere.to_tangent(inner, velocity), band.step,
        band.climb | begins, jnp.where(begins, jnp.inf, residual),
    )  # fmt: skip
    kept = band._replace(residual=residual)
    return _Band(*(jnp.where(finished, old, new) for new, old in zip(moved, kept, strict=True)))


@jax.jit
def _relax(bands: _Band, energy: Energy, group: _Group, curvature: Any, goal: Any, climbing: Any) -> _Band:
    one = jax.vmap(lambda band, stiff: _advance(band, energy, group, stiff, goal, climbing))
    return jax.lax.fori_loop(0, _ROUND, lambda _, b: one(b, curvature), bands)


def relax_bands(
    energy: Energy,
    symmetry: Symmetry,
    starts: np.ndarray,
    climbing: bool = True,
    gradient_below: float = 1e-5,
    max_iterations: int = 5_000,
) -> list[ElasticBand]:
    """Relax many bands at a time, starts of shape (bands, images, n, d); see `elastic_band`."""
    number, images = starts.shape[:2]
    hessians = derivatives(energy, starts.reshape(-1, *starts.shape[2:])).hessian
    curvature = np.abs(np.linalg.eigvalsh(hessians)).max(axis=1).reshape(number, images).max(axis=1)
    # Without any curvature nothing moves, and a time scale is not needed.
    curvature = np.maximum(curvature, 1e-12)
    with jax.enable_x64(True):
        exact = jax.tree.map(jnp.asarray, double_precision(energy))
        group = _Group(jnp.asarray(symmetry.free), jnp.asarray(symmetry.generators))
        bands = _Band(
            jnp.asarray(starts), jnp.zeros_like(starts[:, 1:-1]), jnp.asarray(_STEP / np.sqrt(curvature)),
            jnp.zeros(number, bool), jnp.full(number, jnp.inf),
        )  # fmt: skip
        iterations, rounds = np.zeros(number, int), 0
        done = np.zeros(number, bool)
        while rounds * _ROUND < max_iterations and not done.all():
            bands = _relax(bands, exact, group, curvature, gradient_below, climbing)
            rounds += 1
            iterations[~done] = rounds * _ROUND
            done = (np.asarray(bands.residual) < gradient_below) & (np.asarray(bands.climb) == climbing)
    residuals = np.asarray(bands.residual)
    return [
        _finished(energy, symmetry, np.asarray(bands.x[b]), float(residuals[b]), bool(done[b]), int(iterations[b]))
        for b in range(number)
    ]


def _finished(energy: Energy, symmetry: Symmetry, x: np.ndarray, residual: float, done: bool, n: int) -> ElasticBand:
    positions, arc_length = lengths_along(symmetry, x)
    here = derivatives(energy, positions)
    top = int(np.argmax(here.energy))
    spectrum = internal_spectrum(symmetry, positions[top : top + 1], here.hessian[top : top + 1])[0]
    spectrum = spectrum[np.isfinite(spectrum)]
    negative = int(np.sum(spectrum < -_NEGATIVE * np.max(np.abs(spectrum), initial=0.0)))
    norm = float(np.linalg.norm(here.gradient[top]))
    return ElasticBand(positions, arc_length, here.energy, top, norm, residual, negative, done, n)


def elastic_band(
    energy: Energy,
    first: Any,
    last: Any,
    num_images: int = 15,
    climbing: bool = True,
    gradient_below: float = 1e-5,
    max_iterations: int = 5_000,
    symmetry: Symmetry | None = None,
    seed: int = 0,
) -> ElasticBand:
    """Relax a nudged elastic band between two configurations, in float64.

    It starts on the great circles between `first` and `last`, rotated onto `first` where rotations are free; rows at
    the antipode of each other go a random way, and all inner images get a nudge of a thousandth of a radian, since a
    band of a symmetry higher than the path's would keep it. Ends should be minima: they stay where they are.

    Args:
        energy: the energy; small systems, since Hessians are formed at every image.
        first: one end, shape (n, d), unit rows.
        last: the other end, shape (n, d), unit rows.
        num_images: images, both ends included, at least 5.
        climbing: whether the highest image climbs to the saddle; otherwise the barrier is that of the highest image.
        gradient_below: converged when the gradient across the band, and the whole one at the climbing image, is below
            this at every image, in energy per radian.
        max_iterations: where to stop otherwise, with `converged` false.
        symmetry: of the energy, from `find_symmetry`; found when not given.
        seed: of the nudges.

    Raises:
        InputError: ends of another shape than the energy's, rows that are no unit vectors, the same end twice, numbers
            out of range, or an energy whose continuous symmetries are not the rotations of a subspace.
    """
    if not isinstance(energy, Energy):
        raise refuse("energy", type(energy).__name__, "an Energy", "wrap a function with energies.from_function")
    ends = [as_unit_rows(name, value) for name, value in (("first", first), ("last", last))]
    for name, x in zip(("first", "last"), ends, strict=True):
        if x.shape != tuple(energy.shape):
            raise refuse(name, f"shape {x.shape}", f"the energy's {tuple(energy.shape)}", "pass one configuration")
    num_images = count("num_images", num_images, least=5, mend="for example 15, both ends included")
    goal = positive("gradient_below", gradient_below)
    most = count("max_iterations", max_iterations)
    rng = np.random.default_rng(count("seed", seed, least=0, mend="for example 0"))
    symmetry = find_symmetry(energy) if symmetry is None else symmetry
    require_rotations(symmetry)
    x, y = ends[0], align(symmetry, ends[0], ends[1])
    if np.max(np.abs(x - y)) < _ANTIPODAL:
        raise refuse("last", "the first end again, up to a rotation", "two different ends", "pass two minima")
    start = nudged(geodesic_path(x, y, num_images, rng), rng, 1e-3)
    return relax_bands(energy, symmetry, start[None], climbing, goal, most)[0]


def require_rotations(symmetry: Symmetry) -> None:
    """Refuse continuous symmetries that are not the rotations of one subspace: copies could not be aligned."""
    if not symmetry.standard:
        raise refuse("energy", "continuous symmetries of an unknown kind", "rotations of one subspace, or none",
                     "freeze a key, or add a small term that breaks the others")  # fmt: skip


def nudged(path: np.ndarray, rng: np.random.Generator, size: float) -> np.ndarray:
    """The path with its inner images moved along a random smooth bump, `size` radians per coordinate halfway."""
    bump = np.sin(np.linspace(0, np.pi, len(path)))[:, None, None] * rng.normal(size=path.shape[1:])
    bump[[0, -1]] = 0.0
    moved = path + size * bump
    return moved / np.linalg.norm(moved, axis=-1, keepdims=True)
