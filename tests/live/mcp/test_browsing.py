"""Resources, prompts and questions of MCP servers in a chat: in the terminal, in a notebook and in a script."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab import notebook
from agentlab.cli.parser import main
from agentlab.core.errors import ConfigError
from agentlab.core.events import ToolRun
from agentlab.models.scripted import Scripted
from agentlab.models.scripted import call as scripted_call
from support import mcp_script
from support.mcp_servers import OURS, liar
from support.typed_lines import type_lines
from support.widgets import everything, until

pytestmark = pytest.mark.slow
BOOK = """loop: true
replies:
- tool_calls: [{name: book, arguments: {}}]
- Thank you.
"""


@pytest.fixture
def servers(tmp_path: Path, own_home: Any) -> Path:
    file = tmp_path / "servers.json"
    broken = {"command": "no-such-command-here"}
    file.write_text(json.dumps({"mcpServers": {"ours": OURS, "bare": liar("plain"), "away": broken}}))
    return file


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path, servers: Path) -> Callable[..., str]:
    """Types lines into a chat with the flow `tools`, whose model calls the tool `book`; returns the output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("agentlab.models.weights.is_present", lambda name: False)
    Path("replies.yaml").write_text(BOOK)

    def talk(*texts: str) -> str:
        type_lines(monkeypatch, texts)
        given = ["--model", "scripted/replies.yaml", "--set", "embedder=hashing/hashing-64", "--memory", "kept"]
        assert main(["chat", "tools", *given, "--mcp", str(servers)]) == 0
        return capsys.readouterr().out

    return talk


def results(chat: Any) -> list[str]:
    return [event.output for event in chat.trace.events if isinstance(event, ToolRun)]


def test_resources_are_listed_and_read(typed):
    typed_lines = typed("/resources", "/resources ours note://menu", "/resources ours note://day/monday")
    assert "\nSERVER  URI" in typed_lines and "\nours    note://menu" in typed_lines, "the columns are aligned"
    screen = " ".join(typed_lines.split())
    assert "SERVER URI DESCRIPTION" in screen and "ours note://menu What there is to eat." in screen
    assert (
        "ours note://day/{day}" in screen and "note: " in screen and "the MCP server away cannot be reached" in screen
    )
    assert "note://menu: soup" in screen and "\x1b[31m" not in screen
    assert "note://day/monday: closed on monday" in screen


def test_prompts_are_listed_and_read(typed):
    screen = " ".join(typed("/prompts", "/prompts ours greet 'name=Ford Prefect' tone=dry").split())
    assert "ours greet name=TEXT [tone=TEXT] Greet somebody." in screen
    assert "user: Greet Ford Prefect in a dry tone." in screen


@pytest.mark.parametrize(
    ("line", "problem"),
    {
        "/resources nowhere note://menu": "unknown MCP server 'nowhere'",
        "/resources bare note://menu": "note://menu: the MCP server bare failed: Method not found",
        "/resources ours note://none": "note://none: the MCP server ours failed:",
        "/prompts ours greet": "greet: the MCP server ours failed:",
        "/prompts ours 'greet": "No closing quotation",
    }.items(),
)
def test_unreadable_lines_are_one_line_and_the_chat_continues(typed, line, problem):
    screen = typed(line, "/help")
    assert problem in " ".join(screen.split()) and "/resources" in screen and "Traceback" not in screen


def test_a_chat_without_servers_reports_it(own_home):
    with al.Lab(flows=["tools"], model=Scripted(["Hi."], loop=True), embedder="hashing/hashing-64") as lab:
        chat = lab.chat(documents=())
        assert chat.browse_sync("resources") == "no MCP server has resources"
        assert chat.browse_sync("prompts") == "no MCP server has prompts"
        with pytest.raises(ConfigError, match="unknown MCP server 'ours'"):
            chat.browse_sync("prompts", "ours", "greet")


def test_progress_is_shown_once_as_it_comes(typed):
    Path("replies.yaml").write_text(BOOK.replace("book, arguments: {}", "crawl, arguments: {seconds: 0.6, every: 0.2}"))
    screen = typed("Crawl.", "/trace").splitlines()
    assert [line for line in screen if line.startswith("crawl: ")] == ["crawl: 1", "crawl: 2", "crawl: 3"]
    assert not any("crawl: progress" in line for line in screen)
    assert sum("notify subsystemMessage  " in line for line in screen) == 3, "only the trace has them again"


def test_a_question_is_answered_field_by_field(typed):
    screen = typed("Book it.", "", "many", "2", "false", "/trace")
    assert "the MCP server ours asks: Which seats?" in screen and "'many' is not of type 'integer'" in screen
    assert 'accept {"name":"Fenchurch","seats":2,"window":false}' in screen
    assert screen.splitlines().count("Thank you.") == 1


@pytest.mark.parametrize("lines", [("/no", "/trace"), ("Marvin", "/no", "/trace")])
def test_a_user_may_decline(typed, lines):
    screen = typed("Book it.", *lines)
    assert "accept {" not in screen and "decline" in screen and screen.splitlines().count("Thank you.") == 1


def test_the_end_of_the_input_declines(typed):
    assert typed("Book it.", "Marvin").splitlines().count("Thank you.") == 1


async def test_a_question_in_a_notebook_is_answered_in_the_field_of_messages(servers):
    replies = [scripted_call("book"), "Thank you."]
    with al.Lab(flows=["tools"], model=Scripted(replies), embedder="hashing/hashing-64", mcp=str(servers)) as lab:
        chat = notebook.chat_widget(lab, documents=())
        chat.ask.value = "Book it."
        chat.send_button.click()
        for field, answer in {"name": "", "seats": "3", "window": ""}.items():
            await until(lambda field=field: f"{field}: " in everything(chat))
            assert not chat.send_button.disabled
            chat.ask.value = answer
            chat.send_button.click()
        await until(lambda: chat.turns[0].answer is not None)
        assert "the MCP server ours asks: Which seats?" in everything(chat)
        assert chat.turns[0].answer.reply.text == "Thank you."
        assert results(chat.chat) == ['accept {"name":"Fenchurch","seats":3,"window":true}']


async def test_a_stopped_turn_asks_no_more(servers):
    replies = [scripted_call("book"), "Never said.", "Hello."]
    with al.Lab(flows=["tools"], model=Scripted(replies), embedder="hashing/hashing-64", mcp=str(servers)) as lab:
        chat = notebook.chat_widget(lab, documents=())
        chat.ask.value = "Book it."
        chat.send_button.click()
        await until(lambda: "Which seats?" in everything(chat))
        chat.stop_button.click()
        await until(lambda: not chat.is_busy)
        chat.ask.value = "Hi"
        chat.send_button.click()
        await until(lambda: len(chat.turns) == 2 and chat.turns[1].answer is not None)
        assert chat.questions[1][0] == "Hi"


@pytest.mark.parametrize(("answers", "result"), [((None,), "decline"), (("Ann", "1", "true"), 'accept {"name":"Ann"')])
def test_a_script_answers_by_a_listener_and_declines_without_one(servers, answers, result):
    model = Scripted([scripted_call("book"), "Thank you.", scripted_call("book"), "Thank you."])
    with al.Lab(flows=["tools"], model=model, embedder="hashing/hashing-64", mcp=str(servers)) as lab:
        chat = lab.chat(documents=())
        chat.say_sync("Book it.")
        queue = list(answers)
        chat.stream.on("question", lambda item: item.reply(queue.pop(0)))
        chat.say_sync("Book it again.")
        first, second = results(chat)
    assert first == "decline" and second.startswith(result)


def test_waiting_for_the_user_takes_no_time_of_the_call(servers):
    row = json.loads(servers.read_text())
    row["mcpServers"]["ours"]["timeout"] = 6
    servers.write_text(json.dumps(row))

    async def answer_late(item: Any) -> None:
        await asyncio.sleep(2.5)
        item.reply("true" if "window" in item.text else "7")

    model = Scripted([scripted_call("book"), "Thank you."])
    with al.Lab(flows=["tools"], model=model, embedder="hashing/hashing-64") as lab:
        chat = lab.chat(documents=(), mcp=servers)
        chat.stream.on("question", lambda item: lab.loop.submit(answer_late(item)))
        chat.say_sync("Book it.")
        assert results(chat) == ['accept {"name":"7","seats":7,"window":true}']


async def test_a_run_declines_questions_of_a_server(servers, tmp_path):
    (tmp_path / "conversations.jsonl").write_text(json.dumps({"id": "one", "turns": [{"user": "Book it."}]}))
    model = Scripted([scripted_call("book"), "Thank you."])
    given = {"mcp": str(servers), "embedder": "hashing/hashing-64"}
    with al.Lab(datasets=[str(tmp_path)], flows=["coordinator"], model=model, **given) as lab:
        await lab.run(out=tmp_path / "run")
    assert '"decline"' in (tmp_path / "run" / "calls.jsonl").read_text()


FIELDS = {
    "colour": {"type": "string", "enum": ["red", "green"], "default": "green"},
    "size": {"type": "string", "title": "How big", "oneOf": [{"const": "s", "title": "small"}, {"const": "l"}]},
    "extras": {"type": "array", "items": {"type": "string", "enum": ["lid", "bag"]}, "default": ["lid"]},
    "age": {"type": "integer", "minimum": 18},
}
ANSWERS = {
    "defaults": (["", "l", "", "30"], {"colour": "green", "size": "l", "extras": ["lid"], "age": 30}),
    "asked again": (
        ["blue", "red", "l", '["bag"]', "3", "x", "", "18"],
        {"colour": "red", "size": "l", "extras": ["bag"], "age": 18},
    ),
    "left out": (["", "", "", "40"], {"colour": "green", "extras": ["lid"], "age": 40}),
}


@pytest.mark.parametrize(("typed_in", "content"), ANSWERS.values(), ids=ANSWERS)
def test_a_server_of_the_old_handshake_asks_with_any_form(tmp_path, own_home, typed_in, content):
    schema = {"type": "object", "properties": FIELDS, "required": ["age"]}
    question = {"message": "What?\x1b[31m", "requestedSchema": schema}
    chat, request = asking(tmp_path, {"answer": "ask", "question": question}, typed_in)
    (result,) = results(chat)
    assert json.loads(result) == {"action": "accept", "content": content}
    assert all("\x1b" not in text for text in request) and 'enum ["red", "green"]' in request[0]


def test_an_address_to_open_is_shown_and_accepted(tmp_path, own_home):
    question = {"mode": "url", "message": "Sign in.", "url": "https://example.com/in", "elicitationId": "1"}
    chat, requests = asking(tmp_path, {"answer": "ask", "question": question}, [""])
    assert json.loads(results(chat)[0]) == {"action": "accept"}
    assert "https://example.com/in" in requests[0] and "Enter accepts" in requests[0]


def asking(folder: Path, script: dict[str, Any], answers: list[str]) -> tuple[Any, list[str]]:
    """Let a scripted server ask in a chat of one turn; return the chat and all questions."""
    (folder / "script.json").write_text(json.dumps(script))
    row = {"command": sys.executable, "args": [mcp_script.__file__, str(folder / "script.json")]}
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"x": row}}))
    requests: list[str] = []

    def answer(item: Any) -> None:
        requests.append(item.text)
        item.reply(answers[len(requests) - 1])

    model = Scripted([scripted_call("t"), "Thank you."])
    with al.Lab(flows=["tools"], model=model, embedder="hashing/hashing-64") as lab:
        chat = lab.chat(documents=(), mcp=folder / "servers.json")
        chat.stream.on("question", answer)
        chat.say_sync("Ask me.")
    return chat, requests
