"""Ctrl-C and SIGTERM during a run: finish the chunk first."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any, Self

__all__ = ["Signals"]


class Signals:
    """While entered, the first SIGINT or SIGTERM is only noted; a second one acts as it did before.

    Handlers belong to the main thread; elsewhere nothing is installed and nothing is received.
    """

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                before = signal.getsignal(number)
                if before is not signal.SIG_IGN and before is not None:  # ignored by nohup, or not set from Python
                    self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None:
            self.__exit__()
            signal.raise_signal(number)
        self.received = number

    def __exit__(self, *_: object) -> None:
        while self._before:
            signal.signal(*self._before.popitem())
