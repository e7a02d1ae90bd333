"""What chains tell, with intervals."""

from infonce_jax.measure.proportions import Proportion, proportion, proportions
from infonce_jax.measure.survival import ExponentialMean, Survival, exponential_mean, kaplan_meier

__all__ = ["ExponentialMean", "Proportion", "Survival", "exponential_mean", "kaplan_meier", "proportion", "proportions"]
