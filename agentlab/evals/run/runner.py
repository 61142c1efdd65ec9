"""Plays every conversation through every flow and writes down what happens, turn by turn.

    run = await run(lab, out=Path("results/first"))

A turn that raises is a failed turn: it keeps what it cost, scores 0 and is never dropped. Conversations are independent
of each other; the turns of one come in order. A killed run is continued with `resume=True`: finished conversations are
kept, the others begin again as a new take.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import platform
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import agentlab
from agentlab.core.errors import ConfigError, RecordingError, RunError
from agentlab.core.events import Event
from agentlab.core.messages import Citation, Reply, ToolSpec, UserTurn, to_json
from agentlab.core.trace import Trace, billed
from agentlab.data.conversations import Conversation
from agentlab.data.datasets import Dataset, name_of
from agentlab.data.lint import doubts
from agentlab.evals.results.graders import fingerprints
from agentlab.evals.results.run import Run, finish
from agentlab.evals.run.folder import FORMAT, Play, RunFolder, locked, play_of, run_log
from agentlab.evals.run.memories import BudgetSpent, Memories, check_memory
from agentlab.tools.stub import StubTools

if TYPE_CHECKING:
    from agentlab.lab.lab import Lab
    from agentlab.session.session import Session
    from agentlab.workbench.variants import Variant

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Handed to `on_progress` before the first turn and after each one."""

    done: int
    total: int
    failed: int
    seconds_left: float | None = None
    """At the pace of the last turns; None before the first one is done."""
    label: str = ""


@dataclass(frozen=True)
class _Play:
    """One conversation to be played through one flow."""

    variant: Variant
    dataset: Dataset
    conversation: Conversation
    name: str
    epoch: int

    @property
    def key(self) -> Play:
        return self.variant.label, self.name, self.epoch


async def run(
    lab: Lab,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    on_event: Callable[[Trace, Event], None] = lambda trace, event: None,
) -> Run:
    """Run the lab's spec into the folder `out` (default `results/<run id>`) and return the finished run.

    Raises ConfigError where flows, data and budget do not fit together, before anything is written.
    """
    datasets = lab.datasets()
    for dataset in datasets:
        for variant in lab.variants:
            _check_needs(variant, dataset)
        check_memory(lab.variants, dataset, lab.spec.ingest)
        found = list(doubts(dataset))
        if found:
            more = f" (and {len(found) - 1} more such places)" if len(found) > 1 else ""
            log.warning("%s: %s%s", dataset.name, found[0], more)
    _check_budget(lab)
    _check_recordings(lab, resume)
    if resume and out is None:
        raise ConfigError("to resume, name the folder of the run to go on with: --out DIR")
    run_id = f"{datetime.now():%Y%m%d-%H%M%S}-{lab.spec.name}"
    path = Path(out) if out is not None else Path("results") / run_id
    with run_log() as log_to:
        await _open_tools(lab, datasets)
        with locked(path):
            folder = _open_folder(lab, datasets, path, resume)
            log_to(folder.path)
            runner = _Runner(lab, datasets, folder, on_progress, on_event)
            try:
                await runner.play_all()
            finally:
                folder.close()
            return await finish(lab, folder, datasets, complete=runner.complete)


class _Runner:
    def __init__(
        self,
        lab: Lab,
        datasets: tuple[Dataset, ...],
        folder: RunFolder,
        on_progress: Callable[[Progress], None],
        on_event: Callable[[Trace, Event], None],
    ) -> None:
        self.lab = lab
        self.folder = folder
        self.complete = True
        self._on_progress = on_progress
        self._on_event = on_event
        self._plays = list(_plays(lab, datasets))
        self._takes = folder.takes()
        self._finished = _finished(folder, self._plays)
        # Only a budget needs them; ten thousand calls kept for nothing would make every garbage collection a long one.
        self._budgeted = lab.spec.budget.usd is not None or lab.spec.budget.calls is not None
        self._traces = [trace for key, trace in folder.traces().items() if self._budgeted and key in self._finished]
        # Paid for, though a conversation that was cut off begins anew.
        cut_off = [e for key, trace in folder.traces().items() if key not in self._finished for e in trace.events]
        self._spent_before = billed([*folder.abandoned(), *cut_off])
        self._total = 0
        self._memories = Memories(lab, self._begin, self._over_budget)
        self._done = self._failed = 0
        # Only the last turns tell the pace: those that a recording answered come first in a continued run, and at once.
        self._ends: deque[float] = deque(maxlen=33)

    async def play_all(self) -> None:
        left = [play for play in self._plays if play.key not in self._finished]
        self._total = sum(len(play.conversation.scored_turns) for play in left)
        for play in left:
            await self.lab.model(play.variant.model)
            await self.lab.index(play.dataset.documents, play.variant.retrieval, self._report_indexing)
            self._memories.expect(play.variant, play.dataset, play.conversation, play.epoch)
        self._ends.append(time.perf_counter())
        self._report("")
        waiting = iter(left)

        async def worker() -> None:
            for play in waiting:
                if self._over_budget():
                    return
                try:
                    await self._play(play)
                except BudgetSpent:
                    return

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self.lab.spec.concurrency, len(left))):
                    group.create_task(worker())
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        finally:
            await self._memories.close()
        played = _finished(self.folder, self._plays)
        self.complete = all(play.key in played for play in self._plays)

    def _begin(self, key: Play) -> Trace:
        trace = Trace(*key, take=self._takes.get(key, -1) + 1)
        trace.listeners += [self.folder.append_event, self._on_event]
        if self._budgeted:
            self._traces.append(trace)
        return trace

    async def _play(self, play: _Play) -> None:
        index = await self.lab.index(play.dataset.documents, play.variant.retrieval)
        conversation = play.conversation
        stub = StubTools(
            [ToolSpec(name=t.name, description=t.description, parameters=t.parameters) for t in conversation.tools]
        )
        today = conversation.metadata.get("today")
        async with self._memories.memory(play.variant, play.dataset, conversation, play.epoch) as memory:
            trace = self._begin(play.key)
            session = await self.lab.session(
                play.variant,
                trace,
                index=index,
                tools=stub.tools,
                memory=memory,
                now=datetime.fromisoformat(today) if today else None,
            )
            await self._turns(play, trace, session, stub)

    async def _turns(self, play: _Play, trace: Trace, session: Session, stub: StubTools) -> None:
        part: str | None = None
        for number, turn in enumerate(play.conversation.turns):
            if turn.session != part and number > 0:
                session.forget_history()
            part = turn.session
            session.now = _moment(part) or session.now
            if not turn.scored:
                session.add_unscored(turn.user, turn.reference_answers[0] if turn.reference_answers else None)
                continue
            stub.begin_turn([result.model_dump() for result in turn.tool_results])
            session.begin_turn(number)
            speaker = turn.speaker
            asked = UserTurn(
                text=turn.user,
                speaker_id=speaker.id if speaker else None,
                speaker_name=speaker.name if speaker else None,
                session=turn.session,
            )
            await self._turn(play, trace, session, number, asked)

    async def _turn(self, play: _Play, trace: Trace, session: Session, number: int, asked: UserTurn) -> None:
        began = time.perf_counter()
        reply, error = None, None
        try:
            reply = _checked(await play.variant.respond(asked, session))
        except BaseException as failure:
            # A flow may raise anything, CancelledError and SystemExit too; only a cancelled run is not its doing.
            task = asyncio.current_task()
            if isinstance(failure, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            if isinstance(failure, RecordingError):
                # What is not written down would be paid for again, and every further turn with it.
                raise
            reply, error = None, f"{type(failure).__name__}: {failure}"
            self._failed += 1
            log.warning("%s/%s turn %d failed: %s", trace.flow, trace.conversation, number, error)
            log.debug("traceback of the failed turn", exc_info=True)
        await session.join()
        self.folder.append_turn(
            {
                "flow": trace.flow,
                "dataset": play.dataset.name,
                "conversation": trace.conversation,
                "turn": number,
                "category": play.conversation.metadata.get("category"),
                "epoch": trace.epoch,
                "take": trace.take,
                "user": asked.text,
                "reply": to_json(reply) if reply else None,
                "error": error,
                "wall_seconds": time.perf_counter() - began,
                "totals": trace.totals(number).__dict__,
            }
        )
        self._done += 1
        self._ends.append(time.perf_counter())
        self._report(f"{trace.flow} · {trace.conversation}")

    def _report_indexing(self, done: int, total: int) -> None:
        if done < total:  # a small corpus is done before anybody could read it
            self._report(f"indexing: {done} of {total} passages")

    def _report(self, label: str) -> None:
        turns = len(self._ends) - 1
        left = (self._ends[-1] - self._ends[0]) / turns * (self._total - self._done) if turns > 0 else None
        self._on_progress(
            Progress(done=self._done, total=self._total, failed=self._failed, seconds_left=left, label=label)
        )

    def _over_budget(self) -> bool:
        budget = self.lab.spec.budget
        if not self._budgeted:
            return False
        spent = [self._spent_before, *(billed(trace.events) for trace in self._traces)]
        calls = sum(t.llm_calls for t in spent)
        if budget.usd is not None and any(t.cost_usd is None for t in spent):
            log.warning("a reply reported no tokens, so dollars can no longer be counted; the run stops here")
            return True
        usd = sum(t.cost_usd or 0.0 for t in spent)
        over = (budget.usd is not None and usd >= budget.usd) or (budget.calls is not None and calls >= budget.calls)
        if over:
            log.warning("the budget is spent: $%.4f, %d calls; the run stops here and can be resumed", usd, calls)
        return over


def _moment(part: str | None) -> datetime | None:
    """The date of a session that is named by it."""
    try:
        return datetime.fromisoformat(part) if part else None
    except ValueError:
        return None


def _checked(reply: Any) -> Reply:
    """The reply, if it can be stored and graded; TypeError otherwise, which makes it a failed turn."""
    if not isinstance(reply, Reply):
        raise TypeError(f"the flow returned {type(reply).__name__}, not a Reply")
    if not isinstance(reply.text, str) or not all(isinstance(citation, Citation) for citation in reply.citations):
        raise TypeError("the flow returned a Reply whose text is no string or whose citations are no Citations")
    json.dumps(to_json(reply))
    return reply


def _plays(lab: Lab, datasets: tuple[Dataset, ...]) -> Iterator[_Play]:
    """Flows take turns on each conversation, so that a machine that slows down slows all of them."""
    for epoch in range(lab.spec.epochs):
        for dataset in datasets:
            for conversation in dataset.conversations:
                name = name_of(dataset, conversation, datasets)
                for variant in lab.variants:
                    yield _Play(variant, dataset, conversation, name, epoch)


def _finished(folder: RunFolder, plays: list[_Play]) -> set[Play]:
    done: dict[Play, set[int]] = {}
    for row in folder.turns():
        done.setdefault(play_of(row), set()).add(row["turn"])
    return {play.key for play in plays if set(play.conversation.scored_turns) <= done.get(play.key, set())}


def _check_needs(variant: Variant, dataset: Dataset) -> None:
    has = {"documents": bool(dataset.documents), "tools": all(c.tools for c in dataset.conversations)}
    for need in variant.needs:
        if not set(need.split(" or ")) <= set(has):
            raise ConfigError(f"flow {variant.label!r} needs {need!r}; a flow can need {' or '.join(has)}")
        if not any(has[part] for part in need.split(" or ")):
            raise ConfigError(f"flow {variant.label!r} needs {need}, and the data set {dataset.name!r} has none")


def _check_budget(lab: Lab) -> None:
    if lab.spec.budget.usd is not None:
        for variant in lab.variants:
            if lab.prices.of(variant.model) is None:
                raise ConfigError(
                    f"budget.usd: {variant.model} has no price, so dollars cannot be counted; "
                    "add it to a table of your own and name that under `prices`, or use budget.calls"
                )


def _check_recordings(lab: Lab, resume: bool) -> None:
    recordings = lab.recorder.recordings
    if lab.spec.mode == "record" and not resume and recordings is not None and len(recordings):
        raise ConfigError(
            f"{lab.spec.recordings} holds recordings of {lab.spec.name!r} already; go on with --resume, keep them and"
            " add what is new with --mode auto, or delete the file to record everything anew"
        )


async def _open_tools(lab: Lab, datasets: tuple[Dataset, ...]) -> None:
    """Have the tools of data folders opened now: what is broken in there ends the run while there is no folder yet."""
    for variant in lab.variants:
        if not all(c.tools for d in datasets for c in d.conversations):
            await lab.found_tools(variant)


def _open_folder(lab: Lab, datasets: tuple[Dataset, ...], path: Path, resume: bool) -> RunFolder:
    header: dict[str, Any] = {
        "run_id": path.name,
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "spec": lab.spec.model_dump(mode="json"),
        "datasets": {
            d.name: {"sha256": d.digest, "conversations": len(d.conversations), "turns": d.turns} for d in datasets
        },
        "graders": fingerprints(lab.scorers, lab.embedder.name),
        "models": lab.answering(),
        "versions": _versions(),
        "machine": {"system": platform.platform(), "python": sys.version.split()[0], "processor": platform.machine()},
        "prices_dated": lab.prices.dated,
    }
    prompt_files = {f"{v.label}/{name}": sha256 for v in lab.variants for name, sha256 in v.prompt_files.items()}
    if prompt_files:
        header["prompt_files"] = prompt_files
    if not resume or not (path / "run.json").exists():
        return RunFolder.create(path, header)
    folder = RunFolder.open(path)
    before = folder.header
    if before["format"] != FORMAT:
        raise RunError(f"{path} was begun by an older version (run format {before['format']}); it can only be read")
    for part in ("spec", "datasets", "models", "prompt_files"):
        may_change = ("concurrency", "budget") if part == "spec" else ()
        was, now = before.get(part, {}), header.get(part, {})
        other = [key for key in sorted({*was, *now}) if was.get(key) != now.get(key) and key not in may_change]
        if other:
            raise RunError(f"{path}: {part}: {', '.join(other)} was not the same in that run; it cannot be continued")
    folder.mend()
    # Every turn is graded anew at the end, those of the first sitting too.
    folder.write_json("run.json", {**before, "graders": header["graders"]})
    return folder


def _versions() -> dict[str, str]:
    found = {"agentlab": agentlab.__version__}
    for name in ("openai", "chromadb", "xllamacpp", "onnxruntime", "bm25s", "numpy"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
