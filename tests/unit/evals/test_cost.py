"""Tokens that a prefix cache could serve, counted from the trace by the rules of a provider."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.errors import ConfigError
from agentlab.core.events import ModelCall
from agentlab.core.messages import Completion, Message, Request, ToolSpec, Usage
from agentlab.core.trace import Trace
from agentlab.evals.cost import CacheRules, Repricing, prefix_uses

SYSTEM = Message(role="system", text="s" * 400)


def user(text: str) -> Message:
    return Message(role="user", text=text)


def traced(*requests: Request, tokens: int = 1000) -> Trace:
    trace = Trace("flow", "conversation")
    for number, request in enumerate(requests):
        completion = Completion(
            message=Message(role="agent", text="ok"),
            usage=Usage(input_tokens=tokens, output_tokens=10),
        )
        trace.append(
            ModelCall(
                id=trace.next_id(),
                turn=number,
                phase="answer",
                model="m",
                request=request,
                completion=completion,
                start=float(number),
                seconds=1.0,
            )
        )
    return trace


def request_of(*messages: Message, **more) -> Request:
    return Request(messages=messages, **more)


def test_a_conversation_that_only_grows_repeats_all_of_its_last_prompt():
    first, second = (SYSTEM, user("a" * 400)), (SYSTEM, user("a" * 400), user("b" * 800))
    uses = prefix_uses(traced(request_of(*first), request_of(*second)), CacheRules())
    assert [use.broken_at for use in uses] == [None, None]
    assert uses[0].ideal == 0
    assert 480 < uses[1].ideal < 520


def test_a_changed_system_message_breaks_everything_after_it():
    changed = Message(role="system", text="s" * 200 + "t" * 200)
    uses = prefix_uses(traced(request_of(SYSTEM, user("a" * 400)), request_of(changed, user("a" * 400))), CacheRules())
    assert uses[1].broken_at == "first system message"
    assert 200 < uses[1].ideal < 290
    assert uses[1].ideal + uses[1].lost == 1000


def test_tools_precede_messages_in_a_prompt():
    tool = ToolSpec(name="search", description="d" * 400, parameters={})
    uses = prefix_uses(traced(request_of(SYSTEM, tools=(tool,)), request_of(SYSTEM)), CacheRules())
    assert (uses[1].broken_at, uses[1].ideal < 10) == ("first system message", True)


def test_the_nearest_of_all_earlier_prompts_counts():
    one, other = request_of(SYSTEM, user("a" * 400)), request_of(user("x" * 100))
    uses = prefix_uses(traced(one, other, one), CacheRules())
    assert (uses[2].ideal, uses[2].broken_at) == (1000, None)


def test_lost_tokens_count_from_the_newest_of_equally_near_prompts():
    grown = [request_of(Message(role="system", text=f"s {n}"), *[user("a" * 400)] * n) for n in range(1, 6)]
    uses = prefix_uses(traced(*grown), CacheRules())
    assert all(b.lost > a.lost for a, b in pairwise(uses[1:]))


def test_a_prompt_that_is_still_being_answered_has_left_nothing_to_reuse():
    trace = traced(*[request_of(SYSTEM)] * 3)
    trace.events[:] = [replace(event, start=0.0) for event in trace.events]
    assert [use.ideal for use in prefix_uses(trace, CacheRules())] == [0, 0, 0]


def test_blocks_and_minimum_are_the_caches_own():
    def ideal(**rules):
        return prefix_uses(traced(*[request_of(SYSTEM)] * 2), CacheRules(**rules))[1].ideal

    assert ideal() == 1000
    assert ideal(block=128) == 896
    assert ideal(minimum=1001) == 0
    for wrong in ({"block": 0}, {"minimum": -1}):
        with pytest.raises(ConfigError, match="cache: block must be 1 or more"):
            CacheRules(**wrong)


@given(st.lists(st.lists(st.text("ab", max_size=6), max_size=4), max_size=6), st.integers(1, 7))
def test_cache_serves_no_more_than_a_prompt_and_nothing_to_the_first(talks, block):
    requests = [request_of(SYSTEM, *map(user, texts)) for texts in talks]
    uses = prefix_uses(traced(*requests), CacheRules(block=block))
    assert len(uses) == len(talks)
    for number, use in enumerate(uses):
        assert 0 <= use.ideal <= 1000 and use.ideal % block == 0 and use.lost >= 0
        assert number or (use.ideal, use.broken_at) == (0, None)


def test_cost_prints_cacheable_tokens_and_broken_prefixes(tmp_path, own_home, capsys):
    (tmp_path / "conversations.jsonl").write_text(
        '{"id": "a", "turns": [{"user": "What is A?"}, {"user": "And what is B?"}]}\n'
    )
    (tmp_path / "corpus.jsonl").write_text('{"doc_id": "a", "title": "A", "text": "A is a letter."}\n')
    model = al.Scripted(["Hello."], loop=True)
    with al.Lab(
        datasets=[str(tmp_path)], flows=["rag_only"], model=model, embedder="hashing/hashing-64", memory="none"
    ) as lab:
        run = lab.run_sync(out=tmp_path / "run")
    table = Repricing(cache=CacheRules()).table(run)
    ideal = sum(use.ideal for use in prefix_uses(run.trace("rag_only", "a"), CacheRules()))
    assert table.loc["rag_only", "cached tokens / turn repriced"] == ideal / 2 > 0
    assert main(["cost", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    assert "cached tokens / turn repriced" in printed and "prompts that leave the cached prefix" in printed
    assert main(["cost", str(tmp_path / "run"), "--block", "0"]) == 1
    assert main(["cost", str(tmp_path / "run"), "--model", "openai/gpt-4.1-mini"]) == 0
    assert "where prompts leave" not in capsys.readouterr().out
