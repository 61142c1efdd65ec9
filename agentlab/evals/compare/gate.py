"""Compares a run with a baseline: unchanged, pass, regression or inconclusive.

    write_baseline(run, "evals/baselines/laws.jsonl")
    verdict = gate(another_run, "evals/baselines/laws.jsonl", margins={"answer_f1": 0.1})

The loss of a measure is its mean difference in the worse direction, turn by turn, on the turns of the baseline.
`measure_verdict` gives the verdict on one measure. The two to four primary measures of the baseline decide the result;
secondary ones are only reported. If the primary measures are the default ones and turns failed, `failed` is primary,
too.

    unchanged     every primary measure of every flow is equal on every turn: a statement about these turns.
    pass          every one passes or is unchanged. All must, so no correction is needed (an intersection-union test).
    regression    one of them is worse, tested as one family over all flows.
    inconclusive  none of these.

A difference that is equal on every turn has no noise. Its p-value is `family.constant_shift_p_value`, which can be
smaller than that of sign flips: one more call on every turn is a regression from four conversations on. One
conversation can show nothing. Live seconds differ from run to run, which no test over conversations detects. So latency
is primary only between replays or recordings.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from msgspec.structs import asdict

from agentlab.core import plugins
from agentlab.core.errors import RunError
from agentlab.evals.compare.baselines import Baseline, BaselineHeader, count_gates, mean_over_epochs, open_baseline
from agentlab.evals.compare.family import MeasureOutcome, run_family_test
from agentlab.evals.compare.measure_verdict import MeasureVerdict, format_needed
from agentlab.evals.compare.paired import PairedMeasure, make_turn_tables, pair_measure
from agentlab.evals.compare.slices import Slice, hidden_in_overall, significant_slices, slices_by_turn
from agentlab.evals.stats.planning import COST_MARGIN
from agentlab.evals.store.measures import (
    COSTS,
    LATENCY,
    TurnKey,
    Values,
    in_order,
    is_one_sided,
    latency_is_comparable,
    measure,
    primary_family,
    turn_name,
)
from agentlab.evals.store.run import StoredRun, check_comparable

QUALITY_MARGIN = 0.05
GATED_COSTS = dict.fromkeys(("llm_calls", "input_tokens", "output_tokens", "cost_usd", "latency_s"), COST_MARGIN)
GATED_COSTS["failed"] = 0.05
"""Costs that are always gated, and their margins, in shares of the baseline's mean."""
MEASURED_LIVE = "measured live in two runs"
WORST_FIRST = ("worse beyond margin", "worse, size undecided", "undecided", "pass", "unchanged")

Stops = Mapping[str, Mapping[str, float]]
"""Flow -> cost -> declared maximum of a turn."""
Result = Literal["unchanged", "pass", "regression", "inconclusive"]
EXIT_CODES: dict[Result, int] = {"unchanged": 0, "pass": 0, "regression": 2, "inconclusive": 3}


@dataclass(frozen=True, kw_only=True)
class GateVerdict:
    """Verdict of a gate: `result`, `exit_code` and the verdict of each measure; `str()` gives the first line."""

    run_id: str
    baseline_id: str
    alpha: float
    """Rate of false alarms over all gates that the baseline is to serve."""
    primary: tuple[str, ...]
    """Primary measures: they decide the result."""
    measure_verdicts: tuple[MeasureVerdict, ...]
    """Verdicts of all measures: primary ones first, worst first."""
    notes: tuple[str, ...]
    """Remarks, such as a change of model."""
    stopped: str = ""
    """Progress of a sequential gate when it stopped, and the work it saved."""
    slices: tuple[Slice, ...] = ()
    """Slices in which a primary measure is worse although the total does not show it."""
    gates: int = 1
    epochs: int = 1
    """Epochs of the baseline; its values are means over them."""
    served: int | None = None
    """Gates of the baseline in which a turn changed, this one included; None if they cannot be stored."""

    @property
    def primary_verdicts(self) -> list[MeasureVerdict]:
        """Verdicts of the primary measures."""
        return [each for each in self.measure_verdicts if each.primary]

    @property
    def result(self) -> Result:
        """`unchanged`, `pass`, `regression` or `inconclusive`."""
        kinds = {each.kind for each in self.primary_verdicts}
        if kinds == {"unchanged"}:
            return "unchanged"
        return "regression" if "worse" in kinds else "inconclusive" if kinds & {"undecided", "unknown"} else "pass"

    @property
    def exit_code(self) -> int:
        """Exit code of `agentlab gate`: 0 for unchanged and pass, 2 for regression, 3 for inconclusive."""
        return EXIT_CODES[self.result]

    def __str__(self) -> str:
        sides = f"{self.run_id} against {self.baseline_id}"
        if self.result == "regression":
            worse = [each.change for each in self.primary_verdicts if each.kind == "worse"]
            more = f" and {len(worse) - 3} more" if len(worse) > 3 else ""
            return f"regression: {', '.join(worse[:3])}{more} ({sides})"
        if self.result == "inconclusive":
            open_ = [each for each in self.primary_verdicts if each.verdict == "undecided"]
            needed = [(each.conversations_needed, each.margin) for each in open_ if each.conversations_needed]
            hint = f", {format_needed(*max(needed))}" if len(needed) == len(open_) else ""
            more = f" and {len(open_) - 1} more" if len(open_) > 1 else ""
            return f"inconclusive: {open_[0].change}{more} undecided{hint} ({sides})"
        passed = {each.measure.name for each in self.primary_verdicts if each.kind == "pass"}
        names = [name for name in self.primary if any(each.measure.name == name for each in self.primary_verdicts)]
        equal = ", ".join(name for name in names if name not in passed)
        if self.result == "unchanged":
            return f"unchanged: {equal} on these {max(each.n for each in self.primary_verdicts)} turns ({sides})"
        passing = ", ".join(name for name in names if name in passed)
        also = f"; unchanged on these turns: {equal}" if equal else ""
        return f"pass: no loss beyond the margin in {passing}{also} ({sides})"


def gate(
    run: StoredRun, baseline: str | Path, *, margins: Mapping[str, float] | None = None, alpha: float = 0.05
) -> GateVerdict:
    """Compare a run with a baseline file and return the verdict.

    A loss is the mean difference in the worse direction over the turns of the baseline, with the mean over epochs on
    both sides. `pass` excludes a loss beyond the margin at the level `alpha`. `regression` shows a loss; all gates that
    the baseline is to serve share `alpha`. The tests are the module's docstring. `margins`
    maps measures to margins: absolute for quality (default 0.05), relative to the baseline's mean for costs (default
    COST_MARGIN). A margin of infinity leaves a measure out.

    Raises RunError if a flow or turn of the baseline is missing in the run, if data, graders or primary measures
    differ, if the run is incomplete, or if the baseline is unreadable.
    """
    opened = open_baseline(baseline)
    run.check_complete()
    mine, header, turns, flows = run.identity, opened.header, opened.turns, mean_over_epochs(run.turn_values)
    declared = tuple(run.header["spec"].get("primary", ()))
    check_gate_inputs(str(baseline), header, mine, declared, list(flows), turns)
    for label, rows in turns.items():
        for key in sorted({*rows} - {*flows[label]}):
            raise RunError(f"{run.path}: {turn_name(key)} of {label} is in the baseline and not in the run")
    notes = []
    for older in (str(run.path),) * (not run.folder.has_checksums) + (str(baseline),) * (not header.check):
        notes.append(f"{older} predates checksums; edits cannot be detected")
    if run.result.model != header.model:
        notes.append(f"the baseline was made with {header.model}, the run with {run.result.model}")
    if new := [label for label in flows if label not in turns]:
        notes.append(f"not in the baseline, so not gated: {', '.join(new)}")
    if more := sum(len({*flows[label]} - {*rows}) for label, rows in turns.items()):
        notes.append(f"{more} turns of the run are not in the baseline, so not gated")
    primary = primary_measures(header, turns, declared, flows)
    verdicts, remarks = evaluate_measures(
        turns,
        flows,
        margins or {},
        alpha,
        primary,
        latency_is_primary=latency_is_comparable(run.result.mode, header.mode),
        stops=mine["stops"],
        gates=header.gates,
        longest=run.longest // run.epochs,
    )
    primary_pairs = [(j.flow, j.paired) for j in verdicts if j.primary]
    broken = significant_slices(primary_pairs, slices_by_turn(run), alpha, two_sided=False)
    worse = [(j.flow, j.measure.name) for j in verdicts if j.kind == "worse"]
    remarked: dict[str, Any] = {"notes": (*remarks, *notes), "slices": tuple(hidden_in_overall(broken, worse))}
    return make_verdict(run, opened, primary, verdicts, alpha=alpha, **remarked)


def make_verdict(
    run: StoredRun, baseline: Baseline, primary: tuple[str, ...], verdicts: tuple[MeasureVerdict, ...], **more: Any
) -> GateVerdict:
    """Return the verdict of a gate and add the gate to the baseline's count; `more` has further fields."""
    path, header = baseline.path, baseline.header
    figures = [
        (each.flow, each.measure.name, each.a, each.b, each.p) for each in verdicts if each.measure.name != LATENCY
    ]
    gate = hashlib.sha256(repr(figures).encode()).hexdigest()
    served = count_gates(path, header.check, gate, changed=any(each.changed for each in verdicts if each.primary))
    return GateVerdict(
        run_id=run.run_id,
        baseline_id=header.run_id,
        primary=primary,
        measure_verdicts=verdicts,
        gates=header.gates,
        epochs=baseline.epochs,
        served=served,
        **more,
    )


def check_gate_inputs(
    name: str,
    header: BaselineHeader,
    mine: Mapping[str, Any],
    declared: Sequence[str],
    flows: Sequence[str],
    baseline_turns: Mapping[str, Any],
) -> None:
    """Raise RunError if a run cannot be compared with the baseline `name`.

    `mine` is as in `check_comparable`. `declared` are the primary measures of the run's spec, `flows` its flows.
    """
    # A new grader does not affect the scores of the baseline.
    graders = {name: sha for name, sha in mine["graders"].items() if name in header.graders}
    check_comparable({"name": name, **asdict(header)}, {**mine, "graders": graders})
    for label in baseline_turns:
        if label not in flows:
            raise RunError(
                f"{mine['name']}: {plugins.unknown_name('flow of this run', label, flows)}; the baseline has it"
            )
    if header.primary and declared and {*header.primary} != {*declared}:
        raise RunError(
            f"{name}: primary measures are {', '.join(header.primary)}, in the run's spec {', '.join(declared)}; "
            "make the baseline again with --update, or declare the same `primary` in both"
        )


def primary_measures(
    header: BaselineHeader,
    baseline_turns: Mapping[str, Mapping[TurnKey, Values]],
    declared: Sequence[str],
    flows: Mapping[str, Mapping[TurnKey, Values]],
) -> tuple[str, ...]:
    """Return the primary measures; `failed` is one if turns of `flows` failed, unless the user chose the measures.

    The number of failures of both sides together is the same under all sign flips, so it may select the tests.
    """
    usual = primary_family(baseline_turns.values(), declared)
    primary = header.primary or usual
    sides = [(rows, flows[label]) for label, rows in baseline_turns.items()]
    failed = any(run[key].get("failed") for rows, run in sides for key in rows.keys() & run)
    is_chosen = declared or {*primary} != {*usual} or "failed" in primary
    return (*primary, "failed") if failed and not is_chosen else primary


class GatedMeasure(NamedTuple):
    """Measure of a flow that the gate tests."""

    flow: str
    secondary_reason: str
    """Reason why it is not primary; "" if it is."""
    paired: PairedMeasure

    @property
    def name(self) -> tuple[str, str]:
        """Return the names of flow and measure."""
        return self.flow, self.paired.measure.name

    def evaluate(
        self, outcome: MeasureOutcome, margins: Mapping[str, float], alpha: float, **more: Any
    ) -> MeasureVerdict:
        """Return the gate verdict on the outcome; `more` has further fields of `MeasureVerdict`."""
        margin = relative_margin(self.paired.measure.name, margins)
        return MeasureVerdict(**self._asdict(), **outcome._asdict(), alpha=alpha, relative_margin=margin, **more)


def relative_margin(name: str, margins: Mapping[str, float]) -> float:
    """Return the margin of a measure: absolute for quality, a share of the baseline's mean for costs."""
    return margins.get(name, GATED_COSTS.get(name, QUALITY_MARGIN))


def gated_measures(
    baseline: Mapping[str, Mapping[TurnKey, Values]],
    run: Mapping[str, Mapping[TurnKey, Values]],
    margins: Mapping[str, float],
    primary: Sequence[str],
    *,
    latency_is_primary: bool,
    stops: Stops,
    longest: int = 0,
    only_primary: bool = False,
) -> tuple[list[GatedMeasure], list[str]]:
    """Return the measures to test, by flow of the baseline, and the names of those that are unknown in the baseline."""
    now = [{key: run[flow][key] for key in rows} for flow, rows in baseline.items()]
    laid_out = make_turn_tables([*baseline.values(), *now], longest)
    members, unknown = [], []
    for index, (flow, rows) in enumerate(baseline.items()):
        for name in in_order(name for row in rows.values() for name in row):
            is_gated = not only_primary and (name in (*margins, *GATED_COSTS) or measure(name) not in COSTS)
            is_left_out = math.isinf(margins.get(name, 0.0)) or is_one_sided(name, rows, run[flow])
            if is_left_out or not (is_gated or name in primary):
                continue
            paired = pair_measure(name, laid_out[index], laid_out[index + len(baseline)], stops.get(flow, {}))
            # Turns that one side leaves undecided may hide any loss, so a primary measure of such turns alone is open.
            if paired.means[0] is None and not (paired.left_out and name in primary):
                unknown.append(f"{name} of {flow}" + f" ({paired.left_out} turns undecided)" * bool(paired.left_out))
                continue
            reason = "" if name in primary and paired.may_be_primary else "secondary"
            reason = MEASURED_LIVE if name == LATENCY and not latency_is_primary else reason
            members.append(GatedMeasure(flow, reason, paired))
    if not only_primary and all(member.secondary_reason for member in members):
        raise RunError(f"no primary measure is left: {', '.join(primary)} are left out, unknown, or measured live")
    return members, unknown


def evaluate_measures(
    baseline: Mapping[str, Mapping[TurnKey, Values]],
    run: Mapping[str, Mapping[TurnKey, Values]],
    margins: Mapping[str, float],
    alpha: float,
    primary: Sequence[str] = (),
    *,
    latency_is_primary: bool = False,
    stops: Stops = MappingProxyType({}),
    gates: int = 1,
    longest: int = 0,
) -> tuple[tuple[MeasureVerdict, ...], tuple[str, ...]]:
    """Return the verdicts on all measures, worst first, and notes.

    Without `primary` the primary measures are those of `measures.primary_family`. Latency is primary only with
    `latency_is_primary`. `gates` share `alpha` for false alarms. `stops` maps flows and costs to the maximum of a turn
    of the run.
    """
    check_arguments(baseline, margins, alpha)
    primary = primary_family(baseline.values(), primary)
    members, unknown = gated_measures(
        baseline, run, margins, primary, latency_is_primary=latency_is_primary, stops=stops, longest=longest
    )
    families = [member.secondary_reason for member in members]
    outcomes = run_family_test([m.paired for m in members], alpha / gates, two_sided=False, families=families)
    verdicts = [m.evaluate(o.shared_by(gates), margins, alpha) for m, o in zip(members, outcomes, strict=True)]
    return with_notes(verdicts, unknown, primary)


def with_notes(
    verdicts: Sequence[MeasureVerdict], unknown: Sequence[str], primary: Sequence[str]
) -> tuple[tuple[MeasureVerdict, ...], tuple[str, ...]]:
    """Return the verdicts, worst first, and notes on measures that cannot be tested."""
    left_out = [f"{j.paired.left_out} of {j.measure.name} of {j.flow}" for j in verdicts if j.paired.left_out]
    notes = [f"turns that one side leaves undecided, each counted as the largest loss: {', '.join(left_out)}"] * bool(
        left_out
    )
    if unknown:
        notes.append(f"unknown in the baseline, so not gated: {', '.join(unknown)}")
    if any(each.secondary_reason == MEASURED_LIVE and each.measure.name in primary for each in verdicts):
        notes.append("latency was measured live in two runs, and seconds differ from run to run: it is only reported")
    return tuple(sorted(verdicts, key=severity_key)), tuple(notes)


def severity_key(verdict: MeasureVerdict) -> tuple[bool, int, float]:
    """Return a sort key: primary measures first, then the worst verdict and the largest loss."""
    rank = WORST_FIRST.index(verdict.verdict)
    cost = verdict.measure in COSTS and verdict.measure.name != "failed"
    size = (verdict.loss or 0.0) / ((verdict.a if cost else verdict.paired.max_change[0]) or 1.0)
    return bool(verdict.secondary_reason), rank, -size


def check_arguments(
    baseline: Mapping[str, Mapping[TurnKey, Values]], margins: Mapping[str, float], alpha: float
) -> None:
    """Raise RunError for an invalid margin or alpha, and for a measure that the baseline does not have."""
    measures = {name for rows in baseline.values() for row in rows.values() for name in row}
    plugins.check_names("measure of the baseline", margins, measures, kind=RunError)
    for name, margin in margins.items():
        if math.isnan(margin) or margin < 0:
            raise RunError(f"the margin of {name} is {margin}; it must be 0 or more")
    if not 0 < alpha < 0.5:
        raise RunError(f"alpha is {alpha}; it must be between 0 and .5")
