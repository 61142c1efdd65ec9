"""A key in a reply, an error, a tool's output or an address reaches no file and no screen."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.secrets import REDACTED, redact
from agentlab.models.scripted import Scripted
from support.rules_set import CONVERSATIONS, DOCUMENTS, write_set

KEY = "sk-proj-aB3dE5gH7jK9mN1pQ3rS5tU7vW9xY1zA3bC"
PASSWORD = "correct-horse-battery"
FORMS = [KEY, KEY[: len(KEY) // 2], KEY[len(KEY) // 2 :], base64.b64encode(f"Bearer {KEY}".encode()).decode()]


async def quotes(turn: Any, session: Any) -> al.Reply:
    completion = await session.complete(f"{turn.text} {FORMS[2]}")
    session.notify("told", f"http://me:{PASSWORD}@host/?api_key={KEY}", key=KEY)
    if "Who" in turn.text:
        raise RuntimeError(f"refused: {KEY}")
    return al.Reply(text=completion.text, data={KEY: [FORMS[3]]})


@pytest.fixture
def spec(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    data = write_set(tmp_path / "rules", CONVERSATIONS[:2], DOCUMENTS)
    return {"datasets": [str(data)], "embedder": "hashing/hashing-64", "flows": [quotes], "scorers": ["answer"]}


def leaks(text: str) -> list[str]:
    window = len(KEY) // 2 - 1
    pieces = [KEY[at : at + window] for at in range(len(KEY) - window)]
    coded = base64.b64encode(f"Bearer {KEY}".encode()).decode()[12:40]
    return [piece for piece in (*pieces, coded, PASSWORD) if piece in text]


def play(spec: dict[str, Any], out: Path, replies: list[str], **more: Any) -> al.Run:
    with al.Lab(model=Scripted(replies, loop=True), **spec) as lab:
        return lab.run_sync(out=out, **more)


def test_run_that_met_a_key_redacts_it_and_reports_it(spec, tmp_path, capsys, monkeypatch):
    run = play(spec, tmp_path / "run", [f"It is {form}." for form in FORMS])
    for file in run.path.iterdir():
        assert not leaks(file.read_text(encoding="utf-8")), file.name
    assert run.summary["secrets"] > 8
    assert [row.reply.text for row in run.turn_rows() if row.reply] and REDACTED in (
        run.path / "turns.jsonl"
    ).read_text()
    capsys.readouterr()
    monkeypatch.chdir(tmp_path)
    baseline = str(tmp_path / "base.jsonl")
    for command in (
        *(["show", "run"], ["show", "run", "c0"], ["show", "--trace", "run", "c0", "--all"], ["report", "run"]),
        *(["gate", "run", "--baseline", baseline, "--update"], ["gate", "run", "--baseline", baseline, "--explain"]),
    ):
        main(command)
        out, err = capsys.readouterr()
        assert (out or err) and not leaks(out + err), command
        if command == ["show", "run"]:
            lines = [line for line in out.splitlines() if "contained a secret" in line]
            assert len(lines) == 1 and lines[0].startswith(f"{run.summary['secrets']} texts")
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and leaks(file.read_text("utf-8", "replace"))]


def test_run_without_a_key_reports_nothing(spec, tmp_path, capsys):
    async def answers(turn: Any, session: Any) -> al.Reply:
        return al.Reply(text=(await session.complete(turn.text)).text)

    run = play({**spec, "flows": [answers]}, tmp_path / "run", ["Between 410 and 450 grams."])
    assert "secrets" not in run.summary and "secrets" not in (run.path / "turns.jsonl").read_text()
    main(["show", str(run.path)])
    assert "secret" not in capsys.readouterr().out


def test_a_run_with_a_secret_can_be_resumed_and_counts_the_same(spec, tmp_path):
    whole = play(spec, tmp_path / "whole", [f"It is {KEY}."])
    play(spec, tmp_path / "cut", [f"It is {KEY}."])
    stored = [line for line in (tmp_path / "cut" / "turns.jsonl").read_text().splitlines() if '"c0"' in line]
    (tmp_path / "cut" / "turns.jsonl").write_text("\n".join(stored) + "\n")
    ledger = [line for line in (tmp_path / "cut" / "calls.jsonl").read_text().splitlines() if '"c0"' in line]
    (tmp_path / "cut" / "calls.jsonl").write_text("\n".join(ledger) + "\n")
    (tmp_path / "cut" / "summary.json").unlink()
    again = play(spec, tmp_path / "cut", [f"It is {KEY}."], resume=True)
    assert again.summary["secrets"] == whole.summary["secrets"] and again.summary["status"] == "complete"


def test_a_variable_that_is_set_later_is_a_secret_from_then_on(monkeypatch):
    for value in (KEY, KEY[::-1]):
        monkeypatch.setenv("SOME_API_KEY", value)
        assert redact(f"It is {value}.") == f"It is {REDACTED}."
    assert redact(f"It is {KEY}.") == f"It is {KEY}.", "it is none any more"


def test_an_address_with_a_password_is_shown_without_it(tmp_path, own_home, capsys, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", f"htp:/me:{PASSWORD}@127.0.0.1/v1")
    data = write_set(tmp_path / "rules", CONVERSATIONS[:1], DOCUMENTS)
    assert main(["run", "--dataset", str(data), "--flow", "rag_only", "--model", "openai/m"]) == 1
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://me:{PASSWORD}@127.0.0.1:9/v1?api_key={KEY}")
    main(["doctor"])
    out, err = capsys.readouterr()
    assert "OPENAI_BASE_URL" in err and f"api_key={REDACTED}" in out and not leaks(out + err)


def test_the_page_of_a_run_made_before_holds_no_key_either(spec, tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    run = play({**spec, "flows": ["rag_only"]}, tmp_path / "run", [f"It is {KEY}."])
    assert KEY in (run.path / "turns.jsonl").read_text(), "nobody had said that it is one"
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    run = al.open_run(run.path)
    assert REDACTED in repr(run.show("c0")) and not leaks(repr(run.show("c0")) + run.show("c0")._repr_html_())
    trace = run.trace("rag_only", "c0")
    assert not leaks(trace.steps(full=True) + trace._repr_markdown_()) and json.dumps(run.turns["reply"].tolist())
