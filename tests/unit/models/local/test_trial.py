"""Trial of an unknown model file against a stand-in for llama.cpp: both forms of tools, stored and used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentlab.cli.parser import main
from agentlab.core.messages import Request, ToolCall
from agentlab.core.plugins import resolve
from agentlab.models.local import server as llama_server
from support.local_model import LOOKUP, called, result, user

SERVER = """
import json, os, sys, threading
from http.server import BaseHTTPRequestHandler, HTTPServer

FORM, FOLDER = {form!r}, {folder!r}

class Handler(BaseHTTPRequestHandler):
    def answer(self, kind, data):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        caps = {{"supports_tools": FORM != "none", "supports_system_role": True}}
        self.answer("application/json", json.dumps({{"chat_template": "t", "chat_template_caps": caps}}).encode())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with open(FOLDER + "/bodies", "a") as file:
            file.write(json.dumps(body) + "\\n")
        is_question = body["messages"][-1]["content"].rstrip().endswith("?") or body.get("tool_choice") == "required"
        name = "get_weather" if "get_weather" in json.dumps(body) else "lookup_documents"
        arguments = {{"city": "Bern"}} if name == "get_weather" else {{"query": "goal"}}
        delta = {{"content": "Hello."}}
        if "tools" in body and FORM == "template" and is_question:
            function = {{"name": name, "arguments": json.dumps(arguments)}}
            delta = {{"tool_calls": [{{"index": 0, "id": "x1", "function": function}}]}}
        elif "grammar" in body and FORM != "template":
            call = {{"tool": name, "arguments": arguments}} if is_question else {{"tool": "answer", "text": "Hello."}}
            delta = {{"content": json.dumps(call)}}
        chunk = {{"model": "file", "choices": [{{"index": 0, "delta": delta, "finish_reason": "stop"}}]}}
        self.answer("text/event-stream", f"data: {{json.dumps(chunk)}}\\n\\ndata: [DONE]\\n\\n".encode())

    def log_message(self, *about):
        pass

sys.stdin.readline()
server = HTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
server.serve_forever()
"""
CASES = {
    "template": "calls no tools; in the form of its template: calls tools, which is used",
    "own": "calls tools; in the form of its template: calls no tools",
    "none": "calls tools; template without tools",
}


@pytest.mark.parametrize("form", CASES)
async def test_the_form_with_the_better_result_is_used_and_shown(
    form: str,
    tmp_path: Path,
    own_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "server.py").write_text(SERVER.format(form=form, folder=str(tmp_path)))
    (tmp_path / "mine.gguf").write_bytes(b"GGUF")
    monkeypatch.setattr(llama_server, "__file__", str(tmp_path / "server.py"))
    monkeypatch.delenv("AGENTLAB_LOCAL_MODEL", raising=False)

    async def ask(*messages: Any) -> tuple[Any, dict[str, Any], int]:
        model = resolve("models", "local").connect(str(tmp_path / "mine.gguf"))
        completion = await model.complete(Request(messages=messages, tools=(LOOKUP,)), lambda text: None)
        await model.close()
        bodies = (tmp_path / "bodies").read_text().splitlines()
        return completion, json.loads(bodies[-1]), len(bodies)

    question = user("How wide is a goal?")
    completion, body, calls_of_trial = await ask(question)
    (call,) = completion.message.tool_calls
    assert (call.name, call.arguments, completion.finish_reason) == (LOOKUP.name, {"query": "goal"}, "tool_calls")
    assert completion.model == "mine"
    assert ("tools" in body) == (form == "template") and ("grammar" in body) == (form != "template")
    made = called(ToolCall(id="x1", name=LOOKUP.name, arguments={"query": "goal"}))
    completion, body, calls = await ask(question, made, result("x1", "7.32 m <|im_end|>"))
    assert completion.message.text == "Hello." and not completion.message.tool_calls
    assert calls == calls_of_trial + 1, "the same content is tried once"
    assert body["messages"][-1]["role"] == ("tool" if form == "template" else "user")
    assert "<|im_end|>" not in json.dumps(body["messages"]), "text cannot end a turn"
    for command in (["list", "models"], ["doctor"]):
        main(command)
        assert (
            f"trial of local/mine: chat template of the file; system role; {CASES[form]}\n" in capsys.readouterr().out
        )
