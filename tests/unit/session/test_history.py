"""Stored messages: in order, as many as requested, until they are forgotten."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlab.session.history import History

MESSAGE = st.tuples(st.sampled_from(["user", "agent", "system"]), st.text())


@given(st.lists(MESSAGE, max_size=12), st.none() | st.integers(0, 15))
def test_a_chain_is_the_last_messages_in_their_order(messages, limit):
    """A message may contain half a surrogate pair; it is stored in a valid form."""
    history = History()
    for role, text in messages:
        history.save(role, text, "Ann")
    stored = [(role, text.encode("utf-8", "replace").decode(), "Ann") for role, text in messages]
    chain = [(message.role, message.text, message.name) for message in history.chain(limit)]
    assert chain == (stored if limit is None else stored[max(0, len(stored) - limit) :])


def test_forgotten_history_is_not_read():
    history = History()
    history.save("user", "Hi")
    history.forget()
    history.save("agent", "Hello")
    assert ([message.text for message in history.chain()], history.history_version) == (["Hello"], 1)


def test_a_message_of_a_tool_is_not_stored():
    with pytest.raises(ValueError, match="tool"):
        History().save("tool", "a result")
