"""Minima, saddles, the network of them and the depths that annealing theory speaks of."""

from infonce_jax.landscape.band import ElasticBand, elastic_band
from infonce_jax.landscape.derivatives import energies_of
from infonce_jax.landscape.disconnectivity import DisconnectivityTree, TreeNode, disconnectivity
from infonce_jax.landscape.explore import explore
from infonce_jax.landscape.model import Landscape, Minimum, Saddle
from infonce_jax.landscape.network import communicating_height
from infonce_jax.landscape.paths import SaddleCheck, SaddleTable, barrier_saddles, check_saddles, path
from infonce_jax.landscape.quench import newton_polish, quench
from infonce_jax.landscape.reaction import ReactionPath, steepest_descent_path
from infonce_jax.landscape.symmetry import Symmetry, find_symmetry

__all__ = ["DisconnectivityTree", "ElasticBand", "Landscape", "Minimum", "ReactionPath", "Saddle", "SaddleCheck",
           "SaddleTable", "Symmetry", "TreeNode", "barrier_saddles", "check_saddles", "communicating_height",
           "disconnectivity", "elastic_band", "energies_of", "explore", "find_symmetry", "newton_polish", "path",
           "quench", "steepest_descent_path"]  # fmt: skip
