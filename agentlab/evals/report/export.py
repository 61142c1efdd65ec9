"""Export of a run's turns as one table for other programs.

Each row is a turn: message, reply, costs, and for each metric `score.NAME` and `reason.NAME`.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from agentlab.core.errors import RunError, needs
from agentlab.core.escaping import as_csv_cell, escape_surrogates
from agentlab.evals.store.rows import columns
from agentlab.evals.store.run import StoredRun

_TEXTS = ("flow", "dataset", "conversation", "category", "user", "reply", "error", "published")
_FLOATS = ("wall_seconds", "latency_s", "cost_usd", "seconds")
_NESTED = ("reply", "totals", "phases", "scores")


def export(run: StoredRun, to: str, file: Path) -> None:
    """Write the turns as `csv` or `parquet`; raises RunError if there are none or the file cannot be written."""
    if not run.result.turns:
        raise RunError(f"{run.path}: no turn was played; nothing to export")
    metrics = dict.fromkeys(metric for row in run.map_turns() for metric in row.scores or ())
    is_new = not file.exists()
    try:
        (_write_csv if to == "csv" else _write_parquet)(_rows(run, tuple(metrics)), file)
    except OSError as problem:
        if is_new:
            file.unlink(missing_ok=True)  # a partial table looks like a complete one
        raise RunError(f"{file} cannot be written: {problem.strerror or problem}") from None


def _rows(run: StoredRun, metrics: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for row in run.rows():
        cells = {name: value for name, value in columns(row).items() if name not in _NESTED}
        for name in cells.keys() & {"category", "published"}:
            value = cells[name]
            cells[name] = value if value is None or isinstance(value, str) else json.dumps(value)
        cells |= {"reply": row.reply.text if row.reply else None, **row.costs()}
        for metric in metrics:
            score = (row.scores or {}).get(metric)
            cells[f"score.{metric}"] = None if score is None or score.value is None else float(score.value)
            cells[f"reason.{metric}"] = score.reason if score else None
        yield {name: escape_surrogates(value) if isinstance(value, str) else value for name, value in cells.items()}


def _write_csv(rows: Iterator[dict[str, Any]], file: Path) -> None:
    first = next(rows)
    with file.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(map(as_csv_cell, first))
        writer.writerows(map(as_csv_cell, row.values()) for row in chain([first], rows))


def _write_parquet(rows: Iterator[dict[str, Any]], file: Path) -> None:
    with needs("--to parquet", "parquet"):
        import pyarrow
        from pyarrow import parquet

    def column_type(name: str) -> Any:
        if name in _TEXTS or name.startswith("reason."):
            return pyarrow.string()
        return pyarrow.float64() if name in _FLOATS or name.startswith("score.") else pyarrow.int64()

    turns = [*rows]
    schema = pyarrow.schema([(name, column_type(name)) for name in turns[0]])
    parquet.write_table(pyarrow.Table.from_pylist(turns, schema=schema), file, compression="zstd")
