"""The two-step orchestrator on our own data sets: their tools and their sessions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from agentlab.core.constants import MEMORY_TOOLS
from agentlab.core.events import MemoryOp, ModelCall, ToolRun
from agentlab.core.messages import Request
from agentlab.data.conversations import Conversation
from agentlab.data.datasets import load_dataset
from agentlab.tools.stub import NEUTRAL
from support.paths import OWN
from support.two_step_runs import WRITES, Plan, check_sums, following, play, saving, spoken

VARIANTS = [("chatbox", "two_step"), ("chatbox", "native"), ("discord", "two_step"), ("discord", "native")]


def of_the_assistant(into: Path) -> Path:
    """Conversations without and with memory tools, two of them with a speaker."""
    rows = (OWN / "assistant" / "conversations.jsonl").read_text(encoding="utf-8").splitlines()
    into.mkdir()
    chosen = [rows[number] for number in (0, 3, 26, 27, 28, 31, 32, 42)]
    (into / "conversations.jsonl").write_text("\n".join(chosen) + "\n", encoding="utf-8")
    return into


def expected(conversations: Iterable[Conversation], excluded: Iterable[str]) -> dict[str, Plan]:
    """Return the expected calls of each turn, with the first accepted arguments. The memory step, which writes once,
    makes the calls that the main loop excludes."""
    plans = {}
    for conversation in conversations:
        required = {tool.name: tool.parameters["required"] for tool in conversation.tools}
        for turn in conversation.turns:
            calls = []
            for made in turn.expected_calls or ():
                first = {name: accepted[0] for name, accepted in made.accepted_arguments.items() if accepted}
                calls.append((made.name, {**dict.fromkeys(required[made.name], "as you like"), **first}))
            tools = tuple(made for made in calls if made[0] not in excluded)
            plans[turn.user] = Plan(tools, tuple(made for made in calls if made[0] in WRITES)[:1])
    return plans


@pytest.mark.parametrize(("flow", "protocol"), VARIANTS)
def test_the_assistant_set_runs_on_the_tools_it_brings(tmp_path, own_home, flow, protocol):
    folder = of_the_assistant(tmp_path / "assistant")
    conversations = load_dataset(folder).conversations
    excluded = MEMORY_TOOLS if protocol == "two_step" else WRITES
    model = following(expected(conversations, excluded))
    run = play(folder, tmp_path / "run", model, {"flow": flow, "protocol": protocol})
    check_sums(run)
    assert run.summary["turns"] == sum(len(conversation.turns) for conversation in conversations)
    for conversation in conversations:
        trace = run.trace(flow, conversation.id)
        dataset_tools = {tool.name: tool.description for tool in conversation.tools}
        # What it does not bring of the memory tools is ours; everything else of ours is missing.
        in_loop = ({*dataset_tools, "fetch_memory"} if protocol == "native" else {*dataset_tools}) - {*excluded}
        steps = {frozenset(in_loop), frozenset(WRITES)} if flow == "chatbox" else {frozenset(in_loop)}
        offered = {offered_by(e.request) for e in trace.events if isinstance(e, ModelCall)} - {frozenset()}
        assert offered == steps, "the main loop's and the memory step's, which discord skips whatever is dataset_tools"
        # The data set's own words, not those of our tools.
        seen = "\n".join(
            [m.text for e in trace.events if isinstance(e, ModelCall) for m in e.request.messages[:1]]
            + [t.description for e in trace.events if isinstance(e, ModelCall) for t in e.request.tools]
        )
        for name in {*dataset_tools} & (in_loop | ({*WRITES} if flow == "chatbox" else set())):
            assert dataset_tools[name] in seen, name
        for number, turn in enumerate(conversation.turns):
            check_results(trace.at(number), turn.tool_results, dataset_tools)
            spoken = [e.request.messages for e in trace.at(number) if isinstance(e, ModelCall)][-1]
            last = [m for m in spoken if m.role == "user" and not m.text.startswith("Tool ")][-1]
            name = turn.speaker.name if turn.speaker else None
            assert last.name == name
            assert last.text == (turn.user if flow == "chatbox" else f"{name or 'Somebody'} said: {turn.user}")
    runs = [e for trace in run.traces.values() for e in trace.events if isinstance(e, ToolRun)]
    assert not [e.error for e in runs if e.error]
    used = {e.call.name for e in runs}
    assert {"get_current_time", "read_file", "write_file", "search_web"} <= used
    assert ("fetch_memory" in used) == (protocol == "native")
    assert (set(WRITES) <= used) == (flow == "chatbox")


def offered_by(request: Request) -> frozenset[str]:
    """Return the tools that the model may choose in this request."""
    choice = ((request.output_schema or {}).get("properties") or {}).get("tool", {}).get("enum", ())
    return frozenset([*(name for name in choice if name is not None), *(tool.name for tool in request.tools)])


def check_results(events: list[Any], recorded: Iterable[Any], dataset_tools: Mapping[str, str]) -> None:
    """Every tool returned the recorded result of the turn, and the model reads it unchanged."""
    due: dict[str, list[dict[str, Any]]] = {}
    for result in recorded:
        row = result.model_dump()
        due.setdefault(row.pop("name"), []).append(row)
    read = {m.text for event in events if isinstance(event, ModelCall) for m in event.request.messages}
    for run in (event for event in events if isinstance(event, ToolRun)):
        assert run.call.name in dataset_tools
        queue = due.get(run.call.name)
        if not queue:
            assert run.output == NEUTRAL
            continue
        row = queue.pop(0)
        if set(row) == {"results"} and isinstance(row["results"], str):
            assert run.output == row["results"]
            message = "\nResult: " + run.output.replace("\n", "\n  ")
            # What the memory step of the native protocol wrote, after the answer, is read in the next turn.
            assert run.call.name in WRITES or any(text == run.output or text.endswith(message) for text in read)
        else:
            assert json.loads(run.output) == (row["results"] if set(row) == {"results"} else row)


@pytest.mark.parametrize(("flow", "protocol"), VARIANTS)
def test_the_memory_set_runs_over_its_sessions(tmp_path, own_home, flow, protocol):
    conversations = load_dataset(OWN / "memory").subset(4).conversations
    plans = {
        turn.user: Plan((), saving(*[m.content for m in turn.expected_memory or () if m.op == "add"])[:1])
        for conversation in conversations
        for turn in conversation.turns
    }
    # With every threshold passed: similarities of the hashing embedder mean little.
    variant = {"flow": flow, "protocol": protocol, "memory_min_score": -1}
    run = play(OWN / "memory", tmp_path / "run", following(plans), variant, limit=4)
    check_sums(run)
    assert run.summary["turns"] == sum(len(conversation.turns) for conversation in conversations)
    for conversation in conversations:
        trace = run.trace(flow, conversation.id)
        for number, turn in enumerate(conversation.turns):
            events = trace.at(number)
            written = [e for e in events if isinstance(e, MemoryOp) and e.op == "remember"]
            assert len(written) == (len(plans[turn.user].writes) if flow == "chatbox" else 0)
            messages = next(e.request.messages for e in events if isinstance(e, ModelCall))
            starts = number == 0 or turn.session != conversation.turns[number - 1].session
            users = sum(spoken(message) in plans for message in messages)
            assert (users == 1) == starts, "a new session begins without the history of the last one"
            recalled = [e for e in events if isinstance(e, MemoryOp) and e.op == "recall"]
            assert len(recalled) == 1 and recalled[0].text == turn.user
            assert bool(recalled[0].facts) == (flow == "chatbox" and number > 0), "memory outlives the session"
