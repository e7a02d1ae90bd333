"""Parameters of encoders as a file that any program with NumPy can read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import numpy as np

from infonce_jax.checks import refuse
from infonce_jax.encoders.objective import Objective

__all__ = ["load_parameters", "save_parameters"]


def save_parameters(path: Path | str, parameters: Any) -> None:
    """Write `Training.parameters` as an npz file: one array for each place in the tree, leading axis seeds."""
    leaves = jax.tree_util.tree_flatten_with_path(parameters)[0]
    named: dict[str, Any] = {jax.tree_util.keystr(place): np.asarray(leaf) for place, leaf in leaves}
    np.savez(path, **named)


def load_parameters(path: Path | str, objective: Objective) -> Any:
    """Parameters that `save_parameters` wrote, as the objective they were trained with takes them.

    Args:
        path: the file, for example runs/train-orbit/parameters.npz.
        objective: built as for the training, for example `infonce_jax.encoders.simclr(images)`.

    Returns:
        A pytree with a leading axis of seeds.

    Raises:
        InputError: no such file, or it holds parameters of another objective.
    """
    shapes, _ = jax.eval_shape(objective.init, jax.random.key(0))
    places, tree = jax.tree_util.tree_flatten_with_path(shapes)
    try:
        with np.load(path) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError) as error:
        raise refuse("path", f"{path} ({error})", "a file of parameters", "'infonce-jax train' writes one") from None
    wanted = {jax.tree_util.keystr(place): leaf.shape for place, leaf in places}
    if {name: array.shape[1:] for name, array in arrays.items()} != wanted:
        raise refuse("path", f"{path}, parameters of another objective", f"{len(wanted)} arrays of {objective.name}",
                     "build the objective as for the training")  # fmt: skip
    return tree.unflatten([arrays[name] for name in wanted])
