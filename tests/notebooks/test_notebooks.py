"""The notebooks run from top to bottom in quick mode, as Jupyter would run them, and every picture can be drawn."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"

# A cell's last expression is its output, as in a notebook: figures are drawn, and the text of each is reported.
RUNNER = """
import ast, json, sys, warnings
from pathlib import Path
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
warnings.simplefilter("error")
warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")  # see tests/conftest.py
space, drawn = {"__name__": "__main__"}, []
for number, cell in enumerate(Path(sys.argv[1]).read_text().split("# %%")):
    body = [] if cell.startswith(" [markdown]") else ast.parse(cell).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), f"cell {number}", "exec"), space)
    value = None if last is None else eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), space)
    if isinstance(value, Figure):
        FigureCanvasAgg(value).draw()
        drawn.append([text.get_text() for text in value.findobj(Text) if text.get_text().strip()])
print("FIGURES " + json.dumps(drawn))
"""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("choosing_a_temperature", [["0°", "315°"], ["temperature tau (1)", "share that ends in a trap"],
                                    ["temperature tau (1)", "loss (nats, all views)", "share of seeds saved", "step"]]),
        ("energy_barriers", [["view 0\n0°"], ["weight (rows sum to 1)"], ["global minimum\nE = 10.9232"],
                             ["arc length along the path (radians)", "energy"], ["copies, one line each"]]),
        ("hitting_times", [["angle (degrees)", "trap"], ["mean time (time units)", "exact"],
                           ["time / mean time (1)", "exponential law"], ["mean time (time units)", "corrected rates"]]),
        ("your_own_energy", [["longitude (degrees)", "latitude (degrees)"], ["time (time units)", r"$\beta$ E* (1)"],
                             ["time (time units)", "share of chains in the trap", "own: square root"]]),
    ],
)  # fmt: skip
def test_notebook_runs_and_draws(name, words):
    programs = os.path.join(os.environ["INFONCE_JAX_CACHE"], "programs")
    environment = {**os.environ, "INFONCE_JAX_QUICK": "1", "MPLBACKEND": "Agg", "JAX_COMPILATION_CACHE_DIR": programs,
                   "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}  # fmt: skip
    done = subprocess.run([sys.executable, "-c", RUNNER, str(NOTEBOOKS / f"{name}.py")], env=environment,
                          capture_output=True, text=True, timeout=600)  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    drawn = json.loads(done.stdout.rpartition("FIGURES ")[2])
    assert len(drawn) == len(words)
    for texts, wanted in zip(drawn, words, strict=True):
        assert set(wanted) <= set(texts)


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.py")), ids=lambda path: path.stem)
def test_notebook_is_text_in_short_cells(path):
    cells = path.read_text().split("# %%")[1:]
    words = [cell for cell in cells if cell.startswith(" [markdown]")]
    assert len(words) >= len(cells) // 3
    assert all(len(cell.splitlines()) <= 32 for cell in cells)
    assert 'QUICK = os.environ.get("INFONCE_JAX_QUICK") == "1"' in path.read_text()
    ast.parse(path.read_text())
