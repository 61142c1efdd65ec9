"""A replay looks up calls as those to the kind of server that was recorded, so it needs no address of a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentlab.cli.parser import main
from support.fake_openai import USAGE, in_a_thread, text
from support.rules_set import CONVERSATIONS, DOCUMENTS, write_set
from support.workflow_replays import check_that_the_workflow_replays


@pytest.fixture
def run(tmp_path: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record a run on a compatible server, stop the server, and return the arguments of a second run."""
    write_set(tmp_path / "rules", CONVERSATIONS[:2], DOCUMENTS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTLAB_EMBEDDER", "hashing/hashing-64")
    arguments = ["run", "--dataset", "rules", "--flow", "rag_only"]
    with in_a_thread(lambda body: text("410 grams", usage=USAGE)) as fake:
        monkeypatch.setenv("OPENAI_BASE_URL", fake.base_url)
        assert main([*arguments, "--mode", "record", "--model", "openai/served", "--out", "results/a"]) == 0
    monkeypatch.delenv("OPENAI_BASE_URL")
    return [*arguments, "--out", "results/b"]


def test_a_replay_needs_no_address_of_the_server(run):
    assert main([*run, "--mode", "replay", "--model", "openai/served"]) == 0


def test_a_replay_still_misses_calls_of_another_model(run, capsys):
    assert main([*run, "--mode", "replay", "--model", "openai/other"]) == 1
    assert "model is 'openai/other', was 'openai/served'" in capsys.readouterr().out


def test_a_run_that_may_call_the_model_does_not_take_calls_of_another_server(run, capsys):
    assert main([*run, "--mode", "auto", "--model", "openai/served"]) == 1
    assert "needs a key" in "".join(capsys.readouterr())


def test_the_workflow_of_init_replays_calls_of_a_compatible_server(tmp_path, own_home, monkeypatch, capsys):
    assert main(["init", str(tmp_path)]) == 0
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTLAB_EMBEDDER", "hashing/hashing-64")
    spec = Path("evals/flows.yaml")
    spec.write_text(spec.read_text().replace("local/qwen2.5-coder-0.5b", "openai/served"))
    check_that_the_workflow_replays(monkeypatch, capsys)


def test_a_project_of_init_keeps_runs_and_keys_out_of_git(tmp_path):
    assert main(["init", str(tmp_path)]) == 0
    assert {"/results/", "/llm_api_keys.json"} <= set((tmp_path / ".gitignore").read_text().split())
