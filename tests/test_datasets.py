"""Data sets: strict to the key, exact to the line; our own set and, where they are at hand, the public ones."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import agentlab as al
from agentlab.core.errors import DatasetError
from agentlab.data.datasets import load_dataset
from agentlab.data.lint import doubts
from agentlab.knowledge.refusal import declines
from agentlab.models.scripted import Scripted

ROOT = Path(__file__).parents[1]
OWN = ROOT / "datasets"
PUBLIC = ROOT.parent / "shared" / "datasets"
GOOD = {"id": "a", "turns": [{"user": "Hi", "reference_answers": ["Hello"]}]}


def write(folder: Path, *lines: object, corpus: list[dict] | None = None) -> Path:
    folder.mkdir(exist_ok=True)
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / "conversations.jsonl").write_text(text + "\n", encoding="utf-8")
    if corpus is not None:
        (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, corpus)), encoding="utf-8")
    return folder


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
        (GOOD, "stands in line 1 too"),
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
    with pytest.raises(DatasetError, match="holds no conversation"):
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
    sample = dataset.take(12, seed=1)
    ids = [c.id for c in sample.conversations]
    assert len(ids) == 12 and ids == sorted(ids)
    assert sum(c.turns[0].unanswerable for c in sample.conversations) == 3
    assert ids == [c.id for c in dataset.take(12, seed=1).conversations]
    assert ids != [c.id for c in dataset.take(12, seed=2).conversations]
    assert [c.id for c in dataset.take(3).conversations] == ["00", "01", "02"]
    assert len(dataset.take(100, seed=1).conversations) == 40
    assert dataset.take(3).digest != dataset.digest


LAWS = load_dataset(ROOT / "datasets" / "laws")


def test_the_laws_are_as_large_and_as_mixed_as_their_card_says():
    kinds = Counter(turn.metadata["kind"] for c in LAWS.conversations for turn in c.turns)
    assert len(LAWS.documents) >= 17
    assert all(300 <= len(d.text.split()) <= 900 for d in LAWS.documents)
    assert len(LAWS.conversations) >= 40 and LAWS.turns >= 150
    assert min(kinds[k] for k in ("follow_up", "two_documents", "unanswerable", "no_lookup", "near_miss")) >= 15
    card = (ROOT / "datasets" / "laws" / "README.md").read_text()
    for number in (len(LAWS.documents), len(LAWS.conversations), LAWS.turns, *kinds.values()):
        assert str(number) in card


def test_every_reference_answer_of_the_laws_has_its_evidence():
    texts = {document.doc_id: document.text for document in LAWS.documents}
    for conversation in LAWS.conversations:
        for number, turn in enumerate(conversation.turns):
            where = f"{conversation.id} turn {number}"
            evidence = turn.metadata.get("evidence", [])
            assert {e["doc_id"] for e in evidence} == set(turn.relevant_doc_ids), where
            assert all(e["quote"] in texts[e["doc_id"]] for e in evidence), where
            assert bool(turn.relevant_doc_ids) == (turn.needs_document_lookup and not turn.unanswerable), where
            assert bool(turn.reference_answers) != turn.unanswerable, where
            assert not (turn.relevant_doc_ids and any(map(declines, turn.reference_answers))), where


def test_the_demo_is_three_conversations_of_three_turns():
    assert [len(c.turns) for c in LAWS.take(3).conversations] == [3, 3, 3]


@pytest.mark.skipif(not PUBLIC.is_dir(), reason="the public sets are not beside this checkout")
@pytest.mark.parametrize("name", ["squad2", "mtrag_human", "pyfaq", "dstc11_lookup", "musique", "bfcl", "sgd"])
def test_public_sets_load(name):
    dataset = load_dataset(PUBLIC / name)
    assert dataset.turns >= 50
    turns = [t for c in dataset.conversations for t in c.turns if t.scored and not t.unanswerable]
    answers = [answer for turn in turns for answer in turn.reference_answers]
    assert sum(map(declines, answers)) <= 0.02 * len(answers) + 1, "what counts as declining is drawn too wide"


def test_memory_and_assistant_are_as_large_and_as_mixed_as_their_cards_say():
    for dataset in map(load_dataset, (OWN / "memory", OWN / "assistant")):
        card = (OWN / dataset.name / "README.md").read_text()
        kinds = Counter(turn.metadata["kind"] for c in dataset.conversations for turn in c.turns)
        assert f"{len(dataset.conversations)} conversations" in card and f"{dataset.turns} turns" in card
        assert all(f"| `{kind}` | {n} |" in card for kind, n in kinds.items())
    calls = Counter(
        e.name for c in load_dataset(OWN / "assistant").conversations for t in c.turns for e in t.expected_calls
    )
    assert all(f"| `{name}` | {n} |" in card for name, n in calls.items())


def test_what_the_memory_questions_ask_for_was_told_in_an_earlier_session_and_still_holds():
    for conversation in load_dataset(OWN / "memory").conversations:
        told = {}  # content -> session
        for number, turn in enumerate(conversation.turns):
            where = f"{conversation.id} turn {number}"
            kind, evidence = turn.metadata["kind"], turn.metadata.get("evidence", [])
            assert (kind in ("ask", "repeat")) == bool(evidence), where
            assert (kind == "ask") == bool(turn.reference_answers), where
            assert (kind == "ask_unknown") == turn.unanswerable, where
            assert all(e in told and (kind == "repeat" or told[e] < turn.session) for e in evidence), where
            assert not set(turn.metadata.get("stale", [])) & set(told), where
            for expected in turn.expected_memory:
                assert (expected.op == "update") == (expected.replaces is not None), where
                assert (expected.op == "none") == (expected.content is None), where
                if expected.replaces is not None:
                    del told[expected.replaces]
                if expected.content is not None:
                    assert expected.content not in told, where
                    told[expected.content] = turn.session


def test_every_expected_call_of_the_assistant_fits_its_tool_and_has_a_result():
    for conversation in load_dataset(OWN / "assistant").conversations:
        required = {tool.name: set(tool.parameters["required"]) for tool in conversation.tools}
        for number, turn in enumerate(conversation.turns):
            where = f"{conversation.id} turn {number}"
            assert turn.no_call == (turn.expected_calls == []), where
            assert Counter(e.name for e in turn.expected_calls) == Counter(r.name for r in turn.tool_results), where
            for expected in turn.expected_calls:
                given = set(expected.accepted_arguments)
                assert given == (required[expected.name] if expected.arguments_visible_in_context else set()), where


def test_gold_that_cannot_be_meant_is_said_before_the_run(tmp_path, own_home, caplog):
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
    assert list(doubts(load_dataset(folder))) == [
        "turn 0 of odd: no_call: calls are expected all the same",
        "turn 1 of odd: call_order: 'sequenc' is not graded; 'sequence' is",
        "turn 1 of odd: expected_calls: cancel is no tool of the conversation",
        "turn 2 of odd: expected_calls: book has no argument date",
        "turn 3 of odd: expected_memory: add without a content",
    ]
    with al.Lab(model=Scripted(["x"], loop=True), datasets=[folder], embedder="hashing/hashing-64") as lab:
        lab.run_sync(out=tmp_path / "run")
    assert "set: turn 0 of odd: no_call: calls are expected all the same (and 4 more such places)" in caplog.text
