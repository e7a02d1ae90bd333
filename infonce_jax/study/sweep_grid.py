"""What a sweep is asked to do: settings of a study with several values each, and the studies they span."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from infonce_jax.checks import refuse
from infonce_jax.study.configuration import SETTINGS, StudyConfiguration, scenario_from_anywhere, settings_of
from infonce_jax.study.run import choose_scenario

__all__ = ["Point", "SharedSettings", "SweepConfiguration", "grid", "text_of", "values_of"]


@dataclasses.dataclass(frozen=True)
class SharedSettings(StudyConfiguration):
    """What all studies of the sweep share, as for `infonce-jax study`."""

    out: Annotated[Path | None, tyro.conf.arg(help_behavior_hint="(default: runs/sweep)")] = None
    """Directory for the table, the figure and a directory for each study; made if missing."""


@dataclasses.dataclass(frozen=True)
class SweepConfiguration:
    """Run a study for every point of a grid of settings, and put all their shares of trapped chains into one table."""

    vary: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME=V1,V2,..."), tyro.conf.UseAppendAction] = ()
    """A setting of a study and its values, as in steps=1000,10000 or temperature=default,0.4; once for each setting."""
    how: Literal["product", "zip"] = "product"
    """Every value with every other, or the first with the first, the second with the second."""
    base: SharedSettings = dataclasses.field(default_factory=SharedSettings)

    @property
    def directory(self) -> Path:
        """Where the sweep writes."""
        return self.base.out or Path("runs/sweep")


@dataclasses.dataclass(frozen=True)
class Point:
    """One study of a sweep.

    Attributes:
        name: of its directory, below that of the sweep.
        parameters: its values of what varies.
        configuration: all of its settings, checked.
        state: "finished", "to do", "interrupted", "failed", or "no result" where it was refused.
        note: why, in the last three states.
        rows: of the table, one for each schedule of a finished study.
    """

    name: str
    parameters: dict[str, Any]
    configuration: StudyConfiguration
    state: str = "to do"
    note: str = ""
    rows: tuple[dict[str, Any], ...] = ()


def _optional(text: str) -> float | None:
    return None if text == "default" else float(text)


# How a value is read, by the type of the setting: the reader, and what it needs in words.
_READERS: dict[Any, tuple[Callable[[str], Any], str]] = {
    str: (scenario_from_anywhere, "a name"),
    int: (int, "a whole number"),
    bool: (lambda text: {"true": True, "false": False}[text.lower()], "true or false"),
    float | None: (_optional, "a number, or 'default'"),
}


def values_of(vary: Sequence[str]) -> dict[str, list[Any]]:
    """What varies, by name, out of texts such as "steps=1000,10000".

    Raises:
        InputError: a text of another form, an unknown name, a value that cannot be read, or the same twice.
    """
    if not vary:
        raise refuse("vary", "nothing", "at least one setting", "as in --vary steps=1000,10000")
    found: dict[str, list[Any]] = {}
    for text in vary:
        before, equals, listed = text.partition("=")
        name = before.strip().replace("-", "_")
        if not equals:
            raise refuse("vary", repr(text), "NAME=VALUE,VALUE,...", "as in --vary steps=1000,10000")
        if name not in SETTINGS:
            raise refuse("vary", repr(name), f"one of {', '.join(SETTINGS)}", "'infonce-jax study --help' says more")
        if name in found:
            raise refuse("vary", f"{name} twice", "each setting once", "put all its values into one --vary")
        values = [_value(name, part.strip()) for part in listed.split(",")]
        if len(set(values)) < len(values):
            raise refuse(name, listed, "distinct values", "leave out the repeated ones")
        found[name] = values
    return found


def _value(name: str, text: str) -> Any:
    read, needed = _READERS[SETTINGS[name]]
    try:
        if text:
            return read(text)
    except (ValueError, KeyError):
        pass
    raise refuse(name, repr(text), needed, f"as in --vary {name}=VALUE,VALUE")


def text_of(value: Any) -> str:
    """A value as the command line takes it."""
    if value is None:
        return "default"
    return str(value).lower() if isinstance(value, bool) else str(value).removesuffix(".0")


def _short(value: Any) -> str:
    """A value for the name of a directory: a file by its own name, and no character that a shell minds."""
    return re.sub(r"[^A-Za-z0-9.+_-]", "_", text_of(value).rpartition("/")[2])[:60]


def grid(configuration: SweepConfiguration) -> list[Point]:
    """The studies of a sweep in their order, the last setting fastest; every one checked, its landscape looked up.

    Raises:
        InputError: any of them cannot be used.
    """
    varied = values_of(configuration.vary)
    if configuration.how == "zip" and len({len(values) for values in varied.values()}) > 1:
        lengths = ", ".join(f"{len(values)} of {name}" for name, values in varied.items())
        raise refuse("vary", lengths, "equally many values of each with --how zip", "or leave --how out for all pairs")
    combine = itertools.product if configuration.how == "product" else zip
    combinations = [dict(zip(varied, values, strict=True)) for values in combine(*varied.values())]
    points: list[Point] = []
    digits = max(3, len(str(len(combinations))))
    base = dataclasses.replace(configuration.base, scenario=scenario_from_anywhere(configuration.base.scenario))
    for number, parameters in enumerate(combinations, 1):
        label = ",".join(f"{name}={_short(value)}" for name, value in parameters.items())
        name = f"{number:0{digits}d}-{label}"
        settings = dataclasses.replace(base, **parameters, out=configuration.directory / name).checked()
        points.append(Point(name, parameters, settings))
    for scenario, temperature in dict.fromkeys((p.configuration.scenario, p.configuration.temperature) for p in points):
        choose_scenario(scenario, temperature)
    _refuse_twins(points)
    return points


def _refuse_twins(points: list[Point]) -> None:
    """--quick cuts chains and steps, and can make one study of two."""
    seen: dict[tuple[Any, ...], str] = {}
    for point in points:
        key = tuple(settings_of(point.configuration).values())
        if key in seen:
            raise refuse("vary", f"{seen[key]} and {point.name}, which are the same study with --quick",
                         "distinct studies", "leave out --quick or one of the values")  # fmt: skip
        seen[key] = point.name
