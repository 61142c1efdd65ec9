"""Grades the replies of a finished run with a judge.

    result = await judge(bench, run, load_rubric("correct"))

A rubric applies to turns with a reference, or to turns with passages for at least one flow. The judge grades every
flow's reply to such a turn, also a reply without passages. Its results are in the run folder, in
`judges/correct-1a2b3c4d`, named after the rubric and the hash of model, rubric and prompt. `calls.jsonl` is the judge's
ledger, which never counts for a flow; `judgements.jsonl` holds the verdicts. Calls with a stored verdict are not
repeated, so an interrupted judge can resume.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from msgspec import UNSET
from msgspec.structs import replace

from agentlab.core.constants import IMPORTED, JUDGE_METRIC_PREFIX, LABEL_METRIC_PREFIX
from agentlab.core.errors import NotRecorded, RunError
from agentlab.core.events import ModelCall, Search, shorten
from agentlab.core.files import append_atomically
from agentlab.core.messages import Completion, Message, Reply, UserTurn
from agentlab.core.trace import Trace
from agentlab.evals.judge.labels import ReplyKey
from agentlab.evals.judge.rubrics import KINDS, ORDERS, Answer, JudgeItem, Rubric, known_answers, read_verdict
from agentlab.evals.stats.agreement import GOOD
from agentlab.evals.store.folder import RunFolder
from agentlab.evals.store.ledger import iter_rows
from agentlab.evals.store.measures import TurnKey
from agentlab.evals.store.rows import MetricSummary, StoredScore, TurnRow, encode, encode_line
from agentlab.evals.store.run import StoredRun
from agentlab.evals.store.summary import summarise_score
from agentlab.session.session import Session
from agentlab.workbench.seat import Seat
from agentlab.workbench.turn_driver import TurnDriver
from agentlab.workbench.workbench import Workbench

KNOWN_ANSWER_FLOW = ""
"""Name instead of a flow for known answers; a flow's name is never empty."""
MAX_VERDICT_TOKENS = 4000
"""Default token limit of a verdict; a judge may think first. `generation.max_tokens` sets another limit."""
FORMER_VERDICT_TOKENS = 24
"""Fixed limit of older versions: a judge with the default limit also looks up recordings made with it."""


class Judgement(Answer, frozen=True, kw_only=True):
    """Verdicts of a judge on an answer, one per order; None for a verdict that cannot be parsed."""

    digest: str = ""
    """Hash of the judged item, since the data set may change later."""
    verdicts: list[str | None]
    error: str | None = None

    def value(self, rubric: Rubric) -> float | None:
        """Return the mean worth of the verdicts; None if one is missing."""
        worths = [rubric.choices[verdict].worth for verdict in self.verdicts if verdict in rubric.choices]
        return sum(worths) / len(worths) if len(worths) == len(ORDERS) else None


@dataclass(frozen=True, kw_only=True)
class JudgeResult:
    """Judgements of a run by one judge."""

    rubric: Rubric
    sha256: str
    model: str
    turns: frozenset[TurnKey]
    """Turns that the rubric applies to."""
    judgements: list[Judgement]
    known_answers: list[Judgement]
    """Judgements of known answers."""
    is_of_undecided: bool = False
    """True if only replies that `answer_correctness` leaves undecided were judged."""

    @property
    def known_answer_results(self) -> dict[str, tuple[int, int, int]]:
        """Return, for each kind of known answer, how many passed, were judged, and have no verdict.

        All of kind `reference` should pass, none of the others.
        """
        counts = {}
        for kind in KINDS:
            of_kind = (each for each in self.known_answers if each.conversation.startswith(f"{kind}/"))
            values = [each.value(self.rubric) for each in of_kind]
            scores = [value for value in values if value is not None]
            counts[kind] = sum(value >= GOOD for value in scores), len(scores), len(values) - len(scores)
        return counts

    @property
    def unparsed(self) -> list[Judgement]:
        """Return the judgements without a verdict; their answers have no score."""
        return [judgement for judgement in self.judgements if judgement.value(self.rubric) is None]

    @property
    def order_disagreements(self) -> int:
        """Return the number of answers on which the two orders disagree."""
        return sum(len({*judgement.verdicts} - {None}) > 1 for judgement in self.judgements)


async def judge(
    bench: Workbench,
    run: StoredRun,
    rubric: Rubric,
    *,
    known_answer_count: int = 8,
    undecided: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> JudgeResult:
    """Judge the replies of a run, and known answers to up to `known_answer_count` of its turns.

    The only flow of `bench` has the judge's model. `on_progress` receives the number of items done and the total. With
    `undecided` only the replies without a value of `answer_correctness` are judged, under a name of their own.
    Raises RunError if the rubric applies to no turn, or if no verdict can be parsed.
    """
    rubric = rubric.model_copy(update={"name": f"{rubric.name}_undecided"}) if undecided else rubric
    variant = bench.variants[0]
    rubric_hash = rubric.fingerprint(bench.resolved_models().get(variant.model, variant.model))
    folder = RunFolder(run.path / "judges" / f"{rubric.name}-{rubric_hash[:8]}")
    folder.path.mkdir(parents=True, exist_ok=True)
    turns, items = _items(run, rubric, undecided=undecided)
    items += _known_items(items, rubric, known_answer_count)
    limit = _token_limit(bench)
    # The judge repeats the calls of unreadable verdicts.
    by_key = {key: each for key, each in _load_judgements(folder).items() if each.value(rubric) is not None}
    todo = [item for item in items if item.key not in by_key or by_key[item.key].digest != item.digest]
    waiting = iter(todo)
    done = len(items) - len(todo)
    on_progress(done, len(items))

    async def worker() -> None:
        nonlocal done
        for item in waiting:
            trace = Trace(f"judge {rubric.name}", f"{item.flow or 'known'}/{item.conversation}", item.epoch)
            trace.listeners.append(folder.ledger_writer(trace))
            session = await bench.session(variant, Seat(trace=trace))
            played = await TurnDriver(session).play(
                partial(_ask, rubric=rubric, item=item, limit=limit), item.turn, UserTurn(text=item.question)
            )
            folder.flush()
            verdicts, no_verdict = json.loads(played.reply.text) if played.reply else ([], None)
            key = {name: getattr(item, name) for name in Answer.__struct_fields__}
            judgement = Judgement(**key, digest=item.digest, verdicts=verdicts, error=played.error or no_verdict)
            by_key[judgement.key] = judgement
            if judgement.value(rubric) is not None:
                append_atomically(folder.path / "judgements.jsonl", f"{encode(judgement)}\n".encode())
            done += 1
            on_progress(done, len(items))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(bench.spec.concurrency):
                group.create_task(worker())
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    judgements = [by_key[item.key] for item in items]
    result = JudgeResult(
        rubric=rubric,
        sha256=rubric_hash,
        model=variant.model,
        turns=turns,
        judgements=[judgement for judgement in judgements if judgement.flow != KNOWN_ANSWER_FLOW],
        known_answers=[judgement for judgement in judgements if judgement.flow == KNOWN_ANSWER_FLOW],
        is_of_undecided=undecided,
    )
    if len(result.unparsed) == len(result.judgements):
        why = next((each.error for each in result.unparsed if each.error), "none of its verdicts can be parsed")
        raise RunError(f"{variant.model} has judged nothing: {why}")
    return result


def _known_items(items: Sequence[JudgeItem], rubric: Rubric, count: int) -> list[JudgeItem]:
    return [
        replace(item, flow=KNOWN_ANSWER_FLOW, conversation=f"{kind}/{item.conversation}", epoch=0, answer=answer)
        for item, kind, answer in known_answers(items, count, rubric.best)
    ]


def _token_limit(bench: Workbench) -> int | None:
    """Return the token limit of a verdict; the default one also looks up recordings of older versions."""
    if "max_tokens" in bench.spec.generation.model_fields_set:
        return bench.spec.generation.max_tokens
    bench.recorder.former_max_tokens = FORMER_VERDICT_TOKENS
    return MAX_VERDICT_TOKENS


async def _ask(turn: UserTurn, session: Session, *, rubric: Rubric, item: JudgeItem, limit: int | None) -> Reply:
    """Reply with the verdicts in both orders, and with the reason for an unreadable verdict."""
    verdicts: list[str | None] = []
    reason = None
    for order in ORDERS:
        verdict, completion = await _read_verdict(session, rubric, rubric.messages(item, order), limit)
        verdicts.append(verdict)
        if verdict is None:
            reason = f"no verdict in {shorten(completion.text)!r}"
            if completion.finish_reason == "length":
                reason = f"cut at {limit} tokens, raise generation.max_tokens: {reason}"
    return Reply(text=json.dumps([verdicts, reason]))


async def _read_verdict(
    session: Session, rubric: Rubric, messages: Sequence[Message], limit: int | None
) -> tuple[str | None, Completion]:
    """Repeat the call until its verdict can be read, or until a live call ends without a readable one."""
    completion: Completion | None = None
    while True:
        try:
            completion = await session.complete(
                messages, output_schema=rubric.schema_of_verdict, phase="judge", max_tokens=limit
            )
        except NotRecorded:
            if completion is None:
                raise
            return None, completion
        verdict = read_verdict(completion.text, rubric.choices)
        call = [event for event in session.turn_events() if isinstance(event, ModelCall)][-1]
        if verdict is not None or call.origin == "live":
            return verdict, completion


def _items(run: StoredRun, rubric: Rubric, *, undecided: bool) -> tuple[frozenset[TurnKey], list[JudgeItem]]:
    """Return the turns that the rubric applies to, and the replies to judge, without empty ones: they are bad.

    Raises RunError if there are none.
    """
    documents = {document.doc_id: document.text for dataset in run.datasets for document in dataset.documents}
    about, items = set[TurnKey](), list[JudgeItem]()
    for row in run.turn_rows():
        turn = run.expected_turn(row.conversation, row.turn)
        if undecided and ((score := (row.scores or {}).get("answer_correctness")) is None or score.value is not None):
            continue
        if turn is None or ("reference" in rubric.sees and (turn.unanswerable or not turn.reference_answers)):
            continue
        passages = _passages(run, row, documents) if "passages" in rubric.sees else ()
        if passages or "passages" not in rubric.sees:
            about.add(row.key)
        if row.reply is None or not row.reply.text.strip() or passages is None:
            continue
        key = {name: getattr(row, name) for name in Answer.__struct_fields__}
        references = () if turn.unanswerable else tuple(turn.reference_answers)
        item = JudgeItem(**key, question=row.user, answer=row.reply.text, references=references, passages=passages)
        items.append(item)
    items = [item for item in items if item.key[1:] in about]
    if not items and undecided:
        raise RunError(f"{run.path}: answer_correctness leaves no reply undecided")
    if not items:
        needed = " and ".join(rubric.sees) or "turns"
        hint = "; passages of an import are documents of corpus.jsonl next to its conversations" * (
            "passages" in rubric.sees and run.result.mode == IMPORTED
        )
        raise RunError(
            f"{run.path}: no turn has the {needed} that {rubric.name} needs, or the data set is missing{hint}"
        )
    return frozenset(about), items


def _passages(run: StoredRun, row: TurnRow, documents: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the passages behind a reply, retrieved or named by an import; None if unknown."""
    if row.passages is not UNSET:
        return tuple(documents[name] for name in row.passages) if documents.keys() >= {*row.passages} else None
    if run.result.mode == IMPORTED:
        return None
    # A trial without events has no trace.
    events = run.traces[row.trial].at(row.turn) if row.trial in run.traces else []
    searches = [event for event in events if isinstance(event, Search)]
    return tuple(dict.fromkeys(passage.text for search in searches for passage in search.passages))


def _load_judgements(folder: RunFolder) -> dict[ReplyKey, Judgement]:
    try:
        files = folder.open_files("judgements.jsonl")
        rows = (iter_rows(file, Judgement) for file in files)
        return {row.key: row for row in chain.from_iterable(rows)}
    except RunError as problem:
        raise RunError(f"{problem}; delete the file to judge its items again") from None


def judge_scores(run: StoredRun, result: JudgeResult) -> dict[ReplyKey, StoredScore]:
    """Return the score of each reply to a turn of the rubric: 0 if it is empty, unknown without a verdict."""
    judgements = {judgement.key: judgement for judgement in result.judgements}
    scores = {}
    for row in run.turn_rows():
        key = row.flow, *row.key
        if row.reply is None or not row.reply.text.strip():
            score = StoredScore(0.0, "no reply")
        elif judgement := judgements.get(key):
            value = judgement.value(result.rubric)
            verdicts = " then ".join(dict.fromkeys(map(str, judgement.verdicts)))
            no_verdict = f"no verdict that can be read: {judgement.error or verdicts}"
            score = StoredScore(value, no_verdict if value is None else verdicts)
        else:
            score = StoredScore(None, "the documents behind the reply are unknown")
        if row.key in result.turns and (key in judgements or not result.is_of_undecided):
            scores[key] = score
    return scores


def add_to_run(
    run: StoredRun,
    result: JudgeResult,
    fresh: Mapping[ReplyKey, StoredScore],
    labels: Mapping[ReplyKey, float] | None = None,
) -> None:
    """Write the judge's scores into the run, in place of its earlier ones; every table then shows them.

    `labels` replace the human labels that correct the judge, unless None.
    """
    metric = result.rubric.metric
    label = metric.replace(JUDGE_METRIC_PREFIX, LABEL_METRIC_PREFIX, 1)
    written = {metric: fresh}
    if labels is not None:
        written[label] = {reply: StoredScore(value, "human label") for reply, value in labels.items()}
    rows = []
    for row in run.turn_rows():
        scores = {name: score for name, score in (row.scores or {}).items() if name not in written}
        for name, values in written.items():
            if score := values.get((row.flow, *row.key)):
                scores[name] = score
        rows.append((row.scores, replace(row, scores=scores)))
    if run.result.mode == IMPORTED:
        # Rows of an import keep the order of their source, one per turn.
        run.folder.replace_lines("turns.jsonl", (encode_line(row) for _, row in rows))
    else:
        for before, row in rows:
            if row.scores != before:
                run.folder.append_turn(row)
    flows = {}
    for each, flow in run.result.flows.items():
        summaries = {name: summary for name, summary in flow.scores.items() if name not in written}
        summaries |= _summaries(written, [row for _, row in rows if row.flow == each])
        flows[each] = replace(flow, scores=summaries)
    run.folder.write_json("run.json", {**run.header, "graders": run.header["graders"] | {metric: result.sha256}})
    run.folder.write_json("summary.json", replace(run.result, flows=flows))
    run.forget()


def _summaries(names: Iterable[str], rows: Sequence[TurnRow]) -> dict[str, MetricSummary]:
    summaries = {}
    for name in names:
        own = [(row.conversation, score) for row in rows if (score := (row.scores or {}).get(name))]
        if own:
            values = [math.nan if score.value is None else score.value for _, score in own]
            summaries[name] = summarise_score(values, [conversation for conversation, _ in own])
    return summaries
