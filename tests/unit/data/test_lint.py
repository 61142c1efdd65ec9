"""Impossible expectations are reported before the run."""

from __future__ import annotations

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.data.datasets import load_dataset
from agentlab.data.lint import lint
from agentlab.models.scripted import Scripted
from support.conversation_sets import GOOD, write
from support.memory_sets import SESSIONS
from support.memory_sets import write as write_memory_set
from support.paths import OWN, PUBLIC


def test_impossible_expectations_are_reported_before_a_run(tmp_path, own_home, caplog):
    tool = {"name": "book", "parameters": {"type": "object", "properties": {"day": {"type": "string"}}}}
    odd = {
        "id": "odd",
        "tools": [tool],
        "turns": [
            {"user": "q", "no_call": True, "expected_calls": [{"name": "book"}]},
            {"user": "q", "call_order": "sequenc", "expected_calls": [{"name": "cancel"}]},
            {"user": "q", "expected_calls": [{"name": "book", "accepted_arguments": {"date": ["Monday"]}}]},
            {"user": "q", "expected_memory": [{"op": "add"}]},
            {"user": "q", "expected_calls": [{"name": "save_memory"}, {"name": "book", "optional_arguments": ["day"]}]},
            {"user": "q", "scored": False, "expected_calls": [{"name": "nothing"}]},
        ],
    }
    folder = write(tmp_path / "set", GOOD, odd, corpus=[{"doc_id": "d", "title": "", "text": "Closed on Monday."}])
    location = f"{folder / 'conversations.jsonl'}:2: "
    assert list(lint(load_dataset(folder))) == [
        f"{location}turn 1 of odd: no_call: contradicts expected_calls",
        f"{location}turn 2 of odd: call_order: unknown order 'sequenc'; use 'sequence' or 'any'",
        f"{location}turn 2 of odd: expected_calls: cancel is not a tool of the conversation",
        f"{location}turn 3 of odd: expected_calls: book has no argument date",
        f"{location}turn 4 of odd: expected_memory: add has no content",
    ]
    with al.Lab(model=Scripted(["x"], loop=True), datasets=[folder], embedder="hashing/hashing-64") as lab:
        lab.run_sync(out=tmp_path / "run")
    assert f"{location}turn 1 of odd: no_call: contradicts expected_calls (and 4 more)" in caplog.text


LONG = [f"Question number {n} about the colour of the house at the end of street {n}?" for n in range(9)]


def one(name: str, *turns: dict, **more: object) -> dict:
    return {"id": name, "turns": list(turns), **more}


def question(user: str, *answers: str, **more: object) -> dict:
    return {"user": user, "reference_answers": list(answers), **more}


CORPUS = [{"doc_id": "d", "title": "", "text": "Red."}, {"doc_id": "e", "title": "", "text": "Blue."}]
TOOL = {
    "name": "book",
    "parameters": {"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]},
}


def call(**more: object) -> dict:
    return {"user": "Book it", "expected_calls": [{"name": "book", **more}]}


@pytest.mark.parametrize(
    "rows, text",
    [
        ([one("a", question("Hi?", "Yes")), one("b", question("hi", "Yes"))], "2: b: the same turns as a in row 1"),
        (
            [one("a", question(" ".join(LONG), "x")), one("b", question(" ".join(LONG) + " Please.", "x"))],
            "2: b: nearly the same turns as a in row 1",
        ),
        (
            [one("a", question("I say the house is red. What?", "The house is red"))],
            "1: turn 1 of a: reference_answers: ",
        ),
        (
            [one("a", question("Colour?", "The house is red", scored=False), question("Which?", "The house is red."))],
            "'The house is red.' already occurs in the reply of turn 1",
        ),
        (
            [one("a", question("Hi?", "Red")), one("b", question("Hi?", "Blue"), question("And?", "x"))],
            "2: turn 1 of b: same message as turn 1 of a in row 1, but there 'Red' is right",
        ),
        ([one("a", question("Hi?", "Red")), one("b", {"user": "Hi?", "unanswerable": True})], "unanswerable is false"),
        (
            [one(n, question("Hi?", relevant_doc_ids=[d])) for n, d in (("a", "d"), ("b", "e"))],
            "but there 'd' is relevant",
        ),
        (
            [one(n, {"user": "Hi?", "expected_calls": c}) for n, c in (("a", []), ("b", [{"name": "x"}]))],
            "but there no call is expected",
        ),
        (
            [one(n, {"user": "Hi?", "needs_document_lookup": b}) for n, b in (("a", True), ("b", False))],
            "needs_document_lookup is true",
        ),
        (
            [one("a", {"user": "x", "unanswerable": True, "relevant_doc_ids": ["d"]})],
            "unanswerable: true, but 'd' is relevant",
        ),
        (
            [one("a", {"user": "x", "needs_document_lookup": False, "relevant_doc_ids": ["d"]})],
            "lookup: false, but 'd'",
        ),
        ([one("a", {"user": "x"})], "turn 1 of a: the turn has no expectation"),
        ([one("a", question(" ", "Red"))], "turn 1 of a: user: the message is empty"),
        ([one("a", question("x", "..."))], "'...' has no word that a reply could share"),
        ([one("a", call(), tools=[TOOL])], "book requires day, but no value of it is accepted"),
        ([one("a", call(accepted_arguments={"day": []}), tools=[TOOL])], "book accepts no value of day"),
    ],
)
def test_improbable_entries_are_findings_with_file_and_row(tmp_path, capsys, rows, text):
    folder = write(tmp_path / "set", *rows, corpus=CORPUS)
    assert main(["lint", str(folder)]) == 1
    lines, *rest = capsys.readouterr().out.splitlines()
    assert lines.startswith(f"{folder / 'conversations.jsonl'}:") and text in lines
    assert rest[-1] == f"set: 1 found in {len(rows)} conversations"


@pytest.mark.parametrize(
    "rows",
    [
        [
            one("a", question("Hi?", "Red"), question("And?", "x")),
            one("b", question("Hi?", "Red"), question("Or?", "y")),
        ],
        [one("a", question("Hi?", "Red")), one("b", question("Bye?", "Red"), question("Hi?", "Blue"))],
        [one("a", question("Is it the old red house or the new one?", "the old red house"))],
        [
            one("a", question("Monday?", "Monday")),
            one("b", question("The house is red", "Right"), question("q", "is red")),
        ],
        [
            one("a", question("The house is red.", "OK")),
            one("b", question("The door is red.", "OK"), question("q", "x")),
        ],
        [one("a", question("Colour?", "It is red now", scored=False, session="s"), question("q", "It is red now"))],
        [one(n, question("Hi?", n), metadata={"today": f"2026-01-0{d}"}) for n, d in (("Red", 1), ("Blue", 2))],
        [one("a", call(optional_arguments=["day"]), tools=[TOOL])],
        [one("a", call(arguments_visible_in_context=False), tools=[TOOL])],
        [one("a", {"user": "x", "scored": False}, {"user": "y", "no_call": True})],
    ],
)
def test_plausible_entries_are_no_findings(tmp_path, capsys, rows):
    assert main(["lint", str(write(tmp_path / "set", *rows, corpus=CORPUS))]) == 0
    assert "set: 0 found" in capsys.readouterr().out


def test_documents_that_are_the_same_are_found(tmp_path, capsys):
    first = {"doc_id": "d", "title": "House", "text": "It is red."}
    for again, count in (({"doc_id": "e"}, 1), ({"doc_id": "e", "title": "Door"}, 0)):
        folder = write(tmp_path / f"set{count}", one("a", question("Hi?", "Red")), corpus=[first, first | again])
        assert main(["lint", str(folder)]) == count
        assert ("corpus.jsonl: e: same text as d" in capsys.readouterr().out) is bool(count)


def test_lookup_without_documents_is_a_finding_and_few_conversations_a_note(tmp_path, capsys):
    rows = [one(f"c{n}", question(LONG[n], f"answer {n}")) for n in range(6)]
    assert main(["lint", str(write(tmp_path / "five", *rows[:5]))]) == 0
    assert "note: five: 5 conversations are too few" in capsys.readouterr().out
    assert main(["lint", str(write(tmp_path / "six", *rows))]) == 0
    assert "note" not in capsys.readouterr().out
    assert main(["lint", str(write(tmp_path / "none", one("a", {"user": "x", "needs_document_lookup": True})))]) == 1
    assert "the data set has no corpus.jsonl" in capsys.readouterr().out
    assert main(["lint", str(tmp_path / "nowhere")]) == 1
    assert "no such data set folder" in capsys.readouterr().err


def test_equal_questions_to_different_memories_are_no_duplicates(tmp_path, capsys):
    sessions = [{**SESSIONS[0], "conversation_id": name} for name in ("ann", "bo")]
    questions = [
        {"id": f"q{n}", "conversation_id": name, "question": "What does she play?", "reference_answers": [answer]}
        for n, (name, answer) in enumerate([("ann", "the oboe"), ("bo", "a drum"), ("ann", "nothing")])
    ]
    folder = write_memory_set(tmp_path / "told", sessions=sessions, questions=questions)
    assert main(["lint", str(folder)]) == 1
    output = capsys.readouterr().out.splitlines()[0]
    assert "questions.jsonl:3: turn 1 of q2: same message as turn 1 of q0 in row 1" in output


def test_near_duplicates_among_thousands_are_found_fast(tmp_path):
    rows = [one(f"c{n}", question(" ".join(f"word{n * 7 + k}" for k in range(20)), "x")) for n in range(3000)]
    near = one("near", question(" ".join(f"word{7 + k}" for k in range(20)) + " more", "x"))
    findings = list(lint(load_dataset(write(tmp_path / "set", *rows, near))))
    assert [line.partition("3001: ")[2] for line in findings] == ["near: nearly the same turns as c1 in row 2"]


def test_escapes_in_a_row_do_not_reach_the_terminal(tmp_path, capsys):
    folder = write(tmp_path / "set", one("a\x1b[31m", question("x \x1b]0;t\x07", "\x1b[2J")), corpus=CORPUS)
    main(["lint", str(folder)])
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("folder", sorted(file.parent for file in OWN.glob("*/conversations.jsonl")), ids=str)
def test_our_own_sets_are_clean(folder, capsys):
    assert main(["lint", str(folder)]) == 0, capsys.readouterr().out


def test_public_sets_have_only_duplicate_questions_as_findings():
    folders = [file.parent for name in ("conversations", "questions") for file in PUBLIC.glob(f"*/{name}.jsonl")]
    findings = {folder.name: lines for folder in folders if (lines := list(lint(load_dataset(folder))))}
    assert {name: len(lines) for name, lines in findings.items()} in ({}, {"lihua": 1})
    assert all(line.endswith("lihua-28: the same turns as lihua-75 in row 37") for line in findings.get("lihua", []))
