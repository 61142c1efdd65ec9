"""A run in shards: each shard is a run folder, `shards/0000` and so on, with one partition of the conversations.

The driver sees workers only through the shard folders. Workers append rows there and write `progress.json`; the driver
writes `shards/stop` to stop them. A shard is locked and safe to kill, like any run. Each worker has an equal part of
the budget and of the limits. It returns its running sums, and the driver merges them. Rows stay in the shards.

Executors are processes of this machine, or a Dask cluster. An opener returns a context manager of an executor with
`submit(function, *arguments)`. It returns a future with `done()` and `result()`, as in `concurrent.futures`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import pickle
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from agentlab.core.errors import AgentlabError, ConfigError, RunError, needs
from agentlab.core.gc_tuning import relax_gc
from agentlab.core.plugins import check_names
from agentlab.data.datasets import Dataset
from agentlab.evals.play.plan import Partition, assignments, turns_of
from agentlab.evals.play.player import Player
from agentlab.evals.play.preflight import open_folder
from agentlab.evals.play.run_state import Played
from agentlab.evals.store.fold import Fold
from agentlab.evals.store.folder import RunFolder, lock_run_folder, run_log
from agentlab.evals.store.progress import ProgressTracker, RunProgress
from agentlab.workbench.loop import Loop
from agentlab.workbench.spec import BudgetSpec, LimitSpec, Spec
from agentlab.workbench.workbench import Workbench

SECONDS_TO_CONNECT = 10


Opener = Callable[[], AbstractContextManager[Executor]]


def executor_factory(executor: str, workers: int, scheduler: str | None) -> Opener:
    """Return a function that opens the executor, also again after its workers died; raises ConfigError."""
    check_names("executor", [executor], EXECUTORS)
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


log = logging.getLogger(__name__)
SECONDS_BETWEEN_LOOKS = 0.2
SECONDS_TO_END = 10.0
"""Seconds that workers of an interrupted process get to stop."""
MAX_WORKER_DEATHS = 3
"""Worker deaths before the run gives up."""
_Limit = TypeVar("_Limit", LimitSpec, BudgetSpec)


@dataclass(frozen=True, kw_only=True)
class ShardTask:
    """Task of a worker, which may run on another machine."""

    spec: Spec
    objects: Mapping[tuple[str, str], Any]
    run: str
    """Folder of the whole run."""
    partition: Partition
    keep_failures: bool

    @property
    def folder(self) -> Path:
        return Path(self.run) / "shards" / f"{self.partition.number:04}"

    @property
    def progress(self) -> Path:
        """Progress file of the worker; it exists while the run is played."""
        return self.folder / "progress.json"


def play_shard(shard: ShardTask) -> Played:
    """Play the rest of a shard, in a worker."""
    bench, loop = Workbench(shard.spec, shard.objects, shard.partition.parts), Loop()
    try:
        return loop.run_coroutine(_play(bench, shard))
    except AgentlabError as problem:
        raise RunError(str(problem)) from None  # its cause may not be picklable
    finally:
        if loop.is_running:
            loop.run_coroutine(bench.close_all())
            loop.end()


async def _play(bench: Workbench, shard: ShardTask) -> Played:
    reports = deque[RunProgress](maxlen=1)
    stop = Path(shard.run) / "shards" / "stop"
    with run_log() as log_to, lock_run_folder(shard.folder):
        datasets = bench.datasets()
        folder = open_folder(bench, datasets, shard.folder, resume=True)
        log_to(folder.path)
        playing = asyncio.create_task(
            Player(
                bench, datasets, folder, reports.append, partition=shard.partition, keep_failures=shard.keep_failures
            ).play()
        )
        while not playing.done():
            if stop.exists():
                playing.cancel()
            await asyncio.wait([playing], timeout=SECONDS_BETWEEN_LOOKS)
            # Write once per look, not once per turn: a file system may flush each truncated file to the disk.
            if reports:
                with contextlib.suppress(OSError):
                    shard.progress.write_bytes(msgspec.json.encode(reports.pop()))
        if playing.cancelled():
            shard.progress.unlink(missing_ok=True)
            raise RunError("the run was interrupted")
        return await playing


class ShardedRun:
    """A run whose shards are played by the workers of an executor."""

    def __init__(
        self,
        bench: Workbench,
        datasets: tuple[Dataset, ...],
        folder: RunFolder,
        on_progress: Callable[[RunProgress], None],
        keep_failures: bool,
    ) -> None:
        self._bench, self._datasets, self._folder = bench, datasets, folder
        parts: int = folder.header["shards"]
        # Each worker reads the provider's limits itself and uses its part of them. The limits of the spec are split
        # here.
        parts_of_spec = {
            "concurrency": -(-bench.spec.concurrency // parts),
            "limits": {name: _part(f"limits: {name}", limit, parts) for name, limit in bench.spec.limits.items()},
            "budget": _part("the budget", bench.spec.budget, parts),
        }
        spec, run = bench.spec.model_copy(update=parts_of_spec), str(folder.path.resolve())
        self._shards = [
            ShardTask(
                spec=spec,
                objects=bench.objects,
                run=run,
                partition=Partition(number, parts),
                keep_failures=keep_failures,
            )
            for number in range(parts)
        ]
        self._stop = folder.path / "shards" / "stop"
        self._played: dict[int, Played] = {}
        self._progress = [
            RunProgress(done=0, failed=0, total=turns_of(assignments(bench, datasets, shard.partition)))
            for shard in self._shards
        ]
        """Latest progress of each shard."""
        self._tracker = ProgressTracker(sum(progress.total for progress in self._progress), on_progress)

    async def play(self, opened: Opener) -> Played:
        """Play all shards and return the merged outcome.

        Raises RunError if a shard fails, or after more than MAX_WORKER_DEATHS worker deaths; `--resume` continues.
        """
        await self._prepare()
        self._folder.drop_summary()
        try:
            for deaths in range(1, MAX_WORKER_DEATHS + 2):
                try:
                    with opened() as executor:
                        return await self._play(executor)
                except BrokenExecutor:
                    log.info("a worker died (death %d)", deaths)
            raise RunError(
                f"{self._folder.path}: workers died {deaths} times, perhaps out of memory;"
                " continue with --resume and fewer --workers"
            )
        except BaseException:
            with contextlib.suppress(OSError):
                self._stop.touch()
            raise
        finally:
            self._forget_progress()

    async def _prepare(self) -> None:
        """Build the indexes that workers load from disk; raises ConfigError if the tasks cannot be pickled."""
        try:
            pickle.dumps(self._shards[0])
        except Exception as problem:
            raise ConfigError(
                f"an object cannot be sent to another process ({problem}); pass a name, such as the file of a flow,"
                " or run without an executor"
            ) from None
        self._stop.parent.mkdir(exist_ok=True)
        # Workers of an interrupted process may still run.
        self._stop.touch()
        for shard in self._shards:
            if shard.folder.exists():
                with lock_run_folder(shard.folder, SECONDS_TO_END):
                    pass
        self._stop.unlink()
        self._forget_progress()
        if self._bench.spec.mode == "live":
            for dataset in self._datasets:
                for variant in self._bench.variants:
                    await self._bench.index(dataset.documents, variant.retrieval, self._tracker.report_indexing)

    async def _play(self, executor: Executor) -> Played:
        """Play the remaining shards; raises BrokenExecutor if a worker died, and keeps finished shards."""
        self._poll_workers()
        self._tracker.begin()
        with interrupts_blocked():
            futures = {
                number: executor.submit(play_shard, shard)
                for number, shard in enumerate(self._shards)
                if number not in self._played
            }
        while futures:
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
            self._poll_workers()
            for number in [number for number, future in futures.items() if future.done()]:
                self._played[number] = _result(futures.pop(number))
        self._poll_workers()
        fold = Fold(())
        parts = [played for _, played in sorted(self._played.items())]
        for played in parts:
            fold.merge(played.flows)
        if spent := sum(played.is_spent for played in parts):
            log.warning("%d of %d parts of the budget are spent; resume the run with a larger one", spent, len(parts))
        return Played(
            flows=fold.flows,
            is_complete=all(played.is_complete for played in parts),
            quarantined=sorted(quarantined for played in parts for quarantined in played.quarantined),
            limits=_merge_limits([played.limits for played in parts]),
        )

    def _forget_progress(self) -> None:
        for shard in self._shards:
            shard.progress.unlink(missing_ok=True)

    def _poll_workers(self) -> None:
        """Read the progress of the workers and report it."""
        for number, shard in enumerate(self._shards):
            with contextlib.suppress(OSError, ValueError):
                self._progress[number] = msgspec.json.decode(shard.progress.read_bytes(), type=RunProgress)
        done, failed, total = (
            sum(getattr(each, name) for each in self._progress) for name in ("done", "failed", "total")
        )
        if (done, failed, total) != (self._tracker.done, self._tracker.failed, self._tracker.total):
            label = next((each.label for each in reversed(self._progress) if each.label), "")
            self._tracker.set_progress(done, failed, total, label)


def _merge_limits(parts: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return the limits of each model: sums over the workers, and the numbers of each worker."""
    merged: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        of_model = [part[name] for part in parts if name in part]
        sums = {key: round(sum(each[key] for each in of_model), 3) for key in ("answered", "refused", "waited_s")}
        merged[name] = {**sums, "workers": [dict(each) for each in of_model]}
    return merged


def _part(name: str, limit: _Limit, parts: int) -> _Limit:
    """Return one of `parts` equal parts of a limit; `minutes` stays, because all workers run at the same time."""
    split = {}
    for key, value in limit.model_dump(exclude_none=True).items():
        if isinstance(value, int) and value < parts:
            raise ConfigError(f"{name}: {key} is {value}, too few for {parts} workers; use --workers {value}")
        split[key] = value if key == "minutes" else value // parts if isinstance(value, int) else value / parts
    return limit.model_copy(update=split)


def _result(future: Future[Played]) -> Played:
    try:
        return future.result()
    except (BrokenExecutor, AgentlabError):
        raise
    except Exception as problem:  # executors raise errors of many types, such as a Dask scheduler that gives up
        raise RunError(f"a worker failed: {type(problem).__name__}: {problem}; continue with --resume") from problem
