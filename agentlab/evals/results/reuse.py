"""What a run took from the recordings, what it asked anew, and where each conversation left the recorded way.

All of it is folded from the ledger: an event has its origin, and every call that was not recorded has a notice beside
it that says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from agentlab.core.events import Event, ModelCall, Notice
from agentlab.core.names import NOT_RECORDED
from agentlab.core.trace import Trace, billed
from agentlab.evals.results.rows import Reuse

UNGRADED = "not recorded"
"""How the reason of a score begins that a replay could not work out."""
SHOWN = 5
"""Conversations that went another way, in the lines for people."""


def reuse(traces: Iterable[Trace], abandoned: Iterable[Event], mode: str, ungraded: int) -> Reuse | None:
    """The `recordings` part of `summary.json`; None for a live run.

    `abandoned` are events of conversations that were begun again, `ungraded` counts scores that could not be given.
    """
    if mode == "live":
        return None
    traces = list(traces)
    calls = [e for trace in traces for e in trace.events if isinstance(e, ModelCall) and e.completion is not None]
    causes: Counter[str] = Counter()
    diverged = []
    for trace in sorted(traces, key=lambda trace: (trace.flow, trace.conversation, trace.epoch)):
        missed = _missed(trace)
        causes.update(str(notice.data["cause"]) for notice in missed)
        if missed:
            first = min(missed, key=lambda notice: notice.id)
            where = {"flow": trace.flow, "conversation": trace.conversation, "epoch": trace.epoch, "turn": first.turn}
            diverged.append({**where, "cause": first.data["cause"], "why": first.text})
    causes += Counter({"text to be graded": ungraded})
    missing = sum(causes.values())
    if mode == "replay":
        # Work in this process is done anew; that its time is not recorded means that it came out otherwise.
        parents = {(id(trace), event.parent) for trace in traces for event in trace.events}
        leaves = (e for trace in traces for e in trace.events if (id(trace), e.id) not in parents)
        untimed = sum(leaf.origin == "live" and leaf.work is not None for leaf in leaves)
        missing += untimed
        causes += Counter({"outcome of a search or tool": untimed})
    lost = list(abandoned)
    paid = billed([*lost, *(event for trace in traces for event in trace.events)])
    return Reuse(
        reused=sum(call.origin == "replay" for call in calls),
        new=sum(call.origin == "live" for call in calls) + (billed(lost).llm_calls or 0),
        billed={name: getattr(paid, name) for name in ("input_tokens", "output_tokens", "cost_usd")},
        missing=missing if mode == "replay" else 0,
        causes=dict(causes.most_common()),
        diverged=diverged,
    )


def misses(traces: Iterable[Trace]) -> list[str]:
    """Every call that was not recorded, one line each, with all that differs from the nearest recording."""
    return [f"{t.flow} {t.conversation} turn {notice.turn}: {notice.text}" for t in traces for notice in _missed(t)]


def _missed(trace: Trace) -> list[Notice]:
    return [event for event in trace.events if isinstance(event, Notice) and event.name == NOT_RECORDED]


def describe(reused: Reuse) -> list[str]:
    """The same in a few lines for people."""
    told = {name: "?" if number is None else number for name, number in reused.billed.items()}
    usd = "" if reused.billed["cost_usd"] is None else f", ${told['cost_usd']:.4f}"
    tokens = f"{told['input_tokens']} + {told['output_tokens']} tokens"
    lines = [f"model calls: {reused.reused} reused, {reused.new} new ({tokens}{usd} billed now)"]
    if reused.missing:
        lines.append(f"NOT RECORDED: {reused.missing}; the turns concerned failed. --mode auto records what is missing")
    lines += [f"  {count} x {cause}" for cause, count in reused.causes.items()]
    lines += ["{flow} {conversation} from turn {turn} on: {why}".format(**left) for left in reused.diverged[:SHOWN]]
    more = len(reused.diverged) - SHOWN
    return [*lines, *([f"... and {more} more conversations"] if more > 0 else [])]
