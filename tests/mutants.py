"""Break the package on purpose, one line at a time, and see that the tests notice: `make mutants`.

A mutant replaces one piece of text in one file by another, in a temporary copy of the checkout, and the tests named
beside it are run there until the first one fails. Before that the same tests are run without any mutant: only a failure
that the mutant brings counts. A mutant that survives marks a fault that nobody would have found.

    python -m tests.mutants [--only NAME ...] [--jobs 2] [--list]
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

__all__ = ["MUTANTS", "Mutant", "main"]

ROOT = Path(__file__).resolve().parent.parent
_COPIED = ("infonce_jax", "tests", "pyproject.toml", "README.md")
_LONGEST = 600.0  # seconds; a test that a mutant makes run for ever has noticed it, but says so as a survivor


class Mutant(NamedTuple):
    """One change and who should see it.

    Attributes:
        name: in words.
        file: relative to `infonce_jax/`.
        old: text that occurs exactly once in the file.
        new: what stands there instead.
        tests: a file, relative to `tests/`, and if not all of it, "-k" and which of its tests.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


_DYNAMICS, _NOISE = "integrators/test_steps.py", "test_noise.py"
_DEPTHS = ("landscape/test_quench.py", "-k", "depth or communicating")
_RATES = "theory/test_rates.py"

MUTANTS = (
    # Dynamics.
    Mutant("drift sign", "integrators/protocol.py",
           "noise - step_size * gradient)", "noise + step_size * gradient)",
           (_DYNAMICS, "-k", "follows_the_gradient")),
    Mutant("noise scale without sqrt 2", "integrators/protocol.py",
           "return jnp.sqrt(2 * s)\n", "return jnp.sqrt(s)\n",
           (_DYNAMICS, "-k", "decay_as_tabulated")),
    Mutant("noise grows with beta", "integrators/protocol.py",
           "s = step_size / beta\n", "s = step_size * beta\n",
           (_DYNAMICS, "-k", "quotient")),
    Mutant("no tangent projection", "integrators/protocol.py",
           "v = to_tangent(x, brownian_scale(", "v = (lambda _, w: w)(x, brownian_scale(",
           (_DYNAMICS, "-k", "follows_the_gradient or hottest")),
    Mutant("no renormalisation", "integrators/protocol.py",
           "return renormalise(cosine * x + sinc * v)", "return cosine * x + sinc * v",
           (_DYNAMICS, "-k", "keeps_its_norms")),
    Mutant("noise correction of the other sign", "integrators/geodesic_euler.py",
           "lambda d: -(d - 2) / 3", "lambda d: (d - 2) / 3",
           (_DYNAMICS, "-k", "decay_as_tabulated")),
    Mutant("MALA accepts what it should reject", "integrators/mala.py",
           "noise.uniform < acceptance", "noise.uniform > acceptance",
           (_DYNAMICS, "-k", "moves_where")),
    Mutant("MALA without the way back", "integrators/mala.py",
           "- jnp.sum((back - back_drift) ** 2)", "- jnp.sum((v - drift) ** 2)",
           (_DYNAMICS, "-k", "detailed_balance")),
    Mutant("MALA moves beyond the cut locus", "integrators/mala.py",
           "< np.pi**2)", "< 16 * np.pi**2)",
           (_DYNAMICS, "-k", "moves_of_pi")),
    Mutant("acceptance of the other sign", "integrators/protocol.py",
           "jnp.where(possible, log_ratio, 0.0)", "jnp.where(possible, -log_ratio, 0.0)",
           ("integrators/test_protocol.py", "-k", "accepts_gains")),
    Mutant("HMC momentum grows with beta", "integrators/hmc.py",
           "noise.normal) / jnp.sqrt(beta)", "noise.normal) * jnp.sqrt(beta)",
           ("integrators/test_protocol.py", "-k", "units and hmc")),
    Mutant("kinetic noise of gamma, not 2 gamma", "integrators/kinetic.py",
           "math.expm1(-2 * friction * h)", "math.expm1(-friction * h)",
           ("integrators/test_kinetic.py", "-k", "tabulated or forgets")),
    Mutant("swaps of the other sign", "integrators/replica_exchange.py",
           "* (values[:-1] - values[1:])", "* (values[1:] - values[:-1])",
           ("integrators/test_replica_exchange.py", "-k", "definition")),
    # Random numbers.
    Mutant("the counter forgets the step", "noise.py",
           "first, second = threefry((keys[0], keys[1]), (step, index))",
           "first, second = threefry((keys[0], keys[1]), (0 * step, index))",
           (_NOISE, "-k", "consecutive or never_share")),
    Mutant("threefry rotation", "noise.py",
           "((13, 15, 26, 6)", "((13, 15, 26, 7)",
           (_NOISE, "-k", "threefry")),
    Mutant("Box-Muller quadrant", "noise.py",
           "odd = (quarter & jnp.uint32(1)) == 1", "odd = (quarter & jnp.uint32(1)) == 0",
           (_NOISE, "-k", "axes or edges")),
    Mutant("Box-Muller radius", "noise.py",
           "jnp.sqrt(-2 * jnp.log(", "jnp.sqrt(-jnp.log(",
           (_NOISE, "-k", "moments")),
    # Chains.
    Mutant("tiles get each other's keys", "chains/engine.py",
           "keys.reshape(2, tiles, tile).transpose(1, 0, 2)", "keys.reshape(tiles, 2, tile)",
           ("chains/test_identity.py", "-k", "batch_around_it")),
    Mutant("the clock starts again with each chunk", "chains/loop.py",
           "times = (self.step + np.arange(steps, dtype=np.float64))", "times = np.arange(steps, dtype=np.float64)",
           ("chains/test_identity.py", "-k", "temperature_of_its_time or annealed_run_differs or on_the_chunk")),
    Mutant("blocks of chains with the keys of the first", "chains/loop.py",
           "owners = self.first + np.where(", "owners = np.where(",
           ("test_properties.py", "-k", "batches")),
    Mutant("Kahan compensation of the other sign", "chains/observers.py",
           "jnp.where(active, value - lost, -lost)", "jnp.where(active, value + lost, lost)",
           ("chains/test_observers.py", "-k", "average_stays_exact")),
    Mutant("first passage one step late", "chains/observers.py",
           "& hit, seen.step, carry)", "& hit, seen.step + 1, carry)",
           ("chains/test_observers.py", "-k", "first_step_below")),
    # Geometry, energies, schedules.
    Mutant("curvature of the sphere of the other sign", "sphere.py",
           "- jnp.diag(jnp.repeat(radial, d - 1))", "+ jnp.diag(jnp.repeat(radial, d - 1))",
           ("test_sphere.py", "-k", "minus_the_radial_one")),
    Mutant("the anchor among its own candidates", "energies/graph.py",
           "plain = np.concatenate([1 - np.eye(n),", "plain = np.concatenate([np.ones((n, n)),",
           ("energies/test_graph.py", "-k", "formula")),
    Mutant("coupled mode without tau", "energies/graph.py",
           "times_temperature=True", "times_temperature=False",
           ("energies/test_graph.py", "-k", "coupled")),
    Mutant("offset of the logarithm", "schedules.py",
           "np.log(offset + t / t0) / c", "np.log1p(offset + t / t0) / c",
           ("test_schedules.py",)),
    Mutant("base of the logarithm", "schedules.py",
           "np.log(offset + t / t0) / c", "np.log10(offset + t / t0) / c",
           ("test_schedules.py",)),
    # Landscape.
    Mutant("E* from the wrong side", "landscape/network.py",
           "for g in range(number_global)) - energies[k]", "for g in range(number_global)) - energies[0]", _DEPTHS),
    Mutant("E* of the shallowest trap", "landscape/network.py",
           "return max(depths(graph,", "return min(depths(graph,", _DEPTHS),
    Mutant("m from another energy", "landscape/network.py",
           "*(height - energies[0] for height in heights)", "*(height - energies[-1] for height in heights)", _DEPTHS),
    Mutant("a quench that stops early", "landscape/quench.py",
           "arrived = norm < self.gradient_below\n", "arrived = norm < 1e3 * self.gradient_below\n",
           ("landscape/test_quench.py", "-k", "gradient_is_small")),
    Mutant("saddles of any index", "landscape/saddles.py",
           "keepdims=True), axis=1) == 1\n", "keepdims=True), axis=1) >= 1\n",
           ("landscape/test_saddles.py",)),
    Mutant("curvature of the flattest minimum", "landscape/explore.py",
           "curvature = max(float(np.max(minimum.eigenvalues", "curvature = min(float(np.max(minimum.eigenvalues",
           ("landscape/test_saddles.py",)),
    # Theory.
    Mutant("Eyring-Kramers prefactor", "theory/eyring_kramers.py",
           "np.log(unstable / (2 * math.pi))", "np.log(unstable / math.pi)",
           (_RATES, "-k", "double_well_formula")),
    Mutant("rates without detailed balance", "theory/eyring_kramers.py",
           "q[j, i] += math.exp(log - basins[j])", "q[j, i] += math.exp(log - basins[i])",
           (_RATES, "-k", "detailed_balance")),
    Mutant("classes merged from the lower side", "theory/eyring_kramers.py",
           "saddle.energy - max(landscape.minima[end].energy for end in saddle.ends) < height",
           "saddle.energy - min(landscape.minima[end].energy for end in saddle.ends) < height",
           (_RATES, "-k", "higher_of_its_minima")),
    Mutant("trapped whatever the depth", "theory/annealing.py",
           "if ratio > 1 else math.inf", "if ratio > 0 else math.inf",
           (_RATES, "-k", "trapping")),
    # Measurements.
    Mutant("interval of another level", "measure/proportions.py",
           "confidence_level=level, method=method", "confidence_level=level**2, method=method",
           ("measure/test_intervals.py", "-k", "wilson or clopper")),
    Mutant("mean of the times seen only", "measure/survival.py",
           "total, passed = float(t.sum()),", "total, passed = float(t[~c].sum()),",
           ("measure/test_intervals.py", "-k", "exponential_mean")),
    Mutant("continuity correction of the other sign", "measure/passages.py",
           "self.radius + float(wider)", "self.radius - float(wider)",
           ("measure/test_passages.py",)),
)  # fmt: skip


def text_of(mutant: Mutant) -> str:
    """The file that a mutant changes, as it is.

    Raises:
        SystemExit: the text to replace does not stand there exactly once.
    """
    text = (ROOT / "infonce_jax" / mutant.file).read_text()
    if text.count(mutant.old) != 1:
        raise SystemExit(f"{mutant.name}: its text stands {text.count(mutant.old)} times in {mutant.file}, needs once")
    return text


def _copy(directory: Path) -> Path:
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, directory / name)
    return directory


def _pytest(copy: Path, tests: tuple[str, ...]) -> tuple[int, str]:
    """Exit code and output of the tests in a copy; the copy comes before whatever is installed."""
    where = [f"tests/{word}" if ".py" in word else word for word in tests]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", *where]
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("INFONCE_JAX_CACHE", None)  # landscapes found by the code as it should be
    try:
        done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=_LONGEST)
    except subprocess.TimeoutExpired:
        return -1, f"no end after {_LONGEST:g} s"
    return done.returncode, done.stdout + done.stderr


def _verdict(mutant: Mutant) -> tuple[str, float]:
    """Name of the test that noticed, or a line in capitals, and seconds."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        copy = _copy(Path(directory))
        (copy / "infonce_jax" / mutant.file).write_text(text_of(mutant).replace(mutant.old, mutant.new))
        code, output = _pytest(copy, mutant.tests)
    failed = re.search(r"^FAILED (?:tests/)?(\S+)|^ERROR (?:tests/)?(\S+)", output, re.MULTILINE)
    # 1 is a failed test; anything else than that or success means that the tests were not run.
    if code == 1 and failed:
        result = failed[1] or failed[2]
    else:
        result = "SURVIVED" if code == 0 else f"NOT RUN: {output.strip().splitlines()[-1] if output.strip() else code}"
    return result, time.perf_counter() - began


def _sound(mutants: list[Mutant], jobs: int) -> bool:
    """Whether the tests pass without a mutant, each file once."""
    wanted: dict[str, set[str]] = {}
    for file, *selection in (mutant.tests for mutant in mutants):
        wanted.setdefault(file, set()).add(selection[-1] if selection else "")
    # An empty selection is the whole file.
    sets = [(file, *(() if "" in words else ("-k", " or ".join(f"({word})" for word in sorted(words)))))
            for file, words in wanted.items()]  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="mutant-") as directory:
        copy = _copy(Path(directory))
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            outcomes = list(pool.map(lambda tests: _pytest(copy, tests), sets))
    for tests, (code, output) in zip(sets, outcomes, strict=True):
        if code != 0:
            print(f"{' '.join(tests)} fails without any mutant:\n{output[-1500:]}")
    return all(code == 0 for code, _ in outcomes)


def main(arguments: list[str] | None = None) -> int:
    """Run the mutants and print who noticed; 1 if one survives, if the tests fail without one, or for a bad table."""
    parser = argparse.ArgumentParser(
        prog="make mutants", description="Break one line at a time; the tests must notice."
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="mutants whose name contains one of these words")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time (default: 2)")
    parser.add_argument("--list", action="store_true", help="list them and stop")
    options = parser.parse_args(arguments)
    chosen = [m for m in MUTANTS if options.only is None or any(word in m.name for word in options.only)]
    if not chosen:
        parser.error(f"no mutant has a name with {' or '.join(options.only)}; --list shows them")
    for mutant in chosen:
        text_of(mutant)
        if options.list:
            print(f"{mutant.name:45s} {mutant.file}")
    if options.list:
        return 0
    began = time.perf_counter()
    if not _sound(chosen, options.jobs):
        return 1
    print(f"the tests pass without a mutant ({time.perf_counter() - began:.0f} s)\n")
    missed = 0
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for mutant, (result, seconds) in zip(chosen, pool.map(_verdict, chosen), strict=True):
            print(f"{mutant.name:45s} {seconds:5.0f} s  {result}", flush=True)
            missed += result.startswith(("SURVIVED", "NOT RUN"))
    print(f"\n{len(chosen) - missed} of {len(chosen)} caught in {time.perf_counter() - began:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
