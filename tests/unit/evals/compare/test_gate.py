"""The gate: every verdict and exit code from small runs, its reports read back, and baselines that cannot be used."""

from __future__ import annotations

import json
import math
from xml.etree import ElementTree

import pytest

from agentlab.cli.parser import main
from agentlab.core.errors import ConfigError, RunError
from agentlab.core.messages import Usage
from agentlab.evals.compare.baselines import write_baseline
from agentlab.evals.compare.gate import gate
from agentlab.evals.report.gate_files import FILES, summary_lines
from agentlab.lab.run import open_run
from support.small_runs import Answering, edit_header, play, write_set
from support.unsealing import uncheck

USAGE_104 = Usage(input_tokens=104, cached_tokens=0, output_tokens=10)


@pytest.fixture
def data(tmp_path, own_home):
    return write_set(tmp_path / "colours", conversations=8)


@pytest.fixture
def baseline(data, tmp_path):
    path = tmp_path / "baselines" / "colours.jsonl"
    write_baseline(play(data, tmp_path / "base"), path)
    return path


def by_name(verdict):
    return {each.measure.name: each for each in verdict.measure_verdicts}


def turns(conversations: int, *numbers: int) -> set[tuple[str, int]]:
    return {(f"c{c:02}", t) for c in range(conversations) for t in numbers}


def test_run_is_unchanged_against_itself_and_equal_measures_cost_no_power(baseline, tmp_path):
    verdict = gate(open_run(tmp_path / "base"), baseline)
    assert (verdict.result, verdict.exit_code) == ("unchanged", 0)
    by_measure = by_name(verdict)
    assert set(by_measure) == {
        *("answer_f1", "exact_match", "semantic_similarity"),
        *("failed", "llm_calls", "input_tokens", "output_tokens", "latency_s"),
    }
    assert verdict.primary == ("answer_f1", "llm_calls"), "what this set can grade, and a cost that is known"
    assert {j.verdict for j in verdict.measure_verdicts} == {"unchanged"}
    assert {j.why for j in verdict.measure_verdicts} == {"unchanged on these 16 turns"}
    assert {(j.loss, j.p, j.p_adjusted, j.detectable_loss) for j in verdict.measure_verdicts} == {
        (0.0, 1.0, None, None)
    }
    assert by_measure["answer_f1"].upper_bound == pytest.approx(1 - 0.05 ** (1 / 8)), (
        "eight equal conversations prove little"
    )
    assert "unknown in the baseline, so not gated: cost_usd of answering" in verdict.notes
    assert str(verdict).startswith("unchanged: answer_f1, llm_calls on these 16 turns (base against base)")


def test_a_worse_run_is_a_regression_and_a_better_one_is_not(data, baseline, tmp_path):
    worse = play(data, tmp_path / "worse", Answering(wrong=turns(7, 0, 1) | {("c07", 1)}))
    verdict = gate(worse, baseline)
    f1 = by_name(verdict)["answer_f1"]
    assert (verdict.exit_code, f1.verdict, f1.loss) == (2, "worse beyond margin", pytest.approx(15 / 16))
    assert (f1.p, f1.p_adjusted) == (2**-8, 5 * 2**-8), "one of the two primary measures differs, in each of five gates"
    assert f1.upper_bound > f1.loss > f1.margin == 0.05
    assert f1.detectable_loss is None, "eight conversations know too little of their own noise"
    assert by_name(verdict)["llm_calls"].verdict == "unchanged"
    assert str(verdict).startswith("regression: answer_f1 of answering 1.000 -> 0.062 (worse against base)")
    write_baseline(worse, baseline)
    better = gate(play(data, tmp_path / "better"), baseline, margins={"answer_f1": 0.4})
    assert better.exit_code == 0
    assert by_name(better)["answer_f1"].loss == pytest.approx(-15 / 16)
    assert str(better).startswith("pass: no loss beyond the margin in answer_f1; unchanged on these turns: llm_calls")


def test_few_conversations_are_undecided_and_name_the_number_needed(data, baseline, tmp_path):
    verdict = gate(play(data, tmp_path / "run", Answering(wrong=turns(3, 1))), baseline)
    f1 = by_name(verdict)["answer_f1"]
    assert (verdict.exit_code, f1.verdict, f1.p, f1.p_adjusted) == (3, "undecided", 2**-3, None)
    assert (
        f1.conversations_needed
        and f"undecided, if they are equally good, {f1.conversations_needed} exclude a loss of 0.05" in f1.why
    )
    needed = f1.conversations_needed
    assert f"inconclusive: answer_f1 of answering 1.000 -> 0.812 undecided, if they are equally good, {needed}" in str(
        verdict
    )
    # Within a wide enough margin it is known to be harmless.
    again = play(data, tmp_path / "again", Answering(wrong=turns(3, 1)))
    assert gate(again, baseline, margins={"answer_f1": 0.6}).exit_code == 0


def test_a_set_that_is_too_small_is_undecided_however_large_the_loss(tmp_path, own_home):
    data = write_set(tmp_path / "small", conversations=3, turns=4)
    write_baseline(play(data, tmp_path / "base"), tmp_path / "small.jsonl")
    run = play(data, tmp_path / "run", Answering(wrong=turns(3, 0, 1, 2)))
    f1 = by_name(gate(run, tmp_path / "small.jsonl"))["answer_f1"]
    assert (f1.verdict, f1.detectable_loss, f1.p_adjusted) == ("undecided", None, None)
    assert f1.conversations_needed.is_least, "three conversations know too little of their noise"


def test_one_more_call_on_every_turn_is_certain_where_signs_alone_are_not(tmp_path, own_home):
    data = write_set(tmp_path / "four", conversations=4, turns=2)
    write_baseline(play(data, tmp_path / "base"), tmp_path / "four.jsonl")
    twice = play(data, tmp_path / "twice", Answering(calls=lambda turn: 2))
    verdict = gate(twice, tmp_path / "four.jsonl")
    calls = by_name(verdict)["llm_calls"]
    assert (verdict.exit_code, calls.verdict, calls.loss) == (2, "worse, size undecided", 1.0)
    assert calls.p_adjusted == pytest.approx(5 * 2 / 4**4)
    assert "worse by 1 on every turn" in calls.why
    assert by_name(verdict)["input_tokens"].secondary_reason, "it changed as surely, but is secondary"


def test_one_conversation_proves_nothing_because_its_turns_may_hang_together(tmp_path, own_home):
    data = write_set(tmp_path / "one", conversations=1, turns=6)
    write_baseline(play(data, tmp_path / "base"), tmp_path / "one.jsonl")
    for name, calls in (("twice", lambda turn: 2), ("some", lambda turn: 1 + turn[1] % 2)):
        run = play(data, tmp_path / name, Answering(calls=calls))
        calls = by_name(gate(run, tmp_path / "one.jsonl"))["llm_calls"]
        assert calls.verdict == "undecided"
        assert "one conversation is too few" in calls.why


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
    assert (verdict.exit_code, by_name(verdict)["failed"].verdict) == (2, "worse beyond margin")
    assert verdict.primary == ("failed", "llm_calls")


def test_margins_are_absolute_for_quality_and_shares_for_costs(data, baseline, tmp_path):
    dearer = play(data, tmp_path / "run", usage=USAGE_104)
    tokens = by_name(gate(dearer, baseline))["input_tokens"]
    assert (tokens.margin, tokens.loss, tokens.secondary_reason) == (25.0, 4.0, "secondary")
    assert tokens.verdict == "worse, size undecided" and tokens.upper_bound is None, "no stop is declared"
    assert by_name(gate(dearer, baseline, margins={"input_tokens": 0.6}))["input_tokens"].verdict != "pass"
    stopped = play(data, tmp_path / "stopped", usage=USAGE_104, stops={"input_tokens": 150})
    assert by_name(gate(stopped, baseline))["input_tokens"].verdict == "pass"
    assert by_name(gate(stopped, baseline, margins={"input_tokens": 0.05}))["input_tokens"].verdict != "pass"
    assert "tool_calls" in by_name(gate(dearer, baseline, margins={"tool_calls": 0}))
    for margins, text in (
        ({"anser_f1": 1}, "Did you mean 'answer_f1'"),
        ({"answer_f1": -1}, "must be 0 or more"),
        ({"answer_f1": math.nan}, "must be 0 or more"),
        ({"answer_f1": math.inf, "llm_calls": math.inf}, "no primary measure is left"),
    ):
        with pytest.raises(RunError, match=text):
            gate(dearer, baseline, margins=margins)
    with pytest.raises(RunError, match="alpha is 2"):
        gate(dearer, baseline, alpha=2)


def test_a_spec_declares_what_decides_and_the_baseline_carries_it(data, tmp_path):
    primary = ["answer_f1", "input_tokens"]
    path = tmp_path / "own.jsonl"
    write_baseline(play(data, tmp_path / "base", primary=primary), path)
    assert json.loads(path.read_text().splitlines()[0])["primary"] == primary
    dearer = Usage(input_tokens=104, cached_tokens=0, output_tokens=10)
    for name, declared in (("same", primary), ("silent", [])):
        verdict = gate(play(data, tmp_path / name, usage=dearer, primary=declared), path)
        assert (verdict.exit_code, verdict.primary) == (2, ("answer_f1", "input_tokens"))
        assert by_name(verdict)["llm_calls"].secondary_reason
    other = play(data, tmp_path / "other", primary=["answer_f1", "llm_calls"])
    with pytest.raises(RunError, match="answer_f1, input_tokens, in the run's spec answer_f1, llm_calls"):
        gate(other, path)
    with pytest.raises(
        ConfigError, match=r"primary: unknown measure of these data sets 'anser_f1'. Did you mean 'answer_f1'"
    ):
        play(data, tmp_path / "typo", primary=["anser_f1"])
    with pytest.raises(ConfigError, match="primary"):
        play(data, tmp_path / "many", primary=["a", "b", "c", "d", "e"])


def test_a_baseline_from_before_the_choice_is_read_and_the_default_decides(data, baseline, tmp_path):
    first, rest = baseline.read_text().split("\n", 1)
    header = json.loads(first)
    del header["primary"], header["mode"], header["check"]
    baseline.write_text(json.dumps(header) + "\n" + rest)
    assert gate(open_run(tmp_path / "base"), baseline).primary == ("answer_f1", "llm_calls")


def test_seconds_of_a_live_run_advise(data, baseline, tmp_path):
    live = play(data, tmp_path / "live")
    assert by_name(gate(live, baseline))["latency_s"].secondary_reason == "measured live in two runs"


def test_a_cost_that_became_unknown_is_undecided(data, baseline, tmp_path):
    write_baseline(play(data, tmp_path / "known", primary=["input_tokens"]), baseline)
    verdict = gate(play(data, tmp_path / "run", usage=Usage()), baseline)
    tokens = by_name(verdict)["input_tokens"]
    assert (verdict.exit_code, tokens.verdict, tokens.b, tokens.loss) == (3, "undecided", None, None)
    assert tokens.why == "undecided: unknown in this run, known in the baseline"
    assert len(summary_lines(verdict)) <= 20


def test_a_failed_turn_counts_against_the_run(data, baseline, tmp_path):
    run = play(data, tmp_path / "run", Answering(failing=turns(8, 0)))
    assert by_name(gate(run, baseline))["answer_f1"].loss == 0.5


def test_incomparable_runs_are_refused(data, baseline, tmp_path):
    stopped = play(data, tmp_path / "stopped", budget={"calls": 3})
    limited = play(data, tmp_path / "limited", limit=2)
    other = play(data, tmp_path / "other", Answering("other"))
    graded = play(data, tmp_path / "graded")
    edit_header(graded, lambda header: header["graders"].update(answer="0" * 64))
    fewer = play(data, tmp_path / "fewer", scorers=["answer"])
    for run, text in (
        (stopped, "--resume"),
        (limited, "data sets differ"),
        (other, "unknown flow of this run 'answering'"),
        (graded, "graders differ (answer)"),
        (fewer, "graders differ (similarity)"),
    ):
        with pytest.raises(RunError) as refused:
            gate(run, baseline)
        assert text in str(refused.value)
    with pytest.raises(RunError):
        write_baseline(stopped, tmp_path / "never.jsonl")
    assert not (tmp_path / "never.jsonl").exists()
    # What is new in the run is no obstacle.
    edit_header(other, lambda header: header["graders"].update(new="0" * 64))
    both = play(data, tmp_path / "both", Answering(), Answering("other"))
    assert "not in the baseline, so not gated: other" in gate(both, baseline).notes
    uncheck(baseline)
    lines = baseline.read_text().splitlines(keepends=True)
    baseline.write_text("".join(line for line in lines if '"c03"' not in line))
    assert "2 turns of the run are not in the baseline, so not gated" in gate(both, baseline).notes
    baseline.write_text(lines[0] + lines[1].replace('"c00"', '"c99"'))
    with pytest.raises(RunError, match="turn 1 of c99 of answering is in the baseline and not in the run"):
        gate(both, baseline)


def test_a_baseline_is_sorted_lines_and_a_broken_one_is_named_by_its_line(baseline, tmp_path):
    run = open_run(tmp_path / "base")
    lines = baseline.read_text().splitlines()
    header = json.loads(lines[0])
    assert {"format", "run_id", "spec", "model", "datasets", "graders", "primary", "gates", "mode", "check"} == {
        *header
    } - {"configuration"}
    rows = [json.loads(line) for line in lines[1:]]
    assert [(row["conversation"], row["turn"]) for row in rows] == sorted(turns(8, 0, 1))
    assert rows[0]["measures"]["llm_calls"] == 1
    assert rows[0]["measures"]["cost_usd"] is None
    for number, line, text in (
        (1, "", ":1: Expecting value"),
        (1, '{"format": 2}', ":1: Invalid enum value 2 - at `$.format`"),
        (1, '{"format": 1}', ":1: Object missing required field `run_id`"),
        (3, lines[2][:-5], ":3: Expecting ',' delimiter"),
        (3, "[]", ":3: Expected `object`, got `array`"),
        (3, lines[1], ":3: duplicate turn of answering"),
        (3, lines[2].replace('"turn": 1', '"turn": "1"'), ":3: Expected `int`, got `str` - at `$.turn`"),
        (
            3,
            lines[2].replace('"answer_f1": 1.0', '"answer_f1": "good"'),
            ":3: Expected `int | float | null`, got `str`",
        ),
        (3, lines[2].replace('"answer_f1": 1.0', '"answer_f1": NaN'), ":3: NaN is not JSON"),
    ):
        baseline.write_text("\n".join([*lines[: number - 1], line, *lines[number:]]))
        with pytest.raises(RunError) as refused:
            gate(run, baseline)
        assert str(refused.value).startswith(f"{baseline}{text}")
    baseline.write_text(lines[0])
    with pytest.raises(RunError, match="has no turns"):
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
    command = ["gate", str(tmp_path / "run"), "--baseline", file]
    assert main([*command, "--junit", str(tmp_path / "out" / "gate.xml")]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("regression: answer_f1 of answering 1.000 -> 0.000")
    assert len(lines) <= 20
    assert "worse turns" not in lines
    (how,) = [line for line in lines if line.startswith("how: ")]
    texts = [how, *((tmp_path / "run" / name).read_text() for name in ("gate.json", "gate.md"))]
    assert all("eans are over turns" in text and "per turn and per conversation" in text for text in texts)
    assert any(
        line.startswith("worst turns of answering (--explain has more): answer_f1 1 -> 0, turn 1 of c00")
        for line in lines
    )
    assert main([*command, "--explain"]) == 2
    explained = capsys.readouterr().out
    assert "answering: answer_f1 1 -> 0, turn 1 of c00: c00 0\n        run: no idea  [" in explained
    assert main([*command, "--margin=answer_f1=1", "--summary", str(tmp_path / "own.md")]) == 0
    assert main([*command, "--margin", "answer_f1"]) == 1
    assert "--margin: expected measure=number, as in answer_f1=0.1, not 'answer_f1'" in capsys.readouterr().err
    assert main([*command, "--junit", file + "/x"]) == 1
    assert all((tmp_path / "run" / name).is_file() for name in FILES)

    suites = ElementTree.parse(tmp_path / "out" / "gate.xml").getroot()
    assert (suites.tag, suites.get("tests"), suites.get("failures")) == ("testsuites", "16", "1")
    second, first = suites.findall("testsuite")
    assert (first.get("name"), first.get("failures"), first.get("errors")) == ("a|b<c>\\x07", "0", "0")
    assert second.get("name") == "answering"
    cases = {case.get("name"): case for case in second.findall("testcase")}
    assert "worse by 1 on every turn" in cases["answer_f1"].find("failure").get("message")
    assert cases["exact_match"].find("skipped").get("type") == "worse, size undecided", "it is secondary"
    assert cases["llm_calls"].find("failure") is None
    numbers = {p.get("name"): p.get("value") for p in second.find("properties")}
    assert (float(numbers["answer_f1.loss"]), int(numbers["answer_f1.n"]), numbers["run"]) == (1.0, 16, "run")
    assert first.find("testcase/skipped").get("type") == "undecided"

    content = json.loads((tmp_path / "run" / "gate.json").read_text())
    assert (content["result"], content["exit_code"], content["primary"]) == (
        "regression",
        2,
        ["answer_f1", "llm_calls"],
    )
    assert {row["measure"] for row in content["measures"] if row["decides"]} == {"answer_f1", "llm_calls"}
    assert "exchangeable" in content["assumed"]

    step = (tmp_path / "step.md").read_text()
    assert step.count("## agentlab gate:") == 3, "every gate adds to it, unless --summary names another file"
    assert "### a\\|b&lt;c&gt;" in step
    assert "| answer_f1 | 16 | 1.000 | 0.000 | +1 | +1 | 0.05 |" in step
    assert "pass" in (tmp_path / "own.md").read_text()


def test_an_inconclusive_gate_exits_with_3(data, baseline, tmp_path):
    play(data, tmp_path / "run", Answering(wrong=turns(2, 0)))
    assert main(["gate", str(tmp_path / "run"), "--baseline", str(baseline)]) == 3
