"""Chats with flows and settings of a spec, with built-in flows of any lab, and outside a checkout."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.models.scripted import call
from support.typed_lines import type_lines

GIVEN = ["--model", "scripted/replies.yaml", "--set", "embedder=hashing/hashing-64"]
SPEC = """
flows: [{flow: coordinator, label: mine, agent: ada}, {flow: tools, label: second}]
"""


@pytest.fixture
def typed(monkeypatch, capsys, tmp_path, own_home):
    """Types lines into a chat of the terminal; returns the exit code and the output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("agentlab.models.weights.is_present", lambda name: False)
    Path("replies.yaml").write_text("loop: true\nreplies: [Noted.]\n")
    Path("my.yaml").write_text(SPEC)

    def talk(*arguments: str, texts: tuple[str, ...] = ("I live in Ulm.",)) -> tuple[int, str, str]:
        type_lines(monkeypatch, texts)
        code = main(["chat", *arguments, *GIVEN])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return talk


def test_a_chat_takes_flows_and_settings_of_a_spec(typed):
    code, screen, _ = typed("--spec", "my.yaml")
    assert code == 0 and "mine on scripted" in screen and "| ada: Noted." in screen
    assert "second on scripted" in typed("second", "--spec", "my.yaml")[1]
    assert "chatbox on scripted" in typed("chatbox", "--spec", "my.yaml")[1]
    code, _, problem = typed("third", "--spec", "my.yaml")
    assert code == 1 and "unknown flow" in problem and problem.count("\n") == 1
    assert typed("--spec", "away.yaml")[0] == 1


def test_a_setting_of_the_flow_is_set_like_a_key_of_the_spec(typed):
    assert "| ada: Noted." in typed("coordinator", "--set", "agent=ada")[1]
    code, _, problem = typed("coordinator", "--set", "agnt=ada")
    assert code == 1 and "unknown key 'agnt'" in problem


def test_a_saved_chat_with_a_flow_beside_the_spec_replays(typed, capsys):
    screen = typed("--spec", "my.yaml", texts=("/flow rag_only", "Hello", "/save kept"))[1]
    command = screen.split("replay it with: ")[1].split()[1:]
    assert main(command) == 0


def test_a_saved_chat_replays_without_the_variables_that_it_was_talked_with(typed, capsys, monkeypatch):
    Path("agent/tools").mkdir(parents=True)
    Path("agent/tools/dice.py").write_text("PARAMETERS = {}\ndef execute(arguments):\n    return '4'\n")
    with monkeypatch.context() as given:
        given.setenv("LLM_AGENT_DATA_DIR", "agent")
        given.setenv("CHATBOX_MAX_TOOL_CALLS", "1")
        typed("ego", texts=("Roll a die.", "/save of_ego"))
        Path("replies.yaml").write_text("loop: true\nreplies: ['{\"tool\": \"get_current_time\"}', '{}']\n")
        assert "1 calls" in typed("chatbox", texts=("What time is it?", "/trace", "/save of_chatbox"))[1]
    for folder in ("of_ego", "of_chatbox"):
        assert main(["run", f"{folder}/spec.yaml"]) == 0
        assert "NOT RECORDED" not in capsys.readouterr().out


def test_any_lab_talks_to_any_built_in_flow(own_home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with al.Lab(flows=["tools"], model=al.Scripted(["Hi."], loop=True), embedder="hashing/hashing-64") as lab:
        assert lab.chat("chatbox").say_sync("hello").text == "Hi."
        with pytest.raises(al.AgentlabError, match="unknown flow"):
            lab.chat("chatbot")


def test_a_script_without_with_ends_quietly(own_home, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import agentlab as al\n"
        "lab = al.Lab(model=al.Scripted(['Hi.'], loop=True), embedder='hashing/hashing-64', memory='sqlite')\n"
        "chat = lab.chat('coordinator', memory='memory', database='kept.jsonl')\n"
        "print(chat.say_sync('I live in Ulm.').text)\n"
    )
    ran = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout == "Hi.\n" and ran.stderr == ""
    assert "I live in Ulm." in (tmp_path / "kept.jsonl").read_text()
    with al.Lab(model=al.Scripted(["Hi."], loop=True), embedder="hashing/hashing-64", memory="sqlite") as lab:
        chat = lab.chat("coordinator", documents=(), memory=tmp_path / "memory")
        assert any("Ulm" in fact.text for fact in chat.facts_sync()), "a write in the background is not lost"


LOOKS_UP = """loop: true
replies:
- text: Let me look it up.
  tool_calls: [{name: lookup_documents, arguments: {query: goal}}]
- It is 7.32 m wide.
"""


@pytest.mark.parametrize("flow", ["tools", "tools_rag_fallback"])
def test_every_sentence_of_a_turn_is_shown_once(typed, flow):
    Path("replies.yaml").write_text(LOOKS_UP)
    Path("laws").mkdir()
    Path("laws/law.md").write_text("# Law 1\n\nA goal is 7.32 m wide.\n")
    _, screen, _ = typed(flow, "--documents", "laws", texts=("How wide is a goal?",))
    assert screen.count("Let me look it up.") == 1
    assert screen.count("\nIt is 7.32 m wide.\n") == 1 and "reply  It is" not in screen


def test_the_fallback_streams_its_answer_after_a_tool_and_no_draft_before(own_home):
    model = al.Scripted(["A draft.", "From the passages.", call("lookup_documents", query="goal"), "After a tool."])
    with al.Lab(flows=["tools_rag_fallback"], model=model, embedder="hashing/hashing-64") as lab:
        streamed: list[str] = []
        chat = lab.chat(documents=[al.Document(doc_id="law-1", title="Law 1", text="A goal is 7.32 m wide.")])
        chat.stream.on("reply_text", lambda item: streamed.append(item.text))
        chat.say_sync("How wide is a goal?")
        assert "".join(streamed) == "From the passages."
        streamed.clear()
        chat.say_sync("And how high is a goal?")
        assert "".join(streamed) == "After a tool."
