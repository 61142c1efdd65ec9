"""Lives with each system, read from the terminal's own text: no sentence twice, no fact lost, every chat replays."""

from __future__ import annotations

import json
import re

import pytest

from agentlab.cli.parser import main
from agentlab.models.scripted import Scripted
from support.lives import LIVES, SYSTEMS, Model, sentences
from support.typed_lines import type_lines


@pytest.mark.parametrize("name", LIVES)
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_life_shows_each_sentence_once_keeps_each_fact_and_replays(
    system, name, monkeypatch, capsys, tmp_path, own_home
):
    life = LIVES[name]
    model = Model(life)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("agentlab.models.weights.is_present", lambda weights: False)
    monkeypatch.setattr(
        "agentlab.models.scripted.connect", lambda file: Scripted([model], loop=True, name="scripted/x")
    )

    def session(*texts: str) -> str:
        type_lines(monkeypatch, model.typed([*texts, "/quit"]))
        given = ["--model", "scripted/x", "--set", "embedder=hashing/hashing-64", "--speaker", "Ann:7"]
        assert main(["chat", system, *given]) == 0
        return capsys.readouterr().out

    rendered = "".join(session(*texts) for texts in life.sessions)
    listed, saved = session("/memory"), session("/save saved")
    rows = (own_home / "chats" / "conversations" / f"{system}.jsonl").read_text(encoding="utf-8").splitlines()
    replies = [json.loads(row)["reply"] for row in rows]
    assert len(replies) == sum(map(len, life.sessions)) == 10
    # Receipts, which end a turn, quote what was kept.
    numbers = sentences(re.sub(r"^(?:not )?kept[:,].*?(?=^> |\Z)", "", rendered, flags=re.MULTILINE | re.DOTALL))
    assert len(numbers) == len(set(numbers)), "a sentence is shown twice"
    assert {number for reply in replies for number in sentences(reply)} <= {*numbers}, "a sentence is lost"
    if system == "coordinator":
        assert {*numbers} == {*range(1, model.n_sentences + 1)}, "words beside a tool call are lost"
    turns = iter(re.split(r"^> (.*)\n", rendered, flags=re.MULTILINE)[1:])
    outputs = dict(zip(turns, turns, strict=True))
    for fact in life.facts:
        if system == "tools_rag_fallback":
            assert "has no memory" in listed and fact not in listed
        else:
            assert fact in " ".join(listed.split()) or "\nnot kept" in outputs[fact], (
                f"{fact} is neither kept nor refused"
            )
    assert "does not replay whole" not in saved
    assert main(saved.split("replay it with: agentlab ")[1].splitlines()[0].split()) == 0
    replayed = capsys.readouterr().out
    assert " reused, 0 new" in replayed and "NOT RECORDED" not in replayed
