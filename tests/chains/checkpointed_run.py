"""A run that saves itself, for tests that kill it: `python checkpointed_run.py SECONDS DIRECTORY [DIRECTORY ...]`.

SECONDS lie between two checkpoints. Prints one line per directory: the digest of everything the run ended with.
"""

from __future__ import annotations

import sys

import infonce_jax as ij
from infonce_jax.fingerprint import digest
from infonce_jax.study.cache import use_cache

STEPS = 250_000


def run(directory, every):
    return ij.run_chains(
        ij.scenarios.double_well().energy,
        ij.schedules.logarithmic(0.5),
        ij.integrators.geodesic_euler(0.05),
        num_chains=48,
        num_steps=STEPS,
        seed=11,
        observers=(
            ij.observers.energies(),
            ij.observers.first_passage(energy_below=-1.2),
            ij.observers.average(lambda x, energy: energy, name="mean"),
        ),
        checkpoints=None if directory == "none" else ij.Checkpoints(directory, every),
    )


def fingerprint(run):
    return digest([run.final_positions, *(run.data[name].values for name in sorted(run.data))])


if __name__ == "__main__":
    use_cache()
    ij.use_all_cores(1)
    for directory in sys.argv[2:]:
        print(fingerprint(run(directory, float(sys.argv[1]))), flush=True)
