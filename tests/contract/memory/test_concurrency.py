"""Several at once in one memory, in one process or in two, and one that is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from support.memories import NOW, Backend, add, ask, ids, texts, vector


@pytest.mark.slow
async def test_two_memories_in_one_process_lose_nothing(backend):
    one, two = backend.open(), backend.open()
    words = [f"fact{n} about subject{n}" for n in range(12)]
    await asyncio.gather(*(add(memory, text, ids()) for text in words for memory in (one, two)))
    stored = await one.facts()
    assert sorted(fact.text for fact in stored) == sorted(words), "each once: the check and the write are one step"
    assert len({fact.id for fact in stored}) == 12 and await two.facts() == stored
    changes = [
        memory.update(fact.id, "new " + fact.text, vector("new " + fact.text), created=NOW, new_id=ids("new"))
        for fact in stored
        for memory in (one, two)
    ]
    done = await asyncio.gather(*changes)
    assert sum(fact is not None for fact in done) == 12, "of two updates of one fact, one finds it"
    assert sorted(await texts(two)) == sorted(f"new {text}" for text in words)


WRITER = """
import asyncio, sys
from datetime import datetime
from agentlab.core import plugins
from agentlab.models.embedders import hashing

async def main(backend, where, name, count):
    embedder = hashing.connect("hashing-64")
    memory = plugins.resolve("memory", backend).connect(where, embedder, user="ann")
    number = iter(range(1, 1000))
    for n in range(count):
        text = f"{name}{n} was written"
        (row,) = await embedder.embed([text])
        added = await memory.add(
            text, row, created=datetime(2026, 1, 5), new_id=lambda: f"memory_{next(number)}", duplicate_threshold=None
        )
        print(added.fact.id, text, flush=True)
    await memory.close()

asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
"""


def writer(backend: Backend, name: str, count: int) -> subprocess.Popen[str]:
    kind = backend.name.partition("_")[0]
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, kind, str(backend.location), name, str(count)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "MONGODB_URI": backend.uri or ""},
    )


@pytest.mark.slow
async def test_two_processes_lose_nothing_and_a_third_sees_it(backend):
    watching = backend.open()
    await add(watching, "here before", ids())
    children = [writer(backend, name, 15) for name in ("left", "right")]
    lines = [child.communicate(timeout=120)[0].splitlines() for child in children]
    assert [child.returncode for child in children] == [0, 0]
    stored = {f"{fact.id} {fact.text}" for fact in await watching.facts()}
    assert stored == {*lines[0], *lines[1], "memory_1 here before"} and len(stored) == 31
    assert await ask(watching, "right14 was written", top_k=1) == ["right14 was written"]
    assert await ask(watching, "left3 was written", top_k=1) == ["left3 was written"]


@pytest.mark.slow
async def test_facts_survive_a_killed_process(backend):
    child = writer(backend, "doomed", 900)
    assert child.stdout is not None
    lines = [child.stdout.readline().strip() for _ in range(5)]
    child.send_signal(signal.SIGKILL)
    lines += child.communicate()[0].splitlines()[:-1]
    memory = backend.open()
    stored = [f"{fact.id} {fact.text}" for fact in await memory.facts()]
    assert set(lines) <= set(stored) and len(stored) <= len(lines) + 2
    if "mongo" not in backend.name:  # there the lease of the dead has to run out first
        assert (await add(memory, "life goes on", ids())).is_new
