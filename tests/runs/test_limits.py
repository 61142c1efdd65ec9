"""Limits of whole runs: a provider that reports its limits, budgets, and time-outs."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.messages import Completion, Message, Usage
from support import fake_openai
from support.executors import under_names
from support.small_runs import Answering, play, write_set


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


@pytest.mark.parametrize("workers", [1, 2])
async def test_summary_has_provider_limits_and_waiting_is_no_latency(data, tmp_path, own_home, monkeypatch, workers):
    refusals = iter([True])
    text = {
        "x-ratelimit-limit-requests": "6000",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "60s",
        "retry-after": "0.01",
    }

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        if next(refusals, False):
            return {"status": 429, "headers": text}
        return fake_openai.text("Hi", usage=fake_openai.USAGE)

    async with fake_openai.serving(answer) as fake:
        monkeypatch.setenv("OPENAI_BASE_URL", fake.base_url)
        with al.Lab(model="openai/any", concurrency=4, **spec(data)) as lab:
            under_names(monkeypatch)
            shared = {"executor": "threads", "workers": workers} if workers > 1 else {}
            result = await lab.run(out=tmp_path / "run", **shared)
    limits = result.summary["limits"]["openai/any"]
    assert (limits["answered"], limits["refused"]) == (8, 1)
    parts = limits.get("workers", [limits])
    texts = [part["per_minute"] for part in parts if part["per_minute"]]
    assert texts == [{"requests": 6000.0}] and len(parts) == workers, "only one was rejected, with the reason"
    assert limits["waited_s"] > 0
    assert not [*(tmp_path / "run").rglob("progress.json")]
    calls = [event for trace in result.traces.values() for event in trace.events]
    assert max(call.waited for call in calls) > 0.3, "of the call that was refused"
    assert result.summary["flows"]["talk"]["errors"] == 0


@pytest.mark.parametrize(
    ("budget", "turns"), [({"tokens": 200}, 2), ({"calls": 3}, 4), ({"minutes": 1e-9}, 0), ({"tokens": 10**9}, 8)]
)
async def test_a_budget_stops_a_run_between_conversations(data, tmp_path, own_home, monkeypatch, budget, turns):
    async with fake_openai.serving(lambda body: fake_openai.text("Hi", usage=fake_openai.USAGE)) as fake:
        monkeypatch.setenv("OPENAI_BASE_URL", fake.base_url)
        with al.Lab(model="openai/any", budget=budget, **spec(data)) as lab:
            if turns == 0:
                result = await lab.run(out=tmp_path / "run")
                assert (result.summary["status"], result.summary["turns"]) == ("partial", 0)
                return
            result = await lab.run(out=tmp_path / "run")
    assert result.summary["turns"] == turns
    assert result.summary["status"] == ("complete" if turns == 8 else "partial")


def test_a_budget_stops_a_long_conversation_too(tmp_path, own_home):
    data = write_set(tmp_path / "colours", 1, turns=100)
    run = play(data, tmp_path / "run", Answering(), budget={"calls": 20})
    assert (run.summary["status"], run.summary["turns"], run.summary["flows"]["answering"]["llm_calls"]) == (
        *("partial", 22),
        22,
    )
    assert play(data, tmp_path / "run", Answering(), resume=True, budget={"calls": 200}).summary["turns"] == 100


@pytest.mark.parametrize("budget", [{"tokens": 10**6}, {"calls": 100}])
def test_cancelled_call_does_not_end_a_budget(data, tmp_path, own_home, budget):
    class Slow:
        """Breaks off the first call of its first run in the middle."""

        name, parallel = "slow", None

        def __init__(self, seconds: float) -> None:
            self.seconds = seconds

        async def complete(self, request: Any, emit: Any) -> Any:
            emit("Hm")
            seconds, self.seconds = self.seconds, 0.0
            await asyncio.sleep(seconds)
            usage = Usage(input_tokens=10, output_tokens=1)
            completion = Completion(message=Message(role="agent", text="Hi"), usage=usage)
            return await al.Scripted([completion]).complete(request, emit)

        async def close(self) -> None:
            pass

    with al.Lab(model=Slow(30.0), budget=budget, timeouts={"turn": 0.2}, concurrency=1, **spec(data)) as lab:
        run = lab.run_sync(out=tmp_path / "run")
    flow = run.summary["flows"]["talk"]
    assert (run.summary["status"], run.summary["turns"], flow["errors"], flow["input_tokens"]) == (
        "complete",
        8,
        1,
        None,
    )


def test_a_call_that_waits_for_a_limit_when_its_time_is_up_was_not_made(data, tmp_path, own_home):
    limits, timeouts = {"scripted*": {"requests": 60}}, {"turn": 0.3}
    model = al.Scripted(["Hi"], loop=True)
    with al.Lab(model=model, limits=limits, timeouts=timeouts, concurrency=4, **spec(data)) as lab:
        run = lab.run_sync(out=tmp_path / "run")
    flow = run.summary["flows"]["talk"]
    assert flow["llm_calls"] == len(model.requests) < 8 == run.summary["turns"]
    cancelled = [event for trace in run.traces.values() for event in trace.events if event.error == "interrupted"]
    assert cancelled and all(call.seconds == 0 and call.waited > 0.2 for call in cancelled)


def test_a_limit_that_parts_of_a_run_cannot_share_is_one_line(data, tmp_path, capsys, own_home):
    (tmp_path / "replies.yaml").write_text("loop: true\nreplies: [Hi]\n")
    (tmp_path / "talk.py").write_text(
        '"""Asks."""\nimport agentlab as al\n\n\nasync def respond(turn, session):\n'
        "    return al.Reply(text=(await session.complete(turn.text)).text)\n"
    )
    run = ["run", "--flow", str(tmp_path / "talk.py"), "--dataset", str(data), "--out", str(tmp_path / "run")]
    run += ["--model", f"scripted/{tmp_path / 'replies.yaml'}", "--executor", "processes", "--workers", "2"]
    run += ["--set", "embedder=hashing/hashing-64", "--set", "limits={scripted*: {concurrent: 1}}"]
    assert main(run) == 1
    assert "concurrent is 1, too few for 2 workers; use --workers 1" in capsys.readouterr().err


def test_a_run_without_a_turn_is_shown_and_not_exported(data, tmp_path, capsys, own_home):
    with al.Lab(model=al.Scripted([]), budget={"minutes": 1e-9}, **spec(data)) as lab:
        lab.run_sync(out=tmp_path / "run")
    assert main(["show", str(tmp_path / "run")]) == 0
    assert "no turn was played" in capsys.readouterr().out
    for to in ("csv", "parquet"):
        assert main(["export", str(tmp_path / "run"), "--to", to, "-o", str(tmp_path / "table")]) == 1
        assert "no turn was played" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("timeouts", "text", "errors"),
    [
        ({"turn": 0.05}, "timeouts.turn: 0.05 s", 1),
        ({"conversation": 0.05}, "timeouts.conversation: 0.05 s", 2),
        ({"turn": 30, "conversation": 60}, "", 0),
    ],
)
def test_time_that_is_up_fails_the_turn_and_not_the_run(data, tmp_path, own_home, timeouts, text, errors):
    class Stuck(Talk):
        async def respond(self, turn: Any, session: Any) -> al.Reply:
            if errors and turn.text.startswith("One"):
                await asyncio.sleep(30)
            await asyncio.sleep(0)
            return al.Reply(text="done")

    with al.Lab(model=al.Scripted([]), **spec(data, limit=1, timeouts=timeouts) | {"flows": [Stuck()]}) as lab:
        run = lab.run_sync(out=tmp_path / "run")
    failed = [row.error for row in run.folder.turns() if row.error]
    assert (run.summary["status"], len(failed)) == ("complete", errors)
    assert all(text in error for error in failed)


def test_an_attempt_that_takes_too_long_is_made_again(data, tmp_path, own_home):
    class Once:
        name, parallel, received = "once", None, 0

        async def complete(self, request: Any, emit: Any) -> Any:
            self.received += 1
            await asyncio.sleep(30 if self.received == 1 else 0)
            return await al.Scripted(["Hi"]).complete(request, emit)

        async def close(self) -> None:
            pass

    with al.Lab(model=Once(), **spec(data, limit=1, timeouts={"call": 0.05})) as lab:
        run = lab.run_sync(out=tmp_path / "run")
    first = run.trace("talk", "c0").events[0]
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
