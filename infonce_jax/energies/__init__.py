"""Pure functions of one configuration: embeddings to a scalar.

Energies, for chains, are pytrees with a `shape`; losses, for training and testing, are plain functions of one or two
views in `losses`, `reweighted` and `non_contrastive`.
"""

from infonce_jax.energies import losses, non_contrastive, reweighted
from infonce_jax.energies.base import Energy, FunctionEnergy, from_function
from infonce_jax.energies.family import (
    AlignmentUniformity,
    alignment_uniformity_energy,
    clip_energy,
    decoupled_energy,
    join_views,
    nt_xent_energy,
    one_way_energy,
    pair_sum_energy,
    queue_energy,
    split_views,
    sup_con_energy,
    uniformity_energy,
)
from infonce_jax.energies.graph import GraphInfoNCE, graph_infonce

__all__ = [
    "AlignmentUniformity",
    "Energy",
    "FunctionEnergy",
    "GraphInfoNCE",
    "alignment_uniformity_energy",
    "clip_energy",
    "decoupled_energy",
    "from_function",
    "graph_infonce",
    "join_views",
    "losses",
    "non_contrastive",
    "nt_xent_energy",
    "one_way_energy",
    "pair_sum_energy",
    "queue_energy",
    "reweighted",
    "split_views",
    "sup_con_energy",
    "uniformity_energy",
]
