"""What perfect decisions on looking things up would have bought, told from the answers of all flows of a run.

    agentlab compare RUN --regret           # of each flow what it missed, what it wasted, and what that cost

Whether a turn needs the documents is the data set's word: `needs_document_lookup`, else whether any are relevant.
Where a flow decided wrongly, by searching or not, the mean of the flows that decided rightly on the same turn says what
the right decision would have led to, in quality and in calls. Nobody picks the better answer afterwards, so noise is
not counted as regret. A turn that no flow decided rightly tells nothing, and is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from msgspec import UNSET

from agentlab.core.errors import RunError
from agentlab.core.names import IMPORTED
from agentlab.data.conversations import Turn
from agentlab.evals.stats.statistics import Interval, by_cluster, mean_intervals
from agentlab.evals.store.measures import COSTS, Key, measure, measured, primary_family
from agentlab.evals.store.rows import TurnRow
from agentlab.evals.store.run import Run

ROUTING, SEARCHED = "lookup_accuracy", "retrieve"


@dataclass(frozen=True, kw_only=True)
class Regret:
    """Of one flow; means are over all its turns that tell something, with 95 % intervals over conversations."""

    flow: str
    turns: int
    missed: int
    """Turns that needed the documents and were not searched for."""
    needless: int
    """Turns that did not, and were."""
    untold: int
    """Turns that no flow decided rightly."""
    quality: tuple[float, Interval]
    """What perfect decisions would have added a turn; below 0 they would have cost."""
    lost: tuple[float, Interval]
    """The part of it that turns with a missed search lost."""
    wasted: tuple[float, Interval]
    """Model calls a turn that needless searches took."""


class Seen(NamedTuple):
    """What a flow did with a turn."""

    right: bool
    searched: bool
    quality: float
    calls: float


def needs_documents(turn: Turn) -> bool | None:
    """As far as the data set says."""
    if turn.needs_document_lookup is not None or turn.relevant_doc_ids is None:
        return turn.needs_document_lookup
    return bool(turn.relevant_doc_ids)


def routing(run: Run) -> tuple[str, list[Regret]]:
    """The quality that decides, or several, each on its turns, and the regret in it of each flow that tells something.

    Raises RunError where the data set does not say which turns need its documents, nothing grades them, or the source
    of imported answers does not say what they took.
    """
    flows = measured(run)
    declared: Sequence[str] = run.folder.header["spec"].get("primary", ())
    decide = [
        name for name in primary_family(flows.values(), declared) if measure(name) not in COSTS and name != ROUTING
    ]
    searched = dict(run.folder.latest(TurnRow, _searched))
    seen: defaultdict[Key, dict[str, Seen]] = defaultdict(dict)
    for flow, rows in flows.items():
        for key, values in rows.items():
            turn, calls = run.asked(key[0], key[1]), values.get("llm_calls")
            needed = needs_documents(turn) if turn else None
            known = (value for name in decide if (value := values.get(name)) is not None)
            looked = searched[(flow, key[0], key[2]), key[1]]
            if needed is None or calls is None or looked is None or (quality := next(known, None)) is None:
                continue
            seen[key][flow] = Seen(looked == needed, looked, quality, calls)
    if not seen:
        why = "no graded turn says whether it needs documents (needs_document_lookup), or its data set is not here"
        if run.result.mode == IMPORTED:
            why += "; or its source does not say what the answer took (retrieval_steps, llm_calls)"
        raise RunError(f"{run.path}: {why}")
    told = [flow for flow in flows if any(flow in of for of in seen.values())]
    return ", ".join(decide), [_regret(flow, seen) for flow in told]


def _searched(row: TurnRow) -> bool | None:
    """None where the source of an imported answer does not say."""
    if row.retrieval_steps is UNSET:
        return SEARCHED in row.phases
    return None if row.retrieval_steps is None else row.retrieval_steps > 0


def _regret(flow: str, seen: dict[Key, dict[str, Seen]]) -> Regret:
    mine = {key: of[flow] for key, of in seen.items() if flow in of}
    better = {key: [other for other in seen[key].values() if other.right] for key in mine}
    told = {key: own for key, own in mine.items() if better[key]}
    if not told:
        raise RunError(f"no turn of {flow} was decided rightly by any flow, so nothing can be told of it")
    gain = {key: fmean(other.quality for other in better[key]) - own.quality for key, own in told.items()}
    more = {key: own.calls - fmean(other.calls for other in better[key]) for key, own in told.items()}

    def column(values: dict[Key, float], counts: dict[Key, bool]) -> tuple[float, Interval]:
        kept = [values[key] if counts[key] else 0.0 for key in told]
        return mean_intervals([by_cluster(kept, [key[0] for key in told])])[0]

    wrong = {key: not own.right for key, own in told.items()}
    missed = {key: wrong[key] and not own.searched for key, own in told.items()}
    needless = {key: wrong[key] and own.searched for key, own in told.items()}
    return Regret(
        flow=flow,
        turns=len(told),
        missed=sum(missed.values()),
        needless=sum(needless.values()),
        untold=len(mine) - len(told),
        quality=column(gain, wrong),
        lost=column(gain, missed),
        wasted=column(more, needless),
    )
