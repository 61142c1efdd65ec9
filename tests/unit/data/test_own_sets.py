"""Our own data sets match the size, mix and consistency on their cards."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from agentlab.data.datasets import load_dataset
from agentlab.data.lint import lint
from agentlab.knowledge.refusal import declines
from support.paths import OWN, ROOT

LAWS = load_dataset(ROOT / "datasets" / "laws")
WORLDWIDE = load_dataset(OWN / "worldwide")
ENGLISH = {c.id.partition("-")[2]: c for c in WORLDWIDE.conversations if c.metadata["language"] == "en"}
OTHERS = [c for c in WORLDWIDE.conversations if c.metadata["language"] != "en"]
NUMBER_WORDS = {"one": "1", "three": "3", "five": "5", "seven": "7", "eight": "8"}


def turns_with_evidence(dataset: Any) -> Iterator[tuple[str, Any, list[str]]]:
    """Yield location, turn and quotes of each turn; every quote is verbatim in a relevant document."""
    texts = {document.doc_id: document.text for document in dataset.documents}
    for conversation in dataset.conversations:
        for number, turn in enumerate(conversation.turns):
            location = f"{conversation.id} turn {number}"
            evidence = turn.metadata.get("evidence", [])
            assert {e["doc_id"] for e in evidence} == set(turn.relevant_doc_ids), location
            assert all(e["quote"] in texts[e["doc_id"]] for e in evidence), location
            yield location, turn, [e["quote"] for e in evidence]


def test_laws_match_their_card():
    kinds = Counter(turn.metadata["kind"] for c in LAWS.conversations for turn in c.turns)
    assert len(LAWS.documents) >= 17
    assert all(300 <= len(d.text.split()) <= 900 for d in LAWS.documents)
    assert len(LAWS.conversations) >= 40 and LAWS.turns >= 150
    assert min(kinds[k] for k in ("follow_up", "two_documents", "unanswerable", "no_lookup", "near_miss")) >= 15
    card = (ROOT / "datasets" / "laws" / "README.md").read_text()
    for number in (len(LAWS.documents), len(LAWS.conversations), LAWS.turns, *kinds.values()):
        assert str(number) in card


def test_every_reference_answer_of_the_laws_has_its_evidence():
    for location, turn, _ in turns_with_evidence(LAWS):
        assert bool(turn.relevant_doc_ids) == (turn.needs_document_lookup and not turn.unanswerable), location
        assert bool(turn.reference_answers) != turn.unanswerable, location
        assert not (turn.relevant_doc_ids and any(map(declines, turn.reference_answers))), location


def test_the_demo_is_three_conversations_of_three_turns():
    assert [len(c.turns) for c in LAWS.subset(3).conversations] == [3, 3, 3]


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


def test_memory_questions_ask_for_current_facts_of_earlier_sessions():
    for conversation in load_dataset(OWN / "memory").conversations:
        session_of = {}  # content -> session
        for number, turn in enumerate(conversation.turns):
            location = f"{conversation.id} turn {number}"
            kind, evidence = turn.metadata["kind"], turn.metadata.get("evidence", [])
            assert (kind in ("ask", "repeat")) == bool(evidence), location
            assert (kind == "ask") == bool(turn.reference_answers), location
            assert (kind == "ask_unknown") == turn.unanswerable, location
            assert all(e in session_of and (kind == "repeat" or session_of[e] < turn.session) for e in evidence), (
                location
            )
            assert not set(turn.metadata.get("stale", [])) & set(session_of), location
            for expected in turn.expected_memory:
                assert (expected.op == "update") == (expected.replaces is not None), location
                assert (expected.op == "none") == (expected.content is None), location
                if expected.replaces is not None:
                    del session_of[expected.replaces]
                if expected.content is not None:
                    assert expected.content not in session_of, location
                    session_of[expected.content] = turn.session


def test_every_expected_call_of_the_assistant_fits_its_tool_and_has_a_result():
    for conversation in load_dataset(OWN / "assistant").conversations:
        required = {tool.name: set(tool.parameters["required"]) for tool in conversation.tools}
        for number, turn in enumerate(conversation.turns):
            location = f"{conversation.id} turn {number}"
            assert turn.no_call == (turn.expected_calls == []), location
            assert Counter(e.name for e in turn.expected_calls) == Counter(r.name for r in turn.tool_results), location
            for expected in turn.expected_calls:
                given = set(expected.accepted_arguments)
                assert given == (required[expected.name] if expected.arguments_visible_in_context else set()), location


def test_channel_matches_its_card_and_every_trap_has_its_bait():
    channel = load_dataset(OWN / "channel")
    card = (OWN / "channel" / "README.md").read_text()
    kinds = Counter(question.metadata["category"] for question in channel.conversations)
    assert f"{sum(kinds.values())} questions" in card and all(f"({n})" in card for n in kinds.values())
    for question in channel.conversations:
        [turn] = question.turns
        is_master = turn.speaker.id == "master"
        texts = [lines for session in channel.memory_sessions[question.memory_of] for lines in session.turns]
        assert is_master == question.metadata["category"].startswith("master"), question.id
        assert bool(turn.reference_answers) != turn.unanswerable == (not turn.metadata), question.id
        assert all(lines.speaker != turn.speaker.name for lines in texts) or is_master, question.id
        for [position] in turn.metadata.get("evidence_turns", []):
            text = next(lines.text for lines in texts if lines.id == position)
            assert any(
                set(answer.lower().split()) & set(text.lower().split()) for answer in turn.reference_answers
            ) or (any(answer.lower() in text.lower() for answer in turn.reference_answers)), question.id


def numbers_of(text):
    digits = re.sub(r"[a-z]+", lambda word: NUMBER_WORDS.get(word[0], word[0]), text)
    return {number.replace(",", ".") for number in re.findall(r"\d+(?:[.,]\d+)?", digits)}


def test_worldwide_matches_its_card_and_has_four_conversations_a_language():
    card = (OWN / "worldwide" / "README.md").read_text()
    languages = Counter(c.metadata["language"] for c in OTHERS)
    assert languages == dict.fromkeys(("de", "es", "ru", "ar", "zh", "ja"), 4)
    assert all(f"| `{language}` " in card for language in languages)
    turns = [turn for c in OTHERS for turn in c.turns]
    assert f"{len(OTHERS)} conversations ({len(turns)} turns)" in card
    for key in ("kind", "answer"):
        counts = Counter(turn.metadata[key] for turn in turns if key in turn.metadata)
        assert all(f"| `{value}` | {n} |" in card for value, n in counts.items())
    assert all(1 <= len(c.turns) <= 3 for c in OTHERS) and lint(WORLDWIDE) == ()


def test_each_conversation_of_worldwide_has_an_english_counterpart_of_laws():
    assert [d.model_dump() for d in WORLDWIDE.documents] == [d.model_dump() for d in LAWS.documents]
    assert len(ENGLISH) == len(OTHERS)
    laws = {c.id: {turn.user: turn for turn in c.turns} for c in LAWS.conversations}
    for conversation in OTHERS:
        name = conversation.id.partition("-")[2]
        assert conversation.id == f"{conversation.metadata['language']}-{name}"
        assert len(conversation.turns) == len(ENGLISH[name].turns), name
        for turn, english in zip(conversation.turns, ENGLISH[name].turns, strict=True):
            source = laws[f"laws-{name}"][english.user]
            own = {"user", "reference_answers", "metadata"}
            assert turn.model_dump(exclude=own) == english.model_dump(exclude=own) == source.model_dump(exclude=own)
            assert turn.metadata == english.metadata, conversation.id
            assert {k: v for k, v in english.metadata.items() if k != "answer"} == source.metadata, name
            assert english.reference_answers == source.reference_answers, name
            assert turn.user != english.user


def test_each_number_of_a_worldwide_answer_is_in_a_quote_of_its_turn():
    for location, turn, quotes in turns_with_evidence(WORLDWIDE):
        assert bool(turn.relevant_doc_ids) == ("answer" in turn.metadata), location
        quoted = set().union(*map(numbers_of, quotes))
        stated = [numbers_of(answer) for answer in turn.reference_answers]
        assert all(each <= quoted for each in stated), location
        assert any(stated) or turn.metadata.get("answer") != "number", location


def test_worldwide_answers_are_in_the_language_of_the_question_first():
    scripts = {"ru": "\u0400-\u04ff", "ar": "\u0600-\u06ff", "zh": "\u4e00-\u9fff", "ja": "\u3040-\u30ff"}
    for conversation in OTHERS:
        name, script = conversation.id.partition("-")[2], scripts.get(conversation.metadata["language"])
        for turn, english in zip(conversation.turns, ENGLISH[name].turns, strict=True):
            in_english = len(english.reference_answers)
            own = turn.reference_answers[: len(turn.reference_answers) - in_english]
            assert turn.reference_answers[len(own) :] == english.reference_answers, conversation.id
            assert bool(own) == bool(in_english), conversation.id
            assert script is None or all(re.search(f"[{script}]", text) for text in (turn.user, *own[:1])), name
            assert not (turn.relevant_doc_ids and any(map(declines, own))), conversation.id
