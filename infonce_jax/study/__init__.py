"""The main job end to end, and the page a person reads."""

from infonce_jax.study.configuration import StudyConfiguration, standard_schedules
from infonce_jax.study.run import Study, Trapping, run_study

__all__ = ["Study", "StudyConfiguration", "Trapping", "run_study", "standard_schedules"]
