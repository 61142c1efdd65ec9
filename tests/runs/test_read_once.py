"""A command reads a run folder once; the tests count the files that Python opens."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from agentlab.cli.parser import main
from support.small_runs import Answering, play, write_set

ONCE = dict.fromkeys(("run.json", "turns.jsonl", "calls.jsonl", "summary.json"), 1)
OPENED: list[str] = []


def _noted(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str | Path):
        OPENED.append(str(arguments[0]))


sys.addaudithook(_noted)  # for good: none can be taken away


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Thirty conversations; one flow answers some of them wrong."""
    wrong = {(f"c{number:02}", 0) for number in range(12)}
    data = write_set(tmp_path / "colours", 30)
    return play(data, tmp_path / "run", Answering(), Answering("other", wrong=wrong)).path


@pytest.mark.parametrize("command", ["compare", "show", "report", "gate", "show --trace"])
def test_a_command_opens_each_file_of_a_run_once(run, tmp_path, command):
    more = {"gate": ["--baseline", str(tmp_path / "good.jsonl")], "report": ["--out", str(tmp_path / "run.html")]}
    if command == "gate":
        main(["gate", str(run), *more["gate"], "--update"])
    OPENED.clear()
    assert main([*command.split(), str(run), *more.get(command, [])]) in (0, 3)
    opened = Counter(Path(name).name for name in OPENED if Path(name).parent == run)
    assert {name: opened[name] for name in ONCE} == ONCE
