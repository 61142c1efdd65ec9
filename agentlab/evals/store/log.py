"""`run.log`: the messages of our loggers during a run; a chat writes a `chat.log` in the same way."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from logging.handlers import MemoryHandler
from pathlib import Path
from typing import Any

from agentlab.core.errors import RunError, os_errors_as
from agentlab.core.escaping import LogFormatter
from agentlab.core.files import open_log

MAX_LOG_BYTES = 64 * 2**20
"""Largest size of a log."""


class _LogFile(logging.FileHandler):
    def _open(self) -> Any:
        return open_log(Path(self.baseFilename))

    def emit(self, record: logging.LogRecord) -> None:
        if self.stream is None or self.stream.tell() < MAX_LOG_BYTES:
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        """Ignore a line that cannot be written; the run reports a full disk itself."""


@contextlib.contextmanager
def run_log(name: str = "run.log", level: int = logging.DEBUG) -> Iterator[Callable[[Path], None]]:
    """Buffer the messages of our loggers from `level` on; call the yielded function to write them to a folder."""
    buffer = MemoryHandler(capacity=1)
    logger = logging.getLogger("agentlab")
    level_before = logger.level

    def write_to(folder: Path) -> None:
        with os_errors_as(RunError, f"{folder / name} cannot be written: "):
            file = _LogFile(folder / name)
        file.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        buffer.setTarget(file)
        buffer.flush()

    logger.addHandler(buffer)
    logger.setLevel(level)
    try:
        yield write_to
    finally:
        logger.removeHandler(buffer)
        logger.setLevel(level_before)
        if buffer.target is not None:
            buffer.target.close()
        buffer.close()
