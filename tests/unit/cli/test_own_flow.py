"""A newcomer's own flow: it is found in the current folder, its errors are explained, and it is priced once."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.messages import Passage
from agentlab.models.scripted import Scripted
from support.rules_set import CONVERSATIONS, DOCUMENTS, write_set

SCRIPT = "loop: true\nreplies: ['Eight books at a time [1].']\n"
FLOW = """
import agentlab as al
from beside import LINE

async def respond(turn, session):
    return al.Reply(text=LINE)

async def other(turn, session):
    return al.Reply(text="other")
"""


@pytest.fixture
def folder(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_set(tmp_path / "rules", CONVERSATIONS, DOCUMENTS)
    (tmp_path / "replies.yaml").write_text(SCRIPT)
    (tmp_path / "my_flow.py").write_text(FLOW)
    (tmp_path / "beside.py").write_text("LINE = 'Between 410 and 450 grams.'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("beside", "my_flow", "inner", "inner.mine"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setenv("AGENTLAB_MODEL", "scripted/replies.yaml")
    monkeypatch.setenv("AGENTLAB_EMBEDDER", "hashing/hashing-64")
    return tmp_path


def summary(path: str) -> dict:
    return json.loads(Path(path, "summary.json").read_text())


@pytest.mark.parametrize(
    "name, label",
    [("./my_flow.py", "my_flow"), ("my_flow", "my_flow"), ("my_flow.py:other", "other"), ("inner.mine", "inner.mine")],
)
def test_a_flow_is_found_in_the_current_folder_by_file_and_by_name(folder, name, label):
    (folder / "inner").mkdir(exist_ok=True)
    (folder / "inner" / "mine.py").write_text(FLOW)
    assert main(["run", "--dataset", "rules", "--flow", name, "--out", "results/a"]) == 0
    assert list(summary("results/a")["flows"]) == [label]
    (folder / "spec.yaml").write_text(f"datasets: [rules]\nflows: [rag_only, '{name}', {{flow: '{name}', label: b}}]\n")
    assert main(["run", "spec.yaml", "--limit", "1", "--out", "results/b"]) == 0
    assert list(summary("results/b")["flows"]) == ["rag_only", label, "b"]


def test_changed_flow_file_is_loaded_again(folder):
    for text in ("one", "two"):
        (folder / "fresh.py").write_text(FLOW.replace("text=LINE", f"text={text!r}"))
        with al.Lab(flows=["./fresh.py"], datasets=["rules"], limit=1) as lab:
            assert set(lab.run_sync().turns["reply"]) == {text}


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("./nowhere.py", "", "there is no file nowhere.py, seen from the current folder"),
        ("./my_flow", "", ""),
        ("./bad.py", "def respond(:", "invalid syntax (bad.py, line 1)"),
        ("./bad.py", "x = 1\ny = x / 0\n", "ZeroDivisionError: division by zero (bad.py:2)"),
        ("./bad.py", "import no_such_thing\n", "No module named 'no_such_thing'"),
        ("./bad.py", "def respond(turn, session): ...\n", "it has no `async def respond(turn, session)`"),
        ("./bad.py", "async def mine(turn, session): ...\n", "write file.py:name for another name"),
        ("bad.py:answer", "x = 1\n", "has no attribute 'answer'"),
        ("my_flwo", "", "unknown flow 'my_flwo'"),
    ],
)
def test_a_flow_that_cannot_be_used_is_one_line(folder, capsys, name, text, message):
    (folder / "bad.py").write_text(text)
    code = main(["run", "--dataset", "rules", "--flow", name, "--out", "results/a"])
    error = capsys.readouterr().err
    if message:
        assert code == 1 and message in error and error.count("\n") == 1
    else:
        assert code == 0


@pytest.mark.parametrize(
    "value, error",
    [
        ("turn.text", None),
        ("[al.Message(role='user', text=turn.text)]", None),
        ("al.Message(role='user', text=turn.text)", None),
        ("[{'role': 'user', 'content': turn.text}]", "complete takes a text or a list of al.Message"),
        ("{'role': 'user'}", "complete takes a text or a list of al.Message"),
        ("[al.Message(role='assistant', text='x')]", "the role one of system, user, agent, tool"),
        ("7", "not 7"),
    ],
)
def test_complete_takes_a_text_or_names_valid_types(folder, value, error):
    reply = f"al.Reply(text=(await session.complete({value})).message.text)"
    body = f"async def respond(turn, session):\n    return {reply}\n"
    (folder / "asks.py").write_text(f"import agentlab as al\n{body}")
    with al.Lab(flows=["./asks.py"], datasets=["rules"], limit=1, model=Scripted(["Hi"], loop=True)) as lab:
        run = lab.run_sync()
    if error is None:
        assert set(run.turns["reply"]) == {"Hi"}
        assert run.traces["asks", "c0", 0].events[0].request.messages[0].role == "user"
    else:
        assert all(error in each for each in run.turns["error"])


def test_invalid_reply_is_an_error_with_an_example(folder):
    (folder / "plain.py").write_text("async def respond(turn, session):\n    return 'text'\n")
    with al.Lab(flows=["./plain.py"], datasets=["rules"], limit=1) as lab:
        assert "return al.Reply(text=...)" in lab.run_sync().turns["error"][0]


def test_a_prompt_that_the_flow_lacks_is_named(folder):
    (folder / "plain.py").write_text("async def respond(turn, session):\n    session.prompt('system')\n")
    with al.Lab(flows=["./plain.py"], datasets=["rules"], limit=1) as lab:
        assert "unknown prompt of this flow (PROMPTS in its file) 'system'" in lab.run_sync().turns["error"][0]


def test_a_flow_that_does_not_say_how_often_it_asks_is_taken_to_ask_once(folder, capsys):
    assert main(["run", "--dataset", "rules", "--flow", "./my_flow.py", "--out", "results/a"]) == 0
    assert "6 turns, at least 6 model calls" in capsys.readouterr().out


def test_a_passage_prints_as_its_text():
    passage = Passage(id="d#0", doc_id="d", title="D", text="The ball is round.", start=0, end=18)
    assert f"{passage}" == "The ball is round." and "doc_id='d'" in repr(passage)


def test_lint_findings_are_printed_before_a_run(folder, capsys):
    write_set(folder / "odd", [*CONVERSATIONS, {**CONVERSATIONS[0], "id": "again"}], DOCUMENTS)
    for name, text in (("odd", True), ("rules", False)):
        assert main(["run", "--dataset", name, "--flow", "./my_flow.py", "--limit", "4"]) == 0
        assert ("odd: 1 lint finding; run `agentlab lint odd`" in capsys.readouterr().out) is text


def test_project_of_init_runs_with_its_own_flow(tmp_path, own_home, monkeypatch, capsys):
    assert main(["init", str(tmp_path / "new")]) == 0
    monkeypatch.chdir(tmp_path / "new")
    Path("replies.yaml").write_text(SCRIPT)
    offline = ["--model", "scripted/replies.yaml", "--set", "embedder=hashing/hashing-64"]
    assert main(["run", *offline, "--out", "results/a"]) == 0
    mine = summary("results/a")["flows"]["my_flow"]
    assert (mine["errors"], mine["llm_calls_per_turn"], mine["scores"]["citation_recall"]["mean"]) == (0, 1, 1)
    first = capsys.readouterr().out
    assert first.count("scripted/replies.yaml has no price") == 1, "asked for once"
    Path("prices.yaml").write_text("models: {scripted/replies.yaml: {input: 0.25, output: 2.00}}\n")
    assert main(["run", *offline, "--set", "prices=prices.yaml", "--out", "results/b"]) == 0
    assert "no price" not in capsys.readouterr().out
    assert summary("results/b")["flows"]["my_flow"]["cost_usd"] > 0


def test_the_estimate_of_a_replay_knows_that_it_is_one(folder, capsys):
    run = ["run", "--dataset", "rules", "--flow", "rag_only"]
    assert main([*run, "--mode", "record", "--out", "results/a"]) == 0
    assert "price unknown" in capsys.readouterr().out
    assert main([*run, "--mode", "replay", "--out", "results/b"]) == 0
    estimated = capsys.readouterr().out.splitlines()[0]
    assert "all from recordings: no model calls, no cost" in estimated and "price" not in estimated
    assert main([*run, "--mode", "replay", "--out", "results/d"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("  agentlab report results/d "), "last is what is next"
    assert main([*run, "--flow", "tools", "--mode", "auto", "--out", "results/e"]) == 0
    assert "if they are equally good, at least " in capsys.readouterr().out, "the set is too small to ship a flow"
    assert main([*run, "--mode", "auto", "--out", "results/c"]) == 0
    assert "recorded calls are not repeated" in capsys.readouterr().out.splitlines()[0]
