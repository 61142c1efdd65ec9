"""Limits from the front door: a provider that says what it allows, budgets, and time that is up."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab.cli.parser import main
from support import fake_openai


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    rows = [
        {"id": f"c{number}", "turns": [{"user": f"One, {number}?"}, {"user": f"Two, {number}?"}]} for number in range(4)
    ]
    (folder / "conversations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


class Talk:
    name = "talk"

    async def respond(self, turn: Any, session: Any) -> al.Reply:
        return al.Reply(text=(await session.complete(turn.text)).text)


def spec(data: Path, **more: Any) -> dict[str, Any]:
    return {"datasets": [str(data)], "flows": [Talk()], "embedder": "hashing/hashing-64", **more}


async def test_what_a_provider_says_is_in_the_summary_and_waiting_is_no_latency(data, tmp_path, own_home, monkeypatch):
    refusals = iter([True])
    told = {
        "x-ratelimit-limit-requests": "6000",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "60s",
        "retry-after": "0.01",
    }

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        if next(refusals, False):
            return {"status": 429, "headers": told}
        return fake_openai.text("Hi", usage=fake_openai.USAGE)

    async with fake_openai.serving(answer) as fake:
        monkeypatch.setenv("OPENAI_BASE_URL", fake.base_url)
        progress: list[Any] = []
        with al.Lab(model="openai/any", concurrency=4, **spec(data)) as lab:
            found = await lab.run(out=tmp_path / "run", on_progress=progress.append)
    limits = found.summary["limits"]["openai/any"]
    assert (limits["per_minute"], limits["answered"], limits["refused"]) == ({"requests": 6000.0}, 8, 1)
    assert limits["concurrency"][0] == [0.0, 4]
    assert limits["waited_s"] > 0
    assert "6000 requests a minute" in progress[-1].limits and "1 refused" in progress[-1].limits
    calls = [event for trace in found.traces.values() for event in trace.events]
    assert max(call.waited for call in calls) > 0.3, "of the call that was refused"
    assert found.summary["flows"]["talk"]["errors"] == 0


@pytest.mark.parametrize(
    ("budget", "turns"), [({"tokens": 200}, 2), ({"calls": 3}, 4), ({"minutes": 1e-9}, 0), ({"tokens": 10**9}, 8)]
)
async def test_a_budget_stops_a_run_between_conversations(data, tmp_path, own_home, monkeypatch, budget, turns):
    async with fake_openai.serving(lambda body: fake_openai.text("Hi", usage=fake_openai.USAGE)) as fake:
        monkeypatch.setenv("OPENAI_BASE_URL", fake.base_url)
        with al.Lab(model="openai/any", budget=budget, **spec(data)) as lab:
            if turns == 0:
                found = await lab.run(out=tmp_path / "run")
                assert (found.summary["status"], found.summary["turns"]) == ("partial", 0)
                return
            found = await lab.run(out=tmp_path / "run")
    assert found.summary["turns"] == turns
    assert found.summary["status"] == ("complete" if turns == 8 else "partial")


@pytest.mark.parametrize(
    ("timeouts", "told", "errors"),
    [
        ({"turn": 0.05}, "timeouts.turn: 0.05 s", 1),
        ({"conversation": 0.05}, "timeouts.conversation: 0.05 s", 2),
        ({"turn": 30, "conversation": 60}, "", 0),
    ],
)
def test_time_that_is_up_fails_the_turn_and_not_the_run(data, tmp_path, own_home, timeouts, told, errors):
    class Stuck(Talk):
        async def respond(self, turn: Any, session: Any) -> al.Reply:
            if errors and turn.text.startswith("One"):
                await asyncio.sleep(30)
            await asyncio.sleep(0)
            return al.Reply(text="done")

    with al.Lab(model=al.Scripted([]), **spec(data, limit=1, timeouts=timeouts) | {"flows": [Stuck()]}) as lab:
        found = lab.run_sync(out=tmp_path / "run")
    failed = [row.error for row in found.folder.turns() if row.error]
    assert (found.summary["status"], len(failed)) == ("complete", errors)
    assert all(told in error for error in failed)


def test_an_attempt_that_takes_too_long_is_made_again(data, tmp_path, own_home):
    class Once:
        name, parallel, asked = "once", None, 0

        async def complete(self, request: Any, emit: Any) -> Any:
            self.asked += 1
            await asyncio.sleep(30 if self.asked == 1 else 0)
            return await al.Scripted(["Hi"]).complete(request, emit)

        async def close(self) -> None:
            pass

    with al.Lab(model=Once(), **spec(data, limit=1, timeouts={"call": 0.05})) as lab:
        found = lab.run_sync(out=tmp_path / "run")
    first = found.trace("talk", "c0").events[0]
    assert (first.attempt, first.error) == (2, None) and first.waited >= 0.05


def test_limits_of_the_spec_are_for_the_models_they_name(data, tmp_path, own_home):
    in_flight = most = 0

    class Counting:
        name, parallel = "counting", None

        async def complete(self, request: Any, emit: Any) -> Any:
            nonlocal in_flight, most
            in_flight += 1
            most = max(most, in_flight)
            await asyncio.sleep(0.005)
            in_flight -= 1
            return await al.Scripted(["Hi"]).complete(request, emit)

        async def close(self) -> None:
            pass

    for limits, expected in (({"count*": {"concurrent": 2}}, 2), ({"other/*": {"concurrent": 2}}, 4)):
        most = 0
        with al.Lab(model=Counting(), concurrency=4, **spec(data, limits=limits)) as lab:
            lab.run_sync(out=tmp_path / f"run-{expected}")
        assert most == expected


def test_a_limit_that_is_none_is_one_line(data, capsys):
    assert main(["run", "--dataset", str(data), "--set", "limits={openai/x: {requests: 0}}"]) == 1
    assert "limits" in capsys.readouterr().err
    assert main(["run", "--dataset", str(data), "--set", "timeouts.turns=3"]) == 1
    assert "Did you mean 'turn'" in capsys.readouterr().err
