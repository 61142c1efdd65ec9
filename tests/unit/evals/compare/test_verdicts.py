"""Verdicts from the turns of two sides: worse, pass, undecided, and the primary measures."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pytest

from agentlab.core.errors import RunError
from agentlab.evals.compare.gate import GateVerdict, evaluate_measures
from agentlab.evals.report.gate_files import as_json, junit, summary_lines


def test_one_loss_on_every_turn_is_one_loss_however_floats_write_it():
    """.9 - .7, .8 - .6, .7 - .5 and .6 - .4 are not the same to the last digit."""
    before = {(f"c{n}", 0, 0): {"answer_f1": value} for n, value in enumerate((0.9, 0.8, 0.7, 0.6))}
    after = {key: {"answer_f1": row["answer_f1"] - 0.2} for key, row in before.items()}
    (verdict,), _ = evaluate_measures({"flow": before}, {"flow": after}, {}, 0.05, ["answer_f1"])
    assert (verdict.verdict, verdict.loss) == ("worse, size undecided", pytest.approx(0.2))
    assert verdict.paired.is_constant_shift
    assert verdict.detectable_loss is None


def test_seconds_measured_in_two_runs_advise():
    family = ["answer_f1", "latency_s"]
    before = columns(answer_f1=[1.0] * 8, latency_s=[1.0] * 8)
    after = columns(answer_f1=[1.0] * 8, latency_s=[2.0] * 8)
    for recorded in (False, True):
        verdicts, notes = evaluate_measures(before, after, {}, 0.05, family, latency_is_primary=recorded)
        (seconds,) = [j for j in verdicts if j.measure.name == "latency_s"]
        assert (seconds.verdict, seconds.secondary_reason == "") == ("worse beyond margin", recorded)
        assert bool(notes) is not recorded
    with pytest.raises(RunError, match="latency_s are left out, unknown, or measured live"):
        evaluate_measures(before, after, {}, 0.05, ["latency_s"])


def columns(**values: list) -> dict:
    """Return the turns of one flow, with one turn per conversation."""
    turns = zip(*values.values(), strict=True)
    return {"flow": {(f"c{c:03}", 0, 0): dict(zip(values, row, strict=True)) for c, row in enumerate(turns)}}


def test_more_tests_ask_for_more():
    losses, mixed = [0.2, 0.3, 0.2, 0.4, 0.3, 0.2], [0.1, -0.1, 0.2, -0.2, 0.1, -0.2]
    worse, other = [-v for v in losses], [-v for v in mixed]
    zero = [0.0] * 6
    (alone,), _ = evaluate_measures(columns(a=zero), columns(a=worse), {}, 0.02, ["a"])
    assert (alone.verdict, alone.p_adjusted) == ("worse, size undecided", 1 / 64)
    verdicts, _ = evaluate_measures(columns(a=zero, b=zero), columns(a=worse, b=other), {}, 0.05, ["a", "b"])
    assert [(j.measure.name, j.family) for j in verdicts] == [("a", 2), ("b", 2)]
    assert verdicts[0].p == 1 / 64 < verdicts[0].p_adjusted or verdicts[0].p == verdicts[0].p_adjusted
    assert verdicts[1].verdict == "undecided"


def test_many_conversations_pass_and_a_break_among_them_is_a_break():
    same = [0.5] * 100
    noise = np.random.default_rng(0).normal(0, 0.05, 100)
    (passed,), _ = evaluate_measures(columns(a=same), columns(a=[0.5 + v for v in noise]), {}, 0.05, ["a"])
    assert passed.verdict == "pass"
    assert "(100 conversations)" in passed.why
    few, _ = evaluate_measures(columns(a=same[:50]), columns(a=[0.5 + v for v in noise[:50]]), {}, 0.05, ["a"])
    assert few[0].verdict == "undecided"
    assert 1 <= few[0].conversations_needed.low <= few[0].conversations_needed.high <= 50
    broken = [0.5 + v for v in noise[:60]] + [0.0] * 40
    (verdict,), _ = evaluate_measures(columns(a=same), columns(a=broken), {}, 0.05, ["a"])
    assert verdict.verdict == "worse beyond margin"


def test_turns_that_moved_both_ways_alike_are_as_good_on_average():
    (open_,), _ = evaluate_measures(columns(a=[0.5] * 6), columns(a=[0.4, 0.6] * 3), {}, 0.05, ["a"])
    assert (open_.loss, open_.verdict) == (0, "undecided") and ": as good on average, at most" in open_.why


def test_one_unknown_turn_makes_the_measure_unknown():
    existing, partly = columns(input_tokens=[10, 10, 10]), columns(input_tokens=[10, None, 10])
    (tokens,), _ = evaluate_measures(existing, partly, {}, 0.05, ["input_tokens"])
    assert (tokens.verdict, tokens.b, tokens.loss) == ("undecided", None, None)
    with pytest.raises(RunError, match="no primary measure is left: input_tokens"):
        evaluate_measures(partly, existing, {}, 0.05, ["input_tokens"])


def test_a_measure_that_one_side_does_not_have_is_one_line():
    with pytest.raises(RunError, match="primary: unknown measure 'a'"):
        evaluate_measures(columns(b=[1.0]), columns(b=[1.0]), {}, 0.05, ["a"])
    with pytest.raises(RunError, match="turn 1 of c000 has a on one side only"):
        evaluate_measures(columns(a=[1.0, 1.0]), columns(b=[1.0, 1.0]), {}, 0.05, ["a"])


def test_halved_refusals_and_fewer_right_answers_are_named_in_the_first_line():
    random = np.random.default_rng(0)

    def play_flow(refusals: float, right: float) -> dict:
        rows = {}
        for c in range(30):
            for t in range(3):
                rows[f"c{c:02}", t, 0] = {
                    "answer_f1": float(random.random() < right),
                    "refusal_accuracy": float(random.random() < refusals),
                    "semantic_similarity": random.random(),
                    "llm_calls": 1,
                }
        return rows

    before = {"a": play_flow(1.0, 0.8), "b": play_flow(1.0, 0.8)}
    worse, _ = evaluate_measures(before, {"a": play_flow(0.5, 0.8), "b": play_flow(1.0, 0.55)}, {}, 0.05)
    called = [(j.flow, j.measure.name) for j in worse if j.verdict.startswith("worse") and not j.secondary_reason]
    assert sorted(called) == [("a", "refusal_accuracy"), ("b", "answer_f1")]
    assert {(j.flow, j.measure.name) for j in worse[:2]} == {*called}, "worst first"
    same, _ = evaluate_measures(before, {"a": play_flow(1.0, 0.8), "b": play_flow(1.0, 0.8)}, {}, 0.05)
    assert not [j for j in same if j.verdict.startswith("worse") and not j.secondary_reason]


def test_the_numbers_for_a_ci_server_are_numbers():
    """The detectable difference was printed as `np.float64(0.27)`."""
    random = np.random.default_rng(0)
    before, after = (columns(m=list(random.random(20) - shift)) for shift in (0.0, 0.3))
    verdicts, _ = evaluate_measures(before, after, {}, 0.05, ["m"])
    assert verdicts[0].detectable_loss is not None
    verdict = GateVerdict(run_id="b", baseline_id="a", alpha=0.05, primary=("m",), measure_verdicts=verdicts, notes=())
    text = {p.get("name"): p.get("value") for p in ElementTree.fromstring(junit(verdict)).iter("property")}
    assert all(float(value) == float(value) for name, value in text.items() if name not in ("run", "baseline"))


def test_log_of_a_regression_has_at_most_20_lines():
    flows = {f"flow{n}": columns(**{f"m{k}": [1.0] * 20 for k in range(8)})["flow"] for n in range(6)}
    broken = {f"flow{n}": columns(**{f"m{k}": [0.1 * (n + 1)] * 20 for k in range(8)})["flow"] for n in range(6)}
    verdicts, _ = evaluate_measures(flows, broken, {}, 0.05, ["m0", "m1", "m2", "m3"])
    notes = tuple(f"note {n}" for n in range(9))
    verdict = GateVerdict(
        run_id="b",
        baseline_id="a",
        alpha=0.05,
        primary=("m0", "m1", "m2", "m3"),
        measure_verdicts=verdicts,
        notes=notes,
    )
    # Two more follow: the worst turns, and where the rest is.
    assert len(summary_lines(verdict)) <= 18
    assert summary_lines(verdict)[0].startswith(
        "regression: m0 of flow0 1.000 -> 0.100, m1 of flow0 1.000 -> 0.100, m2 of flow0"
    )
    assert "and 21 more (b against a)" in summary_lines(verdict)[0]
    assert sum(not row["decides"] for row in as_json(verdict)["measures"]) == 24
    assert ElementTree.fromstring(junit(verdict)).get("failures") == "24"


def test_late_regression_may_be_unseen_in_early_turns():
    """9 of 90 conversations are long and have half of all turns. If a fifth of them breaks, .15 of runs show none."""
    keys = [(f"c{c:02}", t, 0) for c in range(90) for t in range(20 if c % 10 == 0 else 2)]
    before = {key: {"a": 1.0} for key in keys}
    after = {key: {"a": 1.0 + 0.001 * (number % 3 - 1)} for number, key in enumerate(keys)}
    (verdict,), _ = evaluate_measures({"flow": before}, {"flow": after}, {"a": 0.1}, 0.05, ["a"])
    assert verdict.verdict == "undecided"
