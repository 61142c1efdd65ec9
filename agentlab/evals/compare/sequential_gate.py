"""Gate that tests during a run, and stops the run once it has a verdict.

    gate = SequentialGate("evals/baselines/laws.jsonl", mine, declared, flows, mode, margins={"answer_f1": 0.1})
    run = await runner.run(bench, observer=gate)
    verdict = gate.verdict(run)

A seed determines the order of the conversations. `stats.sequential` tests the primary measures: at the planned looks if
anything is worse, and after every conversation if a loss beyond the margin is excluded. A regression stops the run, and
so does a pass of all primary measures.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from agentlab.core.errors import RunError
from agentlab.core.trace import exact_sum
from agentlab.evals.compare import gate
from agentlab.evals.compare.baselines import BaselineHeader, mean_over_epochs, read_baseline
from agentlab.evals.compare.family import MeasureOutcome, constant_shift_p_value
from agentlab.evals.compare.gate import GatedMeasure, GateVerdict, check_arguments, relative_margin
from agentlab.evals.compare.judgement import Judgement
from agentlab.evals.compare.paired import PairedMeasure, TurnTable, make_turn_tables, pair_measure
from agentlab.evals.stats.sequential import SEED, alarms, anytime_upper_bound, e_value_against_margin, planned_looks
from agentlab.evals.store.measures import COSTS, LATENCY, TurnKey, Values, latency_is_comparable, turn_name
from agentlab.evals.store.run import StoredRun

LOOKS = 8


class Baseline(NamedTuple):
    path: Path
    header: BaselineHeader
    recorded: dict[str, dict[TurnKey, Values]]
    """Turns of each flow."""
    turns: dict[str, dict[TurnKey, Values]]
    """Turns of each flow, as means over their epochs."""


class _LossSeries:
    """Primary measure of a flow: figures of its whole baseline, and its conversations so far."""

    def __init__(
        self, flow: str, name: str, rows: Mapping[TurnKey, Values], margin: float, stops: Mapping[str, float]
    ) -> None:
        (sheet,) = make_turn_tables([rows])
        whole = pair_measure(name, sheet, sheet, stops)
        mean, counts = whole.means[0] or 0.0, np.maximum(whole.counts, 1)
        self.flow, self.measure = flow, whole.measure
        self.margin = margin * mean if self.measure in COSTS else margin
        self.max_turns = float(counts.max())
        self.max_change, self.stop = whole.max_change, whole.stop
        self._parts: list[PairedMeasure] = []

    def observe(self, baseline: TurnTable, played: TurnTable) -> None:
        """Add a conversation; raises RunError if a turn of the baseline has no score."""
        self._parts.append(pair_measure(self.measure.name, baseline, played))

    @property
    def paired(self) -> PairedMeasure:
        """Return all conversations so far, numbered in the order of the run."""
        return PairedMeasure(
            measure=self.measure,
            keys=tuple(key for part in self._parts for key in part.keys),
            a=np.concatenate([part.a for part in self._parts]),
            b=np.concatenate([part.b for part in self._parts]),
            conversation_numbers=np.repeat(np.arange(len(self._parts)), [len(part.keys) for part in self._parts]),
            size=len(self._parts),
            stop=self.stop,
        )

    def bound(self, order: np.ndarray, paired: PairedMeasure, sign: float, alpha: float) -> float | None:
        """Return a bound like `judgement.bound_of_all`, valid at all looks; `order` is the order of the run."""
        if not len(paired.losses) or paired.conversations < 2:
            return float(paired.losses.mean()) if len(paired.losses) else None
        reach = max(paired.max_change[sign < 0], self.max_change[sign < 0])
        if math.isinf(reach):
            return None
        return sign * anytime_upper_bound(sign * paired.sums[order], paired.counts[order], reach, self.max_turns, alpha)

    def excludes_margin_loss(self, paired: PairedMeasure, alpha: float) -> bool:
        if len(paired.differences) < len(paired.keys):
            return False  # a value is unknown
        reach = max(self.max_change[0], paired.max_change[0])
        # A baseline of zeros has no margin, and a cost without a stop no limit.
        if reach == 0 or math.isinf(reach):
            return reach == 0 and not paired.changed
        margin = self.margin + 1e-12 * max(1.0, self.margin)
        return e_value_against_margin(paired.sums, paired.counts, margin, reach, self.max_turns) >= 1 / alpha


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
        header, recorded = read_baseline(Path(baseline))
        turns = mean_over_epochs(recorded)
        self._baseline = Baseline(Path(baseline), header, recorded, turns)
        self._margins, self._alpha = dict(margins or {}), alpha
        check_arguments(turns, self._margins, alpha)
        if looks < 1:
            raise RunError(f"looks is {looks}; it must be 1 or more")
        names = sorted({key[0] for rows in turns.values() for key in rows})
        self.order: Sequence[str] = random.Random(SEED).sample(names, len(names))
        self._looks = planned_looks(len(names), looks, alpha / header.gates)
        gate.check_gate_inputs(str(baseline), header, mine, declared, flows, turns)
        self._primary, self._failures = gate.primary_measures(header, turns, declared)
        self._seconds = latency_is_comparable(mode, header.mode)
        self._columns = self._columns_of_the_baseline(mine["stops"])
        self._folded: list[str] = []
        self._alarmed = False
        self._passed = False

    def _columns_of_the_baseline(self, stops: gate.Stops) -> list[_LossSeries]:
        columns = []
        for flow, rows in self._baseline.turns.items():
            for name in (*self._primary, *self._failures):
                given = [row[name] for row in rows.values() if name in row]
                out = math.isinf(relative_margin(name, self._margins)) or (name == LATENCY and not self._seconds)
                if given and None not in given and not out:
                    columns.append(
                        _LossSeries(flow, name, rows, relative_margin(name, self._margins), stops.get(flow, {}))
                    )
        if not any(column.measure.name in self._primary for column in columns):
            raise RunError(f"no primary measure is left: {', '.join(self._primary)} are left out, unknown or live")
        return columns

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

    def observe(self, conversation: str, flows: Mapping[str, Mapping[TurnKey, Values]]) -> bool:
        """Add the next conversation of the run; return True once there is a verdict."""
        self._folded.append(conversation)
        turns, flows = self._baseline.turns, mean_over_epochs(flows)
        for flow in dict.fromkeys(column.flow for column in self._columns):
            recorded, played = turns[flow], flows.get(flow, {})
            keys = sorted(key for key in recorded if key[0] == conversation)
            for key in keys:
                if key not in played:
                    raise RunError(f"{turn_name(key)} of {flow} is in the baseline only")
            before, now = make_turn_tables([recorded, played], {0: keys, 1: keys})
            for column in self._columns:
                if column.flow == flow:
                    column.observe(before, now)
        paired = [column.paired for column in self._columns]
        self._alarmed = any((outcome.p_adjusted or 0.0) < self._alpha for outcome in self._outcomes(paired))
        decide = [(c, p) for c, p in zip(self._columns, paired, strict=True) if c.measure.name in self._deciding]
        self._passed = all(column.excludes_margin_loss(own, self._alpha) for column, own in decide)
        return self._alarmed or self._passed or len(self._folded) == len(self.order)

    @property
    def _deciding(self) -> tuple[str, ...]:
        failed = any(c.measure.name in self._failures and c.paired.changed for c in self._columns)
        return self._primary + self._failures if failed else self._primary

    def _outcomes(self, members: Sequence[PairedMeasure], *, advise: bool = False) -> list[MeasureOutcome]:
        """Return outcomes with p-values for all members and all looks; 1 without an alarm, or between looks.

        A constant loss has its own test. A loss that is constant at a look was constant at all earlier looks, so this
        test spends its alpha once.
        """
        count = len(self._folded)
        if not advise and count not in self._looks:
            return [MeasureOutcome(None, 1.0, len(members))] * len(members)
        sums = np.column_stack([m.sums if len(m.differences) else np.zeros(count) for m in members])
        constant = np.array([len(m.differences) > 0 and np.ptp(m.losses) == 0 < m.losses[0] for m in members])
        certain = np.where(constant, sums.any(axis=0).sum() * constant_shift_p_value(count), 1.0)
        looks = [look for look in self._looks if look < count] + [count]
        gates = self._baseline.header.gates
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
        names, order = {*self._folded}, np.argsort(np.argsort(self._folded))
        header, whole, stops = self._baseline.header, self._baseline.turns, run.identity["stops"]
        turns = {flow: {key: row for key, row in rows.items() if key[0] in names} for flow, rows in whole.items()}
        turns = {flow: rows for flow, rows in turns.items() if rows}
        cut = not (self._alarmed or self._passed or len(self._folded) == len(self.order))

        def judge(member: GatedMeasure, outcome: MeasureOutcome) -> Judgement:
            name = member.paired.measure.name
            margin = relative_margin(name, self._margins)
            column = _LossSeries(member.flow, name, whole[member.flow], margin, stops.get(member.flow, {}))
            return member.measure_verdicts(
                outcome, self._margins, self._alpha, bounds=partial(column.bound, order), is_cut=cut
            )

        def tested(members: Sequence[GatedMeasure]) -> list[Judgement]:
            judgements: list[Judgement] = []
            for advises in {member.advises for member in members}:
                own = [member for member in members if member.advises == advises]
                folded = [
                    replace(m.paired, conversation_numbers=np.argsort(order)[m.paired.conversation_numbers])
                    for m in own
                ]
                judgements += map(judge, own, self._outcomes(folded, advise=bool(advises)))
            return judgements

        judgements, notes = gate.evaluate_measures(
            turns,
            mean_over_epochs(run.turn_values),
            self._margins,
            self._alpha,
            self._deciding,
            seconds_decide=self._seconds,
            stops=stops,
            tested=tested,
        )
        if run.result.model != header.model:
            notes += (f"the baseline was made with {header.model}, the run with {run.result.model}",)
        return GateVerdict(
            run_id=run.run_id,
            baseline_id=header.run_id,
            alpha=self._alpha,
            **gate.service(self._baseline.path, header, self._baseline.recorded, judgements),
            primary=self._deciding,
            measure_verdicts=judgements,
            notes=notes,
            stopped=self._progress_note(cut, run),
        )

    def _progress_note(self, cut: bool, run: StoredRun) -> str:
        """Return how far the run got, and what it saved by the baseline's figures."""
        count, many = len(self.order), f"{len(self._folded)} of {len(self.order)} conversations"
        done = sum(look <= len(self._folded) for look in self._looks)
        looks = f"alarm looked for {done} of {len(self._looks)} times"
        if cut:
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
