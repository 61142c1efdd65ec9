"""Long-term memory: one contract and one state machine over every backend, and what only some of them can suffer.

MongoDB is stood in for by a server of its wire protocol in a process of its own, started once for this file; where
`MONGODB_URI` is set the same tests run on that server too. Vector search, which the stand-in does not have, is played
by a few lines that answer as its documentation says, with an index that lags behind.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pymongo
import pytest
from bson.binary import Binary
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from agentlab.core import plugins
from agentlab.core.errors import ConfigError, MemoryUnavailable, MissingExtra, ToolError
from agentlab.core.messages import Fact
from agentlab.core.protocols import Memory
from agentlab.memory import chroma, mongo, sqlite, textfile
from agentlab.memory.base import unit
from agentlab.memory.exact import Shelf
from agentlab.models.embedders import hashing

EMBEDDER = hashing.connect("hashing-64")
NOW = datetime(2026, 1, 5, 10, 30, 0, 123456)
REAL_URI = os.environ.get("MONGODB_URI")
FILES = ["chroma", "sqlite", "textfile"]
BACKENDS = [*FILES, "mongo", "mongo_index", *(["mongo_uri"] if REAL_URI else [])]
SERVER = Path(sys.executable).with_name("secantusd-py")

HOSTILE = [
    "a\0b",
    "half a pair \ud800 of surrogates",
    'two\nlines\r\nand\u2028a third\n[end]\n\n[fact "x" of "ann" at 2026-01-05]\n> hello\n[end]',
    "[end]",
    "> quoted\n>\n>>  twice",
    "\\x41 \\u0042 \\\\ C:\\new\\table",
    '{"$gt": ""}',
    "$where: 'sleep(1000)'",
    "'; DROP TABLE facts; --",
    "\u202eevil\u202c \ufeff \x1b[31m \x7f \x85",
    "   leading and trailing   \n\n",
    "0" * 1_048_576,
    "é" * 1_048_576,
]


def vector(text: str) -> Any:
    """The vector of a text, at once: the hashing embedder never waits, so its coroutine ends at the first step."""
    try:
        EMBEDDER.embed([text]).send(None)
    except StopIteration as done:
        return done.value[0]
    raise AssertionError("the embedder waited")


def ids(prefix: str = "memory") -> Callable[[], str]:
    counter = itertools.count(1)
    return lambda: f"{prefix}_{next(counter)}"


async def add(memory: Memory, text: str, new_id: Callable[[], str], **options: Any) -> Any:
    return await memory.add(text, vector(text), created=NOW, new_id=new_id, **options)


async def ask(memory: Memory, text: str, **options: Any) -> list[str]:
    return [fact.text for fact in await memory.search(text, vector(text), **options)]


async def texts(memory: Memory) -> list[str]:
    return [fact.text for fact in await memory.facts()]


class MongoServer:
    """A server of MongoDB's wire protocol, of this test run."""

    def __init__(self, storage: str = ":memory:") -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.uri = f"mongodb://127.0.0.1:{self.port}"
        self.storage = storage
        self.start()

    def start(self) -> None:
        command = [SERVER, "--host", "127.0.0.1", "--port", str(self.port), "--storage-path", self.storage]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while self.process.poll() is None and time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.05)
        raise AssertionError("the MongoDB stand-in did not start")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    if not SERVER.exists():
        pytest.skip("no MongoDB stand-in: install secantusdb, which is in the extra dev")
    running = MongoServer()
    yield running.uri
    running.stop()


class LateIndex:
    """A collection with vector search, as Atlas documents it: it knows the facts up to a few changes ago, fetches their
    documents as they are now, and leaves out those that are gone."""

    def __init__(self, documents: Any) -> None:
        self._documents = documents
        self._known: dict[Any, tuple[str, Any]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._documents, name)

    def list_search_indexes(self, name: str) -> list[dict[str, Any]]:
        return [{"name": name, "queryable": True}]

    def aggregate(self, pipeline: list[dict[str, Any]]) -> list[dict[str, Any]]:
        stage = pipeline[0]["$vectorSearch"]
        owner, asked = stage["filter"]["owner"]["$eq"], np.array(stage["queryVector"])
        assert stage["numCandidates"] >= stage["limit"] and stage["path"] == "vector"
        found = list(self._documents.find({"owner": owner}))
        changed = {document["_id"] for document in found}.symmetric_difference(self._known)
        if len(changed) > 5:
            self._known = {d["_id"]: np.array(Binary.as_vector(d["vector"]).data) for d in found}
        near = sorted(self._known, key=lambda name: -(self._known[name] @ asked))[: stage["limit"]]
        return list(self._documents.find({"_id": {"$in": near}}, pipeline[1]["$project"]))


class Backend:
    """Opens memories of one kind in one place, and closes what was opened."""

    def __init__(self, name: str, folder: Path, uri: str | None) -> None:
        self.name = name
        self.uri = REAL_URI if name == "mongo_uri" else uri
        self.where: Any = f"test-{uuid.uuid4().hex}" if "mongo" in name else folder
        self.opened: list[Memory] = []

    def open(self, user: str = "ann", embedder: Any = EMBEDDER) -> Memory:
        memory: Any
        if "mongo" in self.name:
            index = self.name == "mongo_index"
            memory = mongo.connect(self.where, embedder, user=user, uri=self.uri, vector_search=index or None)
            if index:
                memory._documents = LateIndex(memory._documents)
        else:
            memory = {"chroma": chroma, "sqlite": sqlite, "textfile": textfile}[self.name].connect(
                self.where, embedder, user=user
            )
        self.opened.append(memory)
        return memory

    def close(self) -> None:
        for memory in self.opened:
            asyncio.run(memory.close())
        if "mongo" in self.name and self.uri:
            with pymongo.MongoClient(self.uri) as client:
                database = client.get_default_database("agentlab")
                mine = {"$regex": str(self.where)}
                database["agentlab_memory"].delete_many({"owner": mine})
                database["agentlab_memory_turns"].delete_many({"_id": mine})


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    uri = request.getfixturevalue("server") if request.param in ("mongo", "mongo_index") else None
    monkeypatch.setattr(mongo, "_NEWEST", 8)
    made = Backend(request.param, tmp_path, uri)
    yield made
    made.close()


# The contract.


async def test_it_finds_the_nearest_with_ids_and_scores(backend):
    memory, new_id = backend.open(), ids()
    for text in ("Ann plays the oboe", "Ann has a dog called Rex", "The dog eats fish"):
        assert (await add(memory, text, new_id)).is_new
    found = await memory.search("q", vector("the dog called Rex"), top_k=2)
    assert [fact.id for fact in found] == ["memory_2", "memory_3"]
    assert found[0].score > found[1].score > 0 and found[0].created == NOW
    assert found[0].score == pytest.approx(
        float(vector("the dog called Rex") @ vector("Ann has a dog called Rex")), abs=2e-3
    )
    assert await ask(memory, "the dog called Rex", top_k=5, min_score=found[0].score) == ["Ann has a dog called Rex"]
    assert len(await ask(memory, "dog", top_k=99)) == 3
    assert await ask(memory, "dog", top_k=0) == [] == await ask(backend.open("bob"), "dog")
    assert (memory.embedder, memory.user) == (EMBEDDER, "ann")


async def test_of_equal_scores_the_older_comes_first(backend):
    memory, new_id = backend.open(), ids()
    for _ in range(6):
        await add(memory, "the same again", new_id, duplicate_at=None)
    found = await memory.search("q", vector("the same again"), top_k=3)
    assert [(fact.id, fact.score) for fact in found] == [(f"memory_{n}", 1.0) for n in (1, 2, 3)]


async def test_a_duplicate_is_not_stored_and_says_what_it_repeats(backend):
    memory, new_id = backend.open(), ids()
    first = (await add(memory, "Ann plays the oboe", new_id)).fact
    again = await add(memory, "ann PLAYS the oboe!", new_id)
    assert (again.is_new, again.fact.id, again.fact.score) == (False, first.id, 1.0)
    assert not (await add(memory, "Ann plays the oboe well", new_id, duplicate_at=0.8)).is_new
    assert (await add(memory, "Ann plays the oboe well", new_id, duplicate_at=0.95)).is_new
    assert (await add(memory, "Ann plays the oboe", new_id, duplicate_at=None)).is_new
    assert len(await memory.facts()) == 3


async def test_many_texts_are_stored_at_once_and_as_they_are(backend):
    memory = backend.open()
    await add(memory, "one thing", ids())
    said = ["yes", "yes", "no thanks", "yes\n[end]"]
    days = [datetime(2026, 1, day) for day in range(1, 5)]
    stored = await memory.ingest(said, [vector(text) for text in said], created=days, new_id=ids())
    assert [(fact.text, fact.created) for fact in stored] == list(zip(said, days, strict=True))
    await add(memory, "another matter", ids("other"))
    assert [fact.id for fact in await memory.facts()] == ["memory_1", *[f.id for f in stored], "other_1"]
    assert len({fact.id for fact in stored}) == 4 and await texts(backend.open()) == await texts(memory)
    assert [fact.id for fact in await memory.search("yes", vector("yes"), top_k=2)] == [f.id for f in stored[:2]]
    assert await memory.ingest([], [], created=[], new_id=ids()) == ()
    with pytest.raises(ToolError):
        await memory.ingest(["fine", ""], [vector("fine")] * 2, created=days[:2], new_id=ids("z"))
    with pytest.raises(ValueError, match="zip"):
        await memory.ingest(["fine"], [vector("fine")] * 2, created=days[:2], new_id=ids("z"))
    assert len(await memory.facts()) == 6


async def test_an_update_is_a_new_fact_with_a_new_id(backend):
    memory, new_id = backend.open(), ids()
    old = (await add(memory, "Ann lives in Rome", new_id)).fact
    await add(memory, "Ann plays the oboe", new_id)
    text = "Ann lives in Lyon"
    new = await memory.update(old.id, text, vector(text), created=datetime(2026, 2, 1, tzinfo=UTC), new_id=new_id)
    assert new == Fact(id="memory_3", text=text, created=datetime(2026, 2, 1, tzinfo=UTC))
    assert await memory.get(old.id) is None and await memory.get(new.id) == new
    assert await texts(memory) == ["Ann plays the oboe", "Ann lives in Lyon"]
    assert await ask(memory, "lives in Rome", top_k=1) == ["Ann lives in Lyon"]
    same = await memory.update(new.id, text, vector(text), created=NOW, new_id=lambda: f"memory_{uuid.uuid4().hex}")
    assert same.id != new.id, "an update does not look for duplicates, and never keeps the id"
    assert await memory.update("memory_1", "x", vector("x"), created=NOW, new_id=new_id) is None
    assert len(await memory.facts()) == 2


async def test_delete_get_and_clear(backend):
    memory, other, new_id = backend.open(), backend.open("bob"), ids()
    for text in ("one thing", "another matter", "a third case"):
        await add(memory, text, new_id)
        await add(other, text, ids("bob"))
    assert await memory.delete("memory_2") and not await memory.delete("memory_2")
    assert await texts(memory) == ["one thing", "a third case"]
    assert await ask(memory, "another matter", min_score=0.5) == []
    assert await other.get("memory_1") is None and not await other.delete("memory_1"), "a user's ids are their own"
    assert await memory.clear() == 2 and await memory.facts() == () and await memory.clear() == 0
    assert await ask(memory, "one thing") == [] and len(await other.facts()) == 3
    assert (await add(memory, "after that", new_id)).fact.id == "memory_4"


async def test_what_was_stored_survives_a_restart_and_ids_go_on(backend):
    memory = backend.open()
    for text in ("one thing", "another matter"):
        await add(memory, text, ids())
    before = await memory.facts()
    await memory.close()
    memory = backend.open()
    assert await memory.facts() == before and [fact.id for fact in before] == ["memory_1", "memory_2"]
    assert await ask(memory, "another matter", top_k=1) == ["another matter"]
    assert (await add(memory, "a third case", ids())).fact.id == "memory_3", "an id that is taken is passed over"
    assert (await memory.update("memory_1", "new", vector("new"), created=NOW, new_id=ids())).id == "memory_4"


async def test_a_snapshot_and_its_original_go_separate_ways(backend):
    memory, new_id = backend.open(), ids()
    await add(memory, "one thing", new_id)
    first = await memory.snapshot()
    second = await first.snapshot()
    await add(memory, "only in the original", new_id)
    await add(first, "only in the snapshot", ids())
    await first.update("memory_1", "changed thing", vector("changed thing"), created=NOW, new_id=ids())
    await second.clear()
    assert await texts(memory) == ["one thing", "only in the original"]
    assert await texts(first) == ["only in the snapshot", "changed thing"]
    assert await texts(second) == [] and first.embedder is EMBEDDER and first.name == memory.name
    assert await ask(first, "the changed thing", top_k=1) == ["changed thing"]
    await memory.clear()
    assert len(await first.facts()) == 2
    for snapshot in (first, second):
        await snapshot.close()


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:20]))
async def test_hostile_text_is_plain_text(backend, text):
    memory, new_id = backend.open(), ids()
    await add(memory, "Ann plays the oboe", new_id)
    stored = (await add(memory, text, new_id)).fact
    assert stored.text == text.encode("utf-8", "replace").decode()
    await memory.close()
    memory = backend.open()
    assert await memory.get(stored.id) == stored
    assert await texts(memory) == ["Ann plays the oboe", stored.text]
    assert await ask(memory, text, top_k=1) == [stored.text]
    changed = await memory.update(stored.id, text, vector(text), created=NOW, new_id=new_id)
    assert changed.text == stored.text and await memory.delete(changed.id)
    assert await texts(memory) == ["Ann plays the oboe"]


@pytest.mark.parametrize(
    "fact_id", ["", "nope", "\0", "\ud800", '{"$gt": ""}', {"$gt": ""}, "x" * 1_000_000, None, "memory_1\0", "%"]
)
async def test_an_id_that_does_not_exist_is_not_found(backend, fact_id):
    memory = backend.open()
    await add(memory, "one thing", ids())
    assert await memory.get(fact_id) is None and not await memory.delete(fact_id)
    assert await memory.update(fact_id, "two", vector("two"), created=NOW, new_id=ids()) is None
    assert await texts(memory) == ["one thing"]


async def test_ids_and_users_can_be_any_text(backend):
    for name in ('{"$gt": ""}', "a\0b", "ünï/../cödé\n[end]", '"quoted" \\x41', "$ne", "a.b", "[end]"):
        memory = backend.open(user=name)
        added = await add(memory, f"a fact about {name}", lambda name=name: name)
        assert added.fact.id == name and await memory.get(name) == added.fact
        assert await texts(memory) == [f"a fact about {name}"]
        assert await memory.delete(name) and await memory.facts() == ()


async def test_what_cannot_be_stored_is_refused_and_changes_nothing(backend):
    memory, new_id = backend.open(), ids()
    await add(memory, "one thing", new_id)
    for text in ("", " \n\t", "x" * 2_000_001):
        with pytest.raises(ToolError, match=r"remember|holds at most"):
            await memory.add(text, vector("x"), created=NOW, new_id=new_id)
        with pytest.raises(ToolError):
            await memory.update("memory_1", text, vector("x"), created=NOW, new_id=new_id)
    for wrong in (None, np.ones(3), np.full(64, np.nan), np.ones((1, 64)), np.zeros(0)):
        with pytest.raises(ValueError, match="vector"):
            await memory.add("x", wrong, created=NOW, new_id=new_id)
        with pytest.raises(ValueError, match="vector"):
            await memory.search("x", wrong)
    with pytest.raises(ValueError, match="twice"):
        await add(memory, "another matter", lambda: "memory_1")
    with pytest.raises(ValueError, match="an id is a text"):
        await add(memory, "another matter", lambda: "")
    for user in ("", "\ud800", "x" * 501):
        with pytest.raises(ConfigError, match="the user of a memory"):
            backend.open(user=user)
    assert await texts(memory) == ["one thing"]
    await memory.add("nothing to go by", np.zeros(64), created=NOW, new_id=new_id)
    assert (await memory.search("q", vector("one thing"), top_k=2))[1].score == 0.0


async def test_vectors_of_another_embedder_are_refused(backend):
    await add(backend.open(), "one thing", ids())
    with pytest.raises(ConfigError, match="holds vectors of hashing/hashing-64, not of hashing/hashing-32"):
        await backend.open(embedder=hashing.connect("hashing-32")).facts()


# Several at once.


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
            text, row, created=datetime(2026, 1, 5), new_id=lambda: f"memory_{next(number)}", duplicate_at=None
        )
        print(added.fact.id, text, flush=True)
    await memory.close()

asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
"""


def writer(backend: Backend, name: str, count: int) -> subprocess.Popen[str]:
    kind = backend.name.partition("_")[0]
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, kind, str(backend.where), name, str(count)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "MONGODB_URI": backend.uri or ""},
    )


async def test_two_processes_lose_nothing_and_a_third_sees_it(backend):
    watching = backend.open()
    await add(watching, "here before", ids())
    children = [writer(backend, name, 15) for name in ("left", "right")]
    said = [child.communicate(timeout=120)[0].splitlines() for child in children]
    assert [child.returncode for child in children] == [0, 0]
    stored = {f"{fact.id} {fact.text}" for fact in await watching.facts()}
    assert stored == {*said[0], *said[1], "memory_1 here before"} and len(stored) == 31
    assert await ask(watching, "right14 was written", top_k=1) == ["right14 was written"]
    assert await ask(watching, "left3 was written", top_k=1) == ["left3 was written"]


async def test_what_a_killed_process_had_stored_is_there(backend):
    child = writer(backend, "doomed", 900)
    assert child.stdout is not None
    said = [child.stdout.readline().strip() for _ in range(5)]
    child.send_signal(signal.SIGKILL)
    said += child.communicate()[0].splitlines()[:-1]
    memory = backend.open()
    stored = [f"{fact.id} {fact.text}" for fact in await memory.facts()]
    assert set(said) <= set(stored) and len(stored) <= len(said) + 2
    if "mongo" not in backend.name:  # there the lease of the dead has to run out first
        assert (await add(memory, "life goes on", ids())).is_new


# A backend that goes away.


async def every_call(memory: Memory) -> list[BaseException | object]:
    calls = [
        lambda: ask(memory, "one thing"),
        lambda: add(memory, "more", ids()),
        lambda: memory.update("memory_1", "x", vector("x"), created=NOW, new_id=ids()),
        lambda: memory.delete("memory_1"),
        lambda: memory.get("memory_1"),
        lambda: memory.facts(),
        lambda: memory.clear(),
        lambda: memory.snapshot(),
    ]
    return [(await asyncio.gather(call(), return_exceptions=True))[0] for call in calls]


@pytest.mark.parametrize("name", FILES)
async def test_files_that_vanish_are_an_error_and_come_back_as_they_were(name, tmp_path):
    backend = Backend(name, tmp_path / "state", None)
    memory = backend.open()
    await add(memory, "one thing", ids())
    (tmp_path / "state").rename(tmp_path / "away")
    for result in await every_call(memory):
        assert type(result) is MemoryUnavailable and str(result).startswith(f"the {name} memory at {tmp_path}")
    assert not (tmp_path / "state").exists(), "nothing is begun anew where a memory was"
    (tmp_path / "away").rename(tmp_path / "state")
    assert await texts(memory) == ["one thing"]
    assert (await add(memory, "more", ids())).is_new
    await memory.close()
    assert await texts(backend.open()) == ["one thing", "more"]
    await backend.opened[-1].close()


@pytest.mark.parametrize("name", FILES)
async def test_a_folder_that_is_emptied_is_not_taken_for_an_empty_memory(name, tmp_path):
    memory = Backend(name, tmp_path / "state", None).open()
    await add(memory, "one thing", ids())
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "state" / "chroma").mkdir(parents=True)
    assert {type(result) for result in await every_call(memory)} == {MemoryUnavailable}
    await memory.close()


async def test_a_server_that_dies_is_an_error_and_after_a_restart_everything_is_there(tmp_path, monkeypatch, server):
    running = MongoServer(str(tmp_path / "data"))
    patient = mongo.connect("restart", EMBEDDER, uri=running.uri)
    monkeypatch.setattr(mongo, "_TIMEOUT", 0.4)
    memory = mongo.connect("restart", EMBEDDER, uri=running.uri)
    try:
        await add(patient, "one thing", ids())
        running.process.kill()
        running.process.wait(30)
        for result in await every_call(memory):
            assert type(result) is MemoryUnavailable and "\n" not in str(result) and len(str(result)) < 450
        running.start()
        assert await texts(patient) == ["one thing"]
        # A busy machine may need more than .4 s for the first answer.
        found: object = None
        for _ in range(50):
            (found,) = await asyncio.gather(texts(memory), return_exceptions=True)
            if not isinstance(found, MemoryUnavailable):
                break
        assert found == ["one thing"], "the memory that was cut off goes on"
    finally:
        await patient.close()
        await memory.close()
        running.stop()


@pytest.mark.parametrize(
    ("name", "file"), [("sqlite", "memory.sqlite"), ("textfile", "memory.txt"), ("chroma", "chroma/agentlab.json")]
)
@pytest.mark.parametrize("content", [b"\x00\xffnot a memory\n" * 300, b"Memory of agentlab, embedded with\xff"])
def test_a_file_of_something_else_is_refused_and_left_alone(name, file, content, tmp_path):
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be opened as a memory") as refusal:
        Backend(name, tmp_path, None).open()
    assert "\n" not in str(refusal.value) and path.read_bytes() == content


# What only one of them has.


async def test_the_text_file_reads_like_text_and_can_be_edited(tmp_path):
    backend = Backend("textfile", tmp_path, None)
    memory, new_id = backend.open(), ids()
    await add(memory, "Ann plays the oboe.\n[end]\n\n\tSince \x07 1999.", new_id)
    await add(backend.open("bob"), "Bob plays the tuba.", new_id)
    path = tmp_path / "memory.txt"
    written = path.read_text()
    assert written == (
        "Memory of agentlab, embedded with hashing/hashing-64\n\n"
        '[fact "memory_1" of "ann" at 2026-01-05T10:30:00.123456]\n'
        "> Ann plays the oboe.\n> [end]\n>\n> \tSince \\x07 1999.\n[end]\n\n"
        '[fact "memory_2" of "bob" at 2026-01-05T10:30:00.123456]\n> Bob plays the tuba.\n[end]\n'
    )
    path.write_text(written.replace("oboe", "cello").replace("\n", "\r\n").rstrip(), newline="")
    assert await ask(memory, "plays the cello", min_score=0.3) == ["Ann plays the cello.\n[end]\n\n\tSince \x07 1999."]
    await add(memory, "Ann sings.", new_id)
    (tmp_path / "memory.vectors").unlink()
    memory = backend.open()
    assert await ask(memory, "who sings", top_k=1) == ["Ann sings."] and await texts(backend.open("bob")) != []
    (tmp_path / "memory.vectors").write_bytes(b"\x40\0\0\0cut off")
    await add(memory, "Ann dances.", new_id)
    assert await ask(backend.open(), "dances", top_k=1) == ["Ann dances."]


async def test_a_fact_cut_off_by_a_crash_was_never_stored(tmp_path):
    backend = Backend("textfile", tmp_path, None)
    memory = backend.open()
    await add(memory, "one thing", ids())
    path = tmp_path / "memory.txt"
    whole = path.read_bytes()
    await add(memory, "a second thing, é", ids())
    longer = path.read_bytes()
    for cut in range(len(whole), len(longer) - 5):
        path.write_bytes(longer[:cut])
        assert await texts(backend.open()) == ["one thing"]
    await add(backend.open(), "instead", ids())
    assert await texts(memory) == ["one thing", "instead"] == await texts(backend.open())


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("[end]", "end", 5),
        ("> one", "one", 4),
        ("2026-01-05T", "yesterday", 3),
        ('"memory_1"', "memory_1", 3),
        ("memory_2", "memory_1", 7),
        ("embedded with", "and", 1),
    ],
)
async def test_damage_to_the_text_file_is_named_by_line_and_nothing_is_overwritten(tmp_path, old, new, line):
    backend = Backend("textfile", tmp_path, None)
    memory = backend.open()
    for text in ("one thing", "another matter"):
        await add(memory, text, ids())
    path = tmp_path / "memory.txt"
    damaged = path.read_text().replace(old, new, 1)
    path.write_text(damaged)
    for result in await every_call(memory):
        assert type(result) is MemoryUnavailable
    with pytest.raises(ConfigError, match=f"line {line}:"):
        backend.open()
    assert path.read_text() == damaged


async def test_chroma_finishes_an_update_that_a_crash_cut_short(tmp_path, monkeypatch):
    backend = Backend("chroma", tmp_path, None)
    memory, new_id = backend.open(), ids()
    await add(memory, "Ann lives in Rome", new_id)
    monkeypatch.setattr(chroma._Store, "settle", lambda self: None)
    collection = memory._store.collection(memory._collection)
    monkeypatch.setattr(type(collection), "delete", lambda self, **_: None)
    await memory.update("memory_1", "Ann lives in Lyon", vector("Ann lives in Lyon"), created=NOW, new_id=new_id)
    monkeypatch.undo()
    assert await texts(memory) == ["Ann lives in Lyon"]
    assert await texts(memory) == ["Ann lives in Lyon"]
    await memory.close()


async def test_a_copy_of_chroma_takes_its_folder_with_it(tmp_path):
    memory = Backend("chroma", tmp_path, None).open()
    await add(memory, "one thing", ids())
    copy: Any = await memory.snapshot()
    folder = copy._store.folder
    assert folder.exists()
    await copy.close()
    await copy.close()
    assert not folder.parent.exists()
    await memory.close()
    assert not chroma._Store._all


async def test_the_lease_of_a_dead_writer_runs_out(server):
    memory = mongo.connect(f"lease-{uuid.uuid4().hex}", EMBEDDER, uri=server)
    await add(memory, "one thing", ids())
    began = time.monotonic()
    memory._turns.update_one({"_id": memory._owner}, {"$set": {"holder": "dead", "until": time.time() + 1.0}})
    assert await texts(memory) == ["one thing"], "readers do not wait"
    assert (await add(memory, "another matter", ids())).is_new
    assert time.monotonic() - began > 0.9
    memory._documents.delete_many({})
    memory._turns.delete_many({})
    with pytest.raises(MemoryUnavailable, match="gone"):
        await memory.facts()
    with pytest.raises(MemoryUnavailable, match="gone"):
        await add(memory, "more", ids())
    await memory.close()


async def test_vector_search_is_taken_where_it_is_and_missed_where_it_is_demanded(server, monkeypatch):
    plain = mongo.connect("none", EMBEDDER, uri=server, vector_search=True)
    with pytest.raises(ConfigError, match="no vector search"):
        await plain.facts()
    await plain.close()
    made: list[Any] = []

    class Building(LateIndex):
        def list_search_indexes(self, name: str) -> list[dict[str, Any]]:
            return [{"name": name, "queryable": False}] if made else []

        def create_search_index(self, model: Any) -> None:
            made.append(model.document)

    for _ in range(2):
        memory: Any = mongo.connect("building", EMBEDDER, uri=server)
        memory._documents = Building(memory._documents)
        assert await memory.facts() == () and memory._index is None
        await memory.close()
    assert [index["name"] for index in made] == ["agentlab_memory_64"]
    monkeypatch.setattr(mongo, "_LOOK", 0.0)
    memory = mongo.connect("building", EMBEDDER, uri=server)
    memory._documents = Building(memory._documents)
    await memory.facts()
    memory._documents = LateIndex(memory._documents._documents)
    await memory.facts()
    assert memory._index == "agentlab_memory_64", "taken as soon as it is ready"
    await memory.drop()
    with pymongo.MongoClient(server) as client:
        turns = client.get_default_database("agentlab")["agentlab_memory_turns"]
        assert not list(turns.find({"_id": {"$regex": "building"}})), "nothing is left of it"
    assert made[0]["definition"]["fields"][0]["numDimensions"] == 64 and made[0]["type"] == "vectorSearch"


def test_mongo_without_an_address_or_driver_says_what_to_do(monkeypatch):
    monkeypatch.delenv("MONGODB_URI", raising=False)
    with pytest.raises(ConfigError, match="set MONGODB_URI"):
        mongo.connect("x", EMBEDDER)
    for uri in ("http://secret@host", "mongodb://user:secret@", "mongodb://user:sec/ret@host", "mongodb://h:99999999"):
        with pytest.raises(ConfigError, match="not an address") as refusal:
            mongo.connect("x", EMBEDDER, uri=uri)
        assert "secret" not in str(refusal.value)
    monkeypatch.setitem(sys.modules, "pymongo", None)
    with pytest.raises(MissingExtra, match=r"agentlab-harness\[mongo\]"):
        mongo.connect("x", EMBEDDER, uri="mongodb://127.0.0.1")


async def test_a_password_is_never_part_of_an_error(monkeypatch):
    monkeypatch.setattr(mongo, "_TIMEOUT", 0.3)
    memory = mongo.connect("x", EMBEDDER, uri="mongodb://user:hunter2@127.0.0.1:1/?authSource=admin")
    with pytest.raises(MemoryUnavailable) as refusal:
        await memory.facts()
    assert "hunter2" not in str(refusal.value)
    await memory.close()


def test_every_backend_is_found_by_the_name_of_its_file():
    assert set(plugins.names("memory")) == {"chroma", "sqlite", "textfile", "mongo"}


def test_a_shelf_ranks_like_the_plain_formula_and_moves_house_without_a_loss():
    random = np.random.default_rng(3)
    shelf, plain = Shelf(), {}
    for number in range(300):
        row = unit(random.integers(-2, 3, 8))
        shelf.put([Fact(id=str(number), text="t", created=NOW)], [row])
        plain[str(number)] = row
        if number % 3 == 0:
            gone = str(random.choice(list(plain)))
            shelf.remove(gone)
            del plain[gone]
        if number % 50 == 49:
            twin = shelf.copy()
            twin.clear()
            asked = unit(random.integers(-2, 3, 8))
            best = sorted(plain, key=lambda name: -round(float(np.float64(plain[name]) @ np.float64(asked)), 6))
            for count in (1, 7, 1000):
                assert [fact.id for fact in shelf.nearest(asked, count)] == best[:count]
            assert [fact.id for fact in shelf.all()] == list(plain)


# The state machine.

WORDS = st.sampled_from(["ann", "bob", "oboe", "plays", "dog", "Rex", "rome", "lyon", "lives", "in", "fish"])
TEXTS = st.one_of(
    st.lists(WORDS, min_size=1, max_size=6).map(" ".join),
    st.text(min_size=1, max_size=20).filter(lambda text: text.strip() != ""),
    st.sampled_from(HOSTILE[:11]),
)
DUPLICATE_AT = 0.87


class Model:
    """What a memory should hold: (id, text, unit vector), oldest first."""

    def __init__(self, rows: list[tuple[str, str, Any]] | None = None) -> None:
        self.rows = list(rows or [])

    def nearest(self, row: Any) -> list[tuple[str, float]]:
        asked = unit(row).astype(np.float64)
        scored = [(name, round(float(known.astype(np.float64) @ asked), 6)) for name, _, known in self.rows]
        return sorted(scored, key=lambda pair: -pair[1])


class MemoryMachine(RuleBasedStateMachine):
    backend: Callable[[], Backend]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.kept = self.backend()
        self.places: list[tuple[Memory, Model]] = [(self.kept.open(user), Model()) for user in ("ann", "bob")]
        self.new_id = ids()

    def pick(self, number: int) -> tuple[Memory, Model]:
        return self.places[number % len(self.places)]

    def some_id(self, model: Model, number: int) -> str:
        return model.rows[number % len(model.rows)][0] if model.rows and number % 7 else f"memory_{number}00"

    @rule(place=st.integers(0, 3), text=TEXTS, checked=st.booleans())
    def add(self, place: int, text: str, checked: bool) -> None:
        memory, model = self.pick(place)
        row = vector(text)
        near = model.nearest(row)
        limit = DUPLICATE_AT if checked else None
        added = self.runner.run(memory.add(text, row, created=NOW, new_id=self.new_id, duplicate_at=limit))
        if checked and near and near[0][1] >= DUPLICATE_AT:
            assert not added.is_new and added.fact.id == near[0][0]
        else:
            assert added.is_new
            model.rows.append((added.fact.id, text.encode("utf-8", "replace").decode(), unit(row)))

    @rule(place=st.integers(0, 3), said=st.lists(TEXTS, max_size=12))
    def ingest(self, place: int, said: list[str]) -> None:
        memory, model = self.pick(place)
        units = [unit(vector(text)) for text in said]
        facts = self.runner.run(memory.ingest(said, units, created=[NOW] * len(said), new_id=self.new_id))
        model.rows += [(fact.id, fact.text, row) for fact, row in zip(facts, units, strict=True)]

    @rule(place=st.integers(0, 3), number=st.integers(0, 20), text=TEXTS)
    def update(self, place: int, number: int, text: str) -> None:
        memory, model = self.pick(place)
        old = self.some_id(model, number)
        new = self.runner.run(memory.update(old, text, vector(text), created=NOW, new_id=self.new_id))
        rest = [row for row in model.rows if row[0] != old]
        assert (new is None) == (len(rest) == len(model.rows))
        if new is not None:
            assert new.id != old
            model.rows = [*rest, (new.id, text.encode("utf-8", "replace").decode(), unit(vector(text)))]

    @rule(place=st.integers(0, 3), number=st.integers(0, 20))
    def delete(self, place: int, number: int) -> None:
        memory, model = self.pick(place)
        old = self.some_id(model, number)
        rest = [row for row in model.rows if row[0] != old]
        assert self.runner.run(memory.delete(old)) == (len(rest) < len(model.rows))
        model.rows = rest

    @rule(place=st.integers(0, 3), text=TEXTS, top_k=st.integers(1, 6))
    def search(self, place: int, text: str, top_k: int) -> None:
        memory, model = self.pick(place)
        found = self.runner.run(memory.search(text, vector(text), top_k=top_k))
        expected = model.nearest(vector(text))
        scores = [score for _, score in expected[:top_k]]
        assert [fact.score for fact in found] == pytest.approx(scores, abs=2e-6)
        if len({round(score, 5) for _, score in expected}) < len({score for _, score in expected}):
            return  # Chroma rounds vectors in its own way: what differs in the sixth place may change places
        # An index does not reach all of many equals, so it may not know which is the oldest of those at the cut.
        cut = scores[-1] if self.kept.name in ("chroma", "mongo_index") and scores else -2.0
        sure = [name for name, score in expected[:top_k] if score > cut]
        assert [fact.id for fact in found][: len(sure)] == sure

    @rule(place=st.integers(0, 3))
    def clear(self, place: int) -> None:
        memory, model = self.pick(place)
        assert self.runner.run(memory.clear()) == len(model.rows)
        model.rows = []

    @rule(place=st.integers(0, 3))
    def snapshot(self, place: int) -> None:
        memory, model = self.pick(place)
        if len(self.places) < 4:
            self.places.append((self.runner.run(memory.snapshot()), Model(model.rows)))

    @rule(place=st.integers(0, 1))
    def reopen(self, place: int) -> None:
        memory, model = self.places[place]
        self.runner.run(memory.close())
        self.places[place] = (self.kept.open(memory.user), model)

    @invariant()
    def each_holds_what_it_should(self) -> None:
        for memory, model in self.places:
            facts = self.runner.run(memory.facts())
            assert [(fact.id, fact.text) for fact in facts] == [row[:2] for row in model.rows]

    def teardown(self) -> None:
        for memory, _ in self.places:
            self.runner.run(memory.close())
        self.runner.close()
        self.kept.close()


@pytest.mark.parametrize("name", BACKENDS)
def test_any_sequence_of_operations_ends_where_a_plain_list_does(name, tmp_path, request, monkeypatch):
    monkeypatch.setattr(mongo, "_NEWEST", 8)
    uri = request.getfixturevalue("server") if name in ("mongo", "mongo_index") else None
    folders = (tmp_path / str(number) for number in itertools.count())

    class Machine(MemoryMachine):
        backend = staticmethod(lambda: Backend(name, next(folders), uri))

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=8 if name == "chroma" else 20,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
