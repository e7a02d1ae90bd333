"""Digests that tell whether two runs are the same: of numbers, and of the programs that functions are."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

__all__ = ["digest", "program_digest"]


def digest(arrays: Iterable[Any]) -> str:
    """SHA-256 of arrays with their shapes and types, in hexadecimal."""
    whole = hashlib.sha256()
    for array in arrays:
        array = np.ascontiguousarray(array)
        whole.update(f"{array.dtype.str}{array.shape}".encode())
        whole.update(array.tobytes())
    return whole.hexdigest()


def program_digest(function: Callable[..., Any], *examples: Any, numbers: Any = ()) -> str:
    """Digest of what a function computes: its traced program, the constants in it, and further numbers.

    Two functions written alike have the same digest, in any process; a changed formula or weight changes it.

    Args:
        function: array code.
        *examples: arguments, or shapes of arguments, as `jax.make_jaxpr` takes them.
        numbers: a pytree of arrays that belong to it.
    """
    closed = jax.make_jaxpr(function)(*examples)
    text = re.sub(r"0x[0-9a-f]+", "", str(closed.jaxpr))  # addresses of functions differ from process to process
    return digest([np.frombuffer(text.encode(), np.uint8), *closed.consts, *jax.tree.leaves(numbers)])
