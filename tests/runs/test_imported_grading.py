"""Grading answers of other systems: reported documents count, and unknown values give no score."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.errors import DatasetError
from agentlab.evals.compare.pairs import compare
from support.predictions import QUESTIONS, rewrite, rewrite_rows, row, write_answers, write_questions, write_rows


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return write_answers(tmp_path / "theirs")


def with_documents(folder: Path) -> Path:
    """The rows of one system name their passages; for the other system the questions name them."""
    rows = [json.loads(line) for line in (folder / "conversations.jsonl").read_text(encoding="utf-8").splitlines()]
    for conversation in rows:
        for turn in conversation["turns"]:
            turn["metadata"] = {"passages": ["sea"]}
    write_rows(folder / "conversations.jsonl", rows)
    documents = [{"doc_id": name, "title": name, "text": f"The {name} is blue."} for name in ("sea", "sky")]
    write_rows(folder / "corpus.jsonl", documents)
    answers = [json.loads(line) for line in (folder / "predictions.jsonl").read_text(encoding="utf-8").splitlines()]
    named = [row | {"passages": ["sky", "sea"]} if row["system"] == "once" else row for row in answers]
    write_rows(folder / "predictions.jsonl", named)
    return folder


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_passages_come_from_the_row_or_the_turn(folder, form):
    file = with_documents(folder) / "predictions.jsonl"
    if form == "csv":
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        with (folder / "predictions.csv").open("w", newline="") as opened:
            writer = csv.DictWriter(
                opened, ["system", "conversation", "turn", "answer", "passages"], extrasaction="ignore"
            )
            writer.writeheader()
            writer.writerows(
                {**row, "passages": json.dumps(row["passages"]) if "passages" in row else ""} for row in rows
            )
        file.unlink()
    run = al.import_predictions(folder, "run")
    assert {row.flow: row.passages for row in run.turn_rows()} == {"once": ["sky", "sea"], "never": ["sea"]}


@pytest.mark.parametrize(
    ("passages", "problem"),
    [(["see"], "'see'"), ("sea", "passages"), ([""], "passages"), ([7], "passages")],
    ids=["unknown", "no list", "empty", "a number"],
)
def test_a_passage_that_cannot_be_is_named_with_its_line(folder, passages, problem):
    with_documents(folder)
    rewrite(folder, lambda lines: lines.__setitem__(2, json.dumps(row("once", "q1", "blue", passages=passages))))
    with pytest.raises(DatasetError, match=r"predictions\.jsonl:3") as text:
        al.import_predictions(folder, "run")
    assert problem in str(text.value)
    assert not Path("run").exists()


@pytest.mark.parametrize("passages", ["sea", [7], [""], {"sea": 1}], ids=["no list", "a number", "empty", "a mapping"])
def test_documents_of_a_turn_that_are_not_named_by_a_list_are_one_line(folder, passages, capsys):
    rows = [json.loads(line) for line in (folder / "conversations.jsonl").read_text(encoding="utf-8").splitlines()]
    rows[2]["turns"][1]["metadata"] = {"passages": passages}
    write_rows(folder / "conversations.jsonl", rows)
    assert main(["import", "predictions", "theirs", "-o", "run"]) == 1
    text = "conversations.jsonl:3: turn 1 of q2: metadata.passages must be a list of document ids\n"
    assert capsys.readouterr().err.endswith(text)


def test_primary_measures_can_be_chosen_from_published_ones(folder, capsys):
    rewrite_rows(folder, lambda each: {"published": {"em": int(each["system"] == "once")}})
    assert main(["import", "predictions", "theirs", "-o", "run", "--primary", "published_em"]) == 0
    (pair,) = compare(al.open_run("run")).pairs
    assert [d.measure.name for d in pair.differences if d.primary] == ["published_em"]
    assert "published_em" in str(pair) and pair["published_em"].verdict == "B worse"
    al.score("run", primary=["answer_f1", "llm_calls"])
    assert compare(al.open_run("run")).primary == ("answer_f1", "llm_calls")
    al.score("run")
    assert compare(al.open_run("run")).primary == ("answer_f1", "llm_calls"), "as they are"
    al.score("run", primary=["published_em"])
    capsys.readouterr()
    assert main(["import", "predictions", "theirs", "-o", "other", "--primary", "published_me"]) == 1
    assert "published_em" in capsys.readouterr().err and not Path("other").exists()
    assert main(["score", "run", "--primary", "published_me"]) == 1
    assert compare(al.open_run("run")).primary == ("published_em",), "a refusal changes nothing"


def test_unknown_measure_is_not_reported_as_no_difference(folder, capsys):
    assert main(["import", "predictions", "theirs", "-o", "run", "--primary", "answer_f1", "--primary", "seconds"]) == 1
    capsys.readouterr()
    main(["import", "predictions", "theirs", "-o", "run", "--primary", "answer_f1", "--primary", "input_tokens"])
    (pair,) = compare(al.open_run("run")).pairs
    assert str(pair).endswith("unknown for one side: input_tokens")
    assert "no difference shown" not in str(pair)


def test_the_documents_of_an_answer_grade_its_retrieval(folder, capsys):
    write_rows(folder / "corpus.jsonl", [
        {"doc_id": name, "title": name, "text": text} for name, text in (("sea", "It is blue."), ("sun", "Yellow."))
    ])  # fmt: skip
    rows = [json.loads(line) for line in (folder / "conversations.jsonl").read_text().splitlines()]
    for each in rows:
        for turn in each["turns"]:
            turn |= {"relevant_doc_ids": ["sea"], "needs_document_lookup": True}
    write_rows(folder / "conversations.jsonl", rows)
    given = {"once": {"passages": ["sun", "sea"], "retrieval_steps": 1}, "never": {"retrieval_steps": 0}}
    rewrite_rows(folder, lambda each: given[each["system"]])
    scorers = ["retrieval", "lookup", "groundedness"]
    table = al.import_predictions(folder, "run", scorers=scorers).table()
    assert table["once"]["context_precision"] == 0.5 and table["once"]["retrieval_recall"] == 1
    assert table["once"]["retrieval_mrr"] == 0.5 and table["once"]["groundedness"] == 1
    assert (table["once"]["lookup_accuracy"], table["never"]["lookup_accuracy"]) == (1, 0)
    assert table["never"]["retrieval_recall"] == 0, "it searched nothing, as its source says"
    rewrite_rows(folder, lambda each: {"passages": None, "retrieval_steps": None})
    unknown = al.import_predictions(folder, "unknown", scorers=scorers).table()
    assert unknown.loc[["retrieval_recall", "lookup_accuracy"]].isna().all().all()


def test_an_answer_that_is_empty_is_no_refusal(folder, tmp_path):
    columns = "system,conversation,turn,answer,published.em,seconds"
    lines = [f"a,{name},{turn},,True,1" for name in QUESTIONS for turn in (0, 1)]
    (tmp_path / "answers.csv").write_text("\n".join([columns, *lines]) + "\n", encoding="utf-8")
    run = al.import_predictions("answers.csv", "run", dataset="theirs")
    assert run.result.flows["a"].errors == len(lines), "a program writes what it has not as an empty cell"
    assert run.table()["a"]["published_em"] == 1, "and 1 as True"


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [("seconds", 1e18, "seconds"), ("input_tokens", 10**22, "input_tokens"), ("cost_usd", 1e16, "cost_usd")],
)
def test_impossible_amount_is_one_line_and_leaves_nothing(folder, capsys, key, value, text):
    rewrite(folder, lambda lines: lines.__setitem__(0, json.dumps(row("once", "q0", "blue", **{key: value}))))
    assert main(["import", "predictions", "theirs", "-o", "run"]) == 1
    printed = capsys.readouterr().err
    assert "predictions.jsonl:1" in printed and text in printed and printed.count("\n") == 1
    assert not Path("run").exists()


def test_epochs_counted_from_one_are_reported(folder, capsys):
    rewrite_rows(folder, lambda each: {"epoch": 1})
    assert main(["import", "predictions", "theirs", "-o", "run"]) == 1
    assert "count epochs from 0" in capsys.readouterr().err


def test_imported_run_names_and_omits_missing_parts(folder, capsys):
    rewrite(folder, lambda lines: lines.__setitem__(0, json.dumps(row("once", "q0", None))))
    main(["import", "predictions", "theirs", "-o", "run"])
    capsys.readouterr()
    assert main(["show", "run"]) == 0
    output = capsys.readouterr().out
    assert "run.log" not in output and "--trace" not in output
    with pytest.raises(al.AgentlabError, match="was imported"):
        al.open_run("run").trace("once", "q0")
    assert main(["memory", "run", "q0"]) == 1
    assert "was imported" in capsys.readouterr().err


def test_known_documents_of_an_import_imply_no_known_tools(tmp_path, monkeypatch):
    """Unknown events do not count as absent events."""
    monkeypatch.chdir(tmp_path)
    made = write_questions(tmp_path / "theirs", {"q0": ["blue"], "q1": ["red"]})
    rows = [json.loads(line) for line in (made / "conversations.jsonl").read_text().splitlines()]
    call = {"name": "paint", "description": "Paints.", "parameters": {"type": "object", "properties": {}}}
    for each, expected in zip(rows, ([{"name": "paint"}], []), strict=True):
        each["tools"] = [call]
        each["turns"][0] |= {"expected_calls": expected, "relevant_doc_ids": ["sea"]}
    write_rows(made / "conversations.jsonl", rows)
    write_rows(made / "corpus.jsonl", [{"doc_id": "sea", "title": "Sea", "text": "It is blue."}])
    texts = [row("one", name, "blue", tool_calls=3, passages=["sea"]) for name in ("q0", "q1")]
    write_rows(made / "predictions.jsonl", [*texts, *({**each, "system": "two"} for each in texts)])
    scores = al.import_predictions(made, "run", scorers=["tools", "groundedness"]).scores
    assert scores[scores.metric == "groundedness"].value.notna().all()
    others = scores[scores.metric != "groundedness"]
    assert len(others) and others.value.isna().all()


def test_earlier_passages_are_known_only_with_their_sources(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = write_questions(tmp_path / "theirs", {"q0": ["blue", "blue"]})
    rows = [json.loads(line) for line in (made / "conversations.jsonl").read_text().splitlines()]
    for turn in rows[0]["turns"]:
        turn["relevant_doc_ids"] = ["sea"]
    write_rows(made / "conversations.jsonl", rows)
    texts = {"sea": "Water glitters.", "sun": "Yellow light."}
    write_rows(made / "corpus.jsonl", [{"doc_id": n, "title": n, "text": text} for n, text in texts.items()])

    def grounded(first: list[str] | None) -> list[float]:
        lines = [
            row("one", "q0", "Water glitters.", 0, passages=first),
            row("one", "q0", "Water glitters.", 1, passages=["sun"]),
        ]
        write_rows(made / "predictions.jsonl", lines)
        run = al.import_predictions(made, tmp_path / str(first), scorers=["groundedness"])
        return run.scores.sort_values("turn").value.astype(float).tolist()

    assert grounded(["sea"]) == [1.0, 1.0], "what was found before still holds"
    assert grounded(["sun"]) == [0.0, 0.0]
    assert all(value != value for value in grounded(None)), "not said, not known"


def test_failed_grading_of_an_import_is_repaired_by_regrading(folder, monkeypatch):
    al.import_predictions(folder, "run", primary=["published_em"])
    Path("broken.py").write_text(
        "def metrics(turn):\n    return ('x',)\n\ndef score(turn, outcome):\n    raise ValueError('no')\n"
    )
    monkeypatch.syspath_prepend(str(Path.cwd()))
    with pytest.raises(al.AgentlabError, match="no"):
        al.score("run", ["broken"])
    assert al.score("run", ["answer"], primary=["published_em"]).result.status == "complete"


def test_unknown_primary_measure_is_not_equal(folder, capsys):
    write_rows(folder / "predictions.jsonl", [row(s, n, "blue", t) for s in "ab" for n in QUESTIONS for t in (0, 1)])
    assert main(["import", "predictions", "theirs", "-o", "run", "--primary", "input_tokens"]) == 0
    output = capsys.readouterr().out
    assert ": a primary measure is unknown" in output and "equal on every turn" not in output
    rewrite_rows(folder, lambda each: {"retrieval_steps": int(each["system"] == "a")})
    assert main(["import", "predictions", "theirs", "-o", "steps", "--primary", "retrieval_steps"]) == 0
