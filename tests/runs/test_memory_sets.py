"""Runs on memory sets: both ways to fill a memory, questions that see nothing of each other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab.core.errors import ConfigError, RecordingError
from agentlab.core.messages import Message, Reply
from agentlab.evals.play.budget import estimate
from agentlab.lab.run import Run
from agentlab.models.scripted import Scripted
from support.memory_sets import write


@pytest.fixture
def dataset(tmp_path: Path, own_home: Path) -> Path:
    return write(tmp_path / "told")


class Recalling:
    """Answers with the facts it recalls, and remembers that it was asked."""

    name = "recalling"
    MEMORY = True

    async def respond(self, turn, session):
        facts = await session.recall(turn.text, top_k=2)
        assert not session.load_conversation()
        session.save_message("user", turn.text)
        await session.remember(f"Somebody asked: {turn.text}")
        return Reply(text=" / ".join(fact.text for fact in facts))

    async def write_memory(self, turn, session):
        if "cello" in turn.text:
            old = next(fact for fact in await session.recall("oboe") if "oboe" in fact.text)
            await session.revise(old.id, turn.text)
        else:
            await session.remember(turn.text)


def lab(dataset: Path, *flows: Any, replies: Any = ("hm",), model: Scripted | None = None, **spec: Any) -> al.Lab:
    spec = {"embedder": "hashing/hashing-256", "memory": "sqlite", **spec}
    model = model or Scripted(replies, loop=True)
    return al.Lab(model=model, datasets=[str(dataset)], flows=list(flows) or [Recalling()], **spec)


def play(dataset: Path, out: Path, *flows: Any, resume: bool = False, **spec: Any) -> Run:
    with lab(dataset, *flows, **spec) as laboratory:
        return laboratory.run_sync(out=out, resume=resume)


def replies(run: Run) -> dict[str, str]:
    return dict(zip(run.turns["conversation"], run.turns["reply"], strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["sqlite", "chroma"])
def test_every_message_is_a_fact_and_questions_share_no_writes(dataset, tmp_path, backend):
    run = play(dataset, tmp_path / "run", memory=backend)
    answers = replies(run)
    assert answers["q1"].startswith("2026-01-05 09:30, Bo: I keep bees near Ulm / ")
    assert answers["q4"] == "2026-02-01, Cleo: My boat is called Mistral"
    assert not any("Somebody asked" in answer for answer in answers.values())
    flow = run.summary["flows"]["recalling"]
    assert (flow["turns"], flow["errors"], flow["llm_calls"]) == (4, 0, 0)
    assert (flow["embedding_calls"], flow["memory_ops"]) == (8, 8), "filling the memory is nobody's cost"
    assert "ingest" not in flow
    scores = run.scores[run.scores["metric"] == "memory_recall"]
    assert dict(zip(scores["conversation"], scores["value"], strict=True)) == {"q1": 1.0, "q2": 1.0, "q4": 1.0}
    assert set(run.scores["category"]) == {"single-hop", "unanswerable"}
    tokens = dict(zip(run.turns["conversation"], run.turns["memory_tokens"], strict=True))
    assert tokens["q4"] == len(answers["q4"]) // 4
    assert flow["memory_tokens_per_turn"] == sum(tokens.values()) / 4


def test_flows_that_cannot_remember_are_refused_before_anything_is_written(dataset, tmp_path):
    async def forgetful(turn, session):
        return Reply(text="hm")

    with pytest.raises(ConfigError, match="no flow of this run has a long-term memory, but 'told' needs one"):
        play(dataset, tmp_path / "never", forgetful, {"flow": "chatbox", "memory": "none"})
    with pytest.raises(ConfigError, match="no step that writes to memory"):
        play(dataset, tmp_path / "never", "discord", ingest="flow")
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("ingest", ["verbatim", "flow"])
def test_flow_without_a_memory_shows_the_worth_of_one(dataset, tmp_path, ingest):
    without = {"flow": "chatbox", "label": "without", "memory": "none"}
    run = play(dataset, tmp_path / "run", "chatbox", without, replies=[writing], ingest=ingest)
    flows = run.summary["flows"]
    assert [flows[label]["turns"] for label in ("chatbox", "without")] == [4, 4]
    assert flows["without"]["errors"] == flows["without"]["memory_ops"] == 0 < flows["chatbox"]["memory_ops"]
    recalled = run.scores[run.scores["metric"] == "memory_recall"].groupby("flow")["value"].mean()
    assert recalled["without"] == 0 < recalled["chatbox"]


def writing(request: Any) -> str:
    """Saves statements about bees and boats only; answers with the first fact."""
    schema = json.dumps(request.output_schema or {})
    texts = [message.text for message in request.messages if message.role == "user"]
    last = [text for text in texts if not text.startswith("What you remember")][-1]
    if '"save_memory"' in schema:
        return json.dumps({"tool": "save_memory" if "bees" in last or "boat" in last else None})
    if '"content"' in schema:
        return json.dumps({"content": f"{last}."})
    return '{"tool": null}' if '"tool"' in schema else "I cannot say."


def test_only_flows_with_a_memory_are_filled(dataset):
    flows = ["chatbox", {"flow": "chatbox", "label": "bare", "memory": "none"}]
    with lab(dataset, *flows, model=Scripted([writing], loop=True), ingest="flow") as laboratory:
        guessed = estimate(laboratory.bench, laboratory.bench.datasets())
    assert f"about {2 * 4 * 4 + 2 * 5} model calls" in guessed


def test_a_flow_fills_its_memory_itself_with_its_memory_step_alone(dataset, tmp_path):
    model = Scripted([writing], loop=True)
    with lab(dataset, {"flow": "chatbox", "memory_min_score": -1}, model=model, ingest="flow") as laboratory:
        guessed = estimate(laboratory.bench, laboratory.bench.datasets())
        run = laboratory.run_sync(out=tmp_path / "run")
    flow = run.summary["flows"]["chatbox"]
    # Four things were said by people: two choices of nothing, two of save_memory with its arguments.
    assert flow["ingest"]["llm_calls"] == 6
    assert (flow["ingest"]["turns"], flow["ingest"]["errors"]) == (5, 0)
    # Each question: tool, memory choice (q1 and q4 with arguments), answer.
    assert flow["llm_calls"] == 6 + 3 * 4 + 2
    assert flow["phases"]["memory_write"]["calls"] >= 6 + 4
    assert f"about {4 * 4 + 2 * 5} model calls" in guessed
    filling = run.trace("chatbox", "ingest:told/ann")
    assert {event.phase for event in filling.events if event.kind == "model_call"} == {"memory_write"}
    spoken = [m.text for r in model.requests for m in r.messages if m.role == "user"]
    assert "Bo: I keep bees near Ulm" in spoken and "agent: A fine instrument" not in spoken
    scores = run.scores[run.scores["metric"] == "memory_recall"].set_index("conversation")["value"]
    assert dict(scores) == {"q1": 1.0, "q2": 0.5, "q4": 1.0}, "the bees were saved in `early`, the cello nowhere"


@pytest.mark.parametrize("protocol", ["two_step", "native"])
def test_a_memory_step_that_fails_is_counted_and_the_questions_are_asked(dataset, tmp_path, protocol):
    class Fragile(Recalling):
        name = "fragile"

        async def write_memory(self, turn, session):
            if "bees" in turn.text:
                raise ZeroDivisionError("by chance")
            await super().write_memory(turn, session)

    run = play(dataset, tmp_path / "run", Fragile(), {"flow": "chatbox", "protocol": protocol}, ingest="flow")
    flow = run.summary["flows"]["fragile"]
    assert (flow["ingest"]["errors"], flow["turns"], flow["errors"]) == (1, 4, 0)
    scores = run.scores[(run.scores["metric"] == "memory_recall") & (run.scores["flow"] == "fragile")]
    recalled = dict(zip(scores["conversation"], scores["value"], strict=True))
    # The cello replaces the oboe, so the fact stands for both of its sessions.
    assert recalled["q2"] == 1.0
    assert run.summary["flows"]["chatbox"]["ingest"]["llm_calls"] == 4
    # "bees" is the third message of Ann's flow, which makes it turn 2 of the filling and of the log.
    (failed,) = [event for event in run.trace("fragile", "ingest:told/ann").events if event.error]
    assert (
        f"fragile/ingest:told/ann turn {failed.turn + 1} failed: ZeroDivisionError"
        in (run.path / "run.log").read_text()
    )


def test_failed_recording_while_filling_memory_ends_the_run(dataset, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "a-very-secret-value")

    class Careless(Recalling):
        name = "careless"

        async def write_memory(self, turn, session):
            await session.complete((Message(role="user", text=f"{turn.text} a-very-secret-value"),))

    recorded = {"mode": "record", "recordings": str(tmp_path / "recordings"), "ingest": "flow"}
    with pytest.raises(RecordingError, match="MY_API_KEY"):
        play(dataset, tmp_path / "run", Careless(), **recorded)
    assert not (tmp_path / "run" / "summary.json").exists()


@pytest.mark.parametrize("ingest", ["verbatim", "flow"])
def test_concurrency_and_resuming_change_no_answer(dataset, tmp_path, ingest):
    class Killed(BaseException):
        pass

    def die_after_two(progress):
        if progress.done == 2:
            raise Killed

    whole = play(dataset, tmp_path / "whole", ingest=ingest)
    concurrent = play(dataset, tmp_path / "concurrent", ingest=ingest, concurrency=8)
    with lab(dataset, ingest=ingest) as laboratory, pytest.raises(BaseException):  # noqa: B017
        laboratory.run_sync(out=tmp_path / "interrupted", on_progress=die_after_two)
    resumed = play(dataset, tmp_path / "interrupted", ingest=ingest, resume=True, concurrency=3)
    assert replies(whole) == replies(concurrent) == replies(resumed)
    flows = [flow for run in (whole, concurrent, resumed) for flow in run.summary["flows"].values()]
    counted = [(flow["memory_ops"], flow["embedding_calls"]) for flow in flows]
    assert len(set(counted)) == 1
    assert resumed.summary["status"] == "complete"


def test_a_budget_ends_the_filling_of_a_memory_too(dataset, tmp_path):
    run = play(dataset, tmp_path / "run", "chatbox", replies=[writing], ingest="flow", budget={"calls": 2})
    assert run.summary["status"] == "partial"
    assert run.summary["turns"] == 0


@pytest.mark.parametrize("ingest", ["verbatim", "flow"])
def test_a_replay_needs_neither_model_nor_embedder(dataset, tmp_path, ingest):
    spec = {"ingest": ingest, "recordings": str(tmp_path / "recordings")}
    first = play(dataset, tmp_path / "first", "chatbox", replies=[writing], mode="record", **spec)
    again = play(dataset, tmp_path / "again", "chatbox", replies=[], mode="replay", **spec, embedder=Absent())
    assert again.summary["status"] == "complete"
    assert again.summary["recordings"]["missing"] == 0
    one, other = ({**run.summary["flows"]["chatbox"], "billed": None} for run in (first, again))
    assert one == other, "the same numbers, but for what was paid"


class Absent:
    """An embedder with missing weights."""

    name = "hashing/hashing-256"
    dimensions = 256

    async def embed(self, texts):
        raise AssertionError("a replay asked for a vector")
