"""`agentlab chat` with a scripted model: commands, mistakes and failures are lines, and the chat continues."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from filelock import FileLock

from agentlab.cli.parser import main
from support.layered_agent import plan

LOOKUP = {"tool_calls": [{"name": "lookup_documents", "arguments": {"document_names": [], "query": "goal width"}}]}


def test_chat_opens_a_flow_by_its_file(typed):
    Path("mine.py").write_text(
        "import agentlab as al\n\nasync def respond(turn, session):\n    return al.Reply(text='mine: ' + turn.text)\n"
    )
    screen = typed("./mine.py", ["How wide?", "/flow tools", "/flow mine", "Again"], ["x"])
    assert "mine on scripted/replies.yaml" in screen and "mine: How wide?" in screen and "mine: Again" in screen


def test_no_escape_of_a_model_or_a_document_reaches_the_terminal(typed):
    attack = "\x1b[2J\x1b]0;owned\x07\x9b31m"
    Path("corpus.jsonl").write_text(json.dumps({"doc_id": "goal", "title": f"G{attack}", "text": f"A goal {attack}."}))
    replies = [LOOKUP, f"7.32 m{attack} [1].", {"error": "Refused"}]
    screen = typed(
        "tools", ["How wide?", "/trace", "/memory", f"/x{attack}", "?"], replies, "--documents", "corpus.jsonl"
    )
    assert "7.32 m\\x1b[2J" in screen and not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", screen)


def test_a_question_shows_its_steps_the_reply_its_source_and_the_cost(typed):
    screen = typed("tools", ["How wide?"], [LOOKUP, "7.32 m [1]."], "--documents", "corpus.jsonl")
    lines = screen.splitlines()
    reply = lines.index("7.32 m [1].")
    assert any("call_tool lookup_documents" in line for line in lines[:reply])
    assert (
        lines[reply + 2] == "Source [1]: Goal (document goal, passage goal#0)" and "2 model calls" in lines[reply + 3]
    )
    assert max(map(len, lines)) <= 80


def test_the_conversation_is_there_again_and_can_be_left(typed):
    typed("rag_only", ["I am Anna."], ["Hello Anna."])
    screen = typed("rag_only", ["Who am I?", "/reset", "And now?"], ["Anna.", "Nobody."])
    assert "Continuing your chat with rag_only (2 messages); /reset starts a new one" in screen
    assert "a new conversation; memory stays" in screen


def test_saved_chat_replays_without_a_model(typed, monkeypatch, capsys):
    screen = typed(
        "tools",
        ["How wide?", "^C", "And how high?", "/save wide"],
        [LOOKUP, "7.32 m [1].", "2.44 m."],
        "--documents",
        "corpus.jsonl",
    )
    command = re.search(r"replay it with: agentlab (.*)", screen)
    assert command is not None
    Path("replies.yaml").unlink()
    assert main(command[1].split()) == 0
    printed = capsys.readouterr().out
    assert "3 reused, 0 new" in printed and "NOT RECORDED" not in printed
    turns = json.loads(Path("wide/conversations.jsonl").read_text())["turns"]
    assert [turn["user"] for turn in turns] == ["How wide?", "And how high?"]


def test_a_reply_of_the_past_hour_replays_at_its_own_hour(typed, capsys):
    """The coordinator's prompt contains the time, so a replay at another time would be another request."""
    typed("coordinator", ["Hello.", "And again.", "/save hours"], ["Hi.", "Hi again."])
    assert main(["run", "hours/spec.yaml"]) == 0
    assert "NOT RECORDED" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("/flwo", "unknown command '/flwo'"),
        ("/flow nowhere", "nowhere"),
        ("/model nobody/x", "nobody"),
        ("/model local/qwen2.5-coder-1.5b", "is not installed"),
        ("/trace", "no trace yet"),
        ("/save", "no reply to save"),
        ("/canvas", "no canvas yet"),
        ("/memory", "rag_only has no memory"),
        ("/help", "/quit    end the chat"),
        ("^C", "Ctrl-D or /quit ends the chat"),
        ("", "7.32 m"),
    ],
)
def test_commands_and_mistakes_are_one_line_and_the_chat_continues(typed, line, text):
    screen = typed("rag_only", [line, "How wide?"], ["7.32 m"])
    assert text in screen and "7.32 m" in screen.splitlines()


def test_failing_provider_is_one_line_and_the_chat_continues(typed):
    screen = typed("rag_only", ["One", "Two", "/save kept-turns"], ["Fine."], loop=False)
    assert "Fine." in screen.splitlines() and "the script has 1 replies" in screen
    turns = json.loads(Path("kept-turns/conversations.jsonl").read_text())["turns"]
    assert [turn["user"] for turn in turns if turn.get("scored", True)] == ["One"]


def test_another_flow_and_another_model_continue_the_same_chat(typed):
    Path("other.yaml").write_text("loop: true\nreplies: [from the other]\n")
    screen = typed("rag_only", ["One", "/flow tools", "Two", "/model scripted/other.yaml", "Three"], ["first"])
    lines = screen.splitlines()
    assert lines.count("first") == 2 and lines.count("from the other") == 1
    assert "tools on scripted/other.yaml" in screen


def test_facts_of_one_chat_are_listed_in_the_next(typed):
    remember = [
        json.dumps({"tool": None}),
        json.dumps({"tool": "save_memory"}),
        json.dumps({"content": "Anna plays the oboe."}),
        "Noted.",
    ]
    typed("chatbox", ["I am Anna and play the oboe."], remember)
    assert "Anna plays the oboe." in typed("chatbox", ["/memory"], remember)


def test_memory_of_ego_is_listed_and_filtered_by_kind(typed):
    replies = [plan(complexity="simple"), '{"chat": "Lovely.", "canvas": ""}']
    off = ["--set", 'flows=[{"flow": "ego", "relevance": false, "reflection": false}]']
    assert "no stored facts" in typed("ego", ["/memory"], replies, *off)
    typed("ego", ["I play the oboe."], replies, *off)
    listed = typed("ego", ["/memory"], replies, *off)
    assert "short-1" in listed and "[ego user] I play the oboe." in listed and "[ego response] Lovely." in listed
    narrowed = typed("ego", ["/memory Response"], replies, *off)
    assert "Lovely." in narrowed and "oboe" not in narrowed
    assert "no stored facts" in typed("ego", ["/memory bassoon"], replies, *off)


def test_the_canvas_is_rendered_and_shown_again(typed):
    replies = [
        '{"relevant": [], "summary": ""}',
        plan(complexity="simple"),
        '{"step": null}',
        '{"chat": "Here it is.", "canvas": "# Oboe\\n\\n* a woodwind\\n* [a link](http://example.com)"}',
    ]
    screen = typed("ego", ["Show me", "/canvas"], replies, "--set", "generation.max_tokens=300")
    assert "Here it is." in screen and screen.count("canvas ─") == 2
    canvas = screen.rpartition("canvas ─")[2]
    assert "• a woodwind" in canvas and "# Oboe" not in canvas and "http://example.com" in canvas


def test_speaker_reaches_flows_with_several_speakers(typed):
    typed("discord", ["Hello", "/save spoken"], ["none", "Hi."], "--speaker", "Alex:1001")
    turn = json.loads(Path("spoken/conversations.jsonl").read_text())["turns"][0]
    assert turn["speaker"] == {"id": "1001", "name": "Alex"}


def test_two_chats_do_not_share_a_folder(typed, capsys, tmp_path):
    (tmp_path / "kept").mkdir()
    with FileLock(tmp_path / "kept" / ".chat.lock"):
        assert main(["chat", "rag_only", "--memory", "kept"]) == 1
    assert "another chat uses kept" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["nowhere"], "nowhere"),
        (["rag_only", "--documents", "nothing.jsonl"], "nothing.jsonl"),
        (["rag_only", "--model", "nobody/x"], "nobody"),
        (["rag_only", "--mcp", "nothing.json"], "nothing.json"),
        (["rag_only", "--set", "nonsense"], "key=value"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(typed, capsys, flags, text, monkeypatch):
    monkeypatch.setattr("builtins.input", lambda prompt="": "/quit")
    assert main(["chat", *flags]) == 1
    captured = capsys.readouterr()
    assert text in captured.out + captured.err and "Traceback" not in captured.err


def test_chat_with_initial_facts_replays_with_them(typed, capsys):
    """/save stores the memories of the conversation's beginning, not of its end."""
    texts = [
        json.dumps({"tool": None}),
        json.dumps({"tool": "save_memory"}),
        json.dumps({"content": "Anna plays the oboe."}),
        "Noted.",
    ]
    typed("chatbox", ["I am Anna and play the oboe."], texts)
    typed("chatbox", ["/reset", "Anna plays the what?", "/save played"], [json.dumps({"tool": None}), "The oboe."])
    row = json.loads(Path("played/conversations.jsonl").read_text())
    assert row["memory"] == "memory" and len(row["turns"]) == 1
    assert main(["run", "played/spec.yaml", "--out", "again"]) == 0
    printed = capsys.readouterr().out
    assert "0 new" in printed and "NOT RECORDED" not in printed
    assert "Anna plays the oboe." in Path("again/calls.jsonl").read_text()
    Path("played/conversations.jsonl").write_text(json.dumps({**row, "memory": None}))
    main(["run", "played/spec.yaml", "--out", "without"])
    assert "NOT RECORDED" in capsys.readouterr().out


@pytest.mark.parametrize("position", ["../kept", "nowhere", "conversations.jsonl"])
def test_a_data_set_that_names_a_memory_elsewhere_is_one_line(typed, capsys, position):
    typed("chatbox", ["Hello", "/save said"], [json.dumps({"tool": None}), "Hi."])
    row = json.loads(Path("said/conversations.jsonl").read_text())
    Path("said/conversations.jsonl").write_text(json.dumps({**row, "memory": position}))
    assert main(["run", "said/spec.yaml"]) == 1
    assert f"conversations.jsonl:1: memory: {position!r} is not a folder inside the data set" in capsys.readouterr().err
