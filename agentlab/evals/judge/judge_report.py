"""Report on a judge: its mean for each flow, corrected by human labels, and its eligibility as a primary measure.

report = JudgeReport(run, result, judge_scores(run, result), read_labels(Path("labels.csv"), replies(run)))
print(report)
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cached_property
from typing import Any

import numpy as np

from agentlab.core.errors import RunError
from agentlab.evals.judge.judging import JudgeResult
from agentlab.evals.judge.labels import KEYS, ReplyKey
from agentlab.evals.stats.agreement import Agreement, Estimate, agreement, estimate
from agentlab.evals.store.rows import StoredScore
from agentlab.evals.store.run import MIN_LABELS, StoredRun, agreement_line, known_answers_line


def replies(run: StoredRun) -> list[ReplyKey]:
    """Return the keys of all replies of the run; each can be labelled."""
    return [(row.flow, *row.key) for row in run.turn_rows()]


class JudgeReport:
    """Agreement of a judge with human labels, and estimates for each flow; `str()` gives it as lines."""

    def __init__(
        self,
        run: StoredRun,
        result: JudgeResult,
        scores: Mapping[ReplyKey, StoredScore],
        labels: Mapping[ReplyKey, float | None],
    ) -> None:
        self.result = result
        self._file = f"judges/{result.rubric.name}-{result.sha256[:8]}/judge.json"
        before = run.folder.read_json(self._file, "") if (run.path / self._file).exists() else {}
        # Labels hold until there are others.
        self._are_earlier = not labels and bool(before.get("labels"))
        labels = labels or {(flow, name, turn, epoch): v for flow, name, turn, epoch, v in before.get("labels", ())}
        self._given = [[*reply, value] for reply, value in labels.items() if value is not None]
        self.flows = list(run.result.flows)
        self.needed = int(run.header["spec"].get("labels", MIN_LABELS))
        values = {reply: score.value for reply, score in scores.items() if score.value is not None}
        turns = dict.fromkeys(reply[1:] for reply in scores)
        # Flows are compared on the turns where each has a score.
        self.turns = [turn for turn in turns if all((flow, *turn) in values for flow in self.flows)]
        self.turns_without_verdict = len(turns) - len(self.turns)
        if not self.turns:
            raise RunError(f"{run.path}: there is no turn on which the judge has a verdict for every flow")
        self.scores = np.array([[values[flow, *turn] for flow in self.flows] for turn in self.turns], dtype=float)
        rows = [[labels.get((flow, *turn), np.nan) for flow in self.flows] for turn in self.turns]
        self.labels = np.array(rows, dtype=float)
        self.conversations = [turn[0] for turn in self.turns]
        # Empty replies are bad without a judgement, and do not count for the judge's agreement.
        keys = {judgement.key for judgement in result.judgements}
        self._has_judgement = np.array([[(flow, *turn) in keys for flow in self.flows] for turn in self.turns])
        self.labels[~self._has_judgement] = 0

    @cached_property
    def agreement(self) -> Agreement | None:
        """Return the agreement with human labels; None without labels."""
        labels = np.where(self._has_judgement, self.labels, np.nan)
        return None if np.isnan(labels).all() else agreement(self.scores, labels)

    def mean(self, flow: str) -> Estimate:
        """Return the estimated mean human label of the flow's replies."""
        column = self.flows.index(flow)
        scores, labels, certain = self.scores[:, column], self.labels[:, column], ~self._has_judgement[:, column]
        return estimate(scores, labels, self.conversations, needs_no_label=certain).clipped(0, 1)

    def difference(self, one: str, other: str) -> Estimate:
        """Return the estimated difference of the mean human labels, `other` minus `one`."""
        a, b = self.flows.index(one), self.flows.index(other)
        scores, labels = self.scores[:, b] - self.scores[:, a], self.labels[:, b] - self.labels[:, a]
        certain = ~(self._has_judgement[:, a] | self._has_judgement[:, b])
        return estimate(scores, labels, self.conversations, needs_no_label=certain).clipped(-1, 1)

    def next_to_label(self, count: int) -> list[tuple[str, int, int]]:
        """Return up to `count` turns (conversation, turn, epoch) that lack a label, drawn at random."""
        unlabelled = np.flatnonzero(np.isnan(self.labels).any(axis=1))
        return [self.turns[index] for index in np.random.default_rng(0).permutation(unlabelled)[:count]]

    @property
    def primary_labels(self) -> dict[ReplyKey, float]:
        """Labels of the turns with a label for every flow, by reply; empty below the number that the spec fixes."""
        rows = np.flatnonzero(~np.isnan(self.labels).any(axis=1) & self._has_judgement.any(axis=1)).tolist()
        self.labelled, columns = len(rows), [*enumerate(self.flows)]
        if self.labelled < self.needed:
            return {}
        return {(flow, *self.turns[row]): float(self.labels[row, column]) for row in rows for column, flow in columns}

    def save(self, run: StoredRun) -> None:
        """Write the judge, its results on known answers and its agreement with human labels next to its calls."""
        content = {
            "metric": self.result.rubric.metric,
            "sha256": self.result.sha256,
            "model": self.result.model,
            "rubric": self.result.rubric.model_dump(mode="json"),
            "known_answers": {kind: list(counts) for kind, counts in self.result.known_answer_results.items()},
            "labels": self._given,
            "agreement": asdict(self.agreement) if self.agreement else None,
            "people": self._human_estimates,
        }
        run.folder.write_json(self._file, content)

    @cached_property
    def _human_estimates(self) -> dict[str, str]:
        """Return the estimate of each flow and of each difference as text."""
        means = {flow: _format(self.mean(flow)) for flow in self.flows}
        pairs = itertools.combinations(self.flows, 2)
        return means | {f"{other} - {one}": _format(self.difference(one, other), "+") for one, other in pairs}

    def __str__(self) -> str:
        result = self.result
        title = f"{result.rubric.metric} by {result.model}: {len(result.judgements)} replies, each judged in two orders"
        lines = [
            f"{title}; the orders disagree on {result.order_disagreements}; {len(result.unparsed)} without a verdict",
            f"{known_answers_line(result.known_answer_results)}; only the first kind should pass",
        ]
        if unread := next((each.error for each in result.unparsed if each.error), ""):
            lines.append(f"not read: {unread}; run `agentlab judge` again to repeat these calls")
        if self.turns_without_verdict:
            lines.append(
                f"below: the {len(self.turns)} turns with a verdict for every flow; "
                f"{self.turns_without_verdict} turns are left out"
            )
        if self.agreement is not None:
            lines.append(agreement_line(self.agreement) + ", from earlier labels" * self._are_earlier)
        else:
            lines.append("no human labels yet; `--labels FILE --suggest 20` writes replies to label")
        lines += [f"{name}: {estimate}" for name, estimate in self._human_estimates.items()]
        if self.primary_labels:
            lines.append(f"decides, if it is primary, by the difference that {self.labelled} labelled turns correct")
        else:
            lines.append(f"secondary only: {self.labelled} of {self.needed} turns have a label for every flow")
        return "\n".join(lines)


def _format(value: Estimate, sign: str = "") -> str:
    if value.interval is None:
        return f"{value.value:{sign}.3f} (judge alone; too few labels for an interval)"
    return f"{value.value:{sign}.3f} [{value.interval[0]:{sign}.3f}, {value.interval[1]:{sign}.3f}]"


def rows_to_label(run: StoredRun, turns: Iterable[tuple[str, int, int]]) -> list[dict[str, Any]]:
    """Return a row for each reply to these turns, for `labels.add_rows`, without empty replies: they need no label."""
    rows: dict[tuple[str, int, int], list[dict[str, Any]]] = {turn: [] for turn in turns}
    for row in run.turn_rows():
        if row.key in rows and row.reply is not None and row.reply.text.strip():
            turn = run.expected_turn(row.conversation, row.turn)
            references = turn.reference_answers if turn else []
            if turn and turn.unanswerable:
                references = ["it should decline"]
            reference = json.dumps(references, ensure_ascii=False) if len(references) > 1 else "".join(references)
            texts = {"label": "", "question": row.user, "reference": reference, "reply": row.reply.text}
            rows[row.key].append({**{name: getattr(row, name) for name in KEYS}, **texts})
    return [*itertools.chain.from_iterable(rows.values())]
