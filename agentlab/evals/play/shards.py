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
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from agentlab.core.errors import AgentlabError, ConfigError, RunError
from agentlab.data.datasets import Dataset
from agentlab.evals.play.executors import Executor, Opener
from agentlab.evals.play.opening import open_folder
from agentlab.evals.play.player import Played, Player, Share
from agentlab.evals.store.fold import Fold
from agentlab.evals.store.folder import RunFolder, locked
from agentlab.evals.store.log import run_log
from agentlab.evals.store.pace import Pace, RunProgress
from agentlab.evals.store.rows import place_of
from agentlab.workbench.loop import Loop
from agentlab.workbench.spec import BudgetSpec, LimitSpec, Spec
from agentlab.workbench.workbench import Workbench

log = logging.getLogger(__name__)
SECONDS_BETWEEN_LOOKS = 0.2
SECONDS_TO_END = 10.0
"""For workers of a sitting that was broken off."""
MOST_DEATHS = 3
"""Of workers, before it is no accident any more."""
_Limit = TypeVar("_Limit", LimitSpec, BudgetSpec)
PROGRESS = "progress.json"
"""How far a worker is, and what its models let be sent to them; it is there while the run is played."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """What a worker is given: it is sent to another process, and perhaps to another machine."""

    spec: Spec
    objects: Mapping[tuple[str, str], Any]
    run: str
    """The folder of the whole run."""
    number: int
    parts: int

    @property
    def folder(self) -> Path:
        return Path(self.run) / "shards" / f"{self.number:04}"


def play_shard(shard: Shard) -> Played:
    """Play a shard, or what is left of it; runs in a worker."""
    bench, loop = Workbench(shard.spec, shard.objects, shard.parts), Loop()
    try:
        return loop.wait(_play(bench, shard))
    except AgentlabError as problem:
        return Played(flows={}, is_complete=False, problem=str(problem))
    finally:
        if loop.is_running:
            loop.wait(bench.close_all())
            loop.end()


async def _play(bench: Workbench, shard: Shard) -> Played:
    datasets = bench.datasets()
    stop = Path(shard.run) / "shards" / "stop"
    share = Share(shard.number, shard.parts)
    with run_log() as log_to, locked(shard.folder):
        folder = open_folder(bench, datasets, shard.folder, resume=True)
        log_to(folder.path)
        player = Player(bench, datasets, folder, lambda progress: None, share=share)
        playing = asyncio.create_task(player.play_all())
        progress = shard.folder / PROGRESS
        while not playing.done():
            if stop.exists():
                playing.cancel()
            _tell(player.pace, bench, progress)
            await asyncio.wait([playing], timeout=SECONDS_BETWEEN_LOOKS)
        if playing.cancelled():
            progress.unlink(missing_ok=True)
            raise RunError("the run was interrupted")
        await playing
        _tell(player.pace, bench, progress)
        return player.played


def _tell(pace: Pace, bench: Workbench, file: Path) -> None:
    told = _Told(pace.total, pace.done, pace.failed, pace.label)
    with contextlib.suppress(OSError):
        file.write_bytes(msgspec.json.encode(told))


async def play_in_shards(
    bench: Workbench,
    datasets: tuple[Dataset, ...],
    folder: RunFolder,
    opened: Opener,
    on_progress: Callable[[RunProgress], None],
) -> Played:
    """Play all shards of a run; what they came to.

    Raises RunError for what ended a shard, and where workers die again and again; `--resume` goes on.
    """
    driver = _Driver(bench, datasets, folder, on_progress)
    await driver.prepare()
    folder.unseal()
    try:
        for deaths in range(MOST_DEATHS + 1):
            try:
                with opened() as executor:
                    return await driver.play(executor)
            except BrokenExecutor:
                if deaths == MOST_DEATHS:
                    raise RunError(
                        f"{folder.path}: workers died {deaths + 1} times, perhaps for want of memory; --resume goes on,"
                        " with fewer --workers if that was it"
                    ) from None
        raise AssertionError("unreachable")
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
    ) -> None:
        self._bench, self._datasets = bench, datasets
        self._parts: int = folder.header["shards"]
        # What a provider says each worker learns for itself, and knows that it is one of several; what only the spec
        # knows is shared out.
        given = {
            "concurrency": -(-bench.spec.concurrency // self._parts),
            "limits": {
                name: _share(f"limits: {name}", limit, self._parts) for name, limit in bench.spec.limits.items()
            },
            "budget": _share("the budget", bench.spec.budget, self._parts),
        }
        spec = bench.spec.model_copy(update=given)
        run = str(folder.path.resolve())
        self._shards = [
            Shard(spec=spec, objects=bench.objects, run=run, number=number, parts=self._parts)
            for number in range(self._parts)
        ]
        self.stop = folder.path / "shards" / "stop"
        self._played: dict[int, Played] = {}
        self._told = [_Told(total=self._turns_of(shard)) for shard in self._shards]
        """What the worker of each shard said last."""
        self._pace = Pace(sum(told.total for told in self._told), on_progress)

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
                with locked(shard.folder, SECONDS_TO_END):
                    pass
        self.stop.unlink()
        self.forget_progress()
        if self._bench.spec.mode == "live":
            for dataset in self._datasets:
                for variant in self._bench.variants:
                    await self._bench.index(dataset.documents, variant.retrieval, self._pace.report_indexing)

    async def play(self, executor: Executor) -> Played:
        """Raises BrokenExecutor where a worker died; what is done is kept."""
        self._look()
        self._pace.begin()
        futures = {
            shard.number: executor.submit(play_shard, shard)
            for shard in self._shards
            if shard.number not in self._played
        }
        while futures:
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
            self._look()
            for number in [number for number, future in futures.items() if future.done()]:
                played = _result(futures.pop(number))
                if played.problem is not None:
                    raise RunError(played.problem)
                self._played[number] = played
        self._look()
        fold = Fold(())
        all_played = [played for _, played in sorted(self._played.items())]
        for played in all_played:
            fold.merge(played.flows)
        if spent := sum(played.is_spent for played in all_played):
            log.warning("%d of %d parts of the budget are spent; the run can be resumed with more", spent, self._parts)
        return Played(
            flows=fold.flows,
            is_complete=all(played.is_complete for played in all_played),
            quarantined=sorted((apart for played in all_played for apart in played.quarantined), key=place_of),
            limits=_of_all([played.limits for played in all_played]),
        )

    def forget_progress(self) -> None:
        for shard in self._shards:
            (shard.folder / PROGRESS).unlink(missing_ok=True)

    def _look(self) -> None:
        """See how far the workers are."""
        for shard in self._shards:
            with contextlib.suppress(OSError, ValueError):
                self._told[shard.number] = msgspec.json.decode((shard.folder / PROGRESS).read_bytes(), type=_Told)
        done, failed, total = (sum(getattr(told, name) for told in self._told) for name in ("done", "failed", "total"))
        if (done, failed, total) != (self._pace.done, self._pace.failed, self._pace.total):
            label = next((told.label for told in reversed(self._told) if told.label), "")
            self._pace.stands_at(done, failed, total, label)

    def _turns_of(self, shard: Shard) -> int:
        share = Share(shard.number, self._parts)
        turns = sum(len(each.scored_turns) for dataset in self._datasets for each in share.of(dataset))
        return turns * len(self._bench.variants) * self._bench.spec.epochs


def _of_all(parts: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """What was answered, refused and waited in all; and for each worker, which keeps to its own, all it has to say."""
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        told = [part[name] for part in parts if name in part]
        sums = {what: round(sum(each[what] for each in told), 3) for what in ("answered", "refused", "waited_s")}
        found[name] = {**sums, "workers": [dict(each) for each in told]}
    return found


def _share(name: str, limit: _Limit, parts: int) -> _Limit:
    """One of `parts` equal parts of what is counted; minutes pass for all of them at once."""
    shared = {}
    for what, most in limit.model_dump(exclude_none=True).items():
        if isinstance(most, int) and most < parts:
            raise ConfigError(
                f"{name} has {what}: {most}, which {parts} parts of a run cannot share; use --workers {most}"
            )
        shared[what] = most if what == "minutes" else most // parts if isinstance(most, int) else most / parts
    return limit.model_copy(update=shared)


def _result(future: Any) -> Played:
    try:
        played: Played = future.result()
    except BrokenExecutor:
        raise
    except Exception as problem:  # an executor may raise anything, a scheduler that gave up on a shard too
        raise RunError(f"a worker failed: {type(problem).__name__}: {problem}; --resume goes on") from problem
    return played


class _Told(Struct):
    total: int
    """Turns that earlier sittings left."""
    done: int = 0
    failed: int = 0
    label: str = ""
