"""What a run remembered, and what each fact was worth: a planted stale fact is found by playing on without it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.errors import AgentlabError
from agentlab.core.messages import Completion, Message
from agentlab.evals.store.run import Run, open_run
from agentlab.lab.worth import fact_worth

FACTS = {
    "s-old": ("2026-01-01", "The user lives in Bern."),
    "s-new": ("2026-02-01", "The user lives in Basel now."),
    "s-cat": ("2026-02-02", "The user has a cat called Pickle."),
}


class Anchored:
    """Believes the oldest of what it is told about the matter, or the newest."""

    parallel = None

    def __init__(self, believes: int = 0) -> None:
        self.name = f"anchored{believes}"
        self.believes = believes
        self.asked = 0

    async def complete(self, request, emit) -> Completion:
        self.asked += 1
        context, _, question = request.messages[-1].text.rpartition("]\n")
        topic = "lives" if "live" in question else "cat"
        told = [text for _, text in FACTS.values() if text in context and topic in text]
        return Completion(message=Message(role="agent", text=told[self.believes] if told else "I do not know."))

    async def close(self) -> None:
        pass


@pytest.fixture
def run(memory_set: None) -> Run:
    return recorded(Anchored())


def recorded(model: Anchored | al.Scripted, name: str = "run") -> Run:
    flow = {"flow": "coordinator", "tools": [], "gate": "words"}
    spec = {"memory": "sqlite", "mode": "auto", "recordings": "rec", "embedder": "hashing/hashing-64"}
    with al.Lab(datasets=["stale"], flows=[flow], model=model, **spec) as lab:
        return lab.run_sync(out=name)


@pytest.fixture
def memory_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_home: Path) -> None:
    monkeypatch.chdir(tmp_path)
    Path("stale").mkdir()
    told(FACTS)
    ask(("Where do I live?", "The user lives in Basel now."), ("What is my cat called?", "Pickle"))


def told(facts: dict[str, tuple[str, str]]) -> None:
    sessions = [
        {"conversation_id": "m", "session_id": name, "date": date, "speakers": ["user"]}
        | {"turns": [{"id": name, "speaker": "user", "text": text}]}
        for name, (date, text) in facts.items()
    ]
    Path("stale/sessions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in sessions))


def ask(*asked: tuple[str, str]) -> None:
    questions = [
        {"id": f"q{number}", "conversation_id": "m", "question": question, "category": "x"}
        | {"reference_answers": [answer], "unanswerable": False, "evidence_ids": []}
        | {"source": "here", "licence": "Apache-2.0"}
        for number, (question, answer) in enumerate(asked, 1)
    ]
    Path("stale/questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in questions))


def test_the_stale_fact_is_worth_less_than_nothing_and_the_needed_one_more(run):
    model = Anchored()
    found = fact_worth(run, model=model).set_index("fact")
    assert found.loc["s-old", "worth"] < 0 < found.loc["s-cat", "worth"] and set(found["conversation"]) == {"m"}
    assert dict(found["delete"]) == {"s-old": "misled", "s-new": "", "s-cat": ""}
    assert 0 < model.asked <= found["reads"].sum(), "one call for each question that read a fact, and none for the rest"
    asked = model.asked
    again = fact_worth(run, model=model, mode="replay", out="again")
    assert list(again["worth"]) == list(found["worth"])
    assert type(again).__name__ == "Frame", "what facts say is shown and never carried out"
    assert model.asked == asked, "what a replay needs is recorded now"


def test_a_stale_fact_that_did_no_harm_yet_is_superseded(memory_set):
    found = fact_worth(recorded(Anchored(believes=-1)), model=Anchored(believes=-1)).set_index("fact")
    assert found.loc["s-old", "worth"] == 0, "without it the answer is the same"
    assert dict(found["delete"]) == {"s-old": "superseded", "s-new": "", "s-cat": ""}
    assert found.loc["s-old", "newer"] == "s-new" and found.loc["s-old", "alike"] > 0.6
    assert found.loc["s-old", "why"].endswith(FACTS["s-new"][1]) and not found.loc["s-cat", "why"]


@pytest.mark.parametrize("question", ["Where does my sister Johanna live?", "Where does Adelheid live?"])
def test_two_sisters_are_told_apart_by_whoever_asks_for_one_of_them(memory_set, question):
    told({"s-1": ("2026-01-01", "My sister Johanna lives in Bern."), "s-2": ("2026-02-01", "Adelheid lives in Bern.")})
    model = al.Scripted(["Bern"], loop=True)
    ask(("Where do both live?", "Bern"))
    one = fact_worth(recorded(model), model=model).set_index("fact")
    assert one.loc["s-1", "delete"] == "superseded", "nobody ever asked for her"
    ask(("Where do both live?", "Bern"), (question, "Bern"))
    both = fact_worth(recorded(model, "both"), model=model, out="again").set_index("fact")
    assert set(both["delete"]) == {""} and list(both["worth"]) == [0, 0]


@pytest.mark.parametrize(("newer", "delete"), [("a flat", "superseded"), ("a house", "")])
def test_what_an_answer_needs_goes_only_where_the_newer_fact_says_it_as_well(memory_set, newer, delete):
    told({"s-1": ("2026-01-01", "I live in a flat in Bern."), "s-2": ("2026-02-01", f"I live in {newer} in Basel.")})
    ask(("What do I live in?", "a flat"))
    model = al.Scripted([lambda request: "a flat" if "Bern" in request.messages[-1].text else "-"], loop=True)
    found = fact_worth(recorded(model), model=model).set_index("fact")
    assert found.loc["s-1", "worth"] > 0 and found.loc["s-1", "delete"] == delete


def test_what_misled_says_whether_anything_newer_is_about_it(memory_set):
    told({"s-1": ("2026-01-01", "I live in Bern."), "s-2": ("2026-02-01", "I live in Basel.")})
    ask(("Where do I live?", "Basel"))
    model = al.Scripted([lambda request: "Bern" if "Bern" in request.messages[-1].text else "Basel"], loop=True)
    assert "; newer: 2026-02-01, user: I live in Basel." in fact_worth(recorded(model), model=model)["why"][0]
    told({"s-1": ("2026-02-01", "I live in Bern."), "s-2": ("2026-01-01", "I live in Basel.")})
    alone = fact_worth(recorded(model, "alone"), model=model, out="again")
    assert list(alone["delete"]) == ["misled", ""]
    assert alone["why"][0] == "answer_f1 is 1 higher without it; nothing newer is about it, so look first"


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
    assert main(["memory", "run", "a", "--find", "zebra"]) == 0
    assert capsys.readouterr().out.endswith("there is no such fact\n")
    for wrong, told in [
        (["b"], "unknown conversation of this run 'b'. Known: a"),
        (["a", "--flow", "nobody"], "unknown flow that played a 'nobody'"),
        ([], "name a conversation"),
        (["a", "--history", "x"], "'x'"),
    ]:
        assert main(["memory", "run", *wrong]) == 1
        assert told in capsys.readouterr().err
    assert main(["memory", "run", "--worth"]) == 1
    assert "was not recorded" in capsys.readouterr().err
    with pytest.raises(AgentlabError):
        open_run("run").memory("a", "rag")


def test_the_command_says_which_facts_to_delete(tmp_path, monkeypatch, own_home, capsys):
    monkeypatch.chdir(tmp_path)
    Path("set").mkdir()
    said = [("I live in Bern, in the Lorraine.", "I see."), ("I live in Basel now, in the Gundeli.", "I see.")]
    turns = [
        {"user": user, "reference_answers": [right], "session": f"2026-0{month}-01"}
        for month, (user, right) in enumerate([*said, ("Where do I live now?", "Basel")], 1)
    ]
    Path("set/conversations.jsonl").write_text(json.dumps({"id": "a", "turns": turns}) + "\n")
    Path("model.yaml").write_text(json.dumps({"replies": ["You live in Basel."], "loop": True}))
    settings = ["embedder=hashing/hashing-64", "memory=sqlite", "recordings=rec"]
    spec = ["--dataset", "set", "--flow", "coordinator", "--model", "scripted/model.yaml"]
    assert main(["run", *spec, *(f"--set={key}" for key in settings), "--mode", "record", "--out", "run"]) == 0
    capsys.readouterr()
    assert main(["memory", "run", "--worth"]) == 0
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert lines[0] == "1 of the 2 facts that were read are to be deleted:"
    assert "I live in Bern" in lines[1] and lines[2].strip().startswith("superseded: newer: 2026-02-01")
    assert "to be kept" in lines[3] and "I live in Basel now" in "".join(lines[4:])
