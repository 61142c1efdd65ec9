"""A run folder that is read once: its summary, its rows, what they measure, and its traces.

run = StoredRun.open("results/first")
run.played()                            # every turn, with all that was said
run.measured["tools"]                   # what is compared, turn by turn
run.trace("tools", "laws-001")          # one conversation, event by event
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np

from agentlab.core import plugins
from agentlab.core.constants import IMPORTED
from agentlab.core.errors import DatasetError, RunError
from agentlab.core.escaping import one_line
from agentlab.core.messages import from_json
from agentlab.core.trace import Trace
from agentlab.data.conversations import Conversation, Turn
from agentlab.data.datasets import Dataset, conversation_name, load_dataset
from agentlab.evals.store.folder import TURNS, RunFolder
from agentlab.evals.store.measures import MAX_VALUE, TurnKey, Values, measures_of
from agentlab.evals.store.memory_view import MemoryView
from agentlab.evals.store.rows import UNKNOWN, Summary, TrialKey, TurnFigures, TurnRow

MOST_KEPT = 64 * 2**20
"""Bytes of turn rows that are kept once they are read; of more each reader decodes what it needs."""

_Turn = TypeVar("_Turn", bound=TurnRow | TurnFigures)


class StoredRun:
    """What is in a run folder; nothing is kept that the rows do not say."""

    def __init__(self, folder: RunFolder, datasets: Sequence[Dataset] | None = None) -> None:
        """`datasets` are those it was just played with, where they are at hand."""
        self.played_with = datasets
        self.folder = folder
        self.path = folder.path

    @classmethod
    def open(cls, path: str | Path, *, regrade: bool = False) -> Self:
        """Raises RunError where the folder is no run, or where a file of it was edited after the run had ended.

        With `regrade`, for those who make it anew, the summary may have been.
        """
        run = cls(RunFolder.open(Path(path)))
        run.folder.check_seal(regrade=regrade)
        return run

    def forget(self) -> None:
        """Read anew what is asked for from now on: rows were added."""
        for name in {*self.__dict__} - {"played_with", "folder", "path"}:
            del self.__dict__[name]

    @property
    def header(self) -> Mapping[str, Any]:
        """The content of `run.json`."""
        return self.folder.header

    @property
    def identity(self) -> dict[str, Any]:
        """The facts that `check_comparable` reads."""
        datasets = {name: described["sha256"] for name, described in self.header["datasets"].items()}
        return {"name": str(self.path), "datasets": datasets, "graders": self.header["graders"]}

    @property
    def is_sealed(self) -> bool:
        """False for a run that has not ended, or that is older than seals."""
        return self.folder.is_sealed

    @property
    def run_id(self) -> str:
        return str(self.header["run_id"])

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The stable machine interface, as in `summary.json`."""
        summary = self.folder.summary
        if not isinstance(summary, dict):
            raise RunError(f"{self.path / 'summary.json'} is not the summary of a run")
        return {name: value for name, value in summary.items() if name != "seal"}

    @cached_property
    def result(self) -> Summary:
        """The summary with a type."""
        try:
            return from_json(Summary, self.summary)
        except ValueError as problem:
            raise RunError(f"{self.path / 'summary.json'} is not the summary of a run: {problem}") from None

    @property
    def traces(self) -> Mapping[TrialKey, Trace]:
        """Every conversation's events; each trace is read when it is asked for."""
        return self.folder.ledger

    def trace(self, flow: str, conversation: str, epoch: int = 0) -> Trace:
        try:
            return self.traces[flow, conversation, epoch]
        except KeyError:
            known = sorted({f"{play[0]} {play[1]}" for play in self.traces})
            raise RunError(self._unknown(f"{flow} {conversation}", known)) from None

    def _unknown(self, conversation: str, known: Collection[str]) -> str:
        if self.header["spec"].get("mode") == IMPORTED:
            return (
                f"{self.path} was imported: nobody knows the steps behind its answers; `agentlab show` has the answers"
            )
        return plugins.unknown_name("conversation of this run", conversation, known)

    @cached_property
    def conversations(self) -> dict[str, Conversation]:
        """What was asked and what is expected, by name; without data sets that are not here or have changed since."""
        paths = self.header["spec"]["datasets"]
        return {
            conversation_name(dataset, each, paths): each for dataset in self.datasets for each in dataset.conversations
        }

    @cached_property
    def datasets(self) -> list[Dataset]:
        """Those of the run, without any that is not here or has changed since."""
        spec, known = self.header["spec"], self.header["datasets"]
        found = []
        for place, path in enumerate(spec["datasets"]):
            with contextlib.suppress(DatasetError, OSError):
                played = self.played_with[place] if self.played_with else None
                dataset = played or load_dataset(path).subset(spec["limit"], spec.get("sample"))
                if dataset.digest == known.get(dataset.name, {}).get("sha256"):
                    found.append(dataset)
        return found

    def expected_turn(self, conversation: str, turn: int) -> Turn | None:
        """What the data set asks and expects there; None where it is not here or has no such turn."""
        found = self.conversations.get(conversation)
        return found.turns[turn] if found and 0 <= turn < len(found.turns) else None

    def memory(self, conversation: str, flow: str | None = None, epoch: int = 0) -> MemoryView:
        """What was remembered in a conversation; `flow` is needed where several remember something.

        Raises RunError where there is no such conversation.
        """
        played = [play for play in self.traces if play[1:] == (conversation, epoch)]
        views = {play[0]: MemoryView(f"{conversation} in {play[0]}", self.traces[play].events) for play in played}
        remembering = [label for label, view in views.items() if view.operations]
        if not played:
            raise RunError(self._unknown(conversation, {play[1] for play in self.traces}))
        if flow is None and len(remembering) != 1:
            named = f"name one of {', '.join(remembering)} (--flow)" if remembering else "no flow remembered anything"
            raise RunError(f"{conversation}: {named}")
        if flow is not None and flow not in views:
            raise RunError(plugins.unknown_name(f"flow that played {conversation}", flow, views))
        return views[flow or remembering[0]]

    @cached_property
    def _kept(self) -> list[TurnRow] | None:
        size = sum(file.stat().st_size for file in self.folder.files(TURNS))
        return self.folder.turns() if size <= MOST_KEPT else None

    def rows(self, wanted: Callable[[TurnRow], bool] = lambda row: True) -> list[TurnRow]:
        """The turns that are `wanted`, whether the run has ended or not: by flow, conversation, epoch and number."""
        read = self.folder.latest_turns(TurnRow, wanted) if self._kept is None else filter(wanted, self._kept)
        return [*read]

    def turn_rows(self) -> list[TurnRow]:
        """The turns with all that was said; raises RunError where the summary counts others."""
        return [*self._checked(self.rows())]

    def map_turns(self) -> Iterable[TurnRow | TurnFigures]:
        """The same for who needs no word of them; it raises at the turn that is wrong, or at the end."""
        return self._checked(self.folder.latest_turns(TurnFigures) if self._kept is None else self._kept)

    def _checked(self, rows: Iterable[_Turn]) -> Iterator[_Turn]:
        number = 0
        for row in rows:
            number += 1
            if row.flow not in self.result.flows:
                name = one_line(row.flow)
                raise RunError(f"{self.path}: turns.jsonl holds turns of {name!r}, which the summary does not know")
            yield row
        if number != self.result.turns:
            raise RunError(f"{self.path}: turns.jsonl holds {number} turns, the summary {self.result.turns}")

    @cached_property
    def turn_values(self) -> dict[str, dict[TurnKey, Values]]:
        """Flow label -> turn -> its measures, in the order the run's summary names the flows.

        Raises RunError for a number that nothing measures.
        """
        flows: dict[str, dict[TurnKey, Values]] = {label: {} for label in self.result.flows}
        for row in self.map_turns():
            flows[row.flow][row.key] = values = measures_of(row)
            for name, value in values.items():
                if value is not None and not -MAX_VALUE <= value <= MAX_VALUE:
                    where = one_line(f"turn {row.turn} of {row.conversation} by {row.flow}: {name}")
                    raise RunError(f"{self.path}: {where} is beyond {MAX_VALUE:g}, so it was not measured")
        return flows

    @cached_property
    def means(self) -> dict[str, dict[str, float | None]]:
        """Flow label -> measure -> its mean over the turns that have it; None where a part is unknown."""
        found: dict[str, dict[str, float | None]] = {}
        for label, turns in self.turn_values.items():
            names = dict.fromkeys(name for row in turns.values() for name in row)
            columns = {name: np.array([row[name] for row in turns.values() if name in row], float) for name in names}
            means = {name: float(column.mean()) for name, column in columns.items()}
            found[label] = {name: None if np.isnan(mean) else mean for name, mean in means.items()}
        return found

    @property
    def all_turns_failed(self) -> bool:
        """Whether every turn of every flow failed."""
        return all(flow.errors == flow.turns for flow in self.result.flows.values())

    def check_complete(self) -> None:
        """Raise RunError where turns of the run are missing, or failed for want of a recording."""
        reused = self.result.recordings
        if reused and reused.missing:
            raise RunError(
                f"{self.path}: {reused.missing} calls of this replay were not recorded; record them with --mode auto"
            )
        if self.result.quarantined:
            first = self.result.quarantined[0]
            raise RunError(
                f"{self.path}: {len(self.result.quarantined)} conversations are quarantined (the first: {first.flow}"
                f" {first.conversation}: {first.cause}); --resume plays them again"
            )
        if self.result.status != "complete":
            raise RunError(f"{self.path}: the run stopped early; go on with --resume first")


def check_comparable(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """Raise RunError unless both were graded by the same code on the same data; the later one by more, if it likes.

    Both have a `name`, as the user calls them, and `datasets` and `graders` (name -> SHA-256 each).
    """
    why = {
        "datasets": "the data sets differ ({}; another --limit counts too); run both on the same conversations, and"
        " make the baseline of a set that has grown again with `agentlab gate RUN --baseline FILE --update`",
        "graders": "the graders differ ({}), so the scores mean different things; grade both alike with"
        " `agentlab score RUN` (--scorer names one), a baseline then with `agentlab gate RUN --baseline FILE --update`",
    }
    for part, text in why.items():
        mine, theirs = one[part], other[part]
        # A grader that came with a newer version takes nothing from what both were graded by.
        names = {*mine} if part == "graders" else {*mine, *theirs}
        differing = sorted(n for n in names if mine.get(n) != theirs.get(n) or mine[n] == UNKNOWN)
        if differing:
            raise RunError(f"{one['name']} and {other['name']} cannot be compared: {text.format(', '.join(differing))}")
