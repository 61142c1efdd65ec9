"""`run.log`: what our loggers say while a run goes on."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from logging.handlers import MemoryHandler
from pathlib import Path
from typing import Any

from agentlab.core.errors import RunError
from agentlab.core.files import open_log
from agentlab.core.shown import LogFormatter

MOST_LOGGED = 64 * 2**20
"""Bytes of a `run.log`."""


class _LogFile(logging.FileHandler):
    def _open(self) -> Any:
        return open_log(Path(self.baseFilename))

    def emit(self, record: logging.LogRecord) -> None:
        if self.stream is None or self.stream.tell() < MOST_LOGGED:
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        """Pass over a line that cannot be written: what matters is said by the run itself."""


@contextlib.contextmanager
def run_log() -> Iterator[Callable[[Path], None]]:
    """Keep everything our loggers say meanwhile; it stands in `run.log` of a folder once it is told which."""
    kept = MemoryHandler(capacity=1)
    ours = logging.getLogger("agentlab")
    level = ours.level

    def write_to(folder: Path) -> None:
        try:
            file = _LogFile(folder / "run.log")
        except OSError as problem:
            raise RunError(f"{folder / 'run.log'} cannot be written: {problem.strerror}") from None
        file.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        kept.setTarget(file)
        kept.flush()

    ours.addHandler(kept)
    ours.setLevel(logging.DEBUG)
    try:
        yield write_to
    finally:
        ours.removeHandler(kept)
        ours.setLevel(level)
        if kept.target is not None:
            kept.target.close()
        kept.close()
