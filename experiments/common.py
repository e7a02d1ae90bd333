"""What the experiments share: arguments, landscapes, chains with quenches, tables, files and the verdict.

An experiment is a module with three functions. `measure(quick, seed, ...)` computes rows, dictionaries of plain numbers
and words; `verdict(rows)` reads the claim off them and off nothing else; `draw(rows)` makes the figure.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import functools
import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

import infonce_jax as ij
from infonce_jax.landscape import Landscape
from infonce_jax.measure import Proportion
from infonce_jax.schedules import Schedule
from infonce_jax.study.figures import STYLE
from infonce_jax.theory import Corrections

__all__ = ["Rows", "Verdict", "columns", "corrected", "deviation", "explored", "main", "options", "predicted", "run",
           "save", "spread", "table", "trapped_shares"]  # fmt: skip

Rows = list[dict[str, Any]]

# Of 1/L, L the largest curvature at a minimum: mean energies are then a few per cent off.
STEP_OF_CURVATURE = 0.25
# What a prediction may be off by without being wrong: the exact law of the diffusion by the time step of the chains,
# one from corrected rates by what they neglect.
MODEL_ERROR = {"exact": 0.02, "corrected rates": 0.15}


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether the data bear the claim out, and one line with the numbers that say so."""

    holds: bool
    line: str

    def __str__(self) -> str:
        return f"{'HOLDS' if self.holds else 'DOES NOT HOLD'}: {self.line}"


@functools.cache
def explored(name: str, temperature: float | None = None, dim: int | None = None, seed: int = 0) -> Landscape:
    """A named landscape, searched as hard as these small ones need; another tau or dimension for rings."""
    scenario = ij.scenarios.get(name) if dim is None else ij.scenarios.ring(int(name.removeprefix("ring")), dim=dim)
    energy = scenario.energy if temperature is None else scenario.energy.with_temperature(temperature)
    return ij.landscape.explore(energy, seed, num_quenches=256, num_searches=128)


@functools.cache
def corrected(name: str) -> Corrections:
    """Measured partition functions and saddle conductances of a named landscape; a minute on two cores."""
    land = explored(name)
    free = ij.measure.basin_free_energies(land, num_chains=256, num_betas=16, num_moves=4)
    print(f"{name}: {free.statement()}", flush=True)
    return ij.theory.corrections(land, free.table)


def trapped_shares(
    land: Landscape,
    schedule: Schedule,
    times: Sequence[float] | np.ndarray,
    chains: int,
    seed: int,
    initial: Any = "uniform",
) -> tuple[np.ndarray, list[Proportion]]:
    """P(not in the global basin) after a quench under the energy of `land`, from chains stopped at given times.

    Returns:
        The times on the grid of steps, shape (k,), and a proportion for each.
    """
    h = STEP_OF_CURVATURE / land.curvature
    looks = np.round(np.asarray(times) / h)
    run = ij.run_chains(
        land.energy, schedule, ij.integrators.geodesic_euler(h), num_chains=chains, seed=seed, initial=initial,
        num_steps=int(looks[-1]), observers=(ij.observers.snapshots(looks * h),),
    )  # fmt: skip
    positions = run.data["positions"].transpose("chain", "time", "embedding", "coordinate").values
    return run.data["time"].values, ij.measure.proportions(land.basin_of(positions) != 0)


def predicted(
    land: Landscape,
    schedule: Schedule,
    times: Sequence[float] | np.ndarray,
    initial: Any = "uniform",
    corrections: Corrections | None = None,
) -> np.ndarray:
    """The same probability from theory: the Fokker-Planck equation for one embedding on the circle, rates otherwise."""
    if land.energy.shape == (1, 2):
        law = ij.theory.fokker_planck.annealed(land.energy, schedule, times, initial, cells=720)
        return law.probability(lambda x: land.basin_of(x) != 0)
    law = ij.theory.master_equation.occupancies(land, schedule, times, initial, corrections)
    return 1 - law[:, 0]


def deviation(row: dict[str, Any]) -> float:
    """Measured minus predicted share in standard errors; see MODEL_ERROR for what else the error holds."""
    p, n = row["predicted"], row["chains"]
    sampling = max(p * (1 - p), 1 / n) / n  # never less than one chain: a share of 1e-6 is no normal law
    return (row["trapped"] - p) / math.sqrt(sampling + (MODEL_ERROR[row["theory"]] * p) ** 2)


def spread(share: Proportion) -> dict[str, Any]:
    """A proportion as columns of a table."""
    return {"trapped": share.estimate, "low": share.low, "high": share.high, "chains": share.trials}


def columns(rows: Rows, *names: str) -> list[np.ndarray]:
    """Columns of rows as arrays."""
    return [np.array([row[name] for row in rows]) for name in names]


def table(rows: Rows) -> str:
    """Rows as aligned text, four significant digits."""
    cells = [[*rows[0]], *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(len(line[k]) for line in cells) for k in range(len(cells[0]))]
    return "\n".join("  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in cells)


def _cell(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)


def save(name: str, rows: Rows, verdict: Verdict, figure: Figure, directory: Path) -> None:
    """NAME.csv, NAME.json and NAME.png; what is not a number is null in the JSON."""
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    plain = [{key: None if value != value else value for key, value in row.items()} for row in rows]
    record = {"verdict": dataclasses.asdict(verdict), "rows": plain}
    (directory / f"{name}.json").write_text(json.dumps(record, indent=1, default=lambda number: number.item()))
    figure.savefig(directory / f"{name}.png", dpi=150)


def options(description: str | None, arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options that every experiment takes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/experiments"), help="directory for figures and tables")
    parser.add_argument("--quick", action="store_true", help="a small version, some seconds")
    parser.add_argument("--seed", type=int, default=0, help="of everything random")
    return parser.parse_args(arguments)


def run(experiment: Any, chosen: argparse.Namespace) -> Verdict:
    """Measure, print, save."""
    ij.use_all_cores()
    name, started = experiment.__spec__.name.rpartition(".")[2], time.perf_counter()
    print(f"\n{name}: {(experiment.__doc__ or '').strip().splitlines()[0]}", flush=True)
    rows = experiment.measure(quick=chosen.quick, seed=chosen.seed)
    verdict = experiment.verdict(rows)
    with mpl.rc_context(STYLE):
        save(name, rows, verdict, experiment.draw(rows), chosen.out)
    print(table(rows))
    print(f"{verdict}\n({time.perf_counter() - started:.0f} s; {chosen.out / name}.png, .csv, .json)", flush=True)
    return verdict


def main(experiment: Any, arguments: Sequence[str] | None = None) -> int:
    """The command line of one experiment; returns 1 when its claim does not hold."""
    return int(not run(experiment, options(experiment.__doc__, arguments)).holds)
