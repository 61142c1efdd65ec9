"""The Lab: its arguments, the resources that it closes, its chats, and its use inside a running loop."""

from __future__ import annotations

import numpy as np
import pytest

import agentlab as al
from agentlab.core.errors import ConfigError
from agentlab.core.trace import Totals
from agentlab.models.scripted import Scripted
from support.rules_set import lab


def test_a_lab_that_is_closed_lets_go_of_its_embedder(dataset, tmp_path):
    class Embedder:
        name, dimensions, closed = "mine", 8, False

        async def embed(self, texts):
            return np.ones((len(texts), 8), dtype=np.float32) / np.sqrt(8)

        async def close(self):
            self.closed = True

    embedder = Embedder()
    with al.Lab(model=Scripted(["yes"], loop=True), datasets=[str(dataset)], embedder=embedder) as opened:
        index = opened.loop.run_coroutine(
            opened.bench.index(opened.bench.datasets()[0].documents, opened.bench.spec.retrieval)
        )
        assert opened.loop.run_coroutine(index.search("ball", np.ones(8, dtype=np.float32), top_k=1))
    assert embedder.closed


def test_lab_takes_paths_and_reports_an_invalid_model(dataset, own_home):
    with al.Lab(model=Scripted(["x"]), datasets=dataset, flows=["rag_only"]) as opened:
        assert opened.bench.spec.datasets == (str(dataset),)
    for wrong in ({"model": 3}, {"embedder": object()}):
        with pytest.raises(ConfigError, match="neither a name nor an object with a name"):
            al.Lab(datasets=[dataset], **wrong)


def test_chat_on_a_file_continues(dataset, tmp_path):
    model = Scripted(["one", "two"])
    for text in ("First", "Second"):
        spec = {"datasets": [str(dataset)], "embedder": "hashing/hashing-64", "flows": ["rag_only"]}
        with al.Lab(model=model, **spec) as laboratory:
            laboratory.chat("rag_only", database=tmp_path / "chat.sqlite").say_sync(text)
    assert [m.text for m in model.requests[1].messages[1:-1]] == ["First", "one"]


async def test_the_lab_works_inside_a_running_loop(dataset, tmp_path):
    with lab(dataset, flows=["rag_only"]) as laboratory:
        awaited = await laboratory.run(out=tmp_path / "awaited")
        waited = laboratory.run_sync(out=tmp_path / "waited")
        chat = laboratory.chat("rag_only")
        reply = await chat.say("How heavy is the ball?")
    assert awaited.summary["turns"] == waited.summary["turns"] == 6
    assert reply.text == "Between 410 and 450 grams."
    assert chat.trace.totals() != Totals()
