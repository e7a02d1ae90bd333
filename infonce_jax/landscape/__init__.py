"""Minima, saddles, the network of them and the depths that annealing theory speaks of."""

from infonce_jax.landscape.derivatives import energies_of
from infonce_jax.landscape.explore import explore
from infonce_jax.landscape.model import Landscape, Minimum, Saddle
from infonce_jax.landscape.network import communicating_height
from infonce_jax.landscape.quench import newton_polish, quench
from infonce_jax.landscape.symmetry import Symmetry, find_symmetry

__all__ = ["Landscape", "Minimum", "Saddle", "Symmetry", "communicating_height", "energies_of", "explore",
           "find_symmetry", "newton_polish", "quench"]  # fmt: skip
