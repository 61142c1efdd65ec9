"""Comparisons of small runs: pairs, counts, refusals, unknown values, and the printed lines."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from agentlab.cli.parser import main
from agentlab.core.errors import RunError
from agentlab.core.messages import Usage
from agentlab.evals.compare.claims import evaluate_claims
from agentlab.evals.grade.fingerprints import fingerprints, read_source
from agentlab.evals.scorers import answer, similarity
from agentlab.knowledge import refusal
from agentlab.lab.run import compare, open_run
from support.small_runs import Answering, edit_header, play, write_set
from support.unsealing import unseal


@pytest.fixture
def data(tmp_path, own_home):
    return write_set(tmp_path / "colours", conversations=6)


def comparison_of(path):
    return compare(open_run(path))._repr_markdown_()


def by_name(comparison, pair=0):
    return {d.measure.name: d for d in comparison.pairs[pair].differences}


def test_two_flows_of_a_run_are_paired_turn_by_turn(data, tmp_path):
    half = {(f"c{c:02}", 0) for c in range(6)}
    flows = [Answering("good"), Answering("poor", wrong=half, calls=lambda turn: 1 + turn[1])]
    comparison = compare(play(data, tmp_path / "run", *flows))
    by_measure = by_name(comparison)
    f1 = by_measure["answer_f1"]
    assert (f1.n, f1.conversations, f1.a, f1.b, f1.difference) == (12, 6, 1.0, 0.5, -0.5)
    assert f1.ci95[0] < -0.5 < f1.ci95[1], "an unseen conversation may lose more or less"
    assert f1.p == f1.p_adjusted == 2 / 2**6, "all six conversations agree: the least a two-sided exact test can say"
    assert f1.d_z == pytest.approx(-0.5 / 0.5222, abs=1e-3)
    assert by_measure["llm_calls"].difference == 0.5
    assert by_measure["input_tokens"].difference == 50
    assert by_measure["tool_calls"].difference == 0
    assert by_measure["tool_calls"].detectable_loss is None, "what never varies says nothing about noise"
    assert comparison.primary == ("answer_f1", "llm_calls")
    assert comparison.family == 2, "both primary measures differ"
    assert {name for name, d in by_measure.items() if d.primary} == {"answer_f1", "llm_calls"}
    assert [(flip.metric, flip.conversation, flip.turn) for flip in comparison.pairs[0].lost][:2] == [
        ("answer_f1", "c00", 0),
        ("answer_f1", "c01", 0),
    ]
    assert not comparison.pairs[0].gained
    assert comparison.pairs[0]["answer_f1"] is f1
    with pytest.raises(RunError, match="Did you mean 'answer_f1'"):
        comparison.pairs[0]["anser_f1"]


def test_undecided_difference_names_the_conversations_needed(data, tmp_path, capsys):
    some = {(f"c{c:02}", 0) for c in range(3)}
    by_measure = by_name(compare(play(data, tmp_path / "run", Answering("good"), Answering("poor", wrong=some))))
    assert (by_measure["answer_f1"].verdict, by_measure["answer_f1"].p_adjusted) == ("no difference shown", None)
    needed = by_measure["answer_f1"].conversations_needed
    assert needed.is_least, "only three differ"
    assert by_measure["exact_match"].conversations_needed is by_measure["llm_calls"].conversations_needed is None, (
        "the one is secondary, the other is equal"
    )
    assert main(["compare", str(tmp_path / "run")]) == 0
    assert f"answer_f1: no difference shown; if they are equally good, {needed} exclude" in capsys.readouterr().out


def test_all_pairs_of_one_question_are_one_family(data, tmp_path):
    some = {(f"c{c:02}", 0) for c in range(5)}
    flows = [Answering("good"), *(Answering(f"poor{n}", wrong=some | {("c05", n)}) for n in range(2))]
    run = play(data, tmp_path / "run", *flows)
    one, both = compare(run, flows=["good", "poor0"]), compare(run)
    assert (one.family, both.family) == (1, 2)
    assert by_name(both)["answer_f1"].p == by_name(one)["answer_f1"].p
    assert by_name(both)["answer_f1"].p_adjusted >= by_name(one)["answer_f1"].p_adjusted


def test_with_enough_conversations_a_difference_is_called_by_its_direction(tmp_path, own_home):
    data = write_set(tmp_path / "colours", conversations=12, turns=1)
    poor = Answering("poor", wrong={(f"c{c:02}", 0) for c in range(12)}, calls=lambda turn: 1)
    run = play(data, tmp_path / "run", Answering("good", calls=lambda turn: 2), poor)
    by_measure = by_name(compare(run))
    assert (by_measure["answer_f1"].verdict, by_measure["llm_calls"].verdict) == ("B worse", "B better")
    mirrored = by_name(compare(run, flows=["poor", "good"]))
    assert (mirrored["answer_f1"].verdict, mirrored["llm_calls"].verdict) == ("B better", "B worse")
    for name, d in by_measure.items():
        if d.difference is not None:
            assert mirrored[name].difference == -d.difference
            assert mirrored[name].p == pytest.approx(d.p)


def test_a_failed_turn_is_in_with_its_score_of_nothing(data, tmp_path):
    failing = Answering("failing", failing={("c00", 0), ("c03", 1)})
    by_measure = by_name(compare(play(data, tmp_path / "run", Answering("good"), failing)))
    assert (by_measure["answer_f1"].n, by_measure["answer_f1"].b) == (12, pytest.approx(10 / 12))
    assert by_measure["llm_calls"].difference == 0, "a failed turn keeps what it cost"


def test_unknown_turn_makes_its_measure_unknown(data, tmp_path):
    run = play(data, tmp_path / "run", Answering("a"), Answering("b"), usage=Usage())
    comparison = compare(run)
    by_measure = by_name(comparison)
    for name in ("input_tokens", "output_tokens", "cost_usd"):
        assert (by_measure[name].verdict, by_measure[name].a, by_measure[name].difference, by_measure[name].p) == (
            "unknown",
            *[None] * 3,
        )
        assert by_measure[name].n == 12
    assert by_measure["llm_calls"].a == 1
    assert set(comparison.table.query("verdict == 'unknown'")["measure"]) >= {"input_tokens", "cost_usd"}


def test_two_runs_are_compared_by_the_flows_they_share_or_by_one_each(data, tmp_path):
    before = play(data, tmp_path / "before", Answering("x"), Answering("old"))
    after = play(data, tmp_path / "after", Answering("x", wrong={("c01", 1)}), Answering("new"))
    shared = compare(before, after)
    assert [(pair.a, pair.b) for pair in shared.pairs] == [("x (before)", "x (after)")]
    assert by_name(shared)["answer_f1"].b == pytest.approx(11 / 12)
    assert [(flip.conversation, flip.turn) for flip in shared.pairs[0].lost if flip.metric == "answer_f1"] == [
        ("c01", 1)
    ]
    assert compare(before, after, flows=["old", "new"]).pairs[0].a == "old (before)"
    gained = compare(after, before).pairs[0].gained
    assert {(flip.conversation, flip.turn) for flip in gained} == {("c01", 1)}
    for flows, text in ((["old"], "unknown flow of this run 'old'"), (["x", "y", "z"], "one flow of each")):
        with pytest.raises(RunError, match=text):
            compare(before, after, flows=flows)
    other = play(data, tmp_path / "other", Answering("unshared"))
    with pytest.raises(RunError, match="share no flow; name one of each: --flow x"):
        compare(before, other)
    with pytest.raises(RunError, match="name a second flow or a second run"):
        compare(other)


def test_runs_that_do_not_measure_the_same_are_refused_in_one_line(data, tmp_path):
    run = play(data, tmp_path / "run")
    shorter = play(data, tmp_path / "shorter", limit=3)
    embedded = play(data, tmp_path / "embedded", embedder="hashing/hashing-32")
    stopped = play(data, tmp_path / "stopped", budget={"calls": 3})
    less = play(data, tmp_path / "less")
    unseal(less.path)
    lines = (less.path / "turns.jsonl").read_text().splitlines(keepends=True)
    (less.path / "turns.jsonl").write_text("".join(line for line in lines if '"c05"' not in line))
    for other, text in (
        (shorter, "data sets differ (colours)"),
        (embedded, "graders differ (similarity)"),
        (stopped, "--resume"),
        (open_run(less.path), "turns.jsonl has 10 turns, the summary 12"),
    ):
        for pair in ((run, other), (other, run)):
            with pytest.raises(RunError) as refused:
                compare(*pair)
            assert text in str(refused.value)
            assert "\n" not in str(refused.value)
    assert compare(run, play(data, tmp_path / "again")).pairs


def test_a_turn_that_was_scored_on_one_side_only_is_an_error(data, tmp_path):
    run = play(data, tmp_path / "run", Answering("a"), Answering("b"))
    unseal(run.path)
    turns = tmp_path / "run" / "turns.jsonl"
    rows = [json.loads(line) for line in turns.read_text().splitlines()]
    for row in rows:
        if (row["flow"], row["conversation"]) == ("b", "c02"):
            del row["scores"]["exact_match"]
    turns.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(RunError, match="turn 1 of c02 has exact_match on one side only"):
        compare(open_run(run.path))


def test_run_with_other_primary_measures_is_refused_in_one_line(data, tmp_path):
    runs = [
        play(data, tmp_path / name, primary=list(names)) for name, names in (("a", ["answer_f1"]), ("b", ["failed"]))
    ]
    with pytest.raises(RunError, match=r"answer_f1 decide in .*, failed in "):
        compare(*runs)
    assert compare(runs[0], play(data, tmp_path / "silent")).primary == ("answer_f1",)


def test_latency_is_primary_within_a_run_and_secondary_between_live_runs(data, tmp_path):
    spec = {"primary": ["answer_f1", "latency_s"]}
    run = play(data, tmp_path / "run", Answering("a"), Answering("b"), **spec)
    assert by_name(compare(run))["latency_s"].primary
    later = play(data, tmp_path / "later", Answering("a"), Answering("b"), **spec)
    assert not by_name(compare(run, later))["latency_s"].primary
    assert compare(run, later).primary == ("answer_f1",)


def test_cheaper_and_not_worse_is_one_claim_with_one_sentence(tmp_path, own_home, capsys):
    data = write_set(tmp_path / "colours", conversations=80, turns=1)
    one, two = (lambda turn: 1), (lambda turn: 2)
    wrong = {(f"c{c:02}", 0) for c in range(20)}
    flows = [Answering("dear", calls=two), Answering("cheap", calls=one), Answering("poor", wrong=wrong, calls=one)]
    run = play(data, tmp_path / "run", *flows)
    cheap, poor = evaluate_claims(compare(run), improves=["llm_calls"], max_loss={"answer_f1": 0.05})
    assert (cheap.verdict, poor.verdict) == ("yes", "no")
    assert str(cheap).startswith("yes: cheap against dear is cheaper on average in llm_calls (2.00 -> 1.00, p = ")
    assert "not worse in answer_f1 (at most +0.0368 worse, margin 0.05)" in str(cheap), "all 80 are equal"
    (wide,) = evaluate_claims(compare(run, flows=["dear", "poor"]), improves=["llm_calls"], max_loss={"answer_f1": 0.4})
    assert wide.verdict == "yes"
    assert cheap.p_adjusted >= cheap.p
    (open_,) = evaluate_claims(compare(run, flows=["dear", "poor"]), max_loss={"answer_f1": 0.3})
    assert open_.verdict == "undecided"
    assert str(open_).endswith(f"; if they are equally good, {open_.more} exclude a loss of 0.3 (4 times in 5)")
    (back,) = evaluate_claims(compare(run, flows=["cheap", "dear"]), improves=["llm_calls"])
    assert back.verdict == "no"
    assert "dear against cheap is dearer on average in llm_calls (1.00 -> 2.00" in str(back)
    for request, text in (
        ({"improves": ["cost"]}, "unknown measure of this comparison"),
        ({"improves": ["cost_usd"]}, "cost_usd is not known on every turn"),
        ({"max_loss": {"answer_f1": -1.0}}, "must be 0 or more"),
    ):
        with pytest.raises(RunError, match=text):
            evaluate_claims(compare(run), **request)
    command = ["compare", str(run.path), "--flow", "dear", "--flow", "cheap"]
    assert main([*command, "--improves", "llm_calls", "--max-loss", "answer_f1=.05"]) == 0
    assert (
        capsys.readouterr().out.splitlines()[1].startswith("yes: cheap against dear is cheaper on average in llm_calls")
    )
    assert main([*command, "--max-loss", "answer_f1=.05", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["answers"][0]["reading"] == "yes"
    assert main([*command, "--max-loss", "answer_f1"]) == 1
    assert "--max-loss: expected measure=number, as in answer_f1=0.1, not 'answer_f1'" in capsys.readouterr().err


def test_the_command_line_shows_tables_and_plain_data(data, tmp_path, capsys):
    play(data, tmp_path / "run", Answering("a"), Answering("[b]", wrong={("c04", 1)}), Answering("c"))
    assert main(["compare", str(tmp_path / "run")]) == 0
    output = capsys.readouterr().out
    for part in (
        "A: a   B: [b]",
        "A: a   B: c",
        "answer_f1",
        "lost: answer_f1 1 -> 0, turn 2 of c04: c04 1\n    a: blue  [",
        "    [b]: no idea  [",
        "exchangeable",
        "means are over turns",
    ):
        assert part in output
    assert main(["compare", str(tmp_path / "run"), "--flow", "c", "--flow", "[b]", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    (pair,) = content["pairs"]
    f1 = next(row for row in pair["differences"] if row["measure"] == "answer_f1")
    assert (pair["a"], f1["better"], f1["n"], f1["reading"]) == ("c", "higher", 12, "no difference shown")
    assert pair["lost"][0] == {"metric": "answer_f1", "conversation": "c04", "turn": 1, "epoch": 0, "a": 1.0, "b": 0.0}
    assert main(["compare", str(tmp_path / "run"), "--flow", "a", "--flow", "d"]) == 1
    assert "unknown flow of this run 'd'" in capsys.readouterr().err
    assert main(["compare", *[str(tmp_path / "run")] * 3]) == 1
    table = compare(open_run(tmp_path / "run")).table
    assert list(table["B"].unique()) == ["[b]", "c"]
    assert "&lt;" not in table.to_string()
    page = open_run(tmp_path / "run").report().text
    assert "Bars: means are over turns, " in page and "means are over turns" in comparison_of(tmp_path / "run")


SCORER = '''"""Grades by length."""

from agentlab.evals.scorers import Score
from agentlab.knowledge.citations import strip_markers

LIMIT = 10


def metrics(turn):
    return ("short",)


def score(turn, outcome):
    return {"short": Score(value=float(len(strip_markers(outcome.reply.text)) < LIMIT), reason="")}
'''


def test_a_grader_is_its_code_and_not_its_comments(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)

    def of(source: str) -> str:
        (tmp_path / "grading.py").write_text(source)
        sys.modules.pop("grading", None)
        importlib.invalidate_caches()
        return fingerprints([importlib.import_module("grading")], "any")["grading"]

    same = SCORER.replace('"""Grades by length."""', '"""Says something else."""\n# more').replace(
        "< LIMIT", "<  LIMIT"
    )
    assert of(same) == of(SCORER)
    assert of(SCORER.replace("10", "11")) != of(SCORER)
    before = of(SCORER)
    (tmp_path / "grading.yaml").write_text("words: a b")
    with_table = of(SCORER)
    (tmp_path / "grading.yaml").write_text("words: a c")
    assert len({before, with_table, of(SCORER)}) == 3, "tables of the code are in the hash, too"
    (tmp_path / "grading.yaml").unlink()
    one, other = (fingerprints([answer, similarity], name) for name in ("hashing/hashing-64", "hashing/hashing-32"))
    assert one["answer"] == other["answer"]
    assert one["similarity"] != other["similarity"], "it embeds"

    # What a scorer imports counts, at any depth.
    before = of(SCORER)
    changed = tmp_path / "refusal.py"
    changed.write_text(Path(refusal.__file__).read_text() + "\nSTRICTER = True\n")
    find_spec = importlib.util.find_spec

    def elsewhere(name):
        return SimpleNamespace(origin=str(changed)) if name == "agentlab.knowledge.refusal" else find_spec(name)

    monkeypatch.setattr("importlib.util.find_spec", elsewhere)
    read_source.cache_clear()  # where a module is found is looked up once in a process
    assert of(SCORER) != before
    read_source.cache_clear()


def test_a_grader_that_is_an_object_is_its_class_and_its_settings():
    class Lenient:
        def __init__(self, limit):
            self.limit = limit

    one, same, other = (fingerprints([Lenient(limit)], "any") for limit in (1, 1, 2))
    assert one == same != other


def test_a_grader_without_source_can_be_compared_with_nothing(data, tmp_path, monkeypatch):
    cell = type("Cell", (), {"__module__": "typed_in"})
    monkeypatch.setitem(sys.modules, "typed_in", ModuleType("typed_in"))
    unknown = fingerprints([cell()], "any")
    runs = [play(data, tmp_path / name) for name in "ab"]
    for run in runs:
        edit_header(run, lambda header: header["graders"].update(unknown))
    with pytest.raises(RunError, match=r"graders differ \(typed_in:Cell\)"):
        compare(*runs)
