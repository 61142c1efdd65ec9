"""Calls of a compatible server, recorded in the current project and replayed by the commands of its workflow."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from agentlab.cli.parser import main
from support.fake_openai import USAGE, in_a_thread, text


def check_that_the_workflow_replays(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Record the project over a server, keep a baseline, and run the workflow's commands without the server."""
    with in_a_thread(lambda body: text("Eight", usage=USAGE)) as fake:
        monkeypatch.setenv("OPENAI_BASE_URL", fake.base_url)
        assert main(["run", "--mode", "record", "--out", "results/first"]) == 0
    assert main(["gate", "results/first", "--baseline", "evals/baselines/first.jsonl", "--update"]) == 0
    monkeypatch.delenv("OPENAI_BASE_URL")
    monkeypatch.setenv("AGENTLAB_MODE", "replay")
    workflow = yaml.safe_load(Path(".github/workflows/evals.yml").read_text())
    commands = [step["run"] for step in workflow["jobs"]["replay"]["steps"] if "agentlab " in step.get("run", "")]
    assert len(commands) == 2
    for command in commands:
        assert main(command.split()[1:]) == 0, capsys.readouterr()
    assert "unchanged" in capsys.readouterr().out
