"""What a reader meets in the pictures of a landscape: names, units, and numbers short enough to read."""

from __future__ import annotations

import dataclasses
import itertools
import re

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

import infonce_jax as ij
from infonce_jax.study import cli
from infonce_jax.study.landscape_figures import disconnectivity_figure, path_figure


@pytest.fixture(scope="module")
def path(ring5):
    return ij.landscape.steepest_descent_path(ring5, 1, 51)


def _texts(figure):
    FigureCanvasAgg(figure).draw()
    return [text.get_text() for text in figure.findobj(Text) if text.get_text()]


def test_disconnectivity_figure_names_minima_and_e_star(ring5):
    figure = disconnectivity_figure(ring5)
    texts = _texts(figure)
    assert {"energy", "E* = 0.663", "global\n3.973", "trap\n6.172", "global minimum: 2", "trap: 10"} <= set(texts)
    assert not any(re.search(r"\d\.\d{4,}", text) for text in texts)
    classes, copies = figure.axes
    leaves = [[line for line in axes.lines if line.get_marker() == "o"] for axes in (classes, copies)]
    assert [len(found) for found in leaves] == [2, 12]
    assert sorted(float(line.get_ydata()[0]) for line in leaves[0]) == pytest.approx(
        [3.973452766, 6.172038470], abs=1e-6
    )


def test_path_figure_has_units_names_and_e_star(ring5, path):
    figure = path_figure(path, ring5, "ring5")
    texts = _texts(figure)
    assert {"arc length along the path (radians)", "energy", "E* = 0.663", "saddle, E = 6.835"} <= set(texts)
    assert {"trap, E = 6.172", "global minimum, E = 3.973"} <= set(texts)
    assert not any(re.search(r"\d\.\d{4,}", text) for text in texts)


def test_text_of_the_figures_does_not_overlap_and_lies_inside(ring5, path):
    for figure in (disconnectivity_figure(ring5), path_figure(path, ring5)):
        FigureCanvasAgg(figure).draw()
        # Without bare numbers: those of ticks and embeddings may stand close, and ticks outside the axes have no place.
        boxes = [text.get_window_extent() for text in figure.findobj(Text) if re.search("[A-Za-z]", text.get_text())]
        assert len(boxes) >= 6
        assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))
        width, height = figure.bbox.width, figure.bbox.height
        assert all(b.x0 >= 0 and b.x1 <= width and b.y0 >= 0 and b.y1 <= height for b in boxes)


def test_embeddings_on_a_sphere_are_drawn_and_more_dimensions_refused():
    energy = ij.energies.from_function(lambda x: -(x[0, 2] ** 2) + x[0, 0] ** 2 / 2, shape=(1, 3))
    land = ij.landscape.explore(energy, num_quenches=64, num_searches=64)
    pole = np.array([[0.0, 0.0, 1.0]])
    band = ij.landscape.elastic_band(energy, pole, -pole)
    assert "barrier = 1.00" in _texts(path_figure(band, land))
    flat = dataclasses.replace(band, positions=np.zeros((15, 1, 4)))
    with pytest.raises(ij.InputError, match="d = 4"):
        path_figure(flat, land)


def test_landscape_command_checks_saddles_and_writes_both_figures(tmp_path, capsys):
    out = tmp_path / "figures"
    arguments = ["landscape", "--scenario", "double_well", "--quenches", "128", "--searches", "64", "--out", str(out)]
    assert cli.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "band 3.826976" in printed
    assert "confirms the saddle" in printed
    assert {path.name for path in out.iterdir()} == {"disconnectivity.png", "path.png"}
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in out.iterdir())
