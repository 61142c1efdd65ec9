"""What a run remembered, and what each fact was worth: a planted stale fact is found by playing on without it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.errors import AgentlabError
from agentlab.core.messages import Completion, Message
from agentlab.evals.results.run import Run, open_run
from agentlab.lab.worth import fact_worth

FACTS = {
    "s-old": ("2026-01-01", "The user lives in Bern."),
    "s-new": ("2026-02-01", "The user lives in Basel now."),
    "s-cat": ("2026-02-02", "The user has a cat called Pickle."),
}


class Anchored:
    """Believes the oldest of what it is told about living somewhere, else the first."""

    name, parallel = "anchored", None

    def __init__(self) -> None:
        self.asked = 0

    async def complete(self, request, emit) -> Completion:
        self.asked += 1
        context, _, question = request.messages[-1].text.rpartition("]\n")
        topic = "lives" if "live" in question else "cat"
        told = [text for _, text in FACTS.values() if text in context and topic in text]
        return Completion(message=Message(role="agent", text=told[0] if told else "I do not know."))

    async def close(self) -> None:
        pass


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_home: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    folder = Path("stale")
    folder.mkdir()
    sessions = [
        {"conversation_id": "m", "session_id": name, "date": date, "speakers": ["user"]}
        | {"turns": [{"id": name, "speaker": "user", "text": text}]}
        for name, (date, text) in FACTS.items()
    ]
    asked = [("q1", "Where do I live?", "The user lives in Basel now."), ("q2", "What is my cat called?", "Pickle")]
    questions = [
        {"id": name, "conversation_id": "m", "question": question, "category": "x", "reference_answers": [answer]}
        | {"unanswerable": False, "evidence_ids": [], "source": "here", "licence": "Apache-2.0"}
        for name, question, answer in asked
    ]
    (folder / "sessions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in sessions))
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in questions))
    flow = {"flow": "coordinator", "tools": [], "gate": "words"}
    spec = {"memory": "sqlite", "mode": "record", "recordings": "rec", "embedder": "hashing/hashing-64"}
    with al.Lab(datasets=["stale"], flows=[flow], model=Anchored(), **spec) as lab:
        return lab.run_sync(out="run")


def test_the_stale_fact_is_worth_less_than_nothing_and_the_needed_one_more(run):
    model = Anchored()
    worth = fact_worth(run, model=model).set_index(["conversation", "fact"])["worth"]
    assert worth["q1", "s-old"] < 0 and worth["q2", "s-cat"] > 0
    assert list(worth[worth < 0].index) == [("q1", "s-old")]
    assert 0 < model.asked <= len(worth), "one call for each fact that was read, and none for the rest"
    again = fact_worth(run, model=model, mode="replay", out="again")
    assert list(again["worth"]) == sorted(worth)
    assert model.asked <= len(worth), "what a replay needs is recorded now"


def test_worth_says_what_it_cannot_do(run):
    with pytest.raises(AgentlabError, match="is not recorded; --mode auto"):
        fact_worth(run, model=Anchored(), mode="replay", out="none")
    with pytest.raises(AgentlabError, match="read no fact"):
        fact_worth(run, flow="coordinator", conversation="nobody")


def test_the_view_of_a_told_conversation(tmp_path, monkeypatch, own_home, capsys):
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
    first = view.search("bern dogs")[0]
    assert (first.written, first.read, first.replaced_by) == (1, [2], None) and len(view.stored) == 2
    assert any(line.startswith(f"reads {first.fact.id}") for line in view.turn(2))
    assert [known.fact.id for known in view.history(first.fact.id)] == [first.fact.id]
    assert "I live in Bern" in view._repr_html_() and not view.search("Basel")
    assert main(["memory", "run", "a", "--turn", "1"]) == 0
    assert f"writes {first.fact.id}" in capsys.readouterr().out
    assert main(["memory", "run", "a", "--find", "dogs"]) == 0
    assert first.fact.id in capsys.readouterr().out
    for wrong, told in [
        (["b"], "unknown memory of this run"),
        ([], "name a conversation"),
        (["a", "--history", "x"], "'x'"),
    ]:
        assert main(["memory", "run", *wrong]) == 1
        assert told in capsys.readouterr().err
    assert main(["memory", "run", "--worth"]) == 1
    assert "was not recorded" in capsys.readouterr().err
    with pytest.raises(AgentlabError):
        open_run("run").memory("a", "rag")
