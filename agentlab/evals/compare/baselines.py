"""Baseline files: the measures of every turn of a run, one sorted line each, so that changes can be reviewed.

A gate compares with the mean over the epochs of the run. The noise of a baseline can raise a false alarm in each of its
gates, and a baseline with lucky scores raises more. So the file records how many gates share `alpha`, and it takes no
second run of one configuration. `BASELINE.served` beside it has a line for each gate in which a turn changed.

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
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from agentlab.core.errors import RunError, os_errors_as
from agentlab.core.files import MAX_GENERATED_FILE_BYTES, read_bytes, write_atomically
from agentlab.core.messages import from_json
from agentlab.core.strict_json import parse_json
from agentlab.core.trace import exact_sum
from agentlab.evals.store.measures import TurnKey, Values, in_order, is_quality, primary_family
from agentlab.evals.store.rows import UNKNOWN
from agentlab.evals.store.run import StoredRun

GATES, MAX_GATES = 5, 100
"""Default and maximum number of gates; sign flips are too coarse for more."""
CONFIGURED = ("flows", "model", "embedder", "retrieval", "memory", "ingest", "files", "mcp", "generation", "prompts")
"""Spec keys that affect the replies of a flow, beside the data."""


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
    gates: int = GATES
    """Gates that share the rate of false alarms."""
    configuration: str = ""
    """SHA-256 of flows, models and settings; "" if unknown."""
    mode: str = ""
    """Mode of the run: recorded seconds can be compared with replayed ones."""
    check: str = ""
    """SHA-256 of the rest of the file; "" in a baseline older than this key."""


class Baseline(NamedTuple):
    path: Path
    header: BaselineHeader
    turns: dict[str, dict[TurnKey, Values]]
    """Turns of each flow, as means over their epochs."""
    epochs: int


class _Line(Struct, frozen=True):
    flow: str
    conversation: str
    turn: int
    epoch: int
    measures: dict[str, int | float | None]


def write_baseline(run: StoredRun, path: str | Path, gates: int = GATES) -> None:
    """Write the measures of every turn of a run to the baseline file `path`, which is replaced in one step.

    `gates` is the number of gates that the baseline is to serve. They share the rate of false alarms. Raises RunError
    for an incomplete run, unknown graders, if all turns failed, or if the file
    holds another run of the same configuration with as many epochs. The same run under other graders replaces it.
    """
    path = Path(path)
    run.check_complete()
    if not 0 < gates <= MAX_GATES:
        raise RunError(f"gates is {gates}; it must be from 1 to {MAX_GATES}")
    same = run.identity
    if run.all_turns_failed:
        raise RunError(f"{run.path}: no turn was answered; a baseline needs at least one reply")
    flows = run.turn_values
    header = BaselineHeader(
        format=1,
        run_id=run.run_id,
        spec=run.header["spec"]["name"],
        model=run.result.model,
        datasets=same["datasets"],
        graders=same["graders"],
        primary=primary_family(flows.values(), run.header["spec"].get("primary", ())),
        gates=gates,
        configuration=_configuration(run.header),
        mode=run.result.mode,
    )
    _check_not_chosen(path, header, flows)
    lines = [
        _Line(flow, *key, {name: row[name] for name in in_order(sorted(row))})
        for flow, rows in sorted(flows.items())
        for key, row in sorted(rows.items())
    ]
    written = [asdict(line) for line in (header, *lines)]
    written[0]["check"] = _checksum(written)
    with os_errors_as(RunError, f"{path}: the baseline cannot be written: "):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, "".join(json.dumps(row) + "\n" for row in written))


def _configuration(header: Mapping[str, Any]) -> str:
    code = header.get("flow_code", {})
    if not code or UNKNOWN in code.values():
        return ""
    spec = {name: value for name, value in header["spec"].items() if name in CONFIGURED}
    spec["generation"] = {**spec.get("generation", {}), "seed": None}
    parts = [spec, code, header["models"], header.get("prompt_files", {})]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _check_not_chosen(path: Path, new: BaselineHeader, flows: Mapping[str, Mapping[TurnKey, Values]]) -> None:
    """Raise RunError if the file has another run of the configuration: a second run would be chosen by its scores."""
    if not new.configuration or not path.is_file():
        return
    header, turns = read_baseline(path)
    if header.configuration != new.configuration or turns == flows or epochs_of(flows) > epochs_of(turns):
        return
    if header.graders != new.graders and _costs(turns) == _costs(flows):
        return  # the same replies, which other rules grade
    raise RunError(
        f"{path} holds another run of these flows and settings; a baseline that is the best of several raises false"
        f" alarms. Make the baseline from one run with --epochs {epochs_of(turns) + 1} or more; it takes their mean"
    )


def _costs(flows: Mapping[str, Mapping[TurnKey, Values]]) -> list[tuple[str, TurnKey, str, float | None]]:
    """Return what no grader measures, in order."""
    return sorted(
        (flow, key, name, value)
        for flow, rows in flows.items()
        for key, row in rows.items()
        for name, value in row.items()
        if not is_quality(name)
    )


def epochs_of(flows: Mapping[str, Mapping[TurnKey, Values]]) -> int:
    """Return the number of epochs."""
    return 1 + max(key[2] for rows in flows.values() for key in rows)


def mean_over_epochs(flows: Mapping[str, Mapping[TurnKey, Values]]) -> dict[str, dict[TurnKey, Values]]:
    """Return one turn for all epochs of it, with the mean of each measure; unknown (None) if a part is.

    A measure that one epoch leaves undecided is left out, since the epoch may hide any loss.
    """
    means: dict[str, dict[TurnKey, Values]] = {flow: {} for flow in flows}
    for flow, rows in flows.items():
        columns: defaultdict[TurnKey, defaultdict[str, list[float | None]]] = defaultdict(lambda: defaultdict(list))
        for (conversation, turn, _), row in rows.items():
            for name, value in row.items():
                columns[conversation, turn, 0][name].append(value)
        for key, measures in columns.items():
            epochs = max(map(len, measures.values()))
            means[flow][key] = {name: _mean(own) for name, own in measures.items() if len(own) == epochs}
    return means


def _mean(values: Sequence[float | None]) -> float | None:
    total: float | None = exact_sum(values)
    return total if total is None or len(values) == 1 else total / len(values)


def count_gates(path: Path, check: str, gate: str, *, changed: bool) -> int | None:
    """Return how many gates a baseline has served, with the one that `gate` identifies if a turn `changed`.

    None if this gate cannot be stored. The counts of an earlier baseline in the file end with a new `check`.
    """
    file = path.with_name(f"{path.name}.served")
    try:
        rows = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        served = {row for row in rows if row.startswith(f"{check} ")}
        if changed and (row := f"{check} {gate}") not in served:
            served.add(row)
            with file.open("a", encoding="utf-8") as lines:
                lines.write(f"{row}\n")
    except (OSError, UnicodeDecodeError):
        return None
    return len(served)


def open_baseline(path: str | Path) -> Baseline:
    """Return a baseline with the means over its epochs; raises RunError as `read_baseline`."""
    header, turns = read_baseline(Path(path))
    return Baseline(Path(path), header, mean_over_epochs(turns), epochs_of(turns))


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
