"""The small data set of most runs, and a chat in the terminal that is typed into."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentlab.cli.parser import main
from support.rules_set import CONVERSATIONS, DOCUMENTS, write_set
from support.typed_lines import type_lines


@pytest.fixture
def dataset(tmp_path: Path, own_home: Path) -> Path:
    return write_set(tmp_path / "rules", CONVERSATIONS, DOCUMENTS)


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_home: Any, capsys: pytest.CaptureFixture[str]):
    """Types lines into a chat over scripted replies; returns the whole output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("agentlab.models.weights.is_present", lambda name: False)
    Path("corpus.jsonl").write_text(json.dumps({"doc_id": "goal", "title": "Goal", "text": "A goal is 7.32 m wide."}))

    def talk(flow: str, lines: list[str], replies: list[Any], *flags: str, loop: bool = True) -> str:
        Path("replies.yaml").write_text(yaml.safe_dump({"loop": loop, "replies": replies}))
        type_lines(monkeypatch, lines)
        given = ("--model", "scripted/replies.yaml", "--set", "embedder=hashing/hashing-64", "--set", "memory=sqlite")
        assert main(["chat", flow, *given, "--memory", "kept", *flags]) == 0
        captured = capsys.readouterr()
        assert "Traceback" not in captured.out + captured.err
        return captured.out

    return talk
