"""Answers of other systems become a run: what their source says is there, what it does not say is unknown."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.errors import DatasetError
from agentlab.evals.compare.pairs import compare
from support.predictions import row, write_questions, write_rows
from support.small_runs import Answering, play, write_set

NAMES = [f"q{n}" for n in range(12)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    made = write_questions(tmp_path / "theirs", {key: ["blue", "forty two"] for key in NAMES}, category="colours")
    rows = [
        row(system, name, "It is blue." if right else "red", turn, **more)
        for system, right, more in (
            ("once", True, {"llm_calls": 1, "input_tokens": 9, "output_tokens": 2, "seconds": 0.5, "cost_usd": 0.25}),
            ("never", False, {"llm_calls": 1, "retrieval_steps": 0, "published": {"em": 0, "route": "once"}}),
        )
        for name in NAMES
        for turn in (0, 1)
    ]
    write_rows(made / "predictions.jsonl", rows)
    return made


def rewrite(folder: Path, change) -> None:
    file = folder / "predictions.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines()
    change(lines)
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def rewrite_rows(folder: Path, change) -> None:
    """`change` returns what is new in a row."""
    file = folder / "predictions.jsonl"
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    write_rows(file, [{**each, **change(each)} for each in rows])


def test_a_run_has_a_flow_a_system_and_nothing_unknown_becomes_a_number(folder, capsys):
    assert main(["import", "predictions", "theirs", "-o", "run"]) == 0
    shown = capsys.readouterr().out
    assert "theirs on not said" in shown
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


def test_compare_gate_show_trace_report_and_cache_work_on_it(folder, capsys, tmp_path):
    main(["import", "predictions", "theirs", "-o", "run"])
    found = {d.measure.name: d for d in compare(al.open_run("run")).pairs[0].differences}
    assert (found["answer_f1"].reading, found["llm_calls"].reading) == ("B worse", "unchanged")
    for unknown in ("input_tokens", "latency_s", "published_em", "retrieval_steps"):
        assert (found[unknown].reading, found[unknown].p) == ("unknown", None)
    assert main(["gate", "run", "--baseline", "b.jsonl", "--update"]) == 0
    assert main(["gate", "run", "--baseline", "b.jsonl"]) == 0
    for command in (["show", "run", "q1"], ["trace", "run", "q1"], ["compare", "run"], ["cache", "run"]):
        assert main(command) == 0
    assert "tokens unknown, time unknown" in capsys.readouterr().out
    assert main(["report", "run", "-o", "run.html"]) == 0


def test_a_row_without_an_answer_is_a_turn_that_failed_and_counts(folder):
    rewrite(folder, lambda lines: lines.__setitem__(0, json.dumps(row("once", "q0", None, error="timed out"))))
    run = al.import_predictions(folder, "run")
    assert run.result.flows["once"].errors == 1
    failed = run.scores[(run.scores.flow == "once") & (run.scores.conversation == "q0") & (run.scores.turn == 0)]
    assert set(failed[failed.metric != "published_em"].value) == {0.0}
    assert "timed out" in failed.reason.iloc[0]


def test_people_and_programs_that_rated_an_answer_become_measures(folder):
    noted = {"f1": 0.5, "automatic": {"RougeL": 0.25}, "human": {"faithful": {"r1": 4, "r2": 1, "r3": 3}}}
    rewrite(folder, lambda lines: lines.__setitem__(0, json.dumps(row("once", "q0", "blue", published=noted))))
    scores = al.import_predictions(folder, "run").scores.query("flow == 'once' and conversation == 'q0' and turn == 0")
    values = dict(zip(scores.metric, scores.value, strict=True))
    assert (values["published_f1"], values["published_automatic_RougeL"]) == (0.5, 0.25)
    assert values["published_human_faithful"] == 3, "the median of the raters"


def test_csv_is_read_alike(folder, tmp_path):
    columns = "system,conversation,turn,answer,llm_calls,published.em,published.human.faithful.r1"
    lines = [f'a,{name},{turn},"red, or\nblue",,1,4' for name in NAMES for turn in (0, 1)]
    (tmp_path / "answers.csv").write_text("\n".join([columns, *lines]) + "\n", encoding="utf-8")
    run = al.import_predictions("answers.csv", "run", dataset="theirs")
    assert run.table()["a"]["published_em"] == 1
    assert run.table().isna()["a"]["LLM calls / turn"]
    assert run.folder.turns()[0].reply.text == "red, or\nblue"
    assert run.folder.turns()[0].published == {"em": 1, "human": {"faithful": {"r1": 4}}}


def test_of_csv_empty_rows_are_skipped_and_only_published_has_parts(folder, tmp_path, capsys):
    columns = "system,conversation,turn,answer,answer.raw,system.version,published.em"
    lines = ["a,q0,0,blue,WRONG,2,1", "", ",,,,,,", "a,q0,1,forty two,WRONG,2,1", ""]
    (tmp_path / "answers.csv").write_text("\n".join([columns, *lines]) + "\n", encoding="utf-8")
    assert main(["import", "predictions", "answers.csv", "--dataset", "theirs", "-o", "run"]) == 0
    assert "called so: 'answer.raw', 'system.version'\n" in capsys.readouterr().err
    found = [(row.flow, row.reply.text, row.published) for row in al.open_run("run").folder.turns()]
    assert found == [("a", "blue", {"em": 1}), ("a", "forty two", {"em": 1})]


def test_epochs_of_imported_answers_are_epochs_and_what_was_not_answered_is_not_asked(folder, capsys):
    rows = [
        row(system, name, "blue" if epoch == 0 else "red", 0) | {"epoch": epoch}
        for system, epochs in (("once", 2), ("never", 1))
        for name in NAMES
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


def test_what_a_scorer_would_have_to_see_of_the_trace_is_unknown(folder):
    conversations = [
        {"id": name, "turns": [{"user": "x", "reference_answers": ["blue"], "needs_document_lookup": True}] * 2}
        for name in NAMES
    ]
    write_rows(folder / "conversations.jsonl", conversations)
    al.import_predictions(folder, "run")
    run = al.score("run", ["lookup", "answer"])
    assert run.result.flows["once"].scores["lookup_accuracy"].mean is None
    assert run.result.flows["once"].scores["answer_f1"].mean == 0.5


def test_keys_that_nobody_reads_and_turns_that_nobody_answered_are_told(folder, capsys):
    rewrite(folder, lambda lines: lines.__setitem__(0, json.dumps(row("once", "q0", "blue", tokens=9))))
    rewrite(folder, lambda lines: lines.pop())
    assert main(["import", "predictions", "theirs", "-o", "run"]) == 0
    told = capsys.readouterr().err
    assert "'tokens'" in told
    assert "never answered 23 of 24 turns" in told


WRONG = {
    "a missing column": (lambda rows: rows[3].pop("answer"), "predictions.jsonl:4: answer is missing"),
    "a turn out of range": (lambda rows: rows[3].update(turn=2), ":4: turn 2 is out of range: q1 has 2 turns"),
    "a turn below 0": (lambda rows: rows[3].update(turn=-1), ":4:"),
    "a system twice": (lambda rows: rows.append(rows[3]), ":49: once answers turn 1 of q1 twice"),
    "NaN": (lambda rows: rows[3].update(seconds=float("nan")), ":4: not usable: NaN is not JSON"),
    "an unknown conversation": (lambda rows: rows[3].update(conversation="q99"), "'q99'"),
    "a count that is a word": (lambda rows: rows[3].update(llm_calls="one"), ":4: Expected"),
    "no object": (lambda rows: rows.insert(0, None), ":1: not a JSON object"),
    "a number that no float holds": (
        lambda rows: rows[3].update(published={"a": {"em": 10**400}}),
        ":4: published: a_em is beyond 1e+15",
    ),
    "two numbers of one name": (
        lambda rows: rows[3].update(published={"a_b": 1, "a": {"b": 0}}),
        ":4: published has two numbers that are called a_b",
    ),
    "numbers too deep": (
        lambda rows: rows[3].update(published={"a": [json.loads("[" * 200 + "]" * 200)]}),
        ":4: published: nested deeper than",
    ),
    "less than nothing": (lambda rows: rows[3].update(cost_usd=-1), ":4: Expected"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_row_that_cannot_be_used_is_one_line_and_leaves_nothing(folder, wrong, capsys, tmp_path):
    rows = [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]
    change, told = WRONG[wrong]
    change(rows)
    write_rows(folder / "predictions.jsonl", rows)
    before = sorted(tmp_path.rglob("*"))
    assert main(["import", "predictions", "theirs", "-o", "run"]) == 1
    said = capsys.readouterr().err
    assert told in said
    assert len(said.splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("system,conversation,turn\n", ":1: the column answer is missing"),
        ("system,conversation,turn,answer\na,q0,0\n", ":2: 3 cells under 4 columns"),
        ("system,conversation,turn,answer\na,q0,zero,blue\n", ":2: turn: 'zero' is not a number"),
        ("system,conversation,turn,answer,seconds\na,q0,0,blue,nan\n", ":2: seconds: 'nan' is not a number"),
        (
            "system,conversation,turn,answer,published.human,published.human.f\na,q0,0,blue,1,2\n",
            "answers.csv:1: the column 'published.human' is one value and has parts",
        ),
        ("", "the column system is missing"),
        ("x" * 200_000, "the column system is missing"),
    ],
)
def test_csv_that_cannot_be_used_is_one_line(folder, text, told, capsys, tmp_path):
    (tmp_path / "answers.csv").write_text(text)
    assert main(["import", "predictions", "answers.csv", "--dataset", "theirs", "-o", "run"]) == 1
    said = capsys.readouterr().err
    assert told in said
    assert len(said.splitlines()) == 1


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
    assert "there are no predictions here" in capsys.readouterr().err


def test_a_run_of_our_own_is_compared_with_imported_answers_to_the_same_questions(tmp_path, own_home, capsys):
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
    shown = capsys.readouterr().out
    assert "B worse" in shown
    assert "not known of both: LLM calls / turn" in shown
    assert "published_em" not in shown.rpartition("A: asked")[2], "only one side can have it"


def test_what_has_no_calls_cannot_be_had_elsewhere(folder, capsys):
    assert main(["import", "predictions", str(folder), "--out", "run"]) == 0
    capsys.readouterr()
    assert main(["reprice", "run", "--prefill", "100"]) == 1
    assert capsys.readouterr().err == "agentlab: run holds no calls, so none can be had elsewhere\n"


@pytest.mark.parametrize("to", ["csv", "parquet"])
def test_what_a_source_noted_is_json_in_a_table(folder, to):
    parquet = pytest.importorskip("pyarrow.parquet") if to == "parquet" else None
    assert main(["import", "predictions", str(folder), "--out", "run"]) == 0
    assert main(["export", "run", "--to", to, "--out", "turns"]) == 0
    with Path("turns").open() as opened:
        rows = list(csv.DictReader(opened)) if parquet is None else parquet.read_table("turns").to_pylist()
    assert {row["published"] for row in rows} == {"{}", '{"em": 0, "route": "once"}'}


def with_documents(folder: Path) -> Path:
    """Rows of one system name what they were made of; the questions say so for the other."""
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
def test_passages_are_those_of_the_row_or_else_of_the_turn(folder, form):
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
    assert {row.flow: row.passages for row in run.played()} == {"once": ["sky", "sea"], "never": ["sea"]}


@pytest.mark.parametrize(
    ("passages", "problem"),
    [(["see"], "'see'"), ("sea", "passages"), ([""], "passages"), ([7], "passages")],
    ids=["unknown", "no list", "empty", "a number"],
)
def test_a_passage_that_cannot_be_is_named_with_its_line(folder, passages, problem):
    with_documents(folder)
    rewrite(folder, lambda lines: lines.__setitem__(2, json.dumps(row("once", "q1", "blue", passages=passages))))
    with pytest.raises(DatasetError, match=r"predictions\.jsonl:3") as told:
        al.import_predictions(folder, "run")
    assert problem in str(told.value)
    assert not Path("run").exists()


@pytest.mark.parametrize("passages", ["sea", [7], [""], {"sea": 1}], ids=["no list", "a number", "empty", "a mapping"])
def test_documents_of_a_turn_that_are_not_named_by_a_list_are_one_line(folder, passages, capsys):
    rows = [json.loads(line) for line in (folder / "conversations.jsonl").read_text(encoding="utf-8").splitlines()]
    rows[2]["turns"][1]["metadata"] = {"passages": passages}
    write_rows(folder / "conversations.jsonl", rows)
    assert main(["import", "predictions", "theirs", "-o", "run"]) == 1
    told = "conversations.jsonl:3: turn 1 of q2: metadata.passages is no list of ids of documents\n"
    assert capsys.readouterr().err.endswith(told)


def test_the_measures_that_decide_can_be_chosen_and_those_that_came_along_are_among_them(folder, capsys):
    rewrite_rows(folder, lambda each: {"published": {"em": int(each["system"] == "once")}})
    assert main(["import", "predictions", "theirs", "-o", "run", "--primary", "published_em"]) == 0
    (pair,) = compare(al.open_run("run")).pairs
    assert [d.measure.name for d in pair.differences if d.primary] == ["published_em"]
    assert "published_em" in str(pair) and pair["published_em"].reading == "B worse"
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


def test_what_is_not_known_of_both_is_not_told_as_no_difference(folder, capsys):
    assert main(["import", "predictions", "theirs", "-o", "run", "--primary", "answer_f1", "--primary", "seconds"]) == 1
    capsys.readouterr()
    main(["import", "predictions", "theirs", "-o", "run", "--primary", "answer_f1", "--primary", "input_tokens"])
    (pair,) = compare(al.open_run("run")).pairs
    assert str(pair).endswith("not known of both: input_tokens")
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
    scorers = ["ranking", "retrieval", "lookup", "groundedness"]
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
    lines = [f"a,{name},{turn},,True,1" for name in NAMES for turn in (0, 1)]
    (tmp_path / "answers.csv").write_text("\n".join([columns, *lines]) + "\n", encoding="utf-8")
    run = al.import_predictions("answers.csv", "run", dataset="theirs")
    assert run.result.flows["a"].errors == len(lines), "a program writes what it has not as an empty cell"
    assert run.table()["a"]["published_em"] == 1, "and 1 as True"


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [("seconds", 1e18, "seconds"), ("input_tokens", 10**22, "input_tokens"), ("cost_usd", 1e16, "cost_usd")],
)
def test_an_amount_that_nobody_measured_is_one_line_and_leaves_nothing(folder, capsys, key, value, told):
    rewrite(folder, lambda lines: lines.__setitem__(0, json.dumps(row("once", "q0", "blue", **{key: value}))))
    assert main(["import", "predictions", "theirs", "-o", "run"]) == 1
    said = capsys.readouterr().err
    assert "predictions.jsonl:1" in said and told in said and said.count("\n") == 1
    assert not Path("run").exists()


def test_epochs_that_are_counted_from_one_are_told(folder, capsys):
    rewrite_rows(folder, lambda each: {"epoch": 1})
    assert main(["import", "predictions", "theirs", "-o", "run"]) == 1
    assert "epochs are counted from 0" in capsys.readouterr().err


def test_what_an_imported_run_has_not_is_said_and_not_offered(folder, capsys):
    rewrite(folder, lambda lines: lines.__setitem__(0, json.dumps(row("once", "q0", None))))
    main(["import", "predictions", "theirs", "-o", "run"])
    capsys.readouterr()
    assert main(["show", "run"]) == 0
    shown = capsys.readouterr().out
    assert "run.log" not in shown and "agentlab trace" not in shown
    with pytest.raises(al.AgentlabError, match="was imported"):
        al.open_run("run").trace("once", "q0")
    assert main(["memory", "run", "q0"]) == 1
    assert "was imported" in capsys.readouterr().err


def test_what_a_source_says_of_its_documents_says_nothing_of_its_tools(tmp_path, monkeypatch):
    """Events that are not known are no events that did not happen."""
    monkeypatch.chdir(tmp_path)
    made = write_questions(tmp_path / "theirs", {"q0": ["blue"], "q1": ["red"]})
    rows = [json.loads(line) for line in (made / "conversations.jsonl").read_text().splitlines()]
    call = {"name": "paint", "description": "Paints.", "parameters": {"type": "object", "properties": {}}}
    for each, expected in zip(rows, ([{"name": "paint"}], []), strict=True):
        each["tools"] = [call]
        each["turns"][0] |= {"expected_calls": expected, "relevant_doc_ids": ["sea"]}
    write_rows(made / "conversations.jsonl", rows)
    write_rows(made / "corpus.jsonl", [{"doc_id": "sea", "title": "Sea", "text": "It is blue."}])
    said = [row("one", name, "blue", tool_calls=3, passages=["sea"]) for name in ("q0", "q1")]
    write_rows(made / "predictions.jsonl", [*said, *({**each, "system": "two"} for each in said)])
    scores = al.import_predictions(made, "run", scorers=["tools", "groundedness"]).scores
    assert scores[scores.metric == "groundedness"].value.notna().all()
    others = scores[scores.metric != "groundedness"]
    assert len(others) and others.value.isna().all()


def test_what_was_found_in_earlier_turns_is_known_only_where_their_sources_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = write_questions(tmp_path / "theirs", {"q0": ["blue", "blue"]})
    rows = [json.loads(line) for line in (made / "conversations.jsonl").read_text().splitlines()]
    for turn in rows[0]["turns"]:
        turn["relevant_doc_ids"] = ["sea"]
    write_rows(made / "conversations.jsonl", rows)
    texts = {"sea": "Water glitters.", "sun": "Yellow light."}
    write_rows(made / "corpus.jsonl", [{"doc_id": n, "title": n, "text": text} for n, text in texts.items()])

    def grounded(first: list[str] | None) -> list[float]:
        said = [
            row("one", "q0", "Water glitters.", 0, passages=first),
            row("one", "q0", "Water glitters.", 1, passages=["sun"]),
        ]
        write_rows(made / "predictions.jsonl", said)
        run = al.import_predictions(made, tmp_path / str(first), scorers=["groundedness"])
        return run.scores.sort_values("turn").value.astype(float).tolist()

    assert grounded(["sea"]) == [1.0, 1.0], "what was found before still holds"
    assert grounded(["sun"]) == [0.0, 0.0]
    assert all(value != value for value in grounded(None)), "not said, not known"


def test_an_import_whose_grading_broke_is_mended_by_grading_it_again(folder, monkeypatch):
    al.import_predictions(folder, "run", primary=["published_em"])
    Path("broken.py").write_text(
        "def metrics(turn):\n    return ('x',)\n\ndef score(turn, outcome):\n    raise ValueError('no')\n"
    )
    monkeypatch.syspath_prepend(str(Path.cwd()))
    with pytest.raises(al.AgentlabError, match="no"):
        al.score("run", ["broken"])
    assert al.score("run", ["answer"], primary=["published_em"]).result.status == "complete"


def test_what_decides_and_is_known_of_nobody_is_not_equal(folder, capsys):
    write_rows(folder / "predictions.jsonl", [row(s, n, "blue", t) for s in "ab" for n in NAMES for t in (0, 1)])
    assert main(["import", "predictions", "theirs", "-o", "run", "--primary", "input_tokens"]) == 0
    shown = capsys.readouterr().out
    assert "what decides is not known of both" in shown and "equal on every turn" not in shown
    rewrite_rows(folder, lambda each: {"retrieval_steps": int(each["system"] == "a")})
    assert main(["import", "predictions", "theirs", "-o", "steps", "--primary", "retrieval_steps"]) == 0
