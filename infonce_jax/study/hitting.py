"""The command `infonce-jax hitting`: times out of a trap at constant temperatures, beside what theory says."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro
import xarray as xr

from infonce_jax import measure, theory
from infonce_jax.checks import InputError, count, positive, refuse
from infonce_jax.landscape import Landscape
from infonce_jax.scenarios import Scenario
from infonce_jax.study.run import choose_scenario, explore_scenario
from infonce_jax.theory.master_equation import mean_hitting_times

__all__ = ["HittingConfiguration", "HittingStudy", "hitting_table", "run_hitting", "write_hitting"]

_DEPTHS = "3,4,5,6"


@dataclasses.dataclass(frozen=True)
class HittingConfiguration:
    """Measure how long chains take out of the trap at constant temperatures, and compare with Eyring and Kramers."""

    scenario: str = "ring5"
    """Landscape; `infonce-jax scenarios` lists them."""
    betas: str | None = None
    """Inverse temperatures, separated by commas; these or --depths."""
    depths: str | None = None
    """The same in units of 1/E*, values of beta E*; by default 3,4,5,6."""
    num_chains: int = 1024
    """Independent chains per temperature; as many again at half the step."""
    seed: int = 0
    """Seed of everything random."""
    out: Annotated[Path | None, tyro.conf.arg(help_behavior_hint="(default: runs/SCENARIO-hitting)")] = None
    """Directory for the page, the figures and the data; made if missing."""
    step_size: float | None = None
    """Time step; by default .2 / (largest Hessian eigenvalue at a minimum)."""
    max_steps: int = 2_000_000
    """Steps after which a chain that has not arrived is censored."""
    temperature: float | None = None
    """Temperature inside the loss (tau); by default the scenario's own."""
    corrected: bool = True
    """Also predict with measured free energies of the basins, which takes half a minute or more."""

    def checked(self) -> HittingConfiguration:
        """The configuration itself.

        Raises:
            InputError: numbers out of range, or both --betas and --depths.
        """
        count("num_chains", self.num_chains, least=2, mend="use at least 2, better 1024")
        count("max_steps", self.max_steps)
        count("seed", self.seed, least=0, mend="for example 0")
        for name in ("step_size", "temperature"):
            if getattr(self, name) is not None:
                positive(name, getattr(self, name))
        if self.betas is not None and self.depths is not None:
            raise refuse("betas, depths", f"{self.betas} and {self.depths}", "one of the two", "leave one out")
        self.numbers()
        return self

    def numbers(self) -> list[float]:
        """The temperatures as given, ascending: values of beta, or of beta E* where `betas` is None."""
        name, text = ("depths", self.depths or _DEPTHS) if self.betas is None else ("betas", self.betas)
        values = [positive(name, part, "numbers above zero separated by commas, as in 5,6,7") for part in
                  text.split(",")]  # fmt: skip
        if len(set(values)) < len(values):
            raise refuse(name, text, "distinct values", "leave out the repeated ones")
        return sorted(values)


@dataclasses.dataclass(frozen=True, eq=False)
class HittingStudy:
    """What was asked and what was found.

    Attributes:
        configuration, scenario, land: the question.
        data: from `measure.hitting_times`.
        seconds: wall-clock time.
    """

    configuration: HittingConfiguration
    scenario: Scenario
    land: Landscape
    data: xr.Dataset
    seconds: float


def run_hitting(configuration: HittingConfiguration, say: Callable[[str], None] = print) -> HittingStudy:
    """Explore the landscape and measure the times.

    Raises:
        InputError: the configuration cannot be used, or the landscape has no trap.
    """
    configuration = configuration.checked()
    started = time.perf_counter()
    scenario, land = explore_scenario(configuration.scenario, configuration.temperature, configuration.seed, say)
    measure.deepest_trap(land)  # refuses a landscape without one before anything is divided by E*
    values = np.array(configuration.numbers())
    betas = values / land.critical_depth if configuration.betas is None else values
    data = measure.hitting_times(
        scenario.energy, land, betas, configuration.num_chains, configuration.seed,
        step_size=configuration.step_size, max_steps=configuration.max_steps,
        corrected=_corrected_rates(land, betas, configuration, say) if configuration.corrected else None,
    )  # fmt: skip
    say(f"{configuration.num_chains} chains per temperature from the trap to {data.attrs['target']}, "
        f"step {data.attrs['step_size']:g} time units")  # fmt: skip
    return HittingStudy(configuration, scenario, land, data, time.perf_counter() - started)


def _corrected_rates(
    land: Landscape, betas: np.ndarray, configuration: HittingConfiguration, say: Callable[[str], None]
) -> np.ndarray | None:
    """Rates out of the trap from measured free energies, shape (betas,); None where they cannot be had, and a line."""
    try:
        free = measure.basin_free_energies(land, seed=configuration.seed)
        mend = theory.corrections(land, free.table)
    except InputError as error:
        say(f"  no corrected prediction: {error}")
        return None
    say(f"  {free.statement()}")
    trap = measure.deepest_trap(land)
    return np.array([1 / mean_hitting_times(land, float(beta), corrections=mend)[trap] for beta in betas])


def number(value: float) -> str:
    """Three digits as a person writes them, a dash for what is not known."""
    from infonce_jax.study.outputs import plain

    if not math.isfinite(value):
        return "-"
    return f"-{plain(-value)}" if value < 0 else plain(value)


def rows(study: HittingStudy) -> list[dict[str, str]]:
    """The table, one temperature per row, as text."""
    table = []
    for _, at in study.data.groupby("beta", squeeze=False):
        v = {name: float(at[name].values.squeeze()) for name in at.data_vars if at[name].dims == ("beta",)}
        beta = float(at["beta"].values.squeeze())
        table.append({
            "beta": f"{beta:.3f}",
            "depth": f"{beta * study.land.critical_depth:.2f}",
            "mean": f"{number(v['mean'])} [{number(v['mean_low'])}, {number(v['mean_high'])}]",
            "censored": f"{int(at['censored'].sum())}",
            "p": "-" if math.isnan(v["p_value"]) else f"{v['p_value']:.3f} ({v['tested']:.0f})",
            "harmonic": number(v["eyring_kramers"]),
            "corrected": number(v.get("corrected", math.nan)),
            "exact": number(v["exact"]),
            "bias": f"{number(v['bias'])} ± {number(v['bias_standard_error'])}",
            "extrapolated": f"{number(v['mean_extrapolated'])} ± {number(v['mean_extrapolated_standard_error'])}",
        })  # fmt: skip
    return table


_HEADS = {
    "beta": "beta", "depth": "beta E*", "mean": "mean time [95 %]", "censored": "censored",
    "p": "p(exponential) (times)", "harmonic": "Eyring-Kramers", "corrected": "corrected", "exact": "exact",
    "bias": "bias of step", "extrapolated": "mean without it",
}  # fmt: skip


def slope_statement(study: HittingStudy) -> str:
    """The measured slope beside E* and the slopes of the predictions, in one line."""
    a = study.data.attrs
    if not math.isfinite(a["slope"]):
        return "no slope: fewer than two temperatures with passages"
    labels = {"slope_eyring_kramers": "of Eyring-Kramers", "slope_exact": "of the exact times"}
    others = [f"{label} {a[key]:.4f}" for key, label in labels.items() if key in a]
    measured = f"slope of log mean against beta {a['slope']:.4f} [{a['slope_low']:.4f}, {a['slope_high']:.4f}]"
    return f"{measured}   E* = {a['critical_depth']:.4f}" + "".join(f"   {text}" for text in others)


def hitting_table(study: HittingStudy) -> str:
    """The results as a plain table with the slope below it."""
    table = [_HEADS, *rows(study)]
    widths = {key: max(len(row[key]) for row in table) for key in _HEADS}
    lines = ["  ".join(row[key].rjust(widths[key]) for key in _HEADS) for row in table]
    return "\n".join([*lines, slope_statement(study)])


def summarise(study: HittingStudy) -> dict[str, Any]:
    """Numbers of the study as plain JSON types; what is not known is null."""
    from infonce_jax.study.outputs import environment

    configuration = dataclasses.asdict(study.configuration)
    configuration["out"] = None if configuration["out"] is None else Path(configuration["out"]).name
    over_beta = [name for name in study.data.data_vars if study.data[name].dims == ("beta",)]

    def known(value: Any) -> Any:
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return {
        "configuration": configuration,
        "environment": environment(),
        "seconds": round(study.seconds, 1),
        "scenario": {"name": study.scenario.name, "description": study.scenario.description},
        "attributes": {key: known(value) for key, value in study.data.attrs.items()},
        "beta": study.data["beta"].values.tolist(),
        **{str(name): [known(x) for x in study.data[name].values.tolist()] for name in over_beta},
    }


def write_hitting(study: HittingStudy, out: Path) -> Path:
    """Write hitting.zarr, hitting.json, the figures and, last of all, hitting.html; returns the page's path."""
    from infonce_jax.study import hitting_figures, outputs, pages

    for name in ("hitting.zarr", "hitting.json", "hitting.html", "survival.png", "arrhenius.png"):
        outputs.remove(out / name)
    summary = summarise(study)
    outputs.replace_zarr(out / "hitting.zarr", study.data.assign_attrs(summary=json.dumps(summary)))
    outputs.write_json(out / "hitting.json", summary)
    drawn = {"survival": hitting_figures.draw_survival(study.data),
             "arrhenius": hitting_figures.draw_arrhenius(study.data)}  # fmt: skip
    pictures = {name: outputs.embedded_png(figure, out / f"{name}.png") for name, figure in drawn.items()}
    page = pages.render(
        "hitting.html", study=study, land=study.land, data=study.data, summary=summary, pictures=pictures,
        rows=rows(study), heads=_HEADS, slope=slope_statement(study),
    )  # fmt: skip
    return pages.replace_text(out / "hitting.html", page)


def command(configuration: HittingConfiguration) -> int:
    """Run, print and write; the exit code."""
    from infonce_jax.study import outputs

    configuration = configuration.checked()
    choose_scenario(configuration.scenario, configuration.temperature)
    default = Path("runs") / f"{Path(configuration.scenario.partition(':')[0]).stem}-hitting"
    out = outputs.prepare_directory(configuration.out or default)
    try:
        study = run_hitting(configuration)
    except RuntimeError as error:
        raise InputError(f"step_size: {error}") from error
    print(hitting_table(study))
    page = write_hitting(study, out)
    print(f"{study.seconds:.0f} s; page: {page}")
    return 0
