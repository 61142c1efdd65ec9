"""A replay gives the recorded numbers to the bit, without a model call."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import agentlab as al
from agentlab.core.errors import BadRequest, ConfigError, NotRecorded
from agentlab.core.messages import Message, Reply
from agentlab.models.scripted import Scripted
from support.paths import TESTS
from support.replays import FLOWS, lab, ledger, play, replay, replay_invariants
from support.rules_set import cooperative_model


@pytest.mark.parametrize("concurrency", [1, 7])
def test_replay_gives_the_same_numbers_to_the_bit_without_calls(dataset, tmp_path, concurrency):
    recorded = play(dataset, "record", tmp_path / "recorded", flows=FLOWS, concurrency=3)
    replayed = replay(dataset, tmp_path / "replayed", flows=FLOWS, concurrency=concurrency)
    assert replay_invariants(replayed) == replay_invariants(recorded)
    assert ledger(replayed) == ledger(recorded)
    assert replayed.summary["recordings"]["new"] == replayed.summary["recordings"]["missing"] == 0
    assert replayed.summary["flows"]["tools"]["billed"]["llm_calls"] == 0
    assert recorded.summary["flows"]["tools"]["latency_s"]["mean"] > 0
    assert replayed.summary["status"] == "complete"
    origins = set(replayed.calls.loc[replayed.calls["kind"].isin(["model_call", "embedding", "search"]), "origin"])
    assert origins == {"replay"}


@pytest.mark.slow
def test_a_replay_in_another_process_with_other_hashes_gives_the_same(dataset, tmp_path):
    recorded = play(dataset, "record", tmp_path / "recorded", flows=FLOWS)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import support.replays as t; from pathlib import Path\n"
        "t.replay(Path(sys.argv[2]), Path(sys.argv[3]), flows=t.FLOWS, concurrency=4)"
    )
    arguments = [sys.executable, "-c", code, str(TESTS), str(dataset), str(tmp_path / "there")]
    subprocess.run(arguments, check=True, env={**os.environ, "PYTHONHASHSEED": "4711"})
    there = al.open_run(tmp_path / "there")
    assert replay_invariants(there) == replay_invariants(recorded)
    assert ledger(there) == ledger(recorded)


def test_recorded_refusal_replays(dataset, tmp_path):
    replies = ["Hello.", BadRequest("too long", "scripted")]
    recorded = play(dataset, "record", tmp_path / "a", flows=["rag_only"], model=Scripted(replies, loop=True))
    replayed = replay(dataset, tmp_path / "b", flows=["rag_only"])
    assert recorded.summary["flows"]["rag_only"]["errors"] == 3
    assert replay_invariants(replayed) == replay_invariants(recorded)


def test_a_second_try_of_one_request_is_a_recording_of_its_own(dataset, tmp_path):
    async def insistent(turn, session):
        texts = [(await session.complete((Message(role="user", text=turn.text),))).message.text for _ in range(3)]
        return Reply(text=" ".join(texts))

    replies = ["a", "b", "c"]
    spec = {"flows": [insistent], "limit": 1}
    recorded = play(dataset, "record", tmp_path / "a", model=Scripted(replies, loop=True), **spec)
    replayed = replay(dataset, tmp_path / "b", **spec)
    assert recorded.turns["reply"][0] == replayed.turns["reply"][0] == "a b c"


def test_equal_requests_of_two_flows_share_one_call_and_its_latency(dataset, tmp_path):
    model = Scripted([cooperative_model], loop=True)
    twins = [{"flow": "rag_only", "label": "one"}, {"flow": "rag_only", "label": "two"}]
    run = play(dataset, "record", tmp_path / "a", model=model, flows=twins)
    flows = run.summary["flows"]
    assert len(model.requests) == 6
    assert flows["one"]["latency_s"] == flows["two"]["latency_s"]
    assert (flows["one"]["billed"]["llm_calls"], flows["two"]["billed"]["llm_calls"]) == (6, 0)
    assert flows["one"]["input_tokens"] == flows["two"]["input_tokens"] > 0


def test_chat_and_replay_need_no_key_and_no_weights(dataset, tmp_path):
    for model in ("openai/gpt-x", "local/qwen2.5-coder-0.5b"):
        with al.Lab(datasets=[str(dataset)], model=model, mode="auto", recordings=str(tmp_path / "r")) as laboratory:
            assert laboratory.bench.local_weights() == []
    with pytest.raises(ConfigError, match="there are no recordings in"), lab(dataset, "replay") as laboratory:
        laboratory.run_sync(out=tmp_path / "x")


def test_changed_corpus_is_a_recording_miss(dataset, tmp_path):
    play(dataset, "record", tmp_path / "a", flows=["tools"])
    corpus = dataset / "corpus.jsonl"
    corpus.write_text(corpus.read_text().replace("450 grams", "451 grams"))
    run = replay_or_error(dataset, tmp_path)
    assert isinstance(run, NotRecorded) or run.summary["recordings"]["missing"]


def replay_or_error(dataset, tmp_path):
    try:
        return replay(dataset, tmp_path / "b", flows=["tools"])
    except NotRecorded as miss:
        return miss


def test_prices_may_change_after_the_recording(dataset, tmp_path):
    play(dataset, "record", tmp_path / "a", flows=["rag_only"])
    prices = tmp_path / "prices.yaml"
    prices.write_text("dated: 2026-01-01\nmodels:\n  scripted: {input: 1.0, output: 2.0}\n")
    run = replay(dataset, tmp_path / "b", flows=["rag_only"], prices=str(prices))
    flow = run.summary["flows"]["rag_only"]
    assert flow["cost_usd"] == pytest.approx((flow["input_tokens"] + 2 * flow["output_tokens"]) / 1e6)
    assert flow["billed"]["cost_usd"] == 0


@pytest.fixture
def recorded(dataset, tmp_path) -> Path:
    play(dataset, "record", tmp_path / "recorded", flows=FLOWS)
    return tmp_path / "recordings" / "run.jsonl"
