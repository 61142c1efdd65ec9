"""The way of a model call, from the verb of a session to the provider and its SDK: short enough to read in one go."""

from __future__ import annotations

import sys
from typing import Any

import httpx2
import openai

import agentlab as al
from agentlab.core.messages import Completion, Message, Request
from agentlab.models.provider import Provider
from agentlab.session.session import Session
from support.small_runs import write_set

MAX_FRAMES = 4
"""To the provider, and to its SDK: the gateway, its queue, and two methods of the provider."""


def frames_since_the_verb() -> list[str]:
    """Return the functions between `Session.complete` and the caller of this function, outermost first."""
    frame, way = sys._getframe().f_back, []
    frame = frame.f_back if frame is not None else None
    while frame is not None and frame.f_code is not Session.complete.__code__:
        way.append(frame.f_code.co_qualname)
        frame = frame.f_back
    assert frame is not None, "it is a session that asks"
    return way[::-1]


class Echo(Provider[str, str]):
    """Provider that repeats the question and stores the frames of each call."""

    name = "echo"

    def __init__(self) -> None:
        self.ways: list[list[str]] = []

    async def complete(self, request: Request, emit: Any) -> Completion:
        self.ways.append(frames_since_the_verb())
        return await super().complete(request, emit)

    def translate(self, request: Request) -> str:
        return request.messages[-1].text

    async def call(self, wired: str, emit: Any) -> str:
        emit(wired)
        return wired

    def parse(self, raw: str, request: Request) -> Completion:
        return Completion(message=Message(role="agent", text=raw))

    def format_tool_result(self, call_id: str, name: str, result: str) -> str:
        return result

    async def close(self) -> None:
        pass


class Talk:
    name = "talk"

    async def respond(self, turn: Any, session: Any) -> al.Reply:
        return al.Reply(text=(await session.complete(turn.text)).text)


def test_a_call_goes_through_four_frames_at_most(tmp_path, own_home):
    data, model = write_set(tmp_path / "colours", 2, turns=2), Echo()
    for mode in ("live", "record"):
        spec = {"datasets": [str(data)], "embedder": "hashing/hashing-64", "recordings": str(tmp_path / "recordings")}
        with al.Lab(model=model, flows=[Talk()], mode=mode, **spec) as lab:
            lab.run_sync(out=tmp_path / mode)
    assert len(model.ways) == 8
    assert all(len(way) <= MAX_FRAMES for way in model.ways), model.ways


def test_a_call_reaches_the_sdk_through_four_frames_at_most(tmp_path, own_home, monkeypatch):
    ways = []

    async def post(client, path, **options):
        ways.append(frames_since_the_verb())
        response = httpx2.Response(400, request=httpx2.Request("POST", f"http://127.0.0.1{path}"))
        raise openai.BadRequestError("refused", response=response, body=None)

    monkeypatch.setenv("OPENAI_API_KEY", "key-of-a-test")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setattr(openai.AsyncOpenAI, "post", post)
    data = write_set(tmp_path / "colours", 1)
    with al.Lab(model="openai/x", flows=[Talk()], datasets=[str(data)], embedder="hashing/hashing-64") as lab:
        lab.run_sync(out=tmp_path / "run")
    assert ways
    assert all(len(way) <= MAX_FRAMES for way in ways), ways
