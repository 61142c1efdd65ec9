"""A chat, stopped, reset and closed at any moment, mixes no turns and loses no message."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import warnings

import numpy as np
import pytest

import agentlab as al
from agentlab.core.errors import RecordingError
from agentlab.core.messages import Reply, UserTurn
from agentlab.session.session import Session


class Flow:
    """Flow that streams a word when the test allows it, and leaves a background task."""

    name = "flow"

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_store = asyncio.Event()
        self.storing = asyncio.Event()
        self.under_way = 0
        self.most = 0
        self.stored: list[str] = []

    async def respond(self, turn: UserTurn, session: Session) -> Reply:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            session.save_message("user", turn.text)
            self.started.set()
            if turn.text == "wait":
                await self.may_end.wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.02)  # what a flow does to put things in order
            session.save_message("agent", "broken off")
            raise
        finally:
            self.under_way -= 1
        session.background(self._store(turn.text), "store")
        reply = f"{len(session.load_conversation())} messages"
        session.save_message("agent", reply)
        return Reply(text=reply)

    async def _store(self, text: str) -> None:
        self.storing.set()
        if text == "unwritable":
            raise RecordingError("the disk is full")
        if text == "slow":
            await self.may_store.wait()
        self.stored.append(text)


@pytest.fixture
def talking(own_home):
    flow = Flow()
    with al.Lab(flows=[flow], model=al.Scripted(["x"], loop=True), embedder="hashing/hashing-64") as lab:
        yield flow, lab.chat(documents=()), lab


async def on(lab: al.Lab, event: asyncio.Event) -> None:
    await asyncio.wrap_future(lab.loop.submit(event.wait()))


async def test_next_message_waits_for_the_stopped_turn(talking):
    flow, chat, lab = talking
    first = asyncio.create_task(chat.say("wait"))
    await on(lab, flow.started)
    chat.stop()
    assert (await chat.say("next")).text == "3 messages"
    assert flow.most == 1
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_stop_does_not_lose_what_the_last_turn_left_to_be_done(talking):
    flow, chat, lab = talking
    await chat.say("slow")
    await on(lab, flow.storing)
    second = asyncio.create_task(chat.say("second"))
    await asyncio.sleep(0.02)
    chat.stop()
    with pytest.raises(asyncio.CancelledError):
        await second
    lab.loop.submit(_set(flow.may_store)).result()
    await chat.say("third")
    assert flow.stored[0] == "slow"


async def _set(event: asyncio.Event) -> None:
    event.set()


async def test_reset_cancels_the_reply_before_the_new_conversation(talking):
    flow, chat, lab = talking
    first = asyncio.create_task(chat.say("wait"))
    await on(lab, flow.started)
    await asyncio.to_thread(chat.reset_sync)
    assert (await chat.say("fresh")).text == "1 messages"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_close_cancels_a_running_reply_and_finishes_background_work(talking):
    flow, chat, lab = talking
    await chat.say("told")
    first = asyncio.create_task(chat.say("wait"))
    await on(lab, flow.started)
    await asyncio.sleep(0.02)
    await asyncio.to_thread(lab.close)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(first, 5)
    assert flow.stored == ["told"]


def test_failed_background_work_is_reported_once_and_the_chat_continues(talking):
    flow, chat, _ = talking
    chat.say_sync("unwritable")
    with pytest.raises(RecordingError):
        chat.say_sync("lost")
    assert chat.say_sync("next").text == "3 messages"
    chat.reset_sync()
    assert flow.stored == ["next"]


def test_a_chat_that_cannot_be_closed_does_not_keep_the_lab_open(talking):
    _, chat, lab = talking
    chat.say_sync("unwritable")
    lab.close()
    assert not lab.loop.is_running


def test_close_error_does_not_keep_the_rest_open(own_home):
    class Broken(al.Scripted):
        async def close(self) -> None:
            raise OSError("the server does not answer")

    closed = []

    class Embedder:
        name, dimensions = "mine", 8

        async def embed(self, texts):
            return np.ones((len(texts), 8), dtype=np.float32) / np.sqrt(8)

        async def close(self):
            closed.append(self.name)

    with al.Lab(flows=[Flow()], model=Broken(["x"]), embedder=Embedder()) as lab:
        lab.loop.run_coroutine(lab.bench.model(lab.bench.spec.model))
        lab.chat(documents=()).say_sync("hello")
    lab.close()
    assert closed == ["mine"] and not lab.loop.is_running


def test_a_chat_that_is_closed_is_let_go(talking):
    flow, chat, lab = talking
    chat.say_sync("told")
    lab.loop.run_coroutine(chat.close())
    assert flow.stored == ["told"] and not lab._chats


@pytest.fixture
def interrupt():
    """Ctrl-C once an event has come."""

    def when(lab: al.Lab, event: asyncio.Event) -> None:
        def press() -> None:
            try:
                lab.loop.submit(event.wait()).result(10)
            finally:
                signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

        threading.Thread(target=press).start()

    # What a shell runs in the background ignores the signal, and so would these tests.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield when
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_is_raised_when_the_reply_has_put_its_things_in_order(talking, interrupt):
    flow, chat, lab = talking
    interrupt(lab, flow.started)
    with pytest.raises(KeyboardInterrupt):
        chat.say_sync("wait")
    assert flow.under_way == 0
    assert [message.text for message in chat.log.messages] == ["wait", "broken off"]


def test_an_interrupt_while_answers_are_graded_leaves_no_thread_behind(own_home, tmp_path, interrupt):
    class Endless:
        name, dimensions = "endless", 8

        def __init__(self) -> None:
            self.received = asyncio.Event()

        async def embed(self, texts):
            self.received.set()
            await asyncio.Event().wait()

    data = tmp_path / "set"
    data.mkdir()
    (data / "conversations.jsonl").write_text('{"id": "c", "turns": [{"user": "q", "reference_answers": ["a"]}]}\n')
    embedder = Endless()
    # Tests before this one may have left a lab to the garbage collector.
    others = set(threading.enumerate())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with al.Lab(
            flows=[Flow()], model=al.Scripted(["x"]), embedder=embedder, datasets=[str(data)], scorers=["similarity"]
        ) as lab:
            interrupt(lab, embedder.received)
            with pytest.raises(KeyboardInterrupt):
                lab.run_sync(out=tmp_path / "run")
        gc.collect()
    left = set(threading.enumerate()) - others
    assert not [thread for thread in left if thread.name.startswith(("asyncio", "agentlab"))]


def test_threads_that_start_together_share_one_loop(own_home):
    async def loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    with al.Lab(flows=[Flow()], model=al.Scripted(["x"]), embedder="hashing/hashing-64") as lab:
        together = threading.Barrier(8)
        results: list[asyncio.AbstractEventLoop] = []

        def ask() -> None:
            together.wait()
            results.append(lab.loop.run_coroutine(loop()))

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == 8 and len(set(map(id, results))) == 1
