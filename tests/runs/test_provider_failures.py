"""`--resume` repeats conversations that failed at the provider, from the failed turn, and keeps the earlier costs."""

from __future__ import annotations

import json

import pytest
import yaml

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.errors import BadRequest, ModelError, RateLimited, Refused, ServerFault, Unreachable
from agentlab.core.events import ModelCall
from agentlab.core.messages import Completion, Message, Usage
from agentlab.models.scripted import Scripted
from support.rules_set import DOCUMENTS, write_set

QUESTIONS = ("one", "two", "three")
PRICED = "models: {scripted: {input: 1, output: 1}}\n"


class Down(Scripted):
    """Fails at some questions and counts its calls."""

    def __init__(self, *failing: str, failure: ModelError | None = None) -> None:
        super().__init__([])
        self.failing, self.failure, self.received = failing, failure or Unreachable("refused", "scripted"), []

    async def complete(self, request, emit):
        question = request.messages[-1].text.split()[-1]
        self.received.append(question)
        if question in self.failing:
            raise self.failure
        message = Message(role="agent", text=f"answer to {question}")
        return Completion(message=message, usage=Usage(input_tokens=100, output_tokens=100))


async def talks(turn, session):
    message = [*session.load_conversation(), Message(role="user", text=turn.text)]
    completion = await session.complete(message)
    session.save_message("user", turn.text)
    session.save_message("agent", completion.text)
    return al.Reply(text=completion.text)


@pytest.fixture
def run(tmp_path, own_home, monkeypatch):
    monkeypatch.setattr("agentlab.wire.gateway.RETRIES", 0)
    monkeypatch.setattr("agentlab.wire.retries.BACKOFF_SECONDS", 0.001)
    turns = [{"user": text, "reference_answers": [f"answer to {text}"]} for text in QUESTIONS]
    folder = write_set(tmp_path / "set", [{"id": "a", "turns": turns}, {"id": "b", "turns": turns[:1]}], [])
    (tmp_path / "prices.yaml").write_text(PRICED)

    def play(model, **options):
        spec = {key: options.pop(key) for key in ("mode", "recordings") if key in options}
        spec |= {"datasets": [str(folder)], "embedder": "hashing/hashing-64", "flows": [talks], "scorers": ["answer"]}
        with al.Lab(model=model, prices=str(tmp_path / "prices.yaml"), **spec) as lab:
            return lab.run_sync(out=tmp_path / "run", **options)

    return play


OUTAGES = [Unreachable("x"), RateLimited("x"), ServerFault("x"), Refused("no quota")]


@pytest.mark.parametrize("failure", OUTAGES, ids=lambda each: type(each).__name__)
def test_a_conversation_is_played_again_from_the_turn_that_failed(run, failure):
    first = run(Down("two", failure=failure))
    assert first.result.flows["talks"].errors == 1
    mended = Down()
    again = run(mended, resume=True)
    assert mended.received == ["two", "three"]
    assert list(again.turns["reply"]) == ["answer to one", "answer to two", "answer to three", "answer to one"]
    assert (again.result.status, again.result.flows["talks"].errors, again.header["asked_again"]) == ("complete", 0, 2)
    assert again.result.flows["talks"].llm_calls == 4
    (last,) = [each for each in again.trace("talks", "a").at(2) if isinstance(each, ModelCall)]
    texts = [message.text for message in last.request.messages]
    assert texts == ["one", "answer to one", "two", "answer to two", "three"]


def test_the_old_attempt_stays_in_the_ledger_and_its_cost_counts(run):
    run(Down("two"))
    again = run(Down(), resume=True)
    takes = {json.loads(line)["take"] for line in (again.path / "calls.jsonl").read_text().splitlines()}
    billed = again.result.flows["talks"].billed
    assert takes == {0, 1}
    # one, three and b's one of the first attempt, two and three of the second
    assert (billed["llm_calls"], billed["cost_usd"]) == (5, pytest.approx(5 * 200 / 1e6))
    assert al.score(again.path).summary["flows"] == again.summary["flows"]


@pytest.mark.parametrize("mode", ["record", "auto"])
def test_recorded_call_is_not_repeated_on_resume(run, tmp_path, mode):
    recorded = {"mode": mode, "recordings": str(tmp_path / "recordings")}
    run(Down("two"), **recorded)
    mended = Down()
    again = run(mended, resume=True, **recorded)
    assert mended.received == ["two", "three"] and again.result.flows["talks"].errors == 0


def test_outages_one_after_the_other_add_up(run):
    run(Down("one", "two"))
    second = run(Down("three"), resume=True)
    assert (second.result.flows["talks"].errors, second.header["asked_again"]) == (1, 4)
    third = Down()
    assert run(third, resume=True).header["asked_again"] == 5 and third.received == ["three"]
    nothing = Down()
    assert run(nothing, resume=True).result.flows["talks"].errors == 0 and nothing.received == []


def test_failures_can_be_kept(run):
    run(Down("two"))
    model = Down()
    again = run(model, resume=True, keep_failures=True)
    assert (model.received, again.result.flows["talks"].errors) == ([], 1) and "asked_again" not in again.header


def test_a_request_that_is_refused_is_no_outage(run):
    run(Down("two", failure=BadRequest("invalid image")))
    model = Down()
    assert run(model, resume=True).result.flows["talks"].errors == 1 and model.received == []


@pytest.mark.parametrize("flags", [[], ["--keep-failures"], ["--executor", "processes", "--workers", "2"]])
def test_table_counts_repeated_turns(tmp_path, own_home, monkeypatch, capsys, flags):
    monkeypatch.chdir(tmp_path)
    turns = [{"user": text, "reference_answers": ["x"]} for text in QUESTIONS]
    write_set(tmp_path / "set", [{"id": "a", "turns": turns}], DOCUMENTS)
    given = ["run", "--dataset", "set", "--flow", "tools", "--set", "embedder=hashing/hashing-64", "--out", "run"]
    given += ["--model", "scripted/replies.yaml"]
    sharded = [flag for flag in flags if flag != "--keep-failures"]
    (tmp_path / "replies.yaml").write_text(yaml.safe_dump({"replies": [{"error": "Refused"}], "loop": True}))
    main([*given, *sharded])
    (tmp_path / "replies.yaml").write_text(yaml.safe_dump({"replies": ["x"], "loop": True}))
    main([*given, "--resume", *flags])
    output = capsys.readouterr().out
    is_kept = "--keep-failures" in flags
    assert ("3 turns were run again after a failure of the provider" in output) is not is_kept
    assert json.loads((tmp_path / "run" / "run.json").read_text()).get("asked_again") == (None if is_kept else 3)
