"""Why a turn failed or was answered poorly: one cause a turn, by stated rules, with the event that shows it.

run.causes()                    # a data frame: flow, conversation, turn, epoch, cause, event, why
agentlab show RUN               # how many turns of each flow came to which cause

A turn is poor where it failed, where it does not decline though it should, where a tool it calls or its arguments are
not those expected, where its `answer_correctness` is below .5 (.3 where the reference is a paragraph), where a memory
it should write is not written or the old one is left, where it writes what nothing asked for, or where its form is not
the one asked for. The rules are tried in the order of `RULES`; the first that holds is the cause, so that a turn has
the earliest step that went wrong and not all that followed from it. How well they agree with a reader's labels:
`evals/bench/causes.py`, `results/LOG.md`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agentlab.core.events import Decision, Event, MemoryOp, ModelCall, Search, ToolRun, shorten
from agentlab.data.conversations import Turn
from agentlab.evals.scorers.correctness import correctness, is_paragraph
from agentlab.evals.scorers.stems import content_stems
from agentlab.evals.scorers.words import has_reference
from agentlab.evals.store.rows import TrialKey, TurnRow
from agentlab.evals.store.run import StoredRun
from agentlab.knowledge.citations import strip_markers
from agentlab.knowledge.refusal import declines

POOR, POOR_PARAGRAPH = 0.5, 0.3
STRICT_MEASURES = ("argument_accuracy", "tool_f1", "memory_write_recall", "memory_restraint", "no_stale_fact")
"""Measures of which anything below 1 makes a turn poor."""
LIMIT = "limit reached"
"""How the decisions of flows end that say they must answer now."""
ANSWERING = ("answer", "fallback")
Found = tuple[Event | None, str]
"""The event that shows a cause, and what it shows."""


@dataclass(frozen=True)
class Cause:
    flow: str
    conversation: str
    turn: int
    epoch: int
    cause: str
    event: int | None
    """The id of the event in the trace; None where nothing happened that should have."""
    shown_by: str
    why: str

    @property
    def play(self) -> TrialKey:
        return self.flow, self.conversation, self.epoch

    def __str__(self) -> str:
        return f"{self.cause}: {shorten(self.why, 200)}" + (f" (by {self.shown_by})" if self.shown_by else "")


@dataclass(frozen=True)
class GradedTurn:
    """A turn with all that the rules look at."""

    row: TurnRow
    turn: Turn
    events: Sequence[Event]
    scores: Mapping[str, float]

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
        """Whether there is a reference and the reply has less than half of it."""
        if not has_reference(self.turn):
            return False
        references = self.turn.reference_answers
        poor = POOR_PARAGRAPH if all(map(is_paragraph, references)) else POOR
        if "answer_correctness" in self.scores:
            return self.low("answer_correctness", poor)
        return max(correctness(self.reply_text, reference) for reference in references) < poor

    def last(self, kind: type[Event]) -> Event | None:
        return next((event for event in reversed(self.events) if isinstance(event, kind)), None)

    @property
    def reply_call(self) -> ModelCall | None:
        """The call whose text is the reply, as far as the phases tell."""
        calls = [event for event in self.events if isinstance(event, ModelCall) and event.completion is not None]
        return next((call for call in reversed(calls) if call.phase in ANSWERING), None)

    @property
    def recalled(self) -> list[str]:
        ops = (event for event in self.events if isinstance(event, MemoryOp) and event.op == "recall")
        return list(dict.fromkeys(fact.text for op in ops for fact in op.facts))


def _error(case: GradedTurn) -> Found | None:
    if case.row.error is None:
        return None
    failed = [event for event in case.events if event.error is not None]
    return (failed[-1] if failed else None), case.row.error


def _missed_refusal(case: GradedTurn) -> Found | None:
    if case.turn.unanswerable and not declines(case.reply_text):
        return case.reply_call, "the turn has no answer, and the reply gives one"
    return None


def _wrong_arguments(case: GradedTurn) -> Found | None:
    if not case.low("argument_accuracy") or case.low("tool_recall"):
        return None
    wanted = {call.name for call in case.turn.expected_calls or ()}
    run = next((e for e in reversed(case.events) if isinstance(e, ToolRun) and e.call.name in wanted), None)
    return run, f"called with {run.call.malformed or run.call.arguments}" if run else "no call"


def _wrong_tool(case: GradedTurn) -> Found | None:
    if not case.low("tool_f1"):
        return None
    wanted = Counter(call.name for call in case.turn.expected_calls or ())
    for event in case.events:
        if isinstance(event, ToolRun):
            if not wanted[event.call.name]:
                return event, f"called {event.call.name}; expected {', '.join(wanted) or 'no call'}"
            wanted[event.call.name] -= 1
    return case.reply_call, f"did not call {', '.join(+wanted)}"


def _cut_off_call(case: GradedTurn) -> Found | None:
    """The arguments of a call were cut off, and the tool did not run."""
    if not case.is_wrong:
        return None
    cut = next((call for call in _cut(case) if call.phase not in ANSWERING), None)
    malformed = any(isinstance(event, ToolRun) and event.call.malformed is not None for event in case.events)
    return (cut, f"a call ended at max_tokens ({cut.request.max_tokens})") if cut and malformed else None


def _loop_limit(case: GradedTurn) -> Found | None:
    limits = [event for event in case.events if isinstance(event, Decision) and event.name.endswith(LIMIT)]
    return (limits[-1], f"{limits[-1].name}: {limits[-1].why}") if limits and case.is_wrong else None


def _retrieval_miss(case: GradedTurn) -> Found | None:
    if not case.is_wrong or not case.turn.relevant_doc_ids:
        return None
    searches = [event for event in case.events if isinstance(event, Search)]
    found = {passage.doc_id for search in searches for passage in search.passages}
    if found & {*case.turn.relevant_doc_ids}:
        return None
    why = f"found {', '.join(sorted(found)) or 'nothing'}" if searches else "did not search"
    return (searches[-1] if searches else None), f"{why}; relevant: {', '.join(case.turn.relevant_doc_ids)}"


def _memory_miss(case: GradedTurn) -> Found | None:
    """What answers was not recalled; or what was told was not written."""
    if case.is_wrong and case.low("memory_recall"):
        recall = case.last(MemoryOp)
        return recall, "what answers was not among the recalled facts" if recall else "did not recall"
    writes = [event for event in case.events if isinstance(event, MemoryOp) and event.written]
    if case.low("memory_write_recall") and not (writes and case.low("no_stale_fact")):
        return (writes[-1] if writes else case.last(MemoryOp)), "what was told was not written to memory"
    return None


def _stale_memory(case: GradedTurn) -> Found | None:
    if case.low("no_stale_fact"):
        return case.last(MemoryOp), "memory still holds the old version"
    if not case.is_wrong:
        return None
    asked, said = content_stems(case.row.user), _names(case.reply_text)
    wanted = {word for reference in case.turn.reference_answers for word in content_stems(reference)}
    for fact in case.recalled:
        told = content_stems(fact)
        other = (said & told) - asked - wanted
        if other and asked & told and any(wanted & content_stems(newer) for newer in case.recalled if newer != fact):
            return case.last(MemoryOp), f"answers from an older fact: {shorten(fact, 120)}"
    return None


def _wrong_refusal(case: GradedTurn) -> Found | None:
    return (
        (case.reply_call, "declines, and there is an answer") if case.is_wrong and declines(case.reply_text) else None
    )


def _cut_off(case: GradedTurn) -> Found | None:
    call = case.reply_call
    if case.is_wrong and call and call in _cut(case):
        return call, f"the reply ended at max_tokens ({call.request.max_tokens})"
    return None


def _stopped(case: GradedTurn) -> Found | None:
    call = case.reply_call
    if case.is_wrong and call and call.completion and call.completion.stopped:
        return call, call.completion.stopped
    return None


def _evidence_ignored(case: GradedTurn) -> Found | None:
    if not case.is_wrong:
        return None
    ran = next((e for e in reversed(case.events) if isinstance(e, ToolRun) and e.error is None and e.output), None)
    if case.turn.relevant_doc_ids:
        return case.last(Search), "a relevant document was found, and the reply does not say what is in it"
    if case.recalled:
        return case.last(MemoryOp), "what answers was recalled, and the reply does not say it"
    return (ran, f"{ran.call.name} told {shorten(ran.output, 100)}") if ran else None


def _unsupported_claim(case: GradedTurn) -> Found | None:
    return (case.reply_call, "nothing was looked up that the reply could stand on") if case.is_wrong else None


def _needless_memory(case: GradedTurn) -> Found | None:
    return (case.last(MemoryOp), "wrote what nothing asked for") if case.low("memory_restraint") else None


RULES: dict[str, tuple[tuple[Callable[[GradedTurn], Found | None], ...], str]] = {
    "error": ((_error,), "the turn failed"),
    "missed refusal": ((_missed_refusal,), "it answers where there is no answer"),
    "wrong arguments": ((_wrong_arguments,), "the expected tools were called, with arguments that are not accepted"),
    "wrong tool": ((_wrong_tool,), "a tool was called that is not expected, or one that is was not"),
    "cut off": ((_cut_off_call,), "a call's arguments, or a wrong reply, ended at max_tokens"),
    "stopped": ((_stopped,), "a filter or the server stopped the reply, or it is a call that the server does not read"),
    "loop limit": ((_loop_limit,), "the flow had to answer, wrongly, at its limit of steps"),
    "retrieval miss": ((_retrieval_miss,), "the answer is wrong and no relevant document was found"),
    "memory miss": ((_memory_miss,), "what answers was not recalled, or what was told was not written"),
    "stale memory": ((_stale_memory,), "the old version of a fact is still held, or is what the reply says"),
    "wrong refusal": ((_wrong_refusal,), "it declines though there is an answer, and what it rests on was there"),
    "evidence ignored": ((_cut_off, _evidence_ignored), "what answers was there, and the reply says something else"),
    "unsupported claim": ((_unsupported_claim,), "a wrong answer, and nothing was looked up that it could stand on"),
    "needless memory": ((_needless_memory,), "it wrote to memory what nothing asked for"),
    "not told": ((), "a poor answer of an imported run, which has no trace"),
}
"""Cause -> its rules, in the order in which they are tried, and what it means."""
WITHOUT_A_TRACE = ("error", "missed refusal", "wrong refusal")


def cause_of(case: GradedTurn) -> tuple[str, Found] | None:
    """The first rule that holds; None where the turn is neither failed nor poor."""
    imported = case.row.wall_seconds is None
    for cause, (rules, _) in RULES.items():
        for rule in rules if not imported or cause in WITHOUT_A_TRACE else ():
            if found := rule(case):
                return ("cut off" if rule is _cut_off else cause), found
    return ("not told", (None, "the source has no trace")) if imported and case.is_wrong else None


def causes(run: StoredRun, conversation: str | None = None) -> list[Cause]:
    """Of every failed or poor turn; where the data set is not here, or has changed since, only of turns that failed."""

    found = []
    for row in run.rows(lambda row: conversation in (None, row.conversation)):
        values = {name: float(score.value) for name, score in (row.scores or {}).items() if score.value is not None}
        case = GradedTurn(row, run.expected_turn(row.conversation, row.turn) or Turn(user=row.user), (), values)
        trace = run.traces.get(row.play) if case.is_poor else None
        if case.is_poor and (known := cause_of(replace(case, events=trace.of_turn(row.turn) if trace else ()))):
            cause, (event, why) = known
            where = row.flow, row.conversation, row.turn, row.epoch
            found.append(Cause(*where, cause, event.id if event else None, event.title if event else "", why))
    return found


def poor_turns(run: StoredRun) -> Iterator[str]:
    """A line a flow: its causes, most frequent first."""
    counted: dict[str, Counter[str]] = {flow: Counter() for flow in run.result.flows}
    for cause in causes(run):
        counted[cause.flow][cause.cause] += 1
    for flow, found in counted.items():
        if found:
            causes_ = ", ".join(f"{count} {name}" for name, count in found.most_common())
            yield f"poor turns of {flow}, {found.total()} of {run.result.flows[flow].turns}: {causes_}"


def _cut(case: GradedTurn) -> list[ModelCall]:
    calls = [event for event in case.events if isinstance(event, ModelCall) and event.completion is not None]
    return [call for call in calls if call.completion and call.completion.finish_reason == "length"]


def _names(text: str) -> frozenset[str]:
    """Stems of what is written with a capital or a digit: names, dates and numbers."""
    return content_stems(" ".join(re.findall(r"\b(?:[A-Z]\w+|\d[\w.,:]*)", text)))
