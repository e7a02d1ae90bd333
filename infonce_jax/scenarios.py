"""Named landscapes that are worth annealing on, toy ones and one from real data.

Plain instance discrimination with free embeddings has one minimum up to rotation and relabelling: there is nothing to
anneal. Traps appear when the positives form a graph, or when keys are frozen. What is known about each landscape stands
in its description only; every number a study prints is computed.
"""

from __future__ import annotations

import dataclasses
import runpy
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from infonce_jax.checks import InputError, count, refuse
from infonce_jax.energies import Energy, graph_infonce

__all__ = ["Scenario", "cube", "digit_images", "digit_orbit", "double_well", "get", "names", "ring", "rotations",
           "similarity_weights", "square_keys", "uniformity"]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A landscape with a name.

    Attributes:
        name: as the command line takes it.
        energy: the energy, with the sum over anchors.
        shape: (n, d).
        description: what it is and what is known of it.
        images: what the embeddings are views of, shape (n, height, width), for pictures; or None.
    """

    name: str
    energy: Energy
    shape: tuple[int, int]
    description: str
    images: np.ndarray | None = None


def ring(n: int = 5, temperature: float = 0.5, dim: int = 2) -> Scenario:
    """n views on a cycle, each attracted to its two neighbours, on S^{dim-1}.

    On the circle the global minimum winds once around (clockwise or not); the trap does not wind. One more dimension
    removes the trap: it becomes a saddle of index 1 at dim = 3.

    Args:
        n: views, at least 3.
        temperature: tau > 0.
        dim: d >= 2.
    """
    n = count("n", n, least=3, mend="a cycle has at least three views")
    step = np.roll(np.eye(n), 1, axis=1)
    energy = graph_infonce((step + step.T) / 2, temperature=temperature, dim=dim)
    return Scenario(f"ring{n}", energy, energy.shape, f"{n} views on a cycle, positives its neighbours, S^{dim - 1}, "
                    f"tau = {temperature:g}")  # fmt: skip


def cube(temperature: float = 0.3) -> Scenario:
    """Eight views, positives along the edges of a cube, weight 1/3 each, on S^2."""
    corners = np.array([[i >> 2 & 1, i >> 1 & 1, i & 1] for i in range(8)])
    edges = (np.abs(corners[:, None] - corners[None]).sum(-1) == 1) / 3
    energy = graph_infonce(edges, temperature=temperature, dim=3)
    return Scenario(
        "cube", energy, energy.shape, f"8 views, positives along the edges of a cube, S^2, tau = {temperature:g}"
    )


def digit_images(index: int = 4, views: int = 8) -> np.ndarray:
    """Rotations of one of scikit-learn's handwritten digits, shape (views, 48, 48); see `rotations`.

    Args:
        index: which digit, 0 to 1796; number 4 is a handwritten 4.
        views: rotations, at least 3.
    """
    from sklearn.datasets import load_digits

    images = np.asarray(load_digits(return_X_y=True)[0]).reshape(-1, 8, 8)
    index = count("index", index, least=0, mend=f"0 to {len(images) - 1}, the digits there are")
    if index >= len(images):
        raise refuse("index", index, f"0 to {len(images) - 1}", "there are that many digits")
    return rotations(images[index], views)


def rotations(image: np.ndarray, views: int = 8) -> np.ndarray:
    """Rotations of a grey image, shape (views, 4 height + 16, 4 width + 16).

    The image is magnified four times with linear interpolation, padded with eight zeros on each side and turned by
    360/views degrees per view.

    Args:
        image: shape (height, width); 0 is the background.
        views: rotations, at least 3.
    """
    from scipy import ndimage

    magnified = np.pad(np.asarray(ndimage.zoom(image, 4, order=1)), 8)
    turns = 360.0 / count("views", views, least=3) * np.arange(views)
    return np.stack([ndimage.rotate(magnified, angle, reshape=False, order=1) for angle in turns])


def similarity_weights(images: np.ndarray) -> np.ndarray:
    """Positive weights from images: W_ij proportional to exp(-D_ij/(.05 s)), rows summing to one.

    D is the squared pixel distance and s the mean, over the rows, of the distance to the second nearest other view.

    Args:
        images: shape (n, height, width) or (n, features).
    """
    flat = images.reshape(len(images), -1)
    squared = np.sum((flat[:, None] - flat[None]) ** 2, axis=-1)
    scale = np.mean(np.sort(squared, axis=1)[:, 2])
    weights = np.exp(-squared / (0.05 * scale))
    np.fill_diagonal(weights, 0.0)
    return weights / weights.sum(axis=1, keepdims=True)


def digit_orbit(index: int = 4, views: int = 8, temperature: float = 0.5) -> Scenario:
    """Rotations of a handwritten digit on the circle: does InfoNCE lay the orbit out as a circle or fold it?

    Positives are the views that look alike (`similarity_weights`), from the data, not from the angles.

    Args:
        index: which digit of scikit-learn.
        views: how many rotations.
        temperature: tau > 0.
    """
    images = digit_images(index, views)
    energy = graph_infonce(similarity_weights(images), temperature=temperature, dim=2)
    description = (
        f"{views} rotations of a handwritten digit (scikit-learn digit {index}), positives by pixel similarity, S^1, "
        f"tau = {temperature:g}"
    )
    return Scenario("digit_orbit", energy, energy.shape, description, images)


def _circle(degrees: list[float]) -> np.ndarray:
    angles = np.deg2rad(degrees)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def square_keys(temperature: float = 0.2) -> Scenario:
    """One query on the circle, four frozen keys at right angles, positives at 90 (.55) and 270 degrees (.45)."""
    keys = _circle([0, 90, 180, 270])
    energy = graph_infonce([[0, 0, 0.55, 0, 0.45]], temperature=temperature, keys=keys)
    return Scenario("square_keys", energy, energy.shape, f"one query, 4 frozen keys, S^1, tau = {temperature:g}")


def double_well(temperature: float = 0.3) -> Scenario:
    """One query on the circle with two positives and eight copies of a hard negative between them.

    Keys at 60, -60, 0 and 180 degrees stand 1, 1, 8 and 1 times in the denominator; the positives are the first two
    with weights .55 and .45. Exact spectra and first passage times of this landscape are known to many digits.
    """
    keys = _circle([60, -60, 0, 180])
    energy = graph_infonce([[0, 0.55, 0.45, 0, 0]], temperature=temperature, keys=keys, multiplicity=[[0, 1, 1, 8, 1]])
    return Scenario("double_well", energy, energy.shape, f"one query, frozen keys, a hard negative between positives, "
                    f"S^1, tau = {temperature:g}")  # fmt: skip


def uniformity(n: int = 16, d: int = 3, temperature: float = 0.1) -> Scenario:
    """n embeddings that only repel each other: sum_i log sum_{j != i} exp(<z_i, z_j>/tau)."""
    n = count("n", n, least=2, mend="uniformity needs two embeddings")
    energy = graph_infonce(np.zeros((n, n)), temperature=temperature, dim=d)
    return Scenario(
        f"uniformity({n},{d})", energy, energy.shape, f"{n} embeddings that repel, S^{d - 1}, tau = {temperature:g}"
    )


_NAMED: dict[str, Callable[[], Scenario]] = {
    "digit_orbit": digit_orbit,
    "ring5": lambda: ring(5),
    "ring8": lambda: ring(8),
    "cube": cube,
    "square_keys": square_keys,
    "double_well": double_well,
    "uniformity": uniformity,
}


def names() -> tuple[str, ...]:
    """The scenarios that `get` and the command line know."""
    return tuple(_NAMED)


def get(name: str) -> Scenario:
    """A scenario by name, any ring by its number of views ("ring12"), or one's own from a file ("mine.py:scenario").

    A file holds a `Scenario` or an `Energy` under the name after the colon; without a colon, under "scenario".

    Raises:
        InputError: there is no such scenario; the message lists those there are.
    """
    if not isinstance(name, str):
        raise refuse("scenario", type(name).__name__, "a name", "for example 'ring5' or 'mine.py:energy'")
    if name in _NAMED:
        return _NAMED[name]()
    if name.startswith("ring") and name[4:].isdecimal():
        return ring(int(name[4:]))
    path, _, attribute = name.partition(":")
    if path.endswith(".py"):
        return _from_file(Path(path), attribute or "scenario")
    raise InputError(
        f"scenario: got {name!r}; needs {', '.join(_NAMED)}, ring<n> or file.py:name; see 'infonce-jax scenarios'"
    )


def _from_file(path: Path, attribute: str) -> Scenario:
    if not path.is_file():
        raise refuse("scenario", str(path), "a Python file that exists", "give its path, as in mine.py:scenario")
    try:
        sys.path.insert(0, str(path.parent.resolve()))  # as `python mine.py` would, so that neighbours can be imported
        found = runpy.run_path(str(path)).get(attribute)
    except (Exception, SystemExit) as error:
        raise refuse("scenario", f"{path}, which fails with {type(error).__name__}: {error}", "a file that runs",
                     f"try python {path}") from error  # fmt: skip
    finally:
        sys.path.pop(0)
    if isinstance(found, Energy):
        return Scenario(path.stem, found, found.shape, f"{attribute} of {path.name}")
    if not isinstance(found, Scenario):
        raise refuse("scenario", f"{path.name} whose {attribute!r} is {type(found).__name__}", "a Scenario or Energy",
                     "name it after a colon, as in mine.py:energy")  # fmt: skip
    return found
