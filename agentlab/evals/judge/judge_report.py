"""How a judge stands: what it says of each flow, corrected by what people say, and whether it may decide.

standing = Standing(run, judged, grades(run, judged), read_labels(Path("labels.csv"), replies(run)))
print(standing)
"""

from __future__ import annotations

import hashlib
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
from agentlab.evals.store.judges import agreement_line, ineligibility, known_answers_line
from agentlab.evals.store.rows import StoredScore
from agentlab.evals.store.run import StoredRun


def replies(run: StoredRun) -> list[ReplyKey]:
    """Return what can be labelled: every reply of the run."""
    return [(row.flow, *row.key) for row in run.turn_rows()]


class JudgeReport:
    def __init__(
        self,
        run: StoredRun,
        judged: JudgeResult,
        grades: Mapping[ReplyKey, StoredScore],
        labels: Mapping[ReplyKey, float | None],
    ) -> None:
        self.judged = judged
        self.flows = list(run.result.flows)
        values = {reply: grade.value for reply, grade in grades.items() if grade.value is not None}
        turns = dict.fromkeys(reply[1:] for reply in grades)
        # Flows are compared on the turns where each has a score.
        self.turns = [turn for turn in turns if all((flow, *turn) in values for flow in self.flows)]
        self.turns_without_verdict = len(turns) - len(self.turns)
        if not self.turns:
            raise RunError(f"{run.path}: there is no turn on which the judge has a verdict for every flow")
        self.scores = np.array([[values[flow, *turn] for flow in self.flows] for turn in self.turns], dtype=float)
        told = [[labels.get((flow, *turn), np.nan) for flow in self.flows] for turn in self.turns]
        self.labels = np.array(told, dtype=float)
        self.conversations = [turn[0] for turn in self.turns]
        # Of empty replies nobody is asked: they are bad, and that says nothing about the judge.
        asked = {judgement.key for judgement in judged.judgements}
        self._asked = np.array([[(flow, *turn) in asked for flow in self.flows] for turn in self.turns])
        self.labels[~self._asked] = 0
        self._file = f"judges/{judged.rubric.name}-{judged.sha256[:8]}/judge.json"
        said = sorted((judgement.key, judgement.digest, judgement.verdicts) for judgement in judged.judgements)
        self._judged = hashlib.sha256(json.dumps(said).encode()).hexdigest()
        before = run.folder.read_json(self._file, "") if (run.path / self._file).exists() else {}
        # What people said before holds until they say something else, or the judge does.
        same = before.get("judged") == self._judged and before.get("agreement") is not None
        self._previous = before if same and self.agreement is None else {}

    @cached_property
    def agreement(self) -> Agreement | None:
        """None where nothing is labelled."""
        labels = np.where(self._asked, self.labels, np.nan)
        return None if np.isnan(labels).all() else agreement(self.scores, labels)

    def mean(self, flow: str) -> Estimate:
        """What people would say of the flow's replies on the whole."""
        place = self.flows.index(flow)
        settled = ~self._asked[:, place]
        scores, labels = self.scores[:, place], self.labels[:, place]
        return estimate(scores, labels, self.conversations, needs_no_label=settled).clipped(0, 1)

    def difference(self, one: str, other: str) -> Estimate:
        """How much more people would say of `other` than of `one`."""
        a, b = self.flows.index(one), self.flows.index(other)
        judged, told = self.scores[:, b] - self.scores[:, a], self.labels[:, b] - self.labels[:, a]
        settled = ~(self._asked[:, a] | self._asked[:, b])
        return estimate(judged, told, self.conversations, needs_no_label=settled).clipped(-1, 1)

    def next_to_label(self, count: int) -> list[tuple[str, int, int]]:
        """Turns (conversation, turn, epoch) to label, drawn at random from those that have no label of every reply."""
        places = np.flatnonzero(np.isnan(self.labels).any(axis=1))
        return [self.turns[place] for place in np.random.default_rng(0).permutation(places)[:count]]

    @property
    def ineligible_because(self) -> str:
        """Why the judge may not decide in a gate; empty where it may."""
        return ineligibility(asdict(self.agreement) if self.agreement else self._previous.get("agreement"))

    def save(self, run: StoredRun) -> None:
        """Write down beside the judge's calls what it is, how it took known answers, and how it agrees with people."""
        content = {
            "metric": self.judged.rubric.metric,
            "sha256": self.judged.sha256,
            "model": self.judged.model,
            "rubric": self.judged.rubric.model_dump(mode="json"),
            "known_answers": {kind: list(counts) for kind, counts in self.judged.known_answer_results.items()},
            "judged": self._judged,
            "agreement": asdict(self.agreement) if self.agreement else self._previous.get("agreement"),
            "people": self._human_estimates,
        }
        run.folder.write_json(self._file, content)

    @cached_property
    def _human_estimates(self) -> dict[str, str]:
        """What the labels make of each flow and of each difference, as far as they go."""
        if self._previous:
            return dict(self._previous["people"])
        means = {flow: _shown(self.mean(flow)) for flow in self.flows}
        pairs = itertools.combinations(self.flows, 2)
        return means | {f"{other} - {one}": _shown(self.difference(one, other), "+") for one, other in pairs}

    def __str__(self) -> str:
        judged = self.judged
        asked = f"{judged.rubric.metric} by {judged.model}: {len(judged.judgements)} replies, asked twice each"
        lines = [
            f"{asked}; the two orders disagree on {judged.order_disagreements}, "
            f"{len(judged.unparsed)} verdicts cannot be read",
            f"{known_answers_line(judged.known_answer_results)}; all of the first kind should pass, none of the others",
        ]
        if unread := next((each.error for each in judged.unparsed if each.error), ""):
            lines.append(f"not read: {unread}; judge again to ask again")
        if self.turns_without_verdict:
            lines.append(
                f"below: the {len(self.turns)} turns on which every flow has a verdict; "
                f"{self.turns_without_verdict} have not"
            )
        if self.agreement is not None:
            lines.append(agreement_line(self.agreement))
        elif self._previous:
            lines.append(f"{agreement_line(Agreement(**self._previous['agreement']))}, as --labels said before")
        else:
            lines.append("no human labels yet; `--labels FILE --suggest 20` writes replies to label")
        lines += [f"{name}: {told}" for name, told in self._human_estimates.items()]
        return "\n".join(
            [*lines, *([f"decides nothing in a gate: {self.ineligible_because}"] if self.ineligible_because else [])]
        )


def _shown(found: Estimate, sign: str = "") -> str:
    if found.interval is None:
        return f"{found.value:{sign}.3f} (the judge alone: too few labels for an interval that knows its error)"
    return f"{found.value:{sign}.3f} [{found.interval[0]:{sign}.3f}, {found.interval[1]:{sign}.3f}]"


def rows_to_label(run: StoredRun, turns: Iterable[tuple[str, int, int]]) -> list[dict[str, Any]]:
    """Return a row for each reply to these turns, for `labels.add_rows`; empty replies are bad and have none."""
    found: dict[tuple[str, int, int], list[dict[str, Any]]] = {turn: [] for turn in turns}
    for row in run.turn_rows():
        if row.key in found and row.reply is not None and row.reply.text.strip():
            asked = run.expected_turn(row.conversation, row.turn)
            references = asked.reference_answers if asked else []
            if asked and asked.unanswerable:
                references = ["it should decline"]
            told = json.dumps(references, ensure_ascii=False) if len(references) > 1 else "".join(references)
            said = {"label": "", "question": row.user, "reference": told, "reply": row.reply.text}
            found[row.key].append({**{name: getattr(row, name) for name in KEYS}, **said})
    return [*itertools.chain.from_iterable(found.values())]
