"""`run.log`: what our loggers say while a run goes on; a chat keeps a `chat.log` with it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from logging.handlers import MemoryHandler
from pathlib import Path
from typing import Any

from agentlab.core.errors import RunError
from agentlab.core.escaping import LogFormatter
from agentlab.core.files import open_log

MAX_LOG_BYTES = 64 * 2**20
"""Bytes of a log."""


class _LogFile(logging.FileHandler):
    def _open(self) -> Any:
        return open_log(Path(self.baseFilename))

    def emit(self, record: logging.LogRecord) -> None:
        if self.stream is None or self.stream.tell() < MAX_LOG_BYTES:
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        """Pass over a line that cannot be written: what matters is said by the run itself."""


@contextlib.contextmanager
def run_log(name: str = "run.log", least: int = logging.DEBUG) -> Iterator[Callable[[Path], None]]:
    """Keep what our loggers say meanwhile, from the level `least` on; it stands in a folder once it is told which."""
    kept = MemoryHandler(capacity=1)
    ours = logging.getLogger("agentlab")
    level = ours.level

    def write_to(folder: Path) -> None:
        try:
            file = _LogFile(folder / name)
        except OSError as problem:
            raise RunError(f"{folder / name} cannot be written: {problem.strerror}") from None
        file.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        kept.setTarget(file)
        kept.flush()

    ours.addHandler(kept)
    ours.setLevel(least)
    try:
        yield write_to
    finally:
        ours.removeHandler(kept)
        ours.setLevel(level)
        if kept.target is not None:
            kept.target.close()
        kept.close()
