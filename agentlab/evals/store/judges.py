"""Judges of a run folder: their results on known answers, their agreement with labels, and their eligibility."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentlab.core.constants import JUDGE_METRIC_PREFIX
from agentlab.core.errors import RunError
from agentlab.evals.stats.agreement import Agreement
from agentlab.evals.store.run import StoredRun

MIN_KAPPA = 0.6
"""Smallest Cohen's kappa with human labels, over at least `MIN_LABELS` replies, of a primary judge."""
MIN_LABELS = 20


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


def check_judges(run: StoredRun, deciding: Iterable[str]) -> None:
    """Raise RunError if a primary judge has too few human labels or agrees too little with them."""
    judges = _judges(run)
    for metric in deciding:
        if metric.startswith(JUDGE_METRIC_PREFIX):
            content = judges.get(metric, {})
            if why := ineligibility(content.get("agreement")):
                raise RunError(f"{run.path}: {metric} cannot be primary: {why}; or name other measures under `primary`")


def _judges(run: StoredRun) -> dict[str, dict[str, Any]]:
    """Return measure -> content of judge.json, for the judges whose scores the run has."""
    graders = run.header["graders"]
    judges = {}
    for file in sorted(Path(run.path, "judges").glob("*/judge.json")):
        content = run.folder.read_json(str(file.relative_to(run.path)), ": judge.json of a judge is missing")
        if graders.get(content["metric"]) == content["sha256"]:
            judges[content["metric"]] = content
    return judges


def ineligibility(agreement: Mapping[str, Any] | None) -> str:
    """Return the reason why a judge with this agreement cannot be primary; "" if it can."""
    if agreement is None or agreement["n"] < MIN_LABELS:
        return f"fewer than {MIN_LABELS} replies are labelled; run `agentlab judge RUN --labels FILE --suggest 20`"
    if agreement["kappa"] is None or agreement["kappa"] < MIN_KAPPA:
        kappa = "undefined" if agreement["kappa"] is None else f"{agreement['kappa']:.2f}"
        return f"its kappa with human labels is {kappa}, below {MIN_KAPPA}"
    return ""


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
