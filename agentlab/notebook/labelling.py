"""Label replies by hand, blind to the flow that gave them: the truth that a judge or a measure is held against.

    labels = notebook.label(run, "labels.csv")      # right, wrong, or skip; each label is saved at once
    labels.agreement("answer_f1")                   # how well the measure agrees with you

The file is the one that `agentlab judge --labels` reads; rows that `--suggest` wrote there to be labelled come first.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import ipywidgets
import numpy as np

from agentlab.core.errors import RunError
from agentlab.evals.judge.judge_report import replies, rows_to_label
from agentlab.evals.judge.labels import ReplyKey, read_labels, set_label
from agentlab.evals.stats.agreement import Agreement, agreement
from agentlab.lab.run import Run
from agentlab.notebook.controls import button, html
from agentlab.notebook.render import GREY, html_markdown, html_text


class Labelling(ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets has no type hints
    """The replies of a run in a random order that is always the same; those that have a label are passed over."""

    def __init__(self, run: Run, file: str | Path = "labels.csv") -> None:
        self.run = run
        self._file = Path(file)
        written = read_labels(self._file, replies(run)) if self._file.exists() else {}
        self.labels: dict[ReplyKey, float] = {key: label for key, label in written.items() if label is not None}
        waiting = written.keys() - self.labels.keys()
        rows = rows_to_label(run, (row.key for row in run.turn_rows()))
        rows = [row for row in rows if _key(row) not in self.labels]
        random.Random(run.run_id).shuffle(rows)
        self._left = sorted(rows, key=lambda row: _key(row) not in waiting)
        self.right = button("Right", lambda: self._label(1))
        self.wrong = button("Wrong", lambda: self._label(0))
        self.skip = button("Skip", self._next)
        self.shown = html("labelled")
        super().__init__([self.shown, ipywidgets.HBox([self.right, self.wrong, self.skip])])
        self._draw()

    def __repr__(self) -> str:
        return f"<Labelling: {len(self.labels)} labels, {len(self._left)} replies left>"

    def agreement(self, measure: str) -> Agreement:
        """How a measure of the run agrees with the labels, from .5 on good; raises RunError where none can be held."""
        said = {
            (row.flow, *row.key): float(score.value)
            for row in self.run.rows()
            if (score := (row.scores or {}).get(measure)) and score.value is not None
        }
        both = [key for key in self.labels if key in said]
        if not both:
            raise RunError(f"{self.run.path}: no labelled turn has the measure {measure!r}")
        scores, labels = (np.array([[given[key]] for key in both]) for given in (said, self.labels))
        return agreement(scores, labels)

    def _label(self, label: int) -> None:
        row = self._left[0]
        set_label(self._file, {**row, "label": label})
        self.labels[_key(row)] = float(label)
        self._next()

    def _next(self) -> None:
        self._left.pop(0)
        self._draw()

    def _draw(self) -> None:
        for choice in (self.right, self.wrong, self.skip):
            choice.disabled = not self._left
        if not self._left:
            self.shown.value = html_text(f"all done: {len(self.labels)} labels in {self._file}")
            return
        row = self._left[0]
        self.shown.value = (
            html_text(f"{len(self._left)} left", GREY)
            + html_text(row["question"], "font-weight: 600")
            + html_markdown(row["reply"])
            + html_text(f"reference: {row['reference'] or 'none'}", GREY)
        )


def _key(row: dict[str, Any]) -> ReplyKey:
    return row["flow"], row["conversation"], row["turn"], row["epoch"]
