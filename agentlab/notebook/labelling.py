"""Label replies by hand, blind to the flow that gave them: the truth that a judge or a measure is held against.

labels = notebook.label(run)        # right, wrong, or skip; saved line by line in `labels.jsonl` of the run folder
labels.agreement("answer_f1")       # how often the measure, from .5 on right, says what you said
"""

from __future__ import annotations

import json
import random
from typing import Any

import ipywidgets

from agentlab.core.errors import RunError
from agentlab.core.files import append_whole
from agentlab.evals.results.rows import TurnRow
from agentlab.evals.results.run import Run
from agentlab.notebook.render import GREY, html_markdown, html_text

FILE = "labels.jsonl"
Key = tuple[str, str, int, int]


class Labelling(ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets has no type hints
    """The replies of a run in a random order that is always the same; those that have a label are passed over."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._file = run.path / FILE
        self.labels: dict[Key, bool] = {}
        if self._file.exists():
            for line in self._file.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                self.labels[row["flow"], row["conversation"], row["turn"], row["epoch"]] = row["right"]
        rows = [row for row in run.played() if row.reply is not None and _key(row) not in self.labels]
        random.Random(run.run_id).shuffle(rows)
        self._left: list[TurnRow] = rows
        self.right = self._button("Right", lambda: self._label(True))
        self.wrong = self._button("Wrong", lambda: self._label(False))
        self.skip = self._button("Skip", self._next)
        self.shown = ipywidgets.HTML(_dom_classes=("agentlab-labelled",))
        super().__init__([self.shown, ipywidgets.HBox([self.right, self.wrong, self.skip])])
        self._draw()

    def __repr__(self) -> str:
        return f"<Labelling: {len(self.labels)} labels, {len(self._left)} replies left>"

    def agreement(self, measure: str) -> dict[str, float | int]:
        """`n` labels that the measure has a value for, `agreement`, and Cohen's `kappa`, which is agreement beyond
        chance (Cohen, A Coefficient of Agreement for Nominal Scales, 1960); NaN where one side always says the same.

        Raises RunError where there is none.
        """
        said = {
            (row.flow, row.conversation, row.turn, row.epoch): float(row.value) >= 0.5
            for row in self.run.folder.scores()
            if row.metric == measure
        }
        pairs = [(label, said[key]) for key, label in self.labels.items() if key in said]
        if not pairs:
            raise RunError(f"{self.run.path}: no labelled turn has the measure {measure!r}")
        n = len(pairs)
        same = sum(mine == theirs for mine, theirs in pairs) / n
        mine, theirs = (sum(pair[side] for pair in pairs) / n for side in (0, 1))
        chance = mine * theirs + (1 - mine) * (1 - theirs)
        return {"n": n, "agreement": same, "kappa": (same - chance) / (1 - chance) if chance < 1 else float("nan")}

    def _button(self, name: str, does: Any) -> Any:
        button = ipywidgets.Button(description=name, layout={"width": "auto"})
        button.on_click(lambda clicked: does())
        return button

    def _label(self, right: bool) -> None:
        row = self._left[0]
        content = {
            "flow": row.flow,
            "conversation": row.conversation,
            "turn": row.turn,
            "epoch": row.epoch,
            "right": right,
        }
        append_whole(self._file, f"{json.dumps(content)}\n".encode())
        self.labels[_key(row)] = right
        self._next()

    def _next(self) -> None:
        self._left.pop(0)
        self._draw()

    def _draw(self) -> None:
        for button in (self.right, self.wrong, self.skip):
            button.disabled = not self._left
        if not self._left:
            self.shown.value = html_text(f"all done: {len(self.labels)} labels in {self._file}")
            return
        row = self._left[0]
        asked = self.run.conversations.get(row.conversation)
        expected = asked.turns[row.turn] if asked is not None else None
        reference = "it should decline" if expected is not None and expected.unanswerable else ""
        if expected is not None and expected.reference_answers:
            reference = " · or: ".join(expected.reference_answers)
        assert row.reply is not None, "only such rows are left"
        self.shown.value = (
            html_text(f"{len(self._left)} left", GREY)
            + html_text(row.user, "font-weight: 600")
            + html_markdown(row.reply.text)
            + html_text(f"reference: {reference or 'none'}", GREY)
        )


def _key(row: TurnRow) -> Key:
    return row.flow, row.conversation, row.turn, row.epoch
