"""Cancelled turns of a chat: a repeated message replays, and /save names turns that may not."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

import agentlab as al
from agentlab.core.errors import Refused
from agentlab.core.messages import Completion, Request
from agentlab.core.protocols import Emit
from agentlab.models.scripted import Scripted, ScriptedReply

STORES = """
import asyncio, signal, threading
import agentlab as al


async def respond(turn, session):
    session.save_message("user", turn.text)
    if turn.text == "Wait":
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        await asyncio.sleep(60)
    completion = await session.complete(turn.text)
    session.save_message("agent", completion.text)
    return al.Reply(text=completion.text)
"""


class Hangs(Scripted):
    """Does not answer its second request until it is cancelled."""

    def __init__(self, reply: ScriptedReply) -> None:
        super().__init__([reply], loop=True)
        self.received, self.hung = 0, threading.Event()

    async def complete(self, request: Request, emit: Emit) -> Completion:
        self.received += 1
        if self.received == 2:
            self.hung.set()
            await asyncio.sleep(60)
        return await super().complete(request, emit)


def count_misses(folder: Path, model: Scripted, flow: str) -> int:
    """Return the number of calls that a replay misses, after a chat whose second turn was interrupted and repeated."""
    given = {"flows": [flow], "embedder": "hashing/hashing-64", "mode": "record", "recordings": str(folder / "rec")}
    with al.Lab(model=model, **given) as lab:
        chat = lab.chat(documents=(), database=folder / "chat.sqlite", memory=folder / "memory")
        chat.say_sync("How wide?")
        running = chat.submit("How high?")
        if isinstance(model, Hangs):
            assert model.hung.wait(30)
            chat.stop()
        with pytest.raises((CancelledError, Refused)):
            lab.loop.result_of(running)
        chat.say_sync("How high?")
        chat.say_sync("Thanks for both.")
        chat.save(folder / "saved")
    with al.Lab(folder / "saved" / "spec.yaml", model=Scripted([])) as lab:
        return lab.run_sync(out=folder / "again").result.recordings.missing


@pytest.mark.parametrize("flow", ["rag_only", "tools"])
def test_message_repeated_after_ctrl_c_replays(tmp_path, own_home, flow):
    """The repeated call must not be recorded as a second occurrence, since a replay makes it only once."""
    assert count_misses(tmp_path, Hangs("seven"), flow) == 0


def test_message_repeated_after_a_refusal_replays(tmp_path, own_home):
    assert count_misses(tmp_path, Scripted(["seven", Refused("no quota", "scripted"), "seven", "bye"]), "rag_only") == 0


def test_save_names_no_turn_of_a_chat_that_replays_whole(typed):
    Path("stores.py").write_text(STORES)
    screen = typed("./stores.py", ["Hello", "Wait", "/save early", "And now?", "/save late"], ["Hi."])
    assert "late/spec.yaml" in screen and "does not replay whole" not in screen
