"""Imports predictions of other systems as a run folder, with one flow per system.

    import_predictions("../shared/published/locomo", "results/locomo")

All rows are in memory: a million of them take 1 to 2 GB.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import UNSET

from agentlab.core import plugins
from agentlab.core.constants import IMPORTED
from agentlab.core.errors import DatasetError
from agentlab.core.messages import Reply
from agentlab.core.strict_json import MAX_DEPTH, check_depth
from agentlab.core.thoughts import split_thought
from agentlab.core.trace import Totals
from agentlab.core.version import __version__
from agentlab.data.conversations import Conversation
from agentlab.data.datasets import Dataset, by_name, load_dataset
from agentlab.evals.grade.fingerprints import fingerprints
from agentlab.evals.grade.imported import grade_rows, published_numbers
from agentlab.evals.published.predictions import Prediction, prediction_files, read_predictions
from agentlab.evals.store.checksums import atomic_folder
from agentlab.evals.store.folder import RunFolder
from agentlab.evals.store.measures import MAX_VALUE, RETRIEVAL_STEPS, check_primary
from agentlab.evals.store.rows import TurnRow
from agentlab.evals.store.run import StoredRun
from agentlab.workbench.spec import Spec, make_spec

SCORERS = ("answer", "correctness", "rouge", "refusal")
"""Default scorers of an import: they need a reply and no embeddings."""
MAX_EPOCHS = 10_000
PassagesByTurn = dict[tuple[str, int], list[str]]
"""Conversation and turn -> ids of documents."""


class AnswerCoverage:
    """Record of the turns that have an answer; rejects rows that fit no turn."""

    def __init__(self, dataset: Dataset) -> None:
        self.conversations = {conversation.id: conversation for conversation in dataset.conversations}
        self.answered: defaultdict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
        """System and epoch -> turns."""

    def add(self, row: Prediction) -> str | None:
        """Add a row; return the problem if the row cannot be used."""
        conversation = self.conversations.get(row.conversation)
        if conversation is None:
            return plugins.unknown_name("conversation of the data set", row.conversation, self.conversations)
        if row.turn >= len(conversation.turns):
            turns = f"{len(conversation.turns)} turn{'s' if len(conversation.turns) > 1 else ''}, counted from 0"
            return f"turn {row.turn} is out of range: {row.conversation} has {turns}"
        if not conversation.turns[row.turn].scored:
            history = f"turn {row.turn} of {row.conversation} is history (scored: false) and takes no answer"
            return f"{history}; remove this row"
        if row.epoch >= MAX_EPOCHS:
            return f"epoch {row.epoch} is out of range; the largest is {MAX_EPOCHS - 1}"
        answered = self.answered[row.system, row.epoch]
        if (row.conversation, row.turn) in answered:
            name = f"turn {row.turn} of {row.conversation}"
            return f"duplicate answer of {row.system} to {name}; give a second try its own epoch"
        answered.add((row.conversation, row.turn))
        return None

    def missing(self) -> Iterator[str]:
        """Yield a line for each system and epoch that did not answer every turn."""
        n_turns = sum(len(conversation.scored_turns) for conversation in self.conversations.values())
        for (system, epoch), answered in self.answered.items():
            if len(answered) < n_turns:
                yield f"{system} answered {len(answered)} of {n_turns} turns{f' in epoch {epoch}' if epoch else ''}"


def import_predictions(
    predictions: str | Path,
    out: str | Path,
    *,
    dataset: str | Path | None = None,
    scorers: Sequence[str] = SCORERS,
    primary: Sequence[str] = (),
    note: Callable[[str], None] = lambda line: None,
    on_progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> StoredRun:
    """Write the answers of a folder or file as a run, graded by `scorers`, and return the run.

    `dataset` is the folder of the conversations, by default the folder of the answers. `primary` names the primary
    measures of comparisons and gates; scores from the source (`published_em`) are allowed. `note` receives warnings.
    `on_progress` receives the step ("bytes read", "graded"), the amount done and the total.

    Raises DatasetError, with file and line, for a row that cannot be used, and ConfigError if `primary` names an
    unknown measure. After an error no folder is left.
    """
    source, path = Path(predictions), Path(out)
    home = Path(dataset) if dataset is not None else source if source.is_dir() else source.parent
    files, data = prediction_files(source), load_dataset(home)
    modules = [plugins.resolve("evals.scorers", name) for name in scorers]
    coverage, passages = AnswerCoverage(data), _passages_by_turn(data, home)
    with atomic_folder(path) as scratch:
        rows = list(_rows(files, data, coverage, passages, partial(on_progress, "bytes read"), note))
        if not rows:
            raise DatasetError("the file has no answers", files[0])
        epochs = {epoch for _, epoch in coverage.answered}
        if first := min(epochs):
            raise DatasetError(f"the first epoch is {first}; count epochs from 0", files[0])
        systems = list(dict.fromkeys(row.flow for row in rows))
        flows = [{"flow": IMPORTED, "label": system} for system in systems]
        chosen = {"epochs": 1 + max(epochs), "scorers": list(scorers), "primary": list(primary)}
        spec = make_spec({"name": IMPORTED, "datasets": [str(home)], "flows": flows, **chosen}, {})
        header = _header(path, data, spec, files)
        folder = RunFolder.create(scratch, {**header, "graders": fingerprints(modules, "none")})
        folder.write_expected(by_name([data], [data]))
        published = grade_rows(folder, rows, data, modules, on_progress=partial(on_progress, "graded"))
        check_primary(primary, modules, [data], also=[RETRIEVAL_STEPS, *published])
    for line in coverage.missing():
        note(line)
    return StoredRun.open(path)


def _rows(
    files: Sequence[Path],
    data: Dataset,
    coverage: AnswerCoverage,
    passages_by_turn: PassagesByTurn,
    on_progress: Callable[[int, int], None],
    note: Callable[[str], None],
) -> Iterator[TurnRow]:
    documents = {document.doc_id for document in data.documents}
    sizes = [file.stat().st_size for file in files]
    before = 0

    def read_to(position: int) -> None:
        on_progress(before + position, sum(sizes))

    for file, size in zip(files, sizes, strict=True):
        for line, row in read_predictions(file, read_to, note):
            if problem := coverage.add(row) or _problem(row.published):
                raise DatasetError(problem, file, line)
            conversation = coverage.conversations[row.conversation]
            turn = conversation.turns[row.turn]
            passages = passages_by_turn.get((row.conversation, row.turn)) if row.passages is None else row.passages
            if documents and (unknown := [name for name in passages or () if name not in documents]):
                raise DatasetError(plugins.unknown_name("document of the data set", unknown[0], documents), file, line)
            yield TurnRow(
                flow=row.system,
                dataset=data.name,
                conversation=row.conversation,
                turn=row.turn,
                category=category_of(conversation, row.turn),
                epoch=row.epoch,
                take=0,
                user=turn.user,
                reply=None if row.answer is None else _reply(row.answer),
                error=(row.error or "the source has no answer") if row.answer is None else None,
                wall_seconds=None,
                totals=Totals(**{name: getattr(row, name) for name in Totals.__struct_fields__}),
                latency_s=row.seconds,
                memory_tokens=None,
                memory_unavailable=None,
                phases={},
                retrieval_steps=row.retrieval_steps,
                passages=UNSET if passages is None else passages,
                published=row.published,
            )
        before += size
        read_to(0)


def _reply(answer: str) -> Reply:
    text, thought = split_thought(answer)
    return Reply(text=text, data={"thought": thought} if thought else {})


def category_of(conversation: Conversation, turn: int) -> Any:
    """Return the category of a turn, or else of its conversation; None without either."""
    return {**conversation.metadata, **conversation.turns[turn].metadata}.get("category")


def _problem(published: Mapping[str, Any]) -> str | None:
    """Return the reason why the scores of an answer cannot be stored as numbers, if there is one."""
    try:
        check_depth(published, MAX_DEPTH - 1)
    except ValueError as problem:
        return f"published: {problem}"
    names = set()
    for name, value in published_numbers(published):
        if name in names:
            return f"published: duplicate name {name}, as one number and in parts; rename one"
        if not -MAX_VALUE <= value <= MAX_VALUE:
            return f"published: {name} is beyond {MAX_VALUE:g} and cannot be a measurement; remove it"
        names.add(name)
    return None


def _passages_by_turn(data: Dataset, home: Path) -> PassagesByTurn:
    """Return the documents that a turn names for every system; raises DatasetError if they are no list of ids."""
    passages = {}
    for conversation in data.conversations:
        for number, turn in enumerate(conversation.turns):
            ids = turn.metadata.get("passages")
            if isinstance(ids, list) and all(isinstance(name, str) and name for name in ids):
                passages[conversation.id, number] = ids
            elif ids is not None:
                problem = f"turn {number} of {conversation.id}: metadata.passages must be a list of document ids"
                raise DatasetError(problem, data.locations.get(conversation.id, home))
    return passages


def _header(path: Path, data: Dataset, spec: Spec, files: Sequence[Path]) -> dict[str, Any]:
    return {
        "run_id": path.resolve().name,
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "spec": {**spec.model_dump(mode="json"), "mode": IMPORTED, "model": "not said"},
        "datasets": {data.name: {"sha256": data.digest, "conversations": len(data.conversations), "turns": data.turns}},
        "models": {},
        "versions": {"agentlab": __version__},
        "predictions": [file.name for file in files],
    }
