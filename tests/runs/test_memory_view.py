"""The memory view of a run: each fact, the turn that wrote it, and the turns that read it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.errors import AgentlabError
from agentlab.lab.run import open_run


def test_memory_view_of_a_conversation(tmp_path, monkeypatch, own_home, capsys):
    monkeypatch.chdir(tmp_path)
    Path("set").mkdir()
    turns = [{"user": "I live in Bern with two dogs."}, {"user": "Where do I live, and with whom?"}]
    Path("set/conversations.jsonl").write_text(json.dumps({"id": "a", "turns": turns}) + "\n")
    Path("model.yaml").write_text(json.dumps({"replies": ["Nice."], "loop": True}))
    flow = {"flow": "coordinator", "gate": "all", "tools": []}
    with al.Lab(
        datasets=["set"],
        flows=[flow, {**flow, "label": "forgetful", "memory": "none"}],
        model="scripted/model.yaml",
        memory="sqlite",
        embedder="hashing/hashing-64",
    ) as lab:
        run = lab.run_sync(out="run")
    view = run.memory("a")
    first = next(iter(view.facts.values()))
    assert "I live in Bern with two dogs" in first.fact.text
    assert (first.written, first.read, first.replaced_by) == (1, [2], None) and len(view.stored) == 2
    assert "I live in Bern" in view._repr_html_()
    assert main(["memory", "run", "a"]) == 0
    assert first.fact.id in capsys.readouterr().out
    for wrong, text in [
        (["b"], "unknown conversation of this run 'b'. Known: a"),
        (["a", "--flow", "nobody"], "unknown flow that played a 'nobody'"),
    ]:
        assert main(["memory", "run", *wrong]) == 1
        assert text in capsys.readouterr().err
    with pytest.raises(AgentlabError):
        open_run("run").memory("a", "rag")
