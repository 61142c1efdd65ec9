"""What a run folder says of its judges: what they let pass, how they agree with people, and whether they may decide."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentlab.core.constants import JUDGE_METRIC_PREFIX
from agentlab.core.errors import RunError
from agentlab.evals.stats.agreement import Agreement
from agentlab.evals.store.run import StoredRun

MIN_KAPPA = 0.6
"""A judge that agrees less with people (Cohen's kappa, over at least `MIN_LABELS` replies) decides nothing."""
MIN_LABELS = 20


def notes_on_judges(run: StoredRun) -> list[str]:
    """A line for each judge of the run: what to think of its figures, and what people make of them."""
    lines = []
    for metric, content in _judges(run).items():
        agreement = content["agreement"]
        held = "not held against people" if agreement is None else agreement_line(Agreement(**agreement))
        people = "; ".join(f"{name} {told}" for name, told in content.get("people", {}).items() if agreement)
        told = f"; with that in them: {people}" if people else ""
        lines.append(f"{metric} by {content['model']} {known_answers_line(content['known_answers'])}; {held}{told}")
    return lines


def check_judges(run: StoredRun, deciding: Iterable[str]) -> None:
    """Raise RunError where a judge is to decide that is not held against people, or does not agree with them."""
    judges = _judges(run)
    for metric in deciding:
        if metric.startswith(JUDGE_METRIC_PREFIX):
            content = judges.get(metric, {})
            if why := ineligibility(content.get("agreement")):
                raise RunError(f"{run.path}: {metric} cannot decide: {why}; or name other measures under `primary`")


def _judges(run: StoredRun) -> dict[str, dict[str, Any]]:
    """What is written down of the judges whose scores the run has, by measure."""
    graders = run.header["graders"]
    found = {}
    for file in sorted(Path(run.path, "judges").glob("*/judge.json")):
        content = run.folder.read_json(str(file.relative_to(run.path)), ": a judge's file is missing")
        if graders.get(content["metric"]) == content["sha256"]:
            found[content["metric"]] = content
    return found


def ineligibility(found: Mapping[str, Any] | None) -> str:
    """Why a judge with this agreement may not decide; empty where it may."""
    if found is None or found["n"] < MIN_LABELS:
        return f"fewer than {MIN_LABELS} replies are labelled; agentlab judge RUN --labels FILE --suggest 20"
    if found["kappa"] is None or found["kappa"] < MIN_KAPPA:
        kappa = "undefined" if found["kappa"] is None else f"{found['kappa']:.2f}"
        return f"its kappa with people is {kappa}, and {MIN_KAPPA} is the least"
    return ""


def known_answers_line(known: Mapping[str, Sequence[int]]) -> str:
    """What a judge let pass of answers that are known to be right or wrong, in words."""
    told = ", ".join(f"{n} of {m} ({kind})" for kind, (n, m, *_) in known.items() if m)
    unread = sum(sum(counts[2:]) for counts in known.values())
    told = f"lets pass {told}" if told else "has judged no known answers"
    return f"{told}; {unread} known answers have no verdict that can be read" if unread else told


def agreement_line(found: Agreement) -> str:
    """How a judge agrees with people, in words."""
    kappa = "-" if found.kappa is None else f"{found.kappa:.2f}"
    line = f"held against {found.n} labels: agreement {found.agreement:.2f}, kappa {kappa}, bias {found.bias:+.2f}"
    return line if found.correlation is None else f"{line}, correlation {found.correlation:.2f}"
