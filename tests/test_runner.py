"""Whole runs on the scripted model: the folder, the summary, failures, budgets, resuming, tools a set brings along."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import agentlab as al
from agentlab.core.errors import BadRequest, ConfigError, RunError
from agentlab.core.messages import Completion, Message, Reply, Usage
from agentlab.core.trace import Totals
from agentlab.evals.results.run import open_run
from agentlab.evals.run.estimate import estimate
from agentlab.models.scripted import Scripted, call

DOCUMENTS = [
    {"doc_id": "ball", "title": "The ball", "text": "The ball is round and weighs between 410 and 450 grams."},
    {"doc_id": "pitch", "title": "The pitch", "text": "The pitch is a rectangle and at least 90 metres long."},
]
CONVERSATIONS = [
    {
        "id": f"c{i}",
        "turns": [
            {
                "user": f"How heavy is the ball? ({i})",
                "reference_answers": ["Between 410 and 450 grams."],
                "relevant_doc_ids": ["ball"],
                "needs_document_lookup": True,
            },
            {"user": "Who won?", "relevant_doc_ids": [], "unanswerable": True, "needs_document_lookup": True},
        ],
    }
    for i in range(3)
]


@pytest.fixture
def dataset(tmp_path: Path, own_home: Path) -> Path:
    return write_set(tmp_path / "rules", CONVERSATIONS, DOCUMENTS)


def write_set(folder: Path, conversations: list, documents: list | None = None) -> Path:
    folder.mkdir()
    (folder / "conversations.jsonl").write_text("".join(json.dumps(c) + "\n" for c in conversations))
    if documents:
        (folder / "corpus.jsonl").write_text("".join(json.dumps(d) + "\n" for d in documents))
    return folder


def obliging(request) -> Message | str:
    """Looks up once where it can, then answers from what it was shown."""
    if request.tools and request.messages[-1].role == "user":
        return call("lookup_documents", document_names=[], query=request.messages[-1].text)
    asked = [message.text for message in request.messages if message.role == "user"][-1]
    return "Between 410 and 450 grams." if "ball?" in asked else "The documents do not say."


def lab(dataset: Path, replies=(obliging,), **spec) -> al.Lab:
    spec = {"datasets": [str(dataset)], "embedder": "hashing/hashing-64", **spec}
    return al.Lab(model=Scripted(replies, loop=True), **spec)


def test_the_comparison_of_the_three_flows_comes_out_exactly(dataset, tmp_path):
    with lab(dataset) as laboratory:
        run = laboratory.run_sync(out=tmp_path / "run")
    flows = run.summary["flows"]
    per_turn = {
        label: (f["llm_calls_per_turn"], f["embedding_calls_per_turn"], f["tool_calls_per_turn"], f["fallback_rate"])
        for label, f in flows.items()
    }
    assert per_turn == {"rag_only": (1, 1, 0, 0), "tools": (2, 1, 1, 0), "tools_rag_fallback": (2, 1, 1, 0)}

    never = lambda request: "The documents do not say."  # noqa: E731
    with lab(dataset, [never], flows=["tools", "tools_rag_fallback"]) as laboratory:
        flows = laboratory.run_sync(out=tmp_path / "never").summary["flows"]
    assert (flows["tools"]["llm_calls_per_turn"], flows["tools"]["fallback_rate"]) == (1, 0)
    fallback = flows["tools_rag_fallback"]
    assert (fallback["llm_calls_per_turn"], fallback["embedding_calls_per_turn"]) == (2, 1)
    assert (fallback["tool_calls_per_turn"], fallback["fallback_rate"]) == (0, 1)


def test_the_summary_is_the_interface_and_a_fold_over_the_rows(dataset, tmp_path):
    with lab(dataset, flows=["rag_only"]) as laboratory:
        run = laboratory.run_sync(out=tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    keys = {"run_id", "status", "datasets", "conversations", "turns", "model", "mode", "recordings", "flows"}
    assert set(summary) == keys
    assert (summary["status"], summary["conversations"], summary["turns"]) == ("complete", 3, 6)
    flow = summary["flows"]["rag_only"]
    assert flow["scores"]["answer_f1"]["mean"] == 1.0
    assert flow["scores"]["refusal_accuracy"] == {"mean": 1.0, "ci95": [1.0, 1.0], "n": 3}
    assert flow["cost_usd"] is None, "a model without a price costs null"
    assert flow["phases"]["answer"]["calls"] == flow["llm_calls"] == 6
    rows = [json.loads(line) for line in (tmp_path / "run" / "calls.jsonl").read_text().splitlines()]
    spent = sum(r["completion"]["usage"]["input_tokens"] for r in rows if r["kind"] == "model_call")
    assert spent == flow["input_tokens"] == run.turns["input_tokens"].sum()
    assert run.calls["cost_usd"].isna().all()
    assert set(run.scores["metric"]) >= {"answer_f1", "retrieval_recall", "citation_precision", "lookup_accuracy"}
    assert open_run(tmp_path / "run").summary == summary
    assert "rag_only" in run._repr_html_()


def test_a_failing_turn_is_counted_scores_nothing_and_keeps_its_cost(dataset, tmp_path):
    async def fragile(turn, session):
        await session.complete((Message(role="user", text=turn.text),))
        if "(1)" in turn.text:
            raise ZeroDivisionError("by chance")
        return Reply(text="Between 410 and 450 grams.")

    with lab(dataset, ["hm"], flows=[fragile]) as laboratory:
        flow = laboratory.run_sync(out=tmp_path / "run").summary["flows"]["fragile"]
    assert (flow["turns"], flow["errors"], flow["llm_calls"]) == (6, 1, 6)
    assert flow["scores"]["answer_f1"] == {"mean": pytest.approx(2 / 3), "ci95": [0.0, 1.0], "n": 3}
    assert "ZeroDivisionError" in (tmp_path / "run" / "run.log").read_text()


def test_a_flow_is_one_object_from_python_and_sees_no_expectation(dataset, tmp_path):
    seen = []

    class Echo:
        name = "echo"

        async def respond(self, turn, session):
            seen.append(turn)
            return Reply(text=turn.text)

    with lab(dataset, flows=["rag_only", Echo()]) as laboratory:
        summary = laboratory.run_sync(out=tmp_path / "run").summary
    assert summary["flows"]["echo"]["llm_calls"] == 0
    assert not any("410" in str(turn) for turn in seen)


def test_a_flow_is_one_file_of_ones_own(dataset, tmp_path, monkeypatch):
    (tmp_path / "my_flows").mkdir()
    (tmp_path / "my_flows" / "shouting.py").write_text(
        '"""Answers in capitals."""\n'
        "from agentlab import Message, Reply\n\n"
        "async def respond(turn, session):\n"
        "    said = await session.complete((Message(role='user', text=turn.text),))\n"
        "    return Reply(text=said.message.text.upper())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with lab(dataset, ["quiet"], flows=["my_flows.shouting"]) as laboratory:
        run = laboratory.run_sync(out=tmp_path / "run")
    assert set(run.turns["reply"]) == {"QUIET"}


@pytest.mark.parametrize("concurrency", [1, 8])
def test_a_killed_run_is_continued_without_asking_again(dataset, tmp_path, concurrency):
    class Killed(BaseException):
        pass

    out = tmp_path / "run"
    model = Scripted([obliging], loop=True)
    spec = {"datasets": [str(dataset)], "embedder": "hashing/hashing-64", "flows": ["rag_only"]}

    def die_after_three(progress):
        if progress.done == 3:
            raise Killed

    with al.Lab(model=model, **spec) as laboratory, pytest.raises(BaseException):  # noqa: B017
        laboratory.run_sync(out=out, on_progress=die_after_three)
    with (out / "turns.jsonl").open("a") as torn:
        torn.write('{"flow": "rag_on')
    before = len(model.requests)
    with pytest.raises(RunError, match="has not ended"):
        _ = open_run(out).summary
    with al.Lab(model=model, concurrency=concurrency, **spec) as laboratory:
        run = laboratory.run_sync(out=out, resume=True)
    assert (run.summary["status"], run.summary["turns"], run.summary["flows"]["rag_only"]["llm_calls"]) == (
        "complete",
        6,
        6,
    )
    assert len(model.requests) - before == 4, "one whole conversation was kept; the one that was cut began again"


def test_resuming_another_spec_is_refused_and_a_run_is_not_overwritten(dataset, tmp_path):
    out = tmp_path / "run"
    with lab(dataset, flows=["rag_only"]) as laboratory:
        laboratory.run_sync(out=out)
        with pytest.raises(RunError, match="--resume"):
            laboratory.run_sync(out=out)
    with (
        lab(dataset, flows=["tools"]) as laboratory,
        pytest.raises(RunError, match="spec: flows was not the same in that run"),
    ):
        laboratory.run_sync(out=out, resume=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("precious")
    with lab(dataset, flows=["rag_only"]) as laboratory, pytest.raises(RunError, match="not empty"):
        laboratory.run_sync(out=tmp_path / "other")


def test_a_budget_ends_the_run_early_and_says_so(dataset, tmp_path):
    with lab(dataset, flows=["rag_only"], budget={"calls": 3}) as laboratory:
        run = laboratory.run_sync(out=tmp_path / "run")
    assert (run.summary["status"], run.summary["flows"]["rag_only"]["llm_calls"]) == ("partial", 4)
    with (
        lab(dataset, flows=["rag_only"], budget={"usd": 1}) as laboratory,
        pytest.raises(ConfigError, match="no price"),
    ):
        laboratory.run_sync(out=tmp_path / "priced")
    assert not (tmp_path / "priced").exists()


def test_a_price_table_of_ones_own(dataset, tmp_path):
    table = tmp_path / "prices.yaml"
    table.write_text('dated: "2026"\nmodels:\n  scripted: {input: 2, cached_input: 0.5, output: 10}\n')
    usage = Usage(input_tokens=1000, cached_tokens=400, output_tokens=100)
    reply = Completion(message=Message(role="agent", text="yes"), usage=usage)
    with lab(dataset, [reply], flows=["rag_only"], prices=str(table), budget={"usd": 1}) as laboratory:
        guessed = estimate(laboratory, laboratory.datasets())
        flow = laboratory.run_sync(out=tmp_path / "run").summary["flows"]["rag_only"]
    assert flow["cost_usd"] == pytest.approx(6 * (600 * 2 + 400 * 0.5 + 100 * 10) / 1e6)
    assert (guessed.turns, guessed.llm_calls) == (6, 6)
    assert guessed.usd is not None


def test_concurrency_changes_no_number(dataset, tmp_path):
    totals = []
    for concurrency in (1, 6):
        with lab(dataset, concurrency=concurrency) as laboratory:
            run = laboratory.run_sync(out=tmp_path / str(concurrency))
        frame = run.turns.set_index(["flow", "conversation", "turn"]).sort_index()
        assert list(run.summary["flows"]) == ["rag_only", "tools", "tools_rag_fallback"]
        totals.append(frame[["llm_calls", "input_tokens", "output_tokens", "tool_calls", "reply"]])
    assert totals[0].equals(totals[1])


def test_epochs_get_a_seed_each_and_identical_ones_are_refused(dataset, tmp_path):
    with pytest.raises(ConfigError, match="epochs"):
        lab(dataset, epochs=2)
    model = Scripted(["x"], loop=True)
    spec = {"datasets": [str(dataset)], "embedder": "hashing/hashing-64", "flows": ["rag_only"], "limit": 1}
    with al.Lab(model=model, epochs=3, generation={"temperature": 0.7, "seed": 5}, **spec) as laboratory:
        run = laboratory.run_sync(out=tmp_path / "run")
    assert {request.seed for request in model.requests} == {5, 6, 7}
    assert run.summary["turns"] == 6


def test_unscored_turns_enter_the_history_and_sessions_clear_it(tmp_path, own_home):
    conversation = {
        "id": "c",
        "turns": [
            {"user": "Hello", "reference_answers": ["Good day"], "scored": False, "session": "a"},
            {"user": "First", "session": "a"},
            {"user": "Second", "session": "b"},
        ],
    }
    folder = write_set(tmp_path / "set", [conversation], DOCUMENTS)
    model = Scripted(["one", "two"])
    with al.Lab(model=model, datasets=[str(folder)], embedder="hashing/hashing-64", flows=["rag_only"]) as laboratory:
        run = laboratory.run_sync(out=tmp_path / "run")
    assert [m.text for m in model.requests[0].messages[1:-1]] == ["Hello", "Good day"]
    assert len(model.requests[1].messages) == 2
    assert list(run.turns["turn"]) == [1, 2]


def test_tools_a_conversation_brings_are_served_from_its_recorded_results(tmp_path, own_home):
    conversation = {
        "id": "c",
        "tools": [{"name": "weather.get", "description": "", "parameters": {"type": "object", "properties": {}}}],
        "turns": [
            {"user": "Weather?", "tool_results": [{"name": "weather.get", "results": [{"sky": "grey"}], "total": 1}]}
        ],
    }
    folder = write_set(tmp_path / "set", [conversation])
    model = Scripted([call("weather.get"), call("weather.get"), "Grey."])
    spec = {"datasets": [str(folder)], "embedder": "hashing/hashing-64"}
    with al.Lab(model=model, flows=["tools"], **spec) as laboratory:
        run = laboratory.run_sync(out=tmp_path / "run")
    assert [tool.name for tool in model.requests[0].tools] == ["weather.get"]
    results = [m.text for m in model.requests[-1].messages if m.role == "tool"]
    assert results == ['{"results": [{"sky": "grey"}], "total": 1}', '{"status": "success"}']
    assert run.summary["flows"]["tools"]["tool_calls"] == 2
    with (
        al.Lab(model=model, flows=["rag_only"], **spec) as laboratory,
        pytest.raises(ConfigError, match="needs documents"),
    ):
        laboratory.run_sync(out=tmp_path / "never")


def test_two_data_sets_keep_their_conversations_apart(dataset, tmp_path):
    other = write_set(tmp_path / "other", CONVERSATIONS, DOCUMENTS)
    spec = {"embedder": "hashing/hashing-64", "flows": ["rag_only"]}
    with al.Lab(model=Scripted([obliging], loop=True), datasets=[str(dataset), str(other)], **spec) as laboratory:
        run = laboratory.run_sync(out=tmp_path / "run")
    assert run.summary["datasets"] == ["rules", "other"]
    assert set(run.turns["conversation"]) >= {"rules/c0", "other/c0"}


def test_a_turn_of_ten_megabytes_is_a_turn_like_any_other(tmp_path, own_home):
    folder = write_set(tmp_path / "set", [{"id": "c", "turns": [{"user": "word " * 2_000_000}]}], DOCUMENTS)
    model = Scripted([BadRequest("too long")])
    with al.Lab(model=model, datasets=[str(folder)], embedder="hashing/hashing-64", flows=["rag_only"]) as laboratory:
        flow = laboratory.run_sync(out=tmp_path / "run").summary["flows"]["rag_only"]
    assert (flow["turns"], flow["errors"]) == (1, 1)


def test_the_indexing_of_a_large_corpus_is_seen_while_it_goes_on(tmp_path, own_home):
    many = DOCUMENTS + [{"doc_id": f"d{n}", "title": "", "text": f"Document {n}."} for n in range(598)]
    dataset = write_set(tmp_path / "many", CONVERSATIONS[:1], many)
    said = []
    with lab(dataset, ["yes"] * 9, flows=["rag_only"]) as opened:
        opened.run_sync(out=tmp_path / "run", on_progress=lambda progress: said.append((progress.done, progress.label)))
    assert said[:3] == [(0, "indexing: 256 of 600 passages"), (0, "indexing: 512 of 600 passages"), (0, "")]


def test_turns_that_took_no_time_do_not_make_the_rest_look_short(tmp_path, own_home, monkeypatch):
    """As in a continued run, whose recorded calls come first and at once."""
    clock, said = [0.0], []
    monkeypatch.setattr("agentlab.evals.run.runner.time", SimpleNamespace(perf_counter=lambda: clock[0]))

    def tell(progress):
        said.append(progress.seconds_left)
        clock[0] += 0 if progress.done < 40 else 60

    conversations = [{"id": f"c{n}", "turns": [{"user": f"{n}?"}]} for n in range(80)]
    dataset = write_set(tmp_path / "long", conversations, DOCUMENTS)
    with lab(dataset, ["yes"] * 80, flows=["rag_only"], concurrency=1) as opened:
        opened.run_sync(out=tmp_path / "run", on_progress=tell)
    assert said[0] is None and said[1:41] == [0.0] * 40
    assert said[76] == 4 * 60


def test_a_lab_that_is_closed_lets_go_of_its_embedder_and_its_indexes(dataset, tmp_path):
    class Embedder:
        name, dimensions, closed = "mine", 8, False

        async def embed(self, texts):
            return np.ones((len(texts), 8), dtype=np.float32) / np.sqrt(8)

        async def close(self):
            self.closed = True

    embedder = Embedder()
    with al.Lab(model=Scripted(["yes"], loop=True), datasets=[str(dataset)], embedder=embedder) as opened:
        index = opened.wait(opened.index(opened.datasets()[0].documents, opened.spec.retrieval))
        assert opened.wait(index.search("ball", np.ones(8, dtype=np.float32), top_k=1))
    assert embedder.closed
    with pytest.raises(AttributeError, match="bindings"):  # Chroma's own words for a store that was closed
        asyncio.run(index.search("ball", np.ones(8, dtype=np.float32), top_k=1))


def test_a_scorer_that_fails_is_named_and_the_replies_are_kept(dataset, tmp_path, monkeypatch):
    def broken(turn, outcome):
        raise KeyError("weight")

    monkeypatch.setattr("agentlab.evals.scorers.answer.score", broken)
    with lab(dataset, flows=["rag_only"]) as laboratory:
        with pytest.raises(RunError, match=r"grading turn 0 of c0 by rag_only for answer_f1.* KeyError: 'weight'"):
            laboratory.run_sync(out=tmp_path / "run")
        monkeypatch.undo()
        monkeypatch.setenv("AGENTLAB_HOME", str(tmp_path / "home"))
        again = laboratory.run_sync(out=tmp_path / "run", resume=True)
        assert again.summary["flows"]["rag_only"]["billed"]["llm_calls"] == 6


def test_a_lab_takes_paths_and_says_what_is_no_model(dataset, own_home):
    with al.Lab(model=Scripted(["x"]), datasets=dataset, flows=["rag_only"]) as opened:
        assert opened.spec.datasets == (str(dataset),)
    for wrong in ({"model": 3}, {"embedder": object()}):
        with pytest.raises(ConfigError, match="neither a name nor an object that has one"):
            al.Lab(datasets=[dataset], **wrong)


def test_a_ledger_that_was_tampered_with_is_noticed(dataset, tmp_path):
    with lab(dataset, flows=["rag_only"]) as laboratory:
        laboratory.run_sync(out=tmp_path / "run")
        calls = tmp_path / "run" / "calls.jsonl"
        lines = calls.read_text().splitlines(keepends=True)
        calls.write_text("".join(line for line in lines if '"model_call"' not in line or '"c1"' not in line))
        with pytest.raises(RunError, match="does not add up"):
            laboratory.run_sync(out=tmp_path / "run", resume=True)


def test_a_chat_on_a_file_goes_on_where_it_ended(dataset, tmp_path):
    model = Scripted(["one", "two"])
    for text in ("First", "Second"):
        spec = {"datasets": [str(dataset)], "embedder": "hashing/hashing-64", "flows": ["rag_only"]}
        with al.Lab(model=model, **spec) as laboratory:
            laboratory.chat("rag_only", database=tmp_path / "chat.sqlite").say_sync(text)
    assert [m.text for m in model.requests[1].messages[1:-1]] == ["First", "one"]


async def test_the_lab_works_inside_a_running_loop(dataset, tmp_path):
    with lab(dataset, flows=["rag_only"]) as laboratory:
        awaited = await laboratory.run(out=tmp_path / "awaited")
        waited = laboratory.run_sync(out=tmp_path / "waited")
        chat = laboratory.chat("rag_only")
        reply = await chat.say("How heavy is the ball?")
    assert awaited.summary["turns"] == waited.summary["turns"] == 6
    assert reply.text == "Between 410 and 450 grams."
    assert chat.trace.totals() != Totals()


# Older formats.


def test_a_run_of_format_1_can_still_be_read(tmp_path):
    run = open_run(Path(__file__).parent / "data" / "run_format_1")
    assert run.folder.header["format"] == 1
    flow = run.summary["flows"]["tools"]
    totals = Totals.sum(trace.totals() for trace in run.traces.values() if trace.flow == "tools")
    assert (
        (totals.llm_calls, totals.input_tokens)
        == (flow["llm_calls"], flow["input_tokens"])
        == (8, flow["input_tokens"])
    )
    assert run.turns["latency_s"].mean() > 0
    for trace in run.traces.values():
        trace.check()
    assert "call_tool lookup_documents" in run.trace("tools", "c0").steps()


def test_a_run_of_format_1_is_not_continued(dataset, tmp_path):
    shutil.copytree(Path(__file__).parent / "data" / "run_format_1", tmp_path / "run")
    with lab(dataset) as laboratory, pytest.raises(RunError, match="it can only be read"):
        laboratory.run_sync(out=tmp_path / "run", resume=True)


def test_a_run_of_a_newer_format_is_refused(tmp_path):
    (tmp_path / "run.json").write_text('{"format": 99, "spec": {}, "datasets": {}, "models": {}}')
    with pytest.raises(RunError, match="run format 99, agentlab reads formats 1 and 2"):
        open_run(tmp_path)
