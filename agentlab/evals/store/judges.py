"""Judges of a run folder: their results on known answers, and their agreement with labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentlab.evals.stats.agreement import Agreement
from agentlab.evals.store.run import StoredRun

MIN_LABELS = 20
"""Labelled turns from which a judge decides, unless the spec fixes another number."""


def notes_on_judges(run: StoredRun) -> list[str]:
    """Return one line for each judge of the run: known answers passed, and agreement with human labels."""
    lines = []
    for metric, content in _judges(run).items():
        agreement = content["agreement"]
        line = "no human labels" if agreement is None else agreement_line(Agreement(**agreement))
        estimates = "; ".join(f"{name} {text}" for name, text in content.get("people", {}).items() if agreement)
        corrected = f"; corrected for the labels: {estimates}" if estimates else ""
        passed = known_answers_line(content["known_answers"])
        lines.append(f"{metric} by {content['model']} {passed}; {line}{corrected}")
    return lines


def _judges(run: StoredRun) -> dict[str, dict[str, Any]]:
    """Return measure -> content of judge.json, for the judges whose scores the run has."""
    graders = run.header["graders"]
    judges = {}
    for file in sorted(Path(run.path, "judges").glob("*/judge.json")):
        content = run.folder.read_json(str(file.relative_to(run.path)), ": judge.json of a judge is missing")
        if graders.get(content["metric"]) == content["sha256"]:
            judges[content["metric"]] = content
    return judges


def known_answers_line(counts_by_kind: Mapping[str, Sequence[int]]) -> str:
    """Return, in words, how many known right and wrong answers a judge passed."""
    line = ", ".join(f"{n} of {m} ({kind})" for kind, (n, m, *_) in counts_by_kind.items() if m)
    unreadable = sum(sum(counts[2:]) for counts in counts_by_kind.values())
    line = f"passes {line}" if line else "has judged no known answers"
    return f"{line}; {unreadable} known answers have no readable judgement" if unreadable else line


def agreement_line(result: Agreement) -> str:
    """Return the agreement of a judge with human labels, in words."""
    kappa = "-" if result.kappa is None else f"{result.kappa:.2f}"
    line = f"{result.n} human labels: agreement {result.agreement:.2f}, kappa {kappa}, bias {result.bias:+.2f}"
    return line if result.correlation is None else f"{line}, correlation {result.correlation:.2f}"
