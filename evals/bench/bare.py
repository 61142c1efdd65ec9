"""Plain loops over the vendor's SDK, and another harness: `live.py` compares agentlab with them.

    python evals/bench/bare.py aiohttp|httpx|stream|tools|inspect CONVERSATIONS TURNS

They keep nothing, and ask the server that `OPENAI_BASE_URL` names.
"""

from __future__ import annotations

import asyncio
import json
import sys

IN_FLIGHT = 100
QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
TOOL = {"name": "find", "description": "Finds what is written about a query.", "parameters": QUERY}


async def bare(transport: str, conversations: int, turns: int) -> None:
    """A plain loop over the SDK."""
    import openai

    http_client = None if transport == "httpx" else openai.DefaultAioHttpClient()
    client = openai.AsyncOpenAI(http_client=http_client)
    waiting = iter(range(conversations))
    done = 0

    async def worker() -> None:
        nonlocal done
        for number in waiting:
            messages: list = []
            for turn in range(turns):
                messages.append({"role": "user", "content": f"Conversation {number}, question {turn}"})
                row = {"model": "m", "messages": messages, "temperature": 0, "seed": 7, "max_tokens": 256}
                if transport == "stream":
                    pieces = []
                    options = {"stream": True, "stream_options": {"include_usage": True}}
                    async for chunk in await client.chat.completions.create(**row, **options):
                        if chunk.choices and chunk.choices[0].delta.content:
                            pieces.append(chunk.choices[0].delta.content)
                    text = "".join(pieces)
                else:
                    text = (await client.chat.completions.create(**row)).choices[0].message.content
                messages.append({"role": "assistant", "content": text})
                done += bool(text)

    await asyncio.gather(*(worker() for _ in range(min(IN_FLIGHT, conversations))))
    assert done == conversations * turns


async def bare_tools(conversations: int, turns: int) -> None:
    """A plain loop over the SDK with one tool."""
    import openai

    client = openai.AsyncOpenAI(http_client=openai.DefaultAioHttpClient())
    offered = [{"type": "function", "function": TOOL}]
    waiting = iter(range(conversations))
    done = 0

    async def ask(messages: list) -> dict:
        pieces, call = [], {"id": "", "type": "function", "function": {"name": "", "arguments": ""}}
        row = {"model": "m", "messages": messages, "tools": offered, "temperature": 0, "seed": 7, "max_tokens": 256}
        options = {"stream": True, "stream_options": {"include_usage": True}}
        async for chunk in await client.chat.completions.create(**row, **options):
            for choice in chunk.choices:
                pieces.append(choice.delta.content or "")
                for part in choice.delta.tool_calls or ():
                    call["id"] = part.id or call["id"]
                    call["function"]["name"] += part.function.name or ""
                    call["function"]["arguments"] += part.function.arguments or ""
        message = {"role": "assistant", "content": "".join(pieces)}
        return message | {"tool_calls": [call]} if call["id"] else message

    async def worker() -> None:
        nonlocal done
        for number in waiting:
            history: list = []
            for turn in range(turns):
                history.append({"role": "user", "content": f"Conversation {number}, question {turn}"})
                within: list = []
                while "tool_calls" in (text := await ask([*history, *within])):
                    (call,) = text["tool_calls"]
                    assert json.loads(call["function"]["arguments"])["query"]
                    within += [text, {"role": "tool", "tool_call_id": call["id"], "content": "success"}]
                history.append(text)
                done += len(within) == 2

    await asyncio.gather(*(worker() for _ in range(min(IN_FLIGHT, conversations))))
    assert done == conversations * turns


def inspect_ai(conversations: int, turns: int) -> None:
    import inspect_ai
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ChatMessageUser, get_model
    from inspect_ai.solver import solver

    @solver
    def talk():
        async def solve(state, generate):
            for turn in range(turns):
                state.messages.append(ChatMessageUser(content=f"{state.input_text}, question {turn}"))
                state.output = await get_model().generate(state.messages)
                state.messages.append(state.output.message)
            return state

        return solve

    samples = [Sample(input=f"Conversation {number}", id=number) for number in range(conversations)]
    limits = {"max_connections": IN_FLIGHT, "max_samples": IN_FLIGHT}
    (log,) = inspect_ai.eval(
        inspect_ai.Task(dataset=samples, solver=talk()),
        model="openai/m",
        model_args={"responses_api": False},  # chat completions, as everybody here
        display="none",
        **limits,
    )
    assert log.status == "success", log.error


def main(kind: str, conversations: int, turns: int) -> None:
    if kind == "inspect":
        inspect_ai(conversations, turns)
    else:
        loop = bare_tools(conversations, turns) if kind == "tools" else bare(kind, conversations, turns)
        asyncio.run(loop)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
