"""Judge models: they look for the reference in the answer, or follow a function."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from agentlab.core.messages import Completion, Message, Usage


def part(name: str, text: str) -> str:
    match = re.search(f"<{name}>\n(.*?)\n</{name}>", text, re.DOTALL)
    return match[1] if match else ""


class ScriptedJudge:
    """A judge that replies with `verdict(reference, answer)` and counts its calls."""

    name = "reader"
    parallel = None

    def __init__(self, verdict: Callable[[str, str], str]) -> None:
        self.verdict = verdict
        self.received: list[str] = []

    async def complete(self, request: Any, emit: Any) -> Completion:
        text = request.messages[-1].text
        self.received.append(text)
        reply = json.dumps({"verdict": self.verdict(part("reference", text), part("answer", text))})
        message = Message(role="agent", text=reply)
        return Completion(message=message, usage=Usage(input_tokens=10, output_tokens=4), model=self.name)

    async def close(self) -> None:
        pass


def holds(reference: str, answer: str) -> str:
    """A judge that knows: the answer is the reference."""
    return "yes" if answer == reference else "no"


def credulous(reference: str, answer: str) -> str:
    return "yes"
