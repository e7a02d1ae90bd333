"""What is timed: systems by their shape, and their energies as plain arrays for those who do not know this package."""

from __future__ import annotations

import dataclasses

import numpy as np

import infonce_jax as ij
from infonce_jax.energies import Energy

__all__ = ["BETA", "COMPILE_TARGETS", "RATIO_TARGETS", "SHAPES", "System", "system"]

SHAPES = ((1, 2), (5, 2), (8, 2), (8, 3), (16, 3), (32, 8), (64, 16))
# Against the plain version, on two CPU cores, float32, 4096 chains.
RATIO_TARGETS = {(1, 2): 25, (5, 2): 60, (8, 3): 15, (16, 3): 8, (32, 8): 4, (64, 16): 2}
COMPILE_TARGETS = {(8, 3): 5, (16, 3): 15}  # seconds
# Warm enough for every system here to forget its start within a few time units (at beta = 2 the trap of ring5 holds
# chains for more than ten), cold enough for its energy to matter.
BETA = 1.0
_STEP_SIZE = 0.03


@dataclasses.dataclass(frozen=True, eq=False)
class System:
    """One energy E(x) = sum_i [log sum_j m_ij e^{<x_i, y_j>/tau} - sum_j W_ij <x_i, y_j>/tau], y = (x, keys).

    Attributes:
        name: of the scenario.
        energy: as this package evaluates it.
        n, d: shape of a configuration.
        step_size: h, in time units.
        temperature: tau.
        positives: W, shape (n, n + k), float32.
        counts: m, shape (n, n + k), float32.
        keys: frozen unit rows, shape (k, d), float32; k may be 0.
    """

    name: str
    energy: Energy
    n: int
    d: int
    step_size: float
    temperature: float
    positives: np.ndarray
    counts: np.ndarray
    keys: np.ndarray

    def uniform(self, chains: int, seed: int) -> np.ndarray:
        """Uniform starting points of chains, shape (chains, n, d), float32."""
        gauss = np.random.default_rng(seed).normal(size=(chains, self.n, self.d))
        return (gauss / np.linalg.norm(gauss, axis=-1, keepdims=True)).astype(np.float32)


def system(n: int, d: int) -> System:
    """The double well for n = 1 (one query, frozen keys), a ring of n views in dimension d otherwise.

    Raises:
        InputError: two views, or one in another dimension than two.
    """
    if n == 1 and d != 2:
        raise ij.InputError(f"shape: got ({n}, {d}); needs (1, 2) or n >= 3; a single query with keys is on the circle")
    scenario = ij.scenarios.double_well() if n == 1 else ij.scenarios.ring(n, dim=d)
    energy = scenario.energy
    counts = energy.candidates.array() if energy.multiplicity is None else energy.multiplicity  # type: ignore[attr-defined]
    keys = np.zeros((0, d)) if energy.keys is None else energy.keys  # type: ignore[attr-defined]
    arrays = (np.asarray(a, np.float32) for a in (energy.positives, counts, keys))  # type: ignore[attr-defined]
    return System(scenario.name, energy, n, d, _STEP_SIZE, float(energy.temperature), *arrays)  # type: ignore[attr-defined]
