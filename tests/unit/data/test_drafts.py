"""A data set that is being written: what is saved is what was there and what was changed, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentlab.core.errors import DatasetError
from agentlab.data.conversations import Turn
from agentlab.data.datasets import load_dataset
from agentlab.data.drafts import Draft
from support.rules_set import CONVERSATIONS, DOCUMENTS, write_set

ROW = '{"id":   "odd", "turns": [{"user": "Spaced?"}] }'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = write_set(tmp_path / "rules", CONVERSATIONS, DOCUMENTS)
    with (folder / "conversations.jsonl").open("a") as file:
        file.write(f"{ROW}\n")
    return folder


def test_untouched_lines_stay_to_the_byte_and_changed_ones_are_written(folder):
    before = (folder / "conversations.jsonl").read_text().splitlines()
    draft = Draft.open(folder)
    draft.save()
    assert (folder / "conversations.jsonl").read_text().splitlines() == before
    draft.put({**draft["c1"].model_dump(), "id": "renamed"}, replaces="c1")
    assert draft.duplicate("c0").id == "c0-2" and draft.duplicate("c0").id == "c0-3"
    draft.tag("c2", "hard", "ball", "hard")
    draft.remove("c0-3")
    assert draft.add([Turn(user="New?")]).id == "case-001"
    draft.save()
    after = (folder / "conversations.jsonl").read_text().splitlines()
    assert after[0] == before[0] and after[3] == ROW
    assert [json.loads(line)["id"] for line in after] == ["c0", "renamed", "c2", "odd", "c0-2", "case-001"]
    assert json.loads(after[2])["metadata"] == {"tags": ["hard", "ball"]}
    assert len(load_dataset(folder).conversations) == 6
    assert Draft.open(folder).tag("c2").metadata == {}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"id": "c0"}, "'c0' is there already"),
        ({"turnz": []}, "Did you mean 'turns'"),
        ({"turns": [{"user": "?", "relevant_doc_ids": ["nowhere"]}]}, "'nowhere' is not in corpus.jsonl"),
        ({"turns": []}, "turns"),
    ],
)
def test_what_a_data_set_cannot_hold_is_said_and_changes_nothing(folder, change, told):
    draft = Draft.open(folder)
    with pytest.raises(DatasetError, match=told):
        draft.put({**draft["c1"].model_dump(exclude_defaults=True), **change}, replaces="c1")
    assert draft["c1"] == Draft.open(folder)["c1"]
    with pytest.raises(DatasetError, match="unknown conversation 'c9'"):
        draft.remove("c9")


def test_doubts_are_those_of_lint(folder):
    draft = Draft.open(folder)
    draft.duplicate("c0")
    assert any("c0-2" in doubt for doubt in draft.doubts())


def test_no_data_set_is_one_line(tmp_path):
    (tmp_path / "sessions.jsonl").write_text("")
    with pytest.raises(DatasetError, match="a memory set"):
        Draft.open(tmp_path)
    with pytest.raises(DatasetError, match="needs a conversation"):
        Draft.open(tmp_path / "new").save()
    assert not (tmp_path / "new").exists()
