"""A reproduction as tables and lines, for a console or as Markdown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agentlab.core.shown import as_markdown
from agentlab.evals.compare.family import ASSUMED
from agentlab.evals.grade.fingerprints import fingerprints
from agentlab.evals.published.graders import GRADERS
from agentlab.evals.published.reproduce import Figure, Reproduction, Single
from agentlab.evals.published.unsaid import Difference, Ranking, Unsaid, unsaid
from agentlab.evals.store.measures import brief

TOLD_AGAIN = 10
"""Figures that differ, below all tables."""


class Table(NamedTuple):
    title: str
    columns: Sequence[str]
    rows: list[list[str]]


def sections(reproduction: Reproduction) -> Iterator[Table | str]:
    """Tables and lines in order; the last line is the count of figures."""
    pack = reproduction.pack
    if reproduction.figures:
        columns = ("", "published", "ours", "", "grader", "n")
        yield Table(f"{pack.name}: figures as published", columns, [_figure(f) for f in reproduction.figures])
    for single in reproduction.singles:
        yield _single(single)
    found = unsaid(pack)
    if found.comparison is not None:
        yield from _unsaid(found)
    by_hash: dict[str, list[str]] = defaultdict(list)
    for name, sha in fingerprints(GRADERS.values(), "none").items():
        by_hash[sha].append(name.rpartition(":")[2].lower())
    yield "graders: " + "; ".join(f"{', '.join(names)} are {sha[:12]}" for sha, names in by_hash.items())
    wrong = [figure for figure in reproduction.figures if figure.verdict in ("differs", "in part")]
    for name, value, ours, verdict, *_ in map(_figure, wrong[:TOLD_AGAIN]):
        yield f"{name}: {value} published, {ours} ours, {verdict}"
    if len(wrong) > TOLD_AGAIN:
        yield f"... and {len(wrong) - TOLD_AGAIN} more that differ or lack answers, in the table above"
    missing = dict.fromkeys(f.why for f in reproduction.figures if f.verdict == "cannot be had")
    for why in missing:
        count = sum(figure.why == why for figure in reproduction.figures)
        yield f"cannot be had: {count} figures, {why}"
    yield str(reproduction)


def _figure(figure: Figure) -> list[str]:
    claim = figure.claim
    ours = "-" if figure.ours is None else f"{figure.ours * claim.scale:.{claim.decimals + 2}f}"
    verdict = f"{figure.verdict}: {figure.why}" if figure.verdict in ("differs", "in part") else figure.verdict
    n = f"{figure.n}" if figure.n == figure.asked else f"{figure.n} of {figure.asked}"
    value = f"{claim.value:.{claim.decimals}f}"
    name = f"{claim.metric}, {claim.category}: {claim.system}"
    return [name, value, ours, verdict, claim.grader, n]


def _single(single: Single) -> str:
    told = "; ".join(f"{alike:,} of {single.n:,} by {rule}" for rule, alike in single.alike.items())
    notes = {"reproduced": "", "differs": " (differs)", "cannot be had": " (its rule is not here, or only nearly)"}
    return f"stored with single answers, {single.name}: {told}{notes[single.verdict]}"


def _unsaid(found: Unsaid) -> Iterator[Table | str]:
    columns = ("", "n", "A", "B", "B - A", "95 %", "p", "p adj.", "")
    for a, b in dict.fromkeys((d.a, d.b) for d in found.differences):
        rows = [_difference(d) for d in found.differences if (d.a, d.b) == (a, b)]
        yield Table(f"what the authors did not say: A: {a}   B: {b}", columns, rows)
    yield from map(_ranking, sorted(found.rankings, key=lambda ranking: not ranking.holds))
    clusters = sorted({d.found.conversations for d in found.differences})
    sizes = f"{clusters[0]}" if len(clusters) == 1 else f"{clusters[0]} to {clusters[-1]}"
    family = found.comparison.family if found.comparison else 0
    yield (
        f"95 %: bootstrap over conversations ({sizes}); p: {ASSUMED}; two-sided; p adj.: maxT over the {family} tests"
        " of these tables"
    )


def _difference(difference: Difference) -> list[str]:
    d = difference.found
    interval = f"[{brief(d.ci95[0])}, {brief(d.ci95[1])}]" if d.ci95 else "-"
    p, adjusted = ("-" if value is None else f"{value:.2g}" for value in (d.p, d.p_adjusted))
    means = (d.measure.show(d.a), d.measure.show(d.b), brief(d.difference, "+"))
    return [f"{d.measure.name}, {difference.category}", str(d.n), *means, interval, p, adjusted, d.word]


def _ranking(ranking: Ranking) -> str:
    order = " > ".join(f"{system} {mean:.3f}" for system, mean in ranking.systems)
    what = f"{ranking.metric}, {ranking.category}: {order}"
    if ranking.holds:
        return f"ranking holds: {what}"
    names = [system for system, _ in ranking.systems]
    loose = [
        f"{x} over {y}"
        for x, y, step in zip(names, names[1:], ranking.steps, strict=False)
        if step.found.word not in ("B better", "B worse")
    ]
    return f"ranking not shown: {what}; open: {', '.join(loose)}"


def markdown(parts: Sequence[Table | str], heading: str) -> str:
    """One section of a page."""
    text = [f"## {as_markdown(heading)}", ""]
    for part in parts:
        if isinstance(part, str):
            text.append(f"* {as_markdown(part)}")
            continue
        if text[-1]:
            text.append("")
        text += [f"{as_markdown(part.title)}:", "", f"| {' | '.join(map(as_markdown, part.columns))} |"]
        text += [
            f"|{' --- |' * len(part.columns)}",
            *(f"| {' | '.join(map(as_markdown, row))} |" for row in part.rows),
            "",
        ]
    return "\n".join([*text, ""])
