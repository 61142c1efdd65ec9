"""At 80 and 120 columns, with 2, 5 and 8 flows of long names, no command cuts a name or a number; no escapes pass."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from agentlab.cli.parser import main
from agentlab.evals.report.tables import print_table
from support.small_runs import Answering, play, write_set

METRIC = "faithfulness_to_the_documents_as_judged_by_hand"
SCORER = f"""
from agentlab.evals.scorers import Score

def metrics(turn):
    return ("{METRIC}",)

def score(turn, outcome):
    return {{"{METRIC}": Score(value=len(outcome.reply.text) / 123.456, reason="its length")}}
"""
ROWS = "│┃"
WIDE = 5000


def label(number: int) -> str:
    return f"orchestrator_with_memory_and_native_tools_{number}"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Finished runs of 2, 5 and 8 flows, a baseline of each, and one whose names and texts attack the terminal."""
    folder = tmp_path_factory.mktemp("widths")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTLAB_HOME", str(folder / "home"))
        patch.chdir(folder)
        Path("judged.py").write_text(SCORER)
        data = write_set(folder / "set", conversations=7)
        for count in (2, 5, 8):
            flows = [
                Answering(label(n), wrong=[(f"c{c:02}", 1) for c in range(n)], calls=lambda turn, n=n: n % 3 + 1)
                for n in range(count)
            ]
            run = play(data, folder / f"run{count}", *flows, scorers=["answer", "./judged.py"])
            main(["gate", str(run.path), "--baseline", f"base{count}.jsonl", "--update"])
    return folder


def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int, *arguments: str) -> str:
    monkeypatch.setenv("COLUMNS", str(width))
    capsys.readouterr()
    assert main([*arguments]) in (0, 3)
    return capsys.readouterr().out


def cells(rendered: str) -> set[str]:
    rows = [line for line in rendered.splitlines() if line[:1] and line[0] in ROWS]
    return {cell.strip() for line in rows for cell in re.split(f"[{ROWS}]", line) if cell.strip()}


COMMANDS = [
    ("show", "run{n}"),
    ("show", "run{n}", "--all"),
    ("compare", "run{n}"),
    ("compare", "run{n}", "--all"),
    ("compare", "run{n}", "--flow", label(0), "--flow", label(1)),
    ("cost", "run{n}"),
]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("count", [2, 5, 8])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_table_cuts_a_name_or_a_number(runs, capsys, monkeypatch, command, count, width):
    monkeypatch.chdir(runs)
    arguments = [part.format(n=count) for part in command]
    wide = printed(capsys, monkeypatch, WIDE, *arguments)
    narrow = printed(capsys, monkeypatch, width, *arguments)
    assert "…" not in narrow
    assert all(len(line) <= width for line in narrow.splitlines() if line[:1] and line[0] in ROWS + "┏┡├└")
    flows = 2 if "--flow" in arguments else count
    assert all(label(n) in narrow for n in range(flows))
    words = {word for cell in cells(wide) for word in cell.split()}
    assert len(words) > 10 or arguments[-1] == f"run{count}"
    # Headings may stand in several lines, so words are looked for; a number is one word.
    printed_words = set(narrow.replace(":", " ").split()) | set(narrow.split())
    assert not {word for word in words if word not in printed_words and word.rstrip(":") not in printed_words}
    if "--flow" not in arguments:
        assert "--all" not in command or METRIC in narrow


@pytest.mark.parametrize("count", [2, 5, 8])
def test_a_gate_prints_a_few_whole_lines_and_no_table(runs, capsys, monkeypatch, count):
    monkeypatch.chdir(runs)
    screen = printed(capsys, monkeypatch, 80, "gate", f"run{count}", "--baseline", f"base{count}.jsonl")
    assert "\nunchanged: answer_f1, llm_calls on these 14 turns" in screen
    assert "…" not in screen
    assert len(screen.splitlines()) <= 20


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("count", [2, 5, 8])
def test_conversations_and_traces_are_shown_whole(runs, capsys, monkeypatch, count, width):
    monkeypatch.chdir(runs)
    screen = printed(capsys, monkeypatch, width, "show", f"run{count}", "c01")
    assert all(label(n) in screen for n in range(count)) and "…" not in screen
    assert screen.count(f"{METRIC} 0.0") == 2 * count and "reference: blue" in screen
    traced = printed(capsys, monkeypatch, width, "show", "--trace", f"run{count}", "c01", "--flow", label(1))
    assert f"\n{label(1)}\n" in traced and label(0) not in traced and METRIC in traced
    listed = printed(capsys, monkeypatch, width, "show", "--trace", f"run{count}")
    assert all(f"c06  {label(n)}" in listed for n in range(count))


def test_run_prints_the_same_table_and_the_next_commands_last(runs, capsys, monkeypatch):
    monkeypatch.chdir(runs)
    monkeypatch.setenv("AGENTLAB_HOME", str(runs / "home"))
    Path("replies.yaml").write_text("loop: true\nreplies: [green]\n")
    answer = "al.Reply(text='blue' * (turn.text != 'c03 0'))"
    body = f"    await session.complete(turn.text)\n    return {answer}\n"
    Path("my_flow.py").write_text(f"import agentlab as al\n\nasync def respond(turn, session):\n{body}")
    offline = ["--model", "scripted/replies.yaml", "--set", "embedder=hashing/hashing-64", "--flow", "./my_flow.py"]
    ran = printed(capsys, monkeypatch, 80, "run", "--dataset", "set", *offline, "--out", "results/a b")
    again = printed(capsys, monkeypatch, 80, "show", "results/a b")
    assert ran.endswith(again)
    assert "  # the worst: turn 1, answer_correctness 0.00 in my_flow\n  agentlab show 'results/a b' c03\n" in again
    assert "exact_match" not in again and "embedding calls / turn" not in again
    full = printed(capsys, monkeypatch, 80, "show", "results/a b", "--all")
    assert "exact_match (n=14)" in full and "embedding calls / turn" in full and "--all" not in full


def test_a_table_is_whole_turned_or_in_parts():
    def drawn(width: int, columns: int) -> str:
        console = Console(width=width, file=io.StringIO())
        rows = [[f"row {r}", *(Text(f"{r}.{c}") for c in range(columns))] for r in range(2)]
        print_table(console, "", ["", *(f"a column {c}" for c in range(columns))], rows)
        return console.file.getvalue()

    assert drawn(80, 3).splitlines()[1].count("┃") == 5, "whole"
    assert "a\n" not in drawn(80, 3) and drawn(45, 3).count("column") == 3, "headings in several lines"
    turned = drawn(30, 12)
    assert turned.count("row") == 2 and turned.count("a column") == 12
    assert drawn(20, 12).count("┏") == 12, "in parts"
    assert "row 1\n" in drawn(10, 12) and "  a column 11: 1.11\n" in drawn(10, 12), "in lines"


ATTACK = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e"


def test_no_escape_of_a_name_a_reply_or_a_text_reaches_the_terminal(tmp_path, own_home, capsys, monkeypatch):
    import agentlab as al
    from agentlab.models.scripted import Scripted

    monkeypatch.chdir(tmp_path)
    data = tmp_path / "set"
    data.mkdir()
    row = {"user": f"q{ATTACK}", "reference_answers": [f"r{ATTACK}"]}
    (data / "conversations.jsonl").write_text(json.dumps({"id": f"c{ATTACK}", "turns": [row, row]}))

    async def answers(turn, session):
        completion = await session.complete(turn.text)
        session.notify(f"n{ATTACK}", f"t{ATTACK}")
        return al.Reply(text=completion.message.text)

    async def fails(turn, session):
        raise RuntimeError(f"e{ATTACK}")

    answers.__name__ = f"flow{ATTACK}"
    spec = {"datasets": [str(data)], "embedder": "hashing/hashing-64", "flows": [answers, fails]}
    with al.Lab(model=Scripted([f"said{ATTACK}"], loop=True), **spec) as lab:
        run = lab.run_sync(out=tmp_path / "run")
    Path("replies.yaml").write_text(f"loop: true\nreplies: [{json.dumps(ATTACK)}]\n")
    Path("mine.py").write_text(f"async def respond(turn, session):\n    raise RuntimeError({ATTACK!r})\n")
    offline = ["--model", "scripted/replies.yaml", "--set", "embedder=hashing/hashing-64", "--dataset", "set"]
    for arguments in (
        ["run", *offline, "--flow", "./mine.py", "--flow", "coordinator", "--events"],
        *(["show", "run"], ["show", "run", "--all"], ["show", "run", f"c{ATTACK}"], ["show", "--trace", "run"]),
        *(
            ["show", "--trace", "run", f"c{ATTACK}"],
            ["show", "--trace", "run", f"c{ATTACK}", "--all"],
            ["compare", "run"],
        ),
        *(
            ["cost", "run"],
            ["lint", "set"],
            ["show", "run", f"x{ATTACK}"],
            ["show", "--trace", "run", "c", "--flow", ATTACK],
        ),
    ):
        main(arguments)
        out, err = capsys.readouterr()
        assert out or err
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", out + err), arguments
    assert "\x1b" not in repr(run.show(f"c{ATTACK}")) and r"said\x1b[2J" in repr(run.show(f"c{ATTACK}"))


def test_the_heading_of_a_difference_is_never_broken_up():
    """A short heading stays on one line even if the table barely fits."""
    console = Console(file=io.StringIO(), width=40)
    print_table(console, "", ["", "a long heading of it", "B - A"], [["measure", "0.1", "+0"]])
    assert "B - A" in console.file.getvalue()
