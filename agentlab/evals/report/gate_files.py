"""Files of a gate verdict: JSON, Markdown and JUnit XML, and the lines that a log shows."""

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

from agentlab.core.errors import RunError, os_errors_as
from agentlab.core.escaping import as_markdown, printable
from agentlab.core.files import write_atomically
from agentlab.evals.compare.family import TEST_ASSUMPTION
from agentlab.evals.compare.gate import GateVerdict
from agentlab.evals.compare.measure_verdict import ESTIMAND, MeasureVerdict
from agentlab.evals.store.measures import COSTS, format_number

COLUMNS = ("measure", "n", "baseline", "run", "loss", "at most", "margin", "p", "detectable", "verdict")
NUMBERS = ("n", "conversations", "baseline", "run", "loss", "bound", "margin", "p", "p_adjusted", "visible")
ATTRIBUTES = {"baseline": "a", "run": "b", "bound": "upper_bound", "visible": "detectable_loss"}
CAPTION = (
    "loss: mean difference for the worse; at most: its upper bound; p: adjusted for the family (maxT) and the gates;"
    " detectable: the loss found in 80 % of such runs"
)
ASSUMED_OF_COSTS = "a cost passes only below its declared stop"
FIELDS = ("run_id", "baseline_id", "alpha", "gates", "epochs", "served", "primary", "notes", "stopped")
FILES = ("gate.json", "gate.md", "junit.xml")
MAX_OPEN, MAX_SECONDARY, MAX_SLICES, MAX_NOTES = 6, 2, 2, 3


def summary_lines(verdict: GateVerdict) -> list[str]:
    """Return at most 17 lines: the verdict, the measures behind it, and notes.

    The first line alone is enough.
    """
    # A run that stopped at a regression has no verdict on its other measures.
    kinds = ("worse", "undecided", "unknown") if verdict.result != "regression" or not verdict.stopped else ("worse",)
    open_ = [each for each in verdict.primary_verdicts if each.kind in kinds]
    lines = [str(verdict), *([verdict.stopped] if verdict.stopped else [])]
    lines += [f"regression in a slice only: {slice_}" for slice_ in verdict.slices[:MAX_SLICES]]
    lines += [f"{each.change}: {each.why}" for each in open_[:MAX_OPEN]]
    if len(open_) > MAX_OPEN:
        lines.append(f"... and {len(open_) - MAX_OPEN} more primary measures")
    counts = Counter(each.verdict for each in verdict.primary_verdicts if each not in open_)
    if counts:
        lines.append("other primary measures: " + ", ".join(f"{count} {kind}" for kind, count in counts.items()))
    secondary = [each for each in verdict.measure_verdicts if not each.primary and each.kind == "worse"]
    lines += [f"secondary: {each.change}: {each.why}" for each in secondary[:MAX_SECONDARY]]
    if len(secondary) > MAX_SECONDARY:
        lines.append(f"secondary: {len(secondary) - MAX_SECONDARY} more measures became worse")
    if any(each.paired.changed for each in verdict.primary_verdicts):
        passed = any(each.kind == "pass" and each.measure in COSTS for each in verdict.primary_verdicts)
        costs = f"; {ASSUMED_OF_COSTS}" if passed else ""
        lines.append(f"how: {TEST_ASSUMPTION}; {ESTIMAND}{costs}; {service_line(verdict)}")
    return lines + [f"note: {note}" for note in verdict.notes[:MAX_NOTES]]


def service_line(verdict: GateVerdict) -> str:
    """Return the rate of false alarms, and how many gates of the baseline share it."""
    level, served = verdict.alpha / verdict.gates, verdict.served
    line = f"false alarms: at most {level:.2g} in this gate and {verdict.alpha:g} in all {verdict.gates} together"
    line += f"; this baseline ({f'mean of {verdict.epochs} epochs' if verdict.epochs > 1 else 'one run'})"
    if served is None:
        return f"{line} cannot count its gates, because its folder is read-only"
    over = f", so the rate is {level * served:.2g}: make a new one" if served > verdict.gates else ""
    return f"{line} has served {served} of {verdict.gates} gates{over}"


def cells(verdict: MeasureVerdict) -> list[str]:
    """Return one text for each of `COLUMNS`."""
    show = verdict.measure.show
    return [
        verdict.measure.name,
        str(verdict.n),
        show(verdict.a),
        show(verdict.b),
        format_number(verdict.loss, "+"),
        format_number(verdict.upper_bound, "+"),
        format_number(verdict.margin),
        "-" if verdict.p_adjusted is None else f"{verdict.p_adjusted:.2g}",
        format_number(verdict.detectable_loss),
        verdict.verdict + ("" if verdict.primary else " (secondary)"),
    ]


def numbers(verdict: MeasureVerdict) -> dict[str, float | None]:
    """Return the values of `NUMBERS`, in the units of the measure."""
    return {name: getattr(verdict, ATTRIBUTES.get(name, name)) for name in NUMBERS}


def by_flow(verdict: GateVerdict) -> dict[str, list[MeasureVerdict]]:
    ordered = sorted(verdict.measure_verdicts, key=attrgetter("flow"))
    return {flow: list(group) for flow, group in groupby(ordered, attrgetter("flow"))}


def as_json(verdict: GateVerdict) -> dict[str, Any]:
    """Return the verdict as plain data; losses, margins and bounds have the units of their measures."""
    rows = []
    for each in verdict.measure_verdicts:
        row = {"flow": each.flow, "measure": each.measure.name, "verdict": each.verdict, "why": each.why}
        more = each.conversations_needed and each.conversations_needed._asdict()
        rows.append({**row, "decides": each.primary, **numbers(each), "more": more})
    return {
        "result": verdict.result,
        "exit_code": verdict.exit_code,
        "says": str(verdict),
        **{name: getattr(verdict, name) for name in FIELDS},
        "slices": [{**slice_._asdict(), "says": str(slice_)} for slice_ in verdict.slices],
        "assumed": f"{TEST_ASSUMPTION}; {ESTIMAND}; {ASSUMED_OF_COSTS}",
        "measures": rows,
    }


def junit(verdict: GateVerdict) -> str:
    """Return JUnit XML (xunit2) with one suite per flow and one case per measure.

    A primary measure that is worse fails; an undecided or secondary one is skipped. Numbers are properties of the
    suite, named `measure.number`, because a testcase has none in junit-10.xsd of the Jenkins xUnit plug-in.
    """
    root = ElementTree.Element("testsuites", {"name": "agentlab gate", **_counts(verdict.measure_verdicts)})
    del root.attrib["skipped"]
    for flow, of_flow in by_flow(verdict).items():
        suite = ElementTree.SubElement(root, "testsuite", {"name": flow, **_counts(of_flow)})
        properties = ElementTree.SubElement(suite, "properties")
        values = {"run": verdict.run_id, "baseline": verdict.baseline_id, "alpha": repr(verdict.alpha)}
        for j in of_flow:
            numbers_of = {name: value for name, value in numbers(j).items() if value is not None}
            values |= {f"{j.measure.name}.{name}": repr(value) for name, value in numbers_of.items()}
            case = ElementTree.SubElement(suite, "testcase", classname=f"gate.{flow}", name=j.measure.name, time="0")
            if kind := _outcome(j):
                ElementTree.SubElement(case, kind, type=j.verdict, message=j.why)
        for name, value in values.items():
            ElementTree.SubElement(properties, "property", name=name, value=value)
    for element in root.iter():
        element.attrib = {name: printable(value) for name, value in element.attrib.items()}
    ElementTree.indent(root)
    # XML 1.0 cannot contain these two characters.
    return re.sub("[\ufffe\uffff]", "?", ElementTree.tostring(root, encoding="unicode", xml_declaration=True)) + "\n"


def markdown(verdict: GateVerdict) -> str:
    """Return a Markdown section: the summary lines, then one table per flow."""
    first, *rest = summary_lines(verdict)
    text = [f"## agentlab gate: {as_markdown(first)}", "", *(f"* {as_markdown(line)}" for line in rest), ""]
    assumed = " ".join(f"{line[0].upper()}{line[1:]}." for line in (TEST_ASSUMPTION, ESTIMAND))
    text += [f"{CAPTION}. {assumed}", f"{service_line(verdict)}.", ""]
    for flow, of_flow in by_flow(verdict).items():
        text += [f"### {as_markdown(flow)}", "", f"| {' | '.join(COLUMNS)} |"]
        text += ["| --- |" + " ---: |" * (len(COLUMNS) - 2) + " --- |"]
        text += [*(f"| {' | '.join(as_markdown(cell) for cell in cells(j))} |" for j in of_flow), ""]
    return "\n".join([*text, *(f"* {as_markdown(note)}" for note in verdict.notes), ""])


def write_reports(verdict: GateVerdict, folder: Path) -> None:
    """Write `FILES` into the run folder; raises RunError if that fails."""
    texts = (json.dumps(as_json(verdict), indent=2) + "\n", markdown(verdict), junit(verdict))
    with os_errors_as(RunError, f"{folder}: the reports cannot be written: "):
        for name, text in zip(FILES, texts, strict=True):
            write_atomically(folder / name, text)


def save(text: str, path: str | Path, *, append: bool = False) -> None:
    """Write or append a text to a file; raises RunError if that fails."""
    path = Path(path)
    with os_errors_as(RunError, f"{path}: the report cannot be written: "):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a" if append else "w", encoding="utf-8") as file:
            file.write(text)


def _outcome(verdict: MeasureVerdict) -> str:
    if verdict.kind in ("pass", "unchanged"):
        return ""
    return "failure" if verdict.kind == "worse" and verdict.primary else "skipped"


def _counts(verdicts: Sequence[MeasureVerdict]) -> dict[str, str]:
    outcomes = Counter(map(_outcome, verdicts))
    counts = {"tests": len(verdicts), "failures": outcomes["failure"], "errors": 0, "skipped": outcomes["skipped"]}
    return {name: str(count) for name, count in counts.items()}
