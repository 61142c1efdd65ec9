"""A replay reaches no model: connections of a flow fail with one line, whatever client opens them."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import agentlab as al

REFUSED = "a replay opens no connection, but the flow tried 127.0.0.1:"


class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.hits += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"red")

    def log_message(self, *arguments):
        pass


class Server(ThreadingHTTPServer):
    hits = 0

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_address[1]}/"


@pytest.fixture
def server():
    with Server(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def fetch(address):
    with urllib.request.urlopen(address, timeout=5) as response:
        return response.read().decode()


async def in_the_task(address):
    return fetch(address)


async def in_a_worker_thread(address):
    return await asyncio.to_thread(fetch, address)


async def over_asyncio(address):
    reader, writer = await asyncio.open_connection(*address.removeprefix("http://").strip("/").split(":"))
    writer.write(b"GET / HTTP/1.0\r\n\r\n")
    text = (await reader.read()).decode().splitlines()[-1]
    writer.close()
    return text


async def in_a_group(address):
    async with asyncio.TaskGroup() as group:
        task = group.create_task(over_asyncio(address))
    return task.result()


async def in_a_pool(address):
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor() as pool:
        return pool.submit(fetch, address).result()


async def swallowing(address):
    try:
        return fetch(address)
    except Exception as failure:
        return f"swallowed {failure}"


def play(tmp_path, name, client, address, mode):
    async def flow(turn, session):
        completion = await session.complete(turn.text)
        return al.Reply(text=completion.text + await client(address))

    flow.__name__ = "flow"
    rows = [{"id": f"c{n}", "turns": [{"user": f"{n}?", "reference_answers": ["red"]}]} for n in range(3)]
    if not (data := tmp_path / "set").exists():
        data.mkdir()
        (data / "conversations.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    spec = {"name": "s", "recordings": str(tmp_path / "recordings"), "embedder": "hashing/hashing-64"}
    model = al.Scripted(["blue "], loop=True)
    with al.Lab(flows=[flow], datasets=[str(data)], model=model, mode=mode, concurrency=2, **spec) as lab:
        return lab.run_sync(out=tmp_path / name)


CLIENTS = [in_the_task, in_a_worker_thread, over_asyncio, in_a_group, in_a_pool, swallowing]


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_connections_of_a_flow_fail_in_a_replay_and_only_there(tmp_path, server, client):
    recorded = play(tmp_path, "recorded", client, server.address, "auto")
    assert [row.reply.text for row in recorded.turn_rows()] == ["blue red"] * 3 and server.hits == 3
    replayed = play(tmp_path, "replayed", client, server.address, "replay")
    assert server.hits == 3, "no request reached the server"
    for row in replayed.turn_rows():
        assert row.reply is None and REFUSED in row.error and "\n" not in row.error
    play(tmp_path, "again", client, server.address, "auto")
    assert server.hits == 6, "the guard ends with the replay"


def test_other_threads_of_the_process_may_connect_during_a_replay(tmp_path, server):
    begin, pages = threading.Event(), []

    def browse():
        begin.wait(10)
        pages.append(fetch(server.address))

    other = threading.Thread(target=browse)
    other.start()

    async def waiting(address):
        begin.set()
        await asyncio.to_thread(other.join, 10)
        return "."

    play(tmp_path, "recorded", quiet, server.address, "auto")
    replayed = play(tmp_path, "replayed", waiting, server.address, "replay")
    assert pages == ["red"] and not any(row.error for row in replayed.turn_rows())


async def quiet(address):
    return "."
