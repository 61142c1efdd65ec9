"""Recordings: what is recorded replays to the bit, what is missing is said, and a damaged file never answers."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from doubles import line_to
from hypothesis import given
from hypothesis import strategies as st
from test_runner import CONVERSATIONS, DOCUMENTS, obliging, write_set

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.errors import BadRequest, ConfigError, NotRecorded, RecordingError, ServerFault
from agentlab.core.events import ModelCall, Notice
from agentlab.core.messages import Completion, Message, Reply, Request, ToolCall, ToolSpec, Usage, to_json
from agentlab.core.trace import Trace
from agentlab.evals.results.run import Run
from agentlab.models.scripted import Scripted
from agentlab.wire.gateway import Recorder
from agentlab.wire.keys import record_request
from agentlab.wire.recordings import Recordings, _seal
from agentlab.workbench import variants

FLOWS = ["rag_only", "tools", "tools_rag_fallback"]


@pytest.fixture
def dataset(tmp_path: Path, own_home: Path) -> Path:
    return write_set(tmp_path / "rules", CONVERSATIONS, DOCUMENTS)


class Never:
    """A model that must not be asked."""

    name, parallel = "scripted", None

    async def complete(self, request, emit):
        raise AssertionError("a replay asked the model")

    async def close(self):
        pass


class NeverEmbeds:
    name, dimensions = "hashing/hashing-64", 64

    async def embed(self, texts):
        raise AssertionError(f"a replay embedded {texts}")


def lab(dataset: Path, mode: str, model=None, embedder="hashing/hashing-64", **spec) -> al.Lab:
    spec = {"datasets": [str(dataset)], "recordings": str(dataset.parent / "recordings"), **spec}
    return al.Lab(model=model or Scripted([obliging], loop=True), embedder=embedder, mode=mode, **spec)


def play(dataset: Path, mode: str, out: Path, **options) -> Run:
    with lab(dataset, mode, **options) as laboratory:
        return laboratory.run_sync(out=out)


def replay(dataset: Path, out: Path, **options) -> Run:
    return play(dataset, "replay", out, model=Never(), embedder=NeverEmbeds(), **options)


def modelled(run: Run) -> dict:
    """Everything a run stands for: the figures of its flows, and of every turn, without what was billed now."""
    flows = {label: {k: v for k, v in flow.items() if k != "billed"} for label, flow in run.summary["flows"].items()}
    turns = run.turns.drop(columns=["wall_seconds", "take"]).to_json(double_precision=15)
    return {"flows": flows, "turns": turns, "scores": run.scores.to_json(double_precision=15)}


def ledger(run: Run) -> list[dict]:
    """The rows of the ledger without what tells a recording from its replay."""
    rows = [json.loads(line) for line in (run.path / "calls.jsonl").read_text().splitlines()]
    live = ("origin", "waited", "attempt", "take")
    return sorted(
        ({k: v for k, v in row.items() if k not in live} for row in rows),
        key=lambda row: (row["flow"], row["conversation"], row["id"]),
    )


# A replay gives the numbers of what was recorded.


@pytest.mark.parametrize("concurrency", [1, 7])
def test_a_replay_gives_the_same_numbers_to_the_bit_and_asks_nobody(dataset, tmp_path, concurrency):
    recorded = play(dataset, "record", tmp_path / "recorded", flows=FLOWS, concurrency=3)
    replayed = replay(dataset, tmp_path / "replayed", flows=FLOWS, concurrency=concurrency)
    assert modelled(replayed) == modelled(recorded)
    assert ledger(replayed) == ledger(recorded)
    assert replayed.summary["recordings"]["new"] == replayed.summary["recordings"]["missing"] == 0
    assert replayed.summary["flows"]["tools"]["billed"]["llm_calls"] == 0
    assert recorded.summary["flows"]["tools"]["latency_s"]["mean"] > 0
    assert replayed.summary["status"] == "complete"
    origins = set(replayed.calls.loc[replayed.calls["kind"].isin(["model_call", "embedding", "search"]), "origin"])
    assert origins == {"replay"}


def test_a_replay_in_another_process_with_other_hashes_gives_the_same(dataset, tmp_path):
    recorded = play(dataset, "record", tmp_path / "recorded", flows=FLOWS)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_recording as t; from pathlib import Path\n"
        "t.replay(Path(sys.argv[2]), Path(sys.argv[3]), flows=t.FLOWS, concurrency=4)"
    )
    arguments = [sys.executable, "-c", code, str(Path(__file__).parent), str(dataset), str(tmp_path / "there")]
    subprocess.run(arguments, check=True, env={**os.environ, "PYTHONHASHSEED": "4711"})
    there = al.open_run(tmp_path / "there")
    assert modelled(there) == modelled(recorded)
    assert ledger(there) == ledger(recorded)


def test_what_a_provider_refused_is_refused_again(dataset, tmp_path):
    replies = ["Hello.", BadRequest("too long", "scripted")]
    recorded = play(dataset, "record", tmp_path / "a", flows=["rag_only"], model=Scripted(replies, loop=True))
    replayed = replay(dataset, tmp_path / "b", flows=["rag_only"])
    assert recorded.summary["flows"]["rag_only"]["errors"] == 3
    assert modelled(replayed) == modelled(recorded)


def test_a_second_try_of_one_request_is_a_recording_of_its_own(dataset, tmp_path):
    async def insistent(turn, session):
        said = [(await session.complete((Message(role="user", text=turn.text),))).message.text for _ in range(3)]
        return Reply(text=" ".join(said))

    replies = ["a", "b", "c"]
    spec = {"flows": [insistent], "limit": 1}
    recorded = play(dataset, "record", tmp_path / "a", model=Scripted(replies, loop=True), **spec)
    replayed = replay(dataset, tmp_path / "b", **spec)
    assert recorded.turns["reply"][0] == replayed.turns["reply"][0] == "a b c"


def test_recording_asks_once_for_what_two_flows_ask_and_both_cite_one_latency(dataset, tmp_path):
    model = Scripted([obliging], loop=True)
    twins = [{"flow": "rag_only", "label": "one"}, {"flow": "rag_only", "label": "two"}]
    run = play(dataset, "record", tmp_path / "a", model=model, flows=twins)
    flows = run.summary["flows"]
    assert len(model.requests) == 6
    assert flows["one"]["latency_s"] == flows["two"]["latency_s"]
    assert (flows["one"]["billed"]["llm_calls"], flows["two"]["billed"]["llm_calls"]) == (6, 0)
    assert flows["one"]["input_tokens"] == flows["two"]["input_tokens"] > 0


# Modes.


def test_record_does_not_touch_what_is_recorded_and_resume_goes_on(dataset, tmp_path):
    play(dataset, "record", tmp_path / "a", flows=["rag_only"])
    with pytest.raises(ConfigError, match="--resume"):
        play(dataset, "record", tmp_path / "b", flows=["rag_only"])
    model = Scripted([obliging], loop=True)
    with lab(dataset, "record", model, flows=["rag_only"]) as laboratory:
        laboratory.run_sync(out=tmp_path / "c", resume=True)
    assert model.requests == []


def test_auto_asks_only_for_what_is_new_and_says_where_it_left_the_recorded_way(dataset, tmp_path):
    play(dataset, "record", tmp_path / "a", flows=FLOWS)
    model = Scripted([obliging], loop=True)
    prompts = {"tools": {"system_with_tools": "Search with {tool} before you answer.\n{documents}"}}
    run = play(dataset, "auto", tmp_path / "b", model=model, flows=FLOWS, prompts=prompts)
    told = run.summary["recordings"]
    assert (told["new"], told["reused"]) == (len(model.requests), 6 + 12) == (12, 18)
    assert told["causes"] == {"system prompt": 12}
    assert {(d["flow"], d["conversation"], d["turn"]) for d in told["diverged"]} == {
        ("tools", f"c{i}", 0) for i in range(3)
    }
    assert "system prompt changed at character 0" in told["diverged"][0]["why"]
    assert run.summary["flows"]["rag_only"]["billed"]["llm_calls"] == 0
    assert run.summary["flows"]["tools"]["billed"]["llm_calls"] == 12

    again = play(dataset, "auto", tmp_path / "c", model=Never(), flows=FLOWS, prompts=prompts)
    assert again.summary["recordings"]["new"] == 0
    assert modelled(again) == modelled(run)


def test_a_replay_that_misses_counts_why_fails_the_turns_and_is_no_complete_run(dataset, tmp_path):
    play(dataset, "record", tmp_path / "a", flows=FLOWS)
    run = replay(dataset, tmp_path / "b", flows=FLOWS, generation={"seed": 8})
    assert run.summary["status"] == "partial"
    told = run.summary["recordings"]
    assert told["missing"] == sum(told["causes"].values()) > 0
    assert set(told["causes"]) <= {"seed", "history"} and told["causes"]["seed"] >= 9
    assert all(flow["errors"] == flow["turns"] for flow in run.summary["flows"].values())
    (first,) = [n for n in run.trace("rag_only", "c0").of_turn(0) if isinstance(n, Notice) and n.name == "not_recorded"]
    assert "seed is 8, was 7" in first.text and "run.jsonl:" in first.text


def test_a_miss_inside_a_tool_is_no_answer_for_the_model(dataset, tmp_path):
    play(dataset, "record", tmp_path / "a", flows=["tools"])
    file = tmp_path / "recordings" / "run.jsonl"
    kept = [line for line in file.read_text().splitlines(True) if '"kind": "embedding"' not in line]
    file.write_text("".join(kept))
    run = replay(dataset, tmp_path / "b", flows=["tools"])
    assert run.summary["recordings"]["causes"]["query embedding"] >= 3
    assert "never embedded" in run.turns["error"][0]


def test_chat_and_replay_need_no_key_and_no_weights(dataset, tmp_path):
    for model in ("openai/gpt-x", "local/qwen2.5-coder-0.5b"):
        with al.Lab(datasets=[str(dataset)], model=model, mode="auto", recordings=str(tmp_path / "r")) as laboratory:
            assert laboratory.local_weights() == []
    with pytest.raises(ConfigError, match="there are no recordings in"), lab(dataset, "replay") as laboratory:
        laboratory.run_sync(out=tmp_path / "x")


def test_work_in_this_process_comes_out_the_same_or_is_told(dataset, tmp_path):
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


# Background work.


def test_background_work_is_joined_counted_and_not_waited_for(dataset, tmp_path):
    ended = []

    async def forgetful(turn, session):
        reply = await session.complete((Message(role="user", text=turn.text),))

        async def note() -> None:
            await asyncio.sleep(0.01)
            await session.complete((Message(role="user", text=f"sum up: {turn.text}"),), phase="summarize")
            ended.append(turn.text)

        session.background(note(), "note")
        return Reply(text=reply.message.text)

    recorded = play(dataset, "record", tmp_path / "a", flows=[forgetful], concurrency=2)
    assert len(ended) == 6
    flow = recorded.summary["flows"]["forgetful"]
    assert flow["llm_calls"] == 12 and flow["phases"]["summarize"]["calls"] == 6
    trace = recorded.trace("forgetful", "c0")
    first, second = (event for event in trace.of_turn(0) if isinstance(event, ModelCall))
    assert (first.background, second.background) == (False, True)
    assert trace.latency(0) == first.seconds
    assert modelled(replay(dataset, tmp_path / "b", flows=[forgetful], concurrency=5)) == modelled(recorded)


def test_background_work_that_fails_is_told_and_the_turn_stands(dataset, tmp_path):
    async def careless(turn, session):
        async def fall() -> None:
            raise ZeroDivisionError("beside")

        session.background(fall(), "fall")
        return Reply(text="done")

    run = play(dataset, "live", tmp_path / "a", flows=[careless])
    assert run.summary["flows"]["careless"]["errors"] == 0
    assert sum("ZeroDivisionError" in str(detail) for detail in run.calls["detail"]) == 6


# Keys: everything that reaches the provider is in them, and nothing else.

TEXT = st.text(max_size=8)
VALUES = st.dictionaries(TEXT, st.one_of(TEXT, st.integers(), st.booleans()), max_size=3)
CALLS = st.builds(ToolCall, id=TEXT, name=TEXT, arguments=VALUES)
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "agent"]),
    text=TEXT,
    tool_calls=st.lists(CALLS, max_size=2).map(tuple),
)
TOOLS = st.builds(ToolSpec, name=TEXT, description=TEXT, parameters=VALUES)
REQUESTS = st.builds(
    Request,
    messages=st.lists(MESSAGES, min_size=1, max_size=4).map(tuple),
    tools=st.lists(TOOLS, max_size=2, unique_by=lambda tool: tool.name).map(tuple),
    tool_choice=st.sampled_from(["auto", "none"]),
    output_schema=st.none() | VALUES,
    temperature=st.none() | st.floats(0, 2),
    seed=st.none() | st.integers(0, 9),
    max_tokens=st.none() | st.integers(1, 9),
)


def key(request, model="m", endpoint="", epoch=0, repeat=0):
    return record_request(model, endpoint, request, epoch).key(repeat)


def flips(request):
    """The request with each field changed in turn."""
    first = request.messages[0]
    other = Message(role="user", text="another")
    yield replace(request, messages=(replace(first, text=first.text + "x"), *request.messages[1:]))
    yield replace(request, messages=(replace(first, role="tool"), *request.messages[1:]))
    yield replace(request, messages=(replace(first, name=f"{first.name}x"), *request.messages[1:]))
    yield replace(request, messages=(replace(first, extra={"signature": "x"}), *request.messages[1:]))
    yield replace(request, messages=(*request.messages, other))
    for at, call in enumerate(first.tool_calls):
        for changed in (
            replace(call, name=call.name + "x"),
            replace(call, arguments={**call.arguments, "new key": 1}),
            replace(call, malformed="{"),
            replace(call, extra={"signature": "x"}),
        ):
            calls = (*first.tool_calls[:at], changed, *first.tool_calls[at + 1 :])
            yield replace(request, messages=(replace(first, tool_calls=calls), *request.messages[1:]))
    tool = ToolSpec(name="another tool", description="", parameters={})
    yield replace(request, tools=(*request.tools, tool))
    for at, offered in enumerate(request.tools):
        for changed in (
            replace(offered, name=offered.name + "x"),
            replace(offered, description=offered.description + "x"),
            replace(offered, parameters={**offered.parameters, "new key": 1}),
        ):
            yield replace(request, tools=(*request.tools[:at], changed, *request.tools[at + 1 :]))
    if len(request.tools) == 2:
        yield replace(request, tools=request.tools[::-1])
    yield replace(request, tool_choice="required")
    yield replace(request, output_schema={**(request.output_schema or {}), "new key": 1})
    yield replace(request, temperature=(request.temperature or 0) + 0.5)
    yield replace(request, seed=(request.seed or 0) + 1)
    yield replace(request, max_tokens=(request.max_tokens or 0) + 1)


@given(REQUESTS)
def test_a_change_of_any_field_changes_the_key(request_):
    seen = [key(request_), *map(key, flips(request_))]
    seen += [key(request_, model="n"), key(request_, endpoint="e"), key(request_, epoch=1), key(request_, repeat=1)]
    assert len(set(seen)) == len(seen)


@given(REQUESTS, st.randoms(use_true_random=False))
def test_volatile_fields_do_not_change_the_key(request_, random):
    names: dict[str, str] = {}

    def renamed(old: str) -> str:
        return names.setdefault(old, f"id-{random.random()}-{len(names)}")

    messages = []
    for message in request_.messages:
        calls = tuple(replace(call, id=renamed(call.id)) for call in message.tool_calls)
        messages.append(replace(message, tool_calls=calls, extra={"id": "msg_1", "created": random.random()}))
    plain = replace(request_, messages=tuple(replace(m, extra={"id": "msg_0"}) for m in request_.messages))
    assert key(replace(request_, messages=tuple(messages))) == key(plain)


@given(REQUESTS)
def test_a_request_comes_back_whole_from_its_recording(tmp_path_factory, request_):
    folder = tmp_path_factory.mktemp("recordings")
    recorded = record_request("m", "", request_, 0)
    entry = {"kind": "completion", "request": recorded.fields, "repeat": 0, "completion": {}, "seconds": 1.0}
    Recordings.open(folder, "a", write=True).add(recorded.key(0), entry, recorded.parts)
    read = Recordings.open(folder)
    (row,) = read.completions()
    assert key(read.request_of(row)) == recorded.key(0) == row["key"]


def test_which_result_answers_which_call_is_part_of_the_key():
    calls = (ToolCall(id="a", name="f"), ToolCall(id="b", name="f"))
    results = [Message(role="tool", text=t, tool_call_id=i) for t, i in (("1", "a"), ("2", "b"))]
    crossed = [Message(role="tool", text=t, tool_call_id=i) for t, i in (("1", "b"), ("2", "a"))]
    asked = Message(role="agent", tool_calls=calls)
    assert key(Request(messages=(asked, *results))) != key(Request(messages=(asked, *crossed)))


# Files: cut off, edited, doubled, written by two at once.


@pytest.fixture
def recorded(dataset, tmp_path) -> Path:
    play(dataset, "record", tmp_path / "recorded", flows=FLOWS)
    return tmp_path / "recordings" / "run.jsonl"


def test_a_file_that_is_cut_off_is_named_and_mended_by_the_next_recording(dataset, recorded, tmp_path):
    whole = recorded.read_bytes()
    for size in range(len(whole) - 400, len(whole), 37):
        recorded.write_bytes(whole[:size])
        if whole[:size].endswith(b"\n"):
            continue
        with pytest.raises(RecordingError, match=r"run\.jsonl:\d+: the line is cut off"):
            Recordings.open(recorded.parent)
    run = play(dataset, "auto", tmp_path / "mended", flows=FLOWS)
    assert run.summary["recordings"]["new"] <= 1
    assert replay(dataset, tmp_path / "again", flows=FLOWS).summary["status"] == "complete"


def test_no_edited_line_is_ever_replayed(recorded):
    lines = recorded.read_text().splitlines(True)
    for number, line in enumerate(lines):
        row = json.loads(line)
        for name, value in row.items():
            if name == "kind":
                continue
            changed = {**row, name: f"{value}x" if isinstance(value, str) else [value]}
            recorded.write_text("".join([*lines[:number], json.dumps(changed) + "\n", *lines[number + 1 :]]))
            with pytest.raises(RecordingError, match=rf"run\.jsonl:{number + 1}: "):
                Recordings.open(recorded.parent)


@pytest.mark.parametrize(
    "junk", ["", "{", "[]\n", "null\n", '{"kind": "recordings", "format": 2}\n', "\x00\n", "<<<<<<< HEAD\n"]
)
def test_what_is_no_recording_is_one_clear_line(tmp_path, junk):
    (tmp_path / "a.jsonl").write_text(junk)
    with pytest.raises(RecordingError, match=r"a\.jsonl"):
        Recordings.open(tmp_path)


def test_doubled_lines_and_files_change_nothing_and_two_answers_are_refused(dataset, recorded, tmp_path):
    lines = recorded.read_text().splitlines(True)
    recorded.write_text("".join([*lines, *lines[1:]]))
    (recorded.parent / "copy.jsonl").write_text("".join(lines))
    assert replay(dataset, tmp_path / "doubled", flows=FLOWS).summary["status"] == "complete"
    folder = tmp_path / "other"
    request = record_request("m", "", Request(messages=(Message(role="user", text="Hi"),)), 0)
    for name, text in (("a", "Hello"), ("b", "Good day")):
        completion = to_json({"message": Message(role="agent", text=text)})
        entry = {"kind": "completion", "request": request.fields, "repeat": 0, "completion": completion, "seconds": 1.0}
        Recordings.open(folder, name, write=True, only_own=True).add(request.key(0), entry, request.parts)
    for name, text in (("a", "Hello"), ("b", "Good day")):
        row = Recordings.open(folder, name).find(request.key(0))
        assert row["completion"]["message"]["text"] == text, "the spec's own file wins"
    with pytest.raises(RecordingError, match=r"b\.jsonl:3: another answer to the same request is at .*a\.jsonl:3"):
        Recordings.open(folder, "c").find(request.key(0))


def test_two_processes_may_record_into_one_file_at_once(dataset, tmp_path):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_recording as t; from pathlib import Path\n"
        "t.play(Path(sys.argv[2]), 'auto', Path(sys.argv[3]), flows=t.FLOWS, concurrency=2)"
    )
    arguments = [sys.executable, "-c", code, str(Path(__file__).parent), str(dataset)]
    both = [subprocess.Popen([*arguments, str(tmp_path / name)]) for name in ("one", "two")]
    assert [process.wait(120) for process in both] == [0, 0]
    one, two = al.open_run(tmp_path / "one"), al.open_run(tmp_path / "two")
    replayed = replay(dataset, tmp_path / "replayed", flows=FLOWS)
    assert modelled(one)["flows"] == modelled(two)["flows"] == modelled(replayed)["flows"]


def test_secrets_are_not_written_down(dataset, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "a-very-secret-value")

    async def careless(turn, session):
        return Reply(text=(await session.complete((Message(role="user", text=os.environ["SAID"]),))).message.text)

    monkeypatch.setenv("MORE_API_KEYS", "first-long-key,second-long-key")
    for secret in ("a-very-secret-value", "second-long-key"):
        monkeypatch.setenv("SAID", secret)
        out = tmp_path / secret
        with pytest.raises(RecordingError, match="holds the value of M"):
            play(dataset, "auto", out, flows=[careless], limit=1)
        assert secret not in (tmp_path / "recordings" / "run.jsonl").read_text()
        (row,) = [json.loads(line) for line in (out / "calls.jsonl").read_text().splitlines() if "model_call" in line]
        assert row["completion"], "it was paid for, so it is in the ledger"


async def test_a_recording_made_on_openai_does_not_answer_for_another_server(tmp_path, monkeypatch):
    request = Request(messages=(Message(role="user", text="Hi"),))
    recorder = Recorder("record", Recordings.open(tmp_path, "a", write=True))
    line = line_to(Scripted(["Hello"]), Trace("f", "c"), recorder=recorder)
    await line.complete(line.prepare(request, 0, ()), lambda text: None)
    said = []
    line = line_to(Never(), Trace("f", "c"), recorder=Recorder("replay", Recordings.open(tmp_path)))
    await line.complete(line.prepare(request, 0, ()), said.append)
    assert said == ["Hello"], "a replay still streams"
    line._model.endpoint = "compatible"
    with pytest.raises(NotRecorded, match="server is 'compatible', was ''") as miss:
        await line.complete(line.prepare(request, 0, ()), lambda text: None)
    assert miss.value.cause == "server"


# The command line.


def test_the_command_line_replays_explains_and_prunes(dataset, recorded, tmp_path, capsys):
    spec = tmp_path / "spec.yaml"
    script = tmp_path / "script.yaml"
    script.write_text("loop: true\nreplies: [The documents do not say.]\n")
    spec.write_text(
        f"name: small\ndatasets: [{dataset}]\nflows: [rag_only]\nmodel: scripted/{script}\n"
        f"embedder: hashing/hashing-64\nrecordings: {tmp_path / 'small'}\n"
    )
    assert main(["replay", str(spec)]) == 1
    assert "there are no recordings" in capsys.readouterr().err
    assert main(["run", str(spec), "--mode", "record", "--out", str(tmp_path / "r1")]) == 0
    assert "0 reused, 6 new" in capsys.readouterr().out
    assert main(["run", str(spec), "--mode", "replay", "--out", str(tmp_path / "r2")]) == 0
    assert "6 reused, 0 new" in capsys.readouterr().out
    assert main(["replay", str(spec), "--explain", "--set", "generation.max_tokens=9"]) == 1
    told = capsys.readouterr().out
    assert "NOT RECORDED: 6" in told and told.count("max_tokens is 9, was 256") >= 6
    assert (
        main(["run", str(spec), "--mode", "auto", "--set", "generation.max_tokens=9", "--out", str(tmp_path / "r3")])
        == 0
    )
    capsys.readouterr()
    assert main(["replay", str(spec), "--prune"]) == 0
    assert "6 recordings dropped" in capsys.readouterr().out
    assert main(["replay", str(spec)]) == 0
    assert main(["replay", str(spec), "--set", "generation.max_tokens=9"]) == 1


# Older formats.


def test_recordings_of_format_1_can_still_be_read():
    recordings = Recordings.open(Path(__file__).parent / "data" / "recordings_format_1")
    rows = list(recordings.completions())
    assert len(rows) == 4
    for row in rows:
        request = recordings.request_of(row)
        asked = row["request"]
        assert key(request, asked["model"], asked["endpoint"], asked["epoch"], row["repeat"]) == row["key"]


def test_recordings_of_a_newer_format_are_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text(_seal({"kind": "recordings", "format": 2}))
    with pytest.raises(RecordingError, match=r"a\.jsonl:1: this is recording format 2, agentlab reads format 1"):
        Recordings.open(tmp_path)


# What a fresh pair of eyes found.


class Various:
    """Answers each call in another way and after another while, so that whoever mixes two of them up is seen."""

    name, parallel = "scripted", None

    def __init__(self):
        self.asked = 0

    async def complete(self, request, emit):
        self.asked += 1
        number = self.asked
        await asyncio.sleep(0.03 if "slow" in request.messages[-1].text else 0.001 * number)
        return Completion(
            message=Message(role="agent", text=f"answer {number}"), usage=Usage(input_tokens=number, output_tokens=1)
        )

    async def close(self):
        pass


async def ask(session, text):
    return (await session.complete((Message(role="user", text=text),))).message.text


def test_branches_that_ask_the_same_get_their_own_answers_back(dataset, tmp_path):
    async def branching(turn, session):
        async def patient():
            return await ask(session, "slow"), await ask(session, "the same")

        async def quick():
            return await ask(session, "the same"), await ask(session, "the same")

        (a, b), (c, d) = await session.parallel(patient(), quick())
        return Reply(text=f"{a} {b} {c} {d}")

    recorded = play(dataset, "record", tmp_path / "a", model=Various(), flows=[branching])
    replayed = replay(dataset, tmp_path / "b", flows=[branching], concurrency=3)
    assert modelled(replayed) == modelled(recorded)
    assert len(set(recorded.turns["reply"][0].split()) - {"answer"}) == 4


def test_a_branch_that_fails_does_not_end_the_others_at_a_matter_of_speed(dataset, tmp_path):
    class Refusing(Various):
        async def complete(self, request, emit):
            if "refuse" in request.messages[-1].text:
                await asyncio.sleep(0.01)
                raise BadRequest("no", self.name)
            return await super().complete(request, emit)

    async def branching(turn, session):
        async def steady():
            for number in range(4):
                await ask(session, f"{turn.text} {number}")

        await session.parallel(ask(session, f"refuse {turn.text}"), steady())
        return Reply(text="never")

    recorded = play(dataset, "record", tmp_path / "a", model=Refusing(), flows=[branching])
    assert recorded.summary["flows"]["branching"]["llm_calls"] == 6 * 4
    assert modelled(replay(dataset, tmp_path / "b", flows=[branching])) == modelled(recorded)


def test_background_work_sees_the_same_history_in_a_replay(dataset, tmp_path):
    async def noting(turn, session):
        async def note() -> None:
            history = [message.text for message in session.load_conversation()]
            await ask(session, " | ".join(history))

        session.background(note(), "note")
        reply = await ask(session, f"slow {turn.text}")
        session.save_message("user", turn.text)
        session.save_message("agent", reply)
        return Reply(text=reply)

    recorded = play(dataset, "record", tmp_path / "a", model=Various(), flows=[noting])
    assert modelled(replay(dataset, tmp_path / "b", flows=[noting])) == modelled(recorded)


def test_a_retry_while_recording_does_not_change_the_flows_own_chances(dataset, tmp_path):
    async def gambling(turn, session):
        await ask(session, turn.text)
        return Reply(text=str(session.random.randrange(10**9)))

    model = Scripted([ServerFault("500", "scripted"), "yes"], loop=True)
    recorded = play(dataset, "record", tmp_path / "a", model=model, flows=[gambling])
    assert recorded.summary["flows"]["gambling"]["errors"] == 0
    assert list(replay(dataset, tmp_path / "b", flows=[gambling]).turns["reply"]) == list(recorded.turns["reply"])


def test_two_specs_in_one_folder_keep_their_own_answers_and_times(dataset, tmp_path):
    runs = {}
    for name in ("a", "b"):
        runs[name] = play(dataset, "record", tmp_path / name, model=Various(), flows=["rag_only"], name=name)
    for name, recorded in runs.items():
        replayed = replay(dataset, tmp_path / f"{name} again", flows=["rag_only"], name=name)
        assert modelled(replayed) == modelled(recorded)


def test_backends_keep_their_own_times(dataset, tmp_path):
    async def remembering(turn, session):
        await session.remember(turn.text)
        return Reply(text="noted")

    class Flow:
        MEMORY = True
        respond = staticmethod(remembering)
        name = "remembering"

    flow = Flow()
    with lab(dataset, "record", flows=[flow], limit=1) as laboratory:
        entries = [{"flow": "remembering", "label": name, "memory": name} for name in ("sqlite", "textfile")]
        spec = laboratory.spec.model_dump() | {"flows": entries}
        laboratory.spec = type(laboratory.spec).model_validate(spec)
        laboratory.variants = tuple(
            variants.make_variant(laboratory.spec, entry, flow) for entry in laboratory.spec.flows
        )
        run = laboratory.run_sync(out=tmp_path / "a")
    assert set(run.calls.loc[run.calls["kind"] == "memory", "origin"]) == {"live"}


def test_a_run_that_was_cut_off_still_owes_what_it_asked(dataset, tmp_path):
    model = Various()
    with lab(dataset, "live", model, flows=["rag_only"]) as laboratory:
        laboratory.run_sync(out=tmp_path / "a")
    turns = tmp_path / "a" / "turns.jsonl"
    # As if it had been killed after the last event, before its turn was written.
    turns.write_text("".join(turns.read_text().splitlines(True)[:-1]))
    with lab(dataset, "live", model, flows=["rag_only"]) as laboratory:
        run = laboratory.run_sync(out=tmp_path / "a", resume=True)
    flow = run.summary["flows"]["rag_only"]
    assert (flow["llm_calls"], flow["billed"]["llm_calls"], model.asked) == (6, 8, 8)


def test_pruning_keeps_what_another_spec_lives_on(dataset, tmp_path, capsys):
    script = tmp_path / "script.yaml"
    script.write_text("loop: true\nreplies: [The documents do not say.]\n")
    specs = []
    for name, tokens in (("a", 256), ("b", 256)):
        specs.append(str(tmp_path / f"{name}.yaml"))
        Path(specs[-1]).write_text(
            f"name: {name}\ndatasets: [{dataset}]\nflows: [rag_only]\nmodel: scripted/{script}\n"
            f"embedder: hashing/hashing-64\nrecordings: {tmp_path / 'both'}\ngeneration: {{max_tokens: {tokens}}}\n"
        )
        assert main(["run", specs[-1], "--mode", "auto", "--out", str(tmp_path / name)]) == 0
    Path(specs[0]).write_text(Path(specs[0]).read_text().replace("256", "9"))
    assert main(["run", specs[0], "--mode", "auto", "--out", str(tmp_path / "a9")]) == 0
    assert main(["replay", "--prune", *specs]) == 0
    assert main(["replay", *specs]) == 0, "b lives on what a recorded first"


def test_a_writer_survives_a_prune_and_a_deletion_by_somebody_else(tmp_path):
    def entry(text):
        recorded = record_request("m", "", Request(messages=(Message(role="user", text=text),)), 0)
        row = {"kind": "completion", "request": recorded.fields, "repeat": 0, "completion": {}, "seconds": 1.0}
        return recorded.key(0), row, recorded.parts

    writer = Recordings.open(tmp_path, "a", write=True)
    writer.add(*entry("one"))
    Recordings.open(tmp_path, "a", write=True).keep_only(())
    writer.add(*entry("one"))
    writer.add(*entry("two"))
    assert len(Recordings.open(tmp_path, "a")) == 2
    (tmp_path / "a.jsonl").unlink()
    writer.add(*entry("three"))
    assert len(Recordings.open(tmp_path, "a")) == 1


def test_a_disk_that_is_full_ends_the_run_and_leaves_the_file_whole(dataset, tmp_path, monkeypatch):
    play(dataset, "record", tmp_path / "a", flows=["rag_only"])
    file = tmp_path / "recordings" / "run.jsonl"
    before = file.read_bytes()
    real = Path.open

    class Full:
        def __init__(self, opened):
            self.opened = opened

        def __enter__(self):
            return self

        def __exit__(self, *reasons):
            self.opened.close()

        def write(self, text):
            self.opened.write(text[: len(text) // 2])
            self.opened.flush()
            raise OSError(28, "No space left on device")

    def opening(path, mode="r", *arguments, **options):
        opened = real(path, mode, *arguments, **options)
        return Full(opened) if mode == "ab" and path.name == "run.jsonl" else opened

    monkeypatch.setattr(Path, "open", opening)
    with pytest.raises(RecordingError, match=r"run\.jsonl: cannot be written: No space left"):
        play(dataset, "auto", tmp_path / "b", flows=["rag_only"], generation={"seed": 8})
    assert file.read_bytes() == before


def test_misses_are_not_explained_away(dataset, tmp_path):
    play(dataset, "record", tmp_path / "a", flows=["rag_only"], limit=1)
    run = play(dataset, "auto", tmp_path / "b", flows=["rag_only"], limit=2)
    assert run.summary["recordings"]["causes"] == {"new conversation": 2}


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("summary.json", "{"),
        ("summary.json", "{}"),
        ("turns.jsonl", b"\xff\n"),
        ("turns.jsonl", "{}\n"),
        ("turns.jsonl", ""),
        ("scores.jsonl", '{"a": 1}\n'),
        ("calls.jsonl", '{"kind": "?", "flow": "f", "conversation": "c", "epoch": 0, "take": 0}\n'),
        ("calls.jsonl", "3\n"),
    ],
)
def test_a_broken_run_folder_is_one_line(dataset, tmp_path, capsys, file, content):
    play(dataset, "live", tmp_path / "good", flows=["rag_only", "tools"])
    play(dataset, "live", tmp_path / "bad", flows=["rag_only", "tools"])
    (tmp_path / "bad" / file).write_bytes(content if isinstance(content, bytes) else content.encode())
    assert main(["compare", str(tmp_path / "bad"), str(tmp_path / "good")]) == 1
    told = capsys.readouterr().err
    assert told.startswith("agentlab: ") and told.count("\n") == 1 and "Traceback" not in told
