"""The Fokker-Planck equation of one embedding on the sphere S^2: spectrum, cells, mean first passage.

Generator L = (1/beta) Laplacian - <grad E, grad>, in float64. Spectra from spherical harmonics of the Witten form, laws
in time from finite volumes on circles of latitude, mean first passage times from finite volumes on circles around the
target, so that its rim is one of them.
"""

from __future__ import annotations

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse
from scipy.interpolate import CubicSpline
from scipy.special import lambertw

from infonce_jax.checks import count, instance, positive, refuse
from infonce_jax.energies.base import Energy
from infonce_jax.landscape.derivatives import derivatives, double_precision, energies_of
from infonce_jax.theory.finite_volumes import Cells, bernoulli, mean_times
from infonce_jax.theory.harmonics import Harmonics, harmonics
from infonce_jax.theory.witten import check_number, cutoff, lowest_eigenvalues

__all__ = ["TwoSphere"]

_MOST_DEGREES = 72


@dataclasses.dataclass(frozen=True)
class TwoSphere:
    """Statements about one embedding on S^2 in the energy of frozen keys (or any energy of one point).

    Args:
        energy: of shape (1, 3).

    Raises:
        InputError: another shape.
    """

    energy: Energy

    def __post_init__(self) -> None:
        instance("energy", self.energy, Energy, "wrap a function with energies.from_function")
        if self.energy.shape != (1, 3):
            raise refuse("energy", f"shape {self.energy.shape}", "shape (1, 3)", "one free embedding on the sphere S^2")

    def energy_at(self, points: np.ndarray) -> np.ndarray:
        """E at unit vectors, shape (..., 3) to (...)."""
        return energies_of(self.energy, points[..., None, :])

    def spectrum(self, beta: float, number: int = 4, degree: int | None = None) -> np.ndarray:
        """The lowest eigenvalues of -L, ascending, the first one zero (1/time).

        Args:
            beta: inverse temperature.
            number: of eigenvalues.
            degree: of the harmonics, 8 to 72; by default as many as resolve e^{-beta E/2}.

        Raises:
            InputError: a law too narrow for the harmonics, or more eigenvalues than they give.
        """
        b = positive("beta", beta)
        if degree is not None and count("degree", degree, least=8) > _MOST_DEGREES:
            raise refuse("degree", degree, f"8 to {_MOST_DEGREES}", "the matrix grows with its fourth power")
        number = check_number(number, 64 if degree is None else degree)
        shells = _shells(harmonics(_MOST_DEGREES), self.energy, b)
        basis = harmonics(cutoff(shells, b, _MOST_DEGREES, 8 + 2 * math.isqrt(number), degree))
        x = basis.points
        local = derivatives(self.energy, x[:, None])
        potential = b * np.sum(local.gradient**2, axis=1) / 4 - np.trace(local.hessian, axis1=1, axis2=2) / 2
        matrix = basis.multiplication(potential)
        matrix[np.diag_indices_from(matrix)] += basis.degrees * (basis.degrees + 1) / b
        ground = basis.analyse(np.exp(-b * (local.energy - local.energy.min()) / 2))
        east, south = self._slopes(basis)
        root = np.sqrt(np.repeat(basis.weights * 2 * np.pi / len(basis.azimuths), len(basis.azimuths)) / b)[:, None]

        def slopes(block: np.ndarray) -> np.ndarray:
            value, to_south, to_east = basis.synthesise(block)
            return np.concatenate([root * (to_south + b / 2 * south * value), root * (to_east + b / 2 * east * value)])

        return lowest_eigenvalues(matrix, ground, slopes, number, b)

    def _slopes(self, basis: Harmonics) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives of E along e_phi and e_theta on the grid, shape (points, 1)."""
        x = basis.points
        with jax.enable_x64(True):
            gradient = np.asarray(_gradients(double_precision(self.energy), jnp.asarray(x)))
        sine = np.hypot(x[:, 0], x[:, 1])
        east = np.stack([-x[:, 1], x[:, 0], np.zeros(len(x))], axis=1) / sine[:, None]
        south = np.stack([x[:, 0] * x[:, 2] / sine, x[:, 1] * x[:, 2] / sine, -sine], axis=1)
        return np.sum(gradient * east, axis=1)[:, None], np.sum(gradient * south, axis=1)[:, None]

    def cells(self, number: int | None = None) -> Cells:
        """Cells between circles of latitude and longitude.

        Args:
            number: of meridians, at least 16; half as many circles of latitude. 96 by default.
        """
        columns = count("cells", 96 if number is None else number, least=16)
        rings = columns // 2
        faces = np.pi * np.arange(rings + 1) / rings
        polar = (faces[1:] + faces[:-1]) / 2
        azimuth = 2 * np.pi * np.arange(columns) / columns
        x = _sphere_points(polar, azimuth)
        index = np.arange(rings * columns).reshape(rings, columns)
        south = np.stack([index[:-1].ravel(), index[1:].ravel()])
        east = np.stack([index.ravel(), np.roll(index, -1, axis=1).ravel()])
        volume, across, along = _ring_measures(polar, faces, columns)
        conductances = np.concatenate([np.repeat(across, columns), np.repeat(along, columns)])
        points = x.reshape(-1, 1, 3)
        pairs = np.concatenate([south, east], axis=1)
        return Cells(points, np.repeat(volume, columns), energies_of(self.energy, points), pairs, conductances)

    def mean_first_passage(
        self, beta: float, start: np.ndarray, target: np.ndarray, radius: float, resolution: int = 128
    ) -> float:
        """Mean time from the point `start` to within `radius` of the point `target`.

        L u = -1 outside the ball, u = 0 on its rim, on `resolution` meridians through the target and 3/2 times as many
        circles around it, closer to each other near the rim; elimination without subtractions, and one extrapolation
        from half the resolution. With the default, the relative error is below 1e-5 up to beta times the largest
        curvature of about 100, and 4e-5 at 400.

        Args:
            beta: inverse temperature.
            start: unit vector, shape (3,).
            target: unit vector, shape (3,).
            radius: radians, below pi.
            resolution: meridians, a multiple of 4, at least 32.

        Raises:
            InputError: a number out of range, or beta so large that the time overflows.
        """
        b, r, n = positive("beta", beta), positive("radius", radius), count("resolution", resolution, least=32)
        if r >= np.pi:
            raise refuse("radius", f"{r:g}", "a radius below pi", "a larger ball is the whole sphere")
        if n % 4:
            raise refuse("resolution", n, "a multiple of 4", "it is halved once for the extrapolation")
        if 2 * np.arctan2(np.linalg.norm(start - target), np.linalg.norm(start + target)) <= r:
            return 0.0
        coarse, fine = (self._passage(b, start, target, r, columns) for columns in (n // 2, n))
        return (4 * fine - coarse) / 3

    def _passage(self, beta: float, start: np.ndarray, target: np.ndarray, radius: float, columns: int) -> float:
        polar, faces = _graded(radius, 3 * columns // 2)
        azimuth = 2 * np.pi * np.arange(columns) / columns
        frame, angle = _frame(start, target)
        # From the far pole to the rim: the order of elimination, in which the last ring alone is killed.
        energies = self.energy_at(_sphere_points(polar, azimuth) @ frame)[::-1]
        rim = self.energy_at(_sphere_points(np.array([radius]), azimuth) @ frame)[0]
        volume, across, along = (part[::-1] for part in _ring_measures(polar, faces, columns))
        mobility = 1 / (beta * volume)[:, None]
        inward = mobility[:-1] * across[:, None] * bernoulli(beta * (energies[1:] - energies[:-1]))
        outward = mobility[1:] * across[:, None] * bernoulli(beta * (energies[:-1] - energies[1:]))
        turn = beta * (np.roll(energies, -1, axis=1) - energies)
        east, west = (mobility * along[:, None] * bernoulli(sign * turn) for sign in (1, -1))
        index = np.arange(energies.size).reshape(energies.shape)
        neighbour = np.roll(index, -1, axis=1)
        rows = np.concatenate([part.ravel() for part in (index[:-1], index[1:], index, neighbour)])
        ends = np.concatenate([part.ravel() for part in (index[1:], index[:-1], neighbour, index)])
        rates = np.concatenate([part.ravel() for part in (inward, outward, east, west)])
        killing = np.zeros(energies.shape)
        conductance = 2 * np.pi / columns / (_mercator(polar[0]) - _mercator(radius))
        killing[-1] = mobility[-1] * conductance * bernoulli(beta * (rim - energies[-1]))
        matrix = sparse.csr_array((rates, (rows, ends)), shape=(energies.size, energies.size))
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            times = mean_times(matrix, killing.ravel()).reshape(energies.shape)[::-1]
        if not np.all(np.isfinite(times)):
            raise refuse("beta", f"{beta:g}", "times below 1e308", "they are e^(beta barrier); use theory.rate")
        return _on_meridian(polar, times, radius, angle)


@jax.jit
def _gradients(energy: Energy, x: jax.Array) -> jax.Array:
    return jax.vmap(lambda y: jax.grad(lambda z: energy(z[None]))(y))(x)


def _shells(basis: Harmonics, energy: Energy, beta: float) -> np.ndarray:
    values = energies_of(energy, basis.points[:, None])
    ground = basis.analyse(np.exp(-beta * (values - values.min()) / 2))
    return np.bincount(basis.degrees, ground**2)


def _mercator(polar: np.ndarray | float) -> np.ndarray:
    """log tan(theta/2), in which the Laplacian is that of the plane times 1/sin^2 theta."""
    return np.log(np.tan(np.asarray(polar) / 2))


def _sphere_points(polar: np.ndarray, azimuth: np.ndarray) -> np.ndarray:
    """Shape (rings, columns, 3)."""
    sine, cosine = np.sin(polar)[:, None], np.cos(polar)[:, None]
    x, y = sine * np.cos(azimuth), sine * np.sin(azimuth)
    return np.stack([x, y, np.broadcast_to(cosine, x.shape)], axis=-1)


def _ring_measures(polar: np.ndarray, faces: np.ndarray, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Volumes of the cells of each ring, conductances from ring to ring, and from cell to cell along a ring.

    Those from ring to ring are exact for free diffusion along the meridian.
    """
    step = 2 * np.pi / columns
    volume = (np.cos(faces[:-1]) - np.cos(faces[1:])) * step
    return volume, step / np.diff(_mercator(polar)), np.diff(faces) / (np.sin(polar) * step)


def _graded(radius: float, rings: int) -> tuple[np.ndarray, np.ndarray]:
    """Centres and faces between the rim and the far pole, equally spaced in log theta + 2 theta.

    Next to a small ball u falls like log theta, and a spacing in proportion to theta follows it; beyond half a radian
    the spacing is even.
    """
    y = np.linspace(math.log(radius) + 2 * radius, math.log(np.pi) + 2 * np.pi, 2 * rings + 1)
    theta = lambertw(2 * np.exp(y)).real / 2
    theta[0], theta[-1] = radius, np.pi
    return theta[1::2], theta[::2]


def _frame(start: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, float]:
    """Orthonormal rows, the last one the target and the start in the plane of the first and last; and its angle."""
    aside = start - (start @ target) * target
    size = float(np.linalg.norm(aside))
    if size < 1e-9:
        aside = np.eye(3)[np.argmin(np.abs(target))]
        aside = aside - (aside @ target) * target
    first = aside / np.linalg.norm(aside)
    return np.stack([first, np.cross(target, first), target]), float(np.arctan2(size, start @ target))


def _on_meridian(polar: np.ndarray, times: np.ndarray, radius: float, angle: float) -> float:
    """The value at polar angle `angle` of meridian 0, by a spline along it and up the opposite meridian."""
    line = np.concatenate([[radius], polar, 2 * np.pi - polar[::-1], [2 * np.pi - radius]])
    opposite = times[:, times.shape[1] // 2]
    return float(CubicSpline(line, np.concatenate([[0.0], times[:, 0], opposite[::-1], [0.0]]))(angle))
