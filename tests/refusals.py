"""What every table of bad inputs asks of a message."""

from __future__ import annotations

import re

import pytest

from infonce_jax import InputError

# One line: what was given, what is needed, how to mend it.
THREE_PARTS = re.compile(r"[^\n;]+: got [^\n]+; needs [^\n]+; [^\n]+")


def message_of(call):
    """The text with which the call is refused."""
    with pytest.raises(InputError) as caught:
        call()
    return str(caught.value)
