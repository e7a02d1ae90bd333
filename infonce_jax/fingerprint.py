"""Digests that tell whether two runs are the same: of numbers, and of the programs that functions are."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import jax
import numpy as np

__all__ = ["differences", "digest", "program_digest"]


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What differs among the settings of `now`, for a reader; empty where all are as before."""
    return "; ".join(f"{key} {before.get(key)} there, {value} here" for key, value in now.items()
                     if before.get(key) != value)  # fmt: skip


def digest(arrays: Iterable[Any]) -> str:
    """SHA-256 of arrays with their shapes and types, in hexadecimal."""
    whole = hashlib.sha256()
    for array in arrays:
        array = np.ascontiguousarray(array)
        whole.update(f"{array.dtype.str}{array.shape}".encode())
        whole.update(array.tobytes())
    return whole.hexdigest()


def program_digest(function: Callable[..., Any], *arguments: Any) -> str:
    """Digest of what a function computes: its traced program, the constants in it, and the numbers among its arguments.

    Two functions written alike have the same digest, in any process; a changed formula or weight changes it.

    Args:
        function: array code, hashable.
        *arguments: pytrees of arrays, which count with their numbers, or of `jax.ShapeDtypeStruct`, which do not.
    """
    leaves, tree = jax.tree.flatten(arguments)
    shapes = tuple(jax.ShapeDtypeStruct(np.shape(leaf), jax.numpy.result_type(leaf)) for leaf in leaves)
    numbers = [leaf for leaf in leaves if not isinstance(leaf, jax.ShapeDtypeStruct)]
    program = _program(function, tree, shapes, bool(jax.config.jax_enable_x64))
    return digest([np.frombuffer(program.encode(), np.uint8), *numbers])


@functools.lru_cache(maxsize=256)  # many short runs of the same kind would pay for the tracing each time
def _program(function: Callable[..., Any], tree: Any, shapes: tuple[Any, ...], _double: bool) -> str:
    closed = jax.make_jaxpr(function)(*jax.tree.unflatten(tree, shapes))
    text = re.sub(r"0x[0-9a-f]+", "", str(closed.jaxpr))  # addresses of functions differ from process to process
    return text + digest(closed.consts)
