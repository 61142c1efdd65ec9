"""Baseline files: what every turn of a run measured, a line each, sorted, so that a change of it can be reviewed.

{"format": 1, "run_id": "first", "spec": "flows", "model": "...", "datasets": {"laws": "<sha256>"}, "graders": {...}}
{"flow": "tools", "conversation": "laws-001", "turn": 0, "epoch": 0, "measures": {"answer_f1": 1.0, "llm_calls": 2}}
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from agentlab.core.errors import RunError
from agentlab.core.files import replace_file
from agentlab.evals.compare.measures import Key, Values, in_order, measured
from agentlab.evals.results.graders import identity
from agentlab.evals.results.run import Run

FORMAT = 1
HEADER = {"run_id": str, "spec": str, "model": str, "datasets": dict, "graders": dict}
LINE = {"flow": str, "conversation": str, "turn": int, "epoch": int, "measures": dict}


@dataclass(frozen=True, kw_only=True)
class Baseline:
    header: Mapping[str, Any]
    flows: Mapping[str, Mapping[Key, Values]]


def write_baseline(run: Run, path: str | Path) -> None:
    """Replace the file in one step; raises RunError where the run is not complete or does not say what graded it."""
    path = Path(path)
    run.check_complete()
    same = identity(run.folder.header)
    if same["graders"] is None:
        raise RunError(f"{run.path}: an older run that does not say what graded it; run it again for a baseline")
    if run.answered_nothing:
        raise RunError(f"{run.path}: no turn was answered, which is nothing to hold other runs against")
    spec, model = run.folder.header["spec"]["name"], run.result.model
    lines = [{"format": FORMAT, "run_id": run.run_id, "spec": spec, "model": model, **same}]
    for flow, rows in sorted(measured(run).items()):
        for (conversation, turn, epoch), row in sorted(rows.items()):
            where = {"flow": flow, "conversation": conversation, "turn": turn, "epoch": epoch}
            lines.append({**where, "measures": {name: row[name] for name in in_order(sorted(row))}})
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, "".join(json.dumps(line) + "\n" for line in lines))
    except OSError as problem:
        raise RunError(f"{path}: the baseline cannot be written: {problem.strerror}") from None


def read_baseline(path: Path) -> Baseline:
    """Raises RunError, with file and line, where the file is no baseline."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        raise RunError(f"there is no baseline {path}; make it from a run you trust with --update") from None
    except (OSError, UnicodeDecodeError) as problem:
        raise RunError(f"{path}: the baseline cannot be read: {problem}") from None
    header = _object(path, 1, lines[0] if lines else "", {"format": int})
    if header["format"] != FORMAT:
        _refuse(path, 1, f"this is baseline format {header['format']}, agentlab reads format {FORMAT}; use --update")
    header = _object(path, 1, lines[0], {"format": int, **HEADER})
    flows: dict[str, dict[Key, Values]] = {}
    for number, line in enumerate(lines[1:], 2):
        row = _object(path, number, line, LINE)
        for name, value in row["measures"].items():
            if value is not None and (type(value) not in (int, float) or not math.isfinite(value)):
                _refuse(path, number, f"{name} is {value!r}, not a number or null")
        rows = flows.setdefault(row["flow"], {})
        key = row["conversation"], row["turn"], row["epoch"]
        if key in rows:
            _refuse(path, number, f"this turn of {row['flow']} is in the file twice")
        rows[key] = row["measures"]
    if not flows:
        raise RunError(f"{path}: the baseline holds no turns; make it again with --update")
    return Baseline(header=header, flows=flows)


def _object(path: Path, number: int, line: str, kinds: Mapping[str, type]) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError:
        _refuse(path, number, "not JSON")
    if not isinstance(row, dict):
        _refuse(path, number, "not a JSON object")
    for key, kind in kinds.items():
        if type(row.get(key)) is not kind:
            _refuse(path, number, f"{key!r} must be there, and be of type {kind.__name__}")
    return row


def _refuse(path: Path, number: int, problem: str) -> NoReturn:
    raise RunError(f"{path}:{number}: {problem}")
