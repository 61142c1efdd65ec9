"""Runs and chats of the two orchestrators: what a turn costs, our own data sets, and a memory that goes away."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from test_memory_sets import write as write_memory_set

import agentlab as al
from agentlab.cli.terminal import show_comparison
from agentlab.core.errors import MemoryUnavailable
from agentlab.core.events import MemoryOp, ModelCall, Notice, ToolRun
from agentlab.core.messages import Message, Request
from agentlab.core.names import MEMORY_TOOLS
from agentlab.data.conversations import Conversation
from agentlab.data.datasets import load_dataset
from agentlab.evals.compare.measures import summary_rows
from agentlab.evals.results.run import Run
from agentlab.flows import chatbox, discord
from agentlab.memory import sqlite
from agentlab.models.scripted import Scripted, call
from agentlab.tools import search_web
from agentlab.tools.stub import NEUTRAL
from agentlab.tools.update_memory import FAILED

OWN = Path(__file__).parents[1] / "datasets"
WRITES = ("save_memory", "update_memory")
LIMIT = {"chatbox": 5, "discord": 3}
NOTHING_SAVED = "Long-term memory is not available at the moment: nothing was saved. Go on without it."
TIME = ("get_current_time", {})
WEB = ("search_web", {"query": "ferry"})


@dataclass(frozen=True)
class Plan:
    """What the model does about one message: the tools it calls, and its attempts to write to memory."""

    tools: tuple[tuple[str, dict[str, Any]], ...] = ()
    writes: tuple[tuple[str, dict[str, Any]], ...] = ()


def following(plans: Mapping[str, Plan]) -> Scripted:
    """A model that reads from each request how far the plan for the user's last message has come."""

    def reply(request: Request) -> str | Message:
        if request.messages[0].text == search_web.PROMPT:
            return "The ferry is blue."
        last = max(n for n, message in enumerate(request.messages) if message.role == "user")
        said, since = request.messages[last].text, request.messages[last + 1 :]
        said = said if said in plans else re.sub(r"^\w+ said: ", "", said)
        plan = plans[said]
        guidance = {chatbox.PROMPTS[name] for name in ("memory_guidance", "native_memory_guidance")}
        answered = [message for message in since if message.role == "tool"]
        if any(message.text in guidance for message in since):
            to_do = plan.writes
            done = len(answered) + sum("The last attempt failed" in message.text for message in since)
        else:
            to_do, done = plan.tools, len(answered) or sum(message.text.startswith("Tool ") for message in since)
        if request.output_schema is None:
            if request.tools and request.tool_choice != "none" and done < len(to_do):
                name, arguments = to_do[done]
                return call(name, f"{name}_{last}_{done}", **arguments)
            return f"Answer to {said}"
        if "tool" not in request.output_schema.get("properties", {}):
            return json.dumps(to_do[min(done, len(to_do) - 1)][1])
        return json.dumps({"tool": to_do[done][0] if done < len(to_do) else None})

    return Scripted([reply], loop=True)


def write_set(folder: Path, *conversations: Iterable[str]) -> Path:
    folder.mkdir()
    rows = [{"id": f"c{n}", "turns": [{"user": text} for text in texts]} for n, texts in enumerate(conversations)]
    (folder / "conversations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def play(data: Path, out: Path, model: Scripted, *flows: Any, **spec: Any) -> Run:
    spec = {"embedder": "hashing/hashing-64", "memory": "sqlite", **spec}
    with al.Lab(model=model, datasets=[str(data)], flows=list(flows), **spec) as lab:
        return lab.run_sync(out=out)


def marked(run: Run, flow: str = "chatbox") -> list[str]:
    """The messages of the turns that say their memory was away."""
    turns = run.turns[run.turns["flow"] == flow]
    return sorted(turns[turns["memory_unavailable"] == 1]["user"])


def check_sums(run: Run) -> None:
    """Nothing failed, and turns, calls and summary say the same."""
    assert run.summary["status"] == "complete" and not any(run.turns["failed"])
    for trace in run.traces.values():
        trace.check()
    for label, flow in run.summary["flows"].items():
        turns = run.turns[run.turns["flow"] == label]
        calls = run.calls[run.calls["flow"] == label]["kind"].value_counts()
        for total, kind in (("llm_calls", "model_call"), ("tool_calls", "tool"), ("memory_ops", "memory")):
            filling = flow.get("ingest", {}).get(total, 0)
            assert flow[total] == turns[total].sum() + filling == calls.get(kind, 0), (label, total)


# What a turn costs.


def saving(*contents: str | None) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Attempts to save; None is one without the content, which the schema refuses."""
    return tuple(("save_memory", {} if content is None else {"content": content}) for content in contents)


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
"""With the retries of the final step, `Now to Rome` fails to write for good; `Five` and `For ever` reach the limit."""


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
    answer = [event for event in trace.of_turn(number["Now to Rome"]) if isinstance(event, ModelCall)][-1]
    told = [message.text for message in answer.request.messages if "Tool update_memory ran." in message.text]
    assert len(told) == 1 and f"Result: {FAILED}" in told[0]


# Our own data sets. What a conversation brings stands in for our tools, the memory tools too.


VARIANTS = [("chatbox", "two_step"), ("chatbox", "native"), ("discord", "two_step"), ("discord", "native")]


def of_the_assistant(into: Path) -> Path:
    """Conversations without and with memory tools, two of them with a speaker."""
    rows = (OWN / "assistant" / "conversations.jsonl").read_text(encoding="utf-8").splitlines()
    into.mkdir()
    chosen = [rows[number] for number in (0, 3, 26, 27, 28, 31, 32, 42)]
    (into / "conversations.jsonl").write_text("\n".join(chosen) + "\n", encoding="utf-8")
    return into


def expected(conversations: Iterable[Conversation], kept_out: Iterable[str]) -> dict[str, Plan]:
    """The calls a turn expects, with the first accepted arguments; what is kept out of the main loop is left to the
    memory step, which writes once."""
    plans = {}
    for conversation in conversations:
        required = {tool.name: tool.parameters["required"] for tool in conversation.tools}
        for turn in conversation.turns:
            calls = []
            for made in turn.expected_calls or ():
                first = {name: accepted[0] for name, accepted in made.accepted_arguments.items() if accepted}
                calls.append((made.name, {**dict.fromkeys(required[made.name], "as you like"), **first}))
            tools = tuple(made for made in calls if made[0] not in kept_out)
            plans[turn.user] = Plan(tools, tuple(made for made in calls if made[0] in WRITES)[:1])
    return plans


@pytest.mark.parametrize(("flow", "protocol"), VARIANTS)
def test_the_assistant_set_runs_on_the_tools_it_brings(tmp_path, own_home, flow, protocol):
    folder = of_the_assistant(tmp_path / "assistant")
    conversations = load_dataset(folder).conversations
    kept_out = MEMORY_TOOLS if protocol == "two_step" else WRITES
    model = following(expected(conversations, kept_out))
    run = play(folder, tmp_path / "run", model, {"flow": flow, "protocol": protocol})
    check_sums(run)
    assert run.summary["turns"] == sum(len(conversation.turns) for conversation in conversations)
    for conversation in conversations:
        trace = run.trace(flow, conversation.id)
        brought = {tool.name: tool.description for tool in conversation.tools}
        # What it does not bring of the memory tools is ours; everything else of ours is gone.
        in_loop = ({*brought, "fetch_memory"} if protocol == "native" else {*brought}) - {*kept_out}
        steps = {frozenset(in_loop), frozenset(WRITES)} if flow == "chatbox" else {frozenset(in_loop)}
        offered = {offered_by(e.request) for e in trace.events if isinstance(e, ModelCall)} - {frozenset()}
        assert offered == steps, "the main loop's and the memory step's, which discord skips whatever is brought"
        # The data set's own words, not those of our tools.
        seen = "\n".join(
            [m.text for e in trace.events if isinstance(e, ModelCall) for m in e.request.messages[:1]]
            + [t.description for e in trace.events if isinstance(e, ModelCall) for t in e.request.tools]
        )
        for name in {*brought} & (in_loop | ({*WRITES} if flow == "chatbox" else set())):
            assert brought[name] in seen, name
        for number, turn in enumerate(conversation.turns):
            check_results(trace.of_turn(number), turn.tool_results, brought)
            spoken = [e.request.messages for e in trace.of_turn(number) if isinstance(e, ModelCall)][-1]
            said = [message for message in spoken if message.role == "user"][-1]
            name = turn.speaker.name if turn.speaker else None
            assert said.name == name
            assert said.text == (turn.user if flow == "chatbox" else f"{name or 'Somebody'} said: {turn.user}")
    runs = [e for trace in run.traces.values() for e in trace.events if isinstance(e, ToolRun)]
    assert not [e.error for e in runs if e.error]
    used = {e.call.name for e in runs}
    assert {"get_current_time", "read_file", "write_file", "search_web"} <= used
    assert ("fetch_memory" in used) == (protocol == "native")
    assert (set(WRITES) <= used) == (flow == "chatbox")


def offered_by(request: Request) -> frozenset[str]:
    """The tools a request leaves a choice between."""
    choice = ((request.output_schema or {}).get("properties") or {}).get("tool", {}).get("enum", ())
    return frozenset([*(name for name in choice if name is not None), *(tool.name for tool in request.tools)])


def check_results(events: list[Any], recorded: Iterable[Any], brought: Mapping[str, str]) -> None:
    """Every tool was answered with what is recorded for the turn, and the model reads a text as it stands."""
    due: dict[str, list[dict[str, Any]]] = {}
    for result in recorded:
        row = result.model_dump()
        due.setdefault(row.pop("name"), []).append(row)
    read = {m.text for event in events if isinstance(event, ModelCall) for m in event.request.messages}
    for run in (event for event in events if isinstance(event, ToolRun)):
        assert run.call.name in brought
        queue = due.get(run.call.name)
        if not queue:
            assert run.output == NEUTRAL
            continue
        row = queue.pop(0)
        if set(row) == {"results"} and isinstance(row["results"], str):
            assert run.output == row["results"]
            told = "\nResult: " + run.output.replace("\n", "\n  ")
            # What the memory step of the native protocol wrote, after the answer, is read in the next turn.
            assert run.call.name in WRITES or any(text == run.output or text.endswith(told) for text in read)
        else:
            assert json.loads(run.output) == (row["results"] if set(row) == {"results"} else row)


@pytest.mark.parametrize(("flow", "protocol"), VARIANTS)
def test_the_memory_set_runs_over_its_sessions(tmp_path, own_home, flow, protocol):
    conversations = load_dataset(OWN / "memory").take(4).conversations
    plans = {
        turn.user: Plan((), saving(*[m.content for m in turn.expected_memory or () if m.op == "add"])[:1])
        for conversation in conversations
        for turn in conversation.turns
    }
    run = play(OWN / "memory", tmp_path / "run", following(plans), {"flow": flow, "protocol": protocol}, limit=4)
    check_sums(run)
    assert run.summary["turns"] == sum(len(conversation.turns) for conversation in conversations)
    for conversation in conversations:
        trace = run.trace(flow, conversation.id)
        for number, turn in enumerate(conversation.turns):
            events = trace.of_turn(number)
            written = [e for e in events if isinstance(e, MemoryOp) and e.op == "remember"]
            assert len(written) == (len(plans[turn.user].writes) if flow == "chatbox" else 0)
            asked = next(e.request.messages for e in events if isinstance(e, ModelCall))
            begins = number == 0 or turn.session != conversation.turns[number - 1].session
            users = sum(message.role == "user" for message in asked)
            assert (users == 1) == begins, "a new session begins without the history of the last one"
            recalled = [e for e in events if isinstance(e, MemoryOp) and e.op == "recall"]
            assert len(recalled) == 1 and recalled[0].text == turn.user
            assert bool(recalled[0].facts) == (flow == "chatbox" and number > 0), "memory outlives the session"


# A memory that goes away.


class Store:
    """The sqlite backend, which goes away after `operations` of all conversations together, or when told so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, operations: int = 10**9) -> None:
        self.left = operations
        self.refused: list[str] = []
        for name in ("search", "add", "update", "facts", "clear", "ingest", "snapshot"):
            real = getattr(sqlite.SqliteMemory, name)
            monkeypatch.setattr(sqlite.SqliteMemory, name, self._cut(name, real), raising=False)
        connect = sqlite.connect

        def connect_if_there(*arguments: Any, **options: Any) -> Any:
            if self.left <= 0:
                raise MemoryUnavailable("the server does not answer")
            return connect(*arguments, **options)

        monkeypatch.setattr(sqlite, "connect", connect_if_there)

    def go_away(self) -> None:
        self.left = 0

    def come_back(self) -> None:
        self.left = 10**9

    def _cut(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        async def operation(memory: Any, *arguments: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                self.refused.append(name)
                raise MemoryUnavailable("the store is gone")
            return await real(memory, *arguments, **options)

        return operation


NOTES = [[f"c{c} t{t}" for t in range(3)] for c in range(4)]
NOTING = {text: Plan((), saving(f"note {text}")) for texts in NOTES for text in texts}
"""Each turn reads memory and writes to it: with opening and clearing, 8 operations a conversation."""


def answer_of(run: Run, text: str, flow: str = "chatbox") -> str:
    """What the model was shown in the last call of the turn."""
    conversation, turn = text.split()
    trace = run.trace(flow, conversation)
    last = [e for e in trace.of_turn(int(turn[1:])) if isinstance(e, ModelCall)][-1]
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
def test_the_turns_after_a_memory_went_away_are_marked(tmp_path, own_home, monkeypatch, operations, first):
    data = write_set(tmp_path / "notes", *NOTES)
    Store(monkeypatch, operations)
    without = {"flow": "discord", "memory": "none"}
    run = play(data, tmp_path / "run", following(NOTING), "chatbox", without)
    check_sums(run)
    assert run.summary["turns"] == 24 and all(run.turns["reply"] == "Answer to " + run.turns["user"])
    lost = list(NOTING)[first:]
    assert marked(run) == lost and marked(run, "discord") == []
    flows = run.summary["flows"]
    assert [flows[label]["memory_unavailable"] for label in ("chatbox", "discord")] == [len(lost), 0]
    table = dict(summary_rows([*flows.values()])[0])
    assert table.get("turns without their memory") == ([str(len(lost)), "0"] if lost else None)
    for text in NOTING:
        assert (NOTHING_SAVED in answer_of(run, text).split("\nResult: ")[-1]) == (text in lost)
        assert answer_of(run, text).count("| Content: note") == (0 if text in lost else int(text[-1]))


def test_turns_recorded_without_their_memory_are_named_and_can_be_recorded_again(
    tmp_path, own_home, monkeypatch, capsys
):
    data = write_set(tmp_path / "notes", *NOTES)
    store = Store(monkeypatch, 15)

    def again(mode: str, out: str) -> Run:
        recorded = {"mode": mode, "recordings": str(tmp_path / "recordings")}
        return play(data, tmp_path / out, following(NOTING), "chatbox", **recorded)

    show_comparison(again("record", "away"))
    assert "6 turns were recorded without their memory" in capsys.readouterr().out
    store.come_back()
    assert any(again("replay", "misses").turns["failed"])
    mended = again("auto", "mended")
    show_comparison(mended)
    assert marked(mended) == [] and "without their memory" not in capsys.readouterr().out
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
    away = []
    for text in NOTING:
        conversation, turn = text.split()
        operations = [e for e in run.trace("chatbox", conversation).of_turn(int(turn[1:])) if isinstance(e, MemoryOp)]
        assert len(operations) == 2
        if any(operation.error for operation in operations):
            away.append(text)
    assert marked(run) == away and 0 < len(away) < 12
    assert {text for text in NOTING if text.startswith("c3")} <= set(away), "begun after the store had gone"


@pytest.mark.parametrize("protocol", ["two_step", "native"])
@pytest.mark.parametrize("flow", ["chatbox", "discord"])
def test_a_tool_says_that_memory_is_away(tmp_path, own_home, monkeypatch, flow, protocol):
    """A look-up too, where the model has the tool for it: the native protocol, or no filter."""
    data = write_set(tmp_path / "turns", ["What do you know?"])
    Store(monkeypatch, 0)
    plans = {"What do you know?": Plan((("fetch_memory", {"query": "all"}),))}
    variant = {"flow": flow, "protocol": protocol, "filter_memory_tools": protocol == "native"}
    run = play(data, tmp_path / "run", following(plans), variant)
    check_sums(run)
    assert marked(run, flow) == ["What do you know?"]
    (tool,) = [e for e in run.trace(flow, "c0").events if isinstance(e, ToolRun)]
    assert (
        tool.output == "Long-term memory is not available at the moment: nothing could be looked up. Go on without it."
    )
    answers = [e for e in run.trace(flow, "c0").events if isinstance(e, ModelCall) and e.phase == "answer"]
    assert any(tool.output in message.text for message in answers[-1].request.messages)


TOLD = {
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
"""Of `test_memory_sets`: three questions to one memory, the last one to another."""


def asking_the_told() -> Scripted:
    speakers = {"I keep bees near Ulm": "Bo", "My boat is called Mistral": "Cleo"}
    told = {f"{speakers.get(text, 'Ann')}: {text}": Plan((), writes) for text, writes in TOLD.items()}
    return following({**told, **{question: Plan() for question in QUESTIONS}})


@pytest.mark.parametrize(
    ("ingest", "operations", "first"),
    [
        pytest.param("verbatim", 0, 0, id="verbatim, unreachable"),
        pytest.param("verbatim", 1, 0, id="verbatim, before what was told is written"),
        pytest.param("verbatim", 3, 1, id="verbatim, between two questions"),
        pytest.param("verbatim", 6, 3, id="verbatim, between two memories"),
        pytest.param("flow", 0, 0, id="flow, unreachable"),
        pytest.param("flow", 4, 0, id="flow, while it writes"),
        pytest.param("flow", 8, 1, id="flow, between two questions"),
    ],
)
def test_a_memory_set_is_asked_without_its_memory(tmp_path, own_home, monkeypatch, ingest, operations, first):
    """A snapshot that was taken stays: what is asked against it is not lost."""
    data = write_memory_set(tmp_path / "told")
    Store(monkeypatch, operations)
    run = play(data, tmp_path / "run", asking_the_told(), "chatbox", ingest=ingest)
    check_sums(run)
    assert [*run.turns["user"]] == [*QUESTIONS]
    assert [*run.turns["memory_unavailable"]] == [int(number >= first) for number in range(4)]
    assert run.summary["flows"]["chatbox"]["memory_unavailable"] == 4 - first
    tokens = [*run.turns["memory_tokens"]]
    assert all((count > 0) == (number < first) for number, count in enumerate(tokens)), "and nothing is recalled"
    if ingest == "flow":
        assert run.summary["flows"]["chatbox"]["ingest"]["errors"] == 0
        filling = run.trace("chatbox", "ingest:told/ann").events
        away = {e.turn for e in filling if isinstance(e, Notice) and e.name == "memory_unavailable"}
        assert away == {0: {0, 1, 2}, 4: {1, 2}, 8: set()}[operations]


# Chats.


def chatting(model: Scripted, **spec: Any) -> al.Lab:
    spec = {"embedder": "hashing/hashing-64", "memory": "sqlite", "flows": ["chatbox"], **spec}
    return al.Lab(model=model, **spec)


def shown(model: Scripted) -> str:
    return "\n".join(message.text for message in model.requests[-1].messages)


def away_in(chat: Any) -> set[int]:
    return {e.turn for e in chat.trace.events if isinstance(e, Notice) and e.name == "memory_unavailable"}


TEA = {"I like tea": Plan((), saving("Ann likes tea")), "What do I like?": Plan(), "And now?": Plan()}


def test_a_chat_begun_without_its_memory_has_it_once_it_is_back(tmp_path, own_home, monkeypatch):
    store, model = Store(monkeypatch, 0), following(TEA)
    with chatting(model) as lab:
        chat = lab.chat(documents=[], memory=tmp_path / "memory")
        assert chat.say_sync("I like tea").text == "Answer to I like tea"
        assert NOTHING_SAVED in shown(model)
        chat.say_sync("What do I like?")
        assert away_in(chat) == {0, 1}
        store.come_back()
        chat.say_sync("I like tea")
        assert "Saved to memory. ID: fact_" in shown(model)
        chat.say_sync("What do I like?")
        assert "| Content: Ann likes tea" in shown(model)
        assert away_in(chat) == {0, 1}


def test_a_chat_goes_on_where_its_memory_leaves_and_comes_back(tmp_path, own_home, monkeypatch):
    store, model = Store(monkeypatch), following(TEA)
    with chatting(model) as lab:
        chat = lab.chat(documents=[], memory=tmp_path / "memory")
        chat.say_sync("I like tea")
        store.go_away()
        chat.say_sync("What do I like?")
        assert "| Content:" not in shown(model)
        store.come_back()
        chat.say_sync("And now?")
        assert "| Content: Ann likes tea" in shown(model)
        assert away_in(chat) == {1}


def test_what_was_written_before_it_went_away_is_there_after_a_restart(tmp_path, own_home, monkeypatch):
    store, model = Store(monkeypatch), following(TEA)
    with chatting(model) as lab:
        chat = lab.chat(documents=[], memory=tmp_path / "memory")
        chat.say_sync("I like tea")
        store.go_away()
        chat.say_sync("I like tea")
        assert away_in(chat) == {1}
    store.come_back()
    with chatting(model) as lab:
        chat = lab.chat(documents=[], memory=tmp_path / "memory")
        chat.say_sync("What do I like?")
        assert shown(model).count("| Content: Ann likes tea") == 1 and not away_in(chat)
        assert [message.role for message in model.requests[-1].messages] == ["system", "user", "system"]


@pytest.mark.parametrize(
    ("speaker", "personality", "told"),
    [
        ({"speaker_id": "7", "speaker_name": "Ann"}, "master", "with Ann (ID 7), who is the one"),
        ({"speaker_id": "8", "speaker_name": "Ann"}, "stranger_2", "with Ann (ID 8), who is not the one"),
        ({"speaker_name": "7"}, "stranger_2", "with 7 (ID unknown), who is not the one"),
        ({}, "stranger_2", "with somebody (ID unknown), who is not the one"),
    ],
)
def test_a_chat_knows_who_is_speaking(tmp_path, own_home, speaker, personality, told):
    model = following({"Hello": Plan()})
    flows = [{"flow": "discord", "master_id": "7", "stranger": 2}]
    folder = Path(discord.__file__).parent / "two_step" / "personalities"
    with chatting(model, flows=flows) as lab:
        chat = lab.chat(documents=[])
        chat.say_sync("Hello", **speaker)
        first, _, who, said = model.requests[-1].messages
        assert first.text == (folder / f"{personality}.txt").read_text(encoding="utf-8").strip()
        assert told in who.text
        assert said.text == f"{speaker.get('speaker_name', 'Somebody')} said: Hello"


async def test_say_hands_the_speaker_on_turn_by_turn(tmp_path, own_home):
    model = following({"Hello": Plan()})
    with chatting(model, flows=[{"flow": "discord", "master_id": "7"}]) as lab:
        chat = lab.chat(documents=[])
        await chat.say("Hello", speaker_id="7", speaker_name="Ann")
        await chat.say("Hello", speaker_id="8", speaker_name="Bo")
        first, _, who, *said = model.requests[-1].messages
        assert "polite and helpful" in first.text and "Bo (ID 8), who is not" in who.text
        assert [(m.role, m.name, m.text) for m in said] == [
            ("user", "Ann", "Ann said: Hello"),
            ("agent", None, "Answer to Hello"),
            ("user", "Bo", "Bo said: Hello"),
        ]


@pytest.mark.parametrize("ingest", ["verbatim", "flow"])
def test_a_memory_that_could_not_be_filled_is_told_though_it_is_back(tmp_path, own_home, monkeypatch, ingest):
    async def gone(*a, **k):
        raise MemoryUnavailable("blink")

    monkeypatch.setattr(sqlite.SqliteMemory, "ingest", gone, raising=False)
    monkeypatch.setattr(sqlite.SqliteMemory, "add", gone, raising=False)
    run = play(write_memory_set(tmp_path / "told"), tmp_path / "run", asking_the_told(), "chatbox", ingest=ingest)
    flow = run.summary["flows"]["chatbox"]
    told = [*run.turns["memory_unavailable"]] == [1, 1, 1, 1] or flow.get("ingest", {}).get("memory_unavailable") == 4
    assert told
