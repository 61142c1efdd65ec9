"""What a verdict leaves behind: a few lines for the log; JUnit XML, Markdown and JSON for machines and for later."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from agentlab.core.errors import RunError
from agentlab.core.escaping import as_markdown, printable
from agentlab.core.files import write_atomically
from agentlab.evals.compare.family import TEST_ASSUMPTION
from agentlab.evals.compare.gate import GateVerdict
from agentlab.evals.compare.judgement import Judgement
from agentlab.evals.store.measures import COSTS, format_number

COLUMNS = ("measure", "n", "baseline", "run", "loss", "at most", "margin", "p", "visible", "verdict")
NUMBERS = ("n", "conversations", "baseline", "run", "loss", "bound", "margin", "p", "p_adjusted", "visible", "more")
ATTRIBUTES = {"baseline": "a", "run": "b"}
CAPTION = (
    "loss: mean difference for the worse; at most: its upper bound; p: adjusted for the family (maxT); visible: the"
    " loss found in 80 % of such runs"
)
ASSUMED_OF_COSTS = "a cost passes if no unseen conversation loses more than the most that was seen, or than it doubles"
FILES = ("gate.json", "gate.md", "junit.xml")
OPEN_SHOWN, ADVICE_SHOWN, SLICES_SHOWN = 6, 2, 2


def summary_lines(verdict: GateVerdict) -> list[str]:
    """The verdict, what decided it, and what to do: at most 16 lines, the first says it all."""
    # What else would have come of a run that was stopped is not known.
    told = ("worse", "undecided", "unknown") if verdict.result != "regression" or not verdict.stopped else ("worse",)
    open_ = [judged for judged in verdict.deciding if judged.kind in told]
    found = [str(verdict), *([verdict.stopped] if verdict.stopped else [])]
    found += [f"broken, where the whole does not show it: {part}" for part in verdict.slices[:SLICES_SHOWN]]
    found += [f"{judged.change}: {judged.why}" for judged in open_[:OPEN_SHOWN]]
    if len(open_) > OPEN_SHOWN:
        found.append(f"... and {len(open_) - OPEN_SHOWN} more that decide")
    counts = Counter(judged.verdict for judged in verdict.deciding if judged not in open_)
    if counts:
        found.append("also deciding: " + ", ".join(f"{count} {kind}" for kind, count in counts.items()))
    advice = [judged for judged in verdict.measure_verdicts if judged.advises and judged.kind == "worse"]
    found += [f"advice: {judged.change}: {judged.why}" for judged in advice[:ADVICE_SHOWN]]
    if len(advice) > ADVICE_SHOWN:
        found.append(f"advice: {len(advice) - ADVICE_SHOWN} more measures became worse")
    if any(judged.paired.changed for judged in verdict.deciding):
        passed = any(judged.kind == "pass" and judged.measure in COSTS for judged in verdict.deciding)
        found.append(f"how: {TEST_ASSUMPTION}{f'; {ASSUMED_OF_COSTS}' if passed else ''}; alpha {verdict.alpha:g}")
    return found + [f"note: {note}" for note in verdict.notes[:2]]


def cells(judged: Judgement) -> list[str]:
    """One text for each of `COLUMNS`."""
    show = judged.measure.show
    return [
        judged.measure.name,
        str(judged.n),
        show(judged.a),
        show(judged.b),
        format_number(judged.loss, "+"),
        format_number(judged.bound, "+"),
        format_number(judged.margin),
        "-" if judged.p_adjusted is None else f"{judged.p_adjusted:.2g}",
        format_number(judged.visible),
        judged.verdict + (" (advises)" if judged.advises else ""),
    ]


def numbers(judged: Judgement) -> dict[str, float | None]:
    """By `NUMBERS`, in the units of the measure."""
    return {name: getattr(judged, ATTRIBUTES.get(name, name)) for name in NUMBERS}


def by_flow(verdict: GateVerdict) -> dict[str, list[Judgement]]:
    ordered = sorted(verdict.measure_verdicts, key=attrgetter("flow"))
    return {flow: list(judged) for flow, judged in groupby(ordered, attrgetter("flow"))}


def as_json(verdict: GateVerdict) -> dict[str, Any]:
    """The verdict as plain data; losses, margins and bounds in the units of their measures."""
    rows = []
    for judged in verdict.measure_verdicts:
        named = {"flow": judged.flow, "measure": judged.measure.name, "verdict": judged.verdict, "why": judged.why}
        rows.append({**named, "decides": judged.primary, **numbers(judged)})
    return {
        "result": verdict.result,
        "exit_code": verdict.exit_code,
        "says": str(verdict),
        **{name: getattr(verdict, name) for name in ("run_id", "baseline_id", "alpha", "primary", "notes", "stopped")},
        "slices": [{**part._asdict(), "says": str(part)} for part in verdict.slices],
        "assumed": f"{TEST_ASSUMPTION}; {ASSUMED_OF_COSTS}",
        "measures": rows,
    }


def junit(verdict: GateVerdict) -> str:
    """xunit2: a suite a flow, a case a measure; what is worse fails, what is undecided or only advises was skipped.

    The numbers are properties of the suite, named `measure.number`: the schema that CI servers check (junit-10.xsd of
    the Jenkins xUnit plug-in, which pytest's xunit2 family follows) has none below a testcase.
    """
    root = ElementTree.Element("testsuites", {"name": "agentlab gate", **_counts(verdict.measure_verdicts)})
    del root.attrib["skipped"]
    for flow, judged in by_flow(verdict).items():
        suite = ElementTree.SubElement(root, "testsuite", {"name": flow, **_counts(judged)})
        properties = ElementTree.SubElement(suite, "properties")
        told = {"run": verdict.run_id, "baseline": verdict.baseline_id, "alpha": repr(verdict.alpha)}
        for j in judged:
            known = {name: value for name, value in numbers(j).items() if value is not None}
            told |= {f"{j.measure.name}.{name}": repr(value) for name, value in known.items()}
            case = ElementTree.SubElement(suite, "testcase", classname=f"gate.{flow}", name=j.measure.name, time="0")
            if kind := _outcome(j):
                ElementTree.SubElement(case, kind, type=j.verdict, message=j.why)
        for name, value in told.items():
            ElementTree.SubElement(properties, "property", name=name, value=value)
    for element in root.iter():
        element.attrib = {name: printable(value) for name, value in element.attrib.items()}
    ElementTree.indent(root)
    # XML 1.0 has no way to write these two.
    return re.sub("[\ufffe\uffff]", "?", ElementTree.tostring(root, encoding="unicode", xml_declaration=True)) + "\n"


def markdown(verdict: GateVerdict) -> str:
    """A section with the lines of the log, then a table a flow."""
    first, *rest = summary_lines(verdict)
    text = [f"## agentlab gate: {as_markdown(first)}", "", *(f"* {as_markdown(line)}" for line in rest), ""]
    text += [f"{CAPTION}. {TEST_ASSUMPTION[0].upper()}{TEST_ASSUMPTION[1:]}. alpha = {verdict.alpha}.", ""]
    for flow, judged in by_flow(verdict).items():
        text += [f"### {as_markdown(flow)}", "", f"| {' | '.join(COLUMNS)} |"]
        text += ["| --- |" + " ---: |" * (len(COLUMNS) - 2) + " --- |"]
        text += [*(f"| {' | '.join(as_markdown(cell) for cell in cells(j))} |" for j in judged), ""]
    return "\n".join([*text, *(f"* {as_markdown(note)}" for note in verdict.notes), ""])


def write_reports(verdict: GateVerdict, folder: Path) -> None:
    """Write `FILES` into the run folder; raises RunError where that is not possible."""
    texts = (json.dumps(as_json(verdict), indent=2) + "\n", markdown(verdict), junit(verdict))
    try:
        for name, text in zip(FILES, texts, strict=True):
            write_atomically(folder / name, text)
    except OSError as problem:
        raise RunError(f"{folder}: the reports cannot be written: {problem.strerror}") from None


def save(text: str, path: str | Path, *, append: bool = False) -> None:
    """Write a report; raises RunError where that is not possible."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a" if append else "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as problem:
        raise RunError(f"{path}: the report cannot be written: {problem.strerror}") from None


def _outcome(judged: Judgement) -> str:
    if judged.kind in ("pass", "unchanged"):
        return ""
    return "failure" if judged.kind == "worse" and not judged.advises else "skipped"


def _counts(judged: Sequence[Judgement]) -> dict[str, str]:
    outcomes = Counter(map(_outcome, judged))
    found = {"tests": len(judged), "failures": outcomes["failure"], "errors": 0, "skipped": outcomes["skipped"]}
    return {name: str(count) for name, count in found.items()}
