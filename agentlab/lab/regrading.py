"""Grades a finished run again, without running a flow: `agentlab score RUN`, or al.score("results/first")."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from agentlab.core.constants import IMPORTED
from agentlab.core.errors import RunError
from agentlab.core.scratch import process_temp_folder
from agentlab.data.datasets import Dataset, by_name, conversation_name
from agentlab.evals.grade.fingerprints import fingerprints
from agentlab.evals.grade.grader import Grader, regrade
from agentlab.evals.grade.imported import STORED, grade_rows, published_numbers, read_turns
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
    keys = {key: spec[key] for key in GRADING_KEYS if spec.get(key) is not None} | {"scorers": chosen}
    with tempfile.TemporaryDirectory(dir=process_temp_folder()) as temp_recordings, lock_run_folder(run.path):
        if spec["mode"] in ("live", IMPORTED):
            # Vectors computed now do not belong to the run's recordings.
            keys |= {"mode": "auto", "recordings": temp_recordings}
        else:
            keys |= {"mode": "replay"}
        with Lab(None, flows=["rag_only"], model="scripted/none", **keys) as lab:
            datasets = lab.bench.datasets()
            _check_questions(run, datasets)
            measures = tuple(primary) or tuple(spec.get("primary", ()))
            hint = "; name others with --primary"
            check_primary(measures, lab.bench.scorers, datasets, also=_stored_measures(run), hint=hint)
            digests = {d.name: {**header["datasets"][d.name], "sha256": d.digest} for d in datasets}
            header |= {"spec": {**spec, "scorers": chosen, "primary": list(measures)}, "datasets": digests}
            graders = fingerprints(lab.bench.scorers, lab.bench.embedder.name)
            run.folder.write_expected(by_name(datasets, datasets))
            # Unknown graders make an interrupted regrading incomparable, instead of wrong.
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
                has_misses = run.result.recordings is not None and run.result.recordings.missing > 0
                done = has_misses or run.result.status == "complete"
                grader = Grader(
                    lab.bench.scorers, lab.bench.embedder, run.path, embeds_at_once=lab.bench.embeds_synchronously
                )
                lab.loop.run_coroutine(regrade(run.folder, datasets, grader, complete=done, on_progress=on_progress))
            run.folder.write_json("run.json", {**header, "graders": graders})
    return open_run(path)


def _stored_measures(run: Run) -> list[str]:
    """Return the measures in the rows of an import; the summary may be missing after an interruption."""
    names = (name for row in read_turns(run.folder) for name, _ in published_numbers(row.published or {}))
    return [RETRIEVAL_STEPS, *(STORED + name for name in dict.fromkeys(names))]


def _check_questions(run: Run, datasets: Sequence[Dataset]) -> None:
    by_name = {(d.name, conversation_name(d, each, datasets)): each.turns for d in datasets for each in d.conversations}
    for row in read_turns(run.folder):
        turns = by_name.get((row.dataset, row.conversation), [])
        if row.turn >= len(turns) or turns[row.turn].user != row.user:
            raise RunError(
                f"{run.path}: the data set {row.dataset} has another question now (turn {row.turn + 1} of"
                f" {row.conversation}), so it cannot grade these replies; restore the data set or run it again"
            )
