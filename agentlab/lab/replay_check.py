"""Checks that a saved conversation replays whole."""

from __future__ import annotations

import tempfile
from pathlib import Path

from agentlab.evals.store.fold import recording_misses
from agentlab.lab.lab import Lab


def turns_that_miss(spec: Path) -> list[int]:
    """Replay a saved conversation, without a model, and return its turns with a call that is not recorded, from 1."""
    with tempfile.TemporaryDirectory() as scratch, Lab(spec) as lab:
        run = lab.run_sync(out=Path(scratch) / "run")
        return sorted({notice.turn + 1 for trace in run.traces.values() for notice in recording_misses(trace)})
