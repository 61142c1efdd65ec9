"""The headline of a run: one sentence, its evidence in bullets, and the numbers of each flow.

`recommend(run)` is the only function that decides the words. Terminal, page, notebook and gate open with them.

* `ship`: X passes the rule of `ship`, and a measure of the answer is one of its measures.
* `cheapest`: ship none yet; X is the cheapest flow that is not shown worse.
* `failing`: turns of a flow failed, so that its costs and scores say little.
* `unusable`: no flow reaches the floor `usable` of the spec.
* `undecided`, `none`: neither flow leads; there is nothing to compare.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

from agentlab.core.errors import RunError
from agentlab.evals.compare.epochs import PASS_THRESHOLD
from agentlab.evals.compare.family import MIN_DIFFERING
from agentlab.evals.compare.flow_numbers import FlowNumbers, flow_numbers, legend, weakness
from agentlab.evals.compare.pairs import Comparison, compare
from agentlab.evals.compare.ship import FEWER, Contrast, Side, contrasts_of, dominated_flows, sides_of, winners
from agentlab.evals.stats.planning import MARGIN
from agentlab.evals.store.measures import (
    ANSWER,
    LATENCY,
    QUALITIES,
    answer_measure,
    format_number,
    is_quality,
    measure,
    primary_family,
)
from agentlab.evals.store.run import StoredRun, notes_on_judges

USABLE = 0.2
"""Floor of the answer measure: a flow is unusable if the upper end of its interval is lower."""
MAX_LENGTH = 100
"""Maximum characters of a headline, unless the names of the flows are longer."""


class Verdict(NamedTuple):
    kind: str
    """`ship`, `cheapest`, `failing`, `unusable`, `undecided` or `none`."""
    sentence: str
    notes: tuple[str, ...]
    """Evidence and its limits, a line each, the most important first."""
    flow: str | None = None
    """Flow that the sentence recommends."""
    numbers: tuple[FlowNumbers, ...] = ()
    measure: str = ""
    """Measure behind `right`; "" if no measure of the answer is graded."""
    legend: str = ""
    """Meaning of the numbers: `right`, `mean`, and a measure that has no part in the verdict."""


def recommend(*runs: StoredRun, comparison: Comparison | None = None) -> tuple[Verdict, Comparison | None]:
    """Return the verdict on one run or two, and the comparison that it rests on; None if nothing can be compared.

    `comparison` is their comparison, if one exists already. Raises RunError for a run that has not ended.
    """
    sides = [side for side in sides_of(runs) if comparison is None or side.name in comparison.tables]
    if nothing := _nothing_to_decide(runs):
        return nothing, None
    problem: tuple[str, ...] = ()
    try:
        comparison = comparison or (compare(runs[0], runs[1] if runs[1:] else None) if len(sides) > 1 else None)
    except RunError as error:
        problem = (str(error),)
    field = _Field(sides, comparison)
    kind, flow, parts, notes = field.verdict()
    if problem:
        kind, flow, parts, notes = "none", None, ["No verdict: the flows cannot be compared"], []
    sentence, *rest = _fitted(parts)
    notes = [*problem, *rest, *notes, *chain.from_iterable(map(notes_on_judges, runs))]
    numbers = tuple(field.numbers(kind, flow))
    return Verdict(kind, sentence, tuple(notes), flow, numbers, field.answer or "", field.legend), comparison


def _fitted(parts: Sequence[str]) -> list[str]:
    """Return the sentence with as many parts as fit, and the other parts; the first part begins the sentence."""
    sentence, *rest = parts
    joint = ": "
    while rest and len(sentence) + len(joint) + len(rest[0]) <= MAX_LENGTH:
        sentence, joint = f"{sentence}{joint}{rest.pop(0)}", ", "
    return [sentence, *rest]


def _nothing_to_decide(runs: Sequence[StoredRun]) -> Verdict | None:
    """Return the verdict of runs without a reply, or with calls that are not recorded; None for all others."""
    for run in runs:
        if run.all_turns_failed:
            errors = [row.error for row in run.map_turns() if row.error is not None]
            played = "every turn of every flow failed" if errors else "no turn was played"
            return Verdict("none", f"No verdict: {played}", tuple(errors[:1]))
        if run.result.recordings and run.result.recordings.missing:
            missing = f"No verdict: {run.result.recordings.missing} calls of this replay were not recorded"
            return Verdict("none", missing, ("The turns concerned failed; --mode auto records what is missing.",))
    return None


Decision = tuple[str, str | None, list[str], list[str]]
"""Kind, recommended flow, parts of the sentence, notes."""


@dataclass(frozen=True)
class _Field:
    """Flows to choose from, with their comparison."""

    sides: Sequence[Side]
    comparison: Comparison | None

    @cached_property
    def means(self) -> dict[str, Mapping[str, float | None]]:
        return {side.name: side.run.means[side.flow] for side in self.sides}

    @cached_property
    def primary(self) -> Sequence[str]:
        if self.comparison:
            return self.comparison.primary
        run = self.sides[0].run
        return primary_family(run.turn_values.values(), run.header["spec"].get("primary", ()))

    @cached_property
    def answer(self) -> str | None:
        """The first primary measure of the answer, as opposed to a step or a cost."""
        return answer_measure(self.primary)

    @cached_property
    def answers(self) -> dict[str, float]:
        """Mean of the answer measure of each flow; no flow with an unknown mean."""
        return {name: mean for name in self.means if (mean := self.means[name].get(self.answer or "")) is not None}

    @cached_property
    def failures(self) -> dict[str, tuple[int, int]]:
        """Failed turns and turns of each flow with a failure, the most failures first."""
        flows = {side.name: side.run.result.flows[side.flow] for side in self.sides}
        failing = {name: (flow.errors, flow.turns) for name, flow in flows.items() if flow.errors}
        return dict(sorted(failing.items(), key=lambda item: -item[1][0] / item[1][1]))

    @cached_property
    def right(self) -> dict[str, tuple[int, int]]:
        """Turns of each flow with an answer score of .5 or more, and its graded turns; no flow with unknown scores."""
        counts: dict[str, tuple[int, int]] = {}
        for name, run, flow in self.sides if self.answer else ():
            values = [row[self.answer] for row in run.turn_values[flow].values() if self.answer in row]
            if values and None not in values:
                counts[name] = sum(value >= PASS_THRESHOLD for value in values if value is not None), len(values)
        return counts

    @cached_property
    def unusable(self) -> dict[str, tuple[int, int]]:
        """Right turns and graded turns of each flow below the floor."""
        below: dict[str, tuple[int, int]] = {}
        for name, run, flow in self.sides:
            if self.answer is None or name not in self.right:
                continue
            right, graded = self.right[name]
            floor, interval = run.header["spec"].get("usable", USABLE), run.result.flows[flow].scores[self.answer].ci95
            if (not right and (self.means[name][self.answer] or 0.0) <= floor) or (interval and interval[1] < floor):
                below[name] = right, graded
        return below

    @cached_property
    def contrasts(self) -> dict[str, list[Contrast]]:
        stops = {side.name: side.run.identity["stops"].get(side.flow, {}) for side in self.sides}
        return contrasts_of(self.comparison.tables, self.primary, stops) if self.comparison else {}

    @cached_property
    def eligible(self) -> list[str]:
        """The usable flows without failures: no cost makes up for a failed turn."""
        return [name for name in self.contrasts if name not in self.unusable and name not in self.failures]

    @cached_property
    def candidates(self) -> list[str]:
        """The eligible flows that are shown worse than no other flow in a primary quality."""
        return [name for name in self.eligible if not any(contrast.losses for contrast in self.contrasts[name])]

    @cached_property
    def cheapest(self) -> str | None:
        """The candidate with the lowest cost, in dollars, else tokens, else calls; None if two cost the same."""
        for names in (("cost_usd",), ("input_tokens", "output_tokens"), ("llm_calls",)):
            costs = {flow: [self.means[flow].get(name) for name in names] for flow in self.candidates}
            sums = {flow: sum(value or 0.0 for value in values) for flow, values in costs.items() if None not in values}
            if len(sums) == len(costs) and all(sums.values()):
                lowest = [flow for flow in sums if sums[flow] == min(sums.values())]
                return lowest[0] if len(lowest) == 1 else None
        return None

    def verdict(self) -> Decision:
        """Return the verdict; failures come first, then the floor, then the comparison."""
        decision: Decision
        if len(self.unusable) == len(self.sides):
            right, graded = max(self.unusable.values())
            decision = "unusable", None, [f"None is usable: {right} of {graded} right"], [*self._could_miss()]
        elif self.comparison is None:
            decision = "none", None, [f"One flow, nothing to choose from: {self.sides[0].name}"], []
        else:
            decision = self._compared()
        kind, flow, parts, notes = decision
        notes = [*notes, *(self._evidence(self.comparison) if self.comparison else ())]
        if not self.failures:
            return kind, flow, parts, notes
        fails = [f"{name} fails {failed} of {turns} turns" for name, (failed, turns) in self.failures.items()]
        otherwise = f"without {_listed(self.failures)}: {parts[0]}{': ' if parts[1:] else ''}{', '.join(parts[1:])}"
        return "failing", None, [f"{fails[0]}: fix it first"], [otherwise, *notes, *fails[1:]]

    def _compared(self) -> Decision:
        assert self.comparison
        notes = [*self._could_miss()]
        best = [name for name in winners(self.contrasts) if name in self.eligible]
        if len(best) == 1 and self.answer:
            gains = self._gains(self.contrasts[best[0]])
            return "ship", best[0], [f"Ship {best[0]}", *gains], [*notes, *self._limits(best[0])]
        verdicts = [d for pair in self.comparison.pairs for d in pair.differences if d.primary]
        kinds = {d.kind for d in verdicts}
        names = _listed(self.candidates or self.means)
        if kinds <= {"unknown"}:
            return "undecided", None, [f"Undecided between {names}", "a primary measure is unknown"], notes
        if kinds == {"unchanged"}:
            return "undecided", None, [f"No difference between {names}", "equal on every turn"], notes
        conversations = max(d.conversations for d in verdicts)
        if conversations < MIN_DIFFERING:
            few = f"Undecided: {_conversations(conversations)} can show nothing ({MIN_DIFFERING} are the least)"
            return "undecided", None, [few], [f"no difference shown: {names}", *notes]
        trade = self._trade()
        if trade and (len(best) > 1 or not self.candidates):
            return "undecided", None, ["Undecided, a trade", *trade], notes
        flow = self.cheapest
        notes = [*self._what_would_decide(flow), *notes]
        if flow is None:
            return "undecided", None, [f"Undecided between {names}"], notes
        sentence = f"Ship none yet; {flow} is the cheapest that is not shown worse"
        rivals = [(each.other, self._gains([each])) for each in self.contrasts[flow] if each.other in self.eligible]
        savings = [f"for {flow} against {other}: {'; '.join(own)}" for other, own in rivals if own]
        return "cheapest", flow, [sentence, self._no_shipment(flow)], [*notes, *self._limits(flow), *savings]

    def _gains(self, contrasts: Sequence[Contrast]) -> list[str]:
        """Return the qualities in which a flow is shown better than some and worse than none, and its savings."""
        lost = set(chain.from_iterable(contrast.losses for contrast in contrasts))
        won = dict.fromkeys(name for each in contrasts for name in each.wins if name not in lost)
        often = {name for each in contrasts for name, test in each.significant.items() if test.claim == "more often"}
        savings, words = self._savings(contrasts), FEWER | {name: f"better in {measure(name).title}" for name in won}
        better = ", ".join(measure(name).title for name in won if name not in often)
        sure = [better and f"better in {better}", *(text for name, text in savings.items() if name not in often)]
        rest = [words[name] for name in (*won, *savings) if name in often]
        return [*filter(None, sure), *([f"more often {', '.join(rest)}"] if rest else [])]

    def _savings(self, contrasts: Sequence[Contrast]) -> dict[str, str]:
        """Return the costs that a flow is shown to save against every other one, each with its smallest saving."""
        savings = {}
        for name, words in FEWER.items():
            mine = self.means[contrasts[0].flow].get(name)
            theirs = [self.means[contrast.other].get(name) for contrast in contrasts]
            if mine and all(theirs) and all(name in contrast.gains for contrast in contrasts):
                ratio = min(other / mine for other in theirs if other)
                savings[name] = f"{ratio:.1f} x {words}" if name == LATENCY else f"{1 - 1 / ratio:.0%} {words}"
        return savings

    def _trade(self) -> list[str]:
        """Return what each flow is shown better in, if no flow leads."""
        pairs = {flow: [each for each in self.contrasts[flow] if each.other in self.eligible] for flow in self.eligible}
        gains = {flow: self._gains(own) for flow, own in pairs.items() if own}
        parts = [f"{flow} is {own[0]}" for flow, own in gains.items() if own]
        return parts if len(parts) > 1 else []

    def _no_shipment(self, flow: str) -> str:
        """Return why the cheapest flow is not recommended."""
        means, best = self.answers, max(self.answers.values(), default=0.0)
        if best > means.get(flow, best):
            scores = f"{means[flow]:.2f}; {_listed([name for name in means if means[name] == best])} {best:.2f}"
            return f"the mean {self.answer} of {flow} is lower, perhaps by chance ({scores})"
        if any(contrast.open for contrast in self.contrasts[flow]):
            return f"a loss of {MARGIN:g} by {flow} is not excluded"
        return f"only a step or the cost favours {flow}"

    def _what_would_decide(self, flow: str | None) -> Iterator[str]:
        if not self.answer:
            yield "what would decide: a measure of the answer, from reference answers, a scorer of yours or a judge"
            return
        flows = [flow] if flow else self.candidates
        own = [each for name in flows for each in self.contrasts[name] if each.open and each.other not in self.failures]
        all_needed = [(more, name, each) for each in own for name, more in each.needed.items()]
        needed = [(more, name, each) for more, name, each in all_needed if more]
        if needed and len(needed) == len(all_needed):
            more, name, longest = max(needed, key=lambda item: item[0].high)
            excluded = f"to exclude a loss of {MARGIN:g} in {measure(name).title}"
            so_far = f"({longest.open[name].conversations} so far)"
            yield f"what would decide: {more} {excluded} {so_far}, if {longest.flow} is as good as {longest.other}"
        elif own:
            paired = chain.from_iterable(each.open.values() for each in own)
            fewest = min(paired, key=lambda each: each.conversations)
            so_far = f"{_conversations(fewest.conversations)} so far"
            yield f"what would decide: more conversations that grade {fewest.measure.name}, {so_far}"

    def _limits(self, flow: str) -> Iterator[str]:
        """Yield the weakest point of a flow, and the losses that this run excludes for it."""
        summary = next(run.result.flows[label] for name, run, label in self.sides if name == flow)
        if weak := weakness(summary, self.means[flow], self.primary):
            yield f"weak point of {flow}: {weak}"
        # The flow has no failed turn, so a loss in failures tells nothing.
        names = (name for name in self.primary if name != "failed")
        bounds = [(max(each.bounds.get(name, 0.0) for each in self.contrasts[flow]), name) for name in names]
        losses = ", ".join(f"{format_number(bound)} in {name}" for bound, name in bounds if bound > 0)
        if losses:
            relation = "its true loss may be as large; what could be missed is about a test of the same measure"
            yield f"this run excludes a loss above {losses} for {flow} against the others (error .05): {relation}"

    def _evidence(self, comparison: Comparison) -> Iterator[str]:
        """Yield the flows below the floor, the best set, and a line a pair."""
        if len(self.unusable) < len(self.sides):
            yield from (f"{name} is not usable: {n} of {graded} right" for name, (n, graded) in self.unusable.items())
        yield from [str(comparison.best)] if comparison.best else []
        # With two flows, the headline gives the same information.
        yield from chain(dominated_flows(self.contrasts) if len(self.sides) > 2 else (), map(str, comparison.pairs))

    def _could_miss(self) -> Iterator[str]:
        """Yield a line with the differences in primary qualities that the tests could miss."""
        tests = [d for pair in self.comparison.pairs for d in pair.differences] if self.comparison else []
        tests = [d for d in tests if d.changed and d.kind == "undecided" and is_quality(d.measure.name)]
        losses = {name: [d.detectable_loss for d in tests if d.measure.name == name] for name in self.primary}
        sizes = {name: max(size or math.inf for size in own) for name, own in losses.items() if own}
        words = {name: "of any size" if math.isinf(size) else f"below {size:.2f}" for name, size in sizes.items()}
        if words:
            yield f"This run could miss differences {', '.join(f'{words[name]} in {name}' for name in words)}"

    @property
    def legend(self) -> str:
        """Meaning of the numbers, what counts in none, and the measure that failed turns replace in the verdict."""
        parts = legend(self.answer, self.right, self.answers) if self.answer else []
        scores = {side.name: side.run.result.flows[side.flow].scores.get(self.answer or "") for side in self.sides}
        undecided = [f"{each.undecided} of {name}" for name, each in scores.items() if each and each.undecided]
        parts += [f"not decided and not counted: {', '.join(undecided)}"] if undecided else []
        # The rule of `primary_family`: failed turns replace the third quality, unless the spec names the measures.
        if "failed" in self.primary and not self.sides[0].run.header["spec"].get("primary"):
            graded = {name for means in self.means.values() for name in means}.difference(self.primary, ANSWER)
            parts += [f"failed turns replace {name} in the verdict" for name in QUALITIES if name in graded][:1]
        return "; ".join(parts)

    def numbers(self, kind: str, flow: str | None) -> Iterator[FlowNumbers]:
        """Yield the numbers of each flow, the highest mean of the answer measure first."""
        flows = {side.name: side.run.result.flows[side.flow] for side in self.sides}
        flows = dict(sorted(flows.items(), key=lambda item: -self.answers.get(item[0], -1.0)))
        priced = all(each.per_turn("cost_usd") for each in flows.values())
        for name, each in flows.items():
            right = "{}/{}".format(*self.right[name]) if name in self.right else "-"
            yield flow_numbers(name, each, self.answer or "", right, self._decides(name, kind, flow), priced=priced)

    def _decides(self, name: str, kind: str, flow: str | None) -> str:
        if name in self.failures:
            return "fails"
        if name in self.unusable:
            return "not usable"
        if name == flow:
            return kind
        worse = [loss for contrast in self.contrasts.get(name, ()) for loss in contrast.losses]
        return f"worse in {worse[0]}" if worse else "not shown worse" if self.contrasts else ""


def _listed(names: Sequence[str] | Mapping[str, object]) -> str:
    """Return names as a list, or their number if they are many."""
    *first, last = names
    text = f"{', '.join(first)} and {last}" if first else last
    return text if len(text) <= MAX_LENGTH // 2 else f"{len(names)} flows"


def _conversations(count: int) -> str:
    return f"{count} conversation{'' if count == 1 else 's'}"
