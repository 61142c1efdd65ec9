"""The coordinator on scripted replies, stopped at a chosen point, with its history and memory operations."""

from __future__ import annotations

import asyncio

from agentlab.core.events import EmbeddingCall, MemoryOp, ModelCall
from agentlab.core.messages import AddResult, Completion, Fact, Message, ToolCall, ToolSpec, UserTurn
from agentlab.flows import coordinator
from agentlab.flows.coordinator.chat_history import ChatHistory
from agentlab.models.scripted import Scripted
from support.doubles import session_over


class Tool:
    def __init__(self, name: str, answer="ok", parameters=None):
        self.spec = ToolSpec(name=name, description=f"does {name}", parameters=parameters or {"type": "object"})
        self.answer = answer
        self.received = []

    async def run(self, arguments, session):
        self.received.append(arguments)
        result = self.answer(arguments) if callable(self.answer) else self.answer
        if isinstance(result, BaseException):
            raise result
        return await result if asyncio.iscoroutine(result) else result


def setup(replies, *tools, memory=None, **settings):
    model = Scripted(replies)
    session = session_over(coordinator, model, tools=tools, memory=memory, **settings)
    return session, model


async def say(session, *texts):
    replies = []
    for turn, text in enumerate(texts):
        await session.run_background()
        session.begin_turn(turn)
        replies.append((await coordinator.respond(UserTurn(text=text), session)).text)
    await session.run_background()
    return replies


def history(session) -> ChatHistory:
    return session.state(coordinator.COORDINATOR).history


def messages_of(session) -> list[tuple[str, str]]:
    """Return (speaker, text) of the coordinator's history; the agent has its own name."""
    return [(m.role, m.text) for m in history(session).get_history()]


def both(text: str = "I'll check both."):
    weather, dates = (ToolCall(id=f"call_{n}", name=name) for n, name in ((1, "weather"), (2, "dates")))
    return Message(role="agent", text=text, tool_calls=(weather, dates))


class Talker:
    """Model that streams words until it is cancelled, or until a word is an exception to raise."""

    name = "talker"
    parallel = None

    def __init__(self, *replies):
        self.replies = list(replies)
        self.requests = []

    async def complete(self, request, emit):
        self.requests.append(request)
        reply = self.replies.pop(0)
        if isinstance(reply, Message):
            return Completion(message=reply)
        for word in reply:
            if isinstance(word, Exception):
                raise word
            emit(word)
            await asyncio.sleep(0)
        return Completion(message=Message(role="agent", text="".join(reply)))

    async def close(self):
        pass


def talk(*replies, tools=(), **settings):
    model = Talker(*replies)
    return session_over(coordinator, model, tools=tools, retries=0, **settings), model


def ops(session, **wanted):
    events = (e for e in session.trace.events if isinstance(e, (MemoryOp, ModelCall, EmbeddingCall)))
    return [e for e in events if all(getattr(e, k, None) == v for k, v in wanted.items())]


class SlowMemory:
    """Memory whose first searches return nothing at once; later ones wait forever or fail."""

    name = "slow"
    user = "ann"
    embedder = None

    def __init__(self, concurrent: int = 0):
        self.failure: Exception | None = None
        self.concurrent = concurrent
        self.received = asyncio.Event()
        self.stored = []

    async def search(self, text, vector, **options):
        self.concurrent -= 1
        if self.concurrent < 0:
            self.received.set()
            if self.failure is not None:
                raise self.failure
            await asyncio.Event().wait()
        return ()

    async def add(self, text, vector, *, created, new_id, **options):
        self.stored.append(text)
        return AddResult(fact=Fact(id=new_id(), text=text, created=created), is_new=True)


def stored(session):
    return [(m.role, m.text) for m in session.history.messages]
