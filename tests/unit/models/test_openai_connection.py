"""Connection to a server: environment, headers, proxies, reuse of connections, events."""

from __future__ import annotations

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from agentlab.core.errors import ConfigError, ModelError
from agentlab.core.messages import Message, Request
from agentlab.models import azure
from agentlab.models.openai import connect
from agentlab.models.sse import SseParser
from support.fake_openai import serving, text

HELLO = Request(messages=(Message(role="user", text="Hello"),))


async def ask(base_url: str, times: int = 1) -> list[str]:
    model = connect("m", base_url=base_url, api_key="key-of-a-test")
    try:
        return [(await model.complete(HELLO, lambda piece: None)).text for _ in range(times)]
    finally:
        await model.close()


async def test_organisation_project_and_own_headers_are_sent(monkeypatch):
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-2")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Team: red\n\nnonsense\nX-Way: a:b")
    async with serving(lambda body: text("Hi")) as fake:
        await ask(fake.base_url)
    sent = fake.headers[0]
    assert (sent["OpenAI-Organization"], sent["OpenAI-Project"]) == ("org-1", "proj-2")
    assert (sent["X-Team"], sent["X-Way"]) == ("red", "a:b")
    assert (sent["Authorization"], sent["Accept-Encoding"]) == ("Bearer key-of-a-test", "identity")


async def test_a_deployment_on_azure_is_asked_by_its_address_version_and_key(monkeypatch):
    with pytest.raises(ConfigError, match="AZURE_OPENAI_ENDPOINT and OPENAI_API_VERSION and AZURE_OPENAI_API_KEY"):
        azure.connect("our-gpt")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "key-of-the-resource")
    monkeypatch.setenv("OPENAI_API_VERSION", "2026-01-01")
    async with serving(lambda body: text("Hi")) as fake:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", fake.base_url.removesuffix("/v1"))
        for name, header in (("", "api-key"), ("AZURE_OPENAI_AD_TOKEN", "Authorization")):
            if name:
                monkeypatch.setenv(name, "token-of-the-directory")
            model = azure.connect("our-gpt")
            assert (model.name, (await model.complete(HELLO, lambda piece: None)).text) == ("azure/our-gpt", "Hi")
            await model.close()
            assert fake.urls[-1] == "/openai/deployments/our-gpt/chat/completions?api-version=2026-01-01"
            sent = "Bearer token-of-the-directory" if name else "key-of-the-resource"
            assert fake.headers[-1][header] == sent


async def test_a_slash_at_the_end_of_the_address_and_a_query_do_no_harm():
    async with serving(lambda body: text("Hi")) as fake:
        assert await ask(f"{fake.base_url}/") == ["Hi"]
        assert await ask(f"{fake.base_url}?api-version=1") == ["Hi"]


async def test_calls_use_the_proxy_of_the_environment(monkeypatch):
    requests: list[str] = []

    async def relay(request: web.Request) -> web.Response:
        requests.append(str(request.url))
        choice = '{"choices": [{"delta": {"content": "by proxy"}, "finish_reason": "stop"}]}'
        return web.Response(text=f"data: {choice}\n\ndata: [DONE]\n\n", content_type="text/event-stream")

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        return await relay(request)

    runner = web.ServerRunner(web.Server(handler))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{runner.addresses[0][1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        assert await ask("http://model.invalid/v1") == ["by proxy"]
        assert requests == ["http://model.invalid/v1/chat/completions"]
        async with serving(lambda body: text("directly")) as fake:
            monkeypatch.setenv("no_proxy", "127.0.0.1")
            assert await ask(fake.base_url) == ["directly"]
    finally:
        await runner.cleanup()


async def test_a_connection_is_used_again():
    ports: set[int] = set()

    async def answer(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        ports.add(request.transport.get_extra_info("peername")[1])
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b'data: {"choices": [{"delta": {"content": "Hi"}, "finish_reason": "stop"}]}\n\n')
        # The end of the body comes in a packet of its own.
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        assert await ask(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", times=3) == ["Hi"] * 3
    finally:
        await runner.cleanup()
    assert len(ports) == 1


async def test_a_server_that_sends_in_circles_is_left():
    async def circle(request: web.Request) -> web.Response:
        return web.Response(status=307, headers={"Location": str(request.url)})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", circle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        with pytest.raises(ModelError, match="redirects"):
            await ask(f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
    finally:
        await runner.cleanup()


EVENTS = st.lists(st.binary(min_size=1, max_size=12).map(lambda data: data.hex().encode()), max_size=6)


@given(
    EVENTS,
    st.sampled_from([b"\n", b"\r\n"]),
    st.sampled_from([b"", b": comment%bevent: x%b"]),
    st.lists(st.integers(1, 9), max_size=40),
    st.booleans(),
)
def test_events_are_the_same_however_the_packets_are_cut(data, line_end, before, sizes, ends_in_the_middle):
    sent = b"".join(before.replace(b"%b", line_end) + b"data: " + d + line_end * 2 for d in data)
    if ends_in_the_middle:
        sent += b"data: last"
    reader, result = SseParser(), list[bytes]()
    for size in sizes:
        piece, sent = sent[:size], sent[size:]
        result += reader.feed(piece) if piece else []
    result += (reader.feed(sent) if sent else []) + reader.feed(b"")
    assert result == data + ([b"last"] if ends_in_the_middle else [])


def test_data_after_the_end_is_ignored():
    reader = SseParser()
    assert reader.feed(b"data: 1\n\ndata: [DONE]\n\ndata: 2\n\n") == [b"1"]
    assert reader.is_done
