"""What a run took from the recordings, what it asked anew, and where each conversation left the recorded way.

All of it is folded from the ledger: an event has its origin, and every call that was not recorded has a notice beside
it that says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import itemgetter

from agentlab.core.constants import IMPORTED
from agentlab.core.trace import Totals, Trace
from agentlab.evals.store.fold import FlowFold, missed_calls
from agentlab.evals.store.rows import Billed, Reuse

SHOWN = 5
"""Conversations that went another way, in the lines for people."""


def reuse(flows: Sequence[FlowFold], mode: str) -> Reuse | None:
    """The `recordings` part of `summary.json`; None for a live run."""
    if mode in ("live", IMPORTED):
        return None
    missed = sorted((each for flow in flows for each in flow.missed), key=itemgetter(0))
    causes = Counter(why for _, causes, _ in missed for why in causes)
    causes += Counter({"text to be graded": sum(flow.counts["ungraded"] for flow in flows)})
    if mode == "replay":
        causes += Counter({"outcome of a search or tool": sum(flow.counts["untimed"] for flow in flows)})
    paid = Totals.sum(chain.from_iterable(flow.billed for flow in flows))
    return Reuse(
        reused=sum(flow.counts["reused"] for flow in flows),
        new=sum(flow.counts["new"] for flow in flows),
        billed=Billed(input_tokens=paid.input_tokens, output_tokens=paid.output_tokens, cost_usd=paid.cost_usd),
        missing=causes.total() if mode == "replay" else 0,
        causes=dict(causes.most_common()),
        diverged=[first for _, _, first in missed],
    )


def misses(traces: Iterable[Trace]) -> list[str]:
    """Every call that was not recorded, one line each, with all that differs from the nearest recording."""
    return [
        f"{t.flow} {t.conversation} turn {notice.turn}: {notice.text}" for t in traces for notice in missed_calls(t)
    ]


def reuse_lines(reused: Reuse) -> list[str]:
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
