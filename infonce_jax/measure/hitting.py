"""Hitting times at constant temperature: many chains out of one trap, beside what theory says.

Chains start at the minimum of the trap itself. From random points of its basin a part of them crosses at once and the
law is no exponential; from the minimum there remains a short relaxation, which the test of the law leaves out.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from scipy.optimize import brentq
from scipy.stats import norm

from infonce_jax.checks import InputError, as_unit_rows, confidence, count, instance, numbers, positive, refuse
from infonce_jax.energies.base import Energy
from infonce_jax.integrators import geodesic_euler
from infonce_jax.landscape import Landscape, energies_of
from infonce_jax.landscape.network import depths
from infonce_jax.measure.exponential_law import exponential_test
from infonce_jax.measure.passages import MOST_STEPS, Ball, EnergyBelow, LaneLoop, check_target
from infonce_jax.measure.survival import exponential_mean
from infonce_jax.noise import chain_keys
from infonce_jax.theory import Circle
from infonce_jax.theory.master_equation import mean_hitting_times

__all__ = ["deepest_trap", "hitting_times", "slope_in_beta"]

# Of 1/L: at this step the Euler bias of mean energies is a few per cent.
_STEP_OF_CURVATURE = 0.2
# Relaxation times of the slowest mode, of the trap or of a saddle on its way out, that the test of the exponential law
# leaves out. Half of them for the mode to forget the start, e^{-5} < 1 %, half for the way over the saddle and down.
_RELAXATIONS = 10.0


def deepest_trap(landscape: Landscape) -> int:
    """Index of the minimum that sets E*: the least ascent to a global minimum is the highest from there.

    Raises:
        InputError: the landscape has no minimum besides the global ones, or one without a known passage.
    """
    instance("landscape", landscape, Landscape, "from landscape.explore(energy)")
    first = landscape.number_global
    if len(landscape.minima) <= first or not math.isfinite(landscape.critical_depth):
        raise refuse("landscape", f"{len(landscape.minima)} kind(s) of minima, E* = {landscape.critical_depth:g}",
                     "a trap with a known passage", "use a scenario that has one, or search more")  # fmt: skip
    return first + int(np.argmax(depths(landscape.network, [m.energy for m in landscape.minima], first)))


@dataclasses.dataclass(frozen=True, eq=False)
class _Setting:
    """What all inverse temperatures share."""

    energy: Energy
    landscape: Landscape
    source: int
    target: EnergyBelow | Ball
    step_size: float
    num_chains: int
    max_steps: int
    seed: int
    level: float

    @property
    def start(self) -> np.ndarray:
        return self.landscape.minima[self.source].position

    @property
    def cut(self) -> float:
        """Where the test of the exponential law begins, in time units."""
        beside = [s.eigenvalues for s in self.landscape.saddles if s.ends.count(self.source) == 1]
        modes = np.concatenate([self.landscape.minima[self.source].eigenvalues, *beside])
        return _RELAXATIONS / float(np.min(np.abs(modes)))


def hitting_times(
    energy: Energy,
    landscape: Landscape,
    betas: Sequence[float] | np.ndarray,
    num_chains: int = 1024,
    seed: int = 0,
    *,
    source: int | None = None,
    target: EnergyBelow | Ball | None = None,
    step_size: float | None = None,
    max_steps: int = 2_000_000,
    halve_step: bool = True,
    level: float = 0.95,
    corrected: Any = None,
) -> xr.Dataset:
    """Measure the time from a trap to a target at constant inverse temperatures, and set it beside theory.

    Geodesic Euler chains in float32 from the minimum of the trap. The step-halving check runs as many independent
    chains again at h/2: the scheme is of order 1, so 2 (mean at h - mean at h/2) estimates the bias at h, and 2 mean at
    h/2 - mean at h the mean without it. The two runs share no noise, so both have the errors that the data set states,
    sqrt(5) times that of one mean for the latter.

    Args:
        energy: the energy.
        landscape: of it, from `landscape.explore`.
        betas: distinct inverse temperatures, 1/energy.
        num_chains: per inverse temperature.
        seed: chain c at beta is a function of (seed, beta, c): other betas do not change it.
        source: index of the minimum to start from; by default the one that sets E* (`deepest_trap`).
        target: `EnergyBelow` or `Ball`; by default E <= E_min + Delta/2, Delta the height of the source above E_min.
        step_size: h, time units; by default .2/L, L the largest Hessian eigenvalue at a minimum.
        max_steps: steps of size h after which a chain is censored.
        halve_step: whether to run the check.
        level: of confidence.
        corrected: rates (1/time), shape (betas,), from basin partition functions or any better theory, to be kept
            beside the harmonic prediction.

    Returns:
        Data set over `beta` and `chain`: `time` and `censored`; over `beta`: `mean` with `mean_low`, `mean_high` (an
        exponential law with censoring), `passed`, `p_value` of the test of the exponential law on times beyond
        attribute `cut`, `tested`, `eyring_kramers` (harmonic mean time; NaN where it does not apply), `exact` (one
        embedding on the circle), `corrected` (where given), and `mean_halved`, `bias`, `bias_standard_error`,
        `mean_extrapolated`, `mean_extrapolated_standard_error` (with the check). Times in time units. Attributes: E*,
        the slope of log mean against beta with its interval, that of each prediction, step size, seed and more.

    Raises:
        InputError: arguments that cannot be used.
    """
    b = _checked_betas(betas)
    setting = _setting(energy, landscape, source, target, step_size, num_chains, max_steps, seed, level)
    rates = None if corrected is None else _checked_rates(corrected, b)
    steps = _passage_steps(setting, b, 1)
    data = _dataset(setting, b, steps)
    if halve_step:
        data = data.assign(_bias(setting, data, _passage_steps(setting, b, 2)))
    data["eyring_kramers"] = _over_beta(_harmonic(setting, b), "mean time by Eyring and Kramers, harmonic")
    data["exact"] = _over_beta([_exact(setting, beta) for beta in b], "exact mean time of the diffusion")
    if rates is not None:
        data["corrected"] = _over_beta(1 / rates, "mean time from corrected rates")
    return data.assign_attrs(_slopes(data, level))


def _checked_betas(betas: Any) -> np.ndarray:
    b = np.atleast_1d(numbers("betas", betas, "inverse temperatures, for example [5.0, 10.0]"))
    if b.ndim != 1 or not len(b) or not np.all(np.isfinite(b)) or np.any(b <= 0) or len(np.unique(b)) < len(b):
        raise refuse("betas", betas, "distinct numbers above zero", "inverse temperatures, for example [5.0, 10.0]")
    return b


def _checked_rates(corrected: Any, betas: np.ndarray) -> np.ndarray:
    rates = numbers("corrected", corrected, "one rate per beta")
    if rates.shape != betas.shape or not np.all(np.isfinite(rates)) or np.any(rates <= 0):
        raise refuse("corrected", f"shape {rates.shape}", f"{len(betas)} rates above zero", "one rate per beta")
    return rates


def _setting(
    energy: Energy,
    landscape: Landscape,
    source: int | None,
    target: EnergyBelow | Ball | None,
    step_size: float | None,
    num_chains: int,
    max_steps: int,
    seed: int,
    level: float,
) -> _Setting:
    instance("landscape", landscape, Landscape, "from landscape.explore(energy)")
    if not isinstance(energy, Energy) or energy.shape != landscape.energy.shape:
        raise refuse("energy", getattr(energy, "shape", type(energy).__name__), f"shape {landscape.energy.shape}",
                     "the energy that the landscape was explored with")  # fmt: skip
    chains, seed = count("num_chains", num_chains, least=2), count("seed", seed, least=0, mend="for example 0")
    if count("max_steps", max_steps) > MOST_STEPS // 2:
        raise refuse("max_steps", max_steps, f"at most {MOST_STEPS // 2}", "use measure.splitting for rarer passages")
    confidence("level", level)
    k = deepest_trap(landscape) if source is None else count("source", source, least=0)
    if k >= len(landscape.minima):
        raise refuse("source", k, f"0 to {len(landscape.minima) - 1}", "an index into landscape.minima")
    lowest = landscape.minima[0].energy
    if target is None:
        target = EnergyBelow((lowest + landscape.minima[k].energy) / 2)
    target = check_target(energy, target)
    if isinstance(target, EnergyBelow) and not lowest < target.level < landscape.minima[k].energy:
        raise refuse("target.level", f"{target.level:g}", f"a level from {lowest:g} to {landscape.minima[k].energy:g}",
                     "between the lowest minimum and the one to start from")  # fmt: skip
    if step_size is None:
        step_size = float(f"{_STEP_OF_CURVATURE / landscape.curvature:.2g}")
    h = positive("step_size", step_size)
    if h * landscape.curvature > 1:
        raise refuse("step_size", f"{h:g}", f"at most {1 / landscape.curvature:.3g}, 1/L for the largest curvature L",
                     f"better {_STEP_OF_CURVATURE / landscape.curvature:.2g}, or leave it out")  # fmt: skip
    return _Setting(energy, landscape, k, target, h, chains, int(max_steps), seed, level)


def _passage_steps(setting: _Setting, betas: np.ndarray, halvings: int) -> list[np.ndarray]:
    """Step of the first passage of every chain at step h/halvings, for every beta; -1 where there was none in time."""
    h = setting.step_size / halvings
    starts = np.broadcast_to(setting.start, (setting.num_chains, *setting.start.shape))
    loop = LaneLoop(setting.energy, geodesic_euler(h))
    found = []
    for beta in betas:
        words = [setting.seed, int(beta.view(np.uint64)), halvings]
        keys = chain_keys(int(np.random.SeedSequence(words).generate_state(1, np.uint64)[0]), np.arange(len(starts)))
        watcher = setting.target.watcher(h, float(beta))
        found.append(loop.run(float(beta), starts, keys, watcher, lambda step: step < 0, setting.max_steps * halvings))
    return found


def _over_beta(values: Any, long_name: str) -> xr.Variable:
    return xr.Variable(("beta",), np.asarray(values), {"long_name": long_name, "units": "time"})


def _seen(setting: _Setting, steps: np.ndarray, halvings: int) -> tuple[np.ndarray, np.ndarray]:
    """Times and whether they were cut off, from steps of size h/halvings."""
    limit = setting.max_steps * halvings
    return np.where(steps < 0, limit, steps) * (setting.step_size / halvings), steps < 0


def _dataset(setting: _Setting, betas: np.ndarray, steps: list[np.ndarray]) -> xr.Dataset:
    seen = [_seen(setting, s, 1) for s in steps]
    means = [exponential_mean(t, c, setting.level) for t, c in seen]
    tests = [exponential_test(t, c, setting.cut, setting.seed) for t, c in seen]
    note = {"long_name": "first passage time", "units": "time", "note": "where censored, the time of observation"}
    return xr.Dataset(
        {
            "time": (("beta", "chain"), np.stack([t for t, _ in seen]), note),
            "censored": (("beta", "chain"), np.stack([c for _, c in seen]), {"long_name": "no passage was seen"}),
            "mean": _over_beta([m.estimate for m in means], "mean first passage time"),
            "mean_low": _over_beta([m.low for m in means], f"lower end at {setting.level:g}"),
            "mean_high": _over_beta([m.high for m in means], f"upper end at {setting.level:g}"),
            "passed": ("beta", [m.passed for m in means], {"long_name": "passages seen"}),
            "p_value": ("beta", [t.p_value for t in tests], {"long_name": "test of the exponential law"}),
            "tested": ("beta", [t.tested for t in tests], {"long_name": "times longer than the cut"}),
        },
        {"beta": ("beta", betas, {"long_name": "inverse temperature", "units": "1/energy"}),
         "chain": np.arange(setting.num_chains)},
        {"critical_depth": setting.landscape.critical_depth, "source": setting.source,
         "target": _described(setting.target), "start": "the minimum of the source", "step_size": setting.step_size,
         "max_steps": setting.max_steps, "seed": setting.seed, "level": setting.level, "cut": setting.cut},
    )  # fmt: skip


def _described(target: EnergyBelow | Ball) -> str:
    if isinstance(target, EnergyBelow):
        return f"E <= {target.level:.6g}"
    return f"within {target.radius:g} rad of given points"


def _bias(setting: _Setting, data: xr.Dataset, halved: list[np.ndarray]) -> dict[str, xr.Variable]:
    means = [exponential_mean(*_seen(setting, steps, 2), setting.level) for steps in halved]
    coarse, fine = data["mean"].values, np.array([m.estimate for m in means])
    with np.errstate(divide="ignore", invalid="ignore"):  # no passage at all: infinite means, and no bias to speak of
        error, finer = coarse / np.sqrt(data["passed"].values), fine / np.sqrt([m.passed for m in means])
        bias, spread = 2 * (coarse - fine), 2 * np.hypot(error, finer)
        mean, whole = 2 * fine - coarse, np.hypot(error, 2 * finer)
    return {
        "mean_halved": _over_beta(fine, "mean first passage time at half the step"),
        "bias": _over_beta(bias, "bias of the mean at the step size, by halving the step"),
        "bias_standard_error": _over_beta(spread, "standard error of the bias"),
        "mean_extrapolated": _over_beta(mean, "mean first passage time, extrapolated to step 0"),
        "mean_extrapolated_standard_error": _over_beta(whole, "standard error of the extrapolated mean"),
    }


def _arrived(setting: _Setting) -> list[int]:
    """Classes of minima inside the target; none when the balls miss a copy, which a rate between classes cannot."""
    land = setting.landscape
    if isinstance(setting.target, EnergyBelow):
        return [k for k, m in enumerate(land.minima) if m.energy <= setting.target.level]
    points = as_unit_rows("target.points", setting.target.points, ndims=(2, 3)).reshape(-1, *setting.energy.shape)
    classes = land.basin_of(points).tolist()
    turning = len(land.symmetry.free) > 1  # rotations carry the minima out of any ball
    whole = all(k >= 0 and classes.count(k) == land.minima[k].copies for k in classes)
    return [] if turning or not whole else sorted(set(classes))


def _harmonic(setting: _Setting, betas: np.ndarray) -> np.ndarray:
    """Mean time of the Markov chain over classes of minima with Eyring-Kramers rates, NaN where it says nothing."""
    absorbing = _arrived(setting)
    if not absorbing or setting.source in absorbing:
        return np.full(len(betas), np.nan)
    means = []
    for beta in betas:
        try:
            means.append(mean_hitting_times(setting.landscape, beta, absorbing)[setting.source])
        except (InputError, np.linalg.LinAlgError):  # copies were not counted, or a minimum has no known way out
            means.append(math.nan)
    return np.array(means)


def _exact(setting: _Setting, beta: float) -> float:
    """Exact mean time of the diffusion, for one embedding on the circle, whatever the shape of the target."""
    if setting.energy.shape != (1, 2):
        return math.nan
    start = math.atan2(setting.start[0, 1], setting.start[0, 0])
    ends = [_first_inside(setting, start, side) for side in (-1.0, 1.0)]
    if ends[0] is None or ends[1] is None:
        return math.nan
    middle, half = (ends[0] + ends[1]) / 2, (ends[1] - ends[0]) / 2
    # The complement of the arc that the chain can wander in is a ball around the opposite point.
    return Circle(setting.energy).mean_first_passage(beta, start, middle + math.pi, math.pi - half)


def _first_inside(setting: _Setting, start: float, side: float) -> float | None:
    """The angle at which the target begins, going from the start to one side; None where there is no target."""
    target = setting.target

    def outside(turn: np.ndarray) -> np.ndarray:
        angle = start + side * turn
        x = np.stack([np.cos(angle), np.sin(angle)], axis=-1)
        if isinstance(target, EnergyBelow):
            return energies_of(setting.energy, x[:, None]) - target.level
        centres = as_unit_rows("target.points", target.points, ndims=(2, 3)).reshape(-1, 2)
        return np.min(np.arccos(np.clip(x @ centres.T, -1, 1)), axis=1) - target.radius

    grid = np.linspace(0, 2 * np.pi, 4097)
    within = np.flatnonzero(outside(grid) <= 0)
    if not len(within) or within[0] == 0:
        return None
    edge = brentq(lambda t: float(outside(np.array([t]))[0]), grid[within[0] - 1], grid[within[0]], xtol=1e-13)
    return start + side * float(np.asarray(edge))


def slope_in_beta(betas: Any, means: Any, passed: Any, level: float = 0.95) -> tuple[float, float, float]:
    """Slope of log mean against beta by weighted least squares, with its interval: the energy barrier as measured.

    The logarithm of the mean of k exponential times has variance 1/k. In units of energy. NaN with fewer than two
    temperatures that have passages.
    """
    b, m, k = (np.asarray(a, dtype=np.float64) for a in (betas, means, passed))
    use = np.isfinite(m) & (k > 0) & (m > 0)
    if use.sum() < 2:
        return math.nan, math.nan, math.nan
    b, y, w = b[use], np.log(m[use]), k[use]
    centred = b - np.average(b, weights=w)
    spread = float(np.sum(w * centred**2))
    slope = float(np.sum(w * centred * y)) / spread
    half = float(norm.ppf((1 + level) / 2)) / math.sqrt(spread)
    return slope, slope - half, slope + half


def _slopes(data: xr.Dataset, level: float) -> dict[str, float]:
    """Slopes of the measurement and of every prediction over the same temperatures with the same weights."""
    b, k = data["beta"].values, data["passed"].values
    slope, low, high = slope_in_beta(b, data["mean"].values, k, level)
    found = {"slope": slope, "slope_low": low, "slope_high": high}
    for name in ("eyring_kramers", "corrected", "exact"):
        if name in data and np.isfinite(data[name].values).all():
            found[f"slope_{name}"] = slope_in_beta(b, data[name].values, k, level)[0]
    return found
