"""Read a run folder: its summary, rows, measures and traces.

run = StoredRun.open("results/first")
run.turn_rows()                         # every turn, with its texts
run.turn_values["tools"]                # the measures of each turn
run.trace("tools", "laws-001")          # the events of one conversation
run.memory("memory-007", "chatbox")     # the facts of one conversation; a notebook shows them as a table
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from msgspec.structs import asdict, replace

from agentlab.core import plugins
from agentlab.core.constants import IMPORTED
from agentlab.core.errors import DatasetError, RunError
from agentlab.core.escaping import one_line
from agentlab.core.events import Event, MemoryOp
from agentlab.core.messages import Fact, from_json
from agentlab.core.trace import Totals, Trace
from agentlab.data.conversations import Conversation, Turn
from agentlab.data.datasets import Dataset, by_name, load_dataset
from agentlab.evals.store.folder import TURNS, RunFolder
from agentlab.evals.store.measures import LOOKUPS, MAX_VALUE, TurnKey, Values, measures_of
from agentlab.evals.store.rows import UNKNOWN, Summary, TrialKey, TurnRow

if TYPE_CHECKING:
    from agentlab.evals.store.frames import Frame


from agentlab.evals.stats.agreement import Agreement


@dataclass
class FactHistory:
    """Fact and its history; turns count from 1."""

    fact: Fact
    written: int | None = None
    """The turn that wrote it; None if it existed before."""
    replaced_by: str | None = None
    read: list[int] = field(default_factory=list)
    """Turns that recalled it."""


class MemoryView:
    """Facts of one conversation in one flow, in the order of their first operation.

    It contains an earlier fact only if a turn read the fact. It leaves out a flow's own memory, such as that of `ego`.
    """

    def __init__(self, name: str, events: Iterable[Event]) -> None:
        self.name = name
        self.operations = [event for event in events if isinstance(event, MemoryOp)]
        self.facts: dict[str, FactHistory] = {}
        for op in self.operations:
            for fact in op.facts:
                history = self.facts.setdefault(fact.id, FactHistory(fact))
                if op.op == "recall":
                    history.read.append(op.turn + 1)
                elif op.written:
                    history.written = op.turn + 1
                    if op.replaces in self.facts:
                        self.facts[op.replaces].replaced_by = fact.id

    @property
    def stored(self) -> list[FactHistory]:
        """Facts that are still stored at the end."""
        return [history for history in self.facts.values() if history.replaced_by is None]

    @property
    def table(self) -> Frame:
        """Table with one row per fact."""
        from agentlab.evals.store.frames import frame_of

        rows = [
            {
                "fact": history.fact.id,
                "text": history.fact.text,
                "about": history.fact.about,
                "written in turn": "before" if history.written is None else str(history.written),
                "read in turns": ", ".join(map(str, dict.fromkeys(history.read))),
                "replaced by": history.replaced_by or "",
            }
            for history in self.facts.values()
        ]
        return frame_of(rows, ["fact", "text", "about", "written in turn", "read in turns", "replaced by"])

    def __repr__(self) -> str:
        return f"<MemoryView of {self.name}: {len(self.stored)} facts stored, {len(self.operations)} operations>"

    def _repr_html_(self) -> str:
        return str(self.table.to_html(index=False))


NOT_COUNTED = Totals(**dict.fromkeys(asdict(Totals())))
MAX_CACHED_BYTES = 64 * 2**20
"""Largest size of turn rows, in bytes, that stay in memory with their texts; those of larger files are read again."""


class StoredRun:
    """A run folder, read lazily; every number comes from its rows."""

    def __init__(self, folder: RunFolder, datasets: Sequence[Dataset] | None = None) -> None:
        """Take a run folder, and the data sets it was just played with, if they are loaded."""
        self.played_with = datasets
        self.folder = folder
        self.path = folder.path

    @classmethod
    def open(cls, path: str | Path, *, regrade: bool = False) -> Self:
        """Open a run; raises RunError if the folder is no run, or if a file was edited after the run had ended.

        With `regrade` an edited summary is accepted, because regrading rewrites it.
        """
        run = cls(RunFolder.open(Path(path)))
        run.folder.verify_checksums(regrade=regrade)
        return run

    def forget(self) -> None:
        """Clear all cached values, after rows were added."""
        for name in {*self.__dict__} - {"played_with", "folder", "path"}:
            del self.__dict__[name]

    @property
    def header(self) -> Mapping[str, Any]:
        """Content of `run.json`."""
        return self.folder.header

    @property
    def identity(self) -> dict[str, Any]:
        """Name, data sets and graders, as `check_comparable` compares them, and the declared stops by flow."""
        datasets = {name: described["sha256"] for name, described in self.header["datasets"].items()}
        stops = self.header.get("stops", {})
        return {"name": str(self.path), "datasets": datasets, "graders": self.header["graders"], "stops": stops}

    @property
    def run_id(self) -> str:
        return str(self.header["run_id"])

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Content of `summary.json`, the stable machine interface, without checksums."""
        summary = self.folder.summary
        if not isinstance(summary, dict):
            raise RunError(f"{self.path / 'summary.json'} is not the summary of a run")
        return {name: value for name, value in summary.items() if name != "seal"}

    @cached_property
    def result(self) -> Summary:
        """Summary as a typed record."""
        try:
            return from_json(Summary, self.summary)
        except ValueError as problem:
            raise RunError(f"{self.path / 'summary.json'} is not the summary of a run: {problem}") from None

    @property
    def traces(self) -> Mapping[TrialKey, Trace]:
        """Trial -> its trace, which is decoded on access."""
        return self.folder.ledger

    def trace(self, flow: str, conversation: str, epoch: int = 0) -> Trace:
        """Return the events of one conversation in one flow; `.steps()` is their text.

        Raises RunError for an unknown flow or conversation, and for an imported run, which has no events.
        """
        try:
            return self.traces[flow, conversation, epoch]
        except KeyError:
            names = sorted({f"{trial[0]} {trial[1]}" for trial in self.traces})
            raise RunError(self._unknown(f"{flow} {conversation}", names)) from None

    def _unknown(self, conversation: str, names: Collection[str]) -> str:
        if self.header["spec"].get("mode") == IMPORTED:
            return f"{self.path} was imported, so it has no events; `agentlab show {self.path}` prints its answers"
        return plugins.unknown_name("conversation of this run", conversation, names)

    @cached_property
    def conversations(self) -> dict[str, Conversation]:
        """Conversations of the run, by name, as the folder stores them.

        For a run of format 3 those of the data sets; data sets that are missing or have changed are left out.
        """
        stored = self.folder.expected if self.played_with is None else None
        return by_name(self.datasets, self.header["spec"]["datasets"]) if stored is None else stored

    @cached_property
    def datasets(self) -> list[Dataset]:
        """Data sets of the run, without those that are missing or have changed."""
        spec, stored = self.header["spec"], self.header["datasets"]
        unchanged = []
        for position, path in enumerate(spec["datasets"]):
            with contextlib.suppress(DatasetError, OSError):
                loaded = self.played_with[position] if self.played_with else None
                dataset = loaded or load_dataset(path).subset(spec["limit"], spec.get("sample"))
                if dataset.digest == stored.get(dataset.name, {}).get("sha256"):
                    unchanged.append(dataset)
        return unchanged

    @property
    def epochs(self) -> int:
        return int(self.header["spec"].get("epochs", 1))

    @property
    def longest(self) -> int:
        """Turns of the longest conversation that the run left out, over all epochs; 0 if none or unknown.

        The run may have played only shorter conversations, and an import may answer only shorter ones.
        """
        played = {row.conversation for row in self._cached}
        left_out = [len(each.scored_turns) for name, each in self.conversations.items() if name not in played]
        return self.epochs * max((*left_out, *(dataset.max_turns for dataset in self.datasets)), default=0)

    def expected_turn(self, conversation: str, turn: int) -> Turn | None:
        """Return a turn of the data set, with its expectations; None if it does not exist."""
        expected = self.conversations.get(conversation)
        return expected.turns[turn] if expected and 0 <= turn < len(expected.turns) else None

    def memory(self, conversation: str, flow: str | None = None, epoch: int = 0) -> MemoryView:
        """Return the memory of a conversation; name the `flow` if several flows have one.

        Raises RunError if the conversation does not exist, or if no flow or several flows fit.
        """
        trials = [trial for trial in self.traces if trial[1:] == (conversation, epoch)]
        views = {trial[0]: MemoryView(f"{conversation} in {trial[0]}", self.traces[trial].events) for trial in trials}
        labels = [label for label, view in views.items() if view.operations]
        if not trials:
            raise RunError(self._unknown(conversation, {trial[1] for trial in self.traces}))
        if flow is None and len(labels) != 1:
            hint = f"name one of {', '.join(labels)} (--flow)" if labels else "no flow used memory"
            raise RunError(f"{conversation}: {hint}")
        chosen = flow or labels[0]
        plugins.check_names(f"flow that played {conversation}", [chosen], views, kind=RunError)
        return views[chosen]

    @cached_property
    def _is_large(self) -> bool:
        return sum(file.stat().st_size for file in self.folder.files(TURNS)) > MAX_CACHED_BYTES

    @cached_property
    def _cached(self) -> list[TurnRow]:
        return [*map(self._without_false_zeros, self.folder.latest_turns(texts=not self._is_large))]

    @cached_property
    def _uncounted(self) -> set[str]:
        """Flows without known calls; empty while the run is running."""
        flows = self.result.flows if self.folder.summary_file.exists() else {}
        return {label for label, flow in flows.items() if flow.llm_calls is None}

    def _without_false_zeros(self, row: TurnRow) -> TurnRow:
        """Return the row; its costs become unknown if the flow bypasses the session, which then counted nothing."""
        is_unknown = row.flow in self._uncounted and row.totals == Totals()
        return replace(row, totals=NOT_COUNTED, latency_s=None) if is_unknown else row

    def rows(self, wanted: Callable[[TurnRow], bool] = lambda row: True) -> list[TurnRow]:
        """Return the turns that are `wanted`, by flow, conversation, epoch and number; the run may be running."""
        if self._is_large:
            return [*map(self._without_false_zeros, self.folder.latest_turns(wanted))]
        return [*filter(wanted, self._cached)]

    def turn_rows(self) -> list[TurnRow]:
        """Return the turns with their texts; raises RunError if the summary counts other turns."""
        return [*self._validated(self.rows())]

    def map_turns(self) -> Iterator[TurnRow]:
        """Iterate over the turns, perhaps without their texts; raises RunError at a wrong turn or at the end."""
        return self._validated(self._cached)

    def _validated(self, rows: Iterable[TurnRow]) -> Iterator[TurnRow]:
        number = 0
        for row in rows:
            number += 1
            if row.flow not in self.result.flows:
                name = one_line(row.flow)
                raise RunError(f"{self.path}: turns.jsonl has turns of {name!r}, which is not in the summary")
            yield row
        if number != self.result.turns:
            raise RunError(f"{self.path}: turns.jsonl has {number} turns, the summary {self.result.turns}")

    @cached_property
    def turn_values(self) -> dict[str, dict[TurnKey, Values]]:
        """Flow label -> turn -> measures, with the flows in the order of the summary.

        Raises RunError for a number beyond MAX_VALUE.
        """
        flows: dict[str, dict[TurnKey, Values]] = {label: {} for label in self.result.flows}
        for row in self.map_turns():
            flows[row.flow][row.key] = values = measures_of(row)
            for name, value in values.items():
                if value is not None and not -MAX_VALUE <= value <= MAX_VALUE:
                    location = one_line(f"turn {row.turn + 1} of {row.conversation} by {row.flow}: {name}")
                    raise RunError(f"{self.path}: {location} is beyond {MAX_VALUE:g}, so it was not measured")
        for label in filter(self.hides_searches, flows):
            for values in flows[label].values():
                values |= dict.fromkeys(values.keys() & {*LOOKUPS})
        return flows

    def hides_searches(self, flow: str) -> bool:
        """Return True for a flow that searches without the session, so that its look-ups are unknown."""
        # A damaged summary may lack a flow of the turns.
        scores = self.result.flows[flow].scores if flow in self.result.flows else {}
        return any(name in scores and scores[name].mean is None for name in LOOKUPS)

    @cached_property
    def means(self) -> dict[str, dict[str, float | None]]:
        """Flow label -> measure -> mean over the turns that have it; None if a part is unknown."""
        flows: dict[str, dict[str, float | None]] = {}
        for label, turns in self.turn_values.items():
            names = dict.fromkeys(name for row in turns.values() for name in row)
            columns = {name: np.array([row[name] for row in turns.values() if name in row], float) for name in names}
            means = {name: float(column.mean()) for name, column in columns.items()}
            flows[label] = {name: None if np.isnan(mean) else mean for name, mean in means.items()}
        return flows

    @property
    def all_turns_failed(self) -> bool:
        """True if every turn of every flow failed."""
        return all(flow.errors == flow.turns for flow in self.result.flows.values())

    def check_complete(self) -> None:
        """Raise RunError if turns of the run are missing, quarantined, or failed because of a recording miss."""
        recordings = self.result.recordings
        if recordings and recordings.missing:
            raise RunError(
                f"{self.path}: {recordings.missing} calls of the replay are not recorded; record them with --mode auto"
            )
        if self.result.quarantined:
            first = self.result.quarantined[0]
            raise RunError(
                f"{self.path}: {len(self.result.quarantined)} conversations are quarantined (the first: {first.flow}"
                f" {first.conversation}: {first.cause}); --resume plays them again"
            )
        if self.result.status != "complete":
            raise RunError(f"{self.path}: the run stopped early; continue it with --resume first")


def check_comparable(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """Raise RunError unless the same code graded both on the same data; `other` may have more graders.

    Both have `name`, as the user calls them, and `datasets` and `graders` (name -> SHA-256 each).
    """
    texts = {
        "datasets": "the data sets differ ({}); run both on the same conversations, with the same --limit. For a"
        " data set that has grown, rewrite the baseline: `agentlab gate RUN --baseline FILE --update`",
        "graders": "the graders differ ({}); regrade both with `agentlab score RUN` (--scorer names one); for a"
        " baseline, then `agentlab gate RUN --baseline FILE --update`",
    }
    for part, text in texts.items():
        first, second = one[part], other[part]
        # A grader that only the later one has does not change the common scores.
        names = {*first} if part == "graders" else {*first, *second}
        differing = sorted(n for n in names if first.get(n) != second.get(n) or first[n] == UNKNOWN)
        if differing:
            raise RunError(f"{one['name']} and {other['name']} cannot be compared: {text.format(', '.join(differing))}")


MIN_LABELS = 20
"""Minimum labelled turns for a judge as primary measure, unless the spec fixes another number."""


def notes_on_judges(run: StoredRun) -> list[str]:
    """Return one line for each judge of the run: known answers passed, and agreement with human labels."""
    lines = []
    for metric, content in _judges(run).items():
        agreement = content["agreement"]
        line = "no human labels" if agreement is None else agreement_line(Agreement(**agreement))
        estimates = "; ".join(f"{name} {text}" for name, text in content.get("people", {}).items() if agreement)
        corrected = f"; corrected for the labels: {estimates}" if estimates else ""
        passed = known_answers_line(content["known_answers"])
        lines.append(f"{metric} by {content['model']} {passed}; {line}{corrected}")
    return lines


def _judges(run: StoredRun) -> dict[str, dict[str, Any]]:
    """Return measure -> content of judge.json, for the judges whose scores the run has."""
    graders = run.header["graders"]
    judges = {}
    for file in sorted(Path(run.path, "judges").glob("*/judge.json")):
        content = run.folder.read_json(str(file.relative_to(run.path)), ": judge.json of a judge is missing")
        if graders.get(content["metric"]) == content["sha256"]:
            judges[content["metric"]] = content
    return judges


def known_answers_line(counts_by_kind: Mapping[str, Sequence[int]]) -> str:
    """Return, in words, how many known right and wrong answers a judge passed."""
    line = ", ".join(f"{n} of {m} ({kind})" for kind, (n, m, *_) in counts_by_kind.items() if m)
    unreadable = sum(sum(counts[2:]) for counts in counts_by_kind.values())
    line = f"passes {line}" if line else "has judged no known answers"
    return f"{line}; {unreadable} known answers have no readable judgement" if unreadable else line


def agreement_line(result: Agreement) -> str:
    """Return the agreement of a judge with human labels, in words."""
    kappa = "-" if result.kappa is None else f"{result.kappa:.2f}"
    line = f"{result.n} human labels: agreement {result.agreement:.2f}, kappa {kappa}, bias {result.bias:+.2f}"
    return line if result.correlation is None else f"{line}, correlation {result.correlation:.2f}"
