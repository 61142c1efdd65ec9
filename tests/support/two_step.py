"""The two-step orchestrator over scripted replies: tools with listed results, and the requests to the model."""

from __future__ import annotations

import json
from pathlib import Path

from agentlab.core.events import Decision, ModelCall
from agentlab.core.messages import ToolSpec, UserTurn
from agentlab.flows import chatbox
from agentlab.models.scripted import Scripted
from support.doubles import session_over

NONE = '{"tool": null}'
ANN = UserTurn(text="I moved to Rome. What time is it?", speaker_id="42", speaker_name="Ann")
FIRST_FACT = "fact_8b022fd5"
"""The id of the first fact that a session of `setup` remembers."""
MASTER = (Path(chatbox.__file__).parent / "two_step" / "personalities" / "master.txt").read_text().strip()


def choose(tool: str) -> str:
    return json.dumps({"tool": tool})


class Tool:
    """Tool that returns listed results, whatever its arguments."""

    def __init__(self, name, *results, parameters=None):
        self.spec = ToolSpec(name=name, description=f"does {name}", parameters=parameters or {"type": "object"})
        self.instruction = f"Mind how {name} wants it."
        self.received = []
        self._results = list(results)

    async def run(self, arguments, session):
        self.received.append(arguments)
        result = self._results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result


def clock(*results):
    return Tool("get_current_time", *(results or ("12:00",)))


def setup(flow, replies, *tools, memory=None, **settings):
    model = Scripted(replies)
    return session_over(flow, model, tools=tools, memory=memory, **settings), model


def phases(session):
    return [event.phase for event in session.trace.events if isinstance(event, ModelCall)]


def texts(request):
    return [(message.role, message.text) for message in request.messages]


def roles(request):
    return [message.role for message in request.messages]


def decided(session):
    return [(event.name, event.choice) for event in session.trace.events if isinstance(event, Decision)]
