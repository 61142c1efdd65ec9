"""Ctrl-C in a conversation: it breaks off what can be broken off, and does nothing anywhere else."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Self


class Interrupts:
    """While its block lasts, Ctrl-C raises KeyboardInterrupt inside `taken`, once a line that the user typed.

    Anywhere else it would leave things half done, and a second one, of somebody impatient, would end the program.
    """

    _is_taken = False
    _came = False

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *reason: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def forget(self) -> None:
        """Those that came so far meant what was done before."""
        self._came = False

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Where one may break in; at its beginning the one that came since `forget` does."""
        self._is_taken = True
        try:
            if self._came:
                raise KeyboardInterrupt
            yield
        finally:
            self._is_taken = False

    def _interrupt(self, number: int, frame: object) -> None:
        is_first, self._came = not self._came, True
        if self._is_taken and is_first:
            raise KeyboardInterrupt
