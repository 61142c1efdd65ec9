"""The page of a run that goes on: what stands in its folder by now, with the scores that can be given at once.

A run is summed up when it ends; until then this does the same for the turns that are there. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

from agentlab.core.errors import RunError
from agentlab.core.trace import Trace
from agentlab.data.conversations import Conversation
from agentlab.evals.compare.ship import Verdict
from agentlab.evals.report.content import Content
from agentlab.evals.report.page import contents, described
from agentlab.evals.store.fold import Fold
from agentlab.evals.store.folder import RunFolder
from agentlab.evals.store.rows import Summary
from agentlab.evals.store.run import Run, open_run
from agentlab.evals.store.summary import summarise

FILES = ("run.json", "turns.jsonl", "calls.jsonl", "summary.json")


class Watched:
    """A run folder that is looked at again and again; raises RunError where it is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        run = open_run(path)
        self._folder, self._conversations = run.folder, run.conversations

    @property
    def version(self) -> str:
        """Another text once anything was written."""
        found = [file.stat() for name in FILES for file in self._folder.files(name)]
        return "-".join(f"{stat.st_size}.{stat.st_mtime_ns}" for stat in found)

    def data(self) -> dict[str, Any]:
        """What the page shows, with the version it has and, of a run that goes on, how far that is."""
        version, run = self.version, open_run(self.path)
        try:
            run.played()
        except RunError:
            run = _GoingOn(run.folder, self._conversations)
            says = run.progress
            verdict = Verdict("undecided", says, ("what decides is tested once it has ended",), "")
            return {**described([run], verdict, Content([run]), None), "live": {"version": version, "says": says}}
        return {**contents([run]), "live": {"version": version, "says": ""}}


class _GoingOn(Run):
    """What there is of a run by now, summed up as when it ends."""

    def __init__(self, folder: RunFolder, conversations: dict[str, Conversation]) -> None:
        super().__init__(folder)
        self.conversations = conversations

    @cached_property
    def result(self) -> Summary:
        fold = Fold(self.conversations)
        for play, rows in groupby(self.folder.turns(), key=lambda row: row.play):
            fold.take(self.traces.get(play) or Trace(*play), list(rows))
        return summarise(self.folder.header, fold.flows, complete=False)

    def _check_flows(self, played: Sequence[str]) -> None:
        """It grows while it is read."""

    @property
    def progress(self) -> str:
        """How many turns there are of how many, and when the last one was written."""
        header, rows = self.folder.header, self.folder.turns()
        spec = header["spec"]
        total = sum(data["turns"] for data in header["datasets"].values()) * len(spec["flows"]) * spec["epochs"]
        failed = sum(row.error is not None for row in rows)
        written = max((file.stat().st_mtime for file in self.folder.files("turns.jsonl")), default=0.0)
        last = f", the last at {datetime.fromtimestamp(written):%H:%M:%S}" if rows else ""
        return f"Not ended yet: {len(rows)} of {total} turns{last}; {failed} failed."
