"""Flows over servers with more tools than fit in a prompt, and with a tool list that changes between turns."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.events import Decision, Notice, ToolRun
from agentlab.models.scripted import Scripted
from support.layered_agent import USUAL, judge, plan, purpose, step
from support.mcp_servers import OURS, liar

pytestmark = pytest.mark.slow


@pytest.fixture
def servers(tmp_path: Path, own_home: Any):
    def configured(mode: str) -> Path:
        file = tmp_path / "servers.json"
        file.write_text(json.dumps({"mcpServers": {"ours": liar(mode)}}))
        return file

    return configured


def answering(replies: dict[str, Any]) -> Scripted:
    queues = {name: list(reply) if isinstance(reply, list) else [reply] for name, reply in {**USUAL, **replies}.items()}

    def answer(request: Any) -> str:
        queue = queues[purpose(request)]
        return queue.pop(0) if len(queue) > 1 else queue[0]

    return Scripted([answer], loop=True)


def test_agent_is_offered_fitting_tools_of_a_hundred(servers):
    model = answering({"plan": plan("getForecast", complexity="simple", city="Oslo")})
    with al.Lab(flows=["ego"], model=model, embedder="hashing/hashing-64") as lab:
        chat = lab.chat(documents=(), mcp=servers("a hundred"))
        assert chat.say_sync("What will the weather be like in Oslo?").text
        chat.say_sync("And what else?")
    assert ("getForecast", None) in [(e.call.name, e.error) for e in chat.trace.events if isinstance(e, ToolRun)]
    chosen = next(e for e in chat.trace.at(0) if isinstance(e, Decision) and e.name == "tools offered")
    assert str(chosen.choice).endswith(" of 104") and "of them share words" in chosen.why
    plans = [r.messages[0].text for r in model.requests if purpose(r) == "plan"]
    assert "- getForecast(city): The weather of the next days." in plans[0] and "- question(question)" in plans[0]
    assert "tool_98" not in plans[0]


def test_the_next_turn_sees_the_tools_that_a_step_added(servers):
    model = answering({"plan": plan("good"), "step": [step("good"), step(None)], "evaluate": judge(90, False)})
    with al.Lab(flows=["ego"], model=model, embedder="hashing/hashing-64") as lab:
        chat = lab.chat(documents=(), mcp=servers("growing"))
        chat.say_sync("Grow.")
        chat.say_sync("And now?")
    steps = [r.messages[0].text for r in model.requests if purpose(r) == "step"]
    assert all("grown_1" not in text for text in steps[:2]) and "- grown_1()" in steps[2]
    plans = [r.messages[0].text for r in model.requests if purpose(r) == "plan"]
    assert "grown_1" not in plans[0] and "Capabilities: " in plans[1] and "grown_1" in plans[1]
    assert "the tools of ours have changed" in [e.text for e in chat.trace.events if isinstance(e, Notice)]


def test_conversations_of_a_comparison_keep_the_tools_they_began_with(servers, tmp_path, monkeypatch):
    data = tmp_path / "agent" / "mcp-servers"
    data.mkdir(parents=True)
    (data / "ours.json").write_text(json.dumps(liar("growing")))
    rows = [json.dumps({"id": name, "turns": [{"user": "Grow."}]}) for name in ("a", "b")]
    (tmp_path / "conversations.jsonl").write_text("\n".join(rows))
    model = answering({"plan": plan("good", complexity="simple")})
    flow = {"flow": "ego", "data": str(tmp_path / "agent")}
    with al.Lab(datasets=[str(tmp_path)], flows=[flow], model=model, embedder="hashing/hashing-64") as lab:
        lab.run_sync(out=tmp_path / "run")
    plans = [r.messages[0].text for r in model.requests if purpose(r) == "plan"]
    assert len(plans) == 2 and all("- good()" in text and "grown" not in text for text in plans)


@pytest.mark.parametrize("flow", ["ego", "tools"])
def test_too_many_listed_tools_are_reported_once(servers, typed, capsys, flow):
    screen = typed(flow, "--mcp", servers("ten thousand"), texts=["Hi", "Hi again"])
    assert screen.count("only the first 128 tools are used") == 1 and screen.splitlines().count("Hello.") == 2
    assert main(["list", "tools", "--mcp", str(servers("ten thousand"))]) == 0
    listed = capsys.readouterr().out
    assert " tool_127 " in listed and " tool_128 " not in listed and "note: only the first 128 tools are used" in listed


@pytest.mark.parametrize("flow", ["ego", "tools"])
def test_unavailable_server_is_one_line_and_the_chat_continues(servers, typed, flow):
    screen = typed(flow, "--mcp", servers("broken"), texts=["Hi", "Hi again"])
    assert screen.count("the MCP server ours cannot be reached") == 1 and screen.splitlines().count("Hello.") == 2


def test_chat_with_a_server_replays_without_it(typed, tmp_path, capsys, monkeypatch):
    config = tmp_path / "servers.json"
    config.write_text(json.dumps({"mcpServers": {"ours": OURS}}))
    calls = {"tool_calls": [{"name": "echo", "arguments": {"text": "said by the server"}}]}
    Path("replies.yaml").write_text(yaml.safe_dump({"replies": [calls, "It says that."]}))
    screen = typed("tools", "--mcp", config, texts=["What does it say?", "/save said"])
    [line] = [line for line in screen.splitlines() if "said by the server" in line]
    assert line.startswith("call_tool echo  ") and "It says that." in screen.splitlines()
    Path("replies.yaml").unlink()
    monkeypatch.setitem(sys.modules, "mcp", None)
    assert main(["run", "said/spec.yaml", "--out", "again"]) == 0
    printed = capsys.readouterr().out
    assert "0 new" in printed and "NOT RECORDED" not in printed
    assert "said by the server" in Path("again/calls.jsonl").read_text()


def test_a_spec_gives_its_flows_the_tools_of_servers(typed, tmp_path, capsys):
    config = tmp_path / "servers.json"
    config.write_text(json.dumps({"mcpServers": {"ours": OURS}}))
    calls = {"tool_calls": [{"name": "echo", "arguments": {"text": "said by the server"}}]}
    Path("replies.yaml").write_text(yaml.safe_dump({"replies": [calls, "It says that."]}))
    Path("conversations.jsonl").write_text(json.dumps({"id": "one", "turns": [{"user": "What does it say?"}]}))
    given = ["--model", "scripted/replies.yaml", "--set", "embedder=hashing/hashing-64", "--dataset", "."]
    assert main(["run", *given, "--flow", "coordinator", "--set", f"mcp={config}", "--out", "run"]) == 0
    assert "said by the server" in Path("run/calls.jsonl").read_text()
    capsys.readouterr()
    assert main(["run", *given, "--flow", "tools", "--set", "mcp=nowhere.json"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
