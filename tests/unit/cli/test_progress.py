"""Progress lines of work without flows, in a log."""

from __future__ import annotations

import pytest

from agentlab.cli.progress import Display


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    for clock in ("monotonic", "perf_counter"):
        monkeypatch.setattr(f"agentlab.cli.progress.time.{clock}", lambda: now[0])
    return now


def test_earlier_work_does_not_change_the_time_estimate(clock, capsys):
    with Display() as display:
        for done in range(400, 403):
            display.count("judged", done, 500)
            clock[0] += 20
    assert capsys.readouterr().err.splitlines() == [
        "judged: 401 of 500, about 33 min left",
        "judged: 402 of 500, about 33 min left",
    ]


def test_more_than_all_takes_no_time(clock, capsys):
    with Display() as display:
        display.count("read", 0, 10)
        clock[0] += 60
        display.count("read", 12, 10)
    assert capsys.readouterr().err == "read: 12 of 10, about 0 s left\n"


def test_instant_work_prints_no_progress(clock, capsys):
    with Display() as display:
        for done in range(11):
            display.count("read", done, 10)
    assert capsys.readouterr().err == ""
