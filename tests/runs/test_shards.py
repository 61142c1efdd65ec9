"""Sharded runs: the same summary to the byte, for any executor and after any kill."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.errors import ConfigError, RunError
from agentlab.data.datasets import load_dataset
from agentlab.data.lint import lint
from agentlab.lab.run import Run, open_run
from support.executors import AtOnce, under_names
from support.memory_sets import write as write_memory_set
from support.replays import FLOWS, ForbiddenModel, NeverEmbeds, VaryingModel, lab, play, replay
from support.small_runs import Answering, write_set

DIES_ONCE = """
import os, signal
from pathlib import Path
import agentlab as al

MARK = Path({mark!r})


async def respond(turn, session):
    text = (await session.complete(turn.text)).text
    if session.trace.conversation == "c1" and turn.text == "Who won?" and not MARK.exists():
        MARK.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return al.Reply(text=text)
"""


def shared(dataset: Path, out: Path, executor: str, workers: int = 2, resume: bool = False, **spec: Any) -> Run:
    with lab(dataset, "replay", ForbiddenModel(), NeverEmbeds(), **{"flows": FLOWS, **spec}) as laboratory:
        return laboratory.run_sync(out=out, executor=executor, workers=workers, resume=resume)


def summary(run: Run) -> bytes:
    """Return a summary without its checksums, which name the files of this run with their times and shards."""
    text, seal, _ = (run.path / "summary.json").read_bytes().partition(b'\n  "seal": ')
    assert seal, "every ended run has checksums"
    return text


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> AtOnce:
    return under_names(monkeypatch)


@pytest.fixture
def recorded(dataset: Path, tmp_path: Path) -> Path:
    play(dataset, "record", tmp_path / "recorded", flows=FLOWS)
    return dataset


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_shards_give_the_summary_and_the_rows_of_one_process(recorded, tmp_path, workers):
    alone = replay(recorded, tmp_path / "alone" / "run", flows=FLOWS)
    run = shared(recorded, tmp_path / "shared" / "run", "at once", workers)
    assert summary(run) == summary(alone)
    assert run.turn_values == alone.turn_values
    assert {play: trace.steps() for play, trace in run.traces.items()} == {
        play: trace.steps() for play, trace in alone.traces.items()
    }
    assert len(list((run.path / "shards").glob("*/run.json"))) == workers


def dying(dataset: Path, tmp_path: Path) -> tuple[list[str], Path]:
    """A flow that is recorded, and kills its process once in a replay."""
    mark, flow = tmp_path / "mark", tmp_path / "dies.py"
    flow.write_text('"""Dies once."""' + DIES_ONCE.format(mark=str(mark)))
    mark.touch()
    flows = [str(flow)]
    play(dataset, "record", tmp_path / "recorded", flows=flows)
    return flows, mark


@pytest.mark.parametrize(
    "executor, workers",
    [("processes", 2), ("dask", 2), pytest.param("dask", 1, marks=pytest.mark.slow)],
)
def test_a_worker_that_is_killed_in_the_middle_changes_nothing(dataset, tmp_path, executor, workers):
    if executor == "dask":
        pytest.importorskip("distributed")
    flows, mark = dying(dataset, tmp_path)
    alone = replay(dataset, tmp_path / "alone" / "run", flows=flows)
    mark.unlink()
    run = shared(dataset, tmp_path / "shared" / "run", executor, workers, flows=flows)
    assert mark.exists() and summary(run) == summary(alone)
    takes = {row.take for row in run.folder.turns()}
    assert takes == {0, 1}, "finished trials stay"


STRAYS = '''"""In c01 a task continues after the last turn has ended, while c03 waits for it."""
import asyncio
import agentlab as al

TASKS = []


async def respond(turn, session):
    async def later():
        await asyncio.sleep(0.02)
        await session.complete("late")

    while turn.text == "c03 1" and not TASKS:
        await asyncio.sleep(0)
    await asyncio.gather(*TASKS)
    if turn.text == "c01 1":
        TASKS.append(asyncio.create_task(later()))
    return al.Reply(text=(await session.complete(turn.text)).text)
'''


def test_summary_has_quarantine_and_waits_of_workers(tmp_path, own_home):
    (tmp_path / "strays.py").write_text(STRAYS)
    (tmp_path / "replies.yaml").write_text("loop: true\nreplies: [blue]\n")
    spec = {"datasets": [str(write_set(tmp_path / "colours", 4))], "flows": [str(tmp_path / "strays.py")]}
    spec |= {"embedder": "hashing/hashing-64", "model": f"scripted/{tmp_path / 'replies.yaml'}", "concurrency": 4}
    spec |= {"limits": {"scripted/*": {"requests": 6000}}}
    runs = {}
    for name, options in (("alone", {}), ("shared", {"executor": "at once", "workers": 2})):
        with al.Lab(**spec) as laboratory:
            runs[name] = laboratory.run_sync(out=tmp_path / name, **options)
    alone, shared_out = (runs[name].result for name in ("alone", "shared"))
    assert [each.conversation for each in shared_out.quarantined] == ["c01"]
    assert shared_out.quarantined == alone.quarantined and shared_out.status == "partial"
    (waited,), (waited_alone,) = shared_out.limits.values(), alone.limits.values()
    assert waited["answered"] == waited_alone["answered"] == 9, "the late call too"
    assert [worker["answered"] for worker in waited["workers"]] == [4, 5]


def test_interrupted_run_continues(recorded, tmp_path):
    class Killed(BaseException):
        pass

    def stop(progress):
        assert progress.done <= progress.total, "what was restarted does not count twice"
        if progress.done or not progress.total:
            raise Killed

    def interrupted(resume: bool = False) -> None:
        with (
            lab(recorded, "replay", ForbiddenModel(), NeverEmbeds(), flows=FLOWS) as laboratory,
            pytest.raises(BaseException),  # noqa: B017
        ):
            laboratory.run_sync(out=out, executor="at once", workers=2, on_progress=stop, resume=resume)

    out = tmp_path / "shared" / "run"
    interrupted()
    with pytest.raises(RunError, match="was started with --executor; resume it with --executor"):
        replay_on(recorded, out)
    run = shared(recorded, out, "at once", workers=4, resume=True)
    assert summary(run) == summary(replay(recorded, tmp_path / "alone" / "run", flows=FLOWS))
    assert len(list((out / "shards").glob("*/run.json"))) == 2, "the number of shards stays"
    interrupted(resume=True)
    assert not (out / "summary.json").exists(), "a checksum would not hold for what workers write after the end"
    shared(recorded, out, "at once", resume=True)
    assert summary(run) == summary(open_run(tmp_path / "alone" / "run")) and open_run(out).folder.has_checksums
    whole = tmp_path / "alone" / "run"
    with pytest.raises(RunError, match="was started without --executor"):
        shared(recorded, whole, "at once", resume=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "executor, started",
    [("processes", "shards"), ("processes", "shards/*/turns.jsonl"), ("dask", "shards/*/turns.jsonl")],
    ids=["processes start", "processes play", "dask plays"],  # what Dask says while it starts is its own
)
def test_three_ctrl_c_print_one_line_and_resume_continues(tmp_path, own_home, executor, started):
    if executor == "dask":
        pytest.importorskip("distributed")
    write_set(tmp_path / "rules", 8, 3)
    (tmp_path / "slow.py").write_text(
        '"""Takes its time."""\nimport asyncio\nimport agentlab as al\n\n'
        'async def respond(turn, session):\n    await asyncio.sleep(1)\n    return al.Reply(text="so far")\n'
    )
    (tmp_path / "replies.yaml").write_text("loop: true\nreplies: [So far.]\n")
    out = tmp_path / "run"
    given = ["--dataset", "rules", "--flow", "slow.py", "--model", "scripted/replies.yaml", "--set", "scorers=[answer]"]
    given += ["--set", "embedder=hashing/hashing-64", "--set", "concurrency=8", "--out", str(out)]
    command = [sys.executable, "-m", "agentlab", "run", *given, "--executor", executor, "--workers", "2"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        while not any(out.glob(started)) and process.poll() is None:
            time.sleep(0.05)
        for _ in range(3):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            time.sleep(0.1)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "Traceback" not in err and "Warning" not in err
    assert err.splitlines()[-1].startswith("agentlab: interrupted") and not (out / "summary.json").exists()
    subprocess.run([*command, "--resume"], cwd=tmp_path, check=True, capture_output=True)
    assert open_run(out).summary["turns"] == 24


def replay_on(dataset: Path, out: Path) -> Run:
    with lab(dataset, "replay", ForbiddenModel(), NeverEmbeds(), flows=FLOWS) as laboratory:
        return laboratory.run_sync(out=out, resume=True)


def test_limits_of_a_spec_are_split_among_workers(recorded, tmp_path, at_once):
    limits = {"scripted": {"requests": 100, "concurrent": 6}}
    budget = {"calls": 99, "tokens": 10**6, "minutes": 60}
    shared(recorded, tmp_path / "run", "at once", workers=4, concurrency=10, budget=budget, limits=limits)
    results = [shard.spec for shard in at_once.given]
    assert [spec.concurrency for spec in results] == [3] * 4
    assert {(spec.limits["scripted"].requests, spec.limits["scripted"].concurrent) for spec in results} == {(25, 1)}
    assert {(spec.budget.calls, spec.budget.tokens, spec.budget.minutes) for spec in results} == {(24, 250_000, 60)}


def test_questions_about_one_memory_stay_together(tmp_path, own_home):
    data = write_memory_set(tmp_path / "told")
    spec = {"datasets": [str(data)], "flows": [{"flow": "chatbox", "memory": "sqlite"}], "ingest": "flow"}
    spec |= {"embedder": "hashing/hashing-64"}
    results = []
    for name, options in (("alone", {}), ("shared", {"executor": "at once", "workers": 3})):
        with al.Lab(model=al.Scripted(["Well."], loop=True), **spec) as laboratory:
            results.append(laboratory.run_sync(out=tmp_path / name / "run", **options).summary["flows"]["chatbox"])
    alone, run = ({name: flow[name] for name in ("turns", "llm_calls", "ingest")} for flow in results)
    for flow in (alone, run):
        flow["ingest"] = {name: value for name, value in flow["ingest"].items() if name != "seconds"}
    assert run == alone and run["ingest"]["turns"] == 5


def test_long_conversations_in_workers_end_with_the_budget_too(tmp_path, own_home):
    data = write_set(tmp_path / "set", conversations=20, turns=40)
    spec = {"flows": [Answering(calls=bool)], "budget": {"calls": 30}, "concurrency": 8}
    with lab(data, "live", al.Scripted(["So."], loop=True), **spec) as laboratory:
        run = laboratory.run_sync(out=tmp_path / "run", executor="threads", workers=2)
    assert run.summary["status"] == "partial"
    assert 30 <= run.summary["flows"]["answering"]["llm_calls"] <= 30 * 1.1 + 8


async def test_cancelled_run_continues_at_once(tmp_path, own_home):
    data = write_set(tmp_path / "set", conversations=40, turns=2)
    given = {"out": tmp_path / "run", "workers": 2}
    with lab(data, "live", VaryingModel(), flows=[Answering(calls=bool)]) as laboratory:
        started_event = asyncio.Event()
        loop = asyncio.get_running_loop()
        run = laboratory.run(
            **given, executor="threads", on_progress=lambda p: p.done and loop.call_soon_threadsafe(started_event.set)
        )
        first = asyncio.create_task(run)
        await started_event.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        texts: list[Any] = []
        result = await laboratory.run(**given, executor="threads", resume=True, on_progress=texts.append)
    assert (result.summary["status"], result.summary["turns"]) == ("complete", 80)
    assert texts[-1].done == texts[-1].total < 80, "what was done before is not done again"
    assert not [*(tmp_path / "run").rglob("progress.json")]


@pytest.mark.parametrize("options", [{}, {"executor": "at once", "workers": 2}])
def test_conversation_without_a_scored_turn_blocks_nothing(tmp_path, own_home, options):
    data = write_set(tmp_path / "set", conversations=1)
    with (data / "conversations.jsonl").open("a") as file:
        file.write(json.dumps({"id": "told", "turns": [{"user": "Hi", "scored": False, "reference_answers": ["Ho"]}]}))
    with lab(data, "live", VaryingModel(), flows=[Answering(calls=bool)]) as laboratory:
        for resume in (False, True):
            run = laboratory.run_sync(out=tmp_path / "run", resume=resume, **options)
            assert (run.summary["status"], run.summary["turns"]) == ("complete", 2)
    assert "told: no turn is scored" in " ".join(lint(load_dataset(data)))


def test_one_budget_is_shared_by_all(tmp_path, own_home):
    data = write_set(tmp_path / "set", conversations=40, turns=1)
    with lab(data, "live", VaryingModel(), flows=[Answering(calls=bool)], budget={"calls": 5}) as laboratory:
        run = laboratory.run_sync(out=tmp_path / "run", executor="threads", workers=2)
        assert run.summary["status"] == "partial"
        calls = run.summary["flows"]["answering"]["llm_calls"]
        assert calls == 4, "two of each"
        again = laboratory.run_sync(out=tmp_path / "run", executor="threads", workers=2, resume=True)
        assert again.summary["flows"]["answering"]["llm_calls"] == calls, "what was spent before counts"
        with pytest.raises(ConfigError, match="the budget: calls is 5, too few for 6 workers"):
            laboratory.run_sync(out=tmp_path / "more", executor="threads", workers=6)


@pytest.mark.parametrize(
    "options, text",
    [
        ({"executor": "proceses"}, "Did you mean 'processes'?"),
        ({"executor": "processes", "workers": 0}, "use at least 1"),
        ({"executor": "processes", "scheduler": "tcp://x:1"}, "add --executor dask"),
        ({"executor": "at once", "on_event": print}, "run without --executor"),
    ],
)
def test_an_executor_that_cannot_be_is_refused_before_anything_is_written(recorded, tmp_path, options, text):
    with lab(recorded, "replay", ForbiddenModel(), NeverEmbeds()) as laboratory, pytest.raises(ConfigError, match=text):
        laboratory.run_sync(out=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_an_object_that_cannot_be_sent_is_named_in_a_line(dataset, tmp_path):
    model = al.Scripted([lambda request: "x"], loop=True)
    with lab(dataset, "live", model) as laboratory, pytest.raises(ConfigError, match="cannot be sent") as refused:
        laboratory.run_sync(out=tmp_path / "run", executor="at once")
    assert "\n" not in str(refused.value)


def test_failed_shard_is_one_line_and_the_run_continues(recorded, tmp_path, capsys):
    spec = tmp_path / "spec.yaml"
    about = {"datasets": [str(recorded)], "flows": ["rag_only"], "embedder": "hashing/hashing-64"}
    spec.write_text(json.dumps({**about, "model": "scripted/no"}))
    run = ["run", str(spec), "--executor", "processes", "--workers", "1", "--out", str(tmp_path / "run")]
    assert main([*run, "--mode", "replay", "--recordings", str(tmp_path / "none")]) == 1
    printed = capsys.readouterr().err
    assert "Traceback" not in printed and "there are no recordings" in printed
