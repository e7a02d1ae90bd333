"""One clear line for bad input: what was given, what is needed, how to mend it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["InputError", "as_unit_rows", "confidence", "count", "finite", "instance", "numbers", "positive"]


class InputError(ValueError):
    """An argument that cannot be used; the message is one line that a user can act on."""


def refuse(name: str, given: Any, needed: str, mend: str) -> InputError:
    """Build the error; `raise refuse(...)` at the call site keeps the traceback honest."""
    given = " ".join(str(given).split())  # arrays print over several lines
    return InputError(f"{name}: got {given}; needs {needed}; {mend}")


def finite(name: str, value: Any, mend: str = "pass a plain number") -> float:
    """Return `value` as a float, refusing NaN, infinities and what is not a number."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise refuse(name, repr(value), "a number", mend) from None
    if not math.isfinite(number):
        raise refuse(name, number, "a finite number", mend)
    return number


def positive(name: str, value: Any, mend: str = "pass a number above zero") -> float:
    """Return `value` as a float above zero."""
    number = finite(name, value, mend)
    if number <= 0:
        raise refuse(name, f"{number:g}", "a number above zero", mend)
    return number


def count(name: str, value: Any, least: int = 1, mend: str = "pass a whole number") -> int:
    """Return `value` as an int of at least `least`."""
    whole = isinstance(value, int | np.integer) or (
        isinstance(value, float | np.floating) and float(value).is_integer()
    )
    if isinstance(value, bool) or not whole:
        raise refuse(name, repr(value), f"a whole number, at least {least}", mend)
    if int(value) < least:
        raise refuse(name, int(value), f"a whole number, at least {least}", mend)
    return int(value)


def numbers(name: str, value: Any, mend: str = "rows of equal length") -> np.ndarray:
    """Return `value` as a float64 array of any shape, refusing what is not made of numbers."""
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise refuse(name, type(value).__name__, "an array of numbers", mend) from None


def confidence(name: str, value: Any) -> float:
    """Return `value` as a float strictly between 0 and 1."""
    mend = "for example 0.95"
    number = finite(name, value, mend)
    if not 0 < number < 1:
        raise refuse(name, value, "a number between 0 and 1", mend)
    return number


def instance(name: str, value: Any, kind: type, mend: str) -> None:
    """Refuse what is not an object of the class `kind`."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise refuse(name, type(value).__name__, f"{article} {kind.__name__}", mend)


def as_unit_rows(name: str, value: Any, ndims: tuple[int, ...] = (2,), tolerance: float = 1e-3) -> np.ndarray:
    """Return `value` as float64 with rows renormalised, refusing rows that are not on the sphere.

    The tolerance forgives single-precision input and hand-typed digits, not a forgotten normalisation.
    """
    array = numbers(name, value)
    if array.ndim not in ndims:
        wanted = " or ".join({1: "(d,)", 2: "(n, d)", 3: "(chains, n, d)"}[k] for k in ndims)
        raise refuse(name, f"shape {array.shape}", f"shape {wanted}", "the last axis is R^d, one row per embedding")
    if array.shape[-1] < 2:
        raise refuse(name, f"d = {array.shape[-1]}", "d at least 2", "the sphere S^0 is two points, nothing can move")
    if not np.all(np.isfinite(array)):
        raise refuse(name, "NaN or infinite entries", "finite entries", "check where they come from")
    norms = np.linalg.norm(array, axis=-1, keepdims=True)
    worst = float(np.max(np.abs(norms - 1), initial=0.0))
    if worst > tolerance:
        raise refuse(name, f"a row of norm {norms.ravel()[np.abs(norms - 1).argmax()]:.4g}", "rows of norm 1",
                     "normalise them with infonce_jax.sphere.project")  # fmt: skip
    return array / norms
