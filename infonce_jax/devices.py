"""Which devices chains run on: all local ones, as a mesh with the axis "chains"."""

from __future__ import annotations

import os

import jax
import numpy as np
from jax.sharding import Mesh

from infonce_jax.checks import InputError, count

__all__ = ["chain_mesh", "use_all_cores"]


def use_all_cores(num_devices: int | None = None) -> int:
    """Ask JAX for one CPU device per core, so that chains spread over all of them; results do not change by one bit.

    Call it before anything else touches JAX (in a notebook: in the first cell). The library never does it on import.

    Args:
        num_devices: how many CPU devices; by default the cores this process may use, or what JAX already runs with.

    Returns:
        The number of CPU devices.

    Raises:
        InputError: JAX has started already with another number of devices than the one asked for.
    """
    wanted = len(os.sched_getaffinity(0)) if num_devices is None else count("num_devices", num_devices)
    try:
        jax.config.update("jax_num_cpu_devices", wanted)
    except RuntimeError:
        running = len(jax.devices("cpu"))
        if num_devices not in (None, running):
            raise InputError(
                f"use_all_cores: got {num_devices} after JAX started with {running} CPU device(s); needs to be called "
                "before JAX starts; restart and call it first"
            ) from None
        return running
    return wanted


def chain_mesh(num_devices: int | None = None) -> Mesh:
    """The mesh of local devices over the axis "chains"; the first `num_devices` of them when that is given."""
    devices = jax.local_devices()
    if num_devices is not None:
        if not 1 <= num_devices <= len(devices):
            raise InputError(f"devices: got {num_devices}; needs 1 to {len(devices)}, the local devices; "
                             "call infonce_jax.use_all_cores() first to get one per core")  # fmt: skip
        devices = devices[:num_devices]
    return Mesh(np.array(devices), ("chains",))
