"""Equal requests in flight share one call, and waiting in a queue is no work."""

from __future__ import annotations

import asyncio

from agentlab.core.messages import Message, Request
from agentlab.core.protocols import CallSite
from agentlab.core.trace import Trace
from agentlab.wire.recorder import Recorder
from support.doubles import gateway_to
from support.slow_model import HELLO, Slow


def ask(recorder, model, request, epoch=0):
    gateway = gateway_to(model, Trace("flow", "conversation", epoch), recorder=recorder)
    return gateway.ask(request, CallSite(turn=0), lambda text: None)


async def test_identical_requests_in_flight_are_asked_once_and_cite_one_latency():
    model, recorder = Slow(0.05), Recorder()
    request = Request(messages=HELLO)
    first, second = await asyncio.gather(*(ask(recorder, model, request) for _ in range(2)))
    assert model.received == 1
    assert first.seconds == second.seconds
    assert (first.origin, second.origin) == ("live", "replay"), "it is paid for once"
    await ask(recorder, model, request)
    assert model.received == 2, "only what is in flight is shared; there is no cache"


async def test_epochs_do_not_share_results():
    model, recorder = Slow(0.01), Recorder()
    await asyncio.gather(*(ask(recorder, model, Request(messages=HELLO), epoch) for epoch in (0, 1)))
    assert model.received == 2


async def test_cancelled_caller_does_not_cancel_the_shared_call():
    model, recorder = Slow(0.05), Recorder()
    request = Request(messages=HELLO)
    leaver = asyncio.create_task(ask(recorder, model, request))
    stayer = asyncio.create_task(ask(recorder, model, request))
    await asyncio.sleep(0.01)
    leaver.cancel()
    result = await stayer
    assert result.value.message.text.endswith("the rest") and result.origin == "live"
    assert (await leaver).error == "interrupted"


async def test_waiting_caller_may_be_cancelled():
    model, recorder = Slow(0.05), Recorder()
    request = Request(messages=HELLO)
    stayer = asyncio.create_task(ask(recorder, model, request))
    leaver = asyncio.create_task(ask(recorder, model, request))
    await asyncio.sleep(0.01)
    leaver.cancel()
    assert (await stayer).value.message.text.endswith("the rest")
    assert (model.received, model.cancelled) == (1, False)


async def test_the_queue_of_a_model_is_waiting_not_working():
    slow, trace = Slow(0.05), Trace("flow", "conversation")
    gateway = gateway_to(slow, trace)
    requests = [Request(messages=(Message(role="user", text=str(i)),)) for i in range(3)]
    results = await asyncio.gather(*(gateway.ask(r, CallSite(turn=0), lambda t: None) for r in requests))
    assert all(result.seconds < 0.09 for result in results)
    assert max(result.waited for result in results) >= 0.09
