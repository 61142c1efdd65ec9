"""Executors that play the shards of a run: processes of this machine, or a Dask cluster.

An opener returns a context manager of an executor with `submit(function, *arguments)`. It returns a future with
`done()` and `result()`, as in `concurrent.futures` and `distributed`.
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
    """Return a function that opens the executor, also again after its workers died; raises ConfigError."""
    if executor not in EXECUTORS:
        raise ConfigError(unknown_name("executor", str(executor), EXECUTORS))
    if workers < 1:
        raise ConfigError(f"workers: {workers} is too few; use at least 1")
    if scheduler is not None and executor != "dask":
        raise ConfigError("a scheduler needs a Dask cluster; add --executor dask")
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
def interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C in processes and threads that start inside, until they set a handler."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ignore_interrupts() -> None:
    # Ctrl-C reaches every process of a terminal; only the driver handles it and stops the workers.
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
            with interrupts_blocked():
                cluster = dask.LocalCluster(
                    n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=50
                )
            scheduler = opened.enter_context(cluster)
        try:
            client = opened.enter_context(dask.Client(scheduler, timeout=SECONDS_TO_CONNECT, set_as_default=False))
        except (OSError, ValueError, TimeoutError) as problem:
            raise ConfigError(f"no Dask scheduler at {scheduler}: {problem}; correct --scheduler") from None
        if is_ours:
            client.run(_ignore_interrupts)
        # By default Dask returns the old result for an equal call, but a shard must be played again.
        yield client.get_executor(pure=False)


EXECUTORS: dict[str, Callable[[int, str | None], AbstractContextManager[Executor]]] = {
    "processes": _processes,
    "dask": _dask,
}
"""Name -> function of the number of workers and the address of a scheduler."""
