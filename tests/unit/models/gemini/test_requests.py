"""Requests that the Gemini adapter sends: every field, with turns in the order of the API."""

from __future__ import annotations

import pytest

from agentlab.core.messages import Message, ToolCall
from support.fake_gemini import response_of
from support.gemini import CLOCK, SEARCH, USER, agent, ask, result, search, sent, system

# The SDK derives a class from aiohttp's session, of which aiohttp disapproves.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")


async def test_everything_of_a_request_reaches_the_server():
    body = await sent(
        system("S"),
        Message(role="user", text="U"),
        agent("Let me look.", search("c1", arguments={"q": "x"}), ToolCall(id="c2", name="2nd clock")),
        result("c1", "R"),
        result("c2", "Error: no clock", None),
        tools=(SEARCH, CLOCK),
        tool_choice="docs.search",
        output_schema={"type": "object", "$defs": {}},
        temperature=0.0,
        seed=3,
        max_tokens=9,
    )
    assert body["systemInstruction"]["parts"] == [{"text": "S"}]
    assert body["contents"] == [
        {"role": "user", "parts": [{"text": "U"}]},
        {
            "role": "model",
            "parts": [
                {"text": "Let me look."},
                {"functionCall": {"name": "docs_search", "args": {"q": "x"}}},
                {"functionCall": {"name": "_2nd_clock", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "docs_search", "response": {"result": "R"}}},
                {"functionResponse": {"name": "_2nd_clock", "response": {"error": "Error: no clock"}}},
            ],
        },
    ]
    assert [tool["name"] for tool in body["tools"][0]["functionDeclarations"]] == ["docs_search", "_2nd_clock"]
    assert body["tools"][0]["functionDeclarations"][0]["parameters_json_schema"] == SEARCH.parameters
    calling = {"mode": "ANY", "allowedFunctionNames": ["docs_search"]}
    assert body["toolConfig"] == {"functionCallingConfig": calling}
    assert body["generationConfig"] == {
        "temperature": 0.0,
        "seed": 3,
        "maxOutputTokens": 9,
        "responseMimeType": "application/json",
        "responseJsonSchema": {"type": "object", "$defs": {}},
    }


async def test_unset_request_fields_are_left_to_the_server():
    assert set(await sent(USER)) <= {"contents", "generationConfig"}
    assert not (await sent(USER)).get("generationConfig")


@pytest.mark.parametrize("choice, mode", [("auto", "AUTO"), ("none", "NONE"), ("required", "ANY")])
async def test_tools_are_declared_whatever_the_choice(choice, mode):
    body = await sent(USER, tools=(SEARCH,), tool_choice=choice)
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": mode}}
    assert body["tools"][0]["functionDeclarations"][0]["name"] == "docs_search"


async def test_system_messages_after_the_head_keep_their_place():
    body = await sent(system("A"), system("B"), USER, agent("Hi"), system("C"), Message(role="user", text="D"))
    assert body["systemInstruction"]["parts"] == [{"text": "A"}, {"text": "B"}]
    assert body["contents"][2] == {"role": "user", "parts": [{"text": "C"}, {"text": "D"}]}


@pytest.mark.parametrize(
    "messages", [(system("S"),), (agent("Welcome."), USER), (agent("", search("c")), result("c", ""))]
)
async def test_a_conversation_that_the_user_did_not_open_is_opened(messages):
    body = await sent(*messages)
    assert body["contents"][0] == {"role": "user", "parts": [{"text": "Begin."}]}


async def test_messages_of_one_side_become_one_turn_and_empty_ones_none():
    body = await sent(USER, agent(""), Message(role="user", text="Still there?"), agent("Yes."), agent("I am."), USER)
    turns = [(content["role"], [part["text"] for part in content["parts"]]) for content in body["contents"]]
    assert turns == [("user", ["Hello", "Still there?"]), ("model", ["Yes.", "I am."]), ("user", ["Hello"])]


async def test_results_keep_the_order_of_calls_before_the_user_text():
    late = (USER, result("b", "B"), result("a", "A"))
    body = await sent(USER, agent("", search("a"), search("b")), *late)
    *results, words = body["contents"][2]["parts"]
    assert [part["functionResponse"]["response"]["result"] for part in results] == ["A", "B"]
    assert words == {"text": "Hello"}


async def test_a_call_id_used_twice_means_the_call_just_made():
    clock = ToolCall(id="call_0", name="2nd clock")
    body = await sent(USER, agent("", search("call_0")), result("call_0", "A"), agent("", clock), result("call_0", "B"))
    assert body["contents"][4]["parts"][0]["functionResponse"]["name"] == "_2nd_clock"


async def test_a_malformed_call_is_sent_as_what_it_was():
    broken = ToolCall(id="c", name="docs.search", malformed="{broken")
    body = await sent(USER, agent("", broken), result("c", "Error: not JSON"))
    made = {"name": "docs_search", "args": {"malformed": "{broken"}}
    assert body["contents"][1]["parts"] == [{"functionCall": made}]


async def test_ids_go_back_only_where_the_api_gave_them():
    response = response_of(
        {"functionCall": {"name": "docs_search", "id": "given"}}, {"functionCall": {"name": "docs_search"}}
    )
    completion, _, _ = await ask(response, tools=(SEARCH,))
    first, second = completion.message.tool_calls
    body = await sent(USER, completion.message, result(first.id, "A"), result(second.id, "B"))
    parts = [part["functionResponse"] for part in body["contents"][2]["parts"]]
    assert [part.get("id") for part in parts] == ["given", None]
    assert [part["functionCall"].get("id") for part in body["contents"][1]["parts"]] == ["given", None]


async def test_a_message_that_was_changed_loses_the_signatures_of_its_text_only():
    response = response_of(
        {"text": "Hi"}, {"text": "", "thoughtSignature": "dA=="}, {"functionCall": {"name": "docs_search"}}
    )
    completion, _, _ = await ask(response, tools=(SEARCH,))
    stored = completion.message
    assert stored.extra == {"gemini": {"parts": [{"text": "Hi"}, {"text": "", "thought_signature": "dA=="}, "call"]}}
    changed = agent("Hello", *stored.tool_calls, extra=stored.extra)
    body = await sent(USER, changed, result("call_1", "R"))
    assert body["contents"][1]["parts"] == [{"text": "Hello"}, {"functionCall": {"name": "docs_search", "args": {}}}]
    assert len((await sent(USER, agent("", extra=stored.extra), USER))["contents"]) == 1
