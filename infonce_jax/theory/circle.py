"""The Fokker-Planck equation of one embedding on the circle: gap, stationary law, first passage, annealed law.

Generator L = (1/beta) d^2 - E' d on functions of the angle, in float64; spectral where the answer is a number, finite
volumes where it is a law in time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from infonce_jax.checks import count, finite, instance, positive, refuse
from infonce_jax.energies.base import Energy
from infonce_jax.landscape.derivatives import energies_of
from infonce_jax.schedules import Schedule
from infonce_jax.theory.finite_volumes import Cells, check_times, evolve
from infonce_jax.theory.torus import configurations, fourier_spectrum

__all__ = ["Circle"]


@dataclasses.dataclass(frozen=True)
class Circle:
    """Exact statements about one embedding on S^1 in the energy of frozen keys (or any energy of one angle).

    Args:
        energy: of shape (1, 2).
        modes: Fourier modes of the spectral statements, at least 16.

    Raises:
        InputError: the energy is not of one embedding on the circle.
    """

    energy: Energy
    modes: int = 256

    def __post_init__(self) -> None:
        instance("energy", self.energy, Energy, "wrap a function with energies.from_function")
        if self.energy.shape != (1, 2):
            raise refuse("energy", f"shape {self.energy.shape}", "shape (1, 2)", "one free embedding on the circle")
        count("modes", self.modes, least=16)

    def energy_at(self, theta: Any) -> np.ndarray:
        """E at angles theta (radians), any shape."""
        theta = np.asarray(theta, dtype=np.float64)
        return energies_of(self.energy, configurations(theta.reshape(-1, 1), 1)).reshape(theta.shape)

    def spectrum(self, beta: float, number: int = 4) -> np.ndarray:
        """The lowest eigenvalues of -L, ascending, the first one zero.

        From the Fourier matrix of the symmetric Witten form -(1/beta) d^2 + beta E'^2/4 - E''/2.
        """
        return fourier_spectrum(self.energy, beta, number, self.modes)

    def gap(self, beta: float) -> float:
        """The spectral gap, the slowest relaxation rate of the law at constant beta (1/time)."""
        return float(self.spectrum(beta, 2)[1])

    def stationary(self, beta: float, theta: Any) -> np.ndarray:
        """Density of the Gibbs law, per radian, at angles theta."""
        b = positive("beta", beta)
        grid = 2 * np.pi * np.arange(16 * self.modes) / (16 * self.modes)
        energies = self.energy_at(grid)
        lowest = energies.min()
        total = np.mean(np.exp(-b * (energies - lowest))) * 2 * np.pi
        return np.exp(-b * (self.energy_at(theta) - lowest)) / total

    def mean_first_passage(self, beta: float, start: float, target: float, radius: float) -> float:
        """Mean time from the angle `start` to within `radius` of the angle `target`, by the Green's function of L.

        On the arc (a, b) outside the target, (1/beta) T'' - E' T' = -1 with T(a) = T(b) = 0. With the scale function
        S(x) = int_a^x e^{beta E}, R = S(b) - S and the speed e^{-beta E},

            T(x) = beta [ R(x) int_a^x S(y) e^{-beta E(y)} dy + S(x) int_x^b R(y) e^{-beta E(y)} dy ] / S(b),

        in which every term is positive, so nothing cancels at low temperature.

        Args:
            beta: inverse temperature.
            start: angle, radians.
            target: angle, radians.
            radius: radians, below pi.

        Raises:
            InputError: beta or radius not positive, or beta so large that e^{beta E} overflows.
        """
        b, r = positive("beta", beta), positive("radius", radius)
        start, target = finite("start", start, "an angle in radians"), finite("target", target, "an angle in radians")
        if r >= np.pi:
            raise refuse("radius", f"{r:g}", "a radius below pi", "a larger ball is the whole circle")
        arc = 2 * np.pi - 2 * r
        x = np.mod(start - target, 2 * np.pi) - r
        if not 0 < x < arc:
            return 0.0
        # Composite Gauss-Legendre on panels that meet at the start, so that every integral ends on a panel's edge.
        left, right = (np.linspace(lo, hi, 401) for lo, hi in ((0.0, x), (x, arc)))
        edges = np.concatenate([left, right[1:]])
        nodes, weights = np.polynomial.legendre.leggauss(12)
        width = np.diff(edges)[:, None]
        y = edges[:-1, None] + width * (nodes + 1) / 2
        energies = self.energy_at(target + r + y)
        if b * (energies.max() - energies.min()) > 700:
            raise refuse("beta", f"{b:g}", f"at most {700 / (energies.max() - energies.min()):.4g} here",
                         "beyond it e^(beta E) overflows; use theory.rate")  # fmt: skip
        up, down = np.exp(b * (energies - energies.max())), np.exp(-b * (energies - energies.min()))
        w = width * weights / 2
        scale = np.cumsum(np.concatenate([[0.0], np.sum(w * up, axis=1)]))
        rest = np.cumsum(np.concatenate([[0.0], np.sum(w * up, axis=1)[::-1]]))[::-1]
        within = _running_integral(nodes, width, up)
        before, after = scale[:-1, None] + within, rest[1:, None] + (np.sum(w * up, axis=1)[:, None] - within)
        half = len(left) - 1
        near = rest[half] * np.sum((w * down * before)[:half]) + scale[half] * np.sum((w * down * after)[half:])
        return float(b * near / scale[-1] * np.exp(b * (energies.max() - energies.min())))

    def cells(self, number: int = 1440) -> Cells:
        """Equal cells around the circle, the first one centred at angle 0."""
        n = count("cells", number, least=16)
        points = configurations(2 * np.pi * np.arange(n)[:, None] / n, 1)
        volume = np.full(n, 2 * np.pi / n)
        ring = np.stack([np.arange(n), (np.arange(n) + 1) % n])
        return Cells(points, volume, energies_of(self.energy, points), ring, 1 / volume)

    def annealed_law(
        self, schedule: Schedule, times: Sequence[float], initial: Any = "uniform", cells: int = 1440
    ) -> tuple[np.ndarray, np.ndarray]:
        """The law of the annealed diffusion at given times.

        Scharfetter-Gummel finite volumes, which keep Gibbs laws exactly stationary and probabilities positive, and a
        stiff solver on the clock log(1 + t).

        Args:
            schedule: beta(t).
            times: increasing, in time units, none negative.
            initial: "uniform", or an angle in radians for a start at one point.
            cells: of the grid, at least 16.

        Returns:
            Cell centres in radians, shape (cells,), and probabilities of the cells, shape (len(times), cells).
        """
        instance("schedule", schedule, Schedule, "for example schedules.logarithmic(depth)")
        t = check_times(times)
        grid = self.cells(cells)
        n = len(grid.volumes)
        law = np.full(n, 1.0 / n)
        if initial != "uniform":
            angle = finite("initial", initial, "'uniform' or an angle in radians")
            law = np.zeros(n)
            law[int(np.rint(np.mod(angle, 2 * np.pi) / (2 * np.pi) * n)) % n] = 1.0
        return 2 * np.pi * np.arange(n) / n, evolve(grid, schedule, t, law)


def _running_integral(nodes: np.ndarray, width: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Integral from the left edge of each panel to each of its nodes, exact for the interpolating polynomial."""
    order = len(nodes)
    powers = np.vander(nodes, order, increasing=True)
    upper = np.array([(nodes ** (k + 1) - (-1.0) ** (k + 1)) / (k + 1) for k in range(order)]).T
    return width / 2 * (values @ np.linalg.solve(powers.T, upper.T))
