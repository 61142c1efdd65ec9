"""Ctrl-C in `agentlab chat`: it cancels the turn, however often and whenever it is pressed, and never the chat."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

from agentlab.cli.chat_screen import Screen
from agentlab.core.events import ModelCall
from agentlab.core.messages import Request, as_messages
from agentlab.core.stream import ReplyRetracted, ReplyText, StepEnded, StepStarted
from agentlab.lab.chat import Chat

IMPATIENT = """
import asyncio, signal, threading
import agentlab as al


async def press():
    for _ in range(3):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        await asyncio.sleep(0.01)


async def respond(turn, session):
    if turn.text == "Wait":
        try:
            await press()
            await asyncio.sleep(60)
        finally:
            await press()
    return al.Reply(text="answered: " + turn.text)
"""
SLOW = """
import asyncio
import agentlab as al


async def respond(turn, session):
    if turn.text == "Slow":
        await asyncio.sleep(0.05)
        session.notify("still", "at work")
    return al.Reply(text="answered: " + turn.text)
"""

LATE = """
import asyncio, signal, threading
import agentlab as al


async def afterwards():
    await asyncio.sleep(3)  # the chat has shown its receipts by then, and ends
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    await asyncio.sleep(60)


async def respond(turn, session):
    session.background(afterwards(), "keep it")
    return al.Reply(text="answered")
"""


def test_ctrl_c_pressed_many_times_breaks_off_the_turn_and_not_the_chat(typed):
    Path("impatient.py").write_text(IMPATIENT)
    screen = typed("./impatient.py", ["Wait", "Wait", "And now?"], ["x"]).splitlines()
    assert screen.count("(interrupted)") == 2 and "answered: And now?" in screen and "answered: Wait" not in screen


def test_early_ctrl_c_ends_the_turn(typed, monkeypatch):
    Path("slow.py").write_text(SLOW)
    submit = Chat.submit

    def submit_and_interrupt(self, *message, **speaker):
        monkeypatch.setattr(Chat, "submit", submit)
        pending = self.submit(*message, **speaker)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        return pending

    monkeypatch.setattr(Chat, "submit", submit_and_interrupt)
    screen = typed("./slow.py", ["Slow", "And now?"], ["x"])
    assert "(interrupted)" in screen and "answered: And now?" in screen and "at work" not in screen


def test_ctrl_c_during_the_last_memory_write_leaves_the_chat(typed):
    """At its end the chat waits silently for background work, for at most a minute."""
    Path("late.py").write_text(LATE)
    started = time.monotonic()
    assert "answered" in typed("./late.py", ["Hello"], ["x"])
    assert time.monotonic() - started < 30


def test_running_step_is_shown_until_it_ends():
    screen, request = Screen(), Request(messages=as_messages("Hello"))
    started = ModelCall(id=1, turn=0, phase="plan", model="m", request=request)
    drawn = screen.live_display()
    assert str(drawn.get_renderable()) == ""
    screen.on_item(StepStarted(0, started))
    assert str(drawn.get_renderable()) == "complete (plan; no tools) ..."
    screen.on_item(ReplyText(0, "The goal"))
    assert str(drawn.get_renderable()) == "The goal"
    screen.on_item(ReplyRetracted(0))
    screen.on_item(StepEnded(0, started))
    assert str(drawn.get_renderable()) == ""
