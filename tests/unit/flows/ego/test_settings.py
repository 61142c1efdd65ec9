"""Settings: each part can be switched off alone, an invalid setting is a one-line error, and token limits hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentlab.core.errors import ConfigError, ContextOverflow
from agentlab.core.events import Notice, ToolRun
from agentlab.core.messages import UserTurn
from agentlab.flows import ego
from agentlab.tools.ask import question
from agentlab.workbench.spec import FlowSpec, Spec
from agentlab.workbench.variants import make_variant
from support.layered_agent import Tool, agent, prompts_of, say, step

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
    assert set(prompts_of(session)) == everything - SWITCHED[switch]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("ego/BUBBLE.txt", "Hello {nobody}", "has no placeholder {nobody}"),
        ("ego/BUBLE.txt", "Hello", "Did you mean 'bubble'"),
        ("egg/BUBBLE.txt", "Hello", "Did you mean 'ego'"),
    ],
)
def test_a_bad_prompt_file_is_an_error_before_the_run(tmp_path, monkeypatch, file, text, message):
    monkeypatch.setenv("LLM_AGENT_DATA_DIR", str(tmp_path))
    path = tmp_path / "prompts" / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        make_variant(Spec(), FlowSpec(flow="ego"))


def test_wrong_settings_are_one_line():
    cases: list[tuple[dict[str, Any], str]] = [
        ({"success_threshold": 101}, "success_threshold"),
        ({"max_iterations": 0}, "max_iterations"),
        ({"personality": "nowhere.txt"}, "nowhere.txt cannot be read"),
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
    session, model = agent(question, token_limit=4000, replies={"step": step("question", question=text)})
    session.begin_turn(0)
    await ego.respond(UserTurn(text="Go"), session)
    session.change(settings=replace(session.settings, planning=False))
    session.begin_turn(1)
    await session.run_background()
    await ego.respond(UserTurn(text="Go on"), session)
    await session.run_background()
    runs = [e for e in session.trace.at(1) if isinstance(e, ToolRun)]
    assert (runs[0].error is None) == fits
    assert max(len(r.messages[-1].text) for r in model.requests) < 4000 * 4


async def test_a_schema_counts_for_the_token_limit_where_its_tool_is_offered():
    huge = {"type": "object", "properties": {"x": {"enum": [f"value {n}" for n in range(5_000)]}}}
    session, model = agent(Tool("search", "never", parameters=huge), tool_tokens=100_000)
    session.begin_turn(0)
    with pytest.raises(ContextOverflow, match="the limit is 10000"):
        await ego.respond(UserTurn(text="Hello"), session)
    assert not model.requests
