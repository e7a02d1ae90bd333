"""Classes of critical points, and the minima below many starts."""

from __future__ import annotations

import numpy as np

from infonce_jax.energies.base import Energy
from infonce_jax.landscape.derivatives import displace
from infonce_jax.landscape.model import SAME_ENERGY, Minimum
from infonce_jax.landscape.quench import newton_polish, quench
from infonce_jax.landscape.saddles import internal_modes, internal_spectrum
from infonce_jax.landscape.symmetry import Symmetry

__all__ = ["Classes", "find_minima", "tail"]

_SAME_SPECTRUM = 1e-4
_FLAT = 1e-6  # of the largest eigenvalue


def tail(total: int) -> float:
    """Where the last tenth of the searches begins; of a short search the last ten, so that it cannot look saturated."""
    return total - max(0.1 * total, 10)


class Classes:
    """Classes of critical points by energy and spectrum, in the order of discovery.

    A flat valley has a spectrum that changes along it, so its points are one class by their energy alone.
    """

    def __init__(self) -> None:
        self.energies: list[float] = []
        self.spectra: list[np.ndarray] = []
        self.flat: list[bool] = []
        self.first_seen: list[int] = []

    def find(self, energy: float, spectrum: np.ndarray, flat: bool = False) -> int:
        """Number of the class of a critical point, -1 for a new one."""
        for k, (e, s) in enumerate(zip(self.energies, self.spectra, strict=True)):
            if abs(e - energy) >= SAME_ENERGY * (1 + abs(energy)) or flat != self.flat[k]:
                continue
            if flat or np.allclose(s, spectrum, rtol=_SAME_SPECTRUM, atol=_SAME_SPECTRUM, equal_nan=True):
                return k
        return -1

    def assign(self, energy: float, spectrum: np.ndarray, search: int, flat: bool = False) -> int:
        """Number of the class of a critical point; a new one is entered."""
        known = self.find(energy, spectrum, flat)
        if known >= 0:
            return known
        self.energies.append(energy)
        self.spectra.append(spectrum)
        self.flat.append(flat)
        self.first_seen.append(search)
        return len(self.energies) - 1


def _is_valley(energy: Energy, symmetry: Symmetry, x: np.ndarray, hessian: np.ndarray, level: float) -> bool:
    """Whether a critical point with vanishing eigenvalues is a minimum: no descent from beside it goes lower."""
    values, vectors = internal_modes(symmetry, x[None], hessian[None])
    modes = vectors[0].T[np.abs(values[0]) <= _FLAT * np.max(np.abs(hessian))]
    steps = 0.05 * np.concatenate([modes, -modes])
    sides = displace(np.broadcast_to(x, (len(steps), *x.shape)), steps)
    _, energies, _ = quench(energy, sides, gradient_below=1e-6)
    return bool(np.all(energies > level - 10 * SAME_ENERGY * (1 + abs(level))))


def find_minima(
    energy: Energy, symmetry: Symmetry, starts: np.ndarray, extra: np.ndarray
) -> tuple[list[Minimum], bool]:
    """Classes of minima below the starts and below extra configurations, and whether the last tenth brought none."""
    total = len(starts)
    x, _, _ = quench(energy, np.concatenate([starts, extra]), gradient_below=1e-5)
    x, here = newton_polish(energy, x)
    spectra = internal_spectrum(symmetry, x, here.hessian)
    norms = np.linalg.norm(here.gradient, axis=1)
    # A configuration that rotations alone can move has no internal mode, and is as stable as can be.
    lowest = np.array([np.nanmin(row) if np.isfinite(row).any() else 1.0 for row in spectra])
    scale = np.array([max(np.nanmax(np.abs(row)), 1e-12) if np.isfinite(row).any() else 1.0 for row in spectra])
    classes, members = Classes(), {}
    for p in np.flatnonzero((norms < 1e-9) & (lowest > -_FLAT * scale)):
        flat = bool(lowest[p] <= _FLAT * scale[p])
        k = classes.assign(float(here.energy[p]), spectra[p], int(p), flat)
        members.setdefault(k, []).append(p)
    minima = []
    for k, group in members.items():
        best = min(group, key=lambda p: norms[p])
        if classes.flat[k] and not _is_valley(energy, symmetry, x[best], here.hessian[best], float(here.energy[best])):
            continue
        spectrum = spectra[best][np.isfinite(spectra[best])]
        share = sum(p < total for p in group) / total
        minima.append(
            Minimum(float(here.energy[best]), x[best], spectrum, float(norms[best]), share, flat=classes.flat[k])
        )
    late = any(tail(total) <= seen < total for seen in classes.first_seen)
    return sorted(minima, key=lambda m: m.energy), not late
