"""A run in shards: each is a run folder of its own, `shards/0000` and so on, with a share of the conversations.

Whoever shares out needs nothing of the workers but the folder: they append to their shards, which are locked and safe
to kill like any run; it counts their rows for progress and budget, and a file `shards/stop` tells them to begin no more
conversations (`spent`) or to drop what they are at (`now`). What a shard gives back are its running sums. To merge them
is to add them up: the rows stay where they are, and are read as one.
"""

from __future__ import annotations

import asyncio
import contextlib
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import BrokenExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from agentlab.core.errors import AgentlabError, ConfigError, RunError
from agentlab.core.files import replace_file
from agentlab.core.messages import Usage
from agentlab.data.datasets import Dataset
from agentlab.evals.results.fold import Fold
from agentlab.evals.results.rows import place_of
from agentlab.evals.run.budget import Budget
from agentlab.evals.run.executors import Executor, Opener
from agentlab.evals.run.folder import CALLS, TURNS, RunFolder, locked, run_log
from agentlab.evals.run.opening import open_folder
from agentlab.evals.run.player import Pace, Played, Player, RunProgress, Share
from agentlab.wire.allowance import Allowance, together
from agentlab.workbench.loop import RunningBench
from agentlab.workbench.spec import BudgetSpec, LimitSpec, Spec
from agentlab.workbench.workbench import Workbench

SECONDS_BETWEEN_LOOKS = 0.2
MOST_DEATHS = 3
"""Of workers, before it is no accident any more."""
SPENT, NOW = "spent", "now"
ALLOWANCES = "allowances.json"
"""What the models of a worker let be sent to them; it is there while the run is played."""
_Row = TypeVar("_Row")


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
    bench = RunningBench(shard.spec, shard.objects, shard.parts)
    try:
        return bench.wait(_play(bench, shard))
    except AgentlabError as problem:
        return Played(flows={}, is_complete=False, problem=str(problem))
    finally:
        if bench.is_running:
            bench.wait(bench.close_all())
            bench.end_loop()


async def _play(bench: Workbench, shard: Shard) -> Played:
    datasets = bench.datasets()
    stop = Path(shard.run) / "shards" / "stop"
    share = Share(shard.number, shard.parts, stop.exists)
    with run_log() as log_to, locked(shard.folder):
        folder = open_folder(bench, datasets, shard.folder, resume=True)
        log_to(folder.path)
        player = Player(bench, datasets, folder, lambda progress: None, share=share)
        playing = asyncio.create_task(player.play_all())
        told = b"{}"

        def tell() -> bytes:
            tells = msgspec.json.encode(bench.allowances())
            if tells != told:
                with contextlib.suppress(OSError):
                    (shard.folder / ALLOWANCES).write_bytes(tells)
            return tells

        while not playing.done():
            if _says(stop, NOW):
                playing.cancel()
            told = tell()
            await asyncio.wait([playing], timeout=SECONDS_BETWEEN_LOOKS)
        tell()
        if playing.cancelled():
            raise RunError("the run was interrupted")
        await playing
        return player.played


def _says(file: Path, word: str) -> bool:
    try:
        return file.read_text(encoding="utf-8") == word
    except OSError:
        return False


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
    stop = folder.path / "shards" / "stop"
    stop.unlink(missing_ok=True)
    try:
        for deaths in range(MOST_DEATHS + 1):
            try:
                with opened() as executor:
                    return await driver.play(executor, stop)
            except BrokenExecutor:
                if deaths == MOST_DEATHS:
                    raise RunError(
                        f"{folder.path}: workers died {deaths + 1} times, perhaps for want of memory; --resume goes on,"
                        " with fewer --workers if that was it"
                    ) from None
        raise AssertionError("unreachable")
    except BaseException:
        with contextlib.suppress(OSError):
            replace_file(stop, NOW)
        raise


class _Driver:
    def __init__(
        self,
        bench: Workbench,
        datasets: tuple[Dataset, ...],
        folder: RunFolder,
        on_progress: Callable[[RunProgress], None],
    ) -> None:
        self._bench, self._datasets, self._folder = bench, datasets, folder
        self._parts: int = folder.header["shards"]
        given = {"concurrency": -(-bench.spec.concurrency // self._parts), "budget": BudgetSpec()}
        # What a provider says each worker learns for itself, and knows that it is one of several; what only the spec
        # knows is shared out.
        limits = {name: _share(name, limit, self._parts) for name, limit in bench.spec.limits.items()}
        spec = bench.spec.model_copy(update={**given, "limits": limits})
        run = str(folder.path.resolve())
        self._shards = [
            Shard(spec=spec, objects=bench.objects, run=run, number=number, parts=self._parts)
            for number in range(self._parts)
        ]
        self._played: dict[int, Played] = {}
        self._budget = Budget(bench.spec.budget, bench.prices.cost)
        self._counts_calls = bench.spec.budget != BudgetSpec()
        turns = sum(dataset.turns for dataset in datasets) * len(bench.variants) * bench.spec.epochs
        self._pace = Pace(turns, on_progress, self._allowances)
        self._tails: dict[Path, int] = {}

    async def prepare(self) -> None:
        """Build what the workers then find on disk, and see whether they can be sent what they need."""
        try:
            pickle.dumps(self._shards[0])
        except Exception as problem:
            raise ConfigError(
                f"what was passed as an object cannot be sent to another process ({problem}); pass names, such as the"
                " file of a flow, or run without an executor"
            ) from None
        (self._folder.path / "shards").mkdir(exist_ok=True)
        self._forget_allowances()
        if self._bench.spec.mode == "live":
            for dataset in self._datasets:
                for variant in self._bench.variants:
                    await self._bench.index(dataset.documents, variant.retrieval, self._pace.report_indexing)

    async def play(self, executor: Executor, stop: Path) -> Played:
        """Raises BrokenExecutor where a worker died; what is done is kept."""
        self._look(stop)  # what earlier sittings left says nothing of the pace
        self._pace.begin()
        futures = {
            shard.number: executor.submit(play_shard, shard)
            for shard in self._shards
            if shard.number not in self._played
        }
        while futures:
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
            self._look(stop)
            for number in [number for number, future in futures.items() if future.done()]:
                played = _result(futures.pop(number))
                if played.problem is not None:
                    raise RunError(played.problem)
                self._played[number] = played
        self._look(stop)
        self._forget_allowances()
        fold = Fold(())
        all_played = [played for _, played in sorted(self._played.items())]
        for played in all_played:
            fold.merge(played.flows)
        return Played(
            flows=fold.flows,
            is_complete=all(played.is_complete for played in all_played),
            quarantined=sorted((apart for played in all_played for apart in played.quarantined), key=place_of),
            limits=_of_all([played.limits for played in all_played]),
            secrets=sum(played.secrets for played in all_played),
        )

    def _look(self, stop: Path) -> None:
        """Count what was written since the last look, and have no more begun where the budget is spent."""
        for file in self._folder.files(TURNS):
            if fresh := self._fresh(file):
                # Within a string quotes are escaped: only a row's own fields look like this, and few need decoding.
                rows = _rows([line for line in fresh if b',"error":null,"wall_seconds":' not in line], _Turn)
                label = "".join(f"{row.flow} · {row.conversation}" for row in _rows(fresh[-1:], _Turn))
                self._pace.turns_done(len(fresh), sum(row.error is not None for row in rows), label)
        for file in self._folder.files(CALLS) if self._counts_calls else ():
            for event in _rows(self._fresh(file), _Call):
                if event.kind == "model_call" and event.origin == "live" and event.completion is not None:
                    said = event.completion
                    self._budget.pay_call(event.model, said.usage, event.cost_usd, said.finish_reason)
        if self._budget.is_spent and not stop.exists():
            replace_file(stop, SPENT)

    def _allowances(self) -> dict[str, Allowance]:
        told = []
        for shard in self._shards:
            with contextlib.suppress(OSError, ValueError):
                told.append(msgspec.json.decode((shard.folder / ALLOWANCES).read_bytes(), type=dict[str, Allowance]))
        return together(told)

    def _forget_allowances(self) -> None:
        for shard in self._shards:
            (shard.folder / ALLOWANCES).unlink(missing_ok=True)

    def _fresh(self, file: Path) -> list[bytes]:
        """The whole lines that were added since it was asked last."""
        with file.open("rb") as opened:
            opened.seek(self._tails.get(file, 0))
            *lines, rest = opened.read().split(b"\n")
            self._tails[file] = opened.tell() - len(rest)
        return lines


def _of_all(parts: Sequence[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """What was answered, refused and waited in all; and for each worker, which keeps to its own, all it has to say."""
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(name for part in parts for name in part):
        told = [part[name] for part in parts if name in part]
        sums = {what: round(sum(each[what] for each in told), 3) for what in ("answered", "refused", "waited_s")}
        found[name] = {**sums, "workers": [dict(each) for each in told]}
    return found


def _share(name: str, limit: LimitSpec, parts: int) -> LimitSpec:
    for what, most in limit.model_dump(exclude_none=True).items():
        if most < parts:
            raise ConfigError(
                f"limits: {name} has {what}: {most}, which {parts} parts of a run cannot share; use --workers {most}"
            )
    return LimitSpec(**{what: most and most // parts for what, most in limit.model_dump().items()})


def _result(future: Any) -> Played:
    try:
        played: Played = future.result()
    except BrokenExecutor:
        raise
    except Exception as problem:  # an executor may raise anything, a scheduler that gave up on a shard too
        raise RunError(f"a worker failed: {type(problem).__name__}: {problem}; --resume goes on") from problem
    return played


def _rows(lines: Iterable[bytes], kind: type[_Row]) -> list[_Row]:
    """Those that can be read; what cannot is told by whoever reads the run."""
    found = []
    for line in lines:
        with contextlib.suppress(ValueError):
            found.append(msgspec.json.decode(line, type=kind))
    return found


class _Turn(Struct):
    flow: str
    conversation: str
    error: str | None


class _Completion(Struct):
    usage: Usage = Usage()
    finish_reason: str = "stop"


class _Call(Struct):
    kind: str
    model: str = ""
    origin: str = "live"
    completion: _Completion | None = None
    cost_usd: float | None = None
