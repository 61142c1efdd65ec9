"""The layered agent against its description, section by section, in the order and with the numbers of that."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from doubles import session_over
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.errors import ConfigError, ContextOverflow, ServerFault, ToolError
from agentlab.core.events import Decision, ModelCall, Notice, ToolRun
from agentlab.core.messages import Completion, Message, Request, ToolSpec, UserTurn
from agentlab.data.documents import Document
from agentlab.flows import ego
from agentlab.flows.ego.memory import is_command
from agentlab.flows.ego.react import map_parameters
from agentlab.models.scripted import Scripted
from agentlab.tools import llmquery, memory_maintenance, question, reflection
from agentlab.workbench.spec import FlowSpec, Spec
from agentlab.workbench.variants import make_variant

SEARCH = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}


class Tool:
    def __init__(self, name: str, *results: Any, parameters: dict[str, Any] | None = None):
        self.spec = ToolSpec(name=name, description=f"does {name}", parameters=parameters or SEARCH)
        self.asked: list[dict[str, Any]] = []
        self.results = list(results)

    def run(self, arguments, session):
        self.asked.append(arguments)
        result = self.results.pop(0) if len(self.results) > 1 else self.results[0]
        if isinstance(result, Exception):
            raise result
        return result


def purpose(request: Request) -> str:
    """Which of the agent's functions asks, by the schema of the answer it wants."""
    named = {
        "relevant": "relevance",
        "approach": "plan",
        "step": "step",
        "score": "evaluate",
        "chat": "bubble",
        "lessons": "reflect",
        "tags": "analysis",
        "drop": "maintenance",
    }
    properties = (request.output_schema or {}).get("properties", {})
    return next((name for key, name in named.items() if key in properties), "question")


def plan(*steps: str, complexity: str = "moderate", **parameters: Any) -> str:
    made = [{"tool": step, "purpose": "p", "parameters": parameters or {"query": "oboe"}} for step in steps]
    told = {"approach": "look it up", "complexity": complexity, "success_criteria": ["it is found"], "steps": made}
    return json.dumps(told)


def step(tool: str | None, **parameters: Any) -> str:
    made = {"purpose": "p", "tool": tool, "parameters": parameters or {"query": "oboe"}}
    return json.dumps({"step": made if tool else None})


def judge(score: int, complete: bool = True, confidence: float = 0.9, comment: str = "fine") -> str:
    return json.dumps({"score": score, "complete": complete, "confidence": confidence, "comment": comment})


USUAL = {
    "relevance": '{"relevant": [], "summary": ""}',
    "plan": plan("search", complexity="simple"),
    "step": step(None),
    "evaluate": judge(95),
    "bubble": '{"chat": "It is a woodwind.", "canvas": "# Oboe"}',
    "reflect": '{"insights": [], "lessons": ["Look it up first."], "questions": [], "directives": []}',
    "analysis": '{"summary": "looking up helps", "tags": ["method"]}',
    "maintenance": '{"drop": [], "merged": [], "evaluation": ""}',
    "question": "Forty-two.",
}


def agent(*tools: Any, replies: dict[str, Any] | None = None, **given: Any):
    """A session of the agent whose model answers each function from its own list, the last one for ever."""
    queues = {name: list(r) if isinstance(r, list) else [r] for name, r in {**USUAL, **(replies or {})}.items()}

    def answer(request: Request) -> str:
        queue = queues[purpose(request)]
        return queue.pop(0) if len(queue) > 1 else queue[0]

    model = Scripted([answer], loop=True)
    offered = tools or (Tool("search", "An oboe is a woodwind."),)
    own = [reflection.build(), memory_maintenance.build()]
    return session_over(ego, model, tools=[*offered, *own], **given), model


async def say(session, *texts: str):
    replies = []
    for turn, text in enumerate(texts):
        await session.join()
        session.begin_turn(turn)
        replies.append(await ego.respond(UserTurn(text=text), session))
    await session.join()
    return replies


def asked(session) -> list[str]:
    calls = sorted((e for e in session.trace.events if isinstance(e, ModelCall)), key=lambda e: e.id)
    return [purpose(call.request) for call in calls]


def prompts(model, name: str) -> list[str]:
    return [request.messages[0].text for request in model.requests if purpose(request) == name]


def entries(session, which: str = "short"):
    return getattr(session.state["ego"].memory, which).entries()


# 1  The layers: complexity, limits, a history of steps.


@pytest.mark.parametrize(
    ("complexity", "judged", "calls"),
    [
        ("simple", [judge(90)], ["plan", "evaluate", "bubble"]),
        ("simple", [judge(90, confidence=0.5), judge(90)], ["plan", "evaluate", "step", "evaluate", "bubble"]),
        ("moderate", [judge(90, False)], ["plan", "step", "evaluate", "step", "bubble"]),
        ("moderate", [judge(90, confidence=0.5)], ["plan", "step", "evaluate", "bubble"]),
        ("complex", [judge(90, confidence=0.5)], ["plan", "step", "evaluate", "step", "bubble"]),
        ("complex", [judge(90)], ["plan", "step", "evaluate", "bubble"]),
    ],
)
async def test_complexity_decides_how_steps_are_chosen_and_when_it_is_over(complexity, judged, calls):
    replies = {"plan": plan("search", complexity=complexity), "step": [step("search"), step(None)], "evaluate": judged}
    session, _ = agent(replies=replies, reflection=False)
    await say(session, "What is an oboe?")
    assert asked(session) == calls


async def test_a_strategy_with_steps_begins_with_one():
    session, model = agent(replies={"plan": plan("search"), "step": [step("search"), step(None)]})
    await say(session, "What is an oboe?")
    session, unplanned = agent(replies={"step": step(None)}, planning=False)
    await say(session, "Hello")

    def may_end(model) -> list[bool]:
        return ['{"type": "null"}' in json.dumps(r.output_schema) for r in model.requests if purpose(r) == "step"]

    assert may_end(model) == [False] and may_end(unplanned) == [True]


async def test_a_simple_plan_without_steps_and_an_agent_without_tools_answer_at_once():
    session, _ = agent(replies={"plan": plan(complexity="simple")}, reflection=False)
    await say(session, "Hello")
    assert asked(session) == ["plan", "bubble"]
    bare = session_over(ego, Scripted([USUAL["bubble"]], loop=True), tools=[reflection.build()], reflection=False)
    await say(bare, "Hello")
    assert asked(bare) == ["bubble"]


async def test_the_iteration_limit_is_a_hard_stop():
    endless = {"plan": plan("search"), "step": step("search"), "evaluate": judge(90, False)}
    session, _ = agent(replies=endless, max_iterations=4)
    await say(session, "What is an oboe?")
    assert asked(session).count("step") == 4
    limits = [e for e in session.trace.events if isinstance(e, Decision) and e.name == "iteration limit reached"]
    assert len(limits) == 1
    assert ego.Settings().max_iterations == 10


async def test_a_step_that_cannot_be_read_is_no_wish_to_end():
    session, model = agent(
        replies={"plan": plan("search"), "step": ["Now I search.", "Now I search.", step("search"), step(None)]},
        max_retries=0,
        evaluation=False,
    )
    await say(session, "What is an oboe?")
    invalid = [e for e in session.trace.events if isinstance(e, Decision) and e.choice == "invalid"]
    assert [e.name for e in invalid] == ["next step"]
    assert "1. (none)" in prompts(model, "step")[-1]
    assert "An oboe is a woodwind." in prompts(model, "bubble")[0]


nonsense = st.one_of(
    st.just("no JSON"),
    st.just(""),
    st.just("{" * 50),
    st.sampled_from(["search", "teleport", "memoryMaintenance", "reflection"]).map(lambda name: plan(name, name, name)),
    st.sampled_from(["search", "teleport", "reflection", None]).map(step),
    st.tuples(st.integers(-5, 500), st.booleans()).map(lambda told: judge(*told)),
    st.just('{"relevant": [1, 99, "x", true], "summary": 7, "drop": "all", "merged": [3], "steps": [1, {"tool": 2}]}'),
    st.just('{"score": NaN, "complete": "yes", "chat": null, "tags": {}, "complexity": ["simple"], "lessons": "none"}'),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(nonsense, min_size=1, max_size=12),
    st.fixed_dictionaries({name: st.booleans() for name in ("planning", "evaluation", "reflection", "relevance")}),
    st.sampled_from(["y", "1\n", "\x1b", "\u4e2d"]),
    st.sampled_from([1, 40]),
)
async def test_no_answer_of_the_model_makes_it_endless_or_its_prompts_unbounded(replies, switches, output, tools):
    longest = []
    turn = iter(range(10**6))

    def answer(request: Request) -> str:
        longest.append(sum(len(message.text) for message in request.messages))
        return replies[next(turn) % len(replies)]

    session = session_over(
        ego,
        Scripted([answer], loop=True),
        tools=[
            *(Tool(f"search{number or ''}", output * 25_000) for number in range(tools)),
            reflection.build(),
            memory_maintenance.build(),
        ],
        **switches,
    )
    for tool in session.tools.values():
        tool.instruction = "z" * 2000
    await say(session, "What is an oboe?", "x" * 2000, "consolidate")
    # An attempt: three plans, ten times a step, an evaluation and a maintenance; all asked twice.
    a_turn = 2 * (1 + 2 * (3 + 10 * 3 + 2) + 1 + 2)
    assert len(longest) <= 3 * a_turn
    assert max(longest) < 40_000


# 2  Memory.


async def test_memory_is_tagged_with_module_kind_and_time():
    session, _ = agent()
    await say(session, "What is an oboe?", "consolidate your memory, please")
    short = entries(session)
    assert short[2].text == "It is a woodwind.\n\n# Oboe"
    assert [(e.module, e.facts["kind"]) for e in short[:5]] == [
        ("ego", "user"),
        ("coordinator", "result"),
        ("ego", "response"),
        ("reflection", "insight"),
        ("ego", "command"),
    ]
    assert short[3].text == "lessons: Look it up first."
    assert {e.time for e in short} == {session.now}
    (lesson, _) = entries(session, "long")
    assert (lesson.module, lesson.text) == ("reflection", "lessons: Look it up first.")
    assert lesson.facts == {"summary": "looking up helps", "tags": "method"}


async def test_the_relevance_filter_sees_short_and_long_term_memory():
    session, model = agent()
    await say(session, "I play the oboe.", "And you?")
    (seen,) = prompts(model, "relevance")
    assert "1. [ego user] I play the oboe." in seen
    assert "4. [reflection insight] lessons: Look it up first." in seen
    assert "5. [reflection memory] looking up helps" in seen
    assert "[ego user] And you?" not in seen, "the message itself is no memory of it"


async def test_a_long_message_is_told_from_a_command_at_once():
    assert not is_command("reflect " + "memory " * 100_000 + " " * 100_000 + "?")


async def test_reflection_sees_what_fits_and_not_what_is_newest():
    session, model = agent()
    await say(session, "Hello")
    memory = session.state["ego"].memory
    for text in ("The bassoon is in the attic.", *(f"fact {number}" for number in range(9))):
        memory.long.add(replace(entries(session, "long")[0], text=text, facts={}))
    await say(session, "Where is the bassoon?")
    asked_to_look_back = [r.messages[0].text for r in model.requests if "Known:" in r.messages[0].text]
    known = asked_to_look_back[-1].split("Known:")[1]
    assert "The bassoon is in the attic." in known and known.count("fact") == 3


def test_chats_in_one_data_folder_share_long_term_memory_only(tmp_path, own_home):
    seen: list[str] = []
    model = Scripted([lambda request: seen.append(request.messages[0].text) or USUAL[purpose(request)]], loop=True)

    def chat(lab, **given):
        return lab.chat(documents=(), **given)

    def filtered(texts):
        return next(text for text in texts if "New message:" in text)

    with al.Lab(
        flows=[{"flow": "ego", "data": str(tmp_path / "agent")}], model=model, embedder="hashing/hashing-64"
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


async def test_old_entries_are_found_by_their_words():
    session, model = agent()
    await say(session, "Hello")
    memory = session.state["ego"].memory
    memory.long.add(replace(entries(session, "long")[0], text="The bassoon is in the attic.", facts={}))
    for number in range(40):
        memory.long.add(replace(entries(session, "long")[0], text=f"fact {number}", facts={}))
    await say(session, "Where is the bassoon?")
    assert "The bassoon is in the attic." in prompts(model, "relevance")[-1]
    assert "fact 39" in prompts(model, "relevance")[-1] and "fact 3\n" not in prompts(model, "relevance")[-1]


async def test_a_new_session_empties_short_term_memory_and_keeps_the_long_term():
    session, _ = agent()
    await say(session, "What is an oboe?")
    session.forget_history()
    session.begin_turn(1)
    await ego.respond(UserTurn(text="Hello again"), session)
    await session.join()
    assert [e.text for e in entries(session) if e.facts["kind"] == "user"] == ["Hello again"]
    assert len(entries(session, "long")) == 2


async def test_turns_without_the_agent_enter_its_short_term_memory():
    session, _ = agent()
    session.add_unscored("I play the oboe.", "Lovely.")
    await say(session, "And you?")
    assert [(e.facts["kind"], e.text) for e in entries(session)][:3] == [
        ("user", "I play the oboe."),
        ("response", "Lovely."),
        ("user", "And you?"),
    ]


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


def test_a_chat_that_goes_on_notes_nothing_twice(tmp_path, monkeypatch, own_home):
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


# 3  The loop, from the message to the response.


async def test_one_turn_goes_through_the_operational_loop_in_order():
    session, _ = agent()
    (reply,) = await say(session, "What is an oboe?")
    assert (reply.text, reply.data) == (
        "It is a woodwind.\n\n# Oboe",
        {"chat": "It is a woodwind.", "canvas": "# Oboe"},
    )
    steps = [line.lstrip("├─└│ ").split("  ")[0] for line in session.trace.steps().splitlines()]
    told = ("notify", "turn")
    assert [name for name in steps if not name.startswith(told)] == [
        "load_conversation",
        "save_message user",
        "process_message",
        "retrieve_memories",
        "make_plan",
        "complete (plan; no tools)",
        "execute_react",
        "next step? search",
        "call_tool search",
        "complete (evaluate; no tools)",
        "complete? yes",
        "good enough? yes",
        "handle_bubble",
        "complete (answer; no tools)",
        "save_message agent",
        "after_response",
        "call_tool reflection",
        "complete (reflect; no tools)",
        "complete (memory_write; no tools)",
    ]


async def test_the_enriched_message_holds_query_context_memories_and_capabilities():
    session, model = agent(replies={"relevance": '{"relevant": [1], "summary": "They play the oboe."}'})
    await say(session, "I play the oboe.", "Which instrument is mine?")
    message = prompts(model, "plan")[1]
    assert "Query: Which instrument is mine?" in message
    assert "Thursday, 2026-01-01, 00:00" in message
    assert "They play the oboe.\n1. [ego user] I play the oboe." in message
    assert "Capabilities: search, memoryMaintenance" in message
    assert "reflection" not in message


async def test_a_plan_with_a_tool_that_does_not_exist_is_made_anew_with_the_reason():
    session, model = agent(replies={"plan": [plan("teleport"), plan("search", complexity="simple")]})
    await say(session, "What is an oboe?")
    first, second = prompts(model, "plan")
    assert "teleport" not in first
    assert "there is no tool teleport; there are: search, memoryMaintenance" in second
    assert next(e.call.name for e in session.trace.events if isinstance(e, ToolRun)) == "search"


async def test_plans_that_keep_naming_unknown_tools_end_and_lose_those_steps():
    session, model = agent(
        replies={"plan": plan("teleport", "search", complexity="simple"), "step": [step("search"), step(None)]}
    )
    await say(session, "What is an oboe?")
    assert len(prompts(model, "plan")) == 3
    assert [e.call.name for e in session.trace.events if isinstance(e, ToolRun)] == ["search", "reflection"]


async def test_a_plan_made_anew_keeps_what_went_before():
    session, model = agent(
        replies={
            "plan": [plan("search", complexity="simple"), plan("teleport"), plan("search", complexity="simple")],
            "evaluate": judge(5, comment="no source"),
        }
    )
    await say(session, "What is an oboe?")
    assert "no source" in prompts(model, "plan")[2] and "there is no tool teleport" in prompts(model, "plan")[2]


async def test_a_plan_that_was_cut_off_is_followed_as_far_as_it_goes():
    cut = plan("search", "search", complexity="simple")[:-40]
    session, _ = agent(replies={"plan": cut, "evaluate": judge(90)}, reflection=False)
    await say(session, "What is an oboe?")
    assert asked(session) == ["plan", "evaluate", "bubble"]


@pytest.mark.parametrize("told", ["I would search.", '["search"]', '{"steps": "search"}'[:1]])
async def test_a_plan_that_cannot_be_read_is_asked_for_once_more_and_then_done_without(told):
    session, model = agent(replies={"plan": told, "step": [step("search"), step(None)]}, reflection=False)
    await say(session, "What is an oboe?")
    assert asked(session) == ["plan", "plan", "step", "evaluate", "bubble"]
    again = [r for r in model.requests if purpose(r) == "plan"][1]
    assert "one JSON object that has approach, complexity" in again.messages[-1].text
    errors = [e.data["title"] for e in session.trace.events if isinstance(e, Notice) and e.name == "systemError"]
    assert errors == ["LLM response cannot be used: plan"]


async def test_a_failing_tool_is_logged_and_the_loop_goes_on():
    session, model = agent(
        Tool("search", ValueError("no sky"), "Found."),
        replies={
            "plan": plan("search"),
            "step": [step("search"), step("search"), step(None)],
            "evaluate": judge(50, False),
        },
        max_retries=0,
    )
    await say(session, "What is an oboe?")
    errors = [e for e in session.trace.events if isinstance(e, Notice) and e.name == "systemError"]
    assert [e.data["title"] for e in errors] == ["tool search: failed"]
    assert "no sky" in prompts(model, "step")[1]
    assert "Found." in prompts(model, "bubble")[0]


@pytest.mark.parametrize(("score", "attempts"), [(81, 1), (80, 2), (20, 2)])
async def test_a_low_score_is_tried_again_with_the_lessons_of_a_reflection(score, attempts):
    session, model = agent(
        replies={
            "plan": plan("search"),
            "step": [step("search"), step(None)] * 3,
            "evaluate": judge(score, comment="no source"),
        }
    )
    await say(session, "What is an oboe?")
    assert asked(session).count("plan") == attempts
    assert asked(session).count("reflect") == attempts
    if attempts == 2:
        assert f"It was judged {score} of 100. no source" in prompts(model, "reflect")[0]
        for name in ("plan", "step"):
            again = prompts(model, name)[1]
            assert "no source" in again and "Look it up first." in again


@pytest.mark.parametrize(
    ("told", "attempts"),
    [
        ('{"score": "95", "complete": "true", "confidence": "0.9", "comment": ""}', 1),
        ('{"score": "95%", "complete": true, "confidence": 1, "comment": ""}', 1),
        ("It is fine.", 2),
        ('{"score": "5", "complete": true, "confidence": 1, "comment": ""}', 2),
    ],
)
async def test_only_what_can_be_read_and_is_above_the_threshold_is_good_enough(told, attempts):
    session, _ = agent(replies={"evaluate": told, "step": step(None)}, reflection=False)
    await say(session, "What is an oboe?")
    assert asked(session).count("plan") == attempts


async def test_the_best_attempt_counts_and_the_results_of_all_are_remembered():
    session, model = agent(
        Tool("search", "Good enough.", ValueError("broken")), replies={"evaluate": [judge(70), judge(5)]}
    )
    await say(session, "What is an oboe?")
    assert "Good enough." in prompts(model, "bubble")[0]
    results = [e.text for e in entries(session) if e.facts["kind"] == "result"]
    assert results[0] == "search: Good enough." and "broken" in results[1]


async def test_a_new_attempt_knows_why_the_last_one_failed_whatever_is_switched_off():
    quiet = {"planning": False, "reflection": False}
    session, model = agent(
        Tool("search", ValueError("no sky")), replies={"step": step("search"), "evaluate": judge(5)}, **quiet
    )
    await say(session, "What is an oboe?")
    first, second = prompts(model, "step")
    assert "no sky" not in first and "Every step failed" in second and "no sky" in second


async def test_maintenance_prunes_and_merges_and_judges_and_loses_nothing():
    session, _ = agent(
        replies={
            "plan": [plan("search", complexity="simple"), plan("memoryMaintenance", complexity="simple", x=1)],
            "maintenance": '{"drop": [1, 9], "merged": ["Looking up helps."], "evaluation": "Searches went well."}',
        }
    )
    await say(session, "What is an oboe?", "consolidate")
    run = next(e for e in session.trace.events if isinstance(e, ToolRun) and e.call.name == "memoryMaintenance")
    assert run.output == "Long-term memory: 1 entries pruned, 1 written anew. Searches went well."
    memory = session.state["ego"].memory
    kept = [(e.text, e.facts["tags"]) for e in memory.long.entries()]
    assert kept[:2] == [("Looking up helps.", "consolidated"), ("Searches went well.", "evaluation")]
    assert "lessons: Look it up first." in memory.long.pruned.read_text()


@pytest.mark.parametrize(
    ("told", "left"),
    [
        ('{"drop": [1, 2, 3], "merged": [], "evaluation": ""}', 3),
        ('{"drop": [], "merged": ["a", "b", "c"], "evaluation": ""}', 3),
        ('{"drop": [1, 2, 3], "merged": ["All of it."], "evaluation": ""}', 1),
    ],
)
async def test_maintenance_neither_empties_memory_nor_lets_it_grow(told, left):
    session, _ = agent(replies={"maintenance": told})
    await say(session, "One", "Two", "Three")
    await session.state["ego"].maintain(session)
    assert len(entries(session, "long")) == left


async def test_maintenance_goes_through_all_of_long_term_memory_part_by_part():
    session, model = agent(maintain_every=2, replies={"maintenance": '{"drop": [], "merged": [], "evaluation": ""}'})
    await say(session, "One")
    memory = session.state["ego"].memory
    for number in range(25):
        memory.long.add(replace(entries(session, "long")[0], text=f"fact {number}", facts={}))
    await say(session, "Two", "Three", "Four")
    first, second = prompts(model, "maintenance")
    assert "fact 18" in first and "fact 19" not in first
    assert "fact 19" in second and "fact 18" not in second


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        (Tool("search", "Plain text."), "Plain text."),
        (Tool("search", ValueError("broken")), "Error: the tool search"),
    ],
)
async def test_the_bubble_gets_errors_texts_or_objects(tool, expected):
    session, model = agent(tool, max_retries=0)
    await say(session, "What is an oboe?")
    assert f"an instruction):\n{expected}" in prompts(model, "bubble")[0]


async def test_several_results_reach_the_bubble_as_an_object():
    session, model = agent(
        replies={
            "plan": plan("search"),
            "step": [step("search"), step("search"), step(None)],
            "evaluate": judge(90, False),
        }
    )
    await say(session, "What is an oboe?")
    told = prompts(model, "bubble")[0].partition("an instruction):\n")[2].partition("\n\nThe user's")[0]
    result = json.loads(told)
    assert (result["type"], len(result["response"]), result["complete"]) == ("steps", 2, True)


@pytest.mark.parametrize(
    ("told", "shown", "asked_for"),
    [
        ("Just a woodwind.", "Just a woodwind.", 2),
        ('{"answer": "A woodwind."}', "A woodwind.", 2),
        ('{"chat": "A \\"reed\\".", "canvas": "# Oboe\\nIt has', 'A "reed".\n\n# Oboe\nIt has', 1),
        (Completion(message=Message(role="agent", text='{"chat": "A ree'), finish_reason="length"), "A ree", 1),
        ('{"chat": "A ree', "A ree", 2),
        ('{"canvas": "# Oboe"}', "# Oboe", 2),
    ],
)
async def test_an_answer_in_another_form_is_still_an_answer(told, shown, asked_for):
    session, model = agent(replies={"bubble": told})
    (reply,) = await say(session, "What is an oboe?")
    assert reply.text == shown
    assert len(prompts(model, "bubble")) == asked_for


async def test_what_was_found_reaches_the_answer_whole_and_is_cited():
    passages = [("x" * 1600) + " FACT-A", ("y" * 1600) + " FACT-B"]
    session, model = agent(
        Tool("search", *passages),
        replies={"plan": plan("search"), "step": [step("search"), step("search"), step(None)]}
        | {"evaluate": judge(90, False)},
    )
    await say(session, "What is an oboe?")
    for name in ("bubble", "evaluate"):
        assert "FACT-A" in prompts(model, name)[-1] and "FACT-B" in prompts(model, name)[-1]


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


SWITCHED = {
    "relevance": {"relevance"},
    "planning": {"plan"},
    "evaluation": {"evaluate"},
    "reflection": {"reflect", "analysis"},
}


@pytest.mark.parametrize("switch", SWITCHED)
async def test_each_part_can_be_switched_off_alone(switch):
    session, _ = agent(replies={"step": [step("search"), step(None)]}, **{switch: False})
    await say(session, "What is an oboe?")
    await say(session, "And a bassoon?")
    everything = {"relevance", "plan", "evaluate", "bubble", "reflect", "analysis"} | (
        {"step"} if switch == "planning" else set()
    )
    assert set(asked(session)) == everything - SWITCHED[switch]


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


# 4  Reflection.


async def test_reflection_waits_for_nobody_and_is_charged_to_its_phase():
    session, _ = agent()
    await say(session, "What is an oboe?")
    calls = [e for e in session.trace.events if isinstance(e, ModelCall)]
    assert [(e.phase, e.background) for e in calls][-2:] == [("reflect", True), ("memory_write", True)]


async def test_a_tool_of_that_name_is_not_the_agents_own_reflection():
    brought = Tool("reflection", "Mirrors.", parameters={"type": "object"})
    session = session_over(ego, Scripted([lambda r: USUAL[purpose(r)]], loop=True), tools=[brought])
    await say(session, "Which tools are there?")
    assert brought.asked == []
    assert [e.text for e in entries(session, "long")] == ["lessons: Look it up first."]


def test_what_the_agent_does_by_itself_is_no_call_of_the_models(tmp_path, own_home):
    rows = '{"id": "a", "turns": [{"user": "Hello", "expected_calls": [], "no_call": true}]}\n'
    (tmp_path / "conversations.jsonl").write_text(rows)
    replies = {**USUAL, "plan": plan(complexity="simple")}
    model = Scripted([lambda request: replies[purpose(request)]], loop=True)
    with al.Lab(datasets=[str(tmp_path)], flows=["ego"], model=model, embedder="hashing/hashing-64") as lab:
        run = lab.run_sync(out=tmp_path / "run")
    scores = run.scores.set_index("metric")["value"]
    assert (scores["no_call_accuracy"], scores["tool_f1"]) == (1.0, 1.0)
    assert run.summary["flows"]["ego"]["tool_calls"] == 1


# 5  Tools (their layer is in test_mcp.py).


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
    assert main(["tools", "--data", str(tmp_path / "agent")]) == 0
    assert "double" in capsys.readouterr().out
    assert main(["tools", "--data", str(tmp_path / "nowhere")]) == 1


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
        chat.say_sync("Hello")
        chat.say_sync("Hello again")
    outputs = [event.output for event in chat.trace.events if isinstance(event, ToolRun)]
    assert "Look it up first." in outputs and "mirrored" not in outputs
    assert any("mine_reflection()" in text for text in texts)
    assert "the agent has a tool of that name" in caplog.text


async def test_what_is_not_offered_does_not_run():
    session, _ = agent(
        replies={"plan": plan("search"), "step": [step("reflection"), step(None)], "evaluate": judge(90, False)},
        reflection=False,
    )
    await say(session, "What is an oboe?")
    assert "reflect" not in asked(session) and entries(session, "long") == []
    assert not [e for e in session.trace.events if isinstance(e, ToolRun)]


# 6  Events.


async def test_events_have_the_described_names_and_say_who_speaks():
    session, _ = agent()
    await say(session, "What is an oboe?")
    notices = [e for e in session.trace.events if isinstance(e, Notice)]
    assert {e.name for e in notices} == {
        "subsystemMessage",
        "systemStatusMessage",
        "debugResponse",
        "bubble",
        "assistantResponse",
    }
    titles = {e.data["title"] for e in notices}
    assert {
        "LLM response: plan",
        "plan: simple",
        "next step: search",
        "tool search: ran",
        "LLM response: evaluate_step",
        "LLM response: bubble",
        "tool reflection: ran",
    } <= titles


async def test_a_model_that_fails_is_an_error_event():
    session, _ = agent(replies={"plan": ServerFault("down")})
    session._retries = 0
    session.begin_turn(0)
    with pytest.raises(ServerFault):
        await ego.respond(UserTurn(text="Hello"), session)
    errors = [e for e in session.trace.events if isinstance(e, Notice) and e.name == "systemError"]
    assert [(e.data["title"], e.text) for e in errors] == [("LLM error: plan", "ServerFault: down")]


def test_a_run_can_print_its_events(tmp_path, own_home, capsys):
    (tmp_path / "conversations.jsonl").write_text('{"id": "a", "turns": [{"user": "What is an oboe?"}]}\n')
    (tmp_path / "replies.yaml").write_text('loop: true\nreplies: [\'{"chat": "A woodwind.", "canvas": ""}\']\n')
    asked_for = ["run", "--flow", "ego", "--dataset", str(tmp_path), "--model", f"scripted/{tmp_path}/replies.yaml"]
    assert main([*asked_for, "--out", str(tmp_path / "run"), "--events"]) == 0
    told = capsys.readouterr().err
    assert "a turn 0  assistantResponse  response  A woodwind." in told
    assert "a turn 0  subsystemMessage  LLM response: plan" in told


# 7  Configuration.


def test_prompts_come_from_files_by_module_and_name(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LLM_AGENT_DATA_DIR", str(tmp_path))
    folder = tmp_path / "prompts" / "ego"
    folder.mkdir(parents=True)
    (folder / "BUBBLE.txt").write_text("Say it in verse: {result}\n")
    variant = make_variant(Spec(), FlowSpec(flow="ego"))
    assert variant.prompts["bubble"] == "Say it in verse: {result}"
    spec = Spec(prompts={"ego": {"bubble": "From the spec: {result}"}})
    assert make_variant(spec, FlowSpec(flow="ego")).prompts["bubble"] == "From the spec: {result}"
    assert main(["prompts", "--flow", "ego"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert str(folder / "BUBBLE.txt") in lines["bubble"] and "{result}" in lines["bubble"]
    assert "from" not in lines["plan"] and "{message} {tools} {earlier}" in lines["plan"]


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("ego/BUBBLE.txt", "Hello {nobody}", "has no placeholder {nobody}"),
        ("ego/BUBLE.txt", "Hello", "Did you mean 'bubble'"),
        ("egg/BUBBLE.txt", "Hello", "Did you mean 'ego'"),
    ],
)
def test_a_bad_prompt_file_is_an_error_before_the_run(tmp_path, monkeypatch, file, text, told):
    monkeypatch.setenv("LLM_AGENT_DATA_DIR", str(tmp_path))
    path = tmp_path / "prompts" / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(ConfigError, match=told):
        make_variant(Spec(), FlowSpec(flow="ego"))


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


def test_wrong_settings_are_one_line():
    cases: list[tuple[dict[str, Any], str]] = [
        ({"success_threshold": 101}, "success_threshold"),
        ({"max_iterations": 0}, "max_iterations"),
        ({"personality": "nowhere.txt"}, "is not a file"),
    ]
    for given_settings, message in cases:
        with pytest.raises(ConfigError, match=message):
            make_variant(Spec(), FlowSpec.model_validate({"flow": "ego", **given_settings}))


async def test_a_request_above_the_token_limit_is_rejected_with_an_event():
    session, model = agent(token_limit=300)
    session.begin_turn(0)
    with pytest.raises(ContextOverflow, match="the limit is 300"):
        await ego.respond(UserTurn(text="x" * 3000), session)
    errors = [e for e in session.trace.events if isinstance(e, Notice) and e.name == "systemError"]
    assert [e.data["title"] for e in errors] == ["Token limit: plan"]
    assert model.requests == []
    assert ego.Settings().token_limit == 10_000


@pytest.mark.parametrize(("text", "fits"), [("x" * 7000, True), ("\u4e2d" * 7000, False)])
async def test_the_token_limit_counts_what_is_not_english_and_what_tools_ask(text, fits):
    session, model = agent(question.build(), token_limit=4000, replies={"step": step("question", question=text)})
    session.begin_turn(0)
    await ego.respond(UserTurn(text="Go"), session)
    session.settings = replace(session.settings, planning=False)
    session.state["ego"].settings = session.settings
    session.begin_turn(1)
    await session.join()
    await ego.respond(UserTurn(text="Go on"), session)
    await session.join()
    runs = [e for e in session.trace.of_turn(1) if isinstance(e, ToolRun)]
    assert (runs[0].error is None) == fits
    assert max(len(r.messages[-1].text) for r in model.requests) < 4000 * 4


# 8  Parameters of tools.


LOOK_UP = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "names": {"type": "array", "items": {"type": "string"}}},
    "required": ["query", "names"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("wanted", "given_parameters", "mapped"),
    [
        ("question", {"query": "Why?"}, {"question": "Why?"}),
        ("question", {"question": "Why?"}, {"question": "Why?"}),
        ("question", {"": "Why?"}, {"question": "Why?"}),
        ("question", {"parameters": {"question": "Why?"}}, {"question": "Why?"}),
        ("question", {"question": "Why?", "tone": "kind"}, {"question": "Why?"}),
        ("question", {"a": "x", "b": "y"}, {}),
        ("question", {"query": 7}, {}),
        ("llmquery", {"question": "Rain?"}, {"query": "Rain?"}),
        ("look_up", {"query": "offside"}, {"query": "offside", "names": []}),
        ("look_up", {"query": "offside", "names": None}, {"query": "offside", "names": []}),
        ("look_up", {"query": "offside", "names": "all"}, {"query": "offside", "names": "all"}),
        ("open", {"a": "x", "b": "y"}, {"a": "x", "b": "y"}),
    ],
)
def test_parameters_get_the_form_the_tool_wants(wanted, given_parameters, mapped):
    specs = {
        "question": question.build().spec,
        "llmquery": llmquery.build().spec,
        "look_up": ToolSpec(name="look_up", description="", parameters=LOOK_UP),
        "open": ToolSpec(name="open", description="", parameters=SEARCH),
    }
    assert map_parameters(specs[wanted], given_parameters) == mapped


async def test_the_question_tool_gets_its_question_whatever_the_plan_calls_it():
    session, _ = agent(question.build(), replies={"plan": plan("question", complexity="simple", query="6 times 7?")})
    await say(session, "6 times 7?")
    run = next(e for e in session.trace.events if isinstance(e, ToolRun))
    assert (run.call.arguments, run.output, run.error) == ({"question": "6 times 7?"}, "Forty-two.", None)


async def test_the_model_is_told_how_to_write_parameters_and_held_to_it():
    look_up = Tool("look_up", "Found.", parameters=LOOK_UP)
    look_up.instruction = 'Say what: {"query": "reed", "names": []}'
    session, model = agent(look_up, replies={"plan": plan("look_up"), "step": step(None)})
    await say(session, "What is an oboe?")
    for name in ("plan", "step"):
        assert 'Say what: {"query": "reed", "names": []}' in prompts(model, name)[0]
        schema = next(r.output_schema for r in model.requests if purpose(r) == name)
        assert '"tool": {"const": "look_up"}' in json.dumps(schema) and '"names": {"type": "array"' in json.dumps(
            schema
        )


async def test_missing_parameters_are_told_and_execution_continues():
    strict = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "required": ["a", "b"],
    }
    session, model = agent(
        Tool("search", "ok", parameters=strict),
        replies={"plan": plan("search"), "step": [step("search", a="1"), step(None)], "evaluate": judge(85, False)},
        max_retries=0,
    )
    (reply,) = await say(session, "Go")
    assert reply.data["chat"] == "It is a woodwind."
    assert "'b' is a required property" in prompts(model, "bubble")[0]


# 9  Commands to the memory.


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("consolidate", "command"),
        ("Please consolidate your memory.", "command"),
        ("analyse the memories of last week", "command"),
        ("Reflections of light: why?", "user"),
        ("Maintained by whom is this park", "user"),
        ("Can you analyse memory leaks?", "user"),
        ("Evaluate the memory requirements of quicksort.", "user"),
        ("What is memory consolidation?", "user"),
        ("memory consolidation", "command"),
        ("Consolidation feedback, please!", "command"),
        ("memory analysis", "command"),
        ("Memory maintenance now.", "command"),
        ("Could you consolidate your memory?", "command"),
        ("Now consolidate.", "command"),
    ],
)
async def test_commands_to_the_memory_are_stored_as_such(text, kind):
    session, _ = agent()
    await say(session, text)
    assert entries(session)[0].facts["kind"] == kind


# What a tool's schema and a web that is away do.


async def test_a_schema_counts_for_the_token_limit():
    huge = {"type": "object", "properties": {"x": {"enum": [f"value {n}" for n in range(5_000)]}}}
    session, model = agent(Tool("search", "never", parameters=huge))
    session.begin_turn(0)
    with pytest.raises(ContextOverflow, match="the limit is 10000"):
        await ego.respond(UserTurn(text="Hello"), session)
    assert not model.requests


def test_parameters_of_a_schema_that_requires_none_are_mapped_too():
    spec = ToolSpec(
        name="now", description="", parameters={"type": "object", "properties": {"zone": {"type": "string"}}}
    )
    for written in ({"zone": "CET"}, {"": "CET"}, {"parameters": {"zone": "CET"}}, {"timezone": "CET"}):
        assert map_parameters(spec, written) == {"zone": "CET"}
    assert map_parameters(spec, {}) == {}


async def test_a_query_fails_where_the_web_cannot_be_searched(monkeypatch):
    def away(query):
        raise ToolError("the search engine cannot be used (Timeout)")

    monkeypatch.setattr("agentlab.tools.search_web._ask_engine", away)
    session, _ = agent(llmquery.build(), replies={"step": [step("llmquery", query="rain"), step(None)]})
    await say(session, "Does it rain?")
    errors = [e.data["title"] for e in session.trace.events if isinstance(e, Notice) and e.name == "systemError"]
    assert "tool llmquery: failed" in errors
