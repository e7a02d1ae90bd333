"""Real spherical harmonics up to a degree on a Gauss-Legendre times trapezoid grid: transforms and products."""

from __future__ import annotations

import dataclasses

import numpy as np

__all__ = ["Harmonics", "harmonics"]


def _legendre(degree: int, x: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """P_lm(x) for l = m..degree with int P^2 dx = 1, and d/d(polar angle) of it: for each m, shape (points, l)."""
    sine = np.sqrt(1 - x**2)
    tables, slopes = [], []
    first = np.full(len(x), np.sqrt(0.5))
    for m in range(degree + 1):
        if m:
            first = np.sqrt((2 * m + 1) / (2 * m)) * sine * first
        table = np.zeros((len(x), degree + 1 - m))
        table[:, 0] = first
        if degree > m:
            table[:, 1] = np.sqrt(2 * m + 3) * x * first
        for l in range(m + 2, degree + 1):  # noqa: E741 - the degree, as in every book
            a = np.sqrt((4 * l * l - 1) / (l * l - m * m))
            b = np.sqrt(((l - 1) ** 2 - m * m) / (4 * (l - 1) ** 2 - 1))
            table[:, l - m] = a * (x * table[:, l - m - 1] - b * table[:, l - m - 2])
        degrees = np.arange(m, degree + 1)
        below = np.concatenate([np.zeros((len(x), 1)), table[:, :-1]], axis=1)
        ratio = np.sqrt((2 * degrees + 1) * (degrees**2 - m * m) / np.maximum(2 * degrees - 1, 1))
        tables.append(table)
        slopes.append((degrees * x[:, None] * table - ratio * below) / sine[:, None])
    return tables, slopes


@dataclasses.dataclass(frozen=True, eq=False)
class Harmonics:
    """The basis P_l|m|(cos theta) F_m(phi), F_m = cos, 1/sqrt2 or sin over sqrt pi, ordered by m from -degree, then l.

    Attributes:
        degree: largest l.
        cosines: of the polar angles of the grid, shape (rings,).
        weights: of the rings, shape (rings,); every point of a ring has weight times the step in phi.
        azimuths: shape (columns,).
        legendre: for each m >= 0, shape (rings, degree + 1 - m).
        slopes: their derivatives in the polar angle.
        waves: F_m, shape (2 degree + 1, columns).
        wave_slopes: F_m', same shape.
    """

    degree: int
    cosines: np.ndarray
    weights: np.ndarray
    azimuths: np.ndarray
    legendre: list[np.ndarray]
    slopes: list[np.ndarray]
    waves: np.ndarray
    wave_slopes: np.ndarray

    @property
    def points(self) -> np.ndarray:
        """Unit vectors of the grid, shape (rings * columns, 3)."""
        z, sine = self.cosines[:, None], np.sqrt(1 - self.cosines**2)[:, None]
        x, y = sine * np.cos(self.azimuths), sine * np.sin(self.azimuths)
        return np.stack([x, y, np.broadcast_to(z, x.shape)], axis=-1).reshape(-1, 3)

    @property
    def orders(self) -> np.ndarray:
        """m = -degree..degree."""
        return np.arange(-self.degree, self.degree + 1)

    @property
    def degrees(self) -> np.ndarray:
        """l of every basis function, shape ((degree + 1)^2,)."""
        return np.concatenate([np.arange(abs(m), self.degree + 1) for m in self.orders])

    def _places(self) -> list[slice]:
        ends = np.cumsum(self.degree + 1 - np.abs(self.orders))
        return [slice(int(end) - (self.degree + 1 - abs(int(m))), int(end))
                for m, end in zip(self.orders, ends, strict=True)]  # fmt: skip

    def analyse(self, values: np.ndarray) -> np.ndarray:
        """Coefficients, shape ((degree + 1)^2,), of a function given on the grid, shape (rings * columns,)."""
        step = 2 * np.pi / len(self.azimuths)
        rings = values.reshape(len(self.cosines), -1) @ self.waves.T * step * self.weights[:, None]
        return np.concatenate([self.legendre[abs(m)].T @ rings[:, i] for i, m in enumerate(self.orders)])

    def synthesise(self, block: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Values on the grid and their derivatives along e_theta and e_phi, (rings * columns, k) each, of columns."""
        places, k = self._places(), block.shape[1]

        def rings(tables: list[np.ndarray]) -> np.ndarray:
            return np.stack([tables[abs(m)] @ block[place] for m, place in zip(self.orders, places, strict=True)])

        def grid(parts: np.ndarray, waves: np.ndarray) -> np.ndarray:
            return np.einsum("mjk,mp->jpk", parts, waves, optimize=True).reshape(-1, k)

        plain = rings(self.legendre)
        sine = np.sqrt(1 - self.cosines**2)[:, None]
        return grid(plain, self.waves), grid(rings(self.slopes), self.waves), grid(plain / sine, self.wave_slopes)

    def multiplication(self, values: np.ndarray) -> np.ndarray:
        """Matrix of the multiplication by a function given on the grid; ring by ring in phi, then over the rings."""
        step = 2 * np.pi / len(self.azimuths)
        weighted = values.reshape(len(self.cosines), 1, -1) * self.waves * step
        rings = weighted @ self.waves.T * self.weights[:, None, None]
        places, size = self._places(), (self.degree + 1) ** 2
        matrix = np.empty((size, size))
        for i, m in enumerate(self.orders):
            left = self.legendre[abs(m)].T
            for j in range(i, len(self.orders)):
                block = (left * rings[:, i, j]) @ self.legendre[abs(self.orders[j])]
                matrix[places[i], places[j]], matrix[places[j], places[i]] = block, block.T
        return matrix


def harmonics(degree: int) -> Harmonics:
    """The basis up to `degree` on 2 degree rings of 4 degree points: exact for products with another such function."""
    rings, columns = 2 * degree, 4 * degree
    cosines, weights = np.polynomial.legendre.leggauss(rings)
    azimuths = 2 * np.pi * np.arange(columns) / columns
    orders = np.arange(-degree, degree + 1)[:, None]
    size = np.where(orders == 0, np.sqrt(0.5), 1.0) / np.sqrt(np.pi)
    angle = np.abs(orders) * azimuths
    waves = size * np.where(orders < 0, np.sin(angle), np.cos(angle))
    turned = size * np.abs(orders) * np.where(orders < 0, np.cos(angle), -np.sin(angle))
    return Harmonics(degree, cosines, weights, azimuths, *_legendre(degree, cosines), waves, turned)
