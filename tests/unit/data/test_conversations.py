"""Loading conversations: strict about keys, exact about lines; samples; the public sets if they are on this machine."""

from __future__ import annotations

import pytest

from agentlab.core.errors import DatasetError
from agentlab.data.datasets import load_dataset
from agentlab.knowledge.refusal import declines
from support.conversation_sets import GOOD, write
from support.paths import PUBLIC


@pytest.mark.parametrize(
    "line, problem",
    [
        ('{"id": "b", "turns": [', "not JSON"),
        ("[]", "not a JSON object"),
        ({"id": "b", "turns": ["Hi"]}, "turns.0: not a JSON object"),
        ({"turns": GOOD["turns"]}, "id: Field required"),
        ({"id": "b", "turns": []}, "turns:"),
        ({"id": "", "turns": GOOD["turns"]}, "id:"),
        ({**GOOD, "id": "b", "tags": []}, "unknown key 'tags'"),
        ({"id": "b", "turns": [{"user": "Hi", "refrence_answers": []}]}, "Did you mean 'reference_answers'?"),
        ({"id": "b", "turns": [{"user": 3}]}, "turns.0.user"),
        ({"id": "b", "turns": [{"user": "Hi", "unanswerable": "yes"}]}, "turns.0.unanswerable"),
        ({"id": "b", "turns": [{"user": "Hi", "relevant_doc_ids": ["nowhere"]}]}, "'nowhere' is not in corpus.jsonl"),
        (GOOD, "first used in line 1"),
        ({**GOOD, "id": "b", "tools": [{"name": "t"}, {"name": "t"}]}, "same name"),
    ],
)
def test_a_bad_line_is_named_with_file_line_and_key(tmp_path, line, problem):
    folder = write(tmp_path / "set", GOOD, line)
    with pytest.raises(DatasetError) as caught:
        load_dataset(folder)
    assert problem in str(caught.value)
    assert "conversations.jsonl:2:" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.line == 2


def test_missing_and_empty_sets(tmp_path):
    with pytest.raises(DatasetError, match="no such data set folder"):
        load_dataset(tmp_path / "none")
    with pytest.raises(DatasetError, match=r"no conversations\.jsonl"):
        load_dataset(tmp_path)
    with pytest.raises(DatasetError, match="contains no conversation"):
        load_dataset(write(tmp_path / "set", ""))
    (tmp_path / "set" / "conversations.jsonl").write_bytes(b'{"id": "\xff"}\n')
    with pytest.raises(DatasetError, match="UTF-8"):
        load_dataset(tmp_path / "set")
    with pytest.raises(DatasetError, match="corpus"):
        load_dataset(write(tmp_path / "set", GOOD, corpus=[]))


def test_a_sample_is_stratified_seeded_and_in_order(tmp_path):
    rows = [
        {"id": f"{i:02}", "turns": [{"user": "q", "unanswerable": i % 4 == 0, "needs_document_lookup": i % 2 == 0}]}
        for i in range(40)
    ]
    dataset = load_dataset(write(tmp_path / "set", *rows))
    sample = dataset.subset(12, seed=1)
    ids = [c.id for c in sample.conversations]
    assert len(ids) == 12 and ids == sorted(ids)
    assert sum(c.turns[0].unanswerable for c in sample.conversations) == 3
    assert ids == [c.id for c in dataset.subset(12, seed=1).conversations]
    assert ids != [c.id for c in dataset.subset(12, seed=2).conversations]
    assert [c.id for c in dataset.subset(3).conversations] == ["00", "01", "02"]
    assert len(dataset.subset(100, seed=1).conversations) == 40
    assert dataset.subset(3).digest != dataset.digest


@pytest.mark.skipif(not PUBLIC.is_dir(), reason="the public sets are not beside this checkout")
@pytest.mark.parametrize("name", ["squad2", "mtrag_human", "pyfaq", "dstc11_lookup", "musique", "bfcl", "sgd"])
def test_public_sets_load(name):
    dataset = load_dataset(PUBLIC / name)
    assert dataset.turns >= 50
    turns = [t for c in dataset.conversations for t in c.turns if t.scored and not t.unanswerable]
    references = [reference for turn in turns for reference in turn.reference_answers]
    assert sum(map(declines, references)) <= 0.02 * len(references) + 1, "what counts as declining is drawn too wide"
