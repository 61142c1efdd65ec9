"""Renders a reproduction as tables and lines, for a console or as Markdown."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agentlab.core.escaping import as_markdown
from agentlab.evals.compare.family import TEST_ASSUMPTION
from agentlab.evals.grade.fingerprints import fingerprints
from agentlab.evals.published.graders import GRADERS
from agentlab.evals.published.reproduce import WRONG, FigureCheck, Reproduction, SystemDifference, analyse_significance

MAX_REPEATED = 10
"""Maximum number of differing figures that the page repeats below its tables."""


class Table(NamedTuple):
    title: str
    columns: Sequence[str]
    rows: list[list[str]]


def sections(reproduction: Reproduction) -> Iterator[Table | str]:
    """Yield tables and lines in order; the last line counts the figures."""
    pack = reproduction.pack
    if reproduction.figures:
        columns = ("", "published", "ours", "", "grader", "n")
        yield Table(f"{pack.name}: figures as published", columns, [_figure(f) for f in reproduction.figures])
    yield from _differences(analyse_significance(pack))
    by_hash: dict[str, list[str]] = defaultdict(list)
    for name, sha in fingerprints(GRADERS.values(), "none").items():
        by_hash[sha].append(name.rpartition(":")[2].lower())
    yield "graders: " + "; ".join(f"{', '.join(names)} are {sha[:12]}" for sha, names in by_hash.items())
    wrong = [figure for figure in reproduction.figures if figure.verdict in WRONG]
    for name, value, ours, verdict, *_ in map(_figure, wrong[:MAX_REPEATED]):
        yield f"{name}: {value} published, {ours} ours, {verdict}"
    if len(wrong) > MAX_REPEATED:
        yield f"... and {len(wrong) - MAX_REPEATED} more figures that differ or are incomplete; see the table above"
    reasons = Counter(figure.why for figure in reproduction.figures if figure.verdict == "not reproducible")
    for why, count in reasons.items():
        yield f"not reproducible: {count} figure{'s' if count > 1 else ''}, {why}"
    yield str(reproduction)


def _figure(figure: FigureCheck) -> list[str]:
    claim = figure.claim
    ours = "-" if figure.ours is None else f"{figure.ours * claim.scale:.{claim.decimals + 2}f}"
    verdict = f"{figure.verdict}: {figure.why}" if figure.verdict in WRONG else figure.verdict
    n = f"{figure.n}" if figure.n == figure.expected_n else f"{figure.n} of {figure.expected_n}"
    value = f"{claim.value:.{claim.decimals}f}"
    name = f"{claim.metric}, {claim.category}: {claim.system}"
    return [name, value, ours, verdict, claim.grader, n]


def _differences(differences: Sequence[SystemDifference]) -> Iterator[Table | str]:
    columns = ("", "n", "A", "B", "B - A", "95 %", "p adj.", "")
    for a, b in dict.fromkeys((d.a, d.b) for d in differences):
        own = [d for d in differences if (d.a, d.b) == (a, b)]
        rows = [[f"{d.judgement.measure.name}, {d.category}", *d.judgement.cells] for d in own]
        yield Table(f"paired differences: A: {a}   B: {b}", columns, rows)
    if differences:
        sizes = sorted({d.judgement.conversations for d in differences})
        many = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        tests = f"two-sided; p adj.: maxT over the {max(d.judgement.family for d in differences)} tests of these tables"
        yield f"95 %: over conversations ({many}); p: {TEST_ASSUMPTION}; {tests}"


def markdown(parts: Sequence[Table | str], heading: str) -> str:
    """Return one section of a Markdown page."""
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
