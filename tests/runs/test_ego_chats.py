"""Chats with the layered agent: the content of its context, the attempt that counts, commands, few and many tools."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab.core.errors import ConfigError
from agentlab.core.events import Decision, ToolRun
from agentlab.core.messages import Reply, Request
from agentlab.models.scripted import Scripted
from support.layered_agent import USUAL, judge, plan, purpose, step

SCRIPT = """
NAME = "{name}"
DESCRIPTION = "{does}"
PARAMETERS = {{"type": "object", "properties": {{"n": {{"type": "integer"}}}}}}
def execute(arguments):
    return f"{{arguments.get('n')!r}} by {name}"
"""
HELLO = {"plan": plan(complexity="simple")}


@pytest.fixture
def talk(tmp_path: Path, own_home: Any):
    """Says things to the agent, whose model answers each function from a list; gives replies, chat and prompts."""

    def talking(replies: dict[str, Any], *texts: str, **settings: Any) -> tuple[list[Reply], Any, dict[str, list[str]]]:
        queues = {k: list(v) if isinstance(v, list) else [v] for k, v in {**USUAL, **replies}.items()}
        seen: dict[str, list[str]] = {name: [] for name in USUAL}

        def answer(request: Request) -> str:
            name = purpose(request)
            seen[name].append(request.messages[0].text)
            return queues[name].pop(0) if len(queues[name]) > 1 else queues[name][0]

        (tmp_path / "agent").mkdir(exist_ok=True)
        flow = {"flow": "ego", "data": str(tmp_path / "agent"), **settings}
        with al.Lab(flows=[flow], model=Scripted([answer], loop=True), embedder="hashing/hashing-64") as lab:
            chat = lab.chat(documents=(), memory=tmp_path / "memory")
            lines = [chat.say_sync(text) for text in texts]
            chat.facts_sync()
        return lines, chat, seen

    return talking


@pytest.fixture
def script(tmp_path: Path):
    folder = tmp_path / "agent" / "tools"
    folder.mkdir(parents=True)

    def written(name: str, does: str = "Does something.") -> None:
        (folder / f"{name}.py").write_text(SCRIPT.format(name=name, does=does))

    return written


def test_item_eight_of_a_long_answer_can_be_asked_for(talk):
    items = "\n".join(f"{n}. the thing called {n} " + "with many words " * 8 for n in range(1, 11))
    answers = [json.dumps({"chat": "Ten things.", "canvas": items}), '{"chat": "More.", "canvas": ""}']
    _, _, seen = talk({**HELLO, "bubble": answers}, "List ten things.", "Expand on item 8.")
    assert "8. the thing called 8" in seen["plan"][1] and "8. the thing called 8" in seen["bubble"][1]


def test_reflection_reads_the_user_message_after_ten_steps(talk, script):
    script("count")
    replies = {"plan": plan("count"), "step": step("count", n=1), "evaluate": judge(90, False)}
    _, _, seen = talk(replies, "Count to ten, " + "and do it carefully, " * 40 + "please.")
    assert "and do it carefully, please." in seen["reflect"][0] and seen["reflect"][0].count("1 by count") == 10


def test_empty_second_attempt_keeps_the_results_of_the_first(talk, script):
    script("count")
    replies = {"plan": [plan("count", n=1), plan()], "step": [step("count", n=1), step(None)], "evaluate": judge(40)}
    _, chat, seen = talk(replies, "Count.")
    assert "1 by count" in seen["bubble"][0] and "1 by count" in seen["plan"][1]
    verdicts = [e.why for e in chat.trace.events if isinstance(e, Decision) and e.name == "good enough"]
    assert verdicts == ["score 40, threshold 80", "nothing was done, threshold 80"]


def test_commands_are_carried_out_and_answered_with_what_was_done(talk):
    replies = {**HELLO, "maintenance": '{"drop": [1], "merged": ["Looking up helps."], "evaluation": ""}'}
    text, chat, _ = talk(replies, "Hello", "Run memory maintenance", "Do a memory analysis", "Hello again")
    assert text[1].text == "Long-term memory: 1 entries pruned, 1 written anew."
    assert "lessons: Look it up first." in text[2].text and text[3].data["chat"] == "It is a woodwind."
    runs = [(e.turn, e.call.name) for e in chat.trace.events if isinstance(e, ToolRun) and not e.background]
    assert runs == [(1, "memoryMaintenance"), (2, "reflection")]


def test_retrieval_can_be_narrowed_in_a_spec(talk):
    _, _, seen = talk(HELLO, "I play the oboe.", "consolidate", "Which commands?", memory_kinds=["command"])
    assert "1. [ego command] consolidate" in seen["relevance"][-1] and "oboe" not in seen["relevance"][-1]
    with pytest.raises(ConfigError, match="memory_kinds"):
        talk(HELLO, memory_kinds=["commands"])


def test_a_number_written_as_text_is_a_number(talk, script):
    script("count")
    _, chat, _ = talk({"plan": plan("count", complexity="simple", n="2")}, "Count to two.")
    assert next(e.output for e in chat.trace.events if isinstance(e, ToolRun)) == "2 by count"


def test_two_hundred_scripts_are_no_reason_to_fail(talk, script):
    for number in range(200):
        script(f"tool_{number}", "Does " + "something of no use here " * 8)
    script("forecast", "The weather of tomorrow.")
    text, chat, seen = talk({"plan": plan("forecast", complexity="simple", n=1)}, "What is the weather tomorrow?")
    assert text[0].text and "1 by forecast" in seen["bubble"][0]
    offered = next(e.choice for e in chat.trace.events if isinstance(e, Decision) and e.name == "tools offered")
    assert str(offered).endswith(" of 132"), "the first 128 count, beside the flow's own"
