"""The coordinator in runs and chats: it remembers across labs, and replays to the same totals."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

import agentlab as al
from agentlab.core.events import Decision
from agentlab.models.scripted import Scripted
from support.coordinators import both


def test_chat_keeps_its_memory_across_labs_and_its_clock_continues(tmp_path):
    times = iter([datetime(2026, 1, 1, 9), datetime(2026, 1, 1, 10), datetime(2026, 1, 2, 9)])
    texts = []
    for replies in (["Noted.", "Bern."], ["Bern, you said."]):
        model = Scripted(replies)
        with al.Lab(
            flows=[{"flow": "coordinator", "gate": "all", "tools": []}],
            model=model,
            embedder="hashing/hashing-64",
            memory="sqlite",
        ) as lab:
            chat = lab.chat(documents=(), memory=tmp_path / "memory", clock=lambda: next(times))
            for text in ("I live in Bern, you know.", "Where do I live?")[-len(replies) :]:
                chat.say_sync(text)
                chat.reset_sync()
        texts += [request.messages[-1].text for request in model.requests]
    assert [text[:26] for text in texts] == [
        "[CONTEXT: 2026-01-01 09:00",
        "[CONTEXT: 2026-01-01 10:00",
        "[CONTEXT: 2026-01-02 09:00",
    ]
    assert "user: I live in Bern" in texts[1]
    assert "user: Where do I live? | miyori: Bern." in texts[2]


def test_turns_with_facts_or_answers_are_stored_and_mere_questions_are_not(tmp_path):
    is_stored = {
        "Hi, my name is Ada.": True,
        "What is offside?": False,
        "谢谢": False,
        "Thanks, which law is it?": False,
    }
    with al.Lab(
        flows=[{"flow": "coordinator", "tools": []}],
        model=Scripted(["Noted.", "A law.", "You are welcome.", "Which one do you mean?", "Law 11."]),
        embedder="hashing/hashing-64",
        memory="sqlite",
    ) as lab:
        chat = lab.chat(documents=(), memory=tmp_path / "memory")
        for text, is_kept in {**is_stored, "ok": True}.items():
            chat.say_sync(text)
            chat.facts_sync()
            choices = [e.choice for e in chat.trace.events if isinstance(e, Decision) and e.name == "keep turn"]
            assert choices[-1] is is_kept, text


@pytest.mark.parametrize(
    "settings", [{"parallel_tools": True}, {"memory_read": "ahead", "gate": "model"}, {"memory_read": "stream"}]
)
def test_a_recorded_run_replays_to_the_same_totals(tmp_path, own_home, settings):
    turns = [
        {"user": text} for text in ("I live in Bern, you know.", "I want weather and dates.", "Thanks a lot, bye.")
    ]
    tools = [{"name": n, "description": n, "parameters": {"type": "object"}} for n in ("weather", "dates")]
    rows = [{"id": f"c{n}", "turns": turns, "tools": tools} for n in range(3)]
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "conversations.jsonl").write_text("\n".join(map(json.dumps, rows)))

    def answer(request):
        if request.output_schema:
            return '{"keep": true, "facts": ["The user lives in Bern."]}'
        last = request.messages[-1]
        return both() if last.role == "user" and "Weather" in last.text else "Done."

    def play(mode, concurrency):
        with al.Lab(
            datasets=[str(tmp_path / "data")],
            flows=[{"flow": "coordinator", "consolidate_every": 2, **settings}],
            model=Scripted([answer], loop=True),
            embedder="hashing/hashing-64",
            memory="sqlite",
            mode=mode,
            recordings=str(tmp_path / "recordings"),
            concurrency=concurrency,
        ) as lab:
            run = lab.run_sync(out=tmp_path / f"{mode}{concurrency}")
        (flow,) = run.summary["flows"].values()
        return {key: flow[key] for key in flow if key != "billed"}, run.turns["latency_s"].tolist()

    recorded = play("record", 3)
    assert recorded[0]["errors"] == 0 and recorded[0]["phases"]["consolidate"]["calls"] > 0
    assert play("replay", 1) == recorded
    assert play("replay", 7) == recorded


def test_messages_a_week_apart_are_two_episodes(tmp_path, own_home):
    times = iter([datetime(2026, 1, 1, 9), datetime(2026, 1, 8, 9)])
    model = Scripted(["Noted."], loop=True)
    with al.Lab(flows=["coordinator"], model=model, embedder="hashing/hashing-64", memory="sqlite") as lab:
        chat = lab.chat(documents=(), memory=tmp_path / "memory", clock=lambda: next(times))
        chat.say_sync("I weigh 71 kilos today.")
        chat.say_sync("I weigh 71 kilos today.")
        facts = [fact.text[:10] for fact in chat.facts_sync()]
    assert facts == ["2026-01-01", "2026-01-08"]


def test_a_model_that_only_calls_tools_still_leaves_an_answer(own_home):
    model = Scripted([both("")], loop=True)
    with al.Lab(flows=["coordinator"], model=model, embedder="hashing/hashing-64", memory="none") as lab:
        chat = lab.chat(documents=())
        assert "did not come to an answer" in chat.say_sync("Go on").text
        assert model.requests[-1].tool_choice == "none"
