"""Saddles of index 1 by eigenvector following, many searches at a time, with rotations kept out."""

from __future__ import annotations

import dataclasses

import numpy as np

from infonce_jax.energies.base import Energy
from infonce_jax.landscape.derivatives import Derivatives, derivatives, displace, frame
from infonce_jax.landscape.quench import newton_polish
from infonce_jax.landscape.symmetry import Symmetry

__all__ = ["SaddlePoints", "find_saddles", "internal_modes", "internal_spectrum"]

_ITERATIONS = 150
_LONGEST_STEP = 0.25  # radians, the length of a step over all embeddings together
_CONVERGED = 1e-8


@dataclasses.dataclass(frozen=True)
class SaddlePoints:
    """Points with exactly one negative eigenvalue.

    Attributes:
        positions: shape (points, n, d).
        energies: shape (points,).
        spectra: eigenvalues without those of rotations, shape (points, modes), ascending; padded with NaN.
        directions: unit tangent coordinates of the unstable mode, shape (points, n(d-1)).
        searches: which search found each, so that late finds can be told.
    """

    positions: np.ndarray
    energies: np.ndarray
    spectra: np.ndarray
    directions: np.ndarray
    searches: np.ndarray


def _orbit_projectors(symmetry: Symmetry, x: np.ndarray) -> np.ndarray:
    """Projectors onto the directions of rotations in tangent coordinates, shape (points, m, m), for whole batches."""
    points, n, d = x.shape
    generators = symmetry.generators
    m = n * (d - 1)
    if not len(generators):
        return np.zeros((points, m, m))
    moves = np.einsum("pnd,ged->pgne", x, generators)
    flat = np.stack([frame(x, moves[:, g]) for g in range(len(generators))], axis=1)
    _, sizes, rows = np.linalg.svd(flat, full_matrices=False)
    rows = np.where(sizes[..., None] > 1e-6, rows, 0.0)
    return np.einsum("pgi,pgj->pij", rows, rows)


def internal_spectrum(symmetry: Symmetry, x: np.ndarray, hessians: np.ndarray) -> np.ndarray:
    """Hessian eigenvalues without the zeros that rotations cause, ascending, padded at the end with NaN.

    Args:
        symmetry: of the energy.
        x: shape (points, n, d).
        hessians: shape (points, m, m).
    """
    projectors = _orbit_projectors(symmetry, x)
    # Rotations move to the far end of the spectrum, where they are cut off by their number.
    values = np.linalg.eigvalsh(hessians + 1e6 * projectors)
    ranks = np.rint(np.trace(projectors, axis1=1, axis2=2)).astype(int)
    for row, rank in zip(values, ranks, strict=True):
        if rank:
            row[-rank:] = np.nan
    return values


def internal_modes(symmetry: Symmetry, x: np.ndarray, hessians: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues, ascending, and eigenvectors in columns, with the directions of rotations moved to the far end."""
    return np.linalg.eigh(hessians + 1e6 * _orbit_projectors(symmetry, x))


def _ascend_one_descend_rest(here: Derivatives, projectors: np.ndarray) -> np.ndarray:
    """Newton steps that climb along the lowest internal mode and go down along all others."""
    values, vectors = np.linalg.eigh(here.hessian + 1e6 * projectors)
    slope = np.einsum("pij,pi->pj", vectors, here.gradient)
    scale = np.maximum(np.abs(values), 1e-3 * np.max(np.abs(here.hessian), axis=(1, 2))[:, None])
    step = -slope / scale
    step[:, 0] *= -1
    length = np.linalg.norm(step, axis=1, keepdims=True)
    step *= np.minimum(1.0, _LONGEST_STEP / np.maximum(length, 1e-300))
    return np.einsum("pij,pj->pi", vectors, step)


def find_saddles(energy: Energy, symmetry: Symmetry, starts: np.ndarray) -> SaddlePoints:
    """Search for index-1 saddles from every start, shape (points, n, d).

    Each search follows the lowest internal mode uphill and all others downhill (Cerjan and Miller 1981; Wales 2003,
    "Energy landscapes", section 6.2) and is then polished by Newton's method. What converges to a point of another
    index is dropped.
    """
    x = starts.copy()
    active, done = np.arange(len(x)), np.zeros(len(x), dtype=bool)
    for _ in range(_ITERATIONS):
        here = derivatives(energy, x[active])
        converged = np.linalg.norm(here.gradient, axis=1) < _CONVERGED
        done[active[converged]] = True
        active = active[~converged]
        if not len(active):
            break
        kept = Derivatives(here.energy[~converged], here.gradient[~converged], here.hessian[~converged])
        x[active] = displace(x[active], _ascend_one_descend_rest(kept, _orbit_projectors(symmetry, x[active])))
    searches = np.flatnonzero(done)
    m = starts[0].size - len(starts[0])
    none = SaddlePoints(starts[:0], np.zeros(0), np.zeros((0, m)), np.zeros((0, m)), searches[:0])
    if not len(searches):
        return none
    x, here = newton_polish(energy, x[searches])
    spectra = internal_spectrum(symmetry, x, here.hessian)
    with np.errstate(invalid="ignore"):
        index_one = np.sum(spectra < -1e-6 * np.max(np.nan_to_num(np.abs(spectra)), axis=1, keepdims=True), axis=1) == 1
    index_one &= np.linalg.norm(here.gradient, axis=1) < 1e-9
    if not index_one.any():
        return none
    x, spectra, hessians = x[index_one], spectra[index_one], here.hessian[index_one]
    _, vectors = internal_modes(symmetry, x, hessians)
    return SaddlePoints(x, here.energy[index_one], spectra, vectors[:, :, 0], searches[index_one])
