"""What the literature predicts, from landscapes and plain numbers; measured quantities come in as arrays."""

from infonce_jax.theory.circle import Circle
from infonce_jax.theory.eyring_kramers import escape_rate, orbit_volume, rate_matrix

__all__ = ["Circle", "escape_rate", "orbit_volume", "rate_matrix"]
