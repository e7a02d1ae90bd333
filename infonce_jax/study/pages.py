"""What every page shares: the templates, and a file that is whole or not there."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

__all__ = ["render", "replace_text"]


@functools.cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("infonce_jax.study", "templates"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip


def render(template: str, **values: Any) -> str:
    """A page of `templates/` with its values filled in; one that is missing is an error, not a gap."""
    return _templates().get_template(template).render(**values)


def replace_text(path: Path, text: str) -> Path:
    """Write a text beside its place and move it there when whole; returns the path."""
    new = path.with_name(path.name + ".new")
    new.write_text(text, encoding="utf-8")
    os.replace(new, path)
    return path
