"""Gold that cannot be meant is said before the run."""

from __future__ import annotations

import agentlab as al
from agentlab.data.datasets import load_dataset
from agentlab.data.lint import lint
from agentlab.models.scripted import Scripted
from support.conversation_sets import GOOD, write


def test_gold_that_cannot_be_meant_is_said_before_the_run(tmp_path, own_home, caplog):
    tool = {"name": "book", "parameters": {"type": "object", "properties": {"day": {"type": "string"}}}}
    odd = {
        "id": "odd",
        "tools": [tool],
        "turns": [
            {"user": "q", "no_call": True, "expected_calls": [{"name": "book"}]},
            {"user": "q", "call_order": "sequenc", "expected_calls": [{"name": "cancel"}]},
            {"user": "q", "expected_calls": [{"name": "book", "accepted_arguments": {"date": ["Monday"]}}]},
            {"user": "q", "expected_memory": [{"op": "add"}]},
            {"user": "q", "expected_calls": [{"name": "save_memory"}, {"name": "book", "optional_arguments": ["day"]}]},
            {"user": "q", "scored": False, "expected_calls": [{"name": "nothing"}]},
        ],
    }
    folder = write(tmp_path / "set", GOOD, odd, corpus=[{"doc_id": "d", "title": "", "text": "Closed on Monday."}])
    assert list(lint(load_dataset(folder))) == [
        "turn 0 of odd: no_call: calls are expected all the same",
        "turn 1 of odd: call_order: 'sequenc' is not graded; 'sequence' is",
        "turn 1 of odd: expected_calls: cancel is no tool of the conversation",
        "turn 2 of odd: expected_calls: book has no argument date",
        "turn 3 of odd: expected_memory: add without a content",
    ]
    with al.Lab(model=Scripted(["x"], loop=True), datasets=[folder], embedder="hashing/hashing-64") as lab:
        lab.run_sync(out=tmp_path / "run")
    assert "set: turn 0 of odd: no_call: calls are expected all the same (and 4 more such places)" in caplog.text
