"""How the chains of a run are cut: among processes, and into batches that fit into memory. No bit depends on it."""

from __future__ import annotations

import itertools
import math
import os
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from infonce_jax.chains.engine import lane_count, start_carry
from infonce_jax.chains.plan import Plan
from infonce_jax.checks import positive, refuse

__all__ = ["as_bytes", "cut"]

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
# Copies of a carry that are alive at once: as it was, as it becomes, as it is tiled, and as it is padded or observed.
_COPIES = 4


def as_bytes(max_memory: Any) -> int | None:
    """A limit as a number of bytes: a number, or text such as "500MB" or "2.5 GB"; None stays None.

    Raises:
        InputError: anything else.
    """
    if max_memory is None:
        return None
    if isinstance(max_memory, str):
        text = max_memory.strip().upper().replace(" ", "")
        digits = text.rstrip("KMGTB")
        unit = text[len(digits) :] or "B"
        try:
            return int(positive("max_memory", float(digits) * _UNITS[unit]))
        except (KeyError, ValueError):
            raise refuse("max_memory", repr(max_memory), "bytes, or a number with KB, MB, GB or TB",
                         "for example '4GB'") from None  # fmt: skip
    return int(positive("max_memory", max_memory, "bytes, or text such as '4GB'"))


def cut(plan: Plan, mesh: Mesh, max_memory: int | None) -> list[tuple[int, int]]:
    """Blocks (first, stop) of all chains, in order: as many per process as its memory asks for.

    Args:
        plan: the run.
        mesh: local devices.
        max_memory: bytes for the chains that move at the same time on one process; by default half of what there is.
    """
    processes = jax.process_count()
    edges = [plan.num_chains * p // processes for p in range(processes + 1)]
    most = _most_chains(plan, mesh, _half_of_all(mesh) if max_memory is None else max_memory)
    blocks = []
    for first, stop in itertools.pairwise(edges):
        pieces = max(math.ceil((stop - first) / most), 1)
        inner = [first + (stop - first) * i // pieces for i in range(pieces + 1)]
        blocks += [pair for pair in itertools.pairwise(inner) if pair[0] < pair[1]]
    return blocks


def _most_chains(plan: Plan, mesh: Mesh, limit: int) -> int:
    per_chain = _COPIES * _chain_bytes(plan)
    least = lane_count(1, mesh.size)
    if per_chain * least > limit:
        needed = f"at least {per_chain * least} bytes"
        raise refuse("max_memory", f"{limit} bytes", needed, f"that is a batch of {least} chains")
    return limit // per_chain // least * least


def _chain_bytes(plan: Plan) -> int:
    """Bytes of one chain's carry and key on a device."""
    lanes = lane_count(1, 1)
    x = jax.ShapeDtypeStruct((lanes, *plan.shape), plan.dtype)
    energy, watching = plan.energy_at(0), plan.watching()
    carry = jax.eval_shape(lambda y: start_carry(y, energy, watching, integrator=plan.integrator), x)
    return sum(math.prod(a.shape) * np.dtype(a.dtype).itemsize for a in jax.tree.leaves(carry)) // lanes + 8


def _half_of_all(mesh: Mesh) -> int:
    """Half of the devices' memory; on a CPU, half of the machine's."""
    stats = [device.memory_stats() for device in mesh.devices.flat]
    known = [s["bytes_limit"] for s in stats if s and "bytes_limit" in s]
    if known:
        return min(known) * len(known) // 2
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
