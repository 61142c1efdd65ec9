"""`agentlab view`: the page of a run that goes on, served on this machine alone, under its own name alone."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from agentlab.cli.parser import main
from agentlab.evals.report.live import Watched
from agentlab.evals.report.server import View
from support.places import ROOT
from support.small_runs import Answering, cut, go_on, play, write_set


@pytest.fixture
def run(tmp_path: Path, own_home: Path) -> Path:
    flows = Answering("right"), Answering("wrong", wrong=[("c00", 0), ("c01", 0)], failing=[("c02", 1)])
    return play(write_set(tmp_path / "set", 3), tmp_path / "run", *flows).path


def test_a_run_that_goes_on_shows_the_turns_that_are_there_with_their_scores(run):
    data = Watched(cut(run, 5)).data()
    assert data["live"]["says"].startswith("Not ended yet: 5 of 12 turns, the last at ")
    assert sum(sum(play["there"]) if isinstance(play["there"], list) else 3 for play in data["plays"]) >= 5
    names = [measure["name"] for measure in data["measures"]]
    assert "answer_f1" in names and "semantic_similarity" not in names, "an embedder waits for the end"
    assert data["verdict"]["kind"] == "undecided" and data["pairs"] == []


def test_scores_of_a_run_that_goes_on_are_those_it_ends_with(run):
    whole, going_on = Watched(run).data(), Watched(cut(run, 12)).data()
    assert whole["live"]["says"] == "" and going_on["live"]["says"]
    for name in ("answer_f1", "failed", "llm_calls"):
        columns = [
            [play["values"][[m["name"] for m in data["measures"]].index(name)] for play in data["plays"]]
            for data in (whole, going_on)
        ]
        assert columns[0] == columns[1]


def test_a_run_without_a_turn_yet_has_a_page(run):
    data = Watched(cut(run, 0)).data()
    assert data["rows"]["turn"] == [] and data["live"]["says"] == "Not ended yet: 0 of 12 turns; 0 failed."


@pytest.fixture
async def view(run):
    view = View(Watched(cut(run, 4)))
    await view.start()
    yield view
    await view.close()


async def test_what_is_written_is_told_and_a_page_that_knows_it_waits(view, run):
    async with aiohttp.ClientSession() as client:
        async with client.get(view.url) as answer:
            page = await answer.text()
            assert answer.status == 200 and "connect-src 'self'" in page
        version = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])["live"]["version"]
        more = asyncio.create_task(client.get(f"{view.url}data", params={"after": version}))
        done, _ = await asyncio.wait([more], timeout=0.5)
        assert not done
        go_on(run, view.path, (4, 9))
        answer = await asyncio.wait_for(more, 20)
        assert (await answer.json())["live"]["says"].startswith("Not ended yet: 9 of 12")
        for name in ("scores.jsonl", "turns.jsonl", "summary.json"):
            shutil.copy(run / name, view.path / name)
        for _ in range(20):  # each file is a change of its own
            async with client.get(f"{view.url}data", params={"after": version}) as answer:
                told = await answer.json()
            version = told["live"]["version"]
            if told["live"]["says"] == "":
                break
        assert told["live"]["says"] == "" and len(told["pairs"]) == 1


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:{port}.evil.example"])
async def test_another_name_in_the_host_header_is_refused(view, host):
    port = view.url.split(":")[2].strip("/")
    async with aiohttp.ClientSession() as client:
        for path in ("", "data"):
            async with client.get(view.url + path, headers={"Host": host.format(port=port)}) as answer:
                assert answer.status == 403 and "answer_f1" not in await answer.text()
        async with client.get(view.url, headers={"Host": f"localhost:{port}"}) as answer:
            assert answer.status == 200 and answer.headers["X-Frame-Options"] == "DENY"
            assert "Access-Control-Allow-Origin" not in answer.headers
        for method, path in (("POST", "data"), ("GET", "turns.jsonl"), ("GET", "../run.json")):
            async with client.request(method, view.url + path) as answer:
                assert answer.status in (404, 405)


def test_ctrl_c_ends_it_without_a_word_and_nothing_is_opened(run):
    command = [sys.executable, "-m", "agentlab", "view", str(run)]
    # A browser that would be opened writes this file.
    browser = run.parent / "opened"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "BROWSER": f"touch {browser} %s"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        assert server.stdout and server.stderr
        assert re.match(r"http://127\.0\.0\.1:\d+/ ", server.stdout.readline())
        server.send_signal(signal.SIGINT)
        assert server.wait(20) == 0
        assert server.stderr.read() == "" and not browser.exists()


@pytest.mark.parametrize("wrong", ["nowhere", "port"])
async def test_what_cannot_be_served_is_one_line(view, run, capsys, wrong, monkeypatch):
    arguments = ["nowhere"] if wrong == "nowhere" else [str(run), "--port", view.url.split(":")[2].strip("/")]
    assert await asyncio.to_thread(main, ["view", *arguments]) == 1
    said = capsys.readouterr().err
    assert said.startswith("agentlab: ") and said.count("\n") == 1
    assert "--port 0 takes a free one" in said or "is not a run folder" in said


def test_without_a_name_it_is_the_newest_run_and_without_a_run_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["view"]) == 1
    assert "there is no run in results/" in capsys.readouterr().err
