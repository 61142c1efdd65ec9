"""Unplanned behaviour of users and models ends in a counted turn or one clear line."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.cli.terminal import show_run
from agentlab.core.errors import ConfigError, DatasetError, RunError
from agentlab.core.messages import Reply, UserTurn, to_json
from agentlab.flows import coordinator
from agentlab.models.scripted import Scripted, call
from agentlab.workbench.turn_driver import TurnDriver
from support.doubles import session_over
from support.fake_openai import serving
from support.rules_set import write_set
from support.unsealing import unseal


def play(dataset: Path, out: Path, *replies, flows=("rag_only",), **spec):
    with al.Lab(
        model=Scripted(replies or ["yes"], loop=True),
        datasets=[str(dataset)],
        embedder="hashing/hashing-64",
        flows=list(flows),
        **spec,
    ) as lab:
        return lab.run_sync(out=out)


@pytest.mark.parametrize("key", ["sk-abcdefghijklmnop", "gsk_abcdefghijklmnop"])
async def test_a_key_the_server_quotes_is_nowhere_in_the_run(dataset, tmp_path, monkeypatch, key):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    refusal = {"status": 401, "message": f"Incorrect API key provided: {key}"}
    async with serving(lambda body: refusal) as fake:
        monkeypatch.setenv("OPENAI_BASE_URL", fake.base_url)
        spec = {"datasets": [str(dataset)], "embedder": "hashing/hashing-64", "flows": ["rag_only"]}
        with al.Lab(model="openai/m", **spec) as lab:
            run = await lab.run(out=tmp_path / "run")
    assert run.summary["flows"]["rag_only"]["errors"] == 6
    for file in (tmp_path / "run").iterdir():
        assert key not in file.read_text(), file.name


class Half:
    """A tool whose result ends in half a character."""

    spec = al.ToolSpec(name="half", description="Cuts.", parameters={"type": "object", "properties": {}})

    def run(self, arguments, session):
        return "three \ud83d"


async def test_half_a_character_is_replaced_where_it_comes_in():
    """The texts of the user, the model, its calls and a tool are repaired."""
    seen: list[str] = []

    def reply(request):
        seen.append(json.dumps(to_json(request), ensure_ascii=False))
        return "two \ud83d" if len(request.messages) > 2 else call("half", q="one \ud83d")

    session = session_over(coordinator, Scripted([reply], loop=True), tools=[Half()])
    played = await TurnDriver(session).play(coordinator.respond, 0, UserTurn(text="zero \ud83d"))
    assert played.reply is not None and played.reply.text == "two \ufffd"
    assert all(f"{word} \ufffd" in seen[-1] for word in ("zero", "one", "three"))
    "".join(seen).encode()


@pytest.mark.parametrize(
    "reply",
    [
        None,
        "text",
        Reply(text=None),
        Reply(text=5),
        Reply(text="x", citations=("ball",)),
        Reply(text="x", data={"a": {1}}),
    ],
)
def test_a_reply_that_cannot_be_graded_is_a_failed_turn(dataset, tmp_path, reply):
    async def odd(turn, session):
        return reply

    flow = play(dataset, tmp_path / "run", flows=[odd]).summary["flows"]["odd"]
    assert (flow["turns"], flow["errors"]) == (6, 6)


@pytest.mark.parametrize("failure", [asyncio.CancelledError, SystemExit, KeyboardInterrupt, RecursionError])
def test_whatever_a_flow_raises_is_counted(dataset, tmp_path, failure):
    async def fatal(turn, session):
        raise failure

    summary = play(dataset, tmp_path / "run", flows=[fatal]).summary
    assert (summary["status"], summary["flows"]["fatal"]["errors"]) == ("complete", 6)


def test_two_runs_cannot_share_a_folder(dataset, tmp_path):
    out = tmp_path / "run"

    async def greedy(turn, session):
        other = al.Lab(model=Scripted(["x"]), datasets=[str(dataset)], embedder="hashing/hashing-64")
        with other, pytest.raises(RunError, match="another run uses"):
            await other.run(out=out, resume=True)
        return Reply(text="x")

    assert play(dataset, out, flows=[greedy], limit=1).summary["flows"]["greedy"]["errors"] == 0


def test_a_run_interrupted_inside_a_step_ends_well(dataset, tmp_path):
    out = tmp_path / "run"
    play(dataset, out, budget={"calls": 1})
    unseal(out)
    ledger = (out / "calls.jsonl").read_text().splitlines(keepends=True)
    cut = [json.loads(line) for line in ledger if '"embedding"' in line][:1]
    cut[0] |= {"conversation": "c2", "id": 5, "parent": 4}
    with (out / "calls.jsonl").open("a") as file:
        file.write(json.dumps(cut[0]) + "\n")
    with al.Lab(
        model=Scripted(["yes"], loop=True),
        datasets=[str(dataset)],
        embedder="hashing/hashing-64",
        flows=["rag_only"],
        budget={"calls": 2},
    ) as lab:
        summary = lab.run_sync(out=out, resume=True).summary
    assert (summary["status"], summary["flows"]["rag_only"]["embedding_calls"]) == ("partial", 3)


@pytest.mark.parametrize(
    "line, text",
    [
        (b'{"id": "a", "turns": [{"user": "x", "user": "y"}]}', "duplicate key 'user'"),
        (b'{"id": "a", "turns": [{"user": "x", "metadata": {"n": NaN}}]}', "NaN"),
        (b'{"id": "a", "turns": [{"user": "\\ud83d"}]}', "surrogate"),
        (b'{"id": "a", "turns": [{"user": "x", "metadata": {"n": ' + b"9" * 5000 + b"}}]}", "not usable"),
        (b"[" * 100_000 + b"]" * 100_000, "not usable"),
        (b'{"id": "a", "turns": [{"user": "x"}], "metadata": {"today": "yesterday"}}', "metadata.today"),
    ],
)
def test_odd_json_is_named_with_its_line(tmp_path, line, text):
    (tmp_path / "conversations.jsonl").write_bytes(b"\xef\xbb\xbf\r\n" + line + b"\r\n")
    with pytest.raises(DatasetError) as caught:
        al.load_dataset(tmp_path)
    assert text in str(caught.value) and caught.value.line == 2


def test_a_budget_in_dollars_stops_where_tokens_are_unknown(dataset, tmp_path, capsys):
    from agentlab.core.messages import Completion, Message

    table = tmp_path / "prices.yaml"
    table.write_text('dated: "2026"\nmodels:\n  scripted: {input: 2, output: 10}\n')
    silent = Completion(message=Message(role="agent", text="x"))
    run = play(dataset, tmp_path / "run", silent, prices=str(table), budget={"usd": 5})
    assert (run.summary["status"], run.summary["turns"]) == ("partial", 1)
    show_run(run)
    assert "replies report no tokens" in capsys.readouterr().out


def test_calls_of_a_phase_are_calls(dataset, tmp_path):
    phases = play(dataset, tmp_path / "run").summary["flows"]["rag_only"]["phases"]
    assert {name: phase["calls"] for name, phase in phases.items()} == {"retrieve": 6, "answer": 6}


def test_history_can_be_switched_off(dataset, tmp_path):
    model = Scripted(["one"], loop=True)
    flows = [{"flow": "rag_only", "history": 0}]
    spec = {"datasets": [str(dataset)], "embedder": "hashing/hashing-64", "limit": 1}
    with al.Lab(model=model, flows=flows, **spec) as lab:
        lab.run_sync(out=tmp_path / "run")
    assert [len(request.messages) for request in model.requests] == [2, 2]
    with pytest.raises(ConfigError, match="history"):
        al.Lab(model=model, flows=[{"flow": "rag_only", "history": -1}], **spec)


def test_epochs_are_checked_for_each_variant(dataset):
    sampled = {"temperature": 0.5, "seed": 1}
    with pytest.raises(ConfigError, match="would be identical"):
        al.Lab(
            model=Scripted([]),
            epochs=2,
            generation=sampled,
            flows=[{"flow": "rag_only", "generation": {"temperature": 0}}],
        )
    al.Lab(model=Scripted([]), epochs=2, flows=[{"flow": "rag_only", "generation": sampled}])


def test_tools_without_documents_have_no_search(tmp_path, own_home):
    conversation = {"id": "c", "tools": [{"name": "clock"}], "turns": [{"user": "What time is it?"}]}
    model = Scripted(["Noon."])
    folder = write_set(tmp_path / "set", [conversation])
    with al.Lab(model=model, datasets=[str(folder)], embedder="hashing/hashing-64", flows=["tools"]) as lab:
        lab.run_sync(out=tmp_path / "run")
    assert "lookup_documents" not in str(model.requests[0].messages)


@pytest.mark.parametrize("out", ["file", "file/below"])
def test_a_file_where_the_run_should_go_is_one_line(dataset, tmp_path, out):
    (tmp_path / "file").write_text("precious")
    with pytest.raises(RunError, match="cannot be a run folder"):
        play(dataset, tmp_path / out)
    assert (tmp_path / "file").read_text() == "precious"


def test_markup_in_names_is_shown_as_it_is(dataset, tmp_path, capsys):
    from agentlab.cli.terminal import show_run

    run = play(dataset, tmp_path / "[/run]", flows=[{"flow": "rag_only", "label": "a[red]b[/x]"}])
    show_run(run)
    assert "a[red]b[/x]" in capsys.readouterr().out
    assert "<img" not in al.open_run(run.path).traces["a[red]b[/x]", "c0", 0]._repr_markdown_()


def test_usage_errors_are_one_line_and_exit_1(capsys):
    for arguments in (["run", "--limit", "abc"], ["run", "--lim", "1"], ["show"], ["fly"], ["trace", "run"], ["-v"]):
        assert main(arguments) == 1
        assert capsys.readouterr().err.count("\n") == 1
