"""Named arrays as one item of an Orbax checkpoint.

Orbax's own array format is written by process 0 alone and refuses arrays without entries; here every process writes the
chains it moves. Orbax keeps what it is good at: a checkpoint is renamed into place when whole, old ones are deleted.
Importing this module imports Orbax, about a second.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

__all__ = ["Archive", "open_manager"]

_FILE = "arrays.npz"


class _Handler(ocp.CheckpointHandler):
    """Writes a dictionary of arrays as one uncompressed npz file."""

    def save(self, directory: Any, args: Archive) -> None:
        assert args.arrays is not None
        with open(Path(directory) / _FILE, "wb") as file:
            np.savez(file, **args.arrays)  # type: ignore[arg-type]

    def restore(self, directory: Any, args: Any = None) -> dict[str, np.ndarray]:
        with open(Path(directory) / _FILE, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}


@ocp.args.register_with_handler(_Handler, for_save=True, for_restore=True)
@dataclasses.dataclass
class Archive(ocp.args.CheckpointArgs):
    """What is saved; without arrays, the wish to restore.

    Attributes:
        arrays: by name.
    """

    arrays: dict[str, np.ndarray] | None = None


def open_manager(place: Path, keep: int) -> ocp.CheckpointManager:
    """The manager of the checkpoints of one block of chains, of this process alone."""
    place.mkdir(exist_ok=True)
    own = jax.process_index()
    alone = ocp.options.MultiprocessingOptions()
    if jax.process_count() > 1:
        alone = ocp.options.MultiprocessingOptions(
            primary_host=own, active_processes={own}, barrier_sync_key_prefix=place.name
        )
    options = ocp.CheckpointManagerOptions(
        max_to_keep=keep, enable_async_checkpointing=False, cleanup_tmp_directories=True, create=False,
        multiprocessing_options=alone,
    )  # fmt: skip
    return ocp.CheckpointManager(place, options=options, item_handlers=_Handler())
