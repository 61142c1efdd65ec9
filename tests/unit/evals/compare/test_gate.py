"""The gate: every verdict and exit code from small runs, its reports read back, and baselines that cannot be used."""

from __future__ import annotations

import json
import math
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import stats

from agentlab.cli.parser import main
from agentlab.core.errors import RunError
from agentlab.core.messages import Usage
from agentlab.evals.compare.baselines import write_baseline
from agentlab.evals.compare.gate import gate, judge
from agentlab.evals.compare.measures import pair_up
from agentlab.evals.compare.report import junit, markdown
from agentlab.evals.compare.statistics import cohens_dz, smallest_visible_difference, standard_error
from agentlab.evals.results.run import open_run
from support.small_runs import Answering, edit_header, play, write_set

# Seconds are real here, and small; they would differ by more than 20 % now and then.
NO_LATENCY = {"latency_s": math.inf}


@pytest.fixture
def data(tmp_path, own_home):
    return write_set(tmp_path / "colours", conversations=8)


@pytest.fixture
def baseline(data, tmp_path):
    path = tmp_path / "baselines" / "colours.jsonl"
    write_baseline(play(data, tmp_path / "base"), path)
    return path


def by_name(verdict):
    return {judged.measure.name: judged for judged in verdict.judged}


def turns(conversations: int, *numbers: int) -> set[tuple[str, int]]:
    return {(f"c{c:02}", t) for c in range(conversations) for t in numbers}


def test_a_run_passes_against_itself_and_nothing_pays_for_what_is_equal(baseline, tmp_path):
    verdict = gate(open_run(tmp_path / "base"), baseline)
    assert (verdict.result, verdict.exit_code) == ("pass", 0)
    found = by_name(verdict)
    assert set(found) == {
        *("answer_f1", "exact_match", "semantic_similarity"),
        *("failed", "llm_calls", "input_tokens", "output_tokens", "latency_s"),
    }
    assert {j.why for j in verdict.judged} == {"no turn differs"}
    assert {(j.loss, j.bound, j.p, j.p_holm, j.visible) for j in verdict.judged} == {(0.0, 0.0, 1.0, None, None)}
    assert "8 measures are equal on every turn and left out of Holm's correction" in verdict.notes
    assert "unknown in the baseline, so not gated: cost_usd of answering" in verdict.notes


def test_a_worse_run_is_a_regression_and_a_better_one_is_not(data, baseline, tmp_path):
    worse = play(data, tmp_path / "worse", Answering(wrong=turns(7, 0, 1) | {("c07", 1)}))
    verdict = gate(worse, baseline, margins=NO_LATENCY)
    f1 = by_name(verdict)["answer_f1"]
    assert (verdict.exit_code, f1.verdict, f1.loss) == (2, "regression", pytest.approx(15 / 16))
    assert f1.p == 2**-8
    assert f1.p_holm == pytest.approx(3 * 2**-8), "three quality measures differ; the costs do not"
    assert f1.bound > f1.loss > f1.margin == 0.05
    assert f1.visible is not None and 0.05 < f1.visible < 0.5
    assert by_name(verdict)["llm_calls"].verdict == "pass"
    write_baseline(worse, baseline)
    better = gate(play(data, tmp_path / "better"), baseline, margins=NO_LATENCY)
    assert better.exit_code == 0
    assert by_name(better)["answer_f1"].loss == pytest.approx(-15 / 16)


def test_what_few_conversations_cannot_tell_is_inconclusive(data, baseline, tmp_path):
    verdict = gate(play(data, tmp_path / "run", Answering(wrong=turns(3, 1))), baseline, margins=NO_LATENCY)
    f1 = by_name(verdict)["answer_f1"]
    assert (verdict.exit_code, f1.verdict, f1.p, f1.p_holm) == (3, "inconclusive", 2**-3, None)
    assert "3 measures differ in too few conversations to be rejected, left out of the correction" in verdict.notes
    assert "worse by 0.188" in f1.why
    assert "never" not in f1.why, "eight conversations could have shown it"
    # Within a wide enough margin it is known to be harmless.
    wide = dict.fromkeys(("answer_f1", "exact_match", "semantic_similarity"), 0.5)
    again = play(data, tmp_path / "again", Answering(wrong=turns(3, 1)))
    assert gate(again, baseline, margins=NO_LATENCY | wide).exit_code == 0


def test_a_set_that_is_too_small_says_that_it_can_never_tell(tmp_path, own_home):
    data = write_set(tmp_path / "small", conversations=3, turns=4)
    write_baseline(play(data, tmp_path / "base"), tmp_path / "small.jsonl")
    run = play(data, tmp_path / "run", Answering(wrong=turns(3, 0, 1, 2)))
    f1 = by_name(gate(run, tmp_path / "small.jsonl", margins=NO_LATENCY))["answer_f1"]
    assert (f1.verdict, f1.visible) == ("inconclusive", None)
    assert "3 conversations can never show a regression here" in f1.why
    assert "2^-3 = 0.12" in f1.why


def test_one_more_call_on_every_turn_is_certain_where_signs_alone_are_not(tmp_path, own_home):
    data = write_set(tmp_path / "four", conversations=4, turns=2)
    write_baseline(play(data, tmp_path / "base"), tmp_path / "four.jsonl")
    twice = play(data, tmp_path / "twice", Answering(calls=lambda turn: 2))
    verdict = gate(twice, tmp_path / "four.jsonl", margins=NO_LATENCY)
    calls = by_name(verdict)["llm_calls"]
    assert (verdict.exit_code, calls.verdict, calls.loss, calls.bound) == (2, "regression", 1.0, 1.0)
    assert calls.p_holm == pytest.approx(3 * 2 / 4**4), "calls, input tokens and output tokens"
    assert "worse by 1 on every turn" in calls.why
    allowed = gate(twice, tmp_path / "four.jsonl", margins=NO_LATENCY | {"llm_calls": 1.0})
    assert by_name(allowed)["llm_calls"].verdict == "pass"


def test_one_loss_on_every_turn_is_one_loss_however_floats_write_it():
    """.9 - .7, .8 - .6, .7 - .5 and .6 - .4 are not the same to the last digit."""
    before = {(f"c{n}", 0, 0): {"answer_f1": value} for n, value in enumerate((0.9, 0.8, 0.7, 0.6))}
    after = {key: {"answer_f1": row["answer_f1"] - 0.2} for key, row in before.items()}
    (judged,), _ = judge({"flow": before}, {"flow": after}, {}, 0.05)
    assert (judged.verdict, judged.loss, judged.bound) == ("regression", pytest.approx(0.2), pytest.approx(0.2))
    assert cohens_dz(pair_up("answer_f1", before, after).differences) is None


def test_one_conversation_proves_nothing_because_its_turns_may_hang_together(tmp_path, own_home):
    data = write_set(tmp_path / "one", conversations=1, turns=6)
    write_baseline(play(data, tmp_path / "base"), tmp_path / "one.jsonl")
    for name, calls in (("twice", lambda turn: 2), ("some", lambda turn: 1 + turn[1] % 2)):
        run = play(data, tmp_path / name, Answering(calls=calls))
        assert by_name(gate(run, tmp_path / "one.jsonl", margins=NO_LATENCY))["llm_calls"].verdict == "inconclusive"
    assert (
        "no bound on one conversation"
        in by_name(gate(run, tmp_path / "one.jsonl", margins=NO_LATENCY))["llm_calls"].why
    )


def test_a_flow_that_only_fails_is_a_regression_even_where_nothing_is_graded(tmp_path, own_home):
    data = write_set(tmp_path / "mute", conversations=8, turns=2)
    conversations = [json.loads(line) for line in (data / "conversations.jsonl").read_text().splitlines()]
    for conversation in conversations:
        conversation["turns"] = [{"user": turn["user"]} for turn in conversation["turns"]]
    (data / "conversations.jsonl").write_text("".join(json.dumps(c) + "\n" for c in conversations))
    write_baseline(play(data, tmp_path / "base"), tmp_path / "mute.jsonl")

    async def answering(turn, session):
        raise KeyError("before any call")

    failing = play(data, tmp_path / "failing", answering)
    verdict = gate(failing, tmp_path / "mute.jsonl")
    assert (verdict.exit_code, by_name(verdict)["failed"].verdict) == (2, "regression")


def test_margins_are_absolute_for_quality_and_shares_for_costs(data, baseline, tmp_path):
    dearer = play(data, tmp_path / "run", usage=Usage(input_tokens=104, cached_tokens=0, output_tokens=10))
    tokens = by_name(gate(dearer, baseline, margins=NO_LATENCY))["input_tokens"]
    assert (tokens.verdict, tokens.margin, tokens.loss, tokens.bound) == ("pass", 5.0, 4.0, 4.0)
    tokens = by_name(gate(dearer, baseline, margins=NO_LATENCY | {"input_tokens": 0.03}))["input_tokens"]
    assert (tokens.verdict, tokens.margin) == ("regression", 3.0)
    assert "tool_calls" in by_name(gate(dearer, baseline, margins={"tool_calls": 0}))
    for margins, said in (
        ({"anser_f1": 1}, "Did you mean 'answer_f1'"),
        ({"answer_f1": -1}, "must be 0 or more"),
        ({"answer_f1": math.nan}, "must be 0 or more"),
    ):
        with pytest.raises(RunError, match=said):
            gate(dearer, baseline, margins=margins)
    with pytest.raises(RunError, match="alpha is 2"):
        gate(dearer, baseline, alpha=2)


def test_a_cost_that_became_unknown_is_inconclusive(data, baseline, tmp_path):
    verdict = gate(play(data, tmp_path / "run", usage=Usage()), baseline, margins=NO_LATENCY)
    tokens = by_name(verdict)["input_tokens"]
    assert (verdict.exit_code, tokens.verdict, tokens.run, tokens.loss) == (3, "inconclusive", None, None)
    assert tokens.why == "unknown in this run, known in the baseline"


def test_a_failed_turn_counts_against_the_run(data, baseline, tmp_path):
    run = play(data, tmp_path / "run", Answering(failing=turns(8, 0)))
    assert by_name(gate(run, baseline, margins=NO_LATENCY))["answer_f1"].loss == 0.5


def test_runs_that_cannot_be_held_against_the_baseline(data, baseline, tmp_path):
    stopped = play(data, tmp_path / "stopped", budget={"calls": 3})
    limited = play(data, tmp_path / "limited", limit=2)
    other = play(data, tmp_path / "other", Answering("other"))
    old = play(data, tmp_path / "old")
    edit_header(old, lambda header: header.pop("graders"))
    graded = play(data, tmp_path / "graded")
    edit_header(graded, lambda header: header["graders"].update(answer="0" * 64))
    fewer = play(data, tmp_path / "fewer", scorers=["answer"])
    for run, said in (
        (stopped, "--resume"),
        (limited, "data sets differ"),
        (other, "unknown flow of this run 'answering'"),
        (old, "older run"),
        (graded, "graders differ (answer)"),
        (fewer, "graders differ (similarity)"),
    ):
        with pytest.raises(RunError) as refused:
            gate(run, baseline)
        assert said in str(refused.value)
    for run in (stopped, old):
        with pytest.raises(RunError):
            write_baseline(run, tmp_path / "never.jsonl")
    assert not (tmp_path / "never.jsonl").exists()
    # What is new in the run is no obstacle.
    edit_header(other, lambda header: header["graders"].update(new="0" * 64))
    both = play(data, tmp_path / "both", Answering(), Answering("other"))
    assert "not in the baseline, so not gated: other" in gate(both, baseline).notes
    lines = baseline.read_text().splitlines(keepends=True)
    baseline.write_text("".join(line for line in lines if '"c03"' not in line))
    assert "2 turns of the run are not in the baseline, so not gated" in gate(both, baseline).notes
    baseline.write_text(lines[0] + lines[1].replace('"c00"', '"c99"'))
    with pytest.raises(RunError, match="turn 0 of c99 of answering is in the baseline and not in the run"):
        gate(both, baseline)


def test_a_baseline_is_sorted_lines_and_a_broken_one_is_named_by_its_line(baseline, tmp_path):
    run = open_run(tmp_path / "base")
    lines = baseline.read_text().splitlines()
    header = json.loads(lines[0])
    assert {"format", "run_id", "spec", "model", "datasets", "graders"} == set(header)
    rows = [json.loads(line) for line in lines[1:]]
    assert [(row["conversation"], row["turn"]) for row in rows] == sorted(turns(8, 0, 1))
    assert rows[0]["measures"]["llm_calls"] == 1
    assert rows[0]["measures"]["cost_usd"] is None
    for number, line, said in (
        (1, "", ":1: Input data was truncated"),
        (1, '{"format": 2}', ":1: Invalid enum value 2 - at `$.format`"),
        (1, '{"format": 1}', ":1: Object missing required field `run_id`"),
        (3, lines[2][:-5], ":3: JSON is malformed"),
        (3, "[]", ":3: Expected `object`, got `array`"),
        (3, lines[1], ":3: this turn of answering is in the file twice"),
        (3, lines[2].replace('"turn": 1', '"turn": "1"'), ":3: Expected `int`, got `str` - at `$.turn`"),
        (
            3,
            lines[2].replace('"answer_f1": 1.0', '"answer_f1": "good"'),
            ":3: Expected `int | float | null`, got `str`",
        ),
        (3, lines[2].replace('"answer_f1": 1.0', '"answer_f1": NaN'), ":3: JSON is malformed: invalid character"),
    ):
        baseline.write_text("\n".join([*lines[: number - 1], line, *lines[number:]]))
        with pytest.raises(RunError) as refused:
            gate(run, baseline)
        assert str(refused.value).startswith(f"{baseline}{said}")
    baseline.write_text(lines[0])
    with pytest.raises(RunError, match="holds no turns"):
        gate(run, baseline)
    with pytest.raises(RunError, match=r"there is no baseline .* --update"):
        gate(run, tmp_path / "none.jsonl")
    with pytest.raises(RunError, match="cannot be written"):
        write_baseline(run, baseline / "below" / "a_file.jsonl")


def test_the_command_line_writes_reports_and_answers_by_exit_code(data, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "step.md"))
    flows = [Answering(), Answering("a|b<c>\x07")]
    play(data, tmp_path / "base", *flows)
    file = str(tmp_path / "base.jsonl")
    assert main(["gate", str(tmp_path / "base"), "--baseline", file]) == 1
    assert "--update" in capsys.readouterr().err
    assert main(["gate", str(tmp_path / "base"), "--baseline", file, "--update"]) == 0
    assert main(["gate", str(tmp_path / "base"), "--baseline", file]) == 0
    capsys.readouterr()
    play(data, tmp_path / "run", Answering(wrong=turns(8, 0, 1)), Answering("a|b<c>\x07", wrong=turns(2, 0)))
    command = ["gate", str(tmp_path / "run"), "--baseline", file, "--margin", "latency_s=inf"]
    assert main([*command, "--junit", str(tmp_path / "out" / "gate.xml")]) == 2
    shown = capsys.readouterr().out
    assert "regression: answering answer_f1: worse by 1 on every turn" in shown
    assert shown.strip().endswith("(8 pass, 3 regression, 3 inconclusive)")
    ignored = [f"--margin={metric}=inf" for metric in ("exact_match", "semantic_similarity")]
    assert main([*command, *ignored, "--margin=answer_f1=1", "--summary", str(tmp_path / "own.md")]) == 0
    assert main([*command, "--margin", "answer_f1"]) == 1
    assert "--margin 'answer_f1': write it as measure=number" in capsys.readouterr().err
    assert main([*command, "--junit", file + "/x"]) == 1

    suites = ElementTree.parse(tmp_path / "out" / "gate.xml").getroot()
    assert (suites.tag, suites.get("tests"), suites.get("failures")) == ("testsuites", "14", "3")
    second, first = suites.findall("testsuite")
    assert (first.get("name"), first.get("failures"), first.get("skipped"), first.get("errors")) == (
        *("a|b<c>?", "0", "3", "0"),
    )
    assert second.get("name") == "answering"
    cases = {case.get("name"): case for case in second.findall("testcase")}
    assert "worse by 1 on every turn" in cases["answer_f1"].find("failure").get("message")
    assert cases["llm_calls"].find("failure") is None
    numbers = {p.get("name"): p.get("value") for p in second.find("properties")}
    assert (float(numbers["answer_f1.loss"]), int(numbers["answer_f1.n"]), numbers["run"]) == (1.0, 16, "run")
    assert first.find("testcase/skipped").get("type") == "inconclusive"

    step = (tmp_path / "step.md").read_text()
    assert step.count("## agentlab gate:") == 2, "every gate adds to it, unless --summary names another file"
    assert "### a\\|b&lt;c>" in step
    assert "| answer_f1 | 16 | 1.000 | 0.000 | +1 | +1 | 0.05 |" in step
    assert "pass" in (tmp_path / "own.md").read_text()


def test_an_inconclusive_gate_exits_with_3(data, baseline, tmp_path):
    play(data, tmp_path / "run", Answering(wrong=turns(2, 0)))
    assert main(["gate", str(tmp_path / "run"), "--baseline", str(baseline), "--margin", "latency_s=inf"]) == 3


def rows_of(losses: np.ndarray) -> dict:
    return {(f"c{c}", t, 0): {"quality": float(-v)} for c, row in enumerate(losses) for t, v in enumerate(row)}


def columns(**values: list) -> dict:
    """One flow, a turn a conversation."""
    turns = zip(*values.values(), strict=True)
    return {"flow": {(f"c{c}", 0, 0): dict(zip(values, row, strict=True)) for c, row in enumerate(turns)}}


def test_more_tests_ask_for_more():
    losses, mixed = [0.2, 0.3, 0.2, 0.4, 0.3, 0.2], [0.1, -0.1, 0.2, -0.2, 0.1, -0.2]
    worse, other = [-v for v in losses], [-v for v in mixed]
    zero = [0.0] * 6
    (alone,), _ = judge(columns(a=zero), columns(a=worse), {}, 0.02)
    assert (alone.verdict, alone.p_holm) == ("regression", 1 / 64)
    (a, b), _ = judge(columns(a=zero, b=zero), columns(a=worse, b=other), {}, 0.02)
    assert (a.verdict, a.p, a.p_holm) == ("inconclusive", 1 / 64, 2 / 64), "two tests, two chances of an alarm"
    assert b.verdict == "inconclusive"
    clusters = list("abcdef")
    (a, _), _ = judge(columns(a=zero, b=zero), columns(a=worse, b=other), {}, 0.05)
    assert a.visible == pytest.approx(smallest_visible_difference(losses, clusters, 0.025))
    # Past a wide margin, what must be seen is not a loss but one that is clearly past it.
    (a,), _ = judge(columns(a=zero), columns(a=worse), {"a": 1.0}, 0.05)
    se = standard_error(losses, clusters)
    assert a.visible == pytest.approx(1.0 + (stats.t.ppf(0.8, 5) - stats.t.ppf(0.95, 5)) * se)


def test_one_unknown_turn_makes_the_measure_unknown():
    known, partly = columns(input_tokens=[10, 10, 10]), columns(input_tokens=[10, None, 10])
    (tokens,), _ = judge(known, partly, {}, 0.05)
    assert (tokens.verdict, tokens.run, tokens.loss) == ("inconclusive", None, None)
    judged, notes = judge(partly, known, {}, 0.05)
    assert not judged
    assert notes == ("unknown in the baseline, so not gated: input_tokens of flow",)


@pytest.mark.slow
def test_the_loss_it_says_it_can_see_is_seen_in_about_four_of_five_runs():
    random = np.random.default_rng(0)
    found = 0
    for _ in range(100):
        noise = random.normal(0, 0.3, (12, 1)) + random.normal(0, 0.5, (12, 3))
        nothing = {"flow": rows_of(np.zeros((12, 3)))}
        (before,), _ = judge(nothing, {"flow": rows_of(noise)}, {}, 0.05)
        (after,), _ = judge(nothing, {"flow": rows_of(noise + before.visible)}, {}, 0.05)
        found += after.verdict == "regression"
    assert 70 <= found <= 92


def test_the_reports_of_nothing_to_gate_are_still_whole(data, baseline, tmp_path):
    names = [
        *("answer_f1", "exact_match", "semantic_similarity"),
        *("failed", "llm_calls", "input_tokens", "output_tokens"),
    ]
    verdict = gate(play(data, tmp_path / "run"), baseline, margins=NO_LATENCY | dict.fromkeys(names, math.inf))
    assert verdict.exit_code == 0
    assert ElementTree.fromstring(junit(verdict)).get("tests") == "0"
    assert "## agentlab gate: pass" in markdown(verdict)
