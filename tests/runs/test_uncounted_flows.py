"""A flow that answers without the session: its costs are unknown, never 0, and decide nothing."""

from __future__ import annotations

import json
import re

import agentlab as al
from agentlab.cli.parser import main

COSTS = ("llm_calls", "input_tokens", "output_tokens", "cost_usd", "latency_s")


async def own_client(turn, session):
    return al.Reply(text="red")


async def counted(turn, session):
    completion = await session.complete(turn.text)
    return al.Reply(text=completion.text)


def played(tmp_path, *flows):
    (data := tmp_path / "set").mkdir()
    rows = [{"id": f"c{n:02}", "turns": [{"user": f"{n}?", "reference_answers": ["red"]}]} for n in range(30)]
    (data / "conversations.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with al.Lab(flows=[*flows], datasets=[str(data)], model=al.Scripted(["red"], loop=True)) as lab:
        return lab.run_sync(out=tmp_path / "run")


def test_costs_of_a_flow_with_its_own_client_are_unknown(tmp_path, capsys):
    run = played(tmp_path, counted, own_client)
    assert all(run.means["own_client"][name] is None for name in COSTS)
    assert all(run.means["counted"][name] is not None for name in ("llm_calls", "latency_s"))
    assert main(["show", str(run.path), "--all"]) == 0
    printed = capsys.readouterr().out
    calls = next(line for line in printed.splitlines() if "LLM calls / turn" in line)
    assert " - " in calls and "1.00" in calls
    assert "Ship " not in printed.replace("Ship none", "")


def test_a_flow_that_uses_the_session_has_known_costs(tmp_path):
    run = played(tmp_path, counted)
    assert run.means["counted"]["llm_calls"] == 1.0


def test_a_single_turn_shows_unknown_costs_and_no_zero(tmp_path, capsys):
    run = played(tmp_path, counted, own_client)
    for flow, unknown in (("own_client", True), ("counted", False)):
        assert main(["show", str(run.path), "c01", "--turn", "1", "--flow", flow]) == 0
        assert ("tokens -, time -" in capsys.readouterr().out) is unknown
        turns = run.turns.query(f"flow == '{flow}'")
        assert all(turns[name].isna().all() == unknown for name in ("llm_calls", "latency_s"))
    page = json.loads(re.findall(r'id="data">(.*?)</script>', run.report().text, re.DOTALL)[0])
    columns = [measure["name"] for measure in page["measures"]]
    for flow, series in zip(page["flows"], page["series"], strict=True):
        values = {name: series["values"][columns.index(name)] for name in ("llm_calls", "latency_s")}
        assert all((value is None) == (flow == "own_client") for value in values.values())
