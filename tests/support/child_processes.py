"""Work in a process of its own that may be killed, run out of disk, crash or hang, and its outcome."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class ChildResult:
    code: int | None
    """None if a signal ended the process."""
    signal: int | None
    hung: bool
    seconds: float
    megabytes: float
    """Peak memory of the process."""
    printed: str

    @property
    def is_clean(self) -> bool:
        """True if the process ended by itself, with at most one line of error."""
        errors = [line for line in self.printed.splitlines() if line.startswith("agentlab: ")]
        return not self.hung and self.code in (0, 1) and "Traceback" not in self.printed and len(errors) <= 1

    def __str__(self) -> str:
        how = "hung" if self.hung else f"signal {self.signal}" if self.signal else f"exit {self.code}"
        errors = [
            line
            for line in self.printed.splitlines()
            if re.match(r"[\w.]*(Error|Exception|Interrupt)\b|agentlab: ", line)
        ]
        last = (errors or self.printed.splitlines() or [""])[-1]
        return f"{how} : {last[:200]}"


def in_child(
    work: Callable[[], Any],
    *,
    max_seconds: float = 60.0,
    send: int | None = None,
    after: float = 0.0,
    max_file_bytes: int | None = None,
) -> ChildResult:
    """Fork, do `work` there, and wait; `send` a signal `after` so many seconds, if it is still at work then."""
    # A pipe, because a limit on files would hold for a file that takes the output.
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    started, text = time.monotonic(), b""
    child = os.fork()
    if child == 0:
        os.close(reading)
        _be_the_child(work, writing, max_file_bytes)
    os.close(writing)
    sent = hung = False
    while True:
        ended, status, used = os.wait4(child, os.WNOHANG)
        text += _read(reading)
        passed = time.monotonic() - started
        if ended:
            break
        if send is not None and not sent and passed >= after:
            os.kill(child, send)
            sent = True
        if passed > max_seconds and not hung:
            os.kill(child, signal.SIGKILL)
            hung = True
        time.sleep(0.002)
    os.close(reading)
    code, by = (os.WEXITSTATUS(status), None) if os.WIFEXITED(status) else (None, os.WTERMSIG(status))
    return ChildResult(code, by, hung, passed, used.ru_maxrss / 1024, text.decode("utf-8", "replace"))


def _read(pipe: int) -> bytes:
    read = b""
    with contextlib.suppress(BlockingIOError):
        while piece := os.read(pipe, 65_536):
            read += piece
    return read


def _be_the_child(work: Callable[[], Any], output: int, max_file_bytes: int | None) -> None:
    code = 1
    try:
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - it lives as long as the process
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
        if max_file_bytes is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (max_file_bytes, resource.RLIM_INFINITY))
        code = int(work() or 0)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # the parent is to read it
        import traceback

        traceback.print_exc()
    finally:
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            atexit._run_exitfuncs()  # temporary folders go, as at the end of any process
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code)


def files_in(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


PRELOADED = (
    *("agentlab.cli.parser", "agentlab.cli.terminal", "agentlab.cli.progress", "agentlab.lab.lab", "scipy.special"),
    *("agentlab.evals.report.page", "agentlab.memory.sqlite", "agentlab.models.scripted", "bm25s", "pandas"),
)
"""Modules that a parent loads, so that its children need not."""
