"""The files of a run folder, and its exports for other programs."""

from __future__ import annotations

import asyncio
import csv
import json
from pathlib import Path

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.files import AppendOnlyFile
from support.rules_set import lab
from support.small_runs import Answering, play, write_set
from support.unsealing import unseal


def lines(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_ledger_stores_a_message_once_and_returns_it_whole(dataset, tmp_path):
    async def chatty(turn, session):
        messages = [*session.load_conversation(), al.Message(role="user", text=turn.text)]
        for _ in range(3):
            reply = (await session.complete(messages, tools=session.tool_specs())).text
        session.save_message("user", turn.text)
        session.save_message("agent", reply)
        return al.Reply(text=reply)

    with lab(dataset, ["Hm. \u00e9"], flows=[chatty]) as laboratory:
        run = laboratory.run_sync(out=tmp_path / "run")
        events = run.traces["chatty", "c0", 0].events
    rows = lines(run.path / "calls.jsonl")
    parts = [(row["conversation"], row["hash"]) for row in rows if row["kind"] in ("message", "tool_spec")]
    assert len(parts) == len({*parts}) > 0
    calls = [event for event in events if event.kind == "model_call"]
    assert len(calls) == 6 and [m.text for m in calls[-1].request.messages][-1] == "Who won?"
    assert calls[-1].request.messages[-2].text == "Hm. \u00e9"
    first = next(position for position, row in enumerate(rows) if row["kind"] == "model_call")
    before = {row.get("hash") for row in rows[:first]}
    assert {*rows[first]["request"]["messages"]} <= before, "a part stands before what names it"


def test_paid_calls_are_written_at_once_and_turns_soon_after(dataset, tmp_path):
    out, paid, ended = tmp_path / "run", list[int](), list[int]()

    def written(name: str) -> list[dict]:
        return lines(out / name) if (out / name).exists() else []

    async def looking(turn, session):
        await session.complete(turn.text)
        paid.append(sum(row["kind"] == "model_call" for row in written("calls.jsonl")))
        await asyncio.sleep(0)
        ended.append(len(written("turns.jsonl")))
        return al.Reply(text="yes")

    with lab(dataset, flows=[looking], concurrency=1) as laboratory:
        run = laboratory.run_sync(out=out)
    assert (paid, ended) == ([1, 2, 3, 4, 5, 6], [0, 1, 2, 3, 4, 5]) and len(run.turn_rows()) == 6


def test_a_row_is_written_when_its_turn_has_ended_after_its_events(tmp_path, monkeypatch):
    written, added = [], AppendOnlyFile.add

    def add(self, data):
        written.extend(data.splitlines() if data.startswith(b'{"flow"') else ())
        added(self, data)

    monkeypatch.setattr(AppendOnlyFile, "add", add)
    run = play(write_set(tmp_path / "colours", 20), tmp_path / "run", Answering())
    rows = [json.loads(line) for line in written]
    assert [row for row in rows if "reply" in row] == lines(run.path / "turns.jsonl")
    turns = {(row["conversation"], row["turn"]): position for position, row in enumerate(rows) if "reply" in row}
    events = [(position, row) for position, row in enumerate(rows) if row.get("kind") == "model_call"]
    assert events and all(position < turns[row["conversation"], row["turn"]] for position, row in events)


def test_a_ledger_that_lost_a_message_is_named_in_a_line(dataset, tmp_path, capsys):
    with lab(dataset, flows=["rag_only"]) as laboratory:
        run = laboratory.run_sync(out=tmp_path / "run")
    file = run.path / "calls.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in lines(file) if row["kind"] != "message"))
    unseal(run.path)
    assert main(["show", "--trace", str(run.path), "c0"]) == 1
    printed = capsys.readouterr().err
    assert "rag_only/c0/0" in printed and printed.count("\n") == 1


def test_tables_and_comparisons_read_turn_rows_alone(tmp_path, own_home, capsys):
    data = write_set(tmp_path / "set", conversations=3)
    run = play(data, tmp_path / "run", Answering("a"), Answering("b", wrong={("c01", 0)}))
    (run.path / "calls.jsonl").unlink()
    unseal(run.path)
    for command in (["show", str(run.path)], ["show", str(run.path), "c01"], ["compare", str(run.path)]):
        assert main(command) == 0
    assert "answer_f1 1 -> 0" in capsys.readouterr().out


@pytest.mark.parametrize("to", ["csv", "parquet"])
def test_a_table_for_others_has_a_row_a_turn_with_scores_and_reasons(tmp_path, own_home, capsys, to):
    parquet = pytest.importorskip("pyarrow.parquet") if to == "parquet" else None
    data = write_set(tmp_path / "set", conversations=3)
    run = play(data, tmp_path / "run", Answering("a", wrong={("c01", 0)}, failing={("c02", 1)}))
    file = tmp_path / f"table.{to}"
    assert main(["export", str(run.path), "--to", to, "-o", str(file)]) == 0
    assert "6 turns" in capsys.readouterr().out
    rows = parquet.read_table(file).to_pylist() if parquet else list(csv.DictReader(file.read_text().splitlines()))
    assert [row["conversation"] for row in rows] == ["c00", "c00", "c01", "c01", "c02", "c02"]
    assert [float(row["seconds"]) for row in rows] == [row.totals.seconds for row in run.turn_rows()]
    assert [float(row["score.answer_f1"]) for row in rows] == [1, 1, 0, 1, 1, 0]
    assert rows[5]["reason.answer_f1"].startswith("the turn failed") and "by choice" in rows[5]["error"]
    assert int(rows[0]["input_tokens"]) == 100 and rows[2]["reply"] == "no idea"
    again = file.read_bytes()
    assert main(["export", str(run.path), "--to", to, "-o", str(file)]) == 0 and file.read_bytes() == again
    assert main(["export", str(run.path), "--to", to, "-o", str(tmp_path / "no" / "where")]) == 1
    assert "cannot be written" in capsys.readouterr().err
