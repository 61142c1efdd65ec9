"""The end of `agentlab run` and `show` at 80 columns: headline first, at most 30 lines, no word broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentlab.cli.parser import main
from support.paths import ROOT
from support.small_runs import Answering, play, write_set

MAX_LINES, MAX_COLUMNS = 30, 80


def turns(count: int, first: int = 0) -> list[tuple[str, int]]:
    return [(f"c{c:02}", t) for c in range(20) for t in range(2)][first : first + count]


FLOWS = {
    "eight": [
        Answering(f"a_flow_with_a_name_{n}", wrong=turns(4 + 3 * n, n), calls=lambda turn, n=n: 1 + n % 4)
        for n in range(8)
    ],
    "failing": [
        Answering("steady", wrong=turns(9), calls=lambda turn: 2),
        Answering("flaky", failing=turns(30)),
        Answering("ego", wrong=turns(20)),
    ],
}


def assert_fits(lines: list[str], headline: str) -> None:
    assert lines[0].startswith(headline), lines[0]
    assert len(lines) <= MAX_LINES, "\n".join(lines)
    commands = [line for line in lines if line.startswith("  agentlab ")]
    assert commands and len(commands) <= 2
    wide = [line for line in lines if len(line) > MAX_COLUMNS and line not in commands]
    assert not wide, "a path alone may be wider"


@pytest.fixture
def narrow(own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of its own with data and recordings of the checkout, at 80 columns."""
    monkeypatch.setenv("COLUMNS", str(MAX_COLUMNS))
    monkeypatch.chdir(tmp_path)
    for name in ("datasets", "evals"):
        Path(name).symlink_to(ROOT / name)


@pytest.mark.parametrize("name", ["laws", "assistant"])
def test_a_replayed_run_ends_in_thirty_lines(name, narrow, capsys):
    assert main(["run", f"evals/recorded/{name}.yaml", "--mode", "replay", "--out", name]) == 0
    lines = capsys.readouterr().out.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("Ship none yet"))
    assert_fits(lines[begin:], "Ship none yet")


@pytest.mark.parametrize(("name", "headline"), [("eight", ""), ("failing", "flaky fails 30 of 40 turns: fix it first")])
def test_eight_flows_and_failures_fit_thirty_lines(name, headline, narrow, capsys):
    play(write_set(Path("set"), 20), Path(name), *FLOWS[name])
    capsys.readouterr()
    assert main(["show", name]) == 0
    assert_fits(capsys.readouterr().out.splitlines(), headline)
    assert main(["show", name, "--all"]) == 0
    assert len(capsys.readouterr().out.splitlines()) > MAX_LINES, "--all hides nothing"
