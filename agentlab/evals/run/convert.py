"""A run of any format, or one played in shards, as one folder of today's format; nothing in it changes but the form."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

from agentlab.core.errors import RunError
from agentlab.core.files import LARGE, read_bytes, replace_file
from agentlab.evals.results.rows import TurnRow
from agentlab.evals.run.folder import CannotWrite, RunFolder, locked


def convert(run: Path, out: Path) -> RunFolder:
    """Write `run` into the new folder `out`, and seal it; raises RunError where there is something already, or no run
    that ended and is as it was sealed; nothing is left where it cannot be written."""
    old = RunFolder.open(run)
    if not (run / "summary.json").exists():
        raise RunError(f"{run}: the run has not ended; continue it with --resume first")
    old.check_seal()
    summary = old.read_json("summary.json", "")
    header = {name: value for name, value in old.header.items() if name not in ("format", "shards")}
    try:
        with locked(out):
            return _written(old, RunFolder.create(out, header), summary)
    except CannotWrite as problem:
        shutil.rmtree(out, ignore_errors=True)
        raise RunError(f"{out} cannot be written: {problem.why}; {run} is as it was") from None


def _written(old: RunFolder, new: RunFolder, summary: Any) -> RunFolder:
    kept = old.ledger
    for trace in (*kept.abandoned(kept.takes), *map(kept.__getitem__, sorted(kept))):
        append = new.ledger_of(trace)
        for event in trace.events:
            append(trace, event)
    new.flush()
    for _, row in old.latest(TurnRow, lambda row: row):
        new.append_turn(row)
    with contextlib.suppress(OSError):
        replace_file(new.path / "run.log", read_bytes(old.path / "run.log", LARGE, links=False))
    new.write_json("summary.json", summary)
    return new
