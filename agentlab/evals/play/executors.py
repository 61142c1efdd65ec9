"""Where the shards of a run are played: processes of this machine, or a Dask cluster.

An executor is a context manager that yields what has `submit(function, *arguments)`, whose result has `done()` and
`result()`, as those of `concurrent.futures` and of `distributed` do.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

from agentlab.core.errors import ConfigError, needs
from agentlab.core.gc_tuning import relax_gc
from agentlab.core.plugins import unknown_name

SECONDS_TO_CONNECT = 10


Opener = Callable[[], AbstractContextManager[Executor]]


def executor_factory(executor: str, workers: int, scheduler: str | None) -> Opener:
    """What opens the executor, and opens it anew where its workers died; raises ConfigError for what is none."""
    if executor not in EXECUTORS:
        raise ConfigError(unknown_name("executor", str(executor), EXECUTORS))
    if workers < 1:
        raise ConfigError(f"workers: {workers} is too few; there must be one at least")
    if scheduler is not None and executor != "dask":
        raise ConfigError("a scheduler is that of a Dask cluster; use --executor dask")
    return lambda: EXECUTORS[executor](workers, scheduler)


@contextlib.contextmanager
def _processes(workers: int, _: str | None) -> Iterator[Executor]:
    # Spawned: a fork would copy threads that hold locks.
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_begin_worker)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@contextlib.contextmanager
def interrupts_put_off() -> Iterator[None]:
    """Processes and threads that begin here hear nothing of Ctrl-C until they say what they do with it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ignore_interrupts() -> None:
    # Ctrl-C reaches every process of a terminal; the one that shares out tells the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _begin_worker() -> None:
    _ignore_interrupts()
    relax_gc()
    parent = multiprocessing.parent_process()

    def follow() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=follow, name="parent", daemon=True).start()


@contextlib.contextmanager
def _dask(workers: int, scheduler: str | None) -> Iterator[Executor]:
    with needs("--executor dask", "dask"):
        import distributed
    dask: Any = distributed
    with contextlib.ExitStack() as opened:
        if is_ours := scheduler is None:
            with interrupts_put_off():
                cluster = dask.LocalCluster(
                    n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=50
                )
            scheduler = opened.enter_context(cluster)
        try:
            client = opened.enter_context(dask.Client(scheduler, timeout=SECONDS_TO_CONNECT, set_as_default=False))
        except (OSError, ValueError, TimeoutError) as problem:
            raise ConfigError(f"there is no Dask scheduler at {scheduler}: {problem}") from None
        if is_ours:
            client.run(_ignore_interrupts)
        # The same shard is played again where it was played before.
        yield client.get_executor(pure=False)


EXECUTORS: dict[str, Callable[[int, str | None], AbstractContextManager[Executor]]] = {
    "processes": _processes,
    "dask": _dask,
}
"""By name; each is given the number of workers, and the address of a scheduler."""
