"""Finds the cause of each failed or poor turn: one cause per turn, by fixed rules, with the event that shows it.

run.causes()                    # a data frame: flow, conversation, turn, epoch, cause, event, why
agentlab show RUN               # number of turns per flow and cause

A turn is poor in these cases: it failed; it answers although it should decline; its tool calls or arguments are not
the expected ones; its `answer_correctness` is below .5 (.3 if the reference is a paragraph); it misses an expected
memory write, leaves a stale fact, or writes without need.

The rules are tried in the order of `RULES`. The first rule that applies is the cause, so a turn gets the earliest step
that went wrong. `evals/bench/causes.py` compares them with a reader's labels; see `results/LOG.md`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from agentlab.core.events import ANSWERING, Decision, Event, MemoryOp, ModelCall, Search, ToolRun, shorten
from agentlab.data.conversations import Turn
from agentlab.evals.scorers.correctness import correctness
from agentlab.evals.scorers.stems import content_stems
from agentlab.evals.scorers.words import best_score, has_reference, is_paragraph
from agentlab.evals.store.rows import TurnRow
from agentlab.evals.store.run import StoredRun
from agentlab.knowledge.citations import strip_markers
from agentlab.knowledge.refusal import Verdict, read_reply

POOR, POOR_PARAGRAPH = 0.5, 0.3
STRICT_MEASURES = ("argument_accuracy", "tool_f1", "memory_write_recall", "memory_restraint", "no_stale_fact")
"""Measures that make a turn poor if they are below 1."""
LIMIT = "limit reached"
"""End of a decision's name if a flow answers because it reached its step limit."""
Evidence = tuple[Event | None, str]
"""Event that shows a cause, and the explanation."""


@dataclass(frozen=True)
class Cause:
    flow: str
    conversation: str
    turn: int
    epoch: int
    cause: str
    event: int | None
    """Id of the event in the trace; None if the cause is a missing event."""
    shown_by: str
    why: str

    def __str__(self) -> str:
        return f"{self.cause}: {shorten(self.why, 200)}" + (f" (by {self.shown_by})" if self.shown_by else "")


@dataclass(frozen=True)
class GradedTurn:
    """Turn with everything that the rules read."""

    row: TurnRow
    turn: Turn
    events: Sequence[Event]
    scores: Mapping[str, float]
    hides_searches: bool = False

    def low(self, metric: str, below: float = 1.0) -> bool:
        return metric in self.scores and self.scores[metric] < below

    @property
    def reply_text(self) -> str:
        return strip_markers(self.row.reply.text) if self.row.reply else ""

    @property
    def is_poor(self) -> bool:
        return (
            self.row.error is not None
            or self.is_wrong
            or any(map(self.low, STRICT_MEASURES))
            or bool(_missed_refusal(self))
        )

    @property
    def is_wrong(self) -> bool:
        """Return True if the reply has too little of the reference answer."""
        if not has_reference(self.turn):
            return False
        poor = POOR_PARAGRAPH if all(map(is_paragraph, self.turn.reference_answers)) else POOR
        if "answer_correctness" in self.scores:
            return self.low("answer_correctness", poor)
        value = best_score(self.turn, partial(correctness, self.reply_text)).value
        return value is not None and value < poor

    def last(self, kind: type[Event]) -> Event | None:
        return next((event for event in reversed(self.events) if isinstance(event, kind)), None)

    @property
    def reply_call(self) -> ModelCall | None:
        """Return the last model call of a reply phase; None without one."""
        calls = [event for event in self.events if isinstance(event, ModelCall) and event.completion is not None]
        return next((call for call in reversed(calls) if call.phase in ANSWERING), None)

    @property
    def recalled(self) -> list[str]:
        ops = (event for event in self.events if isinstance(event, MemoryOp) and event.op == "recall")
        return list(dict.fromkeys(fact.text for op in ops for fact in op.facts))


def _error(case: GradedTurn) -> Evidence | None:
    if case.row.error is None:
        return None
    failed = [event for event in case.events if event.error is not None]
    return (failed[-1] if failed else None), case.row.error


def _missed_refusal(case: GradedTurn) -> Evidence | None:
    if case.turn.unanswerable and _verdict(case, "refusal_accuracy") == "answers":
        return case.reply_call, "the turn has no answer, and the reply gives one"
    return None


def _verdict(case: GradedTurn, metric: str) -> Verdict:
    """Return the verdict on the reply: undecided if the score of `metric` is, otherwise by the wording."""
    score = (case.row.scores or {}).get(metric)
    return "not decided" if score and score.value is None else read_reply(case.reply_text).verdict


def _wrong_arguments(case: GradedTurn) -> Evidence | None:
    if not case.low("argument_accuracy") or case.low("tool_recall"):
        return None
    wanted = {call.name for call in case.turn.expected_calls or ()}
    run = next((e for e in reversed(case.events) if isinstance(e, ToolRun) and e.call.name in wanted), None)
    return run, f"called with {run.call.malformed or run.call.arguments}" if run else "no call"


def _wrong_tool(case: GradedTurn) -> Evidence | None:
    if not case.low("tool_f1"):
        return None
    wanted = Counter(call.name for call in case.turn.expected_calls or ())
    for event in case.events:
        if isinstance(event, ToolRun):
            if not wanted[event.call.name]:
                return event, f"called {event.call.name}; expected {', '.join(wanted) or 'no call'}"
            wanted[event.call.name] -= 1
    return case.reply_call, f"did not call {', '.join(+wanted)}"


def _cut_off_call(case: GradedTurn) -> Evidence | None:
    """Detect a call whose arguments were cut off, so that the tool did not run."""
    if not case.is_wrong:
        return None
    cut = next((call for call in _cut(case) if call.phase not in ANSWERING), None)
    malformed = any(isinstance(event, ToolRun) and event.call.malformed is not None for event in case.events)
    return (cut, f"a call ended at max_tokens ({cut.request.max_tokens})") if cut and malformed else None


def _loop_limit(case: GradedTurn) -> Evidence | None:
    limits = [event for event in case.events if isinstance(event, Decision) and event.name.endswith(LIMIT)]
    return (limits[-1], f"{limits[-1].name}: {limits[-1].why}") if limits and case.is_wrong else None


def _retrieval_miss(case: GradedTurn) -> Evidence | None:
    if not case.is_wrong or not case.turn.relevant_doc_ids:
        return None
    searches = [event for event in case.events if isinstance(event, Search)]
    doc_ids = {passage.doc_id for search in searches for passage in search.passages}
    if doc_ids & {*case.turn.relevant_doc_ids}:
        return None
    why = f"found {', '.join(sorted(doc_ids)) or 'nothing'}" if searches else "did not search"
    return (searches[-1] if searches else None), f"{why}; relevant: {', '.join(case.turn.relevant_doc_ids)}"


def _memory_miss(case: GradedTurn) -> Evidence | None:
    """Detect a missing recall of the evidence, or a missing write of a stated fact."""
    if case.is_wrong and case.low("memory_recall"):
        recall = case.last(MemoryOp)
        return recall, "the recalled facts do not contain the evidence" if recall else "did not recall"
    writes = [event for event in case.events if isinstance(event, MemoryOp) and event.written]
    if case.low("memory_write_recall") and not (writes and case.low("no_stale_fact")):
        return (writes[-1] if writes else case.last(MemoryOp)), "the stated fact was not written to memory"
    return None


def _stale_memory(case: GradedTurn) -> Evidence | None:
    if case.low("no_stale_fact"):
        return case.last(MemoryOp), "memory still holds the old version"
    if not case.is_wrong:
        return None
    question, names = content_stems(case.row.user), _names(case.reply_text)
    expected = {word for reference in case.turn.reference_answers for word in content_stems(reference)}
    for fact in case.recalled:
        stems = content_stems(fact)
        other = (names & stems) - question - expected
        rivals = (content_stems(newer) for newer in case.recalled if newer != fact)
        if other and question & stems and any(expected & rival for rival in rivals):
            return case.last(MemoryOp), f"answers from an older fact: {shorten(fact, 120)}"
    return None


def _wrong_refusal(case: GradedTurn) -> Evidence | None:
    if case.is_wrong and _verdict(case, "answered") == "declines":
        return case.reply_call, "declines, although there is an answer"
    return None


def _cut_off(case: GradedTurn) -> Evidence | None:
    call = case.reply_call
    if case.is_wrong and call and call in _cut(case):
        return call, f"the reply ended at max_tokens ({call.request.max_tokens})"
    return None


def _stopped(case: GradedTurn) -> Evidence | None:
    call = case.reply_call
    if case.is_wrong and call and call.completion and call.completion.stopped:
        return call, call.completion.stopped
    return None


def _evidence_ignored(case: GradedTurn) -> Evidence | None:
    if not case.is_wrong:
        return None
    ran = next((e for e in reversed(case.events) if isinstance(e, ToolRun) and e.error is None and e.output), None)
    if case.turn.relevant_doc_ids:
        return case.last(Search), "the search found a relevant document, and the reply does not use it"
    if case.recalled:
        return case.last(MemoryOp), "the flow recalled the evidence, and the reply does not use it"
    return (ran, f"{ran.call.name} returned {shorten(ran.output, 100)}") if ran else None


def _unsupported_claim(case: GradedTurn) -> Evidence | None:
    return (case.reply_call, "the flow looked up no evidence for the reply") if case.is_wrong else None


def _needless_memory(case: GradedTurn) -> Evidence | None:
    return (case.last(MemoryOp), "wrote a fact without a reason") if case.low("memory_restraint") else None


RULES: dict[str, tuple[tuple[Callable[[GradedTurn], Evidence | None], ...], str]] = {
    "error": ((_error,), "the turn failed"),
    "missed refusal": ((_missed_refusal,), "the reply answers a question that has no answer"),
    "wrong arguments": ((_wrong_arguments,), "the flow called the expected tools with wrong arguments"),
    "wrong tool": ((_wrong_tool,), "the flow called an unexpected tool, or did not call an expected one"),
    "cut off": ((_cut_off_call,), "max_tokens ended a call's arguments or a wrong reply"),
    "stopped": ((_stopped,), "a filter or the server stopped the reply, or the server does not read the call in it"),
    "loop limit": ((_loop_limit,), "the flow reached its limit of steps, and its answer is wrong"),
    "retrieval miss": ((_retrieval_miss,), "the answer is wrong, and no search found a relevant document"),
    "memory miss": ((_memory_miss,), "the flow did not recall the evidence, or did not write a stated fact"),
    "stale memory": ((_stale_memory,), "memory holds the old version of a fact, or the reply states it"),
    "wrong refusal": (
        (_cut_off, _wrong_refusal),
        "the reply declines, although the flow had the evidence for an answer",
    ),
    "evidence ignored": ((_evidence_ignored,), "the flow had the evidence, and the reply says something else"),
    "unsupported claim": ((_unsupported_claim,), "the answer is wrong, and the flow looked nothing up"),
    "needless memory": ((_needless_memory,), "the flow wrote to memory without a reason"),
    "unknown": ((), "a poor answer without a trace, or without the searches of the flow"),
}
"""Cause -> its rules and its meaning; the first cause that applies counts."""
SEARCHED = ("retrieval miss", "evidence ignored", "unsupported claim")
"""Causes that depend on a flow's searches; not reported if these are unknown."""
WITHOUT_A_TRACE = ("error", "missed refusal", "wrong refusal")


def cause_of(case: GradedTurn) -> tuple[str, Evidence] | None:
    """Return the cause and its evidence by the first rule that applies; None if the turn is not poor."""
    imported = case.row.wall_seconds is None
    candidates = (
        WITHOUT_A_TRACE if imported else [cause for cause in RULES if not case.hides_searches or cause not in SEARCHED]
    )
    for cause in candidates:
        for rule in RULES[cause][0]:
            if evidence := rule(case):
                return ("cut off" if rule is _cut_off else cause), evidence
    why = "the source has no trace" if imported else "the flow's searches are unknown" if case.hides_searches else ""
    return ("unknown", (None, why)) if why and case.is_wrong else None


def causes(run: StoredRun, turns: Iterable[TurnRow] | None = None) -> Iterator[Cause]:
    """Yield the cause of every failed or poor turn, or of those of `turns`, by trial.

    Without the unchanged data set only failed turns have a cause.
    """
    for row in run.rows() if turns is None else turns:
        values = {name: float(score.value) for name, score in (row.scores or {}).items() if score.value is not None}
        case = GradedTurn(row, run.expected_turn(row.conversation, row.turn) or Turn(user=row.user), (), values)
        case = replace(case, hides_searches=run.hides_searches(row.flow))
        trace = run.traces.get(row.trial) if case.is_poor else None
        if case.is_poor and (match := cause_of(replace(case, events=trace.at(row.turn) if trace else ()))):
            cause, (event, why) = match
            key = row.flow, row.conversation, row.turn, row.epoch
            yield Cause(*key, cause, event.id if event else None, event.title if event else "", why)


def poor_turns(run: StoredRun) -> Iterator[str]:
    """Yield a line per flow with its causes, the most frequent first."""
    counted: dict[str, Counter[str]] = {flow: Counter() for flow in run.result.flows}
    for cause in causes(run):
        counted[cause.flow][cause.cause] += 1
    for flow, counts in counted.items():
        if counts:
            causes_ = ", ".join(f"{count} {name}" for name, count in counts.most_common())
            yield f"poor turns of {flow}, {counts.total()} of {run.result.flows[flow].turns}: {causes_}"


def _cut(case: GradedTurn) -> list[ModelCall]:
    calls = [event for event in case.events if isinstance(event, ModelCall) and event.completion is not None]
    return [call for call in calls if call.completion and call.completion.finish_reason == "length"]


def _names(text: str) -> frozenset[str]:
    """Return the stems of capitalised words and numbers: names, dates and figures."""
    return content_stems(" ".join(re.findall(r"\b(?:[A-Z]\w+|\d[\w.,:]*)", text)))
