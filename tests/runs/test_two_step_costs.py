"""Costs of a turn of the two-step orchestrator, by formula and in the trace."""

from __future__ import annotations

from typing import Any

import pytest

from agentlab.core.events import ModelCall
from agentlab.tools.memory import NOT_REPLACED
from support.two_step_runs import TIME, WEB, Plan, check_sums, following, play, saving, write_set

LIMIT = {"chatbox": 5, "discord": 3}
UPDATE = ("update_memory", {"memory_id": "fact_99", "new_content": "Ann lives in Rome"})
TURNS = {
    "Hello": Plan(),
    "Time?": Plan((TIME,)),
    "Time, twice?": Plan((TIME, TIME)),
    "Ferry?": Plan((WEB,)),
    "I like tea": Plan((), saving("Ann likes tea")),
    "I moved to Oslo": Plan((TIME,), saving(None, "Ann lives in Oslo")),
    "Now to Rome": Plan((WEB, TIME), (UPDATE, UPDATE, UPDATE)),
    "Three, please": Plan((TIME, TIME, TIME)),
    "Five, please": Plan((TIME,) * 5, saving("Ann counts")),
    "For ever": Plan((TIME,) * 6 + (WEB,) * 3),
}
"""Message -> plan of the model. `Now to Rome` never succeeds in writing; `Five` and `For ever` reach the limit."""


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search engine that finds one page, which cannot be read."""

    class Engine:
        def __init__(self, **options: Any) -> None:
            pass

        def text(self, query: str, **options: Any) -> list[dict[str, str]]:
            return [{"title": "Ferries", "href": "x", "body": "The ferry is blue."}]

    monkeypatch.setattr("ddgs.DDGS", Engine)


@pytest.mark.parametrize("memory", ["sqlite", "none"])
@pytest.mark.parametrize("protocol", ["two_step", "native"])
@pytest.mark.parametrize("flow", ["chatbox", "discord"])
def test_the_calls_of_a_turn_are_a_formula(tmp_path, own_home, engine, flow, protocol, memory):
    data = write_set(tmp_path / "turns", TURNS)
    run = play(data, tmp_path / "run", following(TURNS), {"flow": flow, "protocol": protocol, "memory": memory})
    check_sums(run)
    rows = {row["user"]: row for row in run.turns.to_dict("records")}
    assert list(rows) == list(TURNS)
    writes_memory = flow == "chatbox" and memory != "none"
    for text, plan in TURNS.items():
        tools = plan.tools[: LIMIT[flow]]
        searches, limited = tools.count(WEB), len(tools) == LIMIT[flow]
        writes = plan.writes if writes_memory else ()
        if protocol == "two_step":
            # A choice and arguments for each tool; the last choice, that of memory, the answer; arguments to write.
            calls = 2 + writes_memory + 2 * len(tools) + len(writes) - limited
        else:
            # A reply that calls for each tool, and the answer; each attempt to write is one, and so is writing nothing.
            calls = len(tools) + 1 + (max(1, len(writes)) if writes_memory else 0)
        # Read once before everything, and what of the attempts gets as far as memory.
        operations = 0 if memory == "none" else 1 + sum(bool(arguments) for _, arguments in writes)
        row = rows[text]
        assert row["llm_calls"] == calls + searches, text
        assert row["tool_calls"] == len(tools) + len(writes), text
        assert row["memory_ops"] == row["embedding_calls"] == operations, text
        assert row["memory_unavailable"] == 0


def test_the_retries_and_the_limit_are_seen_in_the_trace(tmp_path, own_home, engine):
    run = play(write_set(tmp_path / "turns", TURNS), tmp_path / "run", following(TURNS), "chatbox")
    trace = run.trace("chatbox", "c0")

    def decided(name: str) -> list[int]:
        return [event.turn for event in trace.events if event.kind == "decision" and event.name == name]

    number = {text: n for n, text in enumerate(TURNS)}
    assert decided("tool limit reached") == [number["Five, please"], number["For ever"]]
    assert decided("memory attempt failed") == [number["I moved to Oslo"], *[number["Now to Rome"]] * 3]
    answer = [event for event in trace.at(number["Now to Rome"]) if isinstance(event, ModelCall)][-1]
    texts = [message.text for message in answer.request.messages if "Tool update_memory failed." in message.text]
    assert len(texts) == 1 and f"Result: {NOT_REPLACED}" in texts[0]
