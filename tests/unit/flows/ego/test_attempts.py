"""Attempts with too low a score: the lessons for the next attempt, and the attempt that counts."""

from __future__ import annotations

import pytest

from agentlab.core.events import Decision
from support.layered_agent import Tool, agent, entries, judge, plan, prompts, prompts_of, say, step


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
    assert prompts_of(session).count("plan") == attempts
    assert prompts_of(session).count("reflect") == attempts
    if attempts == 2:
        assert f"It was judged {score} of 100. no source" in prompts(model, "reflect")[0]
        for name in ("plan", "step"):
            again = prompts(model, name)[1]
            assert "no source" in again and "Look it up first." in again


@pytest.mark.parametrize(
    ("text", "attempts"),
    [
        ('{"score": "95", "complete": "true", "confidence": "0.9", "comment": ""}', 1),
        ('{"score": "95%", "complete": true, "confidence": 1, "comment": ""}', 1),
        ("It is fine.", 2),
        ('{"score": "5", "complete": true, "confidence": 1, "comment": ""}', 2),
    ],
)
async def test_only_what_can_be_read_and_is_above_the_threshold_is_good_enough(text, attempts):
    session, _ = agent(replies={"evaluate": text, "step": step(None)}, reflection=False)
    await say(session, "What is an oboe?")
    assert prompts_of(session).count("plan") == attempts


async def test_the_best_attempt_counts_and_the_results_of_all_are_remembered():
    session, model = agent(
        Tool("search", "Good enough.", ValueError("broken")), replies={"evaluate": [judge(70), judge(5)]}
    )
    await say(session, "What is an oboe?")
    assert "Good enough." in prompts(model, "bubble")[0]
    results = [e.text for e in entries(session) if e.facts["kind"] == "result"]
    assert results[0] == "search: Good enough." and "broken" in results[1]


async def test_new_attempt_reads_the_failure_of_the_last_one():
    quiet = {"planning": False, "reflection": False}
    session, model = agent(
        Tool("search", ValueError("no sky")), replies={"step": step("search"), "evaluate": judge(5)}, **quiet
    )
    await say(session, "What is an oboe?")
    first, second = prompts(model, "step")
    assert "no sky" not in first and "Every step failed" in second and "no sky" in second


def verdicts(session) -> list[tuple[bool | str, str]]:
    return [(e.choice, e.why) for e in session.trace.events if isinstance(e, Decision) and e.name == "good enough"]


async def test_an_attempt_that_does_nothing_beats_none_that_found_something():
    session, model = agent(
        replies={"plan": [plan("search"), plan()], "step": [step("search"), step(None)], "evaluate": judge(40)}
    )
    await say(session, "What is an oboe?")
    assert verdicts(session) == [(False, "score 40, threshold 80"), (False, "nothing was done, threshold 80")]
    assert "an instruction):\nAn oboe is a woodwind." in prompts(model, "bubble")[0]


async def test_failed_attempt_is_reported_before_an_empty_one():
    session, model = agent(
        Tool("search", ValueError("no sky")),
        replies={"plan": [plan("search"), plan()], "step": [step("search"), step(None)], "evaluate": judge(5)},
    )
    await say(session, "What is an oboe?")
    assert "no sky" in prompts(model, "bubble")[0]


async def test_empty_attempt_is_enough_without_a_task():
    session, model = agent(replies={"plan": plan(complexity="simple")})
    await say(session, "Hello")
    assert verdicts(session) == [(True, "nothing was done, threshold 80")]
    assert "nothing was done; answer from what you know" in prompts(model, "bubble")[0]


async def test_second_attempt_answers_from_the_results_of_both():
    session, model = agent(
        Tool("search", "It has a reed.", "It is a woodwind."),
        replies={"plan": plan("search"), "step": [step("search"), step("search")], "evaluate": [judge(40), judge(90)]},
    )
    await say(session, "What is an oboe?")
    for name in ("plan", "step"):
        first, second = prompts(model, name)
        assert "It has a reed." not in first and "It has a reed." in second
    assert "1. earlier attempt: search" in prompts(model, "evaluate")[1]
    prompt = prompts(model, "bubble")[0]
    assert "It has a reed." in prompt and "It is a woodwind." in prompt


async def test_better_first_attempt_reaches_the_reply_alone():
    session, model = agent(
        Tool("search", "It has a reed.", "It barks."),
        replies={"plan": plan("search"), "step": [step("search"), step("search")], "evaluate": [judge(40), judge(10)]},
    )
    await say(session, "What is an oboe?")
    assert "an instruction):\nIt has a reed." in prompts(model, "bubble")[0]
