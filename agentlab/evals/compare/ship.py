"""What to ship, in a sentence: read off a comparison, whose statistics are all that it knows.

A flow is to be shipped where it was shown to be better in something that decides, and worse in nothing that decides,
than every flow it was compared with. Anything else is undecided, and says how many conversations would tell.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from agentlab.core.errors import RunError
from agentlab.evals.compare.judgement import Judgement
from agentlab.evals.compare.pairs import ALPHA, Comparison, FlowPair, compare
from agentlab.evals.stats.planning import to_see
from agentlab.evals.store.judges import notes_on_judges
from agentlab.evals.store.measures import COSTS, format_number, measure
from agentlab.evals.store.run import StoredRun

TARGET = 0.10
"""The difference in quality that is worth seeing."""
WEAK = 0.9
"""A mean above this is no weak point."""
FEWER = {"input_tokens": "fewer input tokens", "llm_calls": "fewer calls", "cost_usd": "cheaper", "latency_s": "faster"}
WEAKNESS = {
    "answered": "declines {:.0%} of what it could answer",
    "refusal_accuracy": "answers {:.0%} of what it should decline",
    "failed": "fails on {:.0%} of the turns",
}
Means = Mapping[str, Mapping[str, float | None]]
"""Of each flow, by measure."""


class Verdict(NamedTuple):
    kind: str
    """`ship`, `undecided` or `none`."""
    sentence: str
    notes: tuple[str, ...]
    """What it rests on, and how far it goes, a line each."""
    command: str
    """What to do next."""
    flow: str | None = None
    """The one to ship."""


class Side(NamedTuple):
    """A flow, by the name that comparison and page give it."""

    name: str
    run: StoredRun
    flow: str


def sides_of(runs: Sequence[StoredRun]) -> list[Side]:
    """The flows of one run, or those of two as `compare` calls them."""
    if len(runs) == 1:
        return [Side(flow, runs[0], flow) for flow in runs[0].result.flows]
    differ = len({run.run_id for run in runs}) == len(runs)
    return [
        Side(f"{flow} ({run.run_id if differ else run.path})", run, flow) for run in runs for flow in run.result.flows
    ]


def recommend(*runs: StoredRun) -> tuple[Verdict, Comparison | None]:
    """Return the verdict on one run or two, and the comparison that it rests on; None if nothing can be compared.

    Raises RunError where one has not ended.
    """
    sides = sides_of(runs)
    folders = " ".join(shlex.quote(str(run.path)) for run in runs)
    if nothing := _nothing_to_decide(runs, [side.name for side in sides], folders):
        return nothing, None
    try:
        comparison = compare(runs[0], runs[1] if len(runs) > 1 else None)
    except RunError as problem:
        return Verdict("none", "No verdict: the flows cannot be compared.", (str(problem),), _again(runs[0])), None
    pairs, command, among = [*comparison.pairs], f"agentlab compare {folders}", None
    ahead, open_, trades = ([pair for pair in pairs if _outcome(pair) == kind] for kind in ("b", "open", "trade"))
    notes = [str(comparison.best)] if comparison.best else []
    notes += [*map(str, pairs), *_limits(pairs), *chain.from_iterable(map(notes_on_judges, runs))]
    best = _winner(pairs)
    # Flows are compared with the first one, not with each other: two that beat it leave the choice open.
    tied = best is None and (len(ahead) > 1 or bool(ahead and open_ and not trades))
    if tied and len(runs) == 1:
        names = [pair.b for pair in (*ahead, *open_)]
        among = compare(runs[0], flows=names)
        pairs += among.pairs
        notes += map(str, among.pairs)
        command += "".join(f" --flow {shlex.quote(name)}" for name in names)
        winner = _winner(among.pairs)
        # To beat those that beat the first flow is not to beat that one.
        best = winner if not trades and winner in {pair.b for pair in ahead} else None
    if best is None:
        sentence = _undecided_between(ahead, open_, among) if tied else _undecided(comparison, open_, trades)
        return Verdict("undecided", sentence, tuple(notes), command), comparison
    means = {side.name: side.run.means[side.flow] for side in sides}
    parts = ", ".join([_quality(pairs, best), *_savings(pairs, best, means)])
    sentence = f"Ship {best}: {parts}{_weakness(best, means, comparison)}."
    return Verdict("ship", sentence, tuple(notes), command, best), comparison


def _nothing_to_decide(runs: Sequence[StoredRun], names: Sequence[str], folders: str) -> Verdict | None:
    """Where there is nothing to decide: no reply, one flow, calls that were not recorded, a run that stopped."""
    for run in runs:
        if run.all_turns_failed:
            errors = [row.error for row in run.map_turns() if row.error is not None]
            if not errors:
                return Verdict("none", "No verdict: no turn was played.", (), "")
            return Verdict("none", "No verdict: every turn of every flow failed.", (errors[0],), _again(run))
        if run.result.recordings and run.result.recordings.missing:
            missing = f"No verdict: {run.result.recordings.missing} calls of this replay were not recorded."
            return Verdict("none", missing, ("The turns concerned failed; --mode auto records what is missing.",), "")
    if len(names) < 2:
        alone = f"One flow, nothing to choose from: {names[0]}."
        return Verdict("none", alone, (), f"agentlab report {folders} ANOTHER_RUN -o run.html")
    return None


def _again(run: StoredRun) -> str:
    return f"agentlab show {shlex.quote(str(run.path))} --trace"


def _winner(pairs: Sequence[FlowPair]) -> str | None:
    """Return the flow that lost nothing and won against each flow it was compared with; None if there is none."""
    ahead = [pair.b for pair in pairs if _outcome(pair) == "b"]
    behind = [pair.b for pair in pairs if _outcome(pair) == "a"]
    if len({pair.a for pair in pairs}) > 1 or len(ahead) > 1 or len(ahead) + len(behind) < len(pairs):
        return None
    return ahead[0] if ahead else pairs[0].a


def _decisive(pairs: Sequence[FlowPair], *, quality: bool = False) -> list[Judgement]:
    found = [d for pair in pairs for d in pair.differences if d.primary]
    return [d for d in found if not quality or d.measure not in COSTS]


def _outcome(pair: FlowPair) -> str:
    """`a`, `b`, `trade` or `open`, by what decides; costs alone only where a loss of quality could have been seen."""
    kinds = {d.kind for d in _decisive([pair]) if d.is_shown}
    moved = [d for d in _decisive([pair], quality=True) if d.changed]
    if moved and all(d.visible is None and d.kind == "undecided" for d in moved):
        return "open"
    if len(kinds) == 2:
        return "trade"
    return "open" if not kinds else "b" if "better" in kinds else "a"


def _undecided(comparison: Comparison, open_: Sequence[FlowPair], trades: Sequence[FlowPair]) -> str:
    if trades:
        pair = trades[0]
        won, lost = (_listed(pair, kind) for kind in ("better", "worse"))
        return f"Undecided, a trade: against {pair.a}, {pair.b} is better in {won} and worse in {lost}."
    open_ = open_ or comparison.pairs
    sides = ", ".join(dict.fromkeys(name for pair in open_ for name in (pair.a, pair.b)))
    kinds = {d.kind for d in _decisive(open_)}
    if kinds <= {"unknown"}:
        return f"Undecided between {sides}: what decides is not known of both."
    if kinds == {"unchanged"}:
        return f"No difference between {sides}: what decides is equal on every turn."
    return f"Undecided between {sides}: {_how_many_more(comparison, open_)}."


def _undecided_between(ahead: Sequence[FlowPair], open_: Sequence[FlowPair], among: Comparison | None) -> str:
    """Where flows beat the one they were compared with: the first of the run, or without `among` itself before."""
    won = " or ".join(dict.fromkeys(_listed(pair, "better") for pair in ahead))
    first = ahead[0].a if among else "in the first run"
    if among and (trades := [pair for pair in among.pairs if _outcome(pair) == "trade"]):
        return _undecided(among, (), trades)
    lost = {pair.b for pair in among.pairs if _outcome(pair) == "a"} if among else set()
    names = [pair.b for pair in (*ahead, *open_) if pair.b not in lost]
    better = [pair.b for pair in ahead if pair.b not in lost]
    who = "each" if len(better) == len(names) else ", ".join(better)
    told = f"Undecided between {', '.join(names)} ({who} better than {first} in {won})"
    if among is None:
        return f"{told}."
    return f"{told}: {_how_many_more(among, [pair for pair in among.pairs if pair.b not in lost], shown=True)}."


def _conversations(count: int) -> str:
    return f"{count} conversation{'' if count == 1 else 's'}"


def _how_many_more(comparison: Comparison, pairs: Sequence[FlowPair], *, shown: bool = False) -> str:
    """How many conversations there are, and how many it takes to see a difference in quality."""
    conversations = max((d.conversations for pair in pairs for d in pair.differences), default=0)
    needed = (
        to_see(d.paired.sums, d.paired.counts, ALPHA / max(1, comparison.family) / 2, TARGET)
        for d in _decisive(pairs, quality=True)
    )
    most = max(filter(None, needed), default=0)
    # Of n signs all alike, which is the most that can be seen, the two-sided p is 2 / 2**n, by maxT of a family, too.
    least = math.ceil(math.log2(2 / ALPHA))
    told = _conversations(conversations)
    if conversations < least:
        # What is the same on every turn is tested otherwise: `family.constant_shift_p_value`.
        shown = shown or any(d.is_shown for pair in comparison.pairs for d in pair.differences)
        what = "a difference that varies from turn to turn" if shown else "anything"
        told += f", too few to show {what} ({least} are the least)"
    if most > max(least, conversations):
        told += f"; to see a difference of {TARGET:.2f} you need about {most}"
    elif most and conversations >= least:
        told += f"; a difference of {TARGET:.2f} would have been seen"
    return told


def _quality(pairs: Sequence[FlowPair], best: str) -> str:
    own = [pair for pair in pairs if best in (pair.a, pair.b)]
    gains = [_listed(pair, "better" if pair.b == best else "worse", quality=True) for pair in own]
    named = ", ".join(dict.fromkeys(name for gain in gains if gain for name in gain.split(", ")))
    if named:
        return f"better in {named}"
    # Who saves calls wants to know what that may cost.
    open_ = [d for d in _decisive(own, quality=True) if d.changed]
    missed = max((d.visible for d in open_ if d.visible is not None), default=0.0)
    return f"no difference in quality shown{f' (under {format_number(missed)} is likely missed)' if missed else ''}"


def _listed(pair: FlowPair, kind: str, quality: bool = False) -> str:
    return ", ".join(d.measure.name for d in _decisive([pair], quality=quality) if d.kind == kind)


def _savings(pairs: Sequence[FlowPair], best: str, means: Means) -> list[str]:
    """Return the costs that the flow was shown to save against every other one, each with the least that it saves."""
    found = []
    for name, words in FEWER.items():
        shares = []
        for pair in pairs:
            if best in (pair.a, pair.b) and name in pair.paired:
                other, won = (pair.a, "better") if best == pair.b else (pair.b, "worse")
                mine, theirs = means[best].get(name), means[other].get(name)
                shares.append(theirs / mine if pair[name].kind == won and mine and theirs else 0.0)
        least = min(shares, default=0.0)
        if least > 1:
            found.append(f"{least:.1f} x {words}" if name == "latency_s" else f"{1 - 1 / least:.0%} {words}")
    return found


def _weakness(best: str, means: Means, comparison: Comparison) -> str:
    """The quality in which it is furthest from all right: one that says a thing in words, else one that decides."""
    held = {name: value for name, value in means[best].items() if value is not None}
    lacks = {name: value if name == "failed" else 1 - value for name, value in held.items() if name in WEAKNESS}
    if lacks and max(lacks.values()) > 1 - WEAK:
        worst = max(lacks, key=lacks.__getitem__)
        return f"; weak point: {WEAKNESS[worst].format(lacks[worst])}"
    decide = [name for name in comparison.primary if name in held and measure(name).better == "higher"]
    worst = min(decide, key=held.__getitem__, default="")
    return f"; weak point: {worst} {held[worst]:.2f}" if worst and held[worst] < WEAK else ""


def _limits(pairs: Sequence[FlowPair]) -> list[str]:
    """Say which differences in quality are too small to be seen; "not shown" is not "equal"."""
    undecided: dict[str, list[Judgement]] = {}
    for d in _decisive(pairs, quality=True):
        if d.changed and d.kind == "undecided":
            undecided.setdefault(d.measure.name, []).append(d)
    parts = []
    for name, found in undecided.items():
        visible = [d.visible for d in found if d.visible is not None]
        size = f"of any size ({_conversations(found[0].conversations)})"
        parts.append(f"in {name} {f'under {format_number(max(visible))}' if len(visible) == len(found) else size}")
    return [f"not shown is not equal: differences {', '.join(parts)} are likely to be missed"] if parts else []
