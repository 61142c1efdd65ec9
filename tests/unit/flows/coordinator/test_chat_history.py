"""The coordinator's history: the internal format, the estimate of tokens, and trimming that never breaks a history."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlab.core.messages import Message
from agentlab.flows.coordinator.chat_history import ChatHistory, estimate_tokens
from support.histories import call, histories


def paired(messages: tuple[Message, ...]) -> bool:
    """Assert that every call has one result, directly after it and before the next message."""
    waiting: set[str | None] = set()
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                return False
            waiting.remove(message.tool_call_id)
        elif waiting:
            return False
        waiting |= {one.id for one in message.tool_calls}
    return not waiting


@given(histories(), st.integers(1, 300), st.integers(0, 200))
def test_trimming_keeps_a_valid_history_below_its_bound(history, limit, chunk):
    before = history.get_history()
    count = history.get_token_count()
    removed = history.trim_to_limit(limit, chunk)
    after = history.get_history()
    assert after == before[removed:]
    assert paired(after)
    users = [m for m in before if m.role == "user"]
    assert [m for m in after if m.role == "user"][-1:] == users[-1:]
    if count <= limit:
        assert removed == 0
    elif after and [m.role for m in after].count("user") > 1:
        assert history.get_token_count() <= (limit - chunk - 1 if chunk else limit)
    if removed:
        assert after[0].role == "user"
    assert history.trim_to_limit(limit, chunk) == 0


@given(histories(), st.integers(1, 300), st.integers(1, 100))
def test_a_chunk_is_the_least_that_goes_at_a_time(history, limit, chunk):
    before = history.get_history()
    removed = history.trim_to_limit(limit, chunk)
    if removed and sum(m.role == "user" for m in history.get_history()) > 1:
        assert sum(map(estimate_tokens, before[:removed])) >= chunk


def test_greedy_trimming_leaves_room_and_minimal_trimming_does_not():
    def filled() -> ChatHistory:
        history = ChatHistory()
        for number in range(20):
            history.add_message("user", f"{number:>400}")
        return history

    greedy, minimal = filled(), filled()
    assert greedy.get_token_count() == 2000
    assert greedy.trim_to_limit(1900, 500) == 10
    assert greedy.get_token_count() == 1000
    assert greedy.get_token_count() < 1900 - 500
    assert minimal.trim_to_limit(1900, 0) == 1
    assert minimal.get_token_count() == 1900


def test_tokens_are_characters_by_four_over_text_calls_and_results():
    history = ChatHistory()
    history.add_message("user", "x" * 43)
    assert history.get_token_count() == 10
    arguments = {"q": "ü" * 30}
    history.add_message("miyori", "y" * 8, tool_calls=(call("c", **arguments),))
    written = "y" * 8 + "search" + json.dumps(arguments, ensure_ascii=False)
    assert history.get_token_count() == 10 + len(written) // 4
    history.add_message("tool", "z" * 100, name="search", tool_call_id="c")
    assert history.get_token_count() == 10 + len(written) // 4 + 25


def test_the_agent_speaks_under_its_own_name():
    history = ChatHistory("otto")
    history.add_message("user", "Both, please.")
    history.add_message("otto", "I look.", tool_calls=(call("call_1", city="Bern"),))
    assert [(m.role, m.name) for m in history.get_history()] == [("user", None), ("otto", None)]
    sent = history.request_messages()
    assert [(m.role, m.name) for m in sent] == [("user", None), ("agent", "otto")]
    again = ChatHistory("otto")
    again.restore(sent)
    assert again.get_history() == history.get_history() and again.open_calls()


@pytest.mark.parametrize("role", ["assistant", "model", "agent", "system"])
def test_a_providers_word_for_the_agent_is_no_role(role):
    with pytest.raises(ValueError, match="roles are user, miyori and tool"):
        ChatHistory().add_message(role, "Hi")


def test_change_that_orphans_a_call_or_result_is_refused():
    history = ChatHistory()
    with pytest.raises(ValueError, match="no open tool call"):
        history.add_message("tool", "?", name="search", tool_call_id="c")
    history.add_message("miyori", "", tool_calls=(call("a"), call("b")))
    with pytest.raises(ValueError, match="have no result yet"):
        history.add_message("user", "And?")
    history.add_message("tool", "1", name="search", tool_call_id="b")
    with pytest.raises(ValueError, match="no open tool call"):
        history.add_message("tool", "1", name="search", tool_call_id="b")
    assert [c.id for c in history.open_calls()] == ["a"]
    history.close_open_calls("Error: broken off")
    assert paired(history.get_history())
    with pytest.raises(ValueError, match="same id"):
        history.add_message("miyori", "", tool_calls=(call("x"), call("x")))


def test_clearing_forgets_everything():
    history = ChatHistory()
    history.add_message("user", "Hi")
    history.clear()
    assert (history.get_token_count(), history.get_history()) == (0, ())
