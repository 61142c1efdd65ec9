"""Stored conversations: chains follow the replies, survive a restart, and are kept apart."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlab.core.errors import ConfigError
from agentlab.core.messages import Citation
from agentlab.session.history import ConversationDatabase


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


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=12), st.integers(1, 15))
def test_a_chain_gives_back_what_was_saved_in_order(texts, limit):
    database = ConversationDatabase()
    tip = None
    for number, text in enumerate(texts):
        tip = database.save("c", "user" if number % 2 == 0 else "agent", text, reply_to=tip)
    assert [m.text for m in database.chain(tip, limit)] == texts[-limit:]
    database.close()


def test_a_database_that_cannot_be_opened_is_said_in_a_line(tmp_path):
    (tmp_path / "notes.txt").write_text("no database " * 100)
    for path in (tmp_path / "missing" / "chat.sqlite", tmp_path / "notes.txt"):
        with pytest.raises(ConfigError, match="cannot be opened as a conversation database"):
            ConversationDatabase(path)
