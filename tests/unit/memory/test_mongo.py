"""MongoDB without a server: addresses and drivers that are missing, passwords that stay unsaid."""

from __future__ import annotations

import sys

import pytest

from agentlab.core.errors import ConfigError, MemoryUnavailable, MissingExtra
from agentlab.memory import mongo
from support.memories import EMBEDDER


def test_mongo_without_an_address_or_driver_names_the_remedy(monkeypatch):
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
