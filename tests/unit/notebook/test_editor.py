"""The editor of data sets and the labelling view, worked through their own parts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentlab import notebook
from agentlab.core.errors import AgentlabError
from agentlab.data.datasets import load_dataset
from agentlab.evals.judge.labels import add_rows, read_labels
from agentlab.evals.judge.standing import replies
from agentlab.evals.store.run import Run
from support.rules_set import CONVERSATIONS, DOCUMENTS, lab, write_set
from support.widgets import EVIL


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_set(tmp_path / "rules", CONVERSATIONS, DOCUMENTS)


def test_what_is_written_checked_and_saved_is_a_data_set(folder):
    editor = notebook.edit_dataset(folder)
    editor.new.click()
    assert editor.name.value == "case-001"
    editor.user.value = f"How long is the pitch? {EVIL}"
    editor.answers.value = "90 metres\nat least 90 metres\n"
    editor.documents.value = "pitch"
    editor.add_turn.click()
    editor.save.click()
    assert "turn 2 says nothing" in editor.told.value, "an empty turn is not saved"
    editor.user.value = "Who built it?"
    editor.unanswerable.value = True
    editor.tags.value = "hard, pitch"
    editor.duplicate.click()
    assert editor.name.value == "case-001-2" and "hard, pitch" in dict(editor.conversations.options).__repr__()
    editor.name.value = "pitch-again"
    editor.save.click()
    assert "saved: 5 conversations" in editor.told.value
    saved = load_dataset(folder).conversations
    assert [talk.id for talk in saved] == ["c0", "c1", "c2", "case-001", "pitch-again"]
    assert saved[3].turns[0].reference_answers == ["90 metres", "at least 90 metres"]
    assert saved[3].turns[1].unanswerable and saved[4].metadata == {"tags": ["hard", "pitch"]}
    assert json.loads((folder / "conversations.jsonl").read_text().splitlines()[0]) == CONVERSATIONS[0]


def test_what_a_data_set_cannot_hold_is_said_and_nothing_is_lost(folder):
    editor = notebook.edit_dataset(folder)
    editor.documents.value = "nowhere"
    assert "not taken over" in editor.told.value and "nowhere" in editor.told.value
    editor.documents.value = "ball"
    editor.name.value = "c1"
    assert "is there already" in editor.told.value and "c0" in editor.draft.conversations
    editor.name.value = "c0"
    editor.turn.value = 1
    editor.remove_turn.click()
    editor.remove_turn.click()
    assert "not taken over" in editor.told.value, "a conversation keeps a turn"
    editor.find.value = "(2)"
    assert [key for _, key in editor.conversations.options] == ["c2"]
    editor.remove.click()
    assert "c2" not in editor.draft.conversations and len(load_dataset(folder).conversations) == 3
    editor.find.value = ""
    editor.duplicate.click()
    editor.check.click()
    assert editor.told.value.count("c0") or editor.told.value.count("c1")


@pytest.fixture
def run(folder: Path, tmp_path: Path, own_home: Path) -> Run:
    with lab(folder, replies=["Between 410 and 450 grams."], flows=["rag_only"]) as opened:
        return opened.run_sync(out=tmp_path / "run")


def test_labels_are_kept_and_held_against_a_measure(run, tmp_path):
    file = tmp_path / "labels.csv"
    waiting = {"conversation": "c1", "turn": 1, "flow": "rag_only", "epoch": 0, "question": "=1+1"}
    add_rows(file, [waiting])
    labels = notebook.label(run, file)
    assert "Who won?" in labels.shown.value, "what a judge waits for comes first"
    assert "rag_only" not in labels.shown.value, "who answered is not said"
    for _ in range(5):
        (labels.right if "How heavy" in labels.shown.value else labels.wrong).click()
    labels.skip.click()
    assert labels.right.disabled and "all done: 5 labels" in labels.shown.value
    again = notebook.label(run, file)
    assert len(again.labels) == 5 and not again.right.disabled, "what was skipped comes again"
    agreed = again.agreement("answer_f1")
    assert agreed.agreement == 1.0 and 2 <= agreed.n <= 3
    assert read_labels(file, replies(run)) == again.labels and len(file.read_text().splitlines()) == 6
    with pytest.raises(AgentlabError, match="no labelled turn has the measure 'fame'"):
        again.agreement("fame")
