"""What the literature predicts, from landscapes and plain numbers; measured quantities come in as arrays."""

from infonce_jax.theory import eyring_kramers, fokker_planck, master_equation
from infonce_jax.theory.annealing import (
    Exponent,
    Trapping,
    horizon_law,
    logarithmic_exponent,
    trapping_criterion,
    two_state_law,
)
from infonce_jax.theory.circle import Circle
from infonce_jax.theory.eyring_kramers import Corrections, corrections, merged_classes, rate, rate_matrix
from infonce_jax.theory.optimal import OptimalSchedule, optimal_schedule
from infonce_jax.theory.partition import PartitionTable, orbit_volume

__all__ = [
    "Circle",
    "Corrections",
    "Exponent",
    "OptimalSchedule",
    "PartitionTable",
    "Trapping",
    "corrections",
    "eyring_kramers",
    "fokker_planck",
    "horizon_law",
    "logarithmic_exponent",
    "master_equation",
    "merged_classes",
    "optimal_schedule",
    "orbit_volume",
    "rate",
    "rate_matrix",
    "trapping_criterion",
    "two_state_law",
]
