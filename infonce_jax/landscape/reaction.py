"""The steepest-descent path from a saddle down to the minima on its two sides, and the width of the valley along it."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import simpson, solve_ivp

from infonce_jax import sphere
from infonce_jax.checks import InputError, count, refuse
from infonce_jax.energies.base import Energy
from infonce_jax.landscape.band import require_rotations
from infonce_jax.landscape.derivatives import derivatives, displace, double_precision, frame
from infonce_jax.landscape.model import SAME_ENERGY, Landscape
from infonce_jax.landscape.quench import newton_polish
from infonce_jax.landscape.saddles import internal_modes
from infonce_jax.landscape.symmetry import Symmetry

__all__ = ["ReactionPath", "steepest_descent_path"]

_FIRST_STEP = 1e-4  # radians from the saddle along its unstable mode, where the path is still straight
_ARRIVED = 1e-7  # gradient norm at which the rest of the way to the minimum is a straight line
_LONGEST_TIME = 1e6  # time units
_TOLERANCE = 1e-11


@dataclasses.dataclass(frozen=True, eq=False)
class ReactionPath:
    """The steepest-descent path through a saddle (intrinsic reaction path of Fukui 1981), both sides joined.

    Attributes:
        positions: from one end over the saddle to the other, shape (points, n, d); the gradient flow never rotates a
            configuration as a whole, so the path is orthogonal to all rotations.
        arc_length: from the first end, shape (points,), in radians of the product metric.
        energies: shape (points,).
        transverse_determinant: of the Hessian across the path, shape (points,): without the direction of the path and
            those of rotations; 1 where there is no other direction. Positive where the path follows a valley floor.
        top: index of the saddle.
        ends: class of the minimum at each end; -1 where the descent ended at another saddle, as one from a symmetric
            saddle may.
    """

    positions: np.ndarray
    arc_length: np.ndarray
    energies: np.ndarray
    transverse_determinant: np.ndarray
    top: int
    ends: tuple[int, int]

    @property
    def barrier(self) -> float:
        """Energy of the saddle above the first end."""
        return float(self.energies[self.top] - self.energies[0])

    def valley_integral(self) -> float:
        """Integral of ds/sqrt(det H_perp(s)) along the whole path: what a soft valley adds to the partition function.

        Raises:
            InputError: the path leaves the valley floor, where the determinant is not positive.
        """
        if not np.all(self.transverse_determinant > 0):
            raise refuse("path", "a transverse Hessian that is not positive everywhere", "a path along a valley floor",
                         "use it for nearly flat valleys, with saddles far below the barrier")  # fmt: skip
        width, s = 1 / np.sqrt(self.transverse_determinant), self.arc_length
        halves = (slice(None, self.top + 1), slice(self.top, None))
        return float(sum(simpson(width[half], x=s[half]) for half in halves))


def steepest_descent_path(landscape: Landscape, saddle: int, num_points: int = 201) -> ReactionPath:
    """Follow the gradient flow from a saddle down both sides to the minima.

    The path starts 1e-4 radians from the saddle along its unstable mode and is integrated with an error of about 1e-10.

    Args:
        landscape: from `landscape.explore`.
        saddle: index into `landscape.saddles`.
        num_points: points of the path, evenly spaced in arc length on each side of the saddle; odd, at least 11.

    Returns:
        A `ReactionPath`; its first end is the saddle's first end where the two differ.

    Raises:
        InputError: an index out of range, too few or an even number of points, an energy whose continuous symmetries
            are not the rotations of a subspace, or a descent that does not arrive.
    """
    if not 0 <= saddle < len(landscape.saddles):
        raise refuse("saddle", saddle, f"0 to {len(landscape.saddles) - 1}", "an index into landscape.saddles")
    num_points = count("num_points", num_points, least=11, mend="for example 201")
    if num_points % 2 == 0:
        raise refuse("num_points", num_points, "an odd number", "the saddle stands in the middle; for example 201")
    require_rotations(landscape.symmetry)
    energy, symmetry, x = landscape.energy, landscape.symmetry, landscape.saddles[saddle].position[None]
    modes = internal_modes(symmetry, x, derivatives(energy, x).hessian)[1][0]
    sides = [_descend(energy, x, sign * modes[:, 0], (num_points + 1) // 2) for sign in (1.0, -1.0)]
    classes = [_class_at(landscape, side[-1]) for side, _ in sides]
    if classes[::-1] == list(landscape.saddles[saddle].ends):
        sides, classes = sides[::-1], classes[::-1]
    (left, far), (right, further) = sides
    positions = np.concatenate([left[::-1], right[1:]])
    arc_length = np.concatenate([far[-1] - far[::-1], far[-1] + further[1:]])
    top = (num_points - 1) // 2
    energies, determinants = _profile(energy, symmetry, positions, modes[:, 0], top)
    return ReactionPath(positions, arc_length, energies, determinants, top, (classes[0], classes[1]))


@jax.jit
def _slope(energy: Energy, x: jax.Array) -> jax.Array:
    return sphere.to_tangent(x, jax.grad(lambda z: energy(z))(x))


def _descend(energy: Energy, saddle: np.ndarray, mode: np.ndarray, points: int) -> tuple[np.ndarray, np.ndarray]:
    """The gradient flow from the saddle, shape (1, n, d), to the next critical point: positions and arc lengths."""
    shape = saddle.shape[1:]
    start = displace(saddle, _FIRST_STEP * mode[None])[0]
    with jax.enable_x64(True):
        exact = jax.tree.map(jnp.asarray, double_precision(energy))

        def flow(_: float, state: np.ndarray) -> np.ndarray:
            x = state[:-1].reshape(shape)
            slope = np.asarray(_slope(exact, x / np.linalg.norm(x, axis=1, keepdims=True)))
            return np.concatenate([-slope.ravel(), [np.linalg.norm(slope)]])

        def arrived(_: float, state: np.ndarray) -> float:
            return float(flow(0.0, state)[-1] - _ARRIVED)

        arrived.terminal = True  # type: ignore[attr-defined]
        solution: Any = solve_ivp(flow, (0.0, _LONGEST_TIME), np.concatenate([start.ravel(), [_FIRST_STEP]]), "LSODA",
                                  rtol=_TOLERANCE, atol=_TOLERANCE, dense_output=True, events=arrived)  # fmt: skip
    if not len(solution.t_events[0]):
        raise InputError(f"saddle: got a descent that has not arrived after {solution.t[-1]:g} time units; needs "
                         "minima that are no flat valleys; use an elastic band instead")  # fmt: skip
    last, _ = newton_polish(energy, _on_sphere(solution.y[:-1, -1], shape)[None])
    with jax.enable_x64(True):
        rest = float(sphere.product_distance(jnp.asarray(_on_sphere(solution.y[:-1, -1], shape)), jnp.asarray(last[0])))
    wanted = np.linspace(0, solution.y[-1, -1] + rest, points)
    # Points of the dense solution lie on the path whatever their time: only their spacing depends on the inversion.
    times = np.unique(np.concatenate([np.linspace(a, b, 21) for a, b in zip(solution.t, solution.t[1:], strict=False)]))
    lengths = np.maximum.accumulate(solution.sol(times)[-1])
    path = [_on_sphere(solution.sol(t)[:-1], shape) for t in np.interp(wanted[1:-1], lengths, times)]
    return np.stack([saddle[0], *path, last[0]]), wanted


def _on_sphere(flat: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    x = flat.reshape(shape)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def _class_at(landscape: Landscape, x: np.ndarray) -> int:
    """Class of the minimum at x, -1 at a saddle."""
    here = derivatives(landscape.energy, x[None])
    values, _ = internal_modes(landscape.symmetry, x[None], here.hessian)
    if values[0, 0] < -1e-6 * np.max(np.abs(here.hessian)):
        return -1
    apart = np.abs([minimum.energy - here.energy[0] for minimum in landscape.minima])
    return int(np.argmin(apart)) if np.min(apart) < SAME_ENERGY * (1 + abs(here.energy[0])) else -1


def _profile(
    energy: Energy, symmetry: Symmetry, x: np.ndarray, unstable: np.ndarray, top: int
) -> tuple[np.ndarray, np.ndarray]:
    """Energies, and determinants of the Hessian across the path, along x, shape (points, n, d)."""
    here = derivatives(energy, x)
    tangents = here.gradient / np.maximum(np.linalg.norm(here.gradient, axis=1, keepdims=True), 1e-300)
    # Where the gradient vanishes, the path has the direction of its neighbour there, or of the unstable mode.
    steps = frame(x[[0, -1]], x[[1, -2]] - x[[0, -1]])
    tangents[[0, -1]] = steps / np.linalg.norm(steps, axis=1, keepdims=True)
    tangents[top] = unstable
    determinants = np.empty(len(x))
    for p in range(len(x)):
        orbit = symmetry.orbit_basis(x[p])
        out = np.array([tangents[p], *(frame(x[p : p + 1], move[None])[0] for move in orbit)])
        basis, _ = np.linalg.qr(out.T)
        across = np.eye(len(basis)) - basis @ basis.T
        determinants[p] = np.linalg.det(across @ here.hessian[p] @ across + basis @ basis.T)
    return here.energy, determinants
