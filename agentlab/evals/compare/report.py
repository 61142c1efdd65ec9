"""A verdict as JUnit XML for a CI server, and as Markdown for a job's summary page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from xml.etree import ElementTree

from agentlab.core.errors import RunError
from agentlab.evals.compare.gate import Judged, Verdict
from agentlab.evals.compare.measures import brief

COLUMNS = ("measure", "n", "baseline", "run", "loss", "at most", "margin", "p (Holm)", "visible", "verdict")
NUMBERS = ("n", "clusters", "baseline", "run", "loss", "bound", "margin", "p", "p_holm", "visible")
CAPTION = "loss: mean difference for the worse; at most: its upper bound; visible: the loss found in 80 % of such runs"


def cells(judged: Judged) -> list[str]:
    """One text for each of `COLUMNS`."""
    show = judged.measure.show
    return [
        judged.measure.name,
        str(judged.n),
        show(judged.baseline),
        show(judged.run),
        brief(judged.loss, "+"),
        brief(judged.bound, "+"),
        brief(judged.margin),
        "-" if judged.p_holm is None else f"{judged.p_holm:.2g}",
        brief(judged.visible),
        judged.verdict,
    ]


def by_flow(verdict: Verdict) -> dict[str, list[Judged]]:
    return {flow: list(judged) for flow, judged in groupby(verdict.judged, attrgetter("flow"))}


def junit(verdict: Verdict) -> str:
    """xunit2: a suite a flow, a case a measure; a regression fails, what is inconclusive was skipped.

    The numbers are properties of the suite, named `measure.number`: the schema that CI servers check (junit-10.xsd of
    the Jenkins xUnit plug-in, which pytest's xunit2 family follows) has none below a testcase.
    """
    root = ElementTree.Element("testsuites", {"name": "agentlab gate", **_counts(verdict.judged)})
    del root.attrib["skipped"]
    for flow, judged in by_flow(verdict).items():
        suite = ElementTree.SubElement(root, "testsuite", {"name": flow, **_counts(judged)})
        properties = ElementTree.SubElement(suite, "properties")
        told = {"run": verdict.run_id, "baseline": verdict.baseline_id, "alpha": repr(verdict.alpha)}
        for j in judged:
            numbers = {f"{j.measure.name}.{number}": getattr(j, number) for number in NUMBERS}
            told |= {name: repr(value) for name, value in numbers.items() if value is not None}
            case = ElementTree.SubElement(suite, "testcase", classname=f"gate.{flow}", name=j.measure.name, time="0")
            if j.verdict != "pass":
                kind = "failure" if j.verdict == "regression" else "skipped"
                ElementTree.SubElement(case, kind, type=j.verdict, message=j.why)
        for name, value in told.items():
            ElementTree.SubElement(properties, "property", name=name, value=value)
    ElementTree.indent(root)
    # XML 1.0 has no way to write the rest.
    legal = "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
    return re.sub(legal, "?", ElementTree.tostring(root, encoding="unicode", xml_declaration=True)) + "\n"


def markdown(verdict: Verdict) -> str:
    """A section with a table a flow and a line for every measure that did not pass."""
    lines = [f"## agentlab gate: {_cell(str(verdict))}", "", f"{CAPTION}. alpha = {verdict.alpha}.", ""]
    for flow, judged in by_flow(verdict).items():
        lines += [f"### {_cell(flow)}", "", f"| {' | '.join(COLUMNS)} |"]
        lines += ["| --- |" + " ---: |" * (len(COLUMNS) - 2) + " --- |"]
        lines += [f"| {' | '.join(_cell(cell) for cell in cells(j))} |" for j in judged]
        lines += ["", *(f"* {_cell(j.measure.name)}: {_cell(j.why)}" for j in judged if j.verdict != "pass"), ""]
    return "\n".join([*lines, *(f"* {_cell(note)}" for note in verdict.notes), ""])


def save(text: str, path: str | Path, *, append: bool = False) -> None:
    """Write a report; raises RunError where that is not possible."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a" if append else "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as problem:
        raise RunError(f"{path}: the report cannot be written: {problem.strerror}") from None


def _counts(judged: Sequence[Judged]) -> dict[str, str]:
    found = {
        "tests": len(judged),
        "failures": sum(j.verdict == "regression" for j in judged),
        "errors": 0,
        "skipped": sum(j.verdict == "inconclusive" for j in judged),
    }
    return {name: str(count) for name, count in found.items()}


def _cell(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|").replace("\n", " ")
