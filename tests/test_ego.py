"""The layered agent against its description: the loop in order, plans, steps, judgements, memory, limits."""

from __future__ import annotations

import json
from typing import Any

import pytest
from doubles import session_over
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import agentlab as al
from agentlab.cli import main
from agentlab.errors import ConfigError, ContextOverflow
from agentlab.events import Decision, ModelCall, Notice, ToolRun
from agentlab.flows import ego
from agentlab.flows._react import map_parameters
from agentlab.messages import Request, ToolSpec, UserTurn
from agentlab.models.scripted import Scripted
from agentlab.spec import FlowSpec, Spec
from agentlab.tools import memory_maintenance, question, reflection
from agentlab.variants import make_variant

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
        "tool": "step",
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
    return json.dumps({"tool": tool, "parameters": parameters or {"query": "oboe"}, "purpose": "p"})


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
    "maintenance": '{"drop": [], "merged": []}',
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
        "complete (relevance; no tools)",
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
        "call_tool reflection",
        "complete (reflect; no tools)",
        "complete (memory_write; no tools)",
    ]


async def test_memory_is_tagged_with_module_kind_and_time():
    session, _ = agent()
    await say(session, "What is an oboe?", "consolidate your memory, please")
    short = entries(session)
    assert [(e.module, e.facts["kind"]) for e in short[:4]] == [
        ("ego", "user"),
        ("coordinator", "result"),
        ("ego", "response"),
        ("ego", "command"),
    ]
    assert {e.time for e in short} == {session.now}
    (lesson, _) = entries(session, "long")
    assert (lesson.module, lesson.text) == ("reflection", "lessons: Look it up first.")
    assert lesson.facts == {"summary": "looking up helps", "tags": "method"}


async def test_the_enriched_message_holds_query_context_memories_and_capabilities():
    session, model = agent(replies={"relevance": '{"relevant": [1], "summary": "They play the oboe."}'})
    await say(session, "I play the oboe.", "Which instrument is mine?")
    message = prompts(model, "plan")[1]
    assert "Query: Which instrument is mine?" in message
    assert "Thursday, 2026-01-01, 00:00" in message
    assert "They play the oboe.\n1. [ego user] I play the oboe." in message
    assert "Capabilities: search, memoryMaintenance" in message
    assert "reflection" not in message


async def test_the_relevance_filter_sees_short_and_long_term_memory():
    session, model = agent()
    await say(session, "I play the oboe.", "And you?")
    seen = prompts(model, "relevance")[1]
    assert "1. [ego user] I play the oboe." in seen
    assert "5. [reflection memory] looking up helps" in seen


async def test_a_plan_with_a_tool_that_does_not_exist_is_made_anew_with_the_reason():
    session, model = agent(replies={"plan": [plan("teleport"), plan("search", complexity="simple")]})
    await say(session, "What is an oboe?")
    first, second = prompts(model, "plan")
    assert "teleport" not in first
    assert "there is no tool teleport; there are: search, memoryMaintenance" in second
    assert next(e.call.name for e in session.trace.events if isinstance(e, ToolRun)) == "search"


async def test_plans_that_keep_naming_unknown_tools_end_and_lose_those_steps():
    session, model = agent(replies={"plan": plan("teleport", "search", complexity="simple")})
    await say(session, "What is an oboe?")
    assert len(prompts(model, "plan")) == 3
    assert [e.call.name for e in session.trace.events if isinstance(e, ToolRun)] == ["search", "reflection"]


async def test_complexity_decides_how_steps_are_chosen():
    moderate = {
        "plan": plan("search"),
        "step": [step("search", query="reed"), step(None)],
        "evaluate": judge(90, False),
    }
    session, _ = agent(replies=moderate)
    await say(session, "What is an oboe?")
    assert asked(session)[:6] == ["relevance", "plan", "step", "evaluate", "step", "bubble"]
    unsure = {"evaluate": [judge(90, confidence=0.5), judge(90)], "step": step("search")}
    session, _ = agent(replies=unsure)
    await say(session, "What is an oboe?")
    assert asked(session)[:6] == ["relevance", "plan", "evaluate", "step", "evaluate", "bubble"]


async def test_the_iteration_limit_is_a_hard_stop():
    endless = {"plan": plan("search"), "step": step("search"), "evaluate": judge(90, False)}
    session, _ = agent(replies=endless, max_iterations=4)
    await say(session, "What is an oboe?")
    assert asked(session).count("step") == 4
    limits = [e for e in session.trace.events if isinstance(e, Decision) and e.name == "iteration limit reached"]
    assert len(limits) == 1
    assert ego.Settings().max_iterations == 10


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
        assert "It was judged: " in prompts(model, "reflect")[0] and "no source" in prompts(model, "reflect")[0]
        assert "An earlier plan failed: no source" in prompts(model, "plan")[1]
        assert "Lesson: Look it up first." in prompts(model, "step")[1]


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


async def test_parameters_get_the_name_the_tool_wants():
    asked_question = question.build().spec
    assert map_parameters(asked_question, {"query": "Why?"}) == {"question": "Why?"}
    assert map_parameters(asked_question, {"question": "Why?"}) == {"question": "Why?"}
    assert map_parameters(asked_question, {"a": "x", "b": "y"}) == {"a": "x", "b": "y"}
    assert map_parameters(asked_question, {"query": 7}) == {"query": 7}
    session, _ = agent(question.build(), replies={"plan": plan("question", complexity="simple", query="6 times 7?")})
    await say(session, "6 times 7?")
    run = next(e for e in session.trace.events if isinstance(e, ToolRun))
    assert (run.call.arguments, run.output, run.error) == ({"question": "6 times 7?"}, "Forty-two.", None)


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


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        (Tool("search", "Plain text."), "Plain text."),
        (Tool("search", ValueError("broken")), "Error: Error: the tool search"),
    ],
)
async def test_the_bubble_gets_errors_texts_or_objects(tool, expected):
    session, model = agent(tool, max_retries=0)
    await say(session, "What is an oboe?")
    assert f"Result:\n{expected}" in prompts(model, "bubble")[0]


async def test_several_results_reach_the_bubble_as_an_object():
    session, model = agent(
        replies={
            "plan": plan("search"),
            "step": [step("search"), step("search"), step(None)],
            "evaluate": judge(90, False),
        }
    )
    await say(session, "What is an oboe?")
    result = json.loads(prompts(model, "bubble")[0].partition("Result:\n")[2])
    assert (result["type"], len(result["response"]), result["complete"]) == ("steps", 2, True)


async def test_an_answer_without_json_is_still_an_answer():
    session, _ = agent(replies={"bubble": "Just a woodwind."})
    (reply,) = await say(session, "What is an oboe?")
    assert reply.text == "Just a woodwind."


async def test_maintenance_prunes_and_merges_and_loses_nothing():
    session, _ = agent(
        replies={
            "plan": [plan("search", complexity="simple"), plan("memoryMaintenance", complexity="simple", x=1)],
            "maintenance": '{"drop": [1, 9], "merged": ["Looking things up helps."]}',
        }
    )
    await say(session, "What is an oboe?", "consolidate")
    run = [e for e in session.trace.events if isinstance(e, ToolRun) and e.call.name == "memoryMaintenance"]
    assert run and run[0].error is not None  # the plan's parameters are not the tool's: told, and nothing done
    done = await session.state["ego"].maintain(session)
    assert done == "Long-term memory: 1 entries pruned, 1 written anew."
    memory = session.state["ego"].memory
    assert [e.text for e in memory.long.entries()][-1] == "Looking things up helps."
    assert "lessons: Look it up first." in memory.long.pruned.read_text()


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
    everything = {"relevance", "plan", "evaluate", "bubble", "reflect", "analysis"} | (
        {"step"} if switch == "planning" else set()
    )
    assert set(asked(session)) == everything - SWITCHED[switch]


async def test_reflection_waits_for_nobody_and_is_charged_to_its_phase():
    session, _ = agent()
    await say(session, "What is an oboe?")
    calls = [e for e in session.trace.events if isinstance(e, ModelCall)]
    assert [(e.phase, e.background) for e in calls][-2:] == [("reflect", True), ("memory_write", True)]


async def test_a_request_above_the_token_limit_is_rejected_with_an_event():
    session, model = agent(token_limit=300)
    session.begin_turn(0)
    with pytest.raises(ContextOverflow, match="the limit is 300"):
        await ego.respond(UserTurn(text="x" * 3000), session)
    errors = [e for e in session.trace.events if isinstance(e, Notice) and e.name == "systemError"]
    assert [e.data["title"] for e in errors] == ["Token limit: memory_retrieval"]
    assert model.requests == []
    assert ego.Settings().token_limit == 10_000


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
    assert {"LLM response: plan", "tool search: ran", "LLM response: bubble"} <= titles


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


def test_memory_stays_where_the_data_folder_is_set_to(tmp_path, monkeypatch, own_home):
    monkeypatch.setenv("LLM_AGENT_DATA_DIR", str(tmp_path / "agent"))
    texts = []
    for _ in range(2):
        model = Scripted([lambda request: texts.append(request.messages[0].text) or USUAL[purpose(request)]], loop=True)
        with al.Lab(
            flows=[{"flow": "ego", "keep_memory": True, "planning": False}], model=model, embedder="hashing/hashing-64"
        ) as lab:
            assert lab.chat(documents=()).say_sync("I play the oboe.").text
    assert "Look it up first." in (tmp_path / "agent" / "memory" / "ego" / "long_term.txt").read_text()
    assert any("2. [ego response]" in text for text in texts)


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
@given(st.lists(nonsense, min_size=1, max_size=12), st.booleans(), st.booleans())
async def test_no_answer_of_the_model_makes_it_endless_or_its_prompts_unbounded(replies, planning, evaluation):
    longest = []
    turn = iter(range(10**6))

    def answer(request: Request) -> str:
        longest.append(len(request.messages[0].text))
        return replies[next(turn) % len(replies)]

    session = session_over(
        ego,
        Scripted([answer], loop=True),
        tools=[Tool("search", "y" * 50_000), reflection.build(), memory_maintenance.build()],
        planning=planning,
        evaluation=evaluation,
    )
    await say(session, "What is an oboe?", "x" * 2000, "consolidate")
    a_turn = 2 * (3 + 10 * 2) + 20
    assert len(longest) <= 3 * a_turn
    assert max(longest) < 40_000


def test_wrong_settings_are_one_line():
    cases: list[tuple[dict[str, Any], str]] = [
        ({"success_threshold": 101}, "success_threshold"),
        ({"max_iterations": 0}, "max_iterations"),
        ({"personality": "nowhere.txt"}, "is not a file"),
    ]
    for given_settings, message in cases:
        with pytest.raises(ConfigError, match=message):
            make_variant(Spec(), FlowSpec.model_validate({"flow": "ego", **given_settings}))


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
    assert "from" not in lines["plan"] and "{message} {tools} {problem}" in lines["plan"]


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


def test_a_run_can_print_its_events(tmp_path, own_home, capsys):
    (tmp_path / "conversations.jsonl").write_text('{"id": "a", "turns": [{"user": "What is an oboe?"}]}\n')
    (tmp_path / "replies.yaml").write_text('loop: true\nreplies: [\'{"chat": "A woodwind.", "canvas": ""}\']\n')
    asked_for = ["run", "--flow", "ego", "--dataset", str(tmp_path), "--model", f"scripted/{tmp_path}/replies.yaml"]
    assert main([*asked_for, "--out", str(tmp_path / "run"), "--events"]) == 0
    told = capsys.readouterr().err
    assert "a turn 0  assistantResponse  response  A woodwind." in told
    assert "a turn 0  subsystemMessage  LLM response: plan" in told


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
