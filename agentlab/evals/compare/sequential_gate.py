"""Gate that tests during a run, and stops the run once it has a verdict.

    gate = SequentialGate("evals/baselines/laws.jsonl", mine, declared, flows, mode, margins={"answer_f1": 0.1})
    run = await runner.run(bench, observer=gate)
    verdict = gate.verdict(run)

It is the gate on the conversations so far, with tests that may be repeated (`stats.sequential`). A seed determines the
order of the conversations. The test for a regression runs at the planned looks. The test that excludes a loss beyond
the margin runs after every conversation. A regression stops the run, and so does a pass of all primary measures.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from agentlab.core.errors import RunError
from agentlab.core.trace import exact_sum
from agentlab.evals.compare import gate
from agentlab.evals.compare.baselines import mean_over_epochs, open_baseline
from agentlab.evals.compare.family import MeasureOutcome, constant_shift_p_value
from agentlab.evals.compare.gate import GatedMeasure, GateVerdict
from agentlab.evals.compare.measure_verdict import MeasureVerdict
from agentlab.evals.compare.paired import PairedMeasure
from agentlab.evals.stats.sequential import SEED, alarms, anytime_upper_bound, planned_looks
from agentlab.evals.store.measures import TurnKey, Values, latency_is_comparable, turn_name
from agentlab.evals.store.run import StoredRun

LOOKS = 8


def anytime_bound(
    whole: PairedMeasure, order: np.ndarray, paired: PairedMeasure, sign: float, alpha: float
) -> float | None:
    """Return a bound like `measure_verdict.bound_of_all` that holds at all looks; None if the loss has no limit.

    `whole` is the whole baseline, which limits losses and lengths. `order` sorts conversations in the order of the run.
    """
    if not len(paired.losses):
        return None
    reach = max(paired.max_change[sign < 0], whole.max_change[sign < 0])
    if math.isinf(reach):
        return None
    sums, counts = paired.worst_case(sign)
    return sign * anytime_upper_bound(sums[order], counts[order], reach, max(whole.counts.max(), counts.max()), alpha)


class SequentialGate:
    """Gate of a running run; a `RunObserver`.

    `mine` is as in `check_comparable`. `declared`, `flows` and `mode` are the primary measures, flows and mode of the
    run. `margins` and `alpha` are as in `gate`; `looks` is the number of looks for an alarm. Raises RunError if the
    baseline cannot be read or compared with the run, or an argument is invalid.
    """

    def __init__(
        self,
        baseline: str | Path,
        mine: Mapping[str, Any],
        declared: Sequence[str],
        flows: Sequence[str],
        mode: str,
        *,
        margins: Mapping[str, float] | None = None,
        alpha: float = 0.05,
        looks: int = LOOKS,
    ) -> None:
        self._baseline = open_baseline(baseline)
        header, turns = self._baseline.header, self._baseline.turns
        self._declared, self._margins, self._alpha = declared, dict(margins or {}), alpha
        gate.check_arguments(turns, self._margins, alpha)
        if looks < 1:
            raise RunError(f"looks is {looks}; it must be 1 or more")
        names = sorted({key[0] for rows in turns.values() for key in rows})
        self.order: Sequence[str] = random.Random(SEED).sample(names, len(names))
        self._looks = planned_looks(len(names), looks, alpha / header.gates)
        gate.check_gate_inputs(str(baseline), header, mine, declared, flows, turns)
        self._options = {"latency_is_primary": latency_is_comparable(mode, header.mode), "stops": mine["stops"]}
        primary = gate.primary_measures(header, turns, declared, turns)
        members, _ = gate.gated_measures(turns, turns, self._margins, primary, **self._options)
        self._whole = {member.name: member.paired for member in members}
        self._primary = {member.name for member in members if not member.secondary_reason}
        self._folded: list[str] = []
        self._played: dict[str, dict[TurnKey, Values]] = {flow: {} for flow in turns}
        self._is_decided = False

    @property
    def plan(self) -> dict[str, Any]:
        return {
            "baseline": hashlib.sha256(self._baseline.path.read_bytes()).hexdigest(),
            "alpha": self._alpha,
            "gates": self._baseline.header.gates,
            "margins": {name: repr(margin) for name, margin in sorted(self._margins.items())},
            "looks": self._looks,
            "order": self.order,
        }

    @property
    def _ended_early(self) -> bool:
        return not self._is_decided and len(self._folded) < len(self.order)

    @property
    def _so_far(self) -> dict[str, dict[TurnKey, Values]]:
        """Turns of the baseline in the conversations so far, without flows that have none."""
        names = {*self._folded}
        turns = {
            flow: {k: row for k, row in rows.items() if k[0] in names} for flow, rows in self._baseline.turns.items()
        }
        return {flow: rows for flow, rows in turns.items() if rows}

    def observe(self, conversation: str, flows: Mapping[str, Mapping[TurnKey, Values]]) -> bool:
        """Add the next conversation of the run; return True once there is a verdict."""
        self._folded.append(conversation)
        for flow, rows in mean_over_epochs(flows).items():
            self._played.setdefault(flow, {}).update(rows)
        turns, played = self._so_far, self._played
        for flow, rows in turns.items():
            for key in sorted(rows.keys() - played[flow]):
                raise RunError(f"{turn_name(key)} of {flow} is in the baseline only")
        primary = gate.primary_measures(self._baseline.header, self._baseline.turns, self._declared, played)
        members, _ = gate.gated_measures(turns, played, self._margins, primary, **self._options, only_primary=True)
        members = [member for member in members if not member.secondary_reason]
        verdicts = self._evaluate(members)
        alarm = any((each.p_adjusted or 0.0) < self._alpha for each in verdicts)
        passes = self._primary <= {member.name for member in members}
        self._is_decided = alarm or (passes and all(each.kind in ("pass", "unchanged") for each in verdicts))
        return not self._ended_early

    def _evaluate(self, members: Sequence[GatedMeasure]) -> list[MeasureVerdict]:
        """Return the verdicts on the conversations so far; primary and secondary measures are two families."""
        order, verdicts = np.argsort(np.argsort(self._folded)), []
        members = [member for member in members if member.name in self._whole]
        for reason in dict.fromkeys(member.secondary_reason for member in members):
            own = [member for member in members if member.secondary_reason == reason]
            outcomes = self._outcomes([member.paired for member in own], order, primary=not reason)
            for member, outcome in zip(own, outcomes, strict=True):
                bounds = partial(anytime_bound, self._whole[member.name], order)
                more = {"bounds": bounds, "ended_early": self._ended_early}
                verdicts.append(member.evaluate(outcome, self._margins, self._alpha, **more))
        return verdicts

    def _outcomes(self, members: Sequence[PairedMeasure], order: np.ndarray, *, primary: bool) -> list[MeasureOutcome]:
        """Return outcomes with p-values for all members and all looks; 1 without an alarm, or between looks.

        A constant loss has its own test. A loss that is constant at a look was constant at all earlier looks, so this
        test spends its alpha once.
        """
        count, gates = len(self._folded), self._baseline.header.gates
        if primary and count not in self._looks:
            return [MeasureOutcome(None, 1.0, len(members))] * len(members)
        sums = np.column_stack([m.sums[order] if len(m.differences) else np.zeros(count) for m in members])
        constant = np.array([len(m.differences) > 0 and np.ptp(m.losses) == 0 < m.losses[0] for m in members])
        certain = np.where(constant, sums.any(axis=0).sum() * constant_shift_p_value(count), 1.0)
        looks = [look for look in self._looks if look < count] + [count]
        *_, (p, raised) = alarms(sums, looks, len(self.order), self._alpha / gates)
        signs = p if raised or count == len(self.order) else np.ones(len(p))
        outcomes = [MeasureOutcome(None, value, len(members)) for value in np.minimum(certain, signs).tolist()]
        return [outcome.shared_by(gates) for outcome in outcomes]

    def verdict(self, run: StoredRun) -> GateVerdict:
        """Return the verdict on the conversations so far; raises RunError if a replay lacks recordings."""
        if run.result.recordings and run.result.recordings.missing:
            run.check_complete()
        if not self._folded:
            raise RunError(f"{run.path}: the run ended before its first conversation; continue it with --resume")
        turns, flows = self._so_far, mean_over_epochs(run.turn_values)
        primary = gate.primary_measures(self._baseline.header, self._baseline.turns, self._declared, self._played)
        members, unknown = gate.gated_measures(turns, flows, self._margins, primary, **self._options)
        verdicts, notes = gate.with_notes(self._evaluate(members), unknown, primary)
        if run.result.model != self._baseline.header.model:
            notes += (f"the baseline was made with {self._baseline.header.model}, the run with {run.result.model}",)
        more = {"alpha": self._alpha, "notes": notes, "stopped": self._progress_note(run)}
        return gate.make_verdict(run, self._baseline, primary, verdicts, **more)

    def _progress_note(self, run: StoredRun) -> str:
        """Return how far the run got, and what it saved by the baseline's figures."""
        count, many = len(self.order), f"{len(self._folded)} of {len(self.order)} conversations"
        done = sum(look <= len(self._folded) for look in self._looks)
        looks = f"alarm looked for {done} of {len(self._looks)} times"
        if self._ended_early:
            return f"cut short after {many}, {looks}: no verdict yet, --resume continues"
        played = {(row.flow, row.key) for row in run.turn_rows()}
        recorded = ((flow, key, row) for flow, rows in self._baseline.turns.items() for key, row in rows.items())
        left = [row for flow, key, row in recorded if (flow, key) not in played]
        if not left:
            return f"all {count} conversations were played, {looks}; nothing was saved"
        calls, seconds, usd = (
            exact_sum(row.get(name) for row in left) for name in ("llm_calls", "latency_s", "cost_usd")
        )
        parts = [f"{calls:.0f} model calls"] if calls is not None else []
        parts += [f"{seconds / 60:.1f} min of them"] if seconds else []
        parts += [f"${usd:.2f}"] if usd else []
        free = " (a replay pays for none)" if run.result.mode == "replay" else ""
        saved = ", ".join([f"{count - len(self._folded)} conversations", *parts])
        return f"stopped after {many}, {looks}; saved {saved} by the baseline's figures{free}"
