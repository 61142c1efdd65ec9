"""Lines that a test types into a chat of the terminal."""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def type_lines(monkeypatch: pytest.MonkeyPatch, lines: Iterable[str]) -> None:
    """Let `input` return one line after the other, then end the input; the line `^C` interrupts instead."""
    left = iter(lines)

    def read(prompt: str = "") -> str:
        line = next(left, None)
        if line is None:
            raise EOFError
        if line == "^C":
            raise KeyboardInterrupt
        return line

    monkeypatch.setattr("builtins.input", read)
