"""Stored conversations: chains follow the replies, survive a restart, and are kept apart."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlab.core.errors import ConfigError
from agentlab.core.messages import Citation
from agentlab.session.history import ConversationDatabase, ConversationList


def test_a_chain_follows_replies_and_survives_a_restart(tmp_path: Path):
    path = tmp_path / "chats.sqlite"
    database = ConversationDatabase(path)
    first = database.save("c", "user", "Hi", speaker="Ann", created=datetime(2026, 1, 1))
    second = database.save(
        "c", "agent", "Hello", reply_to=first, citations=[Citation(doc_id="d", passage_id="d#0", title="D")]
    )
    database.save("c", "user", "an aside", reply_to=first)
    third = database.save("c", "user", "'; DROP TABLE messages; --", reply_to=second)
    database.close()
    database = ConversationDatabase(path)
    assert [(m.role, m.text, m.name) for m in database.chain(third)] == [
        ("user", "Hi", "Ann"),
        ("agent", "Hello", None),
        ("user", "'; DROP TABLE messages; --", None),
    ]
    assert [m.text for m in database.chain(third, limit=2)] == ["Hello", "'; DROP TABLE messages; --"]
    stored = database.messages("c")
    assert len(stored) == 4 and stored[1]["citations"] == [{"doc_id": "d", "passage_id": "d#0", "title": "D"}]
    assert stored[0]["created"] == "2026-01-01T00:00:00"
    assert database.messages("another") == []
    database.close()


SAID = st.tuples(st.sampled_from(["user", "agent", "system"]), st.text(), st.integers(0, 12))


@given(st.lists(SAID, min_size=1, max_size=12), st.none() | st.integers(0, 15))
def test_a_list_and_a_database_give_back_the_same_chains(said, limit):
    """Each message replies to one of those before it, or to none; half a surrogate pair may stand in it."""
    database, listed = ConversationDatabase(), ConversationList()
    assert listed.last_message("c") is database.last_message("c") is None
    for number, (role, text, back) in enumerate(said):
        reply_to = number + 1 - back if 0 < back <= number else None
        ids = [history.save("c", role, text, reply_to=reply_to, speaker="Ann") for history in (database, listed)]
        assert ids == [number + 1] * 2
        assert listed.chain(ids[0], limit) == database.chain(ids[0], limit)
    assert listed.last_message("c") == database.last_message("c") == len(said)
    database.close()


def test_a_chain_in_a_list_follows_the_replies_to_the_last_of_them():
    listed, tip = ConversationList(), None
    for number in range(5):
        tip = listed.save("c", "user", str(number), reply_to=tip)
    assert [message.text for message in listed.chain(tip, 3)] == ["2", "3", "4"]
    with pytest.raises(ValueError, match="tool"):
        listed.save("c", "tool", "a result")


def test_a_database_that_cannot_be_opened_is_said_in_a_line(tmp_path):
    (tmp_path / "notes.txt").write_text("no database " * 100)
    for path in (tmp_path / "missing" / "chat.sqlite", tmp_path / "notes.txt"):
        with pytest.raises(ConfigError, match="cannot be opened as a conversation database"):
            ConversationDatabase(path)
