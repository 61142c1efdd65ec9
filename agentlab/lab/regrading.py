"""Grades a finished run again, without running a flow: `agentlab score RUN`, or al.score("results/first")."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agentlab.core.constants import IMPORTED
from agentlab.core.errors import RunError
from agentlab.core.scratch import process_temp_folder
from agentlab.data.datasets import Dataset, conversation_name
from agentlab.evals.grade.fingerprints import fingerprints
from agentlab.evals.grade.grader import Grader
from agentlab.evals.grade.imported import STORED, grade_rows, published_numbers, read_turns
from agentlab.evals.grade.regrade import regrade
from agentlab.evals.store.folder import lock_run_folder
from agentlab.evals.store.measures import RETRIEVAL_STEPS, check_primary
from agentlab.evals.store.rows import UNKNOWN
from agentlab.lab.lab import Lab
from agentlab.lab.run import Run, open_run

GRADING_KEYS = ("name", "datasets", "limit", "sample", "embedder", "scorers", "recordings", "also_recorded")
"""Keys of a spec that grading uses."""


def score(
    path: str | Path,
    scorers: Sequence[str] = (),
    primary: Sequence[str] = (),
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Run:
    """Grade a run again with today's graders, replace its scores and summary, and return it.

    `scorers` and `primary` name graders and primary measures (default: those of the run's spec). `on_progress` is
    called with the number of graded turns and of all turns.

    The data set may expect other answers than before, but must ask the same questions. Embeddings come from the
    recordings of the run; a live run embeds again. Raises RunError if the data set is missing or asks other questions.
    """
    run = open_run(path, regrade=True)
    header = dict(run.header)
    spec = dict(header["spec"])
    chosen: Any = list(scorers) or spec["scorers"]
    given = {key: spec[key] for key in GRADING_KEYS if spec.get(key) is not None} | {"scorers": chosen}
    with tempfile.TemporaryDirectory(dir=process_temp_folder()) as aside, lock_run_folder(run.path):
        if spec["mode"] in ("live", IMPORTED):
            # What is embedded now is no recording of the run's.
            given |= {"mode": "auto", "recordings": aside}
        else:
            given |= {"mode": "replay"}
        with Lab(None, flows=["rag_only"], model="scripted/none", **given) as lab:
            datasets = lab.bench.datasets()
            _check_questions(run, datasets)
            decides = tuple(primary) or tuple(spec.get("primary", ()))
            mend = "; --primary names others"
            check_primary(decides, lab.bench.scorers, datasets, also=_stored(run), hint=mend)
            described = {d.name: {**header["datasets"][d.name], "sha256": d.digest} for d in datasets}
            header |= {"spec": {**spec, "scorers": chosen, "primary": list(decides)}, "datasets": described}
            graders = fingerprints(lab.bench.scorers, lab.bench.embedder.name)
            # Whoever stops here leaves a run that nothing can be compared with, not one that says what is not so.
            run.folder.write_json("run.json", {**header, "graders": dict.fromkeys(graders, UNKNOWN)})
            if spec["mode"] == IMPORTED:
                grade_rows(
                    run.folder,
                    [*read_turns(run.folder)],
                    datasets[0],
                    lab.bench.scorers,
                    lambda texts: lab.loop.run_coroutine(lab.bench.embedder.embed(texts)),
                    on_progress,
                )
            else:
                missed = run.result.recordings is not None and run.result.recordings.missing > 0
                ended = missed or run.result.status == "complete"
                grader = Grader(
                    lab.bench.scorers, lab.bench.embedder.embed, run.path, embeds_at_once=lab.bench.embeds_synchronously
                )
                lab.loop.run_coroutine(regrade(run.folder, datasets, grader, complete=ended, on_progress=on_progress))
            run.folder.write_json("run.json", {**header, "graders": graders})
    return open_run(path)


def _stored(run: Run) -> list[str]:
    """The measures that the source of an import gave, by its rows: a run that was broken off has no summary."""
    named = (name for row in read_turns(run.folder) for name, _ in published_numbers(row.published or {}))
    return [RETRIEVAL_STEPS, *(STORED + name for name in dict.fromkeys(named))]


def _check_questions(run: Run, datasets: Sequence[Dataset]) -> None:
    asked = {(d.name, conversation_name(d, each, datasets)): each.turns for d in datasets for each in d.conversations}
    for row in read_turns(run.folder):
        turns = asked.get((row.dataset, row.conversation), [])
        if row.turn >= len(turns) or turns[row.turn].user != row.user:
            raise RunError(
                f"{run.path}: the data set {row.dataset} asks something else today (turn {row.turn} of"
                f" {row.conversation}), so these replies cannot be graded by it"
            )
