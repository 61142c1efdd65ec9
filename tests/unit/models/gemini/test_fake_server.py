"""The server that stands in for Gemini is as strict as the real one."""

from __future__ import annotations

import pytest
from aiohttp import ClientSession

from support.fake_gemini import Refusal, check, chunk, serving

# The SDK derives a class from aiohttp's session, of which aiohttp disapproves.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")


@pytest.mark.parametrize(
    "contents",
    [
        [],
        [{"role": "assistant", "parts": [{"text": "Hi"}]}],
        [{"role": "user", "parts": []}],
        [{"role": "user", "parts": [{"text": ""}]}],
        [{"role": "user", "parts": [{"text": "a"}]}, {"role": "user", "parts": [{"text": "b"}]}],
        [{"role": "model", "parts": [{"functionCall": {"name": "f"}}]}],
        [{"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]}],
        [
            {"role": "user", "parts": [{"text": "a"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f"}}, {"functionCall": {"name": "g"}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]},
        ],
        [
            {"role": "user", "parts": [{"text": "a"}]},
            {"role": "model", "parts": [{"functionCall": {"name": "f"}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "g", "response": {}}}]},
        ],
    ],
)
def test_the_server_here_is_as_strict_as_the_real_one(contents):
    with pytest.raises(Refusal):
        check({"contents": contents})


def test_the_server_here_refuses_what_it_does_not_know():
    with pytest.raises(Refusal, match="Unknown name"):
        check({"contents": [{"role": "user", "parts": [{"text": "a"}]}], "chatSession": 1})


async def test_the_server_here_answers_in_one_piece_as_well():
    async with (
        serving(lambda body: {"chunks": [chunk({"text": "ok"}, finish="STOP")]}) as fake,
        ClientSession() as client,
    ):
        row = {"contents": [{"role": "user", "parts": [{"text": "a"}]}]}
        async with client.post(f"{fake.base_url}/v1beta/models/served:generateContent", json=row) as reply:
            assert (await reply.json())["candidates"][0]["content"]["parts"] == [{"text": "ok"}]
