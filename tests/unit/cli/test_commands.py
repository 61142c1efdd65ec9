"""The command line as a user meets it: one line and exit code 1 for a mistake, never a traceback; quick help."""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from agentlab.cli.parser import main
from support.fake_openai import USAGE, serving, text

SCRIPT = "loop: true\nreplies: ['Eight books at a time.']\n"


@pytest.fixture
def project(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    assert main(["init", str(tmp_path)]) == 0
    (tmp_path / "replies.yaml").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


OFFLINE = ["--model", "scripted/replies.yaml", "--set", "embedder=hashing/hashing-64"]


def test_default_may_be_pulled_with_other_models(monkeypatch, capsys):
    fetched = list[str]()
    monkeypatch.setattr("agentlab.models.weights.fetch", lambda name, on_progress: fetched.append(name))
    assert main(["pull", "default", "local/qwen2.5-coder-1.5b", "all-minilm-l6-v2"]) == 0
    assert fetched == ["qwen2.5-coder-0.5b", "all-minilm-l6-v2", "qwen2.5-coder-1.5b"]
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == fetched


@pytest.mark.slow
def test_a_new_project_runs_and_can_be_looked_at(project, capsys):
    assert main(["run", *OFFLINE, "--out", "results/first"]) == 0
    output = capsys.readouterr().out
    assert "2 conversations, 4 turns x 3 flows" in output
    for part in ("rag_only", "my_flow", "tokens", "right", "Undecided"):
        assert part in output
    summary = json.loads(Path("results/first/summary.json").read_text())
    assert summary["flows"]["rag_only"]["turns"] == 4
    assert main(["show", "--trace", "results/first", "example-1", "--flow", "rag_only"]) == 0
    assert "retrieve_documents" in capsys.readouterr().out
    assert main(["show", "--trace", "results/first"]) == 0
    assert main(["show", "--trace", "results/first", "example-9"]) == 1
    assert "unknown conversation of this run 'example-9'. Did you mean 'example-" in capsys.readouterr().err


def test_workflows_of_a_new_project_gate_recorded_and_live_runs(project, capsys, monkeypatch):
    workflow = yaml.safe_load(Path(".github/workflows/evals.yml").read_text())
    spec = yaml.safe_load(Path("evals/flows.yaml").read_text())
    spec |= {"flows": ["rag_only"], "model": "scripted/replies.yaml", "embedder": "hashing/hashing-64"}
    Path("evals/flows.yaml").write_text(yaml.safe_dump(spec))
    assert main(["run", "--mode", "record", "--out", "results/first"]) == 0
    assert main(["gate", "results/first", "--baseline", "evals/baselines/first.jsonl", "--update"]) == 0

    def steps_of(name: str) -> list[int]:
        job = workflow["jobs"][name]
        monkeypatch.setenv("AGENTLAB_MODE", job["env"]["AGENTLAB_MODE"])
        commands = [shlex.split(step["run"]) for step in job["steps"] if step.get("run", "").startswith("agentlab ")]
        codes = [main(command[1:]) for command in commands]
        shutil.rmtree("results")
        return codes

    assert steps_of("replay") == [0, 0] and "unchanged: " in capsys.readouterr().out
    Path("evals/flows.yaml").write_text(yaml.safe_dump(spec | {"generation": {"max_tokens": 64}}))
    assert steps_of("replay") == [1, 1] and "not recorded" in capsys.readouterr().err
    assert steps_of("live") == [0] and "all 2 conversations were played" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["run", "nowhere.yaml"], "there is no spec nowhere.yaml"),
        (["run", *OFFLINE, "--dataset", "nowhere"], "no such data set folder"),
        (["run", *OFFLINE, "--flow", "rag_onyl"], "Did you mean 'rag_only'?"),
        (["run", "--model", "rag_only"], "provider/name"),
        (["run", "--model", "nobody/gpt"], "unknown model provider 'nobody'"),
        (["run", "--model", "scripted/nowhere.yaml"], "cannot read the script"),
        (["run", "--model", "local/qwen9"], "qwen9"),
        (["run", "--model", "openai/gpt"], "OPENAI_API_KEY"),
        (["run", *OFFLINE, "--set", "retreival.top_k=3"], "unknown key 'retreival'. Did you mean 'retrieval'?"),
        (["run", *OFFLINE, "--set", "retrieval.topk=3"], "unknown key 'topk'. Did you mean 'top_k'?"),
        (["run", *OFFLINE, "--set", "retrieval.top_k=many"], "retrieval.top_k: Input should be a valid integer"),
        (["run", *OFFLINE, "--set", "limit"], "write it as key=value"),
        (["run", *OFFLINE, "--limit", "0"], "limit"),
        (["run", *OFFLINE, "--epochs", "3"], "would be identical"),
        (["run", *OFFLINE, "--set", "flows=[{flow: tools, top_k: 3}]"], "unknown key 'top_k'"),
        (["run", *OFFLINE, "--set", "flows=[tools, tools]"], "duplicate label 'tools'"),
        (["run", *OFFLINE, "--set", "prompts={tools: {sistem: x}}"], "unknown prompt 'sistem'"),
        (["run", *OFFLINE, "--set", "prompts={tools: {system: '{nonsense}'}}"], "no placeholder {nonsense}"),
        (["run", *OFFLINE, "--set", "prompts={tools: {system: '{'}}"], "opens no plain {placeholder}"),
        (["run", *OFFLINE, "--set", "scorers=[bleu]"], "unknown scorer 'bleu'"),
        (["run", *OFFLINE, "--set", "scorers=[os.path]"], "cannot use the scorer 'os.path': it has no `score`"),
        (["run", *OFFLINE, "--model", "os.path/x"], "cannot use the model provider 'os.path': it has no `connect`"),
        (["run", *OFFLINE, "--set", "prices=nowhere.yaml"], "cannot read the price table"),
        (["run", *OFFLINE, "--set", "budget.usd=1"], "has no price"),
        (["run", *OFFLINE, "--set", "embedder=hashing"], "provider/name"),
        (["run", *OFFLINE, "--resume"], "--resume needs the folder"),
        (["show", "--trace", "nowhere"], "not a run folder"),
        (["pull", "llama-900b"], "llama-900b"),
        (["init", "."], " exists; choose another folder"),
    ],
)
def test_a_mistake_is_one_line(project, capsys, arguments, message):
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("agentlab: ") and error.count("\n") == 1
    assert not list(Path("results").glob("*/turns.jsonl")) if Path("results").exists() else True


def test_run_without_a_reply_gives_the_reason_and_makes_no_baseline(project, capsys):
    Path("replies.yaml").write_text("loop: true\nreplies: [{error: Refused}]\n")
    assert main(["run", *OFFLINE, "--out", "results/refused"]) == 1
    output = capsys.readouterr().out
    assert "12 of 12 turns failed and score 0" in output and "12 x Refused: " in output
    assert main(["gate", "results/refused", "--baseline", "base.jsonl", "--update"]) == 1
    assert "no turn was answered" in capsys.readouterr().err and not Path("base.jsonl").exists()


def test_trace_of_an_unplayed_flow_is_an_error(project, capsys):
    two = ["--flow", "rag_only", "--flow", "tools", "--set", "budget.calls=5"]
    assert main(["run", *OFFLINE, *two, "--out", "results/cut"]) == 0
    assert main(["show", "--trace", "results/cut", "example-2", "--flow", "rag_only"]) == 0
    assert main(["show", "--trace", "results/cut", "example-2", "--flow", "tools"]) == 1
    assert "unknown flow of example-2 'tools'. Known: rag_only" in capsys.readouterr().err


def test_a_replay_that_lacks_calls_blames_no_budget(project, capsys):
    assert main(["run", *OFFLINE, "--mode", "record", "--limit", "1", "--out", "results/one"]) == 0
    capsys.readouterr()
    assert main(["run", *OFFLINE, "--mode", "replay"]) == 1
    output = capsys.readouterr().out
    assert "not recorded" in output.lower() and "budget" not in output


@pytest.mark.parametrize(
    "content, message",
    [
        ("flows: [", "not YAML"),
        ("- a list", "a mapping of keys"),
        ("name: !!python/object/apply:os.system [ls]", "not YAML"),
        ("flows: []", "at least one flow"),
    ],
)
def test_a_broken_spec_is_one_line(project, capsys, content, message):
    Path("broken.yaml").write_text(content)
    assert main(["run", "broken.yaml"]) == 1
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_an_empty_corpus_is_one_line(project, capsys):
    Path("datasets/example/corpus.jsonl").write_text("")
    assert main(["run", *OFFLINE]) == 1
    error = capsys.readouterr().err
    assert "corpus.jsonl" in error and error.count("\n") == 1


@pytest.mark.slow
def test_a_server_that_is_not_there_fails_every_turn_and_loses_none(project, capsys, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    arguments = ["--flow", "rag_only", "--limit", "1", "--set", "embedder=hashing/hashing-64", "--out", "results/x"]
    assert main(["run", "--model", "openai/any", *arguments]) == 1
    assert "2 of 2 turns failed" in capsys.readouterr().out
    summary = json.loads(Path("results/x/summary.json").read_text())
    assert (summary["flows"]["rag_only"]["turns"], summary["flows"]["rag_only"]["errors"]) == (2, 2)


def test_command_line_beats_spec_beats_environment(project, monkeypatch):
    from agentlab.workbench.spec import load_spec

    monkeypatch.setenv("AGENTLAB_MODEL", "openai/from-environment")
    Path("bare.yaml").write_text("datasets: [datasets/example]\n")
    Path("full.yaml").write_text("datasets: [datasets/example]\nmodel: openai/from-spec\n")
    assert load_spec("bare.yaml").model == "openai/from-environment"
    assert load_spec("full.yaml").model == "openai/from-spec"
    assert load_spec("full.yaml", {"model": "openai/from-line"}).model == "openai/from-line"


def test_doctor_and_lists(project, capsys):
    main(["doctor"])
    output = capsys.readouterr().out
    assert "Python" in output and "weights qwen2.5-coder-0.5b" in output
    for what in ("models", "flows", "tools", "memory", "scorers", "prompts"):
        assert main(["list", what]) == 0
    output = capsys.readouterr().out
    for name in ("local/qwen2.5-coder-0.5b", "local/all-minilm-l6-v2", "rag_only", "lookup_documents", "retrieval"):
        assert name in output
    assert main(["list", "schema"]) == 0
    assert json.loads(capsys.readouterr().out)["additionalProperties"] is False


async def test_the_same_spec_runs_against_another_server(project, capsys, monkeypatch):
    def answer(body):
        if "tools" in body and body["messages"][-1]["role"] == "user":
            called = {"name": "lookup_documents", "arguments": '{"query": "loan", "document_names": ["Loans"]}'}
            return {"deltas": [{"tool_calls": [{"index": 0, "id": "x", "function": called}]}], "finish": "tool_calls"}
        return text("Eight books at a time.", usage=USAGE)

    async with serving(answer) as fake:
        monkeypatch.setenv("OPENAI_BASE_URL", fake.base_url)
        arguments = ["run", "--model", "openai/other", "--set", "embedder=hashing/hashing-64", "--out", "results/other"]
        assert await asyncio.to_thread(main, arguments) == 0
    summary = json.loads(Path("results/other/summary.json").read_text())
    flows = summary["flows"]
    assert {label: f["llm_calls_per_turn"] for label, f in flows.items()} == {
        "rag_only": 1,
        "tools": 2,
        "my_flow": 1,
    }
    assert flows["rag_only"]["input_tokens"] == 400 and flows["rag_only"]["cached_tokens"] == 256
    assert flows["tools"]["input_tokens"] is None, "one reply in two reported no usage"
    assert flows["tools"]["errors"] == 0 and flows["tools"]["scores"]["retrieval_recall"]["mean"] > 0.5
