"""A conversation added to a data set: the file contains its old lines and one new line."""

from __future__ import annotations

import pytest

from agentlab.core.errors import DatasetError
from agentlab.data.conversations import Turn
from agentlab.data.datasets import add_conversation, load_dataset
from agentlab.data.documents import load_documents
from support.rules_set import CONVERSATIONS, DOCUMENTS, write_set

ROW = '{"id":   "case-001", "turns": [{"user": "Spaced?"}] }'


def test_lines_that_are_there_stay_to_the_byte(tmp_path):
    folder = write_set(tmp_path / "rules", CONVERSATIONS, DOCUMENTS)
    file = folder / "conversations.jsonl"
    file.write_text(file.read_text() + ROW)  # with no end of the line
    before = file.read_text()
    assert add_conversation(folder, [Turn(user="New?")], source="here").id == "case-002"
    assert file.read_text() == before + '\n{"id":"case-002","turns":[{"user":"New?"}],"source":"here"}\n'
    with pytest.raises(DatasetError, match=r"'nowhere' is not in corpus\.jsonl"):
        add_conversation(folder, [Turn(user="?", relevant_doc_ids=["nowhere"])])
    assert load_dataset(folder).conversations[-1].id == "case-002"


def test_a_new_data_set_gets_its_documents(tmp_path):
    documents = load_documents(write_set(tmp_path / "rules", CONVERSATIONS, DOCUMENTS) / "corpus.jsonl")
    for name in ("case-001", "case-002"):
        assert add_conversation(tmp_path / "deep" / "new", [Turn(user="New?")], documents).id == name
    assert load_dataset(tmp_path / "deep" / "new").documents == documents


def test_a_folder_that_holds_anything_else_is_one_line(tmp_path):
    (tmp_path / "sessions.jsonl").write_text("")
    with pytest.raises(DatasetError, match="a memory set"):
        add_conversation(tmp_path, [Turn(user="New?")])
    with pytest.raises(DatasetError, match="this is a file; a data set is a folder"):
        add_conversation(tmp_path / "sessions.jsonl", [Turn(user="New?")])
