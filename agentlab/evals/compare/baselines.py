"""Baseline files: the measures of every turn of a run, one sorted line each, so that changes can be reviewed.

{"format": 1, "run_id": "first", "spec": "flows", "model": "...", "datasets": {"laws": "<sha256>"}, "graders": {...},
 "primary": ["answer_f1", "cost_usd"], "mode": "replay", "check": "<sha256>"}
{"flow": "tools", "conversation": "laws-001", "turn": 0, "epoch": 0, "measures": {"answer_f1": 1.0, "llm_calls": 2}}
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import asdict

from agentlab.core.errors import RunError
from agentlab.core.files import MAX_GENERATED_FILE_BYTES, read_bytes, write_atomically
from agentlab.core.messages import from_json
from agentlab.core.strict_json import parse_json
from agentlab.evals.store.judges import check_judges
from agentlab.evals.store.measures import TurnKey, Values, in_order, primary_family
from agentlab.evals.store.run import StoredRun


class BaselineHeader(Struct, frozen=True, kw_only=True):
    """First line of a baseline file."""

    format: Literal[1]
    run_id: str
    spec: str
    model: str
    datasets: dict[str, str]
    """Name -> SHA-256."""
    graders: dict[str, str]
    primary: tuple[str, ...] = ()
    """Primary measures; () in a baseline older than this key."""
    mode: str = ""
    """Mode of the run: recorded seconds can be compared with replayed ones."""
    check: str = ""
    """SHA-256 of the rest of the file; "" in a baseline older than this key."""


class _Line(Struct, frozen=True):
    flow: str
    conversation: str
    turn: int
    epoch: int
    measures: dict[str, int | float | None]


def write_baseline(run: StoredRun, path: str | Path) -> None:
    """Write the measures of every turn of a run to the baseline file `path`, which is replaced in one step.

    Raises RunError for an incomplete run, unknown graders, an ineligible judge as primary measure, or if all turns
    failed.
    """
    path = Path(path)
    run.check_complete()
    same = run.identity
    if run.all_turns_failed:
        raise RunError(f"{run.path}: no turn was answered; a baseline needs at least one reply")
    flows = run.turn_values
    check_judges(run, run.header["spec"].get("primary", ()))
    header = BaselineHeader(
        format=1,
        run_id=run.run_id,
        spec=run.header["spec"]["name"],
        model=run.result.model,
        datasets=same["datasets"],
        graders=same["graders"],
        primary=primary_family(flows.values(), run.header["spec"].get("primary", ())),
        mode=run.result.mode,
    )
    lines: list[Struct] = [header]
    for flow, rows in sorted(flows.items()):
        for key, row in sorted(rows.items()):
            lines.append(_Line(flow, *key, {name: row[name] for name in in_order(sorted(row))}))
    written = [asdict(line) for line in lines]
    written[0]["check"] = _checksum(written)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, "".join(json.dumps(row) + "\n" for row in written))
    except OSError as problem:
        raise RunError(f"{path}: the baseline cannot be written: {problem.strerror}") from None


def _checksum(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a hash of the header and the turns, whatever their layout."""
    header = {name: value for name, value in rows[0].items() if name != "check"}
    return hashlib.sha256(json.dumps([header, *rows[1:]], sort_keys=True).encode()).hexdigest()


def read_baseline(path: Path) -> tuple[BaselineHeader, dict[str, dict[TurnKey, Values]]]:
    """Return header and turns of each flow; raises RunError, with file and line, for an invalid baseline."""
    number = 1
    flows: dict[str, dict[TurnKey, Values]] = defaultdict(dict)
    try:
        lines = read_bytes(path, MAX_GENERATED_FILE_BYTES).split(b"\n")
        rows = [parse_json(lines[0])]
        header = from_json(BaselineHeader, rows[0])
        for number, line in enumerate(lines[1:], 2):
            if line:
                rows.append(parse_json(line))
                row = from_json(_Line, rows[-1])
                key = row.conversation, row.turn, row.epoch
                if key in flows[row.flow]:
                    raise RunError(f"{path}:{number}: duplicate turn of {row.flow}; make it again with --update")
                flows[row.flow][key] = row.measures
    except FileNotFoundError:
        raise RunError(f"there is no baseline {path}; make it from a run you trust with --update") from None
    except OSError as problem:
        raise RunError(f"{path}: the baseline cannot be read: {problem.strerror}") from None
    except ValueError as problem:
        raise RunError(f"{path}:{number}: {problem}; undo the edit, or make it again with --update") from None
    if not flows:
        raise RunError(f"{path}: the baseline has no turns; make it again with --update")
    if header.check and header.check != _checksum(rows):
        raise RunError(f"{path} was edited after it was made; make it again with --update")
    return header, dict(flows)
