"""The page of a run that goes on: what stands in its folder by now, with the scores that can be given at once.

A run is graded and summed up when it ends; until then this does the same for the turns that are there, but for scorers
that need an embedder, which wait for the end. Nothing is written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentlab.core import plugins
from agentlab.core.errors import AgentlabError, RunError
from agentlab.data.conversations import Conversation
from agentlab.evals.report.content import Content
from agentlab.evals.report.page import contents, described
from agentlab.evals.report.verdict import Verdict
from agentlab.evals.results.grading import NotSaid, grade, outcome_of
from agentlab.evals.results.rows import Play, ScoreRow, Summary
from agentlab.evals.results.run import Run, open_run
from agentlab.evals.results.summary import summarise
from agentlab.evals.run.folder import RunFolder

if TYPE_CHECKING:
    import numpy as np

FILES = ("run.json", "turns.jsonl", "calls.jsonl", "scores.jsonl", "summary.json")


class Watched:
    """A run folder that is looked at again and again; raises RunError where it is none."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._conversations = open_run(path).conversations
        self._graded: dict[tuple[Play, int, int], list[ScoreRow]] = {}

    @property
    def version(self) -> str:
        """Another text once anything was written."""
        files = [self.path / name for name in FILES]
        found = [file.stat() if file.exists() else None for file in files]
        return "-".join(f"{stat.st_size}.{stat.st_mtime_ns}" if stat else "" for stat in found)

    def data(self) -> dict[str, Any]:
        """What the page shows, with the version it has and, of a run that goes on, how far that is."""
        version, run = self.version, open_run(self.path)
        try:
            run.played()
        except RunError:
            run = _GoingOn(run.folder, self._conversations, self._graded)
            says = run.progress
            verdict = Verdict("undecided", says, ("what decides is tested once it has ended",), "")
            return {**described([run], verdict, Content([run]), None), "live": {"version": version, "says": says}}
        return {**contents([run]), "live": {"version": version, "says": ""}}


class _Folder(RunFolder):
    graded: Sequence[ScoreRow] = ()

    def scores(self) -> list[ScoreRow]:
        return list(self.graded)


class _GoingOn(Run):
    """What there is of a run by now, as `finish` would leave it."""

    def __init__(
        self,
        folder: RunFolder,
        conversations: dict[str, Conversation],
        graded: dict[tuple[Play, int, int], list[ScoreRow]],
    ) -> None:
        read = _Folder(folder.path)
        super().__init__(read)
        self.conversations = conversations
        scorers = _scorers(read.header["spec"]["scorers"])
        rows = []
        for row in read.played.turns:
            key = (row.play, row.take, row.turn)
            if key not in graded and row.conversation in conversations:
                graded[key] = []
                with contextlib.suppress(RunError):  # a scorer that fails says so when the run ends
                    conversation = conversations[row.conversation]
                    outcome = outcome_of(row, conversation, self.traces, _no_embedder)
                    found = grade(self.path, row, conversation.turns[row.turn], scorers, outcome)
                    graded[key] = [score for score in found if score.value is not None]
            rows += graded.get(key, [])
        read.graded = rows

    @cached_property
    def result(self) -> Summary:
        return summarise(self, self.folder.scores(), complete=False)

    @property
    def progress(self) -> str:
        """How many turns there are of how many, and when the last one was written."""
        header, rows = self.folder.header, self.folder.played.turns
        spec = header["spec"]
        total = sum(data["turns"] for data in header["datasets"].values()) * len(spec["flows"]) * spec["epochs"]
        failed = sum(row.error is not None for row in rows)
        file = self.path / "turns.jsonl"
        last = f", the last at {datetime.fromtimestamp(file.stat().st_mtime):%H:%M:%S}" if rows else ""
        return f"Not ended yet: {len(rows)} of {total} turns{last}; {failed} failed."


def _scorers(names: str | Sequence[str]) -> list[Any]:
    try:
        known = plugins.names("evals.scorers") if names == "default" else names
        return [plugins.resolve("evals.scorers", name) for name in known]
    except AgentlabError:
        return []  # a scorer that only the running process has


def _no_embedder(texts: Sequence[str]) -> np.ndarray:
    raise NotSaid("texts are embedded when the run ends")
