"""Several machines, through `jax.distributed`: who am I, and what did the others find.

Chains need nothing from each other, so processes exchange what they found when all have finished, and nothing before.
"""

from __future__ import annotations

import pickle
from typing import Any

import jax
import numpy as np

from infonce_jax.checks import count, refuse

__all__ = ["exchange", "is_writer", "join_processes"]


def join_processes(coordinator: str | None = None, num_processes: int | None = None, index: int | None = None) -> None:
    """Make this process one of several; call it before anything else touches JAX.

    Args:
        coordinator: "host:port" of process 0; by default the environment says, as it does under Slurm, Open MPI or on
            TPU pods, or JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID do.
        num_processes: how many there are.
        index: which one this is, from 0.

    Raises:
        InputError: some but not all are given, or they do not fit, or the others do not answer.
    """
    given = {"coordinator": coordinator, "processes": num_processes, "index": index}
    missing = [name for name, value in given.items() if value is None]
    if missing and len(missing) < 3:
        raise refuse("distributed", f"no {' and no '.join(missing)}", "coordinator, processes and index together",
                     "or none of them where the environment knows")  # fmt: skip
    if not missing:
        count("processes", num_processes)
        count("index", index, least=0)
        if index >= num_processes:  # type: ignore[operator]
            raise refuse("index", index, f"0 to {num_processes - 1}", "processes count from 0")  # type: ignore[operator]
    try:
        jax.distributed.initialize(coordinator, num_processes, index)
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise refuse("distributed", reason, "a coordinator that all processes reach",
                     "pass coordinator=host:port, processes and index to each of them") from error  # fmt: skip


def is_writer() -> bool:
    """Whether this process writes the results: the first of all."""
    return jax.process_index() == 0


def exchange(mine: Any) -> list[Any]:
    """What every process handed in, in the order of the processes; all must call it."""
    if jax.process_count() == 1:
        return [mine]
    from jax.experimental import multihost_utils

    text = np.frombuffer(pickle.dumps(mine), np.uint8)
    sizes = np.asarray(multihost_utils.process_allgather(np.array([len(text)], np.int32))).ravel()
    padded = np.pad(text, (0, int(sizes.max()) - len(text)))
    rows = np.asarray(multihost_utils.process_allgather(padded)).reshape(len(sizes), -1)
    return [pickle.loads(row[:size].tobytes()) for row, size in zip(rows, sizes, strict=True)]
