"""One conversation as all flows answered it, and as one of them did: question, steps, reply, reference, scores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.errors import RunError
from agentlab.lab.run import Run, open_run
from agentlab.models.scripted import Scripted, call
from support.conversation_sets import write
from support.unsealing import unseal

LONG = "The ball weighs between 410 and 450 grams, " + "and so on and on, " * 30 + "to the last word."
CORPUS = [{"doc_id": "ball", "title": "The ball", "text": "The ball weighs between 410 and 450 grams."}]
TURNS = [
    {"user": "Hello <b>there</b>", "reference_answers": ["Hi!"], "scored": False},
    {"user": "How heavy is the ball?", "reference_answers": ["410 grams.", "450"], "relevant_doc_ids": ["ball"]},
    {"user": "Who won?", "unanswerable": True},
]


async def fails(turn, session):
    raise RuntimeError("nothing was asked")


async def answers(turn, session):
    passages = await session.retrieve(turn.text)
    messages = [al.Message(role="system", text=f"Use: {passages[0]}"), al.Message(role="user", text=turn.text)]
    messages.append((await session.complete(messages, tools=session.tool_specs())).message)
    messages.append(await session.call_tool(messages[-1].tool_calls[0]))
    return al.Reply(text=(await session.complete(messages)).message.text)


@pytest.fixture
def run(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "set", {"id": "c1", "turns": TURNS}, {"id": "c2", "turns": TURNS}, corpus=CORPUS)
    replies = [call("no_such_tool", query="a <i>thing</i>"), LONG]
    spec = {"datasets": ["set"], "embedder": "hashing/hashing-64"}
    with al.Lab(model=Scripted(replies, loop=True), flows=[fails, answers], **spec) as lab:
        return lab.run_sync(out=tmp_path / "run")


@pytest.mark.parametrize("width", [40, 120])
def test_show_prints_every_whole_reply_beside_question_and_reference(run, capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    assert main(["show", "run", "c1"]) == 0
    output = capsys.readouterr().out
    for part in (
        "turn 1 of c1 (not asked)",
        "asked: Hello <b>there</b>",
        "reference: 410 grams. | 450",
        "turn 2 of c1",
    ):
        assert part in output
    for part in (
        "relevant: ball",
        "the reply declines",
        "FAILED:",
        "answer_f1 0.00",
        "refusal_accuracy 0.00",
        " out, ",
    ):
        assert part in output
    words = output.replace("│", " ").split()
    assert words.count("grams,") == 2 and output.count("word.") == 2, "the whole reply, of both turns"
    assert output.index("fails") < output.index("answers"), "in the order of the spec"
    beside = any("fails" in line and "answers" in line for line in output.splitlines())
    assert beside == (width == 120)


def test_a_notebook_shows_the_same_and_escapes_it(run):
    rendered = run.show("c1")
    assert "Hello &lt;b&gt;there" in rendered._repr_html_() and "<b>" not in rendered._repr_html_()
    assert "reference: 410 grams. | 450" in repr(rendered)
    with pytest.raises(RunError, match="Known: c1, c2"):
        run.show("c")


def test_without_its_data_set_a_run_shows_what_it_knows(run, capsys):
    unseal(Path("run"))
    Path("run/conversations.json").unlink()
    file = Path("set/conversations.jsonl")
    file.write_text(file.read_text().replace("450", "451"))
    for _ in range(2):
        assert main(["show", str(run.path), "c1"]) == 0
        output = capsys.readouterr().out
        assert "the data set is missing or has changed" in output and "reference:" not in output
        assert "asked: How heavy is the ball?" in output and "to the last word" in " ".join(output.split())
        assert main(["show", "--trace", str(run.path), "c1", "--flow", "answers"]) == 0
        assert "asked: How heavy" in capsys.readouterr().out
        file.unlink(missing_ok=True)


def test_a_trace_begins_with_the_question_and_ends_with_reply_and_scores(run, capsys):
    assert main(["show", "--trace", "run", "c1", "--flow", "answers"]) == 0
    lines = capsys.readouterr().out.splitlines()
    turn = lines[lines.index("turn 2 of c1") : lines.index("turn 3 of c1")]
    expected = ("asked: How heavy is the ball?", "reference: 410 grams. | 450", "relevant: ball", "answers")
    at = [turn.index(line) for line in (*expected, f"reply: {LONG}")]
    assert at == sorted(at) and "[system]" not in "\n".join(lines)
    assert any(line.startswith("answer_f1 0.") and "nearest reference: " in line for line in turn[at[-1] :])
    assert any("call_tool no_such_tool" in line for line in turn[: at[-1]])
    assert main(["show", "--trace", "run", "c1", "--flow", "answers", "--turn", "3"]) == 0
    output = capsys.readouterr().out
    assert output.startswith("turn 3 of c1\nasked: Who won?") and output.count("reply: ") == 1
    assert main(["show", "run", "c1", "--turn", "4"]) == 1
    assert "turn 4: c1 has turns 1 to 3" in capsys.readouterr().err
    assert main(["show", "run", "c1", "--turn", "0"]) == 1
    assert capsys.readouterr().err == "agentlab: turn 0: turns are counted from 1\n"


def test_a_full_trace_has_prompts_arguments_and_passages(run, capsys):
    assert main(["show", "--trace", "run", "c1", "--flow", "answers", "--all"]) == 0
    output = capsys.readouterr().out
    for part in (
        "[system] Use: The ball weighs between 410 and 450 grams.",
        "[user] How heavy is the ball?",
        "calls no_such_tool {'query': 'a <i>thing</i>'}",
        "[arguments] {'query'",
        "[output] Error: there is no tool",
        "[query] Who won?",
        f"[agent] {LONG}",
    ):
        assert part in output


def test_a_flow_that_always_failed_has_a_trace(run, capsys):
    assert main(["show", "--trace", "run"]) == 0
    assert "c2  fails" in capsys.readouterr().out
    assert main(["show", "--trace", "run", "c2", "--flow", "fails"]) == 0
    output = capsys.readouterr().out
    assert "turn 2 of c2\nasked: How heavy is the ball?\nreference:" in output
    assert "fails\n" in output and "FAILED: RuntimeError: nothing was asked" in output
    assert main(["show", "--trace", "run", "c2", "--flow", "fals"]) == 1
    assert "Did you mean 'fails'?" in capsys.readouterr().err


def test_the_worst_turn_is_one_that_failed_and_a_good_run_has_none(run, capsys):
    assert main(["show", "run"]) == 0
    assert "agentlab show run c1  # the worst: turn 2, failed in fails" in capsys.readouterr().out
    unseal(Path("run"))
    turns = Path("run/turns.jsonl").read_text().replace('"error":"RuntimeError: nothing was asked"', '"error":null')
    rows = [json.loads(line) for line in turns.splitlines()]
    for value, text in ((1.0, None), (0.25, "the worst: turn 2, answer_correctness 0.25 in answers")):
        for row in rows:
            for metric, score in row["scores"].items():
                score["value"] = value if (row["flow"], metric) == ("answers", "answer_correctness") else 1
        Path("run/turns.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert open_run("run").path and main(["show", "run"]) == 0
        output = capsys.readouterr().out
        assert text in output if text else "agentlab show run c" not in output
