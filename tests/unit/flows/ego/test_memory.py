"""The memory of the agent: tags, short and long term, sessions, and commands to remember."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from agentlab.core.errors import ContextOverflow
from agentlab.core.messages import UserTurn
from agentlab.flows import ego
from agentlab.flows.ego.commands import parse_command
from agentlab.flows.ego.memory import MEMORY
from support.layered_agent import USUAL, Tool, agent, entries, judge, plan, prompts, say, step


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
    assert short[0].time >= session.now
    times = [e.time for e in short]
    assert times == sorted(set(times)), "each entry has its own time, in the order they were written"
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


async def test_long_message_is_no_command():
    assert not parse_command("reflect " + "memory " * 100_000 + " " * 100_000 + "?")


async def test_reflection_sees_what_fits_and_not_what_is_newest():
    session, model = agent()
    await say(session, "Hello")
    memory = session.state(MEMORY)
    for text in ("The bassoon is in the attic.", *(f"fact {number}" for number in range(9))):
        memory.long.add(replace(entries(session, "long")[0], text=text, facts={}))
    await say(session, "Where is the bassoon?")
    asked_to_look_back = [r.messages[0].text for r in model.requests if "Known:" in r.messages[0].text]
    existing = asked_to_look_back[-1].split("Known:")[1]
    assert "The bassoon is in the attic." in existing and existing.count("fact") == 3


async def test_old_entries_are_found_by_their_words():
    session, model = agent()
    await say(session, "Hello")
    memory = session.state(MEMORY)
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
    await session.run_background()
    assert [e.text for e in entries(session) if e.facts["kind"] == "user"] == ["Hello again"]
    assert len(entries(session, "long")) == 2


async def test_turns_without_the_agent_enter_its_short_term_memory():
    session, _ = agent()
    session.add_history_turn("I play the oboe.", "Lovely.")
    await say(session, "And you?")
    assert [(e.facts["kind"], e.text) for e in entries(session)][:3] == [
        ("user", "I play the oboe."),
        ("response", "Lovely."),
        ("user", "And you?"),
    ]


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
        ("run memory maintenance", "command"),
        ("Do a memory analysis", "command"),
        ("Please perform a quick memory cleanup.", "command"),
        ("tidy up your memory", "command"),
        ("Could you run a consolidation?", "command"),
        ("Run memoryMaintenance", "command"),
        ("Go ahead and carry out the memory analysis for last week.", "command"),
        ("RUN THE REFLECTION TOOL", "command"),
        ("Do a reflection of light", "user"),
        ("Analyze", "user"),
        ("Run the tests", "user"),
        ("run a memory test", "user"),
        ("Do you do memory analysis?", "user"),
        ("Make a memory", "user"),
        ("Clean the kitchen", "user"),
        ("How do I clean up memory?", "user"),
    ],
)
async def test_commands_to_the_memory_are_stored_as_such(text, kind):
    session, _ = agent()
    await say(session, text)
    assert entries(session)[0].facts["kind"] == kind


LONG = "\n".join(f"{number}. thing {number} " + "of some length " * 10 for number in range(1, 11))


async def test_reply_is_whole_in_the_next_turn_whatever_the_filter_selects():
    session, model = agent(replies={"bubble": [json.dumps({"chat": "Ten things.", "canvas": LONG}), USUAL["bubble"]]})
    await say(session, "List ten things.", "Expand on item 8.")
    for name in ("relevance", "plan", "bubble"):
        prompt = prompts(model, name)[-1]
        assert "8. thing 8" in prompt and "10. thing 10" in prompt and "[ego user] List ten things." in prompt


async def test_reflection_after_ten_steps_has_the_message_and_truncated_results():
    message = "Find out all about oboes. " + "It matters to me. " * 60
    session, model = agent(
        Tool("search", "An oboe is a woodwind. " * 100),
        replies={"plan": plan("search"), "step": step("search"), "evaluate": judge(90, False)},
    )
    await say(session, message)
    (seen,) = prompts(model, "reflect")
    assert message.strip() in seen and seen.count("[coordinator result]") == 10 and "... (cut)" in seen


async def test_short_term_memory_is_a_budget_by_turns():
    session, model = agent(short_term_tokens=100, reflection=False, user_facts=False)
    await say(session, *(f"This is message {number} of the user." for number in range(9)), "And?")
    seen = prompts(model, "relevance")[-1]
    assert "This is message 8 of the user." in seen and "message 0" not in seen
    rendered = seen.partition("Short-term memory:\n")[2].partition("\n\nLong-term memory:")[0]
    assert len(rendered.encode()) <= 400
    session, model = agent(reflection=False)
    await say(session, *(f"This is message {number} of the user." for number in range(9)), "And?")
    assert all(f"This is message {number} of the user." in prompts(model, "relevance")[-1] for number in range(9))


async def test_message_over_all_budgets_fails_the_turn_and_the_chat_continues():
    session, model = agent()
    session.begin_turn(0)
    with pytest.raises(ContextOverflow):
        await ego.respond(UserTurn(text="x" * 1_000_000), session)
    session.begin_turn(1)
    assert (await ego.respond(UserTurn(text="Hello"), session)).text
    await session.run_background()
    assert "[ego user] (a message of 1,000,030 bytes, too long to be shown)" in prompts(model, "relevance")[-1]


@pytest.mark.parametrize(
    ("narrowed", "seen", "unseen"),
    [
        ({}, ["[ego user]", "[ego response]", "[reflection insight]", "[reflection memory]"], []),
        ({"memory_modules": ("reflection",)}, ["[reflection insight]", "[reflection memory]"], ["[ego "]),
        ({"memory_kinds": ("user", "memory")}, ["[ego user]", "[reflection memory]"], ["response]", "insight]"]),
        ({"memory_modules": ("ego",), "memory_kinds": ("response",)}, ["[ego response]"], ["user]", "[reflection"]),
    ],
)
@pytest.mark.parametrize("relevance", [True, False])
async def test_retrieval_can_be_narrowed_to_modules_and_kinds(narrowed, seen, unseen, relevance):
    session, model = agent(relevance=relevance, **narrowed)
    await say(session, "I play the oboe.", "And you?")
    prompt = prompts(model, "relevance" if relevance else "plan")[-1]
    assert all(tag in prompt for tag in seen) and not [tag for tag in unseen if tag in prompt]
