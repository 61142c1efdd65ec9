"""Attempts that are judged too low: what the next one learns, and which of them counts."""

from __future__ import annotations

import pytest

from support.layered_agent import Tool, agent, asked, entries, judge, plan, prompts, say, step


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
