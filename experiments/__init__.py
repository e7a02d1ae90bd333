"""One file per claim of the literature: `python -m experiments.NAME`, or `python -m experiments` for all of them."""

NAMES = (
    "threshold",
    "exponent",
    "arrhenius",
    "fixed_or_horizon",
    "one_more_dimension",
    "barrier_against_setting",
    "annealing_tau",
    "trapped_encoders",
    "starting_temperature",
    "recipe_temperatures",
)
