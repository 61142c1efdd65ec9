"""What wrong decisions to look things up cost a flow, from what the other flows made of the same turns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.messages import Completion, Message, Usage
from agentlab.models.scripted import Scripted
from support.predictions import write_rows

CORPUS = [{"doc_id": "ball", "title": "The ball", "text": "The ball weighs 450 grams."}]
ASKED = {"user": "How heavy?", "reference_answers": ["450 grams"], "relevant_doc_ids": ["ball"]}
THANKS = {"user": "Thanks!", "reference_answers": ["You are welcome."], "needs_document_lookup": False}
SAID = {("How heavy?", True): "450 grams", ("How heavy?", False): "no idea", ("Thanks!", True): "450 grams"}


def flow(name: str, *searches: str):
    """Looks up for some messages, and asks the model once more then."""

    async def respond(turn, session):
        if searched := turn.text in searches:
            await session.retrieve(turn.text)
            await session.complete("search " + turn.text)
        await session.complete(turn.text)
        return al.Reply(text=SAID.get((turn.text, searched), "You are welcome."))

    respond.__name__ = name
    return respond


def played(folder: Path, *flows, turns=(ASKED, THANKS)) -> str:
    (folder / "set").mkdir()
    rows = [{"id": f"c{number}", "turns": list(turns)} for number in range(6)]
    write_rows(folder / "set" / "conversations.jsonl", rows)
    write_rows(folder / "set" / "corpus.jsonl", CORPUS)
    reply = Completion(message=Message(role="agent", text="hm"), usage=Usage())
    spec = {"datasets": [str(folder / "set")], "embedder": "hashing/hashing-64", "scorers": ["correctness"]}
    with al.Lab(model=Scripted([reply], loop=True), flows=list(flows), **spec) as lab:
        return str(lab.run_sync(out=folder / "run").path)


def told(run: str, capsys) -> dict[str, dict]:
    assert main(["compare", run, "--regret", "--json"]) == 0
    return {each["flow"]: each for each in json.loads(capsys.readouterr().out)["flows"]}


def test_regret_is_what_those_who_decided_rightly_made_of_the_turn(tmp_path, own_home, capsys):
    flows = flow("wise", "How heavy?"), flow("eager", "How heavy?", "Thanks!"), flow("lazy")
    run = played(tmp_path, *flows)
    found = told(run, capsys)
    assert (found["wise"]["missed"], found["wise"]["needless"], found["wise"]["quality"][0]) == (0, 0, 0)
    assert (found["eager"]["missed"], found["eager"]["needless"]) == (0, 6)
    assert found["eager"]["wasted"] == [0.5, [0.5, 0.5]], "one call more on every other turn"
    assert (found["lazy"]["missed"], found["lazy"]["needless"]) == (6, 0)
    assert found["lazy"]["lost"][0] == found["lazy"]["quality"][0] == 0.5, "right on every other turn"
    assert found["lazy"]["wasted"][0] == 0
    assert main(["compare", run, "--regret"]) == 0
    assert "look-up decisions: answer_correctness" in capsys.readouterr().out


def test_a_turn_that_nobody_decided_rightly_tells_nothing(tmp_path, own_home, capsys):
    found = told(played(tmp_path, flow("one"), flow("other", "Thanks!")), capsys)
    assert (found["one"]["turns"], found["one"]["untold"], found["one"]["quality"][0]) == (6, 6, 0)


@pytest.mark.parametrize("turn", [{"user": "How heavy?", "reference_answers": ["450 grams"]}])
def test_without_a_word_on_what_is_needed_there_is_no_regret(turn, tmp_path, own_home, capsys):
    run = played(tmp_path, flow("one"), flow("other", "How heavy?"), turns=[turn])
    assert main(["compare", run, "--regret"]) == 1
    assert "needs_document_lookup" in capsys.readouterr().err
    assert main(["compare", run, run, "--regret"]) == 1


def test_of_imported_answers_the_source_says_who_searched(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("theirs").mkdir()
    names = [f"c{number}" for number in range(6)]
    write_rows(Path("theirs/corpus.jsonl"), CORPUS)
    write_rows(Path("theirs/conversations.jsonl"), [{"id": name, "turns": [ASKED, THANKS]} for name in names])

    def answers(**steps: list[int | None]) -> None:
        rows = [
            {"system": system, "conversation": name, "turn": turn, "llm_calls": 1 + (taken[turn] or 0),
             "retrieval_steps": taken[turn],
             "answer": "You are welcome." if turn else SAID["How heavy?", bool(taken[0])]}
            for system, taken in steps.items() for name in names for turn in (0, 1)
        ]  # fmt: skip
        write_rows(Path("theirs/predictions.jsonl"), rows)

    answers(always=[1, 1], never=[0, 0])
    assert main(["import", "predictions", "theirs", "-o", "run"]) == 0
    capsys.readouterr()
    found = told("run", capsys)
    assert (found["never"]["missed"], found["never"]["lost"][0]) == (6, 0.5)
    assert (found["always"]["needless"], found["always"]["wasted"][0]) == (6, 0.5)
    answers(always=[1, 1], never=[0, 0], silent=[None, None])
    assert main(["import", "predictions", "theirs", "-o", "some"]) == 0
    capsys.readouterr()
    assert set(told("some", capsys)) == {"always", "never"}
    assert main(["compare", "some", "--regret"]) == 0
    assert "of silent its source does not say" in capsys.readouterr().out
    answers(always=[None, None], never=[None, None])
    assert main(["import", "predictions", "theirs", "-o", "unknown"]) == 0
    capsys.readouterr()
    assert main(["compare", "unknown", "--regret"]) == 1
    assert "its source does not say" in capsys.readouterr().err
