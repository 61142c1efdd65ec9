"""Predictions of other systems as a run folder like any other: one flow a system.

    import_predictions("../shared/published/locomo", "results/locomo")

The rows are held in memory: a million of them take 1 to 2 GB.
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
from agentlab.core.trace import Totals
from agentlab.core.version import __version__
from agentlab.data.conversations import Conversation
from agentlab.data.datasets import Dataset, load_dataset
from agentlab.evals.grade.fingerprints import fingerprints
from agentlab.evals.grade.imported import grade_rows, published_numbers
from agentlab.evals.published.predictions import Prediction, prediction_files, read_predictions, unknown_keys
from agentlab.evals.store.atomic_folder import atomic_folder
from agentlab.evals.store.folder import FORMAT, RunFolder
from agentlab.evals.store.measures import MAX_VALUE, RETRIEVAL_STEPS, check_primary
from agentlab.evals.store.rows import TurnRow
from agentlab.evals.store.run import StoredRun
from agentlab.workbench.spec import Spec, make_spec

SCORERS = ("answer", "correctness", "rouge", "refusal")
"""What grades an import that does not choose: what needs a reply and no embeddings."""
MAX_EPOCHS = 10_000
PassagesByTurn = dict[tuple[str, int], list[str]]


class AnswerCoverage:
    """Which answers were there."""

    def __init__(self, dataset: Dataset) -> None:
        self.conversations = {conversation.id: conversation for conversation in dataset.conversations}
        self.answered: defaultdict[tuple[str, int], set[tuple[str, int]]] = defaultdict(set)
        """By system and epoch the turns."""

    def add(self, row: Prediction) -> str | None:
        """What is wrong with the row, if anything."""
        conversation = self.conversations.get(row.conversation)
        if conversation is None:
            return plugins.unknown_name("conversation of the data set", row.conversation, self.conversations)
        if row.turn >= len(conversation.turns):
            turns = f"{len(conversation.turns)} turn{'s' if len(conversation.turns) > 1 else ''}, counted from 0"
            return f"turn {row.turn} is out of range: {row.conversation} has {turns}"
        if not conversation.turns[row.turn].scored:
            return f"turn {row.turn} of {row.conversation} is told, not asked (scored: false), so nothing answers it"
        if row.epoch >= MAX_EPOCHS:
            return f"epoch {row.epoch} is out of range; there are {MAX_EPOCHS} at the most"
        answered = self.answered[row.system, row.epoch]
        if (row.conversation, row.turn) in answered:
            where = f"turn {row.turn} of {row.conversation}" + (f" in epoch {row.epoch}" if row.epoch else "")
            return f"{row.system} answers {where} twice; a second try has an epoch of its own"
        answered.add((row.conversation, row.turn))
        return None

    def missing(self) -> Iterator[str]:
        """Systems that did not answer every turn, a line each."""
        asked = sum(len(conversation.scored_turns) for conversation in self.conversations.values())
        for (system, epoch), answered in self.answered.items():
            if len(answered) < asked:
                yield f"{system} answered {len(answered)} of {asked} turns{f' in epoch {epoch}' if epoch else ''}"


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
    """A run folder of the answers in a folder or file, graded by `scorers`; `dataset` is that folder, or another.

    `primary` decides comparisons and the gate, a measure that the source gave (`published_em`) among them if it is
    named. Raises DatasetError, with file and line, where a row cannot be used, ConfigError where `primary` names what
    is no measure of these answers, and leaves nothing behind. `on_progress` is told what goes on (bytes are read, turns
    graded), how much is done, and of how much.
    """
    source, path = Path(predictions), Path(out)
    home = Path(dataset) if dataset is not None else source if source.is_dir() else source.parent
    files, data = prediction_files(source), load_dataset(home)
    for file in files:
        if strange := unknown_keys(file):
            note(f"{file}: not read, since nothing here is called so: {', '.join(map(repr, strange[:10]))}")
    modules = [plugins.resolve("evals.scorers", name) for name in scorers]
    seen, named = AnswerCoverage(data), _named(data, home)
    with atomic_folder(path) as scratch:
        rows = list(_rows(files, data, seen, named, partial(on_progress, "bytes read")))
        if not rows:
            raise DatasetError("there is no answer in it", files[0])
        epochs = {epoch for _, epoch in seen.answered}
        if first := min(epochs):
            told = f"no answer is of epoch 0, the first is of {first}; epochs are counted from 0"
            raise DatasetError(told, files[0])
        systems = list(dict.fromkeys(row.flow for row in rows))
        folder = RunFolder(scratch)
        flows = [{"flow": IMPORTED, "label": system} for system in systems]
        chosen = {"epochs": 1 + max(epochs), "scorers": list(scorers), "primary": list(primary)}
        spec = make_spec({"name": IMPORTED, "datasets": [str(home)], "flows": flows, **chosen}, {})
        header = _header(path, data, spec, files)
        folder.write_json("run.json", {**header, "graders": fingerprints(modules, "none")})
        there = grade_rows(folder, rows, data, modules, on_progress=partial(on_progress, "graded"))
        check_primary(primary, modules, [data], also=[RETRIEVAL_STEPS, *there])
    for line in seen.missing():
        note(line)
    return StoredRun.open(path)


def _rows(
    files: Sequence[Path],
    data: Dataset,
    seen: AnswerCoverage,
    named: PassagesByTurn,
    on_progress: Callable[[int, int], None],
) -> Iterator[TurnRow]:
    documents = {document.doc_id for document in data.documents}
    sizes = [file.stat().st_size for file in files]
    before = 0

    def read_to(place: int) -> None:
        on_progress(before + place, sum(sizes))

    for file, size in zip(files, sizes, strict=True):
        for line, row in read_predictions(file, read_to):
            if problem := seen.add(row) or _problem(row.published):
                raise DatasetError(problem, file, line)
            conversation = seen.conversations[row.conversation]
            turn = conversation.turns[row.turn]
            passages = row.passages if row.passages is not None else named.get((row.conversation, row.turn))
            if documents and (strange := [name for name in passages or () if name not in documents]):
                raise DatasetError(plugins.unknown_name("document of the data set", strange[0], documents), file, line)
            yield TurnRow(
                flow=row.system,
                dataset=data.name,
                conversation=row.conversation,
                turn=row.turn,
                category=category_of(conversation, row.turn),
                epoch=row.epoch,
                take=0,
                user=turn.user,
                reply=None if row.answer is None else Reply(text=row.answer),
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


def category_of(conversation: Conversation, turn: int) -> Any:
    """A turn's own, or that of its conversation; None where neither has one."""
    return {**conversation.metadata, **conversation.turns[turn].metadata}.get("category")


def _problem(published: Mapping[str, Any]) -> str | None:
    """Why what was noted for an answer cannot be kept as numbers, if so."""
    try:
        check_depth(published, MAX_DEPTH - 1)
    except ValueError as problem:
        return f"published: {problem}"
    names = set()
    for name, value in published_numbers(published):
        if name in names:
            return f"published has two numbers that are called {name}, one of them in parts; rename one"
        if not -MAX_VALUE <= value <= MAX_VALUE:
            return f"published: {name} is beyond {MAX_VALUE:g}, so it was not measured; leave it out"
        names.add(name)
    return None


def _named(data: Dataset, home: Path) -> PassagesByTurn:
    """The documents that every system had, where a turn says so; raises DatasetError where it does not name them."""
    found = {}
    for conversation in data.conversations:
        for number, turn in enumerate(conversation.turns):
            named = turn.metadata.get("passages")
            if isinstance(named, list) and all(isinstance(name, str) and name for name in named):
                found[conversation.id, number] = named
            elif named is not None:
                problem = f"turn {number} of {conversation.id}: metadata.passages is no list of ids of documents"
                raise DatasetError(problem, data.locations.get(conversation.id, home))
    return found


def _header(path: Path, data: Dataset, spec: Spec, files: Sequence[Path]) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "sealed": True,
        "run_id": path.resolve().name,
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "spec": {**spec.model_dump(mode="json"), "mode": IMPORTED, "model": "not said"},
        "datasets": {data.name: {"sha256": data.digest, "conversations": len(data.conversations), "turns": data.turns}},
        "models": {},
        "versions": {"agentlab": __version__},
        "predictions": [file.name for file in files],
    }
