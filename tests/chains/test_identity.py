"""A chain is a function of (seed, chain) alone: batch, chunk, devices and observers do not change one bit of it."""

from __future__ import annotations

import functools
import hashlib

import jax.numpy as jnp
import numpy as np
import pytest

from infonce_jax import energies, integrators, observers, run_chains, scenarios, schedules

STEPS = 103  # no multiple of any chunk
BETA = schedules.logarithmic(1.0)


def sorted_energy(x):
    """Mixes embeddings and has no scalar form: the array path must take it."""
    return jnp.sum(jnp.sort(x[:, 0]) * jnp.arange(1.0, 4.0)) + jnp.sum(x[0] * x[1])


ENERGIES = {
    "scalars": scenarios.ring(5).energy,
    "triangle": scenarios.ring(3).energy,  # scalars too, and quicker to compile
    "arrays": energies.from_function(sorted_energy, shape=(3, 3)),
    "medium": scenarios.uniformity(16, 3, temperature=0.5).energy,  # arrays too, with the lanes last
    # Products of matrices, which XLA hands to a library: another library call for another batch changed last bits.
    "large": scenarios.uniformity(96, 4, temperature=0.5).energy,
}
SCHEMES = {
    "euler": integrators.geodesic_euler(0.03),
    "mala": integrators.mala(0.1),
    "strang": integrators.strang(0.03),
    "hmc": integrators.hmc(0.2, num_leapfrog=2),
    "kinetic": integrators.kinetic(0.1),
    "exchange": integrators.replica_exchange(integrators.geodesic_euler(0.03), (1.0, 0.4)),
}


@functools.cache
def run(energy="scalars", scheme="euler", dtype="float32", chains=7, steps=STEPS, devices=1, chunk=2048, seed=3):
    return run_chains(
        ENERGIES[energy],
        BETA,
        SCHEMES[scheme],
        num_chains=chains,
        num_steps=steps,
        seed=seed,
        dtype=dtype,
        num_devices=devices,
        chunk=chunk,
        observers=(observers.energies(times=(0.0, 0.06)),),
    )


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def assert_same_bits(small, large):
    """The chains of the smaller run are those of the larger one, positions and observations."""
    chains = len(small.final_positions)
    assert chains <= len(large.final_positions)
    assert digest(small.final_positions) == digest(large.final_positions[:chains])
    assert digest(small.data["energy"].values) == digest(large.data["energy"].values[:chains])


@pytest.mark.parametrize(
    ("energy", "path"),
    [("scalars", "scalars"), ("triangle", "scalars"), ("arrays", "arrays"), ("medium", "arrays"), ("large", "arrays")],
)
def test_each_system_takes_the_path_it_is_here_for(energy, path):
    assert run(energy, steps=3 if energy == "large" else STEPS).path == path


@pytest.mark.parametrize("energy", ["scalars", "arrays", "medium"])
def test_a_chain_does_not_depend_on_the_batch_around_it(energy):
    # 5000 is worked off in tiles, the last one filled up; vmap gave a batch of one other bits in diffrax 692.
    for chains in (1, 7, 4096):
        assert_same_bits(run(energy, chains=chains), run(energy, chains=5000))


@pytest.mark.parametrize(
    ("energy", "scheme", "dtype"),
    [
        ("triangle", "mala", "float32"),
        ("triangle", "mala", "float64"),
        ("triangle", "euler", "float64"),
        ("arrays", "mala", "float32"),
        ("arrays", "euler", "float64"),
        ("triangle", "strang", "float32"),
        ("triangle", "hmc", "float32"),
        ("triangle", "kinetic", "float32"),
        ("triangle", "exchange", "float32"),
        ("arrays", "kinetic", "float32"),
        ("arrays", "exchange", "float32"),
    ],
)
def test_a_chain_does_not_depend_on_the_batch_for_other_schemes_and_double_precision(energy, scheme, dtype):
    # 1000 lanes are one batch where code is vmapped at once, and 16 are another: the cache MALA starts with once
    # differed between them in the last bit.
    assert_same_bits(run(energy, scheme, dtype, chains=7), run(energy, scheme, dtype, chains=1000))


def test_a_chain_of_a_large_system_does_not_depend_on_the_batch():
    for chains in (1, 7, 100):
        assert_same_bits(run("large", chains=chains, steps=3), run("large", chains=300, steps=3, devices=4))


@pytest.mark.parametrize(
    ("energy", "scheme"),
    [
        ("triangle", "euler"),
        ("triangle", "mala"),
        ("arrays", "euler"),
        ("triangle", "kinetic"),
        ("arrays", "exchange"),
    ],
)
def test_a_chain_does_not_depend_on_the_chunk(energy, scheme):
    for chunk in (10, 1000):
        assert_same_bits(run(energy, scheme, chunk=chunk), run(energy, scheme))


@pytest.mark.parametrize(("energy", "chains"), [("scalars", 5000), ("triangle", 7), ("arrays", 7), ("medium", 1000)])
def test_a_chain_does_not_depend_on_the_number_of_devices(energy, chains):
    for devices in (2, 4):
        assert_same_bits(run(energy, chains=chains, devices=devices), run(energy, chains=chains))


def test_a_chain_with_a_cache_does_not_depend_on_the_number_of_devices():
    assert_same_bits(*(run("triangle", "mala", chains=1000, devices=devices) for devices in (4, 1)))


def test_a_chain_does_not_depend_on_who_watches():
    bare = run_chains(ENERGIES["triangle"], BETA, SCHEMES["euler"], num_chains=7, num_steps=STEPS, seed=3)
    assert digest(run("triangle").final_positions) == digest(bare.final_positions)


def test_a_run_twice_is_the_same_run():
    assert_same_bits(run("triangle"), run.__wrapped__("triangle"))


def test_a_longer_run_begins_with_the_shorter_one():
    # Default times of observers, chunks and the horizon all depend on the length; a chain must not.
    start = run("triangle", steps=50)
    longer = run_chains(ENERGIES["triangle"], BETA, SCHEMES["euler"], num_chains=7, num_steps=STEPS, seed=3,
                        observers=(observers.snapshots(times=50 * 0.03),))  # fmt: skip
    assert digest(longer.data["positions"].values[:, 0]) == digest(start.final_positions)


@pytest.mark.parametrize("energy", ["triangle", "arrays"])
def test_another_seed_gives_other_chains(energy):
    first, second = run(energy), run(energy, seed=4)
    # Uniform starts and noise both change: not one coordinate may coincide but by rounding.
    assert np.mean(first.final_positions == second.final_positions) < 0.01


def test_another_seed_gives_other_noise_from_the_same_start():
    start = np.tile([[1.0, 0.0]], (3, 1))
    ends = [
        run_chains(ENERGIES["triangle"], BETA, SCHEMES["euler"], num_chains=7, num_steps=STEPS, seed=s, initial=start)
        for s in (3, 4)
    ]
    assert np.mean(ends[0].final_positions == ends[1].final_positions) < 0.01


@pytest.mark.parametrize("energy", ["triangle", "arrays"])
def test_no_two_chains_are_alike_even_from_one_start(energy):
    # vmapped paths came out identical in diffrax 531.
    shape = ENERGIES[energy].shape
    start = np.eye(shape[1])[np.zeros(shape[0], dtype=int)]
    positions = run_chains(
        ENERGIES[energy], BETA, SCHEMES["euler"], num_chains=4096, num_steps=20, seed=0, initial=start
    ).final_positions
    assert len(np.unique(positions.reshape(4096, -1), axis=0)) == 4096


@pytest.mark.parametrize("scheme", ["euler", "mala"])
def test_an_annealed_run_differs_from_the_run_at_its_first_temperature(scheme):
    # GPUMD 408: a temperature changed during the run was ignored, the first value used throughout.
    constant = schedules.constant(float(BETA(0.0)))
    first_step, later = (
        [
            run_chains(ENERGIES["triangle"], beta, SCHEMES[scheme], num_chains=7, num_steps=steps, seed=3)
            for beta in (BETA, constant)
        ]
        for steps in (1, STEPS)
    )
    assert digest(first_step[0].final_positions) == digest(first_step[1].final_positions)
    assert np.mean(later[0].final_positions == later[1].final_positions) < 0.01


def test_every_step_of_an_annealed_run_has_the_temperature_of_its_time():
    # In chunks of one step no step can borrow the temperature of the chunk's first one.
    stepwise, whole = (run("triangle", steps=20, chunk=chunk) for chunk in (1, 2048))
    assert_same_bits(stepwise, whole)
