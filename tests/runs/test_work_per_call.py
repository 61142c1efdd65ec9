"""Overhead of a model call, counted in function calls: unlike seconds, they are equal on all machines.

A change that makes a call 20 % dearer fails here. Where it is worth that, this prints the new figures; where a change
makes it cheaper, too: write them down, so that the bar is lower from then on.

    PYTHONPATH=tests python tests/runs/test_work_per_call.py
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from support import fake_openai

TURNS = 4
CONVERSATIONS = 15
COUNTED = {"live": 4800, "replay": 1150}
"""Function calls for each model call in the thread that plays: Python's and C's, on CPython 3.11."""
MORE = 1.2


class Talk:
    """Flow of one call with the whole history; `idle` empty calls simulate additional work of the harness."""

    name = "talk"

    def __init__(self, idle: int = 0) -> None:
        self._idle = idle

    async def respond(self, turn: Any, session: Any) -> al.Reply:
        for _ in range(self._idle):
            nothing()
        messages = [*session.load_conversation(), al.Message(role="user", text=turn.text)]
        completion = await session.complete(messages)
        session.save_message("user", turn.text)
        session.save_message("agent", completion.text)
        return al.Reply(text=completion.text)


def nothing() -> None:
    pass


def streamed(*pieces: str) -> bytes:
    """Return a streamed response as one packet, so that the number of packets does not depend on the server's speed."""
    chunks: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces]
    chunks += [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]
    chunks += [{"choices": [], "usage": fake_openai.USAGE}]
    return b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks) + b"data: [DONE]\n\n"


@contextlib.contextmanager
def server() -> Iterator[str]:
    """A server in a thread of its own, whose work is not counted."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    whole, results = streamed(*(f"word {number} " for number in range(8))), list[str]()

    async def serve() -> None:
        async with fake_openai.serving(lambda body: {"whole": whole}) as fake:
            results.append(fake.base_url)
            ready.set()
            await stop.wait()

    stop = asyncio.Event()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    ready.wait(10)
    try:
        yield results[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def counted(play: Callable[[], Any]) -> int:
    """Return the number of function calls in threads named `agentlab`, which play the conversations."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        if event in ("call", "c_call") and threading.current_thread().name == "agentlab":
            calls += 1

    threading.setprofile(count)
    try:
        play()
    finally:
        threading.setprofile(None)
    return calls


def per_call(folder: Path, mode: str, idle: int = 0) -> float:
    """Return the difference of two runs of different lengths, so that work done once a run is not counted."""
    results = []
    for number in (1, 2):
        data = folder / f"data{number}"
        data.mkdir(parents=True, exist_ok=True)
        turns = [{"user": f"question {turn}"} for turn in range(TURNS)]
        rows = [{"id": f"c{n:03}", "turns": turns} for n in range(CONVERSATIONS * number)]
        (data / "conversations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        spec = {
            "datasets": [str(data)],
            "embedder": "hashing/hashing-64",
            "recordings": str(folder / f"recordings{number}"),
            "flows": [Talk(idle)],
            "model": "openai/any",
        }
        with al.Lab(**spec, mode="record") as lab:
            lab.run_sync(out=folder / f"{mode}-{number}-recorded")
        with al.Lab(**spec, mode=mode) as lab:
            results.append(counted(lambda lab=lab, out=folder / f"{mode}-{number}": lab.run_sync(out=out)))
    return (results[1] - results[0]) / (CONVERSATIONS * TURNS)


@pytest.mark.parametrize("mode", COUNTED)
def test_a_model_call_costs_what_it_did(tmp_path, own_home, monkeypatch, mode):
    with server() as address:
        monkeypatch.setenv("OPENAI_BASE_URL", address)
        calls = per_call(tmp_path, mode)
    assert calls <= COUNTED[mode] * MORE, f"{calls:.0f} function calls for a model call, {COUNTED[mode]} before"


def test_additional_function_calls_are_counted(tmp_path, own_home, monkeypatch):
    with server() as address:
        monkeypatch.setenv("OPENAI_BASE_URL", address)
        before, after = (per_call(tmp_path / str(idle), "replay", idle) for idle in (0, 1000))
    assert after - before == pytest.approx(1000, abs=50)  # how many rows are written together is a matter of speed


if __name__ == "__main__":
    import os

    with server() as address, tempfile.TemporaryDirectory() as scratch:
        os.environ["OPENAI_BASE_URL"] = address
        print({mode: round(per_call(Path(scratch) / mode, mode)) for mode in COUNTED})
