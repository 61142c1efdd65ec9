"""Loading memory sets: strict to the key, and their questions and sessions in order."""

from __future__ import annotations

import pytest

from agentlab.core.errors import DatasetError
from agentlab.data.datasets import load_dataset
from support.memory_sets import QUESTIONS, SESSIONS, question_row, session_row, write
from support.paths import PUBLIC


@pytest.mark.parametrize(
    "file, row, problem",
    [
        ("sessions", '{"conversation_id": ', "not JSON"),
        ("sessions", {**SESSIONS[0], "session_id": "x", "mood": "good"}, "unknown key 'mood'"),
        ("sessions", {**SESSIONS[0], "session_id": "x", "date": "in May", "turns": []}, "date: 'in May' is not a date"),
        ("sessions", {**SESSIONS[0], "turns": []}, "session_id: duplicate 'late'"),
        ("sessions", {**SESSIONS[0], "session_id": "x"}, "turns.0.id: duplicate 'late:1'"),
        (
            "sessions",
            {**SESSIONS[0], "session_id": "x", "turns": [{"id": "y", "speaker": "A", "text": "t"}] * 2},
            "turns.0.id: duplicate 'y'",
        ),
        ("sessions", {**SESSIONS[0], "session_id": "x", "turns": [{"id": "t", "speaker": "Ann"}]}, "turns.0.text"),
        ("questions", {**QUESTIONS[0], "id": "x", "anwser": "Bo"}, "anwser"),
        ("questions", {**QUESTIONS[0], "id": "x", "unanswerable": "no"}, "unanswerable:"),
        ("questions", QUESTIONS[0], "id: duplicate 'q1'; first used in line 1"),
        ("questions", {**QUESTIONS[0], "id": "x", "conversation_id": "dora"}, "conversation_id: 'dora' has no session"),
        ("questions", {**QUESTIONS[0], "id": "x", "evidence_ids": ["other"]}, "evidence_ids: 'other' is not a session"),
    ],
)
def test_a_bad_line_is_named_with_file_line_and_key(tmp_path, file, row, problem):
    rows = {"sessions": SESSIONS, "questions": QUESTIONS}
    folder = write(tmp_path / "told", **{**rows, file: [*rows[file], row]})
    with pytest.raises(DatasetError) as caught:
        load_dataset(folder)
    assert f"{file}.jsonl:{len(rows[file]) + 1}: " in str(caught.value)
    assert problem in str(caught.value)


def test_half_a_memory_set_is_refused(tmp_path):
    folder = write(tmp_path / "told", questions=[])
    with pytest.raises(DatasetError, match="contains no question"):
        load_dataset(folder)
    (folder / "sessions.jsonl").unlink()
    with pytest.raises(DatasetError, match=r"the memory set has no sessions\.jsonl"):
        load_dataset(folder)


def test_questions_become_turns_and_sessions_are_sorted_by_date(tmp_path):
    dataset = load_dataset(write(tmp_path / "told"))
    assert [session.session_id for session in dataset.memory_sessions["ann"]] == ["early", "late"]
    second = dataset.conversations[1]
    assert second.metadata == {"category": "single-hop", "today": "2026-03-02T10:00:00"}
    assert second.turns[0].metadata["evidence_turns"] == [["late:1"], ["early:1", "early:2"]]
    assert dataset.conversations[2].turns[0].unanswerable
    assert (dataset.turns, dataset.subset(2).turns, dataset.subset(2).memory_sessions) == (
        4,
        2,
        dataset.memory_sessions,
    )
    assert dataset.digest != load_dataset(write(tmp_path / "less", [SESSIONS[2], *SESSIONS[:1]], QUESTIONS[2:])).digest
    single = session_row("s", "2026-04-08 :", ("Ann", "hm"))
    noted = load_dataset(write(tmp_path / "noted", [single], [question_row("q", "hm?")]))
    assert noted.memory_sessions["ann"][0].date == "2026-04-08", "a day whose time is missing is a date"


@pytest.mark.skipif(not (PUBLIC / "lihua").is_dir(), reason="the public sets are not beside this checkout")
def test_the_public_set_loads():
    dataset = load_dataset(PUBLIC / "lihua")
    assert (dataset.turns, len(dataset.memory_sessions["lihua"])) == (60, 231)
    moments = [session.date_time for session in dataset.memory_sessions["lihua"]]
    assert moments == sorted(moments)


def test_a_session_of_one_turn_may_be_called_as_that_is(tmp_path):
    single = {**SESSIONS[0], "session_id": "note", "turns": [{"id": "note", "speaker": "Ann", "text": "I paint."}]}
    question_row = {**QUESTIONS[0], "id": "x", "evidence_ids": ["note"]}
    dataset = load_dataset(write(tmp_path / "told", sessions=[*SESSIONS, single], questions=[question_row]))
    assert dataset.conversations[0].turns[0].metadata["evidence_turns"] == [["note"]]
