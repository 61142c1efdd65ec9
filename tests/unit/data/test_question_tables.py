"""Tables of questions as other programs write them: the right columns, or one line with the row and the remedy."""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from agentlab.core.errors import DatasetError, MissingExtra
from agentlab.data.documents import Document
from agentlab.data.questions import Questions, read_questions
from support.office import write_bomb
from support.question_tables import columns, turns_of

DOCUMENTS = [Document(doc_id=f"sub/{name}.md", title=name.title(), text="Text") for name in ("loans", "hours", "fees")]


def read(folder: Path, name: str, content: str | bytes, **options: Any) -> Questions:
    file = folder / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_questions(file, options.pop("columns", {}), **options)


def write_workbook(path: Path) -> Path:
    book = openpyxl.Workbook()
    sheet, other, hidden = book.active, book.create_sheet("Notes"), book.create_sheet("Archive")
    assert sheet is not None
    sheet.title = "Fragen"
    rows = [
        *(["FAQ 2024"], [], ["Nr", "Frage", "Antwort", "Kategorie"]),
        *([7, "Which code?", 1.5, "Codes"], [8, "Which date?", datetime.datetime(2024, 3, 1), None]),
        *([9, "Which share?", 0.125, None], [10, "Which flag?", True, "Flags"], [11, "Which sum?", "=1+1", None]),
    ]
    for row in rows:
        sheet.append(row)
    for cell, pattern in {"A4": "000", "C4": "0.00", "C5": "dd.mm.yyyy", "C6": "0.0%"}.items():
        sheet[cell].number_format = pattern
    sheet.merge_cells("D4:D6")
    other.append(["remember the milk"])
    hidden.append(["question", "answer", "category", "language"])
    hidden.sheet_state = "hidden"
    book.save(path)
    return path


def test_a_workbook_keeps_numbers_as_shown_and_fills_merged_cells(tmp_path: Path) -> None:
    made = read_questions(write_workbook(tmp_path / "a.xlsx"))
    assert [turns[0][1] for turns in turns_of(made)] == [["1.50"], ["01.03.2024"], ["12.5%"], ["TRUE"], []]
    assert [each.id for each in made.conversations] == ["007", "8", "9", "10", "11"]
    assert [each.turns[0].metadata.get("category") for each in made.conversations][:4] == ["Codes"] * 3 + ["Flags"]
    assert made.lines[0].endswith("sheet 'Fragen', not 'Notes' (--sheet NAME); header in row 3")
    assert made.lines[-1] == "  no answer and not marked as unanswerable, so nothing grades it: 1 (row 8)"
    with pytest.raises(DatasetError, match="no sheet 'Foo'; it has 'Fragen', 'Notes'"):
        read_questions(tmp_path / "a.xlsx", sheet="Foo")
    with pytest.raises(DatasetError, match="the file contains no rows"):
        read_questions(tmp_path / "a.xlsx", sheet="Notes")


def test_rows_that_are_not_taken_are_counted_by_cause(tmp_path: Path) -> None:
    text = (
        "id,question,answer,unanswerable\n1,,x,\n\n2,How?,,\n2,Why?,So,maybe\n2,Why?,So,\n"
        "3,#REF!,a,\n4,Who?,,yes\n5,Who?,#VALUE!,no\n"
    )
    made = read(tmp_path, "a.csv", text)
    assert [each.id for each in made.conversations] == ["2", "2-row-5", "2-row-6", "4", "5"]
    assert [each.turns[0].unanswerable for each in made.conversations] == [False, False, False, True, False]
    assert set(made.lines[-4:]) == {
        "  not taken, no question: 2 (row 2, 7)",
        "  no answer and not marked as unanswerable, so nothing grades it: 2 (row 4, 9)",
        "  unanswerable is neither yes nor no: 1 (row 5)",
        "  duplicate id, so the row number is added: 2 (row 5, 6)",
    }


def test_a_question_repeated_under_its_id_adds_an_answer(tmp_path: Path) -> None:
    made = read(tmp_path, "a.csv", "id,question,answer\n1,How many?,Eight\n1,How many?,8\n1,How many?,8\n")
    assert turns_of(made) == [[("How many?", ["Eight", "8"])]]
    assert made.lines[-1] == "  repeats a question, so its answers are alternatives: 2 (row 3, 4)"


@pytest.mark.parametrize(
    "cells, answers",
    [
        (("Eight|8", "x"), [["Eight", "8"], ["x"]]),
        (("Eight; 8", "3 weeks;21 days"), [["Eight", "8"], ["3 weeks", "21 days"]]),
        (('"[""Eight"", ""8""]"', "x"), [["Eight", "8"], ["x"]]),
        (('"Eight\n8"', '"x\ny"'), [["Eight", "8"], ["x", "y"]]),
        (("Eight; 8", "x"), [["Eight; 8"], ["x"]]),
        (('"First this:\nthen that."', '"- a\n- b"'), [["First this:\nthen that."], ["- a\n- b"]]),
        (("n/a", "-"), [[], []]),
    ],
)
def test_answers_are_split_as_the_file_does_it(
    tmp_path: Path, cells: tuple[str, str], answers: list[list[str]]
) -> None:
    made = read(tmp_path, "a.csv", "question,answer\nq1?,{}\nq2?,{}\n".format(*cells))
    assert [turns[0][1] for turns in turns_of(made)] == answers
    is_split = any(len(each) > 1 for each in answers) and not cells[0].startswith('"[')
    assert any("split at" in line for line in made.lines) == is_split


def test_an_empty_list_of_answers_marks_a_question_as_unanswerable(tmp_path: Path) -> None:
    rows = [{"question": "a?", "answers": {"text": [], "start": []}}, {"question": "b?", "answers": {"text": ["c"]}}]
    made = read(tmp_path, "a.json", json.dumps(rows))
    assert [each.turns[0].unanswerable for each in made.conversations] == [True, False]


def test_a_box_that_is_not_ticked_marks_a_question_without_answer(tmp_path: Path) -> None:
    made = read(tmp_path, "a.csv", "question,answer,answerable\na?,b,checked\nc?,,\nd?,e,\n")
    assert [each.turns[0].unanswerable for each in made.conversations] == [False, True, False]


def test_a_table_without_answers_is_reported(tmp_path: Path) -> None:
    line = "  no answers, so nothing grades the replies; if a column has them: --column answers=NAME"
    assert line in read(tmp_path, "a.csv", "question,foo\na?,b?\nc?,d?\n", columns={"answers": ""}).lines
    assert line not in read(tmp_path, "a.csv", "question,answer\na?,b\n").lines


def test_a_separator_of_answers_can_be_named(tmp_path: Path) -> None:
    text = "question,answer\nq1?,a|b\nq2?,c # d\n"
    assert turns_of(read(tmp_path, "a.csv", text, split="none"))[0] == [("q1?", ["a|b"])]
    assert turns_of(read(tmp_path, "a.csv", text, split="#"))[1] == [("q2?", ["c", "d"])]


def test_columns_can_be_named(tmp_path: Path) -> None:
    text = "question,answer,topic\nHow?,So,Why?\n"
    made = read(tmp_path, "a.csv", text, columns={"user": "Topic", "answers": "question", "category": ""})
    assert columns(made) == {"user": "topic", "answers": "question"} and turns_of(made) == [[("Why?", ["How?"])]]
    with pytest.raises(DatasetError, match=r"a\.csv: --column: unknown column 'topik'\. Did you mean 'topic'"):
        read(tmp_path, "a.csv", text, columns={"user": "topik"})
    with pytest.raises(DatasetError, match="--column: unknown meaning 'usr'"):
        read(tmp_path, "a.csv", text, columns={"usr": "topic"})


def test_documents_are_named_by_id_file_title_or_address(tmp_path: Path) -> None:
    names = ["sub/loans.md", "hours.md", "fees", "LOANS", "https://help.example/en/hours", "loans; hours.md", "gone.md"]
    text = "question,source\n" + "".join(f"q{n}?,{name}\n" for n, name in enumerate(names))
    made = read(tmp_path, "a.csv", text, documents=DOCUMENTS)
    relevant = [each.turns[0].relevant_doc_ids for each in made.conversations]
    loans, hours, fees = ([f"sub/{name}.md"] for name in ("loans", "hours", "fees"))
    assert relevant == [loans, hours, fees, loans, hours, loans + hours, None]
    assert made.lines[-1] == "  names no single document of --documents: 1 (row 8)"
    assert columns(read(tmp_path, "a.csv", text))["document"] == "source"
    assert read(tmp_path, "a.csv", text).conversations[0].turns[0].relevant_doc_ids is None


def test_numbers_of_json_stay_as_written(tmp_path: Path) -> None:
    made = read(tmp_path, "a.json", '{"version": 1.0, "data": [{"q": 7, "question": "How?", "answer": 1.50}]}')
    assert turns_of(made) == [[("How?", ["1.50"])]]


@pytest.mark.parametrize(
    "name, content, problem",
    [
        ("a.csv", "", "the file contains no rows"),
        ("a.csv", 'question,answer\na?,b\n"c?,d\ne?,f\n', "row 3: a quote is not closed"),
        ("a.csv", "question" + ",x" * 100_000 + "\nq?" + ",y" * 100_000, "row 2 has more than 1,000 columns"),
        ("a.csv", "question\n" + '"' + "x" * 200_000 + '"\n', "row 2: a quote is not closed"),
        ("a.csv", 'question,answer\na?,b\n"Say "hi", why?",So\n', "row 3 has more cells than the header"),
        ("a.xls", "<html><table></table></html>", "it is HTML or XML"),
        ("a.csv", "thread,from,text\n1,Anna,How?\n", "its speaker is neither user nor assistant"),
        ("a.json", "5", "row 1 is not a JSON object"),
        ("a.csv", b"\x89PNG\x00\x00\xff", "it is not text"),
        ("a.csv", "a,b\n1,2\n", "no column is recognised as the questions; name it: --column user=NAME"),
        ("a.jsonl", '{"question": "a?"}\n{"question": \n', "row 2 is not JSON"),
        ("a.jsonl", '{"question": "a?"}\n[1]\n', "row 2 is not a JSON object"),
        ("a.json", "[" * 100_000, "maximum recursion depth"),
        ("a.json", json.dumps([{f"c{n}": "x" for n in range(5_000)}]), "row 1 has more than 1,000 columns"),
        ("a.xls", b"\xd0\xcf\x11\xe0" + bytes(600), "encrypted, or in the format of before 2007"),
        ("a.xlsx", b"PK\x03\x04 and nothing else", "damaged"),
        ("a.xlsx", "question,answer\n", "damaged"),
    ],
)
def test_a_table_that_cannot_be_read_is_one_line(tmp_path: Path, name: str, content: str | bytes, problem: str) -> None:
    with pytest.raises(DatasetError, match=problem) as caught:
        read(tmp_path, name, content)
    assert "\n" not in str(caught.value)


def test_a_workbook_that_unpacks_to_gigabytes_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="unpacks to"):
        read_questions(write_bomb(tmp_path / "a.xlsx", "xl/worksheets/sheet1.xml", 100))
    book = openpyxl.Workbook()
    assert book.active is not None
    book.active["XFD1048576"] = "far"
    book.save(tmp_path / "b.xlsx")
    with pytest.raises(DatasetError, match="sheet 'Sheet' spans 1,048,576 rows and 16,384 columns; delete"):
        read_questions(tmp_path / "b.xlsx")


def test_a_file_with_one_gigantic_line_is_one_line(tmp_path: Path) -> None:
    with (tmp_path / "a.csv").open("wb") as file:
        file.truncate(2**30)
    with pytest.raises(DatasetError, match="1,073,741,824 bytes, of which at most"):
        read_questions(tmp_path / "a.csv")


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_workbook(tmp_path / "a.xlsx")
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(MissingExtra, match=r"agentlab-harness\[documents\]"):
        read_questions(tmp_path / "a.xlsx")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "1. Question;2. Answer;3. Notes\nHow many?;3;see page 1\n"),
        ("a.json", '{"columns": [{"name": "question"}, {"name": "answer"}], "data": [["How many?", "3"]]}'),
    ],
)
def test_numbered_columns_are_no_choices_and_columns_may_be_objects(tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8")
    [conversation] = read_questions(tmp_path / name).conversations
    assert [(turn.user, turn.reference_answers) for turn in conversation.turns] == [("How many?", ["3"])]
