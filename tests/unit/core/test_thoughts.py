"""Thoughts and calls of tools in the text of a model, and texts that only look like them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentlab.core.thoughts import ThoughtFilter, split_thought, split_tool_markup
from support.wire_forms import siblings

THOUGHTS = {
    "<think>Lyon?</think>Paris.": ("Paris.", "Lyon?"),
    "\n <think>\nLyon?\n</think>\n\nParis.": ("Paris.", "Lyon?"),
    "<think>\n\n</think>\n\nParis.": ("Paris.", ""),
    "<think>Lyon?</think>\n<think>No.</think>Paris.": ("Paris.", "Lyon?\n\nNo."),
    "<THINKING>Lyon?</THINKING>Paris.": ("Paris.", "Lyon?"),
    "<thought>Lyon?</thought>Paris.": ("Paris.", "Lyon?"),
    "<seed:think>Lyon?</seed:think>Paris.": ("Paris.", "Lyon?"),
    "[THINK]Lyon?[/THINK]Paris.": ("Paris.", "Lyon?"),
    "◁think▷Lyon?◁/think▷Paris.": ("Paris.", "Lyon?"),
    "<unused94>thought\nLyon?<unused95>Paris.": ("Paris.", "Lyon?"),
    "<think>Then `</think>`, I write. Lyon?</think>Paris.": ("Paris.", "Then `</think>`, I write. Lyon?"),
    "Lyon? No.\n</think>\n\nParis.": ("Paris.", "Lyon? No."),
    "<think>It must be Paris": ("", "It must be Paris"),
    "<|channel|>analysis<|message|>Lyon?<|end|><|start|>assistant<|channel|>final<|message|>Paris.": (
        "Paris.",
        "Lyon?",
    ),
    "Lyon?<|end|><|start|>assistant<|channel|>final<|message|>Paris.<|return|>": ("Paris.", "Lyon?"),
    "<|channel|>analysis<|message|>Lyon? Par": ("", "Lyon? Par"),
    "analysisLyon?assistantfinalParis.": ("Paris.", "Lyon?"),
}
ANSWERS = [
    "Paris.",
    "The template:\n\n```jinja\n<think>\n{{ thought }}\n</think>\n```\n\nUse it.",
    "Write `<think>draft</think>` first.",
    "The tag is `</think>`; it ends a thought.",
    "R1 opens with <think> and then reasons.",
    "It ends with </think> and goes on.",
    '{"html": "<thinking>no thought</thinking>"}',
    "analysis of the results",
    "Command A writes <|START_RESPONSE|> before its answers.",
    "Harmony writes `<|channel|>analysis<|message|>` first.",
]
MARKUP = [
    '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>',
    '<tool_call>\n{"name": "look", "argu',
    "<tool_call>look\n<arg_key>q</arg_key>",
    '[TOOL_CALLS][{"name": "look", "arguments": {}}]',
    '<function=look>{"q": 1}</function>',
    '[TOOL_REQUEST]\n{"name": "look", "arguments": {}}\n[END_TOOL_REQUEST]',
    '<|python_tag|>{"name": "look", "parameters": {}}',
    "<\uff5ctool▁calls▁begin\uff5c><\uff5ctool▁call▁begin\uff5c>function<\uff5ctool▁sep\uff5c>look",
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.look:0",
    '<minimax:tool_call>\n<invoke name="look">',
    '<|channel|>commentary to=functions.look <|constrain|>json<|message|>{"q": 1}<|call|>',
]
NO_MARKUP = [
    'So:\n```xml\n<tool_call>{"name": "look"}</tool_call>\n```\nThe server reads it.',
    "You wrote `<tool_call>{`; it is a tag.",
    "A <tool_call> is a tag.",
    '{"name": "Paris", "arguments": "for and against"}',
]


@pytest.mark.parametrize("text", THOUGHTS)
def test_a_thought_is_no_part_of_the_reply(text):
    assert split_thought(text) == THOUGHTS[text]


@pytest.mark.parametrize(
    "text",
    [
        "<|START_THINKING|>Lyon?<|END_THINKING|><|START_RESPONSE|>Paris.<|END_RESPONSE|>",
        "<|begin_of_thought|>Lyon?<|end_of_thought|>\n<|begin_of_solution|>\nParis.\n<|end_of_solution|>",
    ],
)
def test_marks_around_the_reply_after_a_thought_are_no_part_of_it(text):
    assert split_thought(text) == ("Paris.", "Lyon?")


@pytest.mark.parametrize("text", ANSWERS)
def test_what_is_quoted_or_named_stays_in_the_answer(text):
    assert split_thought(text) == (text, "")


def test_what_a_server_has_split_begins_with_the_tag_it_names():
    assert split_thought("<think> opens it.", is_split=True) == ("<think> opens it.", "")
    assert split_thought("<think>Lyon?</think>Paris.", is_split=True) == ("Paris.", "Lyon?")


@pytest.mark.parametrize("text", MARKUP)
def test_calls_that_arrive_as_text_are_separated(text):
    assert split_tool_markup(f"I look.\n{text}") == ("I look.", text)


@pytest.mark.parametrize("text", NO_MARKUP)
def test_calls_that_are_quoted_are_text(text):
    assert split_tool_markup(text) == (text, "")


TOLD_LATE = [
    "Lyon? No.\n</think>\n\nParis.",
    "Lyon?<|end|><|start|>assistant<|channel|>final<|message|>Paris.<|return|>",
    "analysisLyon?assistantfinalParis.",
    "<think>Then `</think>`, I write. Lyon?</think>Paris.",
    '<|channel|>commentary to=functions.look <|constrain|>json<|message|>{"q": 1}<|call|>',
]
"""Texts that only their later part shows to be a thought or a call."""
STREAMED = [text for text in (*THOUGHTS, *ANSWERS, *MARKUP, *NO_MARKUP) if text not in TOLD_LATE] + [
    "".join(choice["delta"].get("content", "") for choice in row["chunks"])
    for row in siblings("answer")
    if row["form"].startswith("text-") and "chunks" in row and "two-answers" not in row["form"]
]


@settings(max_examples=500, deadline=None)
@given(text=st.sampled_from(STREAMED), cuts=st.sets(st.integers(0, 120), max_size=12))
def test_no_split_of_a_stream_shows_a_fragment_of_a_mark(text, cuts):
    stream, places = ThoughtFilter(), [0, *sorted(cuts), None]
    visible, final = "", split_tool_markup(split_thought(text)[0])[0]
    for begin, end in itertools.pairwise(places):
        visible += stream.feed(text[begin:end])
        assert final.startswith(visible.rstrip())


@pytest.mark.parametrize("text", STREAMED)
def test_a_stream_of_single_characters_shows_no_fragment_of_a_mark(text):
    stream, visible = ThoughtFilter(), ""
    final = split_tool_markup(split_thought(text)[0])[0]
    for character in text:
        visible += stream.feed(character)
        assert final.startswith(visible.rstrip())


def test_what_is_held_back_is_the_shortest_end_that_may_be_a_mark():
    stream = ThoughtFilter()
    assert [stream.feed(piece) for piece in ("3 <", " 4 and <b", ">7</b", "> end ", "here")] == [
        "3",
        " < 4 and",
        " <b>7",
        "</b> end ",
        "here",
    ]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize("text", [*THOUGHTS, *ANSWERS])
def test_a_growing_text_never_shows_a_thought_that_it_opens(text, size):
    stream = ThoughtFilter()
    message = "".join(stream.feed(text[at : at + size]) for at in range(0, len(text), size))
    expected = split_thought(text)[0]
    opens = text.lstrip()[:1] in "<[◁" and "`" not in text  # a mark in quotes is known only once all has come
    assert message == expected or not opens
