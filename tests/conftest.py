"""What all tests share: examples of hypothesis, four devices, compiled programs, landscapes, and one exact result.

Hypothesis draws the same examples on every run, and a first compilation may take its time.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import time

import hypothesis
import jax
import numpy as np
import pytest
import threadpoolctl

import infonce_jax as ij
from infonce_jax.study import cache

hypothesis.settings.register_profile(
    "fixed", derandomize=True, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("fixed")

# Four devices on any machine, for the tests that compare device counts. Started here, since a test of the command line
# would otherwise start as many as there are cores.
jax.config.update("jax_num_cpu_devices", 4)
assert len(jax.devices("cpu")) == 4
DAY = 86_400.0  # seconds

# Files that take half a minute or more of processor time each, three minutes the first.
LONGEST = (
    "experiments/test_experiments.py", "notebooks/test_notebooks.py", "measure/test_corrected_rates.py",
    "integrators/test_protocol.py", "study/test_command_line.py", "chains/test_identity.py",
    "chains/test_statistics.py", "measure/test_hitting.py", "measure/test_splitting.py",
    "landscape/test_known_landscapes.py", "landscape/test_paths.py", "study/test_prediction.py",
    "measure/test_free_energy.py", "study/test_hitting_command.py", "landscape/test_continuation.py",
    "encoders/test_training.py", "study/test_train_command.py", "study/test_moving_temperature.py",
)  # fmt: skip

# One thread for matrices, here and in commands started by tests. Threads of two workers that share two cores wait for
# each other: the eigenvalues of a matrix of 512 rows took thirty times as long.
threadpoolctl.threadpool_limits(1, user_api="blas")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def pytest_configure(config):
    """Compiled programs and explored landscapes live in one directory, for all workers and all commands under test.

    It is new in every session, so that no result comes from an earlier one. A developer who wants to keep it names one
    in INFONCE_JAX_CACHE.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a shell starts what it puts into the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config.option, "loadscopereorder"):  # of xdist: would put files with few tests last, however long
        config.option.loadscopereorder = False
    if "INFONCE_JAX_CACHE" not in os.environ:  # not a worker, which inherits it
        parent = config.rootpath / ".pytest_cache"
        for left in parent.glob("infonce_jax_*"):  # by sessions that were killed
            if time.time() - left.stat().st_mtime > DAY:
                shutil.rmtree(left, ignore_errors=True)
        own = parent / f"infonce_jax_{os.getpid()}"
        os.environ["INFONCE_JAX_CACHE"] = str(own)
        config.add_cleanup(lambda: shutil.rmtree(own, ignore_errors=True))
        config.add_cleanup(lambda: os.environ.pop("INFONCE_JAX_CACHE", None))
    cache.use_cache()
    # A command leaves out what compiles fast. Here the small programs come by the hundred, in every worker anew: 85 ms
    # of processor time each, 16 where they are read, 3 to write.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    # JAX does not write its files in one piece: one that another process reads too early is compiled instead.
    config.addinivalue_line("filterwarnings", "ignore:Error (reading|writing) persistent compilation cache entry")


def pytest_collection_modifyitems(items):
    """The longest files first, so that no worker is left alone with one of them at the end."""
    ranks = {name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(f"{item.path.parent.name}/{item.path.name}", len(ranks)))


@functools.cache
def _explored(name):
    # As many as find all that is known of each of them: landscape/test_known_landscapes.py.
    return cache.explored(ij.scenarios.get(name).energy, seed=0, num_quenches=1024, num_searches=768)


@pytest.fixture(scope="session")
def explored():
    """The landscape of a scenario, by name; searched once in a session."""
    return _explored


@pytest.fixture(scope="session")
def well():
    """The landscape of the double well."""
    return _explored("double_well")


@pytest.fixture(scope="session")
def ring5():
    """The landscape of five embeddings on a ring."""
    return _explored("ring5")


@pytest.fixture(scope="session")
def triangle():
    """The landscape of three embeddings on the circle, mean over anchors, tau = .5, of THEORY section 2."""
    energy = ij.energies.uniformity_energy(3, 2, temperature=0.5, reduction="mean")
    return cache.explored(energy, seed=0, num_quenches=128, num_searches=128)


@pytest.fixture(scope="session")
def exact_log_z(well):
    """log Z of the two basins of the double well, global one first, by Gauss-Legendre quadrature; takes beta."""
    low, high = np.deg2rad([-176.52545468418643, -13.987552870473186])  # maxima, theory.json s1_fixed
    nodes, weights = np.polynomial.legendre.leggauss(400)
    arcs = [(a, b, ij.theory.Circle(well.energy).energy_at(a + (b - a) * (nodes + 1) / 2))
            for a, b in ((high, low + 2 * np.pi), (low, high))]  # fmt: skip

    def log_z(beta):
        logs = []
        for a, b, energies in arcs:
            floor = energies.min()
            logs.append(np.log(np.sum(weights * np.exp(-beta * (energies - floor))) * (b - a) / 2) - beta * floor)
        return np.array(logs)

    return log_z
