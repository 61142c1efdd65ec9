"""Asks a judge about the replies of a finished run.

    judged = await judge(bench, run, load_rubric("correct"))

A rubric is about turns: those with a reference, or those where passages were found for some flow. On them it is asked
about every flow's reply, also about one that was given without passages. The judge's own calls stand in a folder of
their own in the run folder, `judges/correct-1a2b3c4d` by rubric and hash of model, rubric and prompt: `calls.jsonl`
(its ledger, never part of a flow's costs) and `judgements.jsonl`. What is judged already is not asked again, so a judge
that was interrupted goes on.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from msgspec import UNSET, Struct

from agentlab.core.errors import RunError
from agentlab.core.events import Search
from agentlab.core.files import append_whole
from agentlab.core.messages import Reply, UserTurn, from_json
from agentlab.core.names import IMPORTED
from agentlab.core.trace import Totals, Trace
from agentlab.evals.judge.rubrics import ORDERS, Rubric
from agentlab.evals.judge.stress import KINDS, known_answers
from agentlab.evals.stats.agreement import GOOD
from agentlab.evals.store.folder import RunFolder
from agentlab.evals.store.ledger import rows_of
from agentlab.evals.store.rows import TurnRow, encode
from agentlab.evals.store.run import StoredRun
from agentlab.session.session import Session
from agentlab.workbench.conversation import TurnDriver
from agentlab.workbench.seat import Seat
from agentlab.workbench.workbench import Workbench

STRESS = ""
"""Stands in place of a flow, whose name is never empty, where an answer is known to be right or wrong."""
VERDICT_TOKENS = 24
Place = tuple[str, int, int]
"""Conversation, turn, epoch."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """One answer to judge."""

    flow: str
    conversation: str
    turn: int
    epoch: int
    question: str
    answer: str
    references: tuple[str, ...] = ()
    passages: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.flow, self.conversation, self.turn, self.epoch

    @property
    def digest(self) -> str:
        """Of all that the judge sees."""
        seen = [self.question, self.answer, self.references, self.passages]
        return hashlib.blake2b(json.dumps(seen).encode(), digest_size=16).hexdigest()


class Judgement(Struct, frozen=True, kw_only=True):
    """What the judge said of an answer, asked in each order; a verdict is None where it cannot be read."""

    flow: str
    conversation: str
    turn: int
    epoch: int
    digest: str = ""
    """Of what it was shown; a data set may say otherwise later."""
    verdicts: list[str | None]
    error: str | None = None

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.flow, self.conversation, self.turn, self.epoch

    def value(self, rubric: Rubric) -> float | None:
        """The mean worth of the verdicts; None where one is missing."""
        worths = [rubric.choices[verdict].worth for verdict in self.verdicts if verdict in rubric.choices]
        return sum(worths) / len(worths) if len(worths) == len(ORDERS) else None


@dataclass(frozen=True, kw_only=True)
class Judged:
    """What a judge has said of a run."""

    rubric: Rubric
    sha256: str
    model: str
    judgements: list[Judgement]
    turns: frozenset[Place]
    """What the rubric is about."""
    stress: dict[str, tuple[int, int, int]]
    """By what was done to answers: those it let pass, those it judged, and those without a verdict that can be read.

    Of `reference` all should pass, of the others none.
    """
    unread: int
    """Answers without a verdict that can be read: they have no score."""
    contradicted: int
    """Answers of which the two orders say different things."""
    spent: Totals


async def judge(
    bench: Workbench,
    run: StoredRun,
    rubric: Rubric,
    *,
    stress: int = 8,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Judged:
    """Judge what the run holds; `stress` turns also give answers that are known to be right or wrong.

    `bench` has the judge's model as its only flow's. Raises RunError where the run has nothing that the rubric could
    be asked about, and where none of the verdicts could be read.
    """
    variant = bench.variants[0]
    rubric_hash = rubric.fingerprint(bench.answering().get(variant.model, variant.model))
    folder = RunFolder(run.path / "judges" / f"{rubric.name}-{rubric_hash[:8]}")
    folder.path.mkdir(parents=True, exist_ok=True)
    turns, items = _items(run, rubric)
    if not items:
        wanted = " and ".join(rubric.sees) or "turns"
        mend = "; passages of an import are documents of corpus.jsonl beside its conversations" * (
            "passages" in rubric.sees and run.result.mode == IMPORTED
        )
        raise RunError(
            f"{run.path}: no turn has the {wanted} that {rubric.name} is about, or its data set is not here{mend}"
        )
    items += [
        Item(flow=STRESS, conversation=f"{kind}/{item.conversation}", turn=item.turn, epoch=0, question=item.question,
             answer=answer, references=item.references, passages=item.passages)
        for item, kind, answer in known_answers(items, stress, rubric.best)
    ]  # fmt: skip
    kept = _kept(folder)
    todo = [item for item in items if item.key not in kept or kept[item.key].digest != item.digest]
    waiting = iter(todo)
    done = len(items) - len(todo)
    on_progress(done, len(items))

    async def worker() -> None:
        nonlocal done
        for item in waiting:
            trace = Trace(f"judge {rubric.name}", f"{item.flow or 'known'}/{item.conversation}", item.epoch)
            trace.listeners.append(folder.ledger_of(trace))
            session = await bench.session(variant, Seat(trace=trace))
            played = await TurnDriver(session).play(
                partial(_ask, rubric=rubric, item=item), item.turn, UserTurn(text=item.question)
            )
            said = json.loads(played.reply.text) if played.reply else []
            judgement = Judgement(
                flow=item.flow, conversation=item.conversation, turn=item.turn, epoch=item.epoch,
                digest=item.digest, verdicts=said, error=played.error,
            )  # fmt: skip
            kept[judgement.key] = judgement
            if judgement.error is None:
                append_whole(folder.path / "judgements.jsonl", f"{encode(judgement)}\n".encode())
            done += 1
            on_progress(done, len(items))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(bench.spec.concurrency):
                group.create_task(worker())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return _judged(rubric, rubric_hash, variant.model, turns, items, kept, folder)


def _judged(
    rubric: Rubric,
    sha256: str,
    model: str,
    turns: frozenset[Place],
    items: Sequence[Item],
    kept: dict[tuple[str, str, int, int], Judgement],
    folder: RunFolder,
) -> Judged:
    judgements = [kept[item.key] for item in items]
    flows = [judgement for judgement in judgements if judgement.flow != STRESS]
    unread = [judgement for judgement in flows if judgement.value(rubric) is None]
    if len(unread) == len(flows):
        why = next((judgement.error for judgement in unread if judgement.error), "none of its verdicts can be read")
        raise RunError(f"{model} has judged nothing: {why}")
    stress = {}
    for kind in KINDS:
        values = [j.value(rubric) for j in judgements if j.flow == STRESS and j.conversation.startswith(f"{kind}/")]
        read = [value for value in values if value is not None]
        stress[kind] = sum(value >= GOOD for value in read), len(read), len(values) - len(read)
    return Judged(
        rubric=rubric,
        sha256=sha256,
        model=model,
        judgements=flows,
        turns=turns,
        stress=stress,
        unread=len(unread),
        contradicted=sum(len({*judgement.verdicts} - {None}) > 1 for judgement in flows),
        spent=Totals.sum(trace.totals() for trace in folder.ledger.values()),
    )


async def _ask(asked: UserTurn, session: Session, *, rubric: Rubric, item: Item) -> Reply:
    verdicts: list[str | None] = []
    for order in ORDERS:
        messages = rubric.messages(item.question, item.answer, item.references, item.passages, order)
        said = await session.complete(
            messages, output_schema=rubric.schema_of_verdict, phase="judge", max_tokens=VERDICT_TOKENS
        )
        verdicts.append(_verdict(said.text, rubric))
    return Reply(text=json.dumps(verdicts))


def _verdict(text: str, rubric: Rubric) -> str | None:
    try:
        said = json.loads(text)
    except ValueError:
        return None
    verdict = said.get("verdict") if isinstance(said, dict) else None
    return verdict if isinstance(verdict, str) and verdict in rubric.choices else None


def _items(run: StoredRun, rubric: Rubric) -> tuple[frozenset[Place], list[Item]]:
    """The turns that the rubric is about, and the replies to judge; of those that are empty the verdict is known."""
    documents = {document.doc_id: document.text for dataset in run.datasets for document in dataset.documents}
    about, items = set[Place](), list[Item]()
    for row in run.played():
        turn = run.asked(row.conversation, row.turn)
        if turn is None or ("reference" in rubric.sees and (turn.unanswerable or not turn.reference_answers)):
            continue
        passages = _passages(run, row, documents) if "passages" in rubric.sees else ()
        if passages or "passages" not in rubric.sees:
            about.add((row.conversation, row.turn, row.epoch))
        if row.reply is None or not row.reply.text.strip() or passages is None:
            continue
        items.append(
            Item(
                flow=row.flow,
                conversation=row.conversation,
                turn=row.turn,
                epoch=row.epoch,
                question=row.user,
                answer=row.reply.text,
                references=() if turn.unanswerable else tuple(turn.reference_answers),
                passages=passages,
            )
        )
    return frozenset(about), [item for item in items if (item.conversation, item.turn, item.epoch) in about]


def _passages(run: StoredRun, row: TurnRow, documents: Mapping[str, str]) -> tuple[str, ...] | None:
    """What the reply was made of: what was found, or what the source of an imported answer names; None if unknown."""
    if row.passages is not UNSET:
        return tuple(documents[name] for name in row.passages) if documents.keys() >= {*row.passages} else None
    if run.result.mode == IMPORTED:
        return None
    # A flow that did nothing but answer has no trace.
    events = run.traces[row.play].of_turn(row.turn) if row.play in run.traces else []
    searches = [event for event in events if isinstance(event, Search)]
    return tuple(dict.fromkeys(passage.text for search in searches for passage in search.passages))


def _kept(folder: RunFolder) -> dict[tuple[str, str, int, int], Judgement]:
    try:
        files = folder.held("judgements.jsonl")
        rows = (rows_of(file, lambda content: from_json(Judgement, content), Judgement) for file in files)
        return {row.key: row for row in chain.from_iterable(rows)}
    except RunError as problem:
        raise RunError(f"{problem}; delete it, and what it holds is asked again") from None
