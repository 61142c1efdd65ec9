"""Answers of other systems become a run: values of their source are stored, all others are unknown."""

from __future__ import annotations

import csv
import json
import os
import re
from pathlib import Path

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.evals.compare.pairs import compare
from support.predictions import QUESTIONS, rewrite, rewrite_rows, row, write_answers, write_rows
from support.small_runs import Answering, play, write_set


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_answers(tmp_path / "theirs")


def test_a_run_has_a_flow_a_system_and_nothing_unknown_becomes_a_number(folder, capsys):
    assert main(["import", "predictions", "theirs", "-o", "run"]) == 0
    output = capsys.readouterr().out
    assert "theirs on not said" in output
    run = al.open_run("run")
    table = run.table()
    assert list(table) == ["once", "never"]
    assert table["once"]["LLM calls / turn"] == 1
    assert (table["once"]["latency mean s"], table["once"]["cost USD"]) == (0.5, 6.0)
    assert table["never"]["retrieval steps / turn"] == 0, "said to be none"
    unknown = ("tool calls / turn", "input tokens / turn", "cost USD", "latency mean s", "fallback rate")
    assert table.loc[[*unknown], "never"].isna().all()
    assert table.isna()["once"]["retrieval steps / turn"], "nobody said"
    assert table.isna()["once"]["published_em"], "the other system's was noted"
    assert run.turns[run.turns.flow == "never"].latency_s.isna().all()
    assert (run.result.flows["never"].memory_unavailable, run.result.mode) == (None, "imported")


def test_compare_gate_show_trace_and_report_work_on_it(folder, capsys, tmp_path):
    main(["import", "predictions", "theirs", "-o", "run"])
    run = {d.measure.name: d for d in compare(al.open_run("run")).pairs[0].differences}
    assert (run["answer_f1"].verdict, run["llm_calls"].verdict) == ("B worse", "unchanged")
    for unknown in ("input_tokens", "latency_s", "published_em", "retrieval_steps"):
        assert (run[unknown].verdict, run[unknown].p) == ("unknown", None)
    assert main(["gate", "run", "--baseline", "b.jsonl", "--update"]) == 0
    assert main(["gate", "run", "--baseline", "b.jsonl"]) == 0
    for command in (["show", "run", "q1"], ["show", "--trace", "run", "q1"], ["compare", "run"]):
        assert main(command) == 0
    assert "tokens -, time -" in capsys.readouterr().out
    assert main(["report", "run", "-o", "run.html"]) == 0


def test_a_turn_may_be_of_another_category_than_its_conversation(folder):
    rows = [json.loads(line) for line in (folder / "conversations.jsonl").read_text(encoding="utf-8").splitlines()]
    rows[0]["turns"][1]["metadata"] = {"category": "sums"}
    write_rows(folder / "conversations.jsonl", rows)
    turns = al.import_predictions(folder, "run").turns.query("conversation == 'q0' and flow == 'once'")
    assert turns.sort_values("turn").category.tolist() == ["colours", "sums"]


def test_a_row_without_an_answer_is_a_turn_that_failed_and_counts(folder):
    rewrite(folder, lambda lines: lines.__setitem__(0, json.dumps(row("once", "q0", None, error="timed out"))))
    run = al.import_predictions(folder, "run")
    assert run.result.flows["once"].errors == 1
    failed = run.scores[(run.scores.flow == "once") & (run.scores.conversation == "q0") & (run.scores.turn == 1)]
    assert set(failed[failed.metric != "published_em"].value) == {0.0}
    assert "timed out" in failed.reason.iloc[0]


def test_human_and_automatic_ratings_become_measures(folder):
    noted = {"f1": 0.5, "automatic": {"RougeL": 0.25}, "human": {"faithful": {"r1": 4, "r2": 1, "r3": 3}}}
    rewrite(folder, lambda lines: lines.__setitem__(0, json.dumps(row("once", "q0", "blue", published=noted))))
    scores = al.import_predictions(folder, "run").scores.query("flow == 'once' and conversation == 'q0' and turn == 1")
    values = dict(zip(scores.metric, scores.value, strict=True))
    assert (values["published_f1"], values["published_automatic_RougeL"]) == (0.5, 0.25)
    assert values["published_human_faithful"] == 3, "the median of the raters"


def test_csv_is_read_alike(folder, tmp_path):
    columns = "system,conversation,turn,answer,llm_calls,published.em,published.human.faithful.r1"
    lines = [f'a,{name},{turn},"red, or\nblue",,1,4' for name in QUESTIONS for turn in (0, 1)]
    (tmp_path / "answers.csv").write_text("\n".join([columns, *lines]) + "\n", encoding="utf-8")
    run = al.import_predictions("answers.csv", "run", dataset="theirs")
    assert run.table()["a"]["published_em"] == 1
    assert run.table().isna()["a"]["LLM calls / turn"]
    assert run.folder.turns()[0].reply.text == "red, or\nblue"
    assert run.folder.turns()[0].published == {"em": 1, "human": {"faithful": {"r1": 4}}}


def test_csv_import_skips_empty_rows_and_splits_only_published(folder, tmp_path, capsys):
    columns = "system,conversation,turn,answer,answer.raw,system.version,published.em"
    lines = ["a,q0,0,blue,WRONG,2,1", "", ",,,,,,", "a,q0,1,forty two,WRONG,2,1", ""]
    (tmp_path / "answers.csv").write_text("\n".join([columns, *lines]) + "\n", encoding="utf-8")
    assert main(["import", "predictions", "answers.csv", "--dataset", "theirs", "-o", "run"]) == 0
    assert "ignored: 'answer.raw', 'system.version'\n" in capsys.readouterr().err
    run = [(row.flow, row.reply.text, row.published) for row in al.open_run("run").folder.turns()]
    assert run == [("a", "blue", {"em": 1}), ("a", "forty two", {"em": 1})]


def test_imported_epochs_count_and_unanswered_turns_are_left_out(folder, capsys):
    rows = [
        row(system, name, "blue" if epoch == 0 else "red since 1990", 0) | {"epoch": epoch}
        for system, epochs in (("once", 2), ("never", 1))
        for name in QUESTIONS
        for epoch in range(epochs)
    ]
    write_rows(folder / "predictions.jsonl", rows)
    assert main(["import", "predictions", "theirs", "-o", "run"]) == 0
    run = al.open_run("run")
    of = run.passing("answer_f1", 2).set_index("flow")
    assert (of["pass@k"]["once"], of["pass^k"]["once"]) == (1, 0)
    assert of.isna()["pass@k"]["never"], "it has one epoch"
    assert (run.result.flows["once"].turns, run.result.flows["never"].turns) == (24, 12)
    capsys.readouterr()
    assert main(["show", "run", "--all"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("answer_correctness of")]
    assert line.startswith("answer_correctness of once from 0.5 on: pass@2 1.00")
    assert main(["report", "run", "-o", "run.html"]) == 0


def test_trace_scores_of_an_import_are_unknown(folder):
    conversations = [
        {"id": name, "turns": [{"user": "x", "reference_answers": ["blue"], "needs_document_lookup": True}] * 2}
        for name in QUESTIONS
    ]
    write_rows(folder / "conversations.jsonl", conversations)
    al.import_predictions(folder, "run")
    run = al.score("run", ["lookup", "answer"])
    assert run.result.flows["once"].scores["lookup_accuracy"].mean is None
    assert run.result.flows["once"].scores["answer_f1"].mean == 0.5


def test_unread_keys_and_unanswered_turns_are_reported(folder, capsys):
    rewrite(folder, lambda lines: lines.__setitem__(0, json.dumps(row("once", "q0", "blue", tokens=9))))
    rewrite(folder, lambda lines: lines.pop())
    assert main(["import", "predictions", "theirs", "-o", "run"]) == 0
    printed = capsys.readouterr().err
    assert "'tokens'" in printed
    assert "never answered 23 of 24 turns" in printed


WRONG = {
    "a missing column": (lambda rows: rows[3].pop("answer"), "predictions.jsonl:4: answer is missing"),
    "a turn out of range": (lambda rows: rows[3].update(turn=2), ":4: turn 2 is out of range: q1 has 2 turns"),
    "a turn below 0": (lambda rows: rows[3].update(turn=-1), ":4:"),
    "a duplicate row": (lambda rows: rows.append(rows[3]), ":49: duplicate answer of once to turn 1 of q1"),
    "NaN": (lambda rows: rows[3].update(seconds=float("nan")), ":4: not usable: NaN is not JSON"),
    "an unknown conversation": (lambda rows: rows[3].update(conversation="q99"), "'q99'"),
    "a count that is a word": (lambda rows: rows[3].update(llm_calls="one"), ":4: Expected"),
    "no object": (lambda rows: rows.insert(0, None), ":1: not a JSON object"),
    "a number that no float holds": (
        lambda rows: rows[3].update(published={"a": {"em": 10**400}}),
        ":4: not usable: a number is too large",
    ),
    "two numbers of one name": (
        lambda rows: rows[3].update(published={"a_b": 1, "a": {"b": 0}}),
        ":4: published: duplicate name a_b",
    ),
    "numbers too deep": (
        lambda rows: rows[3].update(published={"a": [json.loads("[" * 200 + "]" * 200)]}),
        ":4: not usable: nested deeper than",
    ),
    "less than nothing": (lambda rows: rows[3].update(cost_usd=-1), ":4: Expected"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_row_that_cannot_be_used_is_one_line_and_leaves_nothing(folder, wrong, capsys, tmp_path):
    rows = [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]
    change, text = WRONG[wrong]
    change(rows)
    write_rows(folder / "predictions.jsonl", rows)
    before = sorted(tmp_path.rglob("*"))
    assert main(["import", "predictions", "theirs", "-o", "run"]) == 1
    printed = capsys.readouterr().err
    assert text in printed
    assert len(printed.splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("system,conversation,turn\n", ":1: the column answer is missing"),
        ("system,conversation,turn,answer\na,q0,0\n", ":2: 3 cells in 4 columns"),
        ("system,conversation,turn,answer\na,q0,zero,blue\n", ":2: turn: 'zero' is not a number"),
        ("system,conversation,turn,answer,seconds\na,q0,0,blue,nan\n", ":2: seconds: 'nan' is not a number"),
        (
            "system,conversation,turn,answer,published.human,published.human.f\na,q0,0,blue,1,2\n",
            "answers.csv:1: the column 'published.human' has a value and also parts",
        ),
        ("", "the column system is missing"),
        ("x" * 200_000, "the column system is missing"),
    ],
)
def test_csv_that_cannot_be_used_is_one_line(folder, text, message, capsys, tmp_path):
    (tmp_path / "answers.csv").write_text(text)
    assert main(["import", "predictions", "answers.csv", "--dataset", "theirs", "-o", "run"]) == 1
    printed = capsys.readouterr().err
    assert message in printed
    assert len(printed.splitlines()) == 1


def test_answers_of_any_size_are_read_and_a_line_without_end_is_named(folder, capsys):
    os.truncate(folder / "predictions.jsonl", 2**32)
    assert main(["import", "predictions", "theirs", "-o", "run"]) == 1
    printed = capsys.readouterr().err
    assert "predictions.jsonl:49: " in printed and "a line of more than" in printed and printed.count("\n") == 1
    assert not Path("run").exists()


def test_csv_of_any_size_is_read_and_a_line_without_end_is_named(folder, tmp_path, capsys):
    (tmp_path / "answers.csv").write_text("system,conversation,turn,answer\na,q0,0,blue\n", encoding="utf-8")
    os.truncate(tmp_path / "answers.csv", 2**32)
    assert main(["import", "predictions", "answers.csv", "--dataset", "theirs", "-o", "run"]) == 1
    printed = capsys.readouterr().err
    assert "answers.csv:3: " in printed and "a line of more than" in printed and printed.count("\n") == 1


def test_only_long_imports_and_gradings_report_progress(folder, capsys, monkeypatch):
    many = [row(f"s{n}", name, "blue", turn) for n in range(90) for name in QUESTIONS for turn in (0, 1)]
    write_rows(folder / "predictions.jsonl", many)
    assert main(["import", "predictions", "theirs", "-o", "short"]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("agentlab.cli.progress.SECONDS_BETWEEN_LINES", 0.0)
    assert main(["import", "predictions", "theirs", "-o", "long"]) == 0
    printed = capsys.readouterr().err
    read, size = re.findall(r"^bytes read: ([\d,]+) of ([\d,]+), about \d+ s left$", printed, re.MULTILINE)[-1]
    assert read == size == f"{(folder / 'predictions.jsonl').stat().st_size:,}"
    assert "graded: 1,000 of 2,160, about " in printed and printed.endswith("graded: 2,160 of 2,160, about 0 s left\n")
    assert main(["score", "long"]) == 0
    assert "graded: 2,160 of 2,160" in capsys.readouterr().err


def test_table_is_shown_for_more_answers_than_fit_in_memory(folder, capsys, monkeypatch):
    monkeypatch.setattr("agentlab.cli.published.COMPARED_AT_ONCE", 47)
    assert main(["import", "predictions", "theirs", "-o", "run"]) == 0
    output = capsys.readouterr().out
    assert "answer_correctness" in output and "Ship" not in output and "poor turns" not in output
    assert "comparison of 48 turns skipped" in output
    assert "(show --all: every measure, pair and cause)" in output and "agentlab compare run" in output
    monkeypatch.setattr("agentlab.lab.run.Run.map_turns", None)
    monkeypatch.setattr("agentlab.lab.run.Run.turn_rows", None)
    assert main(["import", "predictions", "theirs", "-o", "other"]) == 0, "no turn is read for it"
    rewrite_rows(folder, lambda each: {"answer": None})
    capsys.readouterr()
    main(["import", "predictions", "theirs", "-o", "failed"])
    assert "48 of 48 turns failed and score 0" in capsys.readouterr().out


def test_half_a_surrogate_pair_in_an_answer_is_kept(folder):
    rewrite(folder, lambda lines: lines.__setitem__(0, lines[0].replace("It is", "\\ud83d")))
    run = al.import_predictions(folder, "run")
    assert run.folder.turns()[-24].reply.text.endswith("blue.")


def test_a_folder_that_is_in_use_and_a_folder_without_answers(folder, capsys, tmp_path):
    (tmp_path / "run").mkdir()
    assert main(["import", "predictions", "theirs", "-o", "run"]) == 0, "an empty folder will do"
    assert main(["import", "predictions", "theirs", "-o", "run"]) == 1
    assert "run is not empty" in capsys.readouterr().err
    (folder / "predictions.jsonl").write_bytes(b"\xce\xf0\x9f")
    assert main(["import", "predictions", "theirs", "-o", "other"]) == 1
    assert "predictions.jsonl:1: the line is not UTF-8" in capsys.readouterr().err
    (folder / "predictions.jsonl").unlink()
    assert main(["import", "predictions", "theirs", "-o", "other"]) == 1
    assert "the folder has no predictions" in capsys.readouterr().err


def test_own_run_is_compared_with_imported_answers(tmp_path, own_home, capsys):
    data = write_set(tmp_path / "colours", conversations=6)
    ours = play(data, tmp_path / "ours", Answering("asked", wrong=[("c00", 0)]), scorers=["answer"])
    noted = {"retrieval_steps": 1, "published": {"em": 1}}
    rows = [row("theirs", f"c{c:02}", "red", turn, **noted) for c in range(6) for turn in (0, 1)]
    write_rows(tmp_path / "answers.jsonl", rows)
    al.import_predictions(tmp_path / "answers.jsonl", tmp_path / "theirs", dataset=data)
    for name in ("ours", "theirs"):
        assert main(["score", str(tmp_path / name), "--scorer", "answer"]) == 0
    flows = ["--flow", "asked", "--flow", "theirs"]
    assert main(["compare", str(ours.path), str(tmp_path / "theirs"), *flows]) == 0
    output = capsys.readouterr().out
    assert "B worse" in output
    assert "unknown for A or B: LLM calls / turn" in output
    assert "published_em" not in output.rpartition("A: asked")[2], "only one side can have it"


def test_run_without_calls_cannot_be_repriced(folder, capsys):
    assert main(["import", "predictions", str(folder), "--out", "run"]) == 0
    capsys.readouterr()
    assert main(["cost", "run", "--prefill", "100"]) == 1
    assert capsys.readouterr().err == "agentlab: run has no calls to reprice\n"


@pytest.mark.parametrize("to", ["csv", "parquet"])
def test_published_values_are_json_in_a_table(folder, to):
    parquet = pytest.importorskip("pyarrow.parquet") if to == "parquet" else None
    assert main(["import", "predictions", str(folder), "--out", "run"]) == 0
    assert main(["export", "run", "--to", to, "--out", "turns"]) == 0
    with Path("turns").open() as opened:
        rows = list(csv.DictReader(opened)) if parquet is None else parquet.read_table("turns").to_pylist()
    assert {row["published"] for row in rows} == {"{}", '{"em": 0, "route": "once"}'}
