"""The Fokker-Planck equation solved: gaps, mean first passage times, stationary and annealed laws.

For energies with at most two degrees of freedom that matter: one free embedding on the circle or the sphere S^2, or two
or three free embeddings on the circle whose energy depends on differences of angles only. All in float64, all with the
generator L = (1/beta) Laplacian - <grad E, grad> of dX = -grad E dt + sqrt(2/beta) dB.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from infonce_jax.checks import as_unit_rows, count, positive, refuse
from infonce_jax.energies.base import Energy
from infonce_jax.schedules import Schedule
from infonce_jax.theory.angle_differences import AngleDifferences
from infonce_jax.theory.circle import Circle
from infonce_jax.theory.finite_volumes import Cells, check_times, evolve
from infonce_jax.theory.two_sphere import TwoSphere

__all__ = ["AnnealedLaw", "StationaryLaw", "annealed", "mean_first_passage", "spectral_gap", "spectrum", "stationary"]

Where = np.ndarray | Callable[[np.ndarray], Any]


def _geometry(energy: Energy) -> Circle | TwoSphere | AngleDifferences:
    if not isinstance(energy, Energy):
        raise refuse("energy", type(energy).__name__, "an Energy", "wrap a function with energies.from_function")
    kinds = {(1, 2): Circle, (1, 3): TwoSphere, (2, 2): AngleDifferences, (3, 2): AngleDifferences}
    if energy.shape not in kinds:
        raise refuse("energy", f"shape {energy.shape}", "shape (1, 2), (1, 3), (2, 2) or (3, 2)",
                     "larger systems need chains: run_chains")  # fmt: skip
    return kinds[energy.shape](energy)


def spectrum(energy: Energy, beta: float, number: int = 4) -> np.ndarray:
    """The lowest eigenvalues of -L, ascending, the first one zero.

    From Fourier modes on the circle and its differences, spherical harmonics on S^2, as many as the law needs, and with
    the digits of eigenvalues far below rounding kept (see `witten`). With two or three embeddings, on functions of the
    angle differences: the free rotation of all of them is left out.

    Args:
        energy: of shape (1, 2), (1, 3), or (2, 2), (3, 2) without a fixed direction.
        beta: inverse temperature, > 0.
        number: how many.

    Returns:
        Shape (number,), 1/time.

    Raises:
        InputError: another energy, or beta so large that the law is narrower than the modes resolve.

    >>> import infonce_jax as ij
    >>> pull = ij.energies.from_function(lambda x: 0.0 * x[0, 0], shape=(1, 2))
    >>> spectrum(pull, beta=2.0, number=3).round(9)  # k^2/beta, free diffusion
    array([0. , 0.5, 0.5])
    """
    return _geometry(energy).spectrum(positive("beta", beta), count("number", number))


def spectral_gap(energy: Energy, beta: float) -> float:
    """The slowest relaxation rate of the law at constant beta (1/time); see `spectrum`."""
    return float(spectrum(energy, beta, 2)[1])


def mean_first_passage(energy: Energy, beta: float, start: Any, target: Any, radius: float) -> float:
    """Mean time from `start` until the chain is within a geodesic distance `radius` of `target`.

    By the Green's function on the circle (digits to rounding); on S^2 by finite volumes around the target and an
    elimination without subtractions, some 1e-5 relative (see `TwoSphere.mean_first_passage`).

    Args:
        energy: of shape (1, 2) or (1, 3).
        beta: inverse temperature, > 0.
        start: unit rows, shape (1, d) or (d,).
        target: unit rows, shape (1, d) or (d,).
        radius: radians, > 0 and below pi.

    Returns:
        A time >= 0; 0 from within the ball.

    Raises:
        InputError: a shape other than the energy's, or two or three embeddings: the ball around a configuration is no
            set of angle differences, so the differences alone do not tell when it is reached.
    """
    space = _geometry(energy)
    b, r = positive("beta", beta), positive("radius", radius)
    if isinstance(space, AngleDifferences):
        raise refuse("energy", f"shape {energy.shape}", "shape (1, 2) or (1, 3)",
                     "a ball around several embeddings is no set of angle differences: use run_chains")  # fmt: skip
    if r >= np.pi:
        raise refuse("radius", f"{r:g}", "a radius below pi", "a larger ball is the whole sphere")
    rows = [_configuration(name, value, energy.shape)[0] for name, value in (("start", start), ("target", target))]
    if isinstance(space, TwoSphere):
        return space.mean_first_passage(b, rows[0], rows[1], r)
    here, there = (float(np.arctan2(row[1], row[0])) for row in rows)
    return space.mean_first_passage(b, here, there, r)


@dataclasses.dataclass(frozen=True, eq=False)
class StationaryLaw:
    """The Gibbs law on a grid.

    Attributes:
        points: centres of the cells, shape (m, n, d), unit rows. For angle differences the first embedding is (1, 0).
        volumes: of the cells, shape (m,).
        weights: probabilities of the cells, shape (m,).
    """

    points: np.ndarray
    volumes: np.ndarray
    weights: np.ndarray

    def probability(self, where: Where) -> float:
        """Probability of a set of cells.

        Args:
            where: booleans, shape (m,), or a function from points (m, n, d) to them, for example
                `lambda x: landscape.basin_of(x) == 1`. A cell counts where its centre does.
        """
        return float(self.weights @ _chosen(where, self.points))


@dataclasses.dataclass(frozen=True, eq=False)
class AnnealedLaw:
    """The law of annealed chains on a grid, at given times.

    Attributes:
        times: shape (k,).
        points: centres of the cells, shape (m, n, d), unit rows. For angle differences the first embedding is (1, 0).
        volumes: of the cells, shape (m,).
        weights: probabilities of the cells, shape (k, m).
    """

    times: np.ndarray
    points: np.ndarray
    volumes: np.ndarray
    weights: np.ndarray

    def probability(self, where: Where) -> np.ndarray:
        """Probability of a set of cells at each time, shape (k,); `where` as in `StationaryLaw.probability`."""
        return self.weights @ _chosen(where, self.points)


def stationary(energy: Energy, beta: float, cells: int | None = None) -> StationaryLaw:
    """The Gibbs law of the finite volumes, proportional to V_i e^{-beta E_i}, the exact stationary law of `annealed`.

    Args:
        energy: as for `spectrum`.
        beta: inverse temperature, > 0.
        cells: of a full turn, at least 16; by default 1440 for one angle, 96 on S^2, 64 for two angles.
    """
    b, grid = positive("beta", beta), _geometry(energy).cells(*_given(cells))
    return StationaryLaw(grid.points, grid.volumes, grid.stationary(b))


def annealed(
    energy: Energy, schedule: Schedule, times: Any, initial: Any = "uniform", cells: int | None = None
) -> AnnealedLaw:
    """The law of dX = -grad E dt + sqrt(2/beta(t)) dB at given times, from the time-inhomogeneous equation.

    Reversible finite volumes (Scharfetter and Gummel 1969), errors second order in the cell size, and a stiff solver on
    the clock log(1 + t).

    Args:
        energy: as for `spectrum`.
        schedule: beta(t), of any kind, as cold as it gets.
        times: increasing, in time units, none negative; 0 gives the initial law. Shape (k,).
        initial: "uniform"; a configuration, unit rows of shape (n, d), or (d,) for one embedding, for a start in its
            cell; probabilities of the cells, shape (m,), in the order of `stationary(...).points`; or a function from
            points (m, n, d) to a density (m,). The last two are normalised here.
        cells: as for `stationary`.

    Returns:
        An `AnnealedLaw`.

    Raises:
        InputError: another energy, times that do not increase, or an initial law that is none of these.
    """
    if not isinstance(schedule, Schedule):
        raise refuse("schedule", type(schedule).__name__, "a Schedule", "for example schedules.logarithmic(depth)")
    t = check_times(times)
    space = _geometry(energy)
    grid = space.cells(*_given(cells))
    law = _initial_law(grid, energy.shape, initial)
    return AnnealedLaw(t, grid.points, grid.volumes, evolve(grid, schedule, t, law))


def _given(cells: int | None) -> tuple[int, ...]:
    return () if cells is None else (count("cells", cells, least=16),)


def _configuration(name: str, value: Any, shape: tuple[int, int]) -> np.ndarray:
    rows = as_unit_rows(name, value, ndims=(1, 2))
    rows = rows[None] if rows.ndim == 1 else rows
    if rows.shape != shape:
        raise refuse(name, f"shape {rows.shape}", f"shape {shape}", "one unit row per embedding, as the energy has")
    return rows


def _chosen(where: Where, points: np.ndarray) -> np.ndarray:
    mask = np.asarray(where(points) if callable(where) else where)
    if mask.dtype != bool or mask.shape != (len(points),):
        raise refuse("where", f"{mask.dtype} of shape {mask.shape}", f"booleans of shape ({len(points)},)",
                     "one for each of the points")  # fmt: skip
    return mask


def _initial_law(grid: Cells, shape: tuple[int, int], initial: Any) -> np.ndarray:
    m = len(grid.volumes)
    if isinstance(initial, str):
        if initial != "uniform":
            raise refuse("initial", repr(initial), "'uniform'", "or give a configuration, weights or a density")
        return grid.volumes / grid.volumes.sum()
    try:
        given = np.asarray(initial(grid.points) if callable(initial) else initial, dtype=np.float64)
    except (TypeError, ValueError):
        raise refuse("initial", type(initial).__name__, "an array of numbers", "rows of equal length") from None
    weights = given * grid.volumes if callable(initial) and given.shape == (m,) else given
    if weights.shape != (m,):
        if callable(initial):
            raise refuse("initial", f"a density of shape {weights.shape}", f"shape ({m},)", "one number for each point")
        return _one_cell(grid, _configuration("initial", initial, shape))
    if not np.all(np.isfinite(weights)) or np.any(weights < 0) or not weights.sum() > 0:
        raise refuse("initial", f"weights from {weights.min():g} to {weights.max():g}", "finite weights >= 0, some > 0",
                     "give probabilities of the cells or a density")  # fmt: skip
    return weights / weights.sum()


def _one_cell(grid: Cells, x: np.ndarray) -> np.ndarray:
    """All weight in the cell whose centre is closest, angle differences being those of x."""
    if len(x) > 1:
        cosine, sine = x[0]
        x = x @ np.array([[cosine, -sine], [sine, cosine]])
    law = np.zeros(len(grid.volumes))
    law[np.argmax(np.sum(grid.points * x, axis=(1, 2)))] = 1.0
    return law
