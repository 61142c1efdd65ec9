"""The gate that looks on while flows are run, and stops the run when it knows.

    stopping = Stopping("evals/baselines/laws.jsonl", margins={"answer_f1": 0.1})
    run = await runner.run(bench, watch=stopping)
    verdict = stopping.verdict(run)

Conversations come in an order drawn from a seed. Of what decides, each is asked three things, by `sequential`: at the
planned looks whether anything is worse, and after every conversation whether a loss beyond the margin is excluded. A
regression stops the run, and so does a pass of all.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from agentlab.core.errors import RunError
from agentlab.core.trace import add_up
from agentlab.evals.compare import gate
from agentlab.evals.compare.baselines import read_baseline
from agentlab.evals.compare.family import Outcome, constant_p
from agentlab.evals.compare.gate import Verdict, check_arguments, members_of, share_of, worst_first
from agentlab.evals.compare.judgement import Judgement
from agentlab.evals.compare.paired import Paired
from agentlab.evals.stats.sequential import SEED, alarms, bound, evidence, planned_looks
from agentlab.evals.store.measures import (
    COSTS,
    LATENCY,
    Key,
    Values,
    measure,
    measured,
    seconds_agree,
    turn_name,
)
from agentlab.evals.store.run import Run

LOOKS = 8


class _Column:
    """A measure of a flow that decides: of each conversation so far what it lost, summed over its turns."""

    def __init__(self, flow: str, name: str, rows: Mapping[Key, Values], share: float) -> None:
        self.flow, self.measure = flow, measure(name)
        self.baseline: defaultdict[str, dict[Key, float]] = defaultdict(dict)
        for key, row in rows.items():
            if name in row:
                self.baseline[key[0]][key] = float(row[name] or 0.0)
        held = [value for part in self.baseline.values() for value in part.values()]
        mean = sum(held) / len(held)
        cost = self.measure in COSTS
        self.margin = share * mean if cost else share
        self.widest = max(map(len, self.baseline.values()))
        self._low, self._high = min(0.0, *held), max(1.0, *held)
        self._largest = max(sum(part.values()) / len(part) for part in self.baseline.values())
        self._unbounded = cost and name != "failed"
        self.sums: list[float] = []
        self.counts: list[int] = []
        self.losses: set[float] = set()
        """Of turns, each value once."""
        self.known = True

    @property
    def reach(self) -> float:
        """The most that a turn is taken to lose.

        Of a cost what the dearest conversation of the baseline takes, or the most that one was seen to lose; twice the
        mean, as of `Paired`, is too little where it is looked at again and again.
        """
        return self._largest if self._unbounded else self._high - self._low

    def fold(self, conversation: str, rows: Mapping[Key, Values]) -> None:
        """Raises RunError where a turn of the baseline was not played, or not scored."""
        held, lost = self.baseline.get(conversation, {}), 0.0
        for key, before in held.items():
            if self.measure.name not in rows.get(key, {}):
                raise RunError(f"{turn_name(key)} of {self.flow} has {self.measure.name} in the baseline only")
            value = rows[key][self.measure.name]
            if value is None:
                self.known = False
                continue
            self._low, self._high = min(self._low, value), max(self._high, value)
            loss = round(value - before if self.measure.better == "lower" else before - value, 12)
            self.losses.add(loss)
            lost += loss
        self.sums.append(lost)
        self.counts.append(len(held))
        if held:
            self._largest = max(self._largest, lost / len(held))

    def excludes_a_loss(self, alpha: float) -> bool:
        sums, counts = np.array(self.sums), np.array(self.counts)
        # Equal everywhere in a baseline of nothing but zeros: there is no margin to stay within.
        if self.reach == 0:
            return self.known and not sums.any()
        margin = self.margin + 1e-12 * max(1.0, self.margin)
        return self.known and evidence(sums, counts, margin, self.reach, self.widest) >= 1 / alpha


def bound_at_all_times(column: _Column, order: np.ndarray, paired: Paired, sign: float, alpha: float) -> float | None:
    """As `judgement.bound_of_all`, holding at all times together; `order`: the conversations as they were folded."""
    if not len(paired.losses) or paired.conversations < 2:
        return float(paired.losses.mean()) if len(paired.losses) else None
    reach = max(paired.reach[sign < 0], column.reach)
    return sign * bound(sign * paired.sums[order], paired.counts[order], reach, column.widest, alpha)


class Stopping:
    """The gate of a run that goes on; a `Watch`.

    `margins` and `alpha` as of `gate`; `looks`: how often the alarm is looked for. Raises RunError where the baseline
    cannot be read or an argument is none.
    """

    def __init__(
        self,
        baseline: str | Path,
        *,
        margins: Mapping[str, float] | None = None,
        alpha: float = 0.05,
        looks: int = LOOKS,
    ) -> None:
        self._path = Path(baseline)
        self._header, self._held = read_baseline(self._path)
        self._margins, self._alpha = dict(margins or {}), alpha
        check_arguments(self._held, self._margins, alpha)
        if looks < 1:
            raise RunError(f"looks is {looks}; it must be 1 or more")
        names = sorted({key[0] for rows in self._held.values() for key in rows})
        self.order: Sequence[str] = random.Random(SEED).sample(names, len(names))
        self._looks = planned_looks(len(names), looks, alpha)
        self._folded: list[str] = []
        self._alarmed = False
        self._passed = False

    @property
    def epochs(self) -> int:
        """Of the baseline."""
        return 1 + max(key[2] for rows in self._held.values() for key in rows)

    @property
    def plan(self) -> dict[str, Any]:
        return {
            "baseline": hashlib.sha256(self._path.read_bytes()).hexdigest(),
            "alpha": self._alpha,
            "margins": {name: repr(margin) for name, margin in sorted(self._margins.items())},
            "looks": self._looks,
            "order": self.order,
        }

    def expect(self, mine: Mapping[str, Any], declared: Sequence[str], flows: Sequence[str], mode: str) -> None:
        """Check, before it begins, that a run can be held against the baseline; raises RunError where it cannot.

        `mine` as of `graders.check_comparable`, `declared` the spec's primary measures.
        """
        gate.check_sides(str(self._path), self._header, mine, declared, flows, self._held)
        self._primary, self._failures = gate.who_decides(self._header, self._held, declared)
        self._seconds = seconds_agree(mode, self._header.mode)
        self._columns = []
        for flow, rows in self._held.items():
            for name in (*self._primary, *self._failures):
                given = [row[name] for row in rows.values() if name in row]
                out = math.isinf(share_of(name, self._margins)) or (name == LATENCY and not self._seconds)
                if given and None not in given and not out:
                    self._columns.append(_Column(flow, name, rows, share_of(name, self._margins)))
        if not any(column.measure.name in self._primary for column in self._columns):
            raise RunError(f"nothing is left that decides: {', '.join(self._primary)} are left out, unknown or live")

    def fold(self, conversation: str, flows: Mapping[str, Mapping[Key, Values]]) -> bool:
        """Of the run's next conversation; True where the verdict is in."""
        self._folded.append(conversation)
        for column in self._columns:
            column.fold(conversation, flows.get(column.flow, {}))
        self._alarmed = bool((self._alarm_p() < self._alpha).any()) if self._looked else False
        decide = [column for column in self._columns if column.measure.name in self._deciding]
        self._passed = all(column.excludes_a_loss(self._alpha) for column in decide)
        return self._alarmed or self._passed or len(self._folded) == len(self.order)

    @property
    def _deciding(self) -> tuple[str, ...]:
        failed = any(any(column.sums) for column in self._columns if column.measure.name in self._failures)
        return self._primary + self._failures if failed else self._primary

    @property
    def _looked(self) -> bool:
        return len(self._folded) in self._looks

    def _alarm_p(self) -> np.ndarray:
        """Of each column that decides, for all of them and all looks; 1 where no alarm is raised before the end."""
        known = np.array([column.known for column in self._columns])
        sums = np.column_stack([column.sums for column in self._columns]) * known
        constant = [column.known and len(column.losses) == 1 and min(column.losses) > 0 for column in self._columns]
        return self._p(sums, np.array(constant))

    def _p(self, sums: np.ndarray, constant: np.ndarray) -> np.ndarray:
        """`constant`: whether a column lost the same on every turn, of which there is a test of its own.

        What is constant at a look was so at all before, so that test is spent once.
        """
        certain = np.where(constant, sums.any(axis=0).sum() * constant_p(len(sums)), 1.0)
        looks = [look for look in self._looks if look < len(sums)] + [len(sums)]
        *_, (p, raised) = alarms(sums, looks, len(self.order), self._alpha)
        signs = p if raised or len(sums) == len(self.order) else np.ones(len(p))
        return np.minimum(certain, signs)

    def verdict(self, run: Run) -> Verdict:
        """Of the conversations that were folded; raises RunError where a replay lacked recordings."""
        if run.result.recordings and run.result.recordings.missing:
            run.check_complete()
        if not self._folded:
            raise RunError(f"{run.path}: the run ended before its first conversation did; --resume goes on")
        place = {name: number for number, name in enumerate(sorted(self._folded))}
        order = np.array([place[name] for name in self._folded])
        held = {flow: {k: row for k, row in rows.items() if k[0] in place} for flow, rows in self._held.items()}
        held = {flow: rows for flow, rows in held.items() if rows}
        measures, decide = measured(run), self._deciding
        members, unknown = members_of(held, measures, self._margins, decide, seconds_decide=self._seconds)
        cut = not (self._alarmed or self._passed or len(self._folded) == len(self.order))
        judged = []
        for advises in {member.advises for member in members}:
            own = [m for m in members if m.advises == advises]
            sums = [m.paired.sums[order] if len(m.paired.differences) else np.zeros(len(order)) for m in own]
            looked = self._looked or advises
            constant = np.array([m.paired.constant and m.paired.losses[0] > 0 for m in own])
            found = self._p(np.column_stack(sums), constant) if looked else np.ones(len(own))
            for member, value in zip(own, found.tolist(), strict=True):
                name, outcome = member.paired.measure.name, Outcome(None, value, len(own))
                share = share_of(name, self._margins)
                column = _Column(member.flow, name, self._held[member.flow], share)
                judged.append(
                    Judgement(
                        flow=member.flow,
                        paired=member.paired,
                        outcome=outcome,
                        alpha=self._alpha,
                        share=share,
                        advises=member.advises,
                        bounds=partial(bound_at_all_times, column, order),
                        is_cut=cut,
                    )
                )
        notes = [f"unknown in the baseline, so not gated: {', '.join(unknown)}"] if unknown else []
        if run.result.model != self._header.model:
            notes.append(f"the baseline was made with {self._header.model}, the run with {run.result.model}")
        return Verdict(
            run_id=run.run_id,
            baseline_id=self._header.run_id,
            alpha=self._alpha,
            primary=decide,
            judged=tuple(sorted(judged, key=worst_first)),
            notes=tuple(notes),
            stopped=self._told(cut, run),
        )

    def _told(self, cut: bool, run: Run) -> str:
        """How far the run went, and what was not played, by the baseline's figures."""
        count, many = len(self.order), f"{len(self._folded)} of {len(self.order)} conversations"
        done = sum(look <= len(self._folded) for look in self._looks)
        looks = f"alarm looked for {done} of {len(self._looks)} times"
        if cut:
            return f"cut short after {many}, {looks}: no verdict yet, --resume goes on"
        played = {(*row.play, row.turn) for row in run.played()}
        left = [
            row
            for flow, rows in self._held.items()
            for key, row in rows.items()
            if (flow, key[0], key[2], key[1]) not in played
        ]
        if not left:
            return f"all {count} conversations were played, {looks}; nothing was saved"
        calls, seconds, usd = (add_up(row.get(name) for row in left) for name in ("llm_calls", "latency_s", "cost_usd"))
        parts = [f"{calls:.0f} model calls"] if calls is not None else []
        parts += [f"{seconds / 60:.1f} min of them"] if seconds else []
        parts += [f"${usd:.2f}"] if usd else []
        free = " (a replay pays for none)" if run.result.mode == "replay" else ""
        saved = count - len(self._folded)
        return (
            f"stopped after {many}, {looks}; saved {saved} conversations, {', '.join(parts)} by the baseline's figures"
            + free
        )
