"""Pure functions of one configuration: embeddings to a scalar."""

from infonce_jax.energies.base import Energy, FunctionEnergy, from_function
from infonce_jax.energies.graph import GraphInfoNCE, graph_infonce

__all__ = ["Energy", "FunctionEnergy", "GraphInfoNCE", "from_function", "graph_infonce"]
