"""The layered agent in runs and chats: its data folder, its tools, its prompts from files, and replays."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.events import ToolRun
from agentlab.core.messages import Request
from agentlab.data.documents import Document
from agentlab.flows import ego
from agentlab.memory.tagged_log import TaggedLog
from agentlab.models.scripted import Scripted
from agentlab.workbench.spec import FlowSpec, Spec
from agentlab.workbench.variants import make_variant
from support.layered_agent import USUAL, judge, plan, purpose, step


def test_chats_in_one_data_folder_share_long_term_memory_only(tmp_path, own_home):
    seen: list[str] = []
    model = Scripted([lambda request: seen.append(request.messages[0].text) or USUAL[purpose(request)]], loop=True)

    def chat(lab, **given):
        return lab.chat(documents=(), **given)

    def filtered(texts):
        return next(text for text in texts if "New message:" in text)

    (tmp_path / "agent").mkdir()
    with al.Lab(
        flows=[{"flow": "ego", "data": str(tmp_path / "agent"), "user_facts": False}],
        model=model,
        embedder="hashing/hashing-64",
    ) as lab:
        anna, bert = chat(lab, database=tmp_path / "anna.sqlite"), chat(lab)
        anna.say_sync("I am Anna.")
        bert.say_sync("I am Bert.")
        del seen[:]
        anna.say_sync("Who am I?")
        assert "I am Anna." in filtered(seen) and "I am Bert." not in filtered(seen)
        del seen[:]
        chat(lab, database=tmp_path / "anna.sqlite").say_sync("And now?")
        assert "I am Anna." in filtered(seen) and "I am Bert." not in filtered(seen)
    assert (tmp_path / "agent" / "memory" / "short_term.txt").read_text().count("I am Anna.") == 1


def test_conversations_of_a_comparison_do_not_read_each_other(tmp_path, monkeypatch, own_home):
    monkeypatch.setenv("LLM_AGENT_DATA_DIR", str(tmp_path / "agent"))
    turns = [{"user": "I am NAME."}, {"user": "Who am I?"}]
    rows = [json.dumps({"id": n, "turns": turns}).replace("NAME", n) for n in ("anna", "bert")]
    (tmp_path / "conversations.jsonl").write_text("\n".join(rows))
    model = Scripted([lambda request: USUAL[purpose(request)]], loop=True)
    with al.Lab(datasets=[str(tmp_path)], flows=["ego"], model=model, embedder="hashing/hashing-64") as lab:
        lab.run_sync(out=tmp_path / "run")
    assert not [r for r in model.requests if "anna" in r.messages[0].text and "bert" in r.messages[0].text]
    assert not (tmp_path / "agent" / "memory").exists()


def test_continued_chat_stores_no_duplicate(tmp_path, monkeypatch, own_home):
    monkeypatch.setenv("LLM_AGENT_DATA_DIR", str(tmp_path / "agent"))
    for text in ("Hello one", "Hello two", "Hello three"):
        with al.Lab(
            flows=["ego"],
            model=Scripted([lambda request: USUAL[purpose(request)]], loop=True),
            embedder="hashing/hashing-64",
        ) as lab:
            lab.chat(documents=(), database=tmp_path / "chat.db").say_sync(text)
    noted = (tmp_path / "agent" / "memory" / "short_term.txt").read_text()
    assert [noted.count(f"Hello {n}") for n in ("one", "two", "three")] == [1, 1, 1]


def test_the_answer_cites_the_passages_it_rests_on(tmp_path, own_home):
    replies = {
        **USUAL,
        "plan": plan("lookup_documents", complexity="simple", query="oboe"),
        "bubble": '{"chat": "It is a woodwind [1].", "canvas": ""}',
    }
    model = Scripted([lambda request: replies[purpose(request)]], loop=True)
    with al.Lab(flows=["ego"], model=model, embedder="hashing/hashing-64") as lab:
        reply = lab.chat(documents=[Document(doc_id="oboe", title="Oboe", text="The oboe is a woodwind.")]).say_sync(
            "What is an oboe?"
        )
    assert [citation.doc_id for citation in reply.citations] == ["oboe"]


def test_a_recorded_run_replays_to_the_same_totals(tmp_path, own_home):
    turns = [{"user": "What is an oboe?"}, {"user": "consolidate"}]
    (tmp_path / "conversations.jsonl").write_text(
        "\n".join(json.dumps({"id": name, "turns": turns}) for name in ("a", "b", "c"))
    )
    (tmp_path / "recordings").mkdir()

    def play(mode: str, concurrency: int) -> dict[str, Any]:
        replies = {**USUAL, "plan": plan("memoryMaintenance"), "step": step("question", query="6 times 7?")}
        with al.Lab(
            datasets=[str(tmp_path)],
            flows=[{"flow": "ego", "max_iterations": 2}],
            model=Scripted([lambda request: replies[purpose(request)]], loop=True),
            embedder="hashing/hashing-64",
            mode=mode,
            recordings=str(tmp_path / "recordings"),
            concurrency=concurrency,
        ) as lab:
            (flow,) = lab.run_sync(out=tmp_path / f"{mode}{concurrency}").summary["flows"].values()
        return {key: flow[key] for key in flow if key != "billed"}

    recorded = play("record", 3)
    assert recorded["errors"] == 0 and recorded["phases"]["reflect"]["calls"] > 0
    assert play("replay", 1) == recorded
    assert play("replay", 7) == recorded


def test_entries_have_times_of_their_own_that_a_replay_repeats(tmp_path, own_home):
    (tmp_path / "recordings").mkdir()

    def times(mode: str) -> list[datetime]:
        model = Scripted([lambda request: USUAL[purpose(request)]], loop=True)
        with al.Lab(
            flows=["ego"],
            model=model,
            embedder="hashing/hashing-64",
            mode=mode,
            recordings=str(tmp_path / "recordings"),
        ) as lab:
            now = datetime(2026, 3, 5, 9)
            chat = lab.chat(documents=(), memory=tmp_path / mode, clock=lambda: now)
            chat.say_sync("What is an oboe?")
            chat.say_sync("And a bassoon?")
            lab.loop.run_coroutine(chat.close())
        entries = TaggedLog(tmp_path / mode / "short_term.txt").entries()
        assert len(entries) == 6
        return [entry.time for entry in entries]

    recorded = times("record")
    assert recorded == sorted(set(recorded)) and recorded[0] >= datetime(2026, 3, 5, 9)
    assert times("replay") == recorded


def test_a_chat_shows_what_is_in_the_agents_own_memory(tmp_path, own_home):
    replies = {**USUAL, "plan": plan(complexity="simple")}
    model = Scripted([lambda request: replies[purpose(request)]], loop=True)
    with al.Lab(
        flows=[{"flow": "ego", "user_facts": False}, "rag_only"], model=model, embedder="hashing/hashing-64"
    ) as lab:
        chat = lab.chat("ego", documents=(), memory=tmp_path / "mine")
        assert chat.facts_sync() == ()
        chat.say_sync("I play the oboe.")
        facts = chat.facts_sync()
        plain = lab.chat("rag_only", documents=())
        plain.say_sync("I play the oboe.")
        assert plain.facts_sync() == ()
    assert [(fact.id, fact.text) for fact in facts] == [
        ("long-1", "[reflection memory] lessons: Look it up first."),
        ("short-1", "[ego user] I play the oboe."),
        ("short-2", "[ego response] It is a woodwind. # Oboe"),
        ("short-3", "[reflection insight] lessons: Look it up first."),
    ]


def test_automatic_steps_are_no_model_calls(tmp_path, own_home):
    rows = '{"id": "a", "turns": [{"user": "Hello", "expected_calls": [], "no_call": true}]}\n'
    (tmp_path / "conversations.jsonl").write_text(rows)
    replies = {**USUAL, "plan": plan(complexity="simple")}
    model = Scripted([lambda request: replies[purpose(request)]], loop=True)
    with al.Lab(datasets=[str(tmp_path)], flows=["ego"], model=model, embedder="hashing/hashing-64") as lab:
        run = lab.run_sync(out=tmp_path / "run")
    scores = run.scores.set_index("metric")["value"]
    assert (scores["no_call_accuracy"], scores["tool_f1"]) == (1.0, 1.0)
    assert run.summary["flows"]["ego"]["tool_calls"] == 1


def test_tools_of_the_data_folder_are_the_agents_own(tmp_path, monkeypatch, own_home, capsys):
    monkeypatch.setenv("LLM_AGENT_DATA_DIR", str(tmp_path / "agent"))
    (tmp_path / "agent" / "tools").mkdir(parents=True)
    (tmp_path / "agent" / "tools" / "double.py").write_text(
        'NAME = "double"\nDESCRIPTION = "Doubles a number."\n'
        'PARAMETERS = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}\n'
        'def execute(arguments):\n    return str(2 * arguments["n"])\n'
    )
    replies = {**USUAL, "plan": plan("double", complexity="simple", n=21)}
    model = Scripted([lambda request: replies[purpose(request)]], loop=True)
    with al.Lab(flows=["ego"], model=model, embedder="hashing/hashing-64") as lab:
        chat = lab.chat(documents=())
        chat.say_sync("Twice 21?")
    run = next(event for event in chat.trace.events if isinstance(event, ToolRun))
    assert (run.call.name, run.output) == ("double", "42")
    assert main(["list", "tools", "--data", str(tmp_path / "agent")]) == 0
    assert "double" in capsys.readouterr().out
    assert main(["list", "tools", "--data", str(tmp_path / "nowhere")]) == 1


def test_a_tool_of_the_data_folder_takes_no_name_of_the_agents_own(tmp_path, monkeypatch, own_home, caplog):
    monkeypatch.setenv("LLM_AGENT_DATA_DIR", str(tmp_path / "agent"))
    (tmp_path / "agent" / "tools").mkdir(parents=True)
    (tmp_path / "agent" / "tools" / "mine.py").write_text(
        'NAME = "reflection"\nDESCRIPTION = "Mirrors."\nPARAMETERS = {"type": "object"}\n'
        'def execute(arguments):\n    return "mirrored"\n'
    )
    texts: list[str] = []
    model = Scripted([lambda request: texts.append(request.messages[0].text) or USUAL[purpose(request)]], loop=True)
    with al.Lab(flows=["ego"], model=model, embedder="hashing/hashing-64") as lab:
        chat = lab.chat(documents=())
        chat.say_sync("What is an oboe?")
        chat.say_sync("And a bassoon?")
    outputs = [event.output for event in chat.trace.events if isinstance(event, ToolRun)]
    assert "lessons: Look it up first." in outputs and "mirrored" not in outputs
    assert any("mine_reflection()" in text for text in texts)
    assert "the agent has a tool of this name" in caplog.text


@pytest.mark.slow
def test_a_run_can_print_its_events(tmp_path, own_home, capsys):
    (tmp_path / "conversations.jsonl").write_text('{"id": "a", "turns": [{"user": "What is an oboe?"}]}\n')
    (tmp_path / "replies.yaml").write_text('loop: true\nreplies: [\'{"chat": "A woodwind.", "canvas": ""}\']\n')
    command = ["run", "--flow", "ego", "--dataset", str(tmp_path), "--model", f"scripted/{tmp_path}/replies.yaml"]
    command += ["--set", "embedder=hashing/hashing-64", "--out", str(tmp_path / "run")]
    assert main([*command, "--events"]) == 0
    printed = capsys.readouterr().err
    assert "a turn 1  assistantResponse  response  A woodwind." in printed
    assert "a turn 1  subsystemMessage  LLM response: plan" in printed


def test_prompts_come_from_files_by_module_and_name(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LLM_AGENT_DATA_DIR", str(tmp_path))
    folder = tmp_path / "prompts" / "ego"
    folder.mkdir(parents=True)
    (folder / "BUBBLE.txt").write_text("Say it in verse: {result}\n")
    variant = make_variant(Spec(), FlowSpec(flow="ego"))
    assert variant.prompts["bubble"] == "Say it in verse: {result}"
    spec = Spec(prompts={"ego": {"bubble": "From the spec: {result}"}})
    assert make_variant(spec, FlowSpec(flow="ego")).prompts["bubble"] == "From the spec: {result}"
    assert main(["list", "prompts", "--flow", "ego"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert str(folder / "BUBBLE.txt") in lines["bubble"] and "{result}" in lines["bubble"]
    assert "from" not in lines["plan"] and "{message} {tools} {earlier}" in lines["plan"]


def test_every_prompt_may_come_from_a_file(tmp_path, monkeypatch, own_home):
    monkeypatch.setenv("LLM_AGENT_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(
        "agentlab.tools.web._query_engine", lambda query: [{"title": "Rain", "url": "", "snippet": "It rains."}]
    )
    for module, prompts in ego.PROMPT_MODULES.items():
        folder = tmp_path / "prompts" / module
        folder.mkdir(parents=True)
        for name, text in prompts.items():
            (folder / f"{name.upper()}_PROMPT.txt").write_text(f"FILE {name}\n{text}")
    seen: list[str] = []

    def answer(request: Request) -> str:
        message = request.messages[-1 if len(request.messages) == 3 else 0].text
        seen.append(message.split("\n")[0])
        if message.startswith("FILE plan"):
            return plan("question", "llmquery", "memoryMaintenance", complexity="moderate", query="Does it rain?")
        if message.startswith("FILE next_step"):
            taken = message.count("  result: ")
            return step([*("question", "llmquery", "memoryMaintenance"), None][taken], query="Does it rain?")
        if message.startswith("FILE evaluate_step"):
            return judge(90, False)
        return "unreadable" if message.startswith("FILE memory_retrieval") else USUAL[purpose(request)]

    with al.Lab(flows=["ego"], model=Scripted([answer], loop=True), embedder="hashing/hashing-64") as lab:
        chat = lab.chat(documents=())
        chat.say_sync("Hello")
        chat.say_sync("Does it rain?")
        chat.facts_sync()
    sent = {name for prompts in ego.PROMPT_MODULES.values() for name in prompts} - {"enriched_message"}
    assert set(seen) == {f"FILE {name}" for name in sent}


def test_a_chat_remembers_in_the_data_folder_or_the_one_it_is_given(tmp_path, monkeypatch, own_home):
    def chat(texts: list[str], **given: Any) -> None:
        model = Scripted([lambda request: texts.append(request.messages[0].text) or USUAL[purpose(request)]], loop=True)
        with al.Lab(flows=["ego"], model=model, embedder="hashing/hashing-64") as lab:
            assert lab.chat(documents=(), **given).say_sync("I play the oboe.").text

    monkeypatch.setenv("LLM_AGENT_DATA_DIR", str(tmp_path / "agent"))
    chat([])
    again: list[str] = []
    chat(again)
    folder = tmp_path / "agent" / "memory"
    assert (folder / "long_term.txt").read_text().count("Look it up first.") == 2
    sought = next(text for text in again if "New message:" in text)
    assert "[reflection memory] looking up helps" in sought
    assert "[ego user]" not in sought, "short-term memory is of one conversation"
    monkeypatch.delenv("LLM_AGENT_DATA_DIR")
    chat([], memory=tmp_path / "mine")
    assert "Look it up first." in (tmp_path / "mine" / "long_term.txt").read_text()
