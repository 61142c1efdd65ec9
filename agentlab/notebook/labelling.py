"""Label replies by hand, blind to their flow, to check a judge or a measure.

    labels = notebook.label(run, "labels.csv")      # right, wrong, or skip; each label is saved at once
    labels.agreement("answer_f1")                   # agreement of the measure with your labels

`agentlab judge --labels` reads the same file. Rows that `--suggest` added for labelling come first.
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
    """Shows the unlabelled replies of a run, in a random order that is fixed per run."""

    def __init__(self, run: Run, file: str | Path = "labels.csv") -> None:
        self.run = run
        self._file = Path(file)
        stored = read_labels(self._file, replies(run)) if self._file.exists() else {}
        self.labels: dict[ReplyKey, float] = {key: label for key, label in stored.items() if label is not None}
        suggested = stored.keys() - self.labels.keys()
        rows = rows_to_label(run, (row.key for row in run.turn_rows()))
        rows = [row for row in rows if _key(row) not in self.labels]
        random.Random(run.run_id).shuffle(rows)
        self._left = sorted(rows, key=lambda row: _key(row) not in suggested)
        self.right = button("Right", lambda: self._label(1))
        self.wrong = button("Wrong", lambda: self._label(0))
        self.skip = button("Skip", self._next)
        self.caption = html("labelled")
        super().__init__([self.caption, ipywidgets.HBox([self.right, self.wrong, self.skip])])
        self._draw()

    def __repr__(self) -> str:
        return f"<Labelling: {len(self.labels)} labels, {len(self._left)} replies left>"

    def agreement(self, measure: str) -> Agreement:
        """Return the agreement of a measure with the labels; a value of .5 or more counts as right.

        Raises RunError if no labelled turn has the measure.
        """
        values = {
            (row.flow, *row.key): float(score.value)
            for row in self.run.rows()
            if (score := (row.scores or {}).get(measure)) and score.value is not None
        }
        keys = [key for key in self.labels if key in values]
        if not keys:
            raise RunError(f"{self.run.path}: no labelled turn has the measure {measure!r}")
        scores, labels = (np.array([[numbers[key]] for key in keys]) for numbers in (values, self.labels))
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
            self.caption.value = html_text(f"all done: {len(self.labels)} labels in {self._file}")
            return
        row = self._left[0]
        self.caption.value = (
            html_text(f"{len(self._left)} left", GREY)
            + html_text(row["question"], "font-weight: 600")
            + html_markdown(row["reply"])
            + html_text(f"reference: {row['reference'] or 'none'}", GREY)
        )


def _key(row: dict[str, Any]) -> ReplyKey:
    return row["flow"], row["conversation"], row["turn"], row["epoch"]
