"""Reused and new calls of a run, and the first recording miss of each conversation.

All figures are folds over the ledger: an event has its origin, and a notice gives the cause of each recording miss.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import itemgetter

from agentlab.core.constants import IMPORTED
from agentlab.core.trace import Totals, Trace
from agentlab.evals.store.fold import FlowFold, recording_misses
from agentlab.evals.store.rows import Billed, Reuse

SHOWN = 5
"""Number of diverged conversations in `reuse_lines`."""


def reuse(flows: Sequence[FlowFold], mode: str) -> Reuse | None:
    """Return the `recordings` part of `summary.json`; None for a live run or an import."""
    if mode in ("live", IMPORTED):
        return None
    misses = sorted((each for flow in flows for each in flow.misses), key=itemgetter(0))
    causes = Counter(cause for _, causes, _ in misses for cause in causes)
    causes += Counter({"text to be graded": sum(flow.counts["ungraded"] for flow in flows)})
    if mode == "replay":
        causes += Counter({"outcome of a search or tool": sum(flow.counts["untimed"] for flow in flows)})
    billed = Totals.sum(chain.from_iterable(flow.billed for flow in flows))
    return Reuse(
        reused=sum(flow.counts["reused"] for flow in flows),
        new=sum(flow.counts["new"] for flow in flows),
        billed=Billed(input_tokens=billed.input_tokens, output_tokens=billed.output_tokens, cost_usd=billed.cost_usd),
        missing=causes.total() if mode == "replay" else 0,
        causes=dict(causes.most_common()),
        diverged=[first for _, _, first in misses],
    )


def misses(traces: Iterable[Trace]) -> list[str]:
    """Return one line for each recording miss, with all differences from the nearest recording."""
    return [
        f"{t.flow} {t.conversation} turn {notice.turn + 1}: {notice.text}"
        for t in traces
        for notice in recording_misses(t)
    ]


def reuse_lines(reused: Reuse) -> list[str]:
    """Return a few lines that summarise reuse for people."""
    numbers = {name: "?" if number is None else number for name, number in reused.billed.items()}
    usd = "" if reused.billed["cost_usd"] is None else f", ${numbers['cost_usd']:.4f}"
    tokens = f"{numbers['input_tokens']} tokens in, {numbers['output_tokens']} out"
    lines = [f"model calls: {reused.reused} reused, {reused.new} new ({tokens}{usd} billed now)"]
    if reused.missing:
        lines.append(f"NOT RECORDED: {reused.missing} calls; their turns failed. --mode auto records the missing ones")
    lines += [f"  {count} x {cause}" for cause, count in reused.causes.items()]
    for miss in reused.diverged[:SHOWN]:
        lines.append(f"{miss['flow']} {miss['conversation']} from turn {miss['turn'] + 1} on: {miss['why']}")
    rest = len(reused.diverged) - SHOWN
    return [*lines, *([f"... and {rest} more conversations"] if rest > 0 else [])]
