"""Runs whose memory becomes unavailable: turns are marked, tools report it, and recordings can be repeated."""

from __future__ import annotations

import pytest

from agentlab.cli.terminal import show_run
from agentlab.core.errors import MemoryUnavailable
from agentlab.core.events import MemoryOp, ModelCall, Notice, ToolRun
from agentlab.evals.store.measures import summary_rows
from agentlab.lab.run import Run
from agentlab.memory import sqlite
from agentlab.models.scripted import Scripted
from support.memory_sets import write as write_memory_set
from support.two_step_runs import (
    NOTHING_SAVED,
    Plan,
    Store,
    check_sums,
    following,
    memory_failure_messages,
    play,
    saving,
    write_set,
)

NOTES = [[f"c{c} t{t}" for t in range(3)] for c in range(4)]
NOTING = {text: Plan((), saving(f"note {text}")) for texts in NOTES for text in texts}
"""Plans of turns that each read and write memory: with opening and clearing, 8 operations per conversation."""


def last_prompt_of(run: Run, text: str, flow: str = "chatbox") -> str:
    """Return the prompt of the last call of the turn."""
    conversation, turn = text.split()
    trace = run.trace(flow, conversation)
    last = [e for e in trace.at(int(turn[1:])) if isinstance(e, ModelCall)][-1]
    return "\n".join(message.text for message in last.request.messages)


@pytest.mark.parametrize(
    ("operations", "first"),
    [
        pytest.param(0, 0, id="unreachable from the start"),
        pytest.param(10, 3, id="between reading and writing"),
        pytest.param(11, 4, id="between two turns"),
        pytest.param(15, 6, id="before it is cleared"),
        pytest.param(16, 6, id="before it is opened"),
        pytest.param(17, 6, id="once it is open"),
        pytest.param(32, 12, id="never"),
    ],
)
def test_turns_without_their_memory_are_marked(tmp_path, own_home, monkeypatch, operations, first):
    data = write_set(tmp_path / "notes", *NOTES)
    Store(monkeypatch, operations)
    without = {"flow": "discord", "memory": "none"}
    run = play(data, tmp_path / "run", following(NOTING), "chatbox", without)
    check_sums(run)
    assert run.summary["turns"] == 24 and all(run.turns["reply"] == "Answer to " + run.turns["user"])
    lost = list(NOTING)[first:]
    assert memory_failure_messages(run) == lost and memory_failure_messages(run, "discord") == []
    flows = run.summary["flows"]
    assert [flows[label]["memory_unavailable"] for label in ("chatbox", "discord")] == [len(lost), 0]
    table = {title: cells for _, title, cells in summary_rows([*run.result.flows.values()])[0]}
    assert table.get("turns without their memory") == ([str(len(lost)), "0"] if lost else None)
    for text in NOTING:
        assert (NOTHING_SAVED in last_prompt_of(run, text).split("\nResult: ")[-1]) == (text in lost)
        assert last_prompt_of(run, text).count("| Content: note") == (0 if text in lost else int(text[-1]))


def test_turns_recorded_without_memory_are_named_and_recordable_again(tmp_path, own_home, monkeypatch, capsys):
    data = write_set(tmp_path / "notes", *NOTES)
    store = Store(monkeypatch, 15)

    def again(mode: str, out: str) -> Run:
        recorded = {"mode": mode, "recordings": str(tmp_path / "recordings")}
        return play(data, tmp_path / out, following(NOTING), "chatbox", **recorded)

    show_run(again("record", "away"))
    assert "6 turns were recorded while memory was unavailable" in capsys.readouterr().out
    store.come_back()
    assert any(again("replay", "misses").turns["failed"])
    mended = again("auto", "mended")
    show_run(mended)
    assert memory_failure_messages(mended) == [] and "memory was unavailable" not in capsys.readouterr().out
    replayed = again("replay", "replayed")
    check_sums(replayed)
    assert [*replayed.turns["reply"]] == [*mended.turns["reply"]]


@pytest.mark.parametrize("protocol", ["two_step", "native"])
def test_conversations_at_once_lose_their_memory_at_once(tmp_path, own_home, monkeypatch, protocol):
    data = write_set(tmp_path / "notes", *NOTES)
    store = Store(monkeypatch, 13)
    variant = {"flow": "chatbox", "protocol": protocol}
    run = play(data, tmp_path / "run", following(NOTING), variant, concurrency=3)
    check_sums(run)
    assert store.refused and run.summary["turns"] == 12
    unavailable = []
    for text in NOTING:
        conversation, turn = text.split()
        operations = [e for e in run.trace("chatbox", conversation).at(int(turn[1:])) if isinstance(e, MemoryOp)]
        assert len(operations) == 2
        if any(operation.error for operation in operations):
            unavailable.append(text)
    assert memory_failure_messages(run) == unavailable and 0 < len(unavailable) < 12
    late = {text for text in NOTING if text.startswith("c3")}
    assert late <= set(unavailable), "started after the store became unavailable"


@pytest.mark.parametrize("protocol", ["two_step", "native"])
@pytest.mark.parametrize("flow", ["chatbox", "discord"])
def test_tool_reports_an_unavailable_memory(tmp_path, own_home, monkeypatch, flow, protocol):
    """The model has the look-up tool with the native protocol, or without the filter."""
    data = write_set(tmp_path / "turns", ["What do you know?"])
    Store(monkeypatch, 0)
    plans = {"What do you know?": Plan((("fetch_memory", {"query": "all"}),))}
    variant = {"flow": flow, "protocol": protocol, "filter_memory_tools": protocol == "native"}
    run = play(data, tmp_path / "run", following(plans), variant)
    check_sums(run)
    assert memory_failure_messages(run, flow) == ["What do you know?"]
    (tool,) = [e for e in run.trace(flow, "c0").events if isinstance(e, ToolRun)]
    assert (
        tool.output == "Long-term memory is not available at the moment: nothing could be looked up. Go on without it."
    )
    answers = [e for e in run.trace(flow, "c0").events if isinstance(e, ModelCall) and e.phase == "answer"]
    assert any(tool.output in message.text for message in answers[-1].request.messages)


FACTS = {
    "I play the oboe": saving("Ann plays the oboe"),
    "I keep bees near Ulm": saving("Bo keeps bees"),
    "I sold my oboe and bought a cello": saving("Ann plays the cello"),
    "My boat is called Mistral": saving("The boat is called Mistral"),
}
QUESTIONS = (
    "Who keeps bees near Ulm?",
    "Does Ann play the oboe, or the cello that Ann bought?",
    "What is the name of the dog?",
    "What is the boat called?",
)
"""Questions of `support.memory_sets`: three to one memory, the last one to another."""


def recalling_model() -> Scripted:
    speakers = {"I keep bees near Ulm": "Bo", "My boat is called Mistral": "Cleo"}
    plan = {f"{speakers.get(text, 'Ann')}: {text}": Plan((), writes) for text, writes in FACTS.items()}
    return following({**plan, **{question: Plan() for question in QUESTIONS}})


@pytest.mark.parametrize(
    ("ingest", "operations", "first"),
    [
        pytest.param("verbatim", 0, 0, id="verbatim, unreachable"),
        pytest.param("verbatim", 1, 0, id="verbatim, before the facts are written"),
        pytest.param("verbatim", 3, 1, id="verbatim, between two questions"),
        pytest.param("verbatim", 6, 3, id="verbatim, between two memories"),
        pytest.param("flow", 0, 0, id="flow, unreachable"),
        pytest.param("flow", 4, 0, id="flow, while it writes"),
        pytest.param("flow", 8, 1, id="flow, between two questions"),
    ],
)
def test_a_memory_set_is_asked_without_its_memory(tmp_path, own_home, monkeypatch, ingest, operations, first):
    """Questions are still asked if their memory becomes unavailable; a snapshot taken before survives."""
    data = write_memory_set(tmp_path / "told")
    Store(monkeypatch, operations)
    run = play(data, tmp_path / "run", recalling_model(), "chatbox", ingest=ingest)
    check_sums(run)
    assert [*run.turns["user"]] == [*QUESTIONS]
    assert [*run.turns["memory_unavailable"]] == [int(number >= first) for number in range(4)]
    assert run.summary["flows"]["chatbox"]["memory_unavailable"] == 4 - first
    tokens = [*run.turns["memory_tokens"]]
    assert all((count > 0) == (number < first) for number, count in enumerate(tokens)), "and nothing is recalled"
    if ingest == "flow":
        assert run.summary["flows"]["chatbox"]["ingest"]["errors"] == 0
        filling = run.trace("chatbox", "ingest:told/ann").events
        turns_without_memory = {e.turn for e in filling if isinstance(e, Notice) and e.name == "memory_unavailable"}
        assert turns_without_memory == {0: {0, 1, 2}, 4: {1, 2}, 8: set()}[operations]


@pytest.mark.parametrize("ingest", ["verbatim", "flow"])
def test_failed_filling_of_a_memory_is_reported_after_its_return(tmp_path, own_home, monkeypatch, ingest):
    async def fail(*a, **k):
        raise MemoryUnavailable("blink")

    monkeypatch.setattr(sqlite.SqliteMemory, "ingest", fail, raising=False)
    monkeypatch.setattr(sqlite.SqliteMemory, "add", fail, raising=False)
    run = play(write_memory_set(tmp_path / "told"), tmp_path / "run", recalling_model(), "chatbox", ingest=ingest)
    flow = run.summary["flows"]["chatbox"]
    is_unavailable = [*run.turns["memory_unavailable"]] == [1, 1, 1, 1] or flow.get("ingest", {}).get(
        "memory_unavailable"
    ) == 4
    assert is_unavailable
