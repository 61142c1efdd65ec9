"""A run of any format, or one played in shards, as one folder of today's format; nothing in it changes but the form."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

from agentlab.core.errors import RunError
from agentlab.core.files import LARGE, read_bytes, replace_file
from agentlab.evals.store.folder import RunFolder
from agentlab.evals.store.rows import TurnRow
from agentlab.evals.store.writing import written_whole


def convert(run: Path, out: Path) -> RunFolder:
    """Write `run` into the new folder `out`, and seal it; raises RunError where there is something already, or no run
    that ended and is as it was sealed; nothing is left where it cannot be written."""
    old = RunFolder.open(run)
    if not (run / "summary.json").exists():
        raise RunError(f"{run}: the run has not ended; continue it with --resume first")
    if run.resolve() in out.resolve().parents:
        raise RunError(f"{out} lies in {run}, which stays as it is; choose another --out")
    old.check_seal()
    summary = old.read_json("summary.json", "")
    header = {name: value for name, value in old.header.items() if name not in ("format", "shards")}
    with written_whole(out) as scratch:
        _write(old, RunFolder.create(scratch, header), summary)
    return RunFolder.open(out)


def _write(old: RunFolder, new: RunFolder, summary: Any) -> None:
    kept = old.ledger
    for trace in (*kept.abandoned(kept.takes), *map(kept.__getitem__, sorted(kept))):
        append = new.ledger_of(trace)
        for event in trace.events:
            append(trace, event)
    new.flush()
    for row in old.latest(TurnRow):
        new.append_turn(row)
    with contextlib.suppress(OSError):
        replace_file(new.path / "run.log", read_bytes(old.path / "run.log", LARGE, links=False))
    new.write_json("summary.json", summary)
