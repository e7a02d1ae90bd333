"""The Fokker-Planck equation of two or three free embeddings on the circle, in the differences of their angles.

For an energy that rotations leave alone the differences phi_k = theta_k - theta_0 are a diffusion of their own. Its
noise is correlated, since all of them share that of theta_0; see `torus`. The overall rotation is left out: it
diffuses freely, and its modes are not in the spectra here.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from infonce_jax.checks import count, refuse
from infonce_jax.energies.base import Energy
from infonce_jax.landscape.derivatives import energies_of
from infonce_jax.theory.finite_volumes import Cells
from infonce_jax.theory.torus import configurations, derivative_rows, fourier_spectrum

__all__ = ["AngleDifferences"]

_MOST_MODES = {2: 256, 3: 32}
_CELLS = {2: 1440, 3: 64}


@dataclasses.dataclass(frozen=True)
class AngleDifferences:
    """Exact statements about two or three embeddings on S^1 under an energy without a fixed direction.

    Args:
        energy: of shape (2, 2) or (3, 2), unchanged when all embeddings turn together.

    Raises:
        InputError: another shape, or an energy that a rotation changes.
    """

    energy: Energy

    def __post_init__(self) -> None:
        n, d = self.energy.shape
        if n not in _CELLS or d != 2:
            raise refuse("energy", f"shape {(n, d)}", "shape (2, 2) or (3, 2)", "two or three embeddings on the circle")
        phi = np.random.default_rng(3).uniform(0, 2 * np.pi, size=(8, n - 1))
        x = configurations(phi, n)
        turned = np.stack([np.cos(1.0) * x[..., 0] - np.sin(1.0) * x[..., 1],
                           np.sin(1.0) * x[..., 0] + np.cos(1.0) * x[..., 1]], axis=-1)  # fmt: skip
        here, there = energies_of(self.energy, x), energies_of(self.energy, turned)
        worst = float(np.max(np.abs(here - there)))
        if not worst < 1e-9 * (1 + np.max(np.abs(here))):
            raise refuse("energy", f"one that a rotation changes by {worst:.2g}", "an energy of angle differences",
                         "leave out frozen keys, or use one free embedding with them")  # fmt: skip

    def spectrum(self, beta: float, number: int = 4) -> np.ndarray:
        """The lowest eigenvalues of -L on functions of the differences, ascending, the first one zero (1/time)."""
        return fourier_spectrum(self.energy, beta, number, most=_MOST_MODES[self.energy.shape[0]])

    def cells(self, number: int | None = None) -> Cells:
        """Equal cells of the torus of differences, `number` of them (at least 16) along each angle.

        The Laplacian is the sum of squares of the derivatives along each embedding's angle, and these are the edges of
        the triangular lattice: (1, 0), (0, 1) and (1, 1) for three embeddings, twice the one direction for two.
        """
        n = self.energy.shape[0]
        size, k = count("cells", _CELLS[n] if number is None else number, least=16), n - 1
        index = np.arange(size**k).reshape((size,) * k)
        axis = 2 * np.pi * np.arange(size) / size
        phi = np.stack(np.meshgrid(*[axis] * k, indexing="ij"), axis=-1).reshape(-1, k)
        steps, repeats = np.unique(np.abs(derivative_rows(n).astype(int)), axis=0, return_counts=True)
        volume = (2 * np.pi / size) ** k
        ends = [np.roll(index, tuple(-step), axis=tuple(range(k))).ravel() for step in steps]
        pairs = np.concatenate([np.stack([index.ravel(), end]) for end in ends], axis=1)
        conductances = np.repeat(repeats * volume * (size / (2 * np.pi)) ** 2, index.size)
        points = configurations(phi, n)
        return Cells(points, np.full(index.size, volume), energies_of(self.energy, points), pairs, conductances)
