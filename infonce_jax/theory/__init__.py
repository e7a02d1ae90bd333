"""What the literature predicts, from landscapes and plain numbers; measured quantities come in as arrays."""

from infonce_jax.theory.annealing import (
    Exponent,
    Trapping,
    horizon_law,
    logarithmic_exponent,
    trapping_criterion,
    two_state_law,
)
from infonce_jax.theory.circle import Circle
from infonce_jax.theory.eyring_kramers import escape_rate, orbit_volume, rate_matrix

__all__ = [
    "Circle",
    "Exponent",
    "Trapping",
    "escape_rate",
    "horizon_law",
    "logarithmic_exponent",
    "orbit_volume",
    "rate_matrix",
    "trapping_criterion",
    "two_state_law",
]
