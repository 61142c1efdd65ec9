"""`agentlab chat` in 80 columns: one line a step, an intact tree, numbered turns."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from agentlab.cli.parser import main
from support.layered_agent import plan

CLOCK = {"name": "get_current_time", "arguments": {}}
CHOOSES_NONE = json.dumps({"tool": None})
FACTS = [
    CHOOSES_NONE,
    json.dumps({"tool": "save_memory"}),
    json.dumps({"content": "Anna plays the oboe."}),
    "Noted.",
]
EGO = [
    "--set",
    'flows=[{"flow": "ego", "relevance": false, "reflection": false, "user_facts": false}, "rag_only", "tools"]',
]
EGO_REPLIES = [plan(complexity="simple"), '{"chat": "Fine.", "canvas": ""}']


def test_long_step_is_one_line_and_the_tree_stays_aligned(typed):
    text = "A goal is wide. " * 30
    look = {"text": text, "tool_calls": [{"name": "get_current_time", "arguments": {}}]}
    replies = [look, "Done."]
    screen = typed("coordinator", ["How wide is it?", "/trace"], replies, "--documents", "corpus.jsonl").splitlines()
    steps = [line for line in screen if line.startswith("complete (select_tool; tools: lookup_docume")]
    assert len(steps) == 1 and '"A goal is wide.' in steps[0] and steps[0].endswith("…") and len(steps[0]) == 80
    tree = screen[next(at for at, line in enumerate(screen) if line.startswith("├─ load_conversation")) :]
    assert all(line[0] in "├│└ " and len(line) <= 80 for line in tree if line)
    called = next(at for at, line in enumerate(tree) if "complete (answer" in line)
    assert tree[called + 1].startswith("│  ") or tree[called + 1].startswith("   ")


def test_steps_do_not_repeat_the_reply(typed):
    screen = typed("rag_only", ["How wide?"], ["It is 7.32 m [1]."], "--documents", "corpus.jsonl")
    assert not [line for line in screen.splitlines() if line.startswith("reply ")]
    assert "It is 7.32 m [1]." in screen.splitlines() and "Source [1]: Goal" in screen


def test_an_error_of_a_tool_is_one_line_with_the_error_once(typed):
    replies = [{"tool_calls": [{"name": "read_file", "arguments": {"file_path": "none.txt"}}]}, "There is none."]
    screen = typed("coordinator", ["Read it.", "/trace"], replies)
    [live, traced] = [line for line in screen.splitlines() if "call_tool read_file" in line]
    assert all("FAILED: read_file: file_path: there is no file" in " ".join(line.split()) for line in (live, traced))
    assert "Error: " not in screen


def test_costs_wider_than_the_terminal_break_before_the_tokens(typed):
    screen = typed("coordinator", ["I live in Ulm.", "/quit"], [{"tool_calls": [CLOCK, CLOCK]}, "Fine."]).splitlines()
    [at] = [at for at, line in enumerate(screen) if line.startswith("2 model calls · ")]
    assert screen[at].endswith("memory operation") and screen[at + 1].endswith(" s · cost unknown")
    assert max(map(len, screen)) <= 80
    [line] = [line for line in typed("rag_only", ["Hi"], ["Hello."]).splitlines() if line.startswith("1 model call")]
    assert line.endswith(" s · cost unknown") and " 0 " not in line


def test_chat_names_files_of_a_folder_that_have_no_text(typed, tmp_path):
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "goal.html").write_text("<title>Goal</title><p>A goal is 7.32 m wide.")
    (tmp_path / "pages" / "empty.html").write_text("<script>render()</script>")
    screen = typed("rag_only", ["How wide?"], ["It is 7.32 m [1]."], "--documents", str(tmp_path / "pages"))
    assert "not read: empty.html: no text is left of it" in screen.splitlines() and "Source [1]: Goal" in screen


def test_quit_ends_the_chat_whatever_comes_after_it(typed):
    screen = typed("rag_only", ["/quit now", "How wide?"], ["7.32 m"])
    assert "unknown command" not in screen and "7.32 m" not in screen


def test_fork_lists_turns_and_an_empty_fork_can_be_forked(typed):
    screen = typed(
        "rag_only",
        ["/fork", "How wide?", "How high?", "/fork", "/fork 2", "/fork 10", "/fork 2 tools", "And?", "/fork"],
        ["7.32 m"],
    ).splitlines()
    assert "name the first turn to answer again: /fork 2, or /fork 2 tools" in screen
    assert [screen.count(line) for line in ("  1  How wide?", "  2  How high?", "  2  And?")] == [2, 1, 1]
    assert "turn 9: this conversation has 1 turns so far" in screen
    assert "rag_only continues from turn 2; memory is unchanged" in screen
    assert "tools continues from turn 2; memory is unchanged" in screen


def test_forked_ego_does_not_know_later_turns(typed):
    """A fork must not inherit short-term memory of the turns that it drops."""
    screen = typed(
        "ego", ["I am Anna.", "I play the oboe.", "/fork 2", "And now?", "/memory", "/trace"], EGO_REPLIES, *EGO
    )
    listed = [line for line in screen.splitlines() if "short-" in line]
    assert [line.split("[ego ")[1] for line in listed if "[ego" in line] == [
        "user] I am Anna.",
        "response] Fine.",
        "user] And now?",
        "response] Fine.",
    ]
    again = typed("ego", ["/memory"], EGO_REPLIES, *EGO)
    assert "And now?" in again and "oboe" not in again


def test_data_folder_of_an_agent_is_saved_and_a_replay_leaves_it(typed, capsys):
    """/save also stores the agent's data folder, which a replay reads and does not change."""
    store = Path("agent/memory/long_term.txt")
    store.parent.mkdir(parents=True)
    store.write_text('<MEMORY module="ego" time="2026-01-05T11:00:00">\nAnna plays the oboe.\n</MEMORY>\n')
    with_data = ["--set", EGO[1].replace('"ego"', '"ego", "data": "agent"')]
    typed("ego", ["What do I play?", "/save played"], EGO_REPLIES, *with_data)
    before = {file: file.read_bytes() for file in store.parent.iterdir()}
    assert main(["run", "played/spec.yaml", "--out", "again"]) == 0
    printed = capsys.readouterr().out
    assert " 0 new" in printed and "NOT RECORDED" not in printed
    assert "Anna plays the oboe." in Path("again/calls.jsonl").read_text()
    assert {file: file.read_bytes() for file in store.parent.iterdir()} == before


def test_a_forked_layered_agent_replays(typed, capsys):
    typed("ego", ["I am Anna.", "I play the oboe.", "/fork 2", "And now?", "/save forked"], EGO_REPLIES, *EGO)
    assert main(["run", "forked/spec.yaml"]) == 0
    printed = capsys.readouterr().out
    assert " 0 new" in printed and "NOT RECORDED" not in printed


def test_memory_command_distinguishes_empty_from_none(typed):
    screen = typed("rag_only", ["/memory", "/flow chatbox", "/memory"], [CHOOSES_NONE])
    assert "rag_only has no memory" in screen and "no stored facts" in screen


def test_memory_of_another_backend_is_reported_and_the_chat_continues(typed):
    typed("chatbox", ["I am Anna and play the oboe."], FACTS)
    screen = typed(
        "chatbox", ["/memory", "Who am I?"], [CHOOSES_NONE, CHOOSES_NONE, "Anna."], "--set", "memory=textfile"
    )
    text = "kept has the memory of sqlite, which textfile does not read; use it with --set memory=sqlite"
    assert text in " ".join(screen.split()) and "no stored facts" in screen and "Anna." in screen.splitlines()
    assert "does not read" not in typed("rag_only", ["Hello"], ["Hi."])
    shutil.rmtree("kept")
    assert "does not read" not in typed("chatbox", ["Hello"], FACTS)
    assert Path("kept/memory.sqlite").exists() and "does not read" not in typed("chatbox", ["Hello"], FACTS)


def test_problems_of_tools_are_reported_for_later_flows_too(typed):
    """A flow chosen later in the chat reports its problems, too."""
    Path("agent/tools").mkdir(parents=True)
    tool = "DESCRIPTION = 'x'\nPARAMETERS = {'type': 'object'}\ndef execute(arguments): return 'x'\n"
    for number in range(129):
        Path(f"agent/tools/tool_{number}.py").write_text(tool)
    with_data = ["--set", EGO[1].replace('"ego"', '"ego", "data": "agent"')]
    screen = typed("rag_only", ["Hello", "/flow ego", "Hello"], ["Hi.", *EGO_REPLIES], *with_data, loop=False)
    assert "only the first 128 tools are used" in screen and "Fine." in screen.splitlines()
