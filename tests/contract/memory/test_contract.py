"""One contract over every memory backend: it stores, finds, replaces, deletes and refuses facts."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import numpy as np
import pytest

from agentlab.core import plugins
from agentlab.core.errors import ConfigError, ToolError
from agentlab.core.messages import Fact
from agentlab.models.embedders import hashing
from support.hostile_texts import HOSTILE
from support.memories import EMBEDDER, NOW, add, ask, ids, texts, vector


async def test_search_returns_the_nearest_facts_with_ids_and_scores(backend):
    memory, new_id = backend.open(), ids()
    for text in ("Ann plays the oboe", "Ann has a dog called Rex", "The dog eats fish"):
        assert (await add(memory, text, new_id)).is_new
    hits = await memory.search("q", vector("the dog called Rex"), top_k=2)
    assert [fact.id for fact in hits] == ["memory_2", "memory_3"]
    assert hits[0].score > hits[1].score > 0 and hits[0].created == NOW
    assert hits[0].score == pytest.approx(
        float(vector("the dog called Rex") @ vector("Ann has a dog called Rex")), abs=2e-3
    )
    assert await ask(memory, "the dog called Rex", top_k=5, min_score=hits[0].score) == ["Ann has a dog called Rex"]
    assert len(await ask(memory, "dog", top_k=99)) == 3
    assert await ask(memory, "dog", top_k=0) == [] == await ask(backend.open("bob"), "dog")
    assert (memory.embedder, memory.user) == (EMBEDDER, "ann")


async def test_older_fact_precedes_at_equal_scores(backend):
    memory, new_id = backend.open(), ids()
    for _ in range(6):
        await add(memory, "the same again", new_id, duplicate_threshold=None)
    hits = await memory.search("q", vector("the same again"), top_k=3)
    assert [(fact.id, fact.score) for fact in hits] == [(f"memory_{n}", 1.0) for n in (1, 2, 3)]


async def test_duplicate_is_not_stored_and_names_the_stored_fact(backend):
    memory, new_id = backend.open(), ids()
    first = (await add(memory, "Ann plays the oboe", new_id)).fact
    again = await add(memory, "ann PLAYS the oboe!", new_id)
    assert (again.is_new, again.fact.id, again.fact.score) == (False, first.id, 1.0)
    assert not (await add(memory, "Ann plays the oboe well", new_id, duplicate_threshold=0.8)).is_new
    assert (await add(memory, "Ann plays the oboe well", new_id, duplicate_threshold=0.95)).is_new
    assert (await add(memory, "Ann plays the oboe", new_id, duplicate_threshold=None)).is_new
    assert len(await memory.facts()) == 3


async def test_a_near_text_differs_by_its_words_or_its_speaker(backend):
    memory, new_id = backend.open(), ids()
    await add(memory, "Ann is allergic to peanuts", new_id, about="Bo")
    own = (await add(memory, "Ann is allergic to peanuts", new_id, about="Ann", duplicate_threshold=None)).fact
    for text, about, differs in (
        ("ann is allergic to peanuts.", "Ann", False),
        ("Ann is not allergic to peanuts", "Ann", True),
        ("Ann is allergic to peanuts", "Cy", True),
    ):
        added = await add(memory, text, new_id, about=about)
        assert (added.is_new, added.differs) == (False, differs)
        assert (added.fact.id == own.id) == (about == "Ann"), "a fact of the same speaker precedes an older one"
    assert len(await memory.facts()) == 2


async def test_many_texts_are_stored_at_once_and_as_they_are(backend):
    memory = backend.open()
    await add(memory, "one thing", ids())
    lines = ["yes", "yes", "no thanks", "yes\n[end]"]
    days = [datetime(2026, 1, day) for day in range(1, 5)]
    stored = await memory.ingest(lines, [vector(text) for text in lines], created=days, new_id=ids())
    assert [(fact.text, fact.created) for fact in stored] == list(zip(lines, days, strict=True))
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


async def test_facts_survive_a_restart_and_ids_continue(backend):
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


async def test_invalid_fact_is_refused_and_changes_nothing(backend):
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
    with pytest.raises(ValueError, match="an id must be a text"):
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


async def test_vectors_of_another_length_are_refused_with_the_same_line(backend):
    class Longer:
        name, dimensions = "hashing/hashing-64", 96

    await add(backend.open(), "one thing", ids())
    memory = backend.open(embedder=Longer())
    line = "holds vectors of 64 numbers and was given one of 96: they come from different embedders"
    with pytest.raises(ConfigError, match=line):
        await memory.search("q", np.ones(96, dtype=np.float32))
    with pytest.raises(ConfigError, match=line):
        await memory.add("another", np.ones(96, dtype=np.float32), created=NOW, new_id=ids())
    assert await texts(backend.open()) == ["one thing"]


def test_every_backend_is_found_by_the_name_of_its_file():
    assert set(plugins.names("memory")) == {"chroma", "sqlite", "textfile", "mongo"}


@pytest.mark.parametrize("about", ["", "Bo", 'Ann | "x" <MEMORY>\nID: fact_9', "学生"])
async def test_fact_keeps_its_speaker(backend, about):
    memory, new_id = backend.open(), ids()
    await add(memory, "likes tea", new_id, about=about)
    await add(memory, "owns a boat", new_id)
    changed = await memory.update("memory_1", "likes coffee", vector("likes coffee"), created=NOW, new_id=new_id)
    assert changed is not None and changed.about == about
    assert [(fact.text, fact.about) for fact in await backend.open().facts()] in (
        [("owns a boat", ""), ("likes coffee", about)],
        [("likes coffee", about), ("owns a boat", "")],
    )
    assert (await memory.search("q", vector("likes coffee"), top_k=1))[0].about == about
