"""The final memory step: written before the response, tried again with its error in sight, and left out."""

from __future__ import annotations

import json

import pytest

from agentlab.core.errors import BadRequest
from agentlab.flows import chatbox, discord
from agentlab.models.scripted import call
from agentlab.tools.memory import update_memory
from support.two_step import ANN, FIRST_FACT, NONE, Tool, choose, clock, decided, phases, setup, texts


async def test_memory_is_written_before_the_response(memory):
    save = Tool("save_memory", "Saved.")
    replies = [NONE, choose("save_memory"), '{"content": "Ann lives in Rome"}', "Nice."]
    session, model = setup(chatbox, replies, clock(), save, Tool("update_memory"), memory=memory)
    await session.remember("Ann likes tea")
    await chatbox.respond(ANN, session)
    assert phases(session) == ["select_tool", "memory_write", "memory_write", "answer"]
    assert save.received == [{"content": "Ann lives in Rome"}]
    choice, arguments, answer = model.requests[1:]
    assert choice.output_schema["properties"]["tool"]["enum"] == ["save_memory", "update_memory", None]
    assert "- fetch_memory(" not in choice.messages[0].text and "- get_current_time(" not in choice.messages[0].text
    assert "choose save_memory" in choice.messages[-2].text and "Ann likes tea" in choice.messages[-1].text
    assert texts(arguments)[1:] == texts(choice)[1:], "arguments are written with the guidance in sight"
    assert "Result: Saved." in answer.messages[2].text and "Ann likes tea" in answer.messages[-1].text


@pytest.mark.parametrize(("failures", "attempts"), [(0, 1), (1, 2), (2, 3), (3, 3)])
async def test_a_failed_write_is_tried_again_with_its_error_in_sight(failures, attempts):
    results = [*(RuntimeError(f"full {i}") for i in range(failures)), "Saved."]
    save = Tool("save_memory", *results)
    replies = [choose("save_memory"), *['{"content": "x"}'] * attempts, "Done."]
    session, model = setup(chatbox, replies, save)
    assert (await chatbox.respond(ANN, session)).text == "Done."
    assert len(save.received) == attempts
    for number in range(1, attempts):
        lines = [m.text for m in model.requests[1 + number].messages if "The last attempt failed" in m.text]
        assert len(lines) == number and f"full {number - 1}" in lines[-1]
    prompt = model.requests[-1].messages[-1].text
    assert ("Result: Saved." in prompt) == (failures < 3) and prompt.count("Tool save_memory ran.") == (failures < 3)


async def test_the_choice_of_the_final_step_is_asked_for_in_its_own_words(memory):
    session, model = setup(chatbox, [NONE, NONE, "Hi."], clock(), Tool("save_memory"), memory=memory)
    await session.remember("Ann lives in Oslo")
    await chatbox.respond(ANN, session)
    choice = model.requests[1]
    guidance, facts = choice.messages[-2:]
    assert texts(choice) == [
        ("system", chatbox.PROMPTS["memory_choice"].format(tools="- save_memory(): does save_memory")),
        ("user", ANN.text),
        ("system", chatbox.PROMPTS["memory_guidance"]),
        ("user", facts.text),
    ]
    assert "long-term memory before the reply" in choice.messages[0].text
    assert guidance.text != facts.text and "Ann lives in Oslo" in facts.text


async def test_an_unknown_id_is_put_right_in_the_final_step(memory):
    replies = [
        choose("update_memory"),
        '{"memory_id": "fact_9", "new_content": "Ann lives in Rome"}',
        json.dumps({"memory_id": FIRST_FACT, "new_content": "Ann lives in Rome"}),
        "Nice.",
    ]
    session, model = setup(chatbox, replies, update_memory, memory=memory)
    await session.remember("Ann lives in Oslo")
    assert (await chatbox.respond(ANN, session)).text == "Nice."
    assert [fact.text for fact in await memory.facts()] == ["Ann lives in Rome"]
    failed = "The last attempt failed: Memory replacement failed. The provided memory_id 'fact_9' was not found."
    assert model.requests[2].messages[-1].text.startswith(failed)
    lines = [text for _, text in texts(model.requests[3]) if "Tool update_memory ran." in text]
    assert len(lines) == 1 and "Result: Memory replaced successfully. New ID: " in lines[0]
    assert phases(session) == ["memory_write"] * 3 + ["answer"]


@pytest.mark.parametrize(
    ("reply", "kind"), [("I would save it", "invalid"), ('{"tool": "fetch_memory"}', "invalid"), (NONE, "none")]
)
async def test_final_step_without_a_write_gives_the_reason(reply, kind):
    save = Tool("save_memory")
    session, _ = setup(chatbox, [reply, "Hi."], save, Tool("update_memory"))
    assert (await chatbox.respond(ANN, session)).text == "Hi."
    assert decided(session)[-1] == ("memory operation", kind) and save.received == []


async def test_a_final_step_that_the_model_fails_is_no_invalid_choice():
    session, _ = setup(chatbox, [BadRequest("no"), "Hi."], Tool("save_memory"))
    assert (await chatbox.respond(ANN, session)).text == "Hi."
    assert decided(session)[-1] == ("memory operation", "failed")


@pytest.mark.parametrize("protocol", ["two_step", "native"])
async def test_the_step_alone_writes_nothing_where_it_is_left_out(memory, protocol):
    """The messages are in the history all the same."""
    save = Tool("save_memory", "Saved.")
    replies = [choose("save_memory"), "{}"] if protocol == "two_step" else [call("save_memory")]
    for final_memory in (False, True):
        session, model = setup(chatbox, replies, save, memory=memory, protocol=protocol, final_memory=final_memory)
        await chatbox.write_memory(ANN, session)
        assert len(model.requests) == (len(replies) if final_memory else 0)
        assert len(save.received) == int(final_memory)
        assert session.load_conversation()[0].text == ANN.text


async def test_malformed_arguments_and_model_errors_are_tried_again_too():
    save = Tool("save_memory", "Saved.")
    replies = [choose("save_memory"), "gibberish", BadRequest("no"), '{"content": "x"}', "Done."]
    session, _ = setup(chatbox, replies, save)
    assert (await chatbox.respond(ANN, session)).text == "Done."
    assert save.received == [{"content": "x"}]


async def test_the_retries_of_the_final_step_are_a_setting():
    save = Tool("save_memory", *[RuntimeError("full")] * 5)
    replies = [choose("save_memory"), *['{"content": "x"}'] * 5, "Done."]
    session, _ = setup(chatbox, replies, save, final_memory_retry=4)
    await chatbox.respond(ANN, session)
    assert len(save.received) == 5


async def test_the_final_step_can_be_left_out_and_discord_never_has_it():
    for flow, settings in ((chatbox, {"final_memory": False}), (discord, {})):
        session, _model = setup(flow, [NONE, "Hi."], clock(), Tool("save_memory"), **settings)
        await flow.respond(ANN, session)
        assert phases(session) == ["select_tool", "answer"]


async def test_an_invalid_choice_of_the_final_step_writes_nothing():
    session, _ = setup(chatbox, ["fetch_memory", "Hi."], Tool("save_memory"))
    assert (await chatbox.respond(ANN, session)).text == "Hi."
