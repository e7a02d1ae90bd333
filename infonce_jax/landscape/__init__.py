"""Minima, saddles, the network of them and the depths that annealing theory speaks of."""

from infonce_jax.landscape.band import ElasticBand, elastic_band
from infonce_jax.landscape.branches import Bifurcation, Branch
from infonce_jax.landscape.continuation import Continuation, Descent, continuation
from infonce_jax.landscape.derivatives import energies_of
from infonce_jax.landscape.disconnectivity import DisconnectivityTree, TreeNode, disconnectivity
from infonce_jax.landscape.explore import explore
from infonce_jax.landscape.following import Jump, Multistart
from infonce_jax.landscape.model import Landscape, Minimum, Saddle
from infonce_jax.landscape.network import communicating_height
from infonce_jax.landscape.passages import Depths
from infonce_jax.landscape.paths import SaddleCheck, SaddleTable, barrier_saddles, check_saddles, path
from infonce_jax.landscape.quench import newton_polish, quench
from infonce_jax.landscape.reaction import ReactionPath, steepest_descent_path
from infonce_jax.landscape.symmetry import Symmetry, find_symmetry
from infonce_jax.landscape.trap_free import TrapFree, trap_free_temperature

__all__ = ["Bifurcation", "Branch", "Continuation", "Depths", "Descent", "DisconnectivityTree", "ElasticBand", "Jump",
           "Landscape", "Minimum", "Multistart", "ReactionPath", "Saddle", "SaddleCheck", "SaddleTable", "Symmetry",
           "TrapFree", "TreeNode", "barrier_saddles", "check_saddles", "communicating_height", "continuation",
           "disconnectivity", "elastic_band", "energies_of", "explore", "find_symmetry", "newton_polish", "path",
           "quench", "steepest_descent_path", "trap_free_temperature"]  # fmt: skip
