"""A model that streams its reply word by word, with a reply for each function of a flow."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable

from agentlab.core.messages import Completion, Message, Request, Usage
from support.layered_agent import USUAL, plan, purpose

Respond = Callable[[Request], "str | Message | Exception"]

ATTACKS = """<script>alert('script')</script>
<img src=x onerror="alert('img')">
<a href="javascript:alert('a')">click me</a>
[a link](javascript:alert('markdown')) ![a picture](http://evil.invalid/p.png) <http://evil.invalid/auto>
<style>.agentlab-reply { display: none } body { background: url(http://evil.invalid/s.png) }</style>
<svg onload="alert('svg')"><script>alert('in svg')</script></svg>
</div></pre></details><iframe srcdoc="<script>parent.alert('iframe')</script>"></iframe>
[one]: javascript:alert('reference) "x"
[one] half a pair \ud83d, a zero \0, an escape \x1b[31m, \u202eturned round\u202c

```html" onmouseover="alert('fence')
<img src=x onerror="alert('code')">
```
"""


class Streaming:
    """Streams the text that `respond` returns, or raises its error; `seconds` is the pause after each word."""

    name, parallel = "scripted", None

    def __init__(self, respond: Respond, seconds: float = 0.05) -> None:
        self.respond = respond
        self.seconds = seconds

    async def complete(self, request: Request, emit: Callable[[str], None]) -> Completion:
        reply = self.respond(request)
        if isinstance(reply, Exception):
            raise reply
        message = Message(role="agent", text=reply) if isinstance(reply, str) else reply
        for word in re.findall(r"\S*\s*", message.text):
            emit(word)
            await asyncio.sleep(self.seconds)
        usage = Usage(input_tokens=9, output_tokens=len(message.text.split()), cached_tokens=0)
        return Completion(message=message, usage=usage)

    async def close(self) -> None:
        pass


def of_the_layered_agent(chat: str, canvas: str = "") -> Respond:
    """Return the model's reply to each function of `ego`; every reply has this chat and this canvas."""
    usual = {**USUAL, "plan": plan(complexity="simple"), "bubble": json.dumps({"chat": chat, "canvas": canvas})}
    return lambda request: usual[purpose(request)]


def of_the_coordinator(*replies: str | Exception) -> Respond:
    """Return the replies in order and then the last one forever; the memory gate stores every turn."""
    left = list(replies)

    def respond(request: Request) -> str | Exception:
        if request.output_schema:
            return '{"keep": true}'
        return left.pop(0) if len(left) > 1 else left[0]

    return respond
