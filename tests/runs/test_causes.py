"""Causes of poor turns: each rule on a turn made for it, and no cause for a right turn."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.errors import ContentFiltered, ToolError
from agentlab.core.messages import Completion, Message, ToolCall, Usage
from agentlab.evals.compare.causes import RULES
from agentlab.lab.run import Run
from agentlab.models.scripted import Scripted
from support.predictions import row, write_questions, write_rows

CORPUS = [
    {"doc_id": "ball", "title": "The ball", "text": "The ball weighs between 410 and 450 grams at kick-off."},
    {"doc_id": "goal", "title": "The goal", "text": "A goal is 7.32 metres wide and painted white on all sides."},
]
WEIGHT = {"user": "How heavy is the ball?", "reference_answers": ["450 grams"], "relevant_doc_ids": ["ball"]}
WIDTH = {"user": "How wide is a goal?", "reference_answers": ["7.32 metres"], "relevant_doc_ids": ["goal"]}
OPEN = {"user": "Who won in 1871?", "unanswerable": True}
TALK = {"user": "Which colour is the sky?", "reference_answers": ["blue"]}


def played(tmp_path: Path, turn: dict, flow, finish: str = "stop") -> Run:
    folder = tmp_path / "rules"
    folder.mkdir()
    write_rows(folder / "conversations.jsonl", [{"id": "c0", "turns": [turn]}])
    write_rows(folder / "corpus.jsonl", CORPUS)
    completion = Completion(message=Message(role="agent", text="said"), usage=Usage(), finish_reason=finish)
    spec = {"datasets": [str(folder)], "embedder": "hashing/hashing-64", "retrieval": {"top_k": 1}}
    scorers = ["answer", "correctness", "refusal"]
    with al.Lab(model=Scripted([completion], loop=True), flows=[flow], scorers=scorers, **spec) as lab:
        return lab.run_sync(out=tmp_path / "run")


def answering(text: str, query: str = "", fails: bool = False):
    async def flow(turn, session):
        if query:
            await session.retrieve(query)
        await session.complete(turn.text)
        if fails:
            raise RuntimeError("by choice")
        return al.Reply(text=text)

    return flow


CASES = {
    "error": (WEIGHT, answering("450 grams", fails=True)),
    "missed refusal": (OPEN, answering("Wanderers won.")),
    "retrieval miss": (WEIGHT, answering("100 grams", query="goal metres wide painted")),
    "evidence ignored": (WEIGHT, answering("100 grams", query="ball weighs grams kick-off")),
    "wrong refusal": (WEIGHT, answering("The documents do not say.", query="ball weighs grams kick-off")),
    "unsupported claim": (TALK, answering("green since 1990")),
}


@pytest.mark.parametrize("cause", CASES)
def test_a_turn_has_the_cause_it_was_played_for(cause, tmp_path, own_home, capsys):
    turn, flow = CASES[cause]
    run = played(tmp_path, turn, flow)
    assert list(run.causes().cause) == [cause]
    assert main(["show", str(run.path), "--all"]) == 0
    counted = "RuntimeError: by choice" if cause == "error" else f"poor turns of flow, 1 of 1: 1 {cause}"
    assert counted in capsys.readouterr().out
    assert main(["show", str(run.path), "c0"]) == 0
    assert f"cause: {cause}" in capsys.readouterr().out


def test_the_event_that_shows_a_cause_is_one_of_the_trace(tmp_path, own_home, capsys):
    turn, flow = CASES["retrieval miss"]
    run = played(tmp_path, turn, flow)
    (cause,) = run.causes().to_dict("records")
    (event,) = [event for event in run.trace("flow", "c0").events if event.id == cause["event"]]
    assert (event.kind, "relevant: ball" in cause["why"]) == ("search", True)
    assert main(["show", "--trace", str(run.path), "c0"]) == 0
    assert "cause: retrieval miss: found goal; relevant: ball (by search)" in capsys.readouterr().out
    assert main(["report", str(run.path), "-o", str(tmp_path / "run.html")]) == 0
    assert '"retrieval miss","text":"the answer is wrong, and no search' in (tmp_path / "run.html").read_text()


def test_a_search_that_never_was_is_a_miss_without_an_event(tmp_path, own_home):
    run = played(tmp_path, WEIGHT, answering("100 grams"))
    (cause,) = run.causes().to_dict("records")
    assert (cause["cause"], cause["event"], cause["why"]) == ("retrieval miss", None, "did not search; relevant: ball")
    assert '"kind":"did not search"' in run.report().text


def test_truncated_reply_has_the_cause_truncated(tmp_path, own_home):
    turn, flow = CASES["evidence ignored"]
    assert list(played(tmp_path, turn, flow, finish="length").causes().cause) == ["cut off"]


@pytest.mark.parametrize(
    ("finish", "text", "row"),
    [
        ("length", "It weighs up to 450 grams.", "1 by length"),
        ("content_filter", "It weighs", "1 by content filter"),
        ("other", "It weighs", "1 by server"),
        ("stop", "It weighs", ""),
    ],
)
def test_replies_cut_short_are_counted_in_the_table_by_cause(finish, text, row, tmp_path, own_home, capsys):
    run = played(tmp_path, WEIGHT, answering(text), finish)
    assert main(["show", str(run.path)]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if "cut short" in line] == (
        [f"replies cut short: flow {row}"] if row else []
    )
    assert main(["show", str(run.path), "--all"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "cut short" in line]
    assert len(lines) == (2 if row else 0) and all(row in line for line in lines)


def test_a_prompt_that_a_filter_rejects_counts_as_cut_short(tmp_path, own_home, capsys):
    folder = write_questions(tmp_path / "set", {"q0": ["blue"]})
    spec = {"datasets": [str(folder)], "embedder": "hashing/hashing-64", "flows": [answering("blue")]}
    with al.Lab(model=Scripted([ContentFiltered("no", "any")], loop=True), **spec) as lab:
        flow = lab.run_sync(out=tmp_path / "run").summary["flows"]["flow"]
    assert (flow["stopped"], flow["errors"]) == ({"content filter": 1}, 1)


@pytest.mark.parametrize(
    ("turn", "flow"),
    [
        (WEIGHT, answering("It weighs up to 450 grams.")),
        (OPEN, answering("The documents do not say.")),
    ],
)
def test_a_turn_that_is_right_has_no_cause(turn, flow, tmp_path, own_home, capsys):
    run = played(tmp_path, turn, flow)
    assert run.causes().empty
    main(["show", str(run.path)])
    assert "poor turns" not in capsys.readouterr().out


def test_cause_of_an_imported_answer_names_the_missing_trace(tmp_path):
    folder = write_questions(tmp_path / "theirs", {"q0": ["blue"], "q1": ["red"], "q2": ["green"]})
    rows = [row("a", "q0", "yellow since 1990"), row("a", "q1", "The documents do not say."), row("a", "q2", "green")]
    write_rows(folder / "predictions.jsonl", rows)
    causes = al.import_predictions(folder, tmp_path / "run").causes()
    assert dict(zip(causes.conversation, causes.cause, strict=True)) == {"q0": "unknown", "q1": "wrong refusal"}


def test_every_label_names_a_cause_that_a_rule_can_give():
    file = Path(__file__).parents[2] / "evals" / "labels" / "causes.jsonl"
    labels = [json.loads(line) for line in file.read_text().splitlines()]
    assert len(labels) >= 100
    assert {label["cause"] for label in labels} <= {*RULES, "right"}


def test_a_call_that_was_cut_off_is_a_cause_on_the_page(tmp_path, own_home):
    async def flow(turn, session):
        await session.complete(turn.text, phase="tool_args")
        with contextlib.suppress(ToolError):
            await session.call_tool(ToolCall(id="x", name="lookup_documents", malformed='{"query": "ba'))
        return al.Reply(text="100 grams")

    run = played(tmp_path, WEIGHT, flow, finish="length")
    assert list(run.causes().cause) == ["cut off"]
    assert main(["report", str(run.path), "-o", str(tmp_path / "run.html")]) == 0
    page = (tmp_path / "run.html").read_text()
    assert '"kind":"cut off"' in page and '"kind":"reply cut"' not in page
