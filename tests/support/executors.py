"""Executors that play shards in this process, under names of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from agentlab.evals.play.shards import EXECUTORS


class AtOnce:
    """Runs each task before `submit` returns."""

    def __init__(self) -> None:
        self.given: list[Any] = []

    def submit(self, function: Any, *arguments: Any) -> Future[Any]:
        self.given += arguments
        future: Future[Any] = Future()
        try:
            future.set_result(function(*arguments))
        except BaseException as failure:
            future.set_exception(failure)
        return future


@contextlib.contextmanager
def threads(workers: int, _: str | None) -> Iterator[ThreadPoolExecutor]:
    pool = ThreadPoolExecutor(workers)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False)


def under_names(monkeypatch: pytest.MonkeyPatch) -> AtOnce:
    """Register the executors `at once` and `threads`, and return the first one."""
    executor = AtOnce()
    monkeypatch.setitem(EXECUTORS, "at once", lambda *_: contextlib.nullcontext(executor))
    monkeypatch.setitem(EXECUTORS, "threads", threads)
    return executor
