"""What chains tell, with intervals."""

from infonce_jax.measure import reaction_coordinates
from infonce_jax.measure.exponential_law import ExponentialTest, exponential_test
from infonce_jax.measure.free_energy import BasinFreeEnergies, ConfinedMeans, basin_free_energies
from infonce_jax.measure.hitting import deepest_trap, hitting_times
from infonce_jax.measure.passages import Ball, EnergyBelow
from infonce_jax.measure.proportions import Proportion, proportion, proportions
from infonce_jax.measure.splitting import Splitting, splitting
from infonce_jax.measure.survival import ExponentialMean, Survival, exponential_mean, kaplan_meier

__all__ = [
    "Ball",
    "BasinFreeEnergies",
    "ConfinedMeans",
    "EnergyBelow",
    "ExponentialMean",
    "ExponentialTest",
    "Proportion",
    "Splitting",
    "Survival",
    "basin_free_energies",
    "deepest_trap",
    "exponential_mean",
    "exponential_test",
    "hitting_times",
    "kaplan_meier",
    "proportion",
    "proportions",
    "reaction_coordinates",
    "splitting",
]
