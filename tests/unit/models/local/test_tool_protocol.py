"""The embedded model's prompts and its constrained replies, without a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentlab.core.errors import BadRequest
from agentlab.core.messages import Message, Request, ToolCall, ToolSpec
from agentlab.models.local import model as local
from agentlab.models.local import tool_protocol as protocol
from agentlab.models.local.tool_protocol import ReplyReader
from support.local_model import LOOKUP, MODEL, WEATHER, called, result, user


def rendered(*messages: Message, **options: Any) -> list[dict[str, str]]:
    request = Request(messages=messages, **options)
    return local.LocalModel("any", Path).translate(request).body["messages"]


def read(raw: str, pieces: int = 3, **options: Any) -> tuple[str, str, tuple[ToolCall, ...]]:
    """Return the texts visible while `raw` streams in pieces, then the final text and the calls."""
    request = Request(**{"messages": (user("?"),), "tools": (LOOKUP, WEATHER), **options})
    reader = ReplyReader(request, protocol.offered_tools(request))
    visible = "".join(reader.feed(raw[i : i + pieces]) for i in range(0, len(raw), pieces))
    return visible, *reader.finish()


class TestPrompt:
    def test_without_tools_messages_go_through(self) -> None:
        messages = (Message(role="system", text="Be brief."), user("Hi"), Message(role="agent", text="Hello"))
        assert rendered(*messages, user("Bye", name="Anna")) == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
            {"role": "assistant", "content": "Hello"},
            {"role": "user", "content": "Anna: Bye"},
        ]

    def test_system_prompt_lists_tools(self) -> None:
        system, _ = rendered(Message(role="system", text="Be brief."), user("Hi"), tools=(LOOKUP, WEATHER))
        assert system["content"].startswith("Be brief.\n\n")
        assert "- lookup_documents(query: string (what to search for)): Search" in system["content"]
        assert '- weather.now(city: string, unit?: "C"|"F"): The' in system["content"]
        assert rendered(user("Hi"), tools=(LOOKUP,))[0]["role"] == "system"

    def test_results_are_user_messages_and_calls_are_hidden(self) -> None:
        call = ToolCall(id="call_1", name="lookup_documents", arguments={"query": "né"})
        broken = ToolCall(id="call_2", name="weather.now", malformed='{"city')
        history = (user("When?"), called(call, broken), result("call_1", "In 1816."), result("call_2", "No."))
        _, text = rendered(*history, tools=(LOOKUP, WEATHER))
        assert text["role"] == "user"
        assert text["content"] == (
            'When?\n\nlookup_documents(query="né") returned:\nIn 1816.\n\nweather.now({"city) returned:\nNo.\n\n'
            + protocol.USE_RESULTS
        )
        assert "logit_bias" not in protocol.constraint(Request(messages=history, tools=(LOOKUP,)), (LOOKUP,), MODEL)
        assert [m["role"] for m in rendered(*history, Message(role="agent", text="1816"), user("Thanks"))] == [
            "user",
            "assistant",
            "user",
        ]

    def test_only_an_open_question_to_a_measured_model_is_biased(self) -> None:
        request = Request(messages=(user("When?"),), tools=(LOOKUP,))
        assert protocol.constraint(request, (LOOKUP,), MODEL)["logit_bias"] == [["answer", -4.0]]
        assert "logit_bias" not in protocol.constraint(request, (LOOKUP,), "mine")

    def test_text_beside_a_call_stays(self) -> None:
        call = ToolCall(id="c", name="lookup_documents", arguments={})
        roles = [m["role"] for m in rendered(user("When?"), called(call, text="Let me see."), result("c", "Now."))]
        assert roles == ["user", "assistant", "user"]

    def test_tool_choice(self) -> None:
        def offered(choice: str) -> list[str]:
            return [
                tool.name
                for tool in protocol.offered_tools(Request(messages=(), tools=(LOOKUP, WEATHER), tool_choice=choice))
            ]

        assert offered("auto") == offered("required") == ["lookup_documents", "weather.now"]
        assert offered("none") == []
        assert offered("weather.now") == ["weather.now"]
        with pytest.raises(BadRequest, match="tool_choice is 'other'"):
            offered("other")

    @pytest.mark.parametrize(
        ("choice", "allowed"), [("auto", ["answer", "a"]), ("required", ["a"]), ("a", ["a"]), ("none", None)]
    )
    def test_the_schema_allows_what_the_choice_allows(self, choice: str, allowed: list[str] | None) -> None:
        tool = ToolSpec(name="a", description="", parameters={})
        request = Request(messages=(user("?"),), tools=(tool,), tool_choice=choice)
        grammar = protocol.constraint(request, protocol.offered_tools(request), MODEL).get("grammar")
        if allowed is None:
            assert grammar is None
        else:
            schema = json.loads(grammar.partition("%json ")[2])
            assert [option["properties"]["tool"]["const"] for option in schema["anyOf"]] == allowed

    def test_a_tool_called_answer_keeps_its_name(self) -> None:
        tool = ToolSpec(name="answer", description="", parameters={})
        request = Request(messages=(user("?"),), tools=(tool,))
        assert read('{"tool": "answer", "arguments": {}}', tools=(tool,))[2][0].name == "answer"
        assert read('{"tool": "reply", "text": "Hi"}', tools=(tool,))[:2] == ("Hi", "Hi")
        assert '"reply"' in protocol.constraint(request, (tool,), MODEL)["grammar"]


class TestReply:
    @pytest.mark.parametrize("pieces", [1, 2, 5, 1000])
    def test_an_answer_streams(self, pieces: int) -> None:
        visible, text, calls = read('{"tool": "answer", "text": "A \\"b\\"\\n\\u00e9 \\ud83d\\ude00"}', pieces)
        assert visible == text == 'A "b"\né 😀'
        assert calls == ()

    def test_several_calls_count_on_from_the_history(self) -> None:
        raw = (
            '{"tool": "weather.now", "arguments": {"city": "{\\"tool\\": \\"x\\", \\"arguments\\": "}, "more": '
            '[{"tool": "lookup_documents", "arguments": {"query": "q"}}]}'
        )
        before = (user("?"), called(ToolCall(id="call_1", name="a"), ToolCall(id="call_2", name="b")))
        visible, text, calls = read(raw, messages=before)
        assert (visible, text) == ("", "")
        assert [(call.id, call.name) for call in calls] == [("call_3", "weather.now"), ("call_4", "lookup_documents")]
        assert calls[0].arguments == {"city": '{"tool": "x", "arguments": '}

    def test_truncated_replies_are_read_as_far_as_they_go(self) -> None:
        assert read('{"tool": "answer", "text": "Three mon\\')[1] == "Three mon"
        assert read('{"tool": "answ')[1:] == ("", (ToolCall(id="call_1", name="answ", malformed='{"tool": "answ'),))
        assert read('{"to')[2] == (ToolCall(id="call_1", name="", malformed='{"to'),)
        assert read("")[1:] == ("", ())
        (truncated,) = read('{"tool": "weather.now", "arguments": {"city": "Os')[2]
        assert truncated == ToolCall(id="call_1", name="weather.now", malformed='{"city": "Os')
        whole, truncated = read('{"tool": "weather.now", "arguments": {"city": "Oslo"}, "more": [{"tool": "weat')[2]
        assert whole.arguments == {"city": "Oslo"}
        assert (truncated.id, truncated.name, truncated.malformed) == ("call_2", "weat", '{"tool": "weat')

    @given(st.integers(min_value=0, max_value=200))
    def test_no_truncation_raises(self, length: int) -> None:
        raw = (
            '{"tool": "weather.now", "arguments": {"city": "\\ud83d\\ude00"}, "more": [{"tool": "x", "arguments": {}}]}'
        )
        read(raw[:length])
        read('{"tool": "answer", "text": "\\ud83d\\ude00 and more"}'[:length])

    def test_structured_output_with_tools(self) -> None:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        text = read('{"tool": "answer", "text": {"n": 3}}', output_schema=schema)[1]
        assert json.loads(text) == {"n": 3}

    @given(st.text(st.characters(), max_size=30), st.booleans(), st.data())
    def test_a_streamed_answer_agrees_with_json_over_any_chunking(self, text: str, ascii_only: bool, data: Any) -> None:
        """Half surrogate pairs, which `st.characters()` includes, come out as U+FFFD."""
        inside = json.dumps(text, ensure_ascii=ascii_only)[1:] + ', "more": 1}'
        cuts = sorted(data.draw(st.lists(st.integers(0, len(inside)), max_size=8)))
        reader = ReplyReader(Request(messages=(), tools=(LOOKUP,)), (LOOKUP,))
        reader.feed('{"tool": "answer", "text": "')
        pieces = [inside[a:b] for a, b in zip([0, *cuts], [*cuts, len(inside)], strict=True)]
        existing = "".join(reader.feed(piece) for piece in pieces)
        expected = json.loads(json.dumps(text)).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if ascii_only:
            assert existing == reader.finish()[0] == expected
        else:
            assert existing.encode("utf-16", "surrogatepass").decode("utf-16", "replace") == expected


@pytest.mark.parametrize(
    ("wired", "expected"),
    [
        (["system", "user", "assistant"], [("user", "0\n\n1"), ("assistant", "2")]),
        (["system", "assistant"], [("user", "0"), ("assistant", "1")]),
        (["user", "assistant"], [("user", "0"), ("assistant", "1")]),
        (["system"], [("user", "0")]),
    ],
)
def test_a_template_without_a_system_role_gets_its_text_in_the_first_user_message(wired, expected):
    messages = [{"role": role, "content": str(number)} for number, role in enumerate(wired)]
    assert [(m["role"], m["content"]) for m in protocol.without_system_role(messages)] == expected
