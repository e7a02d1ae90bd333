"""The temperature inside the loss while an encoder trains: a function of the step, or one more parameter."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from infonce_jax.checks import count, finite, positive, refuse

__all__ = ["COLDEST", "Learned", "TauSchedule", "Taus", "learned", "parse_temperature"]

# Learned temperatures stay above 1/100: log(1/tau) is clipped at log 100 (Radford et al. 2021, section 2.5).
COLDEST = 0.01
_LOWEST = 1e-5  # single precision cannot resolve s/tau below
_BLOCK = 1024


@dataclasses.dataclass(frozen=True)
class TauSchedule:
    """tau as a function of the step, from `start` to `end` within the first `steps` steps and `end` afterwards.

    Families, with u = min(step/steps, 1): linear, start + (end - start) u; exponential, start (end/start)^u; cosine,
    end + (start - end)(1 + cos(pi u))/2; constant; and logarithmic, max(end, start/log(2.7 + step/50)), without u.

    Attributes:
        text: as `parse_temperature` takes it.
        family: one of those.
        start, end: temperatures > 0.
        steps: how many steps the way takes, or None for all of the run.
    """

    text: str
    family: str
    start: float
    end: float
    steps: int | None = None

    def over(self, num_steps: int) -> Callable[[np.ndarray], np.ndarray]:
        """The function of the step for a run of `num_steps` steps, in float64."""
        length = max(num_steps if self.steps is None else self.steps, 1)
        shape, a, b = _FAMILIES[self.family], self.start, self.end
        return lambda step: shape(np.asarray(step, np.float64), np.minimum(np.asarray(step) / length, 1.0), a, b)


_Shape = Callable[[np.ndarray, np.ndarray, float, float], np.ndarray]
_FAMILIES: dict[str, _Shape] = {
    "constant": lambda step, u, a, b: np.full(step.shape, a),
    "linear": lambda step, u, a, b: a + (b - a) * u,
    "exponential": lambda step, u, a, b: a * (b / a) ** u,
    "cosine": lambda step, u, a, b: b + (a - b) * (1 + np.cos(np.pi * u)) / 2,
    # 2.7 makes the first value close to `start`; fifty steps are its unit of time.
    "logarithmic": lambda step, u, a, b: np.maximum(b, a / np.log(2.7 + 0.02 * step)),
}


@dataclasses.dataclass(frozen=True)
class Learned:
    """tau = e^{-s} with s one more parameter, trained by the same optimiser and clipped at log 100; see `learned`."""

    initial: float


def learned(initial: float = 0.07) -> Learned:
    """A temperature that is trained: log(1/tau) is a parameter, clipped at log 100 after each step.

    Args:
        initial: the temperature to start from, at least 1/100.

    Raises:
        InputError: a temperature below 1/100.

    Radford et al. 2021, section 2.5.
    """
    tau = positive("initial", initial, "a temperature, for example 0.07")
    if tau < COLDEST:
        raise refuse("initial", f"{tau:g}", f"at least {COLDEST:g}", "log(1/tau) is clipped at log 100")
    return Learned(tau)


def parse_temperature(text: str) -> TauSchedule | Learned:
    """A temperature from text, as the command line takes it.

    - "0.5" or "constant:0.5": fixed;
    - "linear:5:0.5", "exponential:5:0.5", "cosine:5:0.5": from 5 to 0.5 within the run, or, as in "linear:5:0.5:2500",
      within the first 2500 steps;
    - "logarithmic:2:0.5": max(0.5, 2/log(2.7 + 0.02 step));
    - "learned:0.1": a parameter that starts at 0.1.

    Raises:
        InputError: another text.

    >>> float(parse_temperature("linear:5:0.5:100").over(3000)(np.array(50)))
    2.75
    """
    family, *words = str(text).split(":")
    mend = "write 0.5, linear:5:0.5, exponential:5:0.5, cosine:5:0.5:2500, logarithmic:2:0.5 or learned:0.1"
    try:
        if not words and family not in (*_FAMILIES, "learned"):
            family, words = "constant", [family]
        values = [float(word) for word in words[:2]]
        most = {"constant": 1, "learned": 1, "logarithmic": 2}.get(family, 3)
        least = min(most, 2)
        if family not in (*_FAMILIES, "learned") or not least <= len(words) <= most:
            raise ValueError
        steps = int(words[2]) if len(words) == 3 else None
    except ValueError:
        raise refuse("temperature", repr(text), "a number or family:start:end[:steps]", mend) from None
    for value in values:
        positive("temperature", value, mend)
    if steps is not None:
        count("temperature", steps, mend=f"{mend}; the last number counts steps")
    if family == "learned":
        return learned(values[0])
    return TauSchedule(str(text), family, values[0], values[-1], steps)


class Taus:
    """Temperatures of steps, in float64 on the host, computed in blocks of fixed bounds.

    How a run is cut into chunks then cannot change the last digit of one of them.

    Args:
        temperature: a number, text, `TauSchedule`, or a function of the step such as an optax schedule.
        num_steps: of the run.

    Raises:
        InputError: none of those, or a temperature that is not a number above 1e-5 at some step of the run.
    """

    def __init__(self, temperature: Any, num_steps: int) -> None:
        self.name, self._function = _as_function(temperature, num_steps)
        self._held: tuple[int, np.ndarray] | None = None
        self.lowest = math.inf
        for first in range(0, num_steps + 1, _BLOCK):
            taus = self._block(first // _BLOCK)[: num_steps + 1 - first]
            bad = ~(np.isfinite(taus) & (taus >= _LOWEST))
            if np.any(bad):
                step = int(np.argmax(bad))
                raise refuse("temperature", f"tau = {taus[step]:.3g} at step {first + step}",
                             f"a finite temperature of at least {_LOWEST:g} at every step",
                             "end the schedule at a positive temperature")  # fmt: skip
            self.lowest = min(self.lowest, float(taus.min()))

    def __call__(self, first: int, count: int) -> np.ndarray:
        """Temperatures of steps first ... first + count - 1."""
        blocks = range(first // _BLOCK, (first + count - 1) // _BLOCK + 1)
        whole = np.concatenate([self._block(k) for k in blocks])
        start = first - blocks[0] * _BLOCK
        return whole[start : start + count]

    def _block(self, index: int) -> np.ndarray:
        if self._held is None or self._held[0] != index:
            steps = index * _BLOCK + np.arange(_BLOCK)
            self._held = index, np.asarray(self._function(steps), np.float64)
        return self._held[1]


def _as_function(temperature: Any, num_steps: int) -> tuple[str, Callable[[np.ndarray], np.ndarray]]:
    if isinstance(temperature, str):
        temperature = parse_temperature(temperature)
    if isinstance(temperature, TauSchedule):
        return temperature.text, temperature.over(num_steps)
    if callable(temperature):
        return getattr(temperature, "__name__", "schedule"), _vectorised(temperature)
    tau = finite("temperature", temperature, "a number, a function of the step, or infonce_jax.encoders.learned()")
    return f"{tau:g}", lambda step: np.full(np.shape(step), tau)


def _vectorised(schedule: Callable[[Any], Any]) -> Callable[[np.ndarray], np.ndarray]:
    """A function of an array of steps from one of a step, whether or not it takes arrays."""

    def function(steps: np.ndarray) -> np.ndarray:
        try:
            try:
                return np.broadcast_to(np.asarray(schedule(steps), np.float64), steps.shape)
            except Exception:  # written for one step at a time
                return np.array([float(schedule(int(step))) for step in steps])
        except Exception as error:
            raise refuse("temperature", f"a function that fails with {type(error).__name__}",
                         "a function from a step to a temperature",
                         "for example optax.linear_schedule(5.0, 0.5, 2500)") from error  # fmt: skip

    return function
