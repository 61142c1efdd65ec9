"""A bad conversation never ends the run: a fatal error ends its turn, and wrong sums quarantine its trial."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.constants import BACKGROUND_FAILED
from agentlab.core.errors import RunError
from agentlab.core.messages import Message, Reply
from agentlab.evals.compare.baselines import write_baseline
from agentlab.lab.run import open_run
from agentlab.models.scripted import Scripted, call
from support.small_runs import Answering, play, write_set

EXITS = [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), MemoryError(), RecursionError()]


@pytest.fixture
def colours(tmp_path: Path) -> Path:
    return write_set(tmp_path / "colours", 3)


class Leaving(Answering):
    """Flow that raises in c01, at one of the locations where a flow can raise."""

    def __init__(self, location: str, failure: BaseException) -> None:
        super().__init__(name="leaving")
        self.location, self.failure = location, failure

    async def respond(self, turn: Any, session: Any) -> Reply:
        reply = await super().respond(turn, session)
        if not turn.text.startswith("c01"):
            return reply

        async def leave() -> None:
            await asyncio.sleep(0)
            raise self.failure

        async def stay() -> None:
            await session.complete((Message(role="user", text="beside"),))

        match self.location:
            case "flow":
                await leave()
            case "parallel":
                await session.parallel(stay(), leave(), stay())
            case "background":
                session.background(leave(), "leave")
        return reply


@pytest.mark.parametrize("failure", EXITS, ids=lambda failure: type(failure).__name__)
@pytest.mark.parametrize("location", ["flow", "parallel", "background"])
def test_exit_in_a_flow_ends_only_the_turn(colours, tmp_path, location, failure):
    if location != "flow" and isinstance(failure, asyncio.CancelledError):
        pytest.skip("a flow that cancels itself there ends with its turn")
    run = play(colours, tmp_path / "run", Leaving(location, failure))
    flow = run.result.flows["leaving"]
    assert (run.result.status, flow.turns) == ("complete", 6)
    assert flow.errors == (0 if location == "background" else 2)
    notices = [event for event in run.trace("leaving", "c01").events if getattr(event, "name", "") == BACKGROUND_FAILED]
    assert len(notices) == (2 if location == "background" else 0)
    if location == "parallel":
        assert flow.llm_calls == 6 + 4, "parallel calls end and count"


def test_model_reads_that_a_tool_exited(colours, tmp_path):
    def leave() -> None:
        sys.exit("bye")

    async def uses(turn, session):
        return Reply(text=(await session.call_tool(call("leave").tool_calls[0])).text)

    class Leave:
        spec = al.ToolSpec(name="leave", description="", parameters={"type": "object"})

        async def run(self, arguments, context):
            leave()

    async def with_tool(turn, session):
        session.tools["leave"] = Leave()
        return await uses(turn, session)

    with al.Lab(model=Scripted([]), flows=[with_tool], datasets=[str(colours)], embedder="hashing/hashing-64") as lab:
        run = lab.run_sync(out=tmp_path / "run")
    assert run.turn_rows()[0].reply.text == "Error: the tool leave failed: SystemExit: bye"


def test_a_scorer_that_leaves_is_one_line_and_the_replies_are_kept(colours, tmp_path, monkeypatch):
    (tmp_path / "leaves.py").write_text(
        '"""Leaves."""\nimport sys\n\n\ndef metrics(turn):\n    return ["x"]\n\n\n'
        "def score(turn, outcome):\n    sys.exit(0)\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunError, match=r"grading turn 1 of c00 by answering for x failed: SystemExit: 0.* saved"):
        play(colours, tmp_path / "run", scorers=["leaves.py"])
    assert len((tmp_path / "run" / "turns.jsonl").read_text().splitlines()) == 6


class Straying(Answering):
    """Flow whose background task outlives its turn in c01, so that the turn's row does not count it."""

    def __init__(self) -> None:
        super().__init__(name="straying")
        self.strays = True
        self.tasks: list[asyncio.Task[Any]] = []

    async def respond(self, turn: Any, session: Any) -> Reply:
        reply = await super().respond(turn, session)
        if self.tasks:
            # It is another conversation's call, and it is there before the run ends.
            await asyncio.gather(*self.tasks)
        if self.strays and turn.text == "c01 1":

            async def later() -> None:
                await asyncio.sleep(0.02)
                await session.complete((Message(role="user", text="late"),))

            self.tasks.append(asyncio.create_task(later()))
        return reply


def test_inconsistent_trial_is_quarantined_and_played_again(colours, tmp_path, capsys):
    flow = Straying()
    run = play(colours, tmp_path / "run", flow)
    quarantined = run.result.quarantined
    assert run.result.status == "partial" and run.result.turns == 6
    assert [(each.flow, each.conversation, each.epoch) for each in quarantined] == [("straying", "c01", 0)]
    assert "after its last turn" in quarantined[0].cause
    with pytest.raises(RunError, match=r"1 conversations are quarantined .*straying c01.* --resume"):
        write_baseline(run, tmp_path / "never.jsonl")
    assert main(["show", str(run.path)]) == 0
    assert "quarantined: straying c01: an event came after its last turn" in " ".join(capsys.readouterr().out.split())
    flow.strays = False
    again = play(colours, tmp_path / "run", flow, resume=True)
    assert again.result.status == "complete" and not again.result.quarantined
    assert again.result.flows["straying"].llm_calls == 6 and len(again.turn_rows()) == 6
    assert open_run(again.path).trace("straying", "c01").attempt == 1
    write_baseline(again, tmp_path / "whole.jsonl")
