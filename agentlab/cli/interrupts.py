"""Ctrl-C in a chat: it cancels a reply or a command, and does nothing elsewhere."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Self


class Interrupts:
    """Makes Ctrl-C raise KeyboardInterrupt only inside `interruptible`, once per typed line.

    Elsewhere it would leave work unfinished, and a second Ctrl-C would end the program.
    """

    _is_allowed = False
    _pending = False

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *reason: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def forget(self) -> None:
        """Ignore Ctrl-C pressed so far: it was meant for earlier work."""
        self._pending = False

    @contextlib.contextmanager
    def interruptible(self) -> Iterator[None]:
        """Allow Ctrl-C inside this block. A Ctrl-C pressed since `forget` takes effect at once."""
        self._is_allowed = True
        try:
            if self._pending:
                raise KeyboardInterrupt
            yield
        finally:
            self._is_allowed = False

    def _interrupt(self, number: int, frame: object) -> None:
        is_first, self._pending = not self._pending, True
        if self._is_allowed and is_first:
            raise KeyboardInterrupt
