"""Prints a comparison: as plain data, as a data frame, and as Markdown for a notebook."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from agentlab.core.escaping import as_markdown
from agentlab.evals.compare.measure_verdict import ESTIMAND, MeasureVerdict
from agentlab.evals.compare.pairs import Comparison
from agentlab.evals.report.tables import markdown_table

if TYPE_CHECKING:
    from agentlab.evals.store.frames import Frame

NUMBERS = ("a", "b", "difference", "changed", "ci95", "p", "p_adjusted", "primary", "d_z")
FRAME = {
    **{"measure": "measure", "n": "n", "conversations": "clusters", "mean A": "a", "mean B": "b"},
    **{"B - A": "difference", "ci95 low": "low", "ci95 high": "high", "p": "p", "p adjusted": "p_adjusted"},
    **{"d_z": "d_z", "detectable": "visible", "primary": "primary", "better": "better"},
    **{"verdict": "reading", "claim": "claim"},
}
"""Column of the data frame -> key of the plain data."""


def _row(d: MeasureVerdict) -> dict[str, Any]:
    """Return the numbers and the verdict of one measure as plain data."""
    numbers = {name: getattr(d, name) for name in NUMBERS} | {"visible": d.detectable_loss}
    numbers["more"] = d.conversations_needed and d.conversations_needed._asdict()
    verdict = {"better": d.measure.better, "reading": d.verdict, "claim": d.claim}
    return {"measure": d.measure.name, "n": d.n, "clusters": d.conversations, **numbers, **verdict}


def comparison_json(comparison: Comparison) -> dict[str, Any]:
    """Return plain data, as `agentlab compare --json` prints it."""
    pairs = []
    for pair in comparison.pairs:
        flips = {word: [asdict(flip) for flip in getattr(pair, word)] for word in ("gained", "lost")}
        pairs.append({"a": pair.a, "b": pair.b, "differences": [*map(_row, pair.differences)], **flips})
    shared: dict[str, Any] = {}
    if best := comparison.best:
        sets = {quality.name: [asdict(flow) for flow in flows] for quality, flows in best.sets.items()}
        shared["best"] = {"says": str(best), "sets": sets}
    shared["slices"] = [{**slice_._asdict(), "says": str(slice_)} for slice_ in comparison.slices]
    return {**shared, "pairs": pairs, "primary": list(comparison.primary), "family": comparison.family}


def comparison_table(comparison: Comparison) -> Frame:
    """Return a data frame with a row for each pair and measure."""
    from agentlab.evals.store.frames import frame_of

    rows = []
    for pair in comparison.pairs:
        for d in pair.differences:
            low, high = d.ci95 or (None, None)
            row = _row(d) | {"low": low, "high": high}
            rows.append({"A": pair.a, "B": pair.b, **{title: row[name] for title, name in FRAME.items()}})
    return frame_of(rows)


def comparison_markdown(comparison: Comparison) -> str:
    """Return each pair's summary and its primary measures: n, means, difference, interval, p."""
    lines = []
    for pair in comparison.pairs:
        rows = [[d.measure.title, *d.cells] for d in pair.differences if d.primary]
        heads = ["", "n", pair.a, pair.b, "difference", "95 %", "p adjusted", ""]
        lines += [f"**{as_markdown(str(pair))}**", "", *markdown_table(heads, rows), ""]
    secondary = sum(not d.primary for pair in comparison.pairs[:1] for d in pair.differences)
    return "\n".join([*lines, f"{secondary} secondary measures: `comparison.table`; {ESTIMAND}"])
