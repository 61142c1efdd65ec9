"""A run in shards: each is a run folder of its own, `shards/0000` and so on, with a share of the conversations.

Whoever shares out needs nothing of the workers but the folder: they append to their shards, which are locked and safe
to kill like any run, and say in `progress.json` how far they are; a file `shards/stop` tells them to drop what they are
at. Each has an equal part of the budget and of the limits. A shard gives back its running sums, which are added up; the
rows stay where they are, and are read as one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from agentlab.core.errors import AgentlabError, ConfigError, RunError
from agentlab.data.datasets import Dataset
from agentlab.evals.play.executors import Opener, interrupts_put_off
from agentlab.evals.play.plan import Partition, assignments, turns_of
from agentlab.evals.play.player import Player
from agentlab.evals.play.preflight import open_folder
from agentlab.evals.play.run_state import Played
from agentlab.evals.store.fold import Fold
from agentlab.evals.store.folder import RunFolder, lock_run_folder
from agentlab.evals.store.log import run_log
from agentlab.evals.store.progress import ProgressTracker, RunProgress
from agentlab.workbench.loop import Loop
from agentlab.workbench.spec import BudgetSpec, LimitSpec, Spec
from agentlab.workbench.workbench import Workbench

log = logging.getLogger(__name__)
SECONDS_BETWEEN_LOOKS = 0.2
SECONDS_TO_END = 10.0
"""For workers of a sitting that was broken off."""
MAX_WORKER_DEATHS = 3
"""Of workers, before it is no accident any more."""
_Limit = TypeVar("_Limit", LimitSpec, BudgetSpec)


@dataclass(frozen=True, kw_only=True)
class ShardTask:
    """What a worker is given: it is sent to another process, and perhaps to another machine."""

    spec: Spec
    objects: Mapping[tuple[str, str], Any]
    run: str
    """The folder of the whole run."""
    share: Partition
    keep_failures: bool

    @property
    def folder(self) -> Path:
        return Path(self.run) / "shards" / f"{self.share.number:04}"

    @property
    def progress(self) -> Path:
        """How far its worker is; the file is there while the run is played."""
        return self.folder / "progress.json"


def play_shard(shard: ShardTask) -> Played:
    """Play a shard, or what is left of it; runs in a worker."""
    bench, loop = Workbench(shard.spec, shard.objects, shard.share.parts), Loop()
    try:
        return loop.run_coroutine(_play(bench, shard))
    except AgentlabError as problem:
        raise RunError(str(problem)) from None  # of any kind, and plain enough to be sent
    finally:
        if loop.is_running:
            loop.run_coroutine(bench.close_all())
            loop.end()


async def _play(bench: Workbench, shard: ShardTask) -> Played:
    def report(progress: RunProgress) -> None:
        with contextlib.suppress(OSError):
            shard.progress.write_bytes(msgspec.json.encode(progress))

    stop = Path(shard.run) / "shards" / "stop"
    with run_log() as log_to, lock_run_folder(shard.folder):
        datasets = bench.datasets()
        folder = open_folder(bench, datasets, shard.folder, resume=True)
        log_to(folder.path)
        playing = asyncio.create_task(
            Player(bench, datasets, folder, report, share=shard.share, keep_failures=shard.keep_failures).play()
        )
        while not playing.done():
            if stop.exists():
                playing.cancel()
            await asyncio.wait([playing], timeout=SECONDS_BETWEEN_LOOKS)
        if playing.cancelled():
            shard.progress.unlink(missing_ok=True)
            raise RunError("the run was interrupted")
        return await playing


async def play_in_shards(
    bench: Workbench,
    datasets: tuple[Dataset, ...],
    folder: RunFolder,
    opened: Opener,
    on_progress: Callable[[RunProgress], None],
    keep_failures: bool,
) -> Played:
    """Play all shards of a run; what they came to.

    Raises RunError for what ended a shard, and where workers die again and again; `--resume` goes on.
    """
    driver = _Driver(bench, datasets, folder, on_progress, keep_failures)
    await driver.prepare()
    folder.unseal()
    try:
        for deaths in range(1, MAX_WORKER_DEATHS + 2):
            try:
                with opened() as executor:
                    return await driver.play(executor)
            except BrokenExecutor:
                log.info("a worker died, the %d. one", deaths)
        raise RunError(
            f"{folder.path}: workers died {deaths} times, perhaps for want of memory; --resume goes on,"
            " with fewer --workers if that was it"
        )
    except BaseException:
        with contextlib.suppress(OSError):
            driver.stop.touch()
        raise
    finally:
        driver.forget_progress()


class _Driver:
    def __init__(
        self,
        bench: Workbench,
        datasets: tuple[Dataset, ...],
        folder: RunFolder,
        on_progress: Callable[[RunProgress], None],
        keep_failures: bool,
    ) -> None:
        self._bench, self._datasets = bench, datasets
        parts: int = folder.header["shards"]
        # What a provider says each worker learns for itself, and knows that it is one of several; what only the spec
        # knows is shared out.
        given = {
            "concurrency": -(-bench.spec.concurrency // parts),
            "limits": {name: _part(f"limits: {name}", limit, parts) for name, limit in bench.spec.limits.items()},
            "budget": _part("the budget", bench.spec.budget, parts),
        }
        spec, run = bench.spec.model_copy(update=given), str(folder.path.resolve())
        self._shards = [
            ShardTask(
                spec=spec,
                objects=bench.objects,
                run=run,
                share=Partition(number, parts),
                keep_failures=keep_failures,
            )
            for number in range(parts)
        ]
        self.stop = folder.path / "shards" / "stop"
        self._played: dict[int, Played] = {}
        self._told = [
            RunProgress(done=0, failed=0, total=turns_of(assignments(bench, datasets, shard.share)))
            for shard in self._shards
        ]
        """What the worker of each shard said last."""
        self._pace = ProgressTracker(sum(told.total for told in self._told), on_progress)

    async def prepare(self) -> None:
        """Build what the workers then find on disk, and see whether they can be sent what they need."""
        try:
            pickle.dumps(self._shards[0])
        except Exception as problem:
            raise ConfigError(
                f"what was passed as an object cannot be sent to another process ({problem}); pass names, such as the"
                " file of a flow, or run without an executor"
            ) from None
        self.stop.parent.mkdir(exist_ok=True)
        # Workers of a sitting that was broken off may still be there.
        self.stop.touch()
        for shard in self._shards:
            if shard.folder.exists():
                with lock_run_folder(shard.folder, SECONDS_TO_END):
                    pass
        self.stop.unlink()
        self.forget_progress()
        if self._bench.spec.mode == "live":
            for dataset in self._datasets:
                for variant in self._bench.variants:
                    await self._bench.index(dataset.documents, variant.retrieval, self._pace.report_indexing)

    async def play(self, executor: Executor) -> Played:
        """Raises BrokenExecutor where a worker died; what is done is kept."""
        self._poll_workers()
        self._pace.begin()
        with interrupts_put_off():
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
            log.warning("%d of %d parts of the budget are spent; the run can be resumed with more", spent, len(parts))
        return Played(
            flows=fold.flows,
            is_complete=all(played.is_complete for played in parts),
            quarantined=sorted(apart for played in parts for apart in played.quarantined),
            limits=_of_all([played.limits for played in parts]),
        )

    def forget_progress(self) -> None:
        for shard in self._shards:
            shard.progress.unlink(missing_ok=True)

    def _poll_workers(self) -> None:
        """See how far the workers are."""
        for number, shard in enumerate(self._shards):
            with contextlib.suppress(OSError, ValueError):
                self._told[number] = msgspec.json.decode(shard.progress.read_bytes(), type=RunProgress)
        done, failed, total = (sum(getattr(told, name) for told in self._told) for name in ("done", "failed", "total"))
        if (done, failed, total) != (self._pace.done, self._pace.failed, self._pace.total):
            label = next((told.label for told in reversed(self._told) if told.label), "")
            self._pace.set_progress(done, failed, total, label)


def _of_all(parts: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """What was answered, refused and waited in all; and for each worker, which keeps to its own, all it has to say."""
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        told = [part[name] for part in parts if name in part]
        sums = {what: round(sum(each[what] for each in told), 3) for what in ("answered", "refused", "waited_s")}
        found[name] = {**sums, "workers": [dict(each) for each in told]}
    return found


def _part(name: str, limit: _Limit, parts: int) -> _Limit:
    """One of `parts` equal parts of what is counted; minutes pass for all of them at once."""
    shared = {}
    for what, most in limit.model_dump(exclude_none=True).items():
        if isinstance(most, int) and most < parts:
            raise ConfigError(
                f"{name} has {what}: {most}, which {parts} parts of a run cannot share; use --workers {most}"
            )
        shared[what] = most if what == "minutes" else most // parts if isinstance(most, int) else most / parts
    return limit.model_copy(update=shared)


def _result(future: Future[Played]) -> Played:
    try:
        return future.result()
    except (BrokenExecutor, AgentlabError):
        raise
    except Exception as problem:  # an executor may raise anything, a scheduler that gave up on a shard too
        raise RunError(f"a worker failed: {type(problem).__name__}: {problem}; --resume goes on") from problem
