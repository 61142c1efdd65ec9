"""The way to a server that speaks OpenAI's protocols, as chat models and embedders both take it.

    connection = Connection("http://127.0.0.1:8000/v1", keys, timeout=120)
    row = await connection.ask("openai/e", "embeddings", {"model": "e", "input": ["offside"]}, read)

No SDK stands between: the official one costs more than all the rest of a run, its own `post` four times what aiohttp
does. Here a request is a body that is ready, and an answer the bytes of the server, read by whoever knows what they
mean. What users of the SDK rely on stays: `OPENAI_BASE_URL`, `OPENAI_ORG_ID`, `OPENAI_PROJECT_ID`,
`OPENAI_CUSTOM_HEADERS`, proxies and certificates of the environment. Nothing is tried twice here: the queue before
every model and embedder asks again, with the next of several keys, what may go through later.
"""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from agentlab.core.errors import ContextOverflow, ModelError, Refused, ServerFault, Unreachable
from agentlab.core.strict_json import dump_json
from agentlab.core.version import __version__
from agentlab.models.bounded_http import BoundedBody, BoundedClient
from agentlab.models.keys import KeyRing
from agentlab.models.provider import http_status_error
from agentlab.wire.limits import CURRENT, as_number

if TYPE_CHECKING:
    from yarl import URL

Answered = TypeVar("Answered")
OPENAI = "https://api.openai.com/v1"
SILENCE_SECONDS = 120.0
MAX_ERROR_BYTES = 65_536
"""Bytes of a refusal that are read."""
_BROKEN = {
    "ClientPayloadError": "the answer has no end",
    "ServerDisconnectedError": "the server hung up",
    "ClientOSError": "the server hung up",
}
_NO_HTTP = "what came is no answer in HTTP"
_OVERFLOW = ("context_length_exceeded", "exceed_context_size", "maximum context length", "context size")
_OWN_HEADERS = {"OPENAI_ORG_ID": "OpenAI-Organization", "OPENAI_PROJECT_ID": "OpenAI-Project"}


class Connection:
    """One server and its keys; `base_url` is None for OpenAI's own, `timeout` is in seconds, for any silence.

    How long a whole answer may take is up to whoever asks.
    """

    def __init__(self, base_url: str | None, keys: KeyRing, timeout: float) -> None:
        self.base_url = base_url
        self.keys = keys
        self.timeout = timeout
        self._client: BoundedClient | None = None
        self._addresses: dict[str, URL] = {}

    async def ask(
        self, model: str, path: str, body: Mapping[str, Any], read: Callable[[BoundedBody], Awaitable[Answered]]
    ) -> Answered:
        """What `read` makes of the server's answer to the next key; what goes wrong there is a ModelError of `model`.

        Raises what `read` raises over an answer that cannot be read, too.
        """
        import aiohttp

        client, ticket = self.open(), CURRENT.get()
        key = self.keys.next_key(ticket.remaining_share if ticket else None)
        if ticket is not None:
            ticket.mark_sent(key)
        try:
            response = await client.post(self._address(path), dump_json(body), {"Authorization": f"Bearer {key}"})
            try:
                if ticket is not None:
                    ticket.observe_headers(response.headers)
                answer = BoundedBody(response)
                if response.status < 400:
                    answered = await read(answer)
                    await answer.linger()
                    return answered
                told = await answer.read_all(MAX_ERROR_BYTES)
                error = self._refusal(response.status, response.headers, told, model)
            finally:
                response.release()
        except aiohttp.ConnectionTimeoutError:
            error = Unreachable("cannot reach the server in time", model)
        except TimeoutError:
            error = Unreachable("no answer in time", model)
        except aiohttp.ClientConnectorError as problem:
            error = Unreachable(f"cannot reach the server: {self.keys.redact(str(problem))}", model)
        except aiohttp.ClientError as problem:
            error = Unreachable(f"the connection broke: {_BROKEN.get(type(problem).__name__, _NO_HTTP)}", model)
        except ModelError as problem:
            error = problem if problem.model else type(problem)(self.keys.redact(str(problem)), model)
        # Out here it has neither cause nor context: servers quote the key they refuse, and a log would print it.
        raise self.keys.report_failure(key, error)

    def open(self) -> BoundedClient:
        """The client, made when it is first needed; it belongs to the event loop that runs."""
        if self._client is None:
            headers = {"Content-Type": "application/json", "User-Agent": f"agentlab/{__version__}"}
            headers |= {name: os.environ[var] for var, name in _OWN_HEADERS.items() if os.environ.get(var)}
            for line in os.environ.get("OPENAI_CUSTOM_HEADERS", "").splitlines():
                name, colon, value = line.partition(":")
                headers |= {name.strip(): value.strip()} if colon and name.strip() else {}
            self._client = BoundedClient(self.base_url or OPENAI, min(self.timeout, SILENCE_SECONDS), headers)
        return self._client

    def _address(self, path: str) -> URL:
        if path not in self._addresses:
            from yarl import URL

            base = URL(self.base_url or OPENAI)
            # What stands behind a question mark belongs there still: some gateways want their version so.
            self._addresses[path] = base.with_path(f"{base.path.rstrip('/')}/{path}").with_query(base.query)
        return self._addresses[path]

    def _refusal(self, status: int, headers: Mapping[str, str], content: bytes, model: str) -> ModelError:
        """Our error for an answer with an HTTP status from 400 on."""
        text = content.decode("utf-8", "replace")
        told, code = parse_error(text)
        said = self.keys.redact(told)
        if status == 429 and code == "insufficient_quota":
            return Refused(said, model)
        if status in (400, 413) and any(mark in text for mark in _OVERFLOW):
            return ContextOverflow(said, model)
        return http_status_error(status, said, model, as_number(headers.get("retry-after")))

    def stream_error(self, told: Any, model: str) -> ModelError:
        """Our error for one that a server told in the middle of an answer."""
        said = told.get("message") if isinstance(told, dict) else told
        return ServerFault(self.keys.redact(str(said or "the server gave up in the middle of an answer")), model)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None


def parse_error(text: str) -> tuple[str, Any]:
    """Message and code of an error as servers write it: `{"error": {"message", "code"}}`, its inside, or any text."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return text, None
    said = said[0] if isinstance(said, list) and said else said
    error = said.get("error", said) if isinstance(said, dict) else said
    if not isinstance(error, dict):
        return str(error), None
    return str(error.get("message") or error.get("detail") or text), error.get("code")


class SseParser:
    """Reads server-sent events out of the pieces of a body; of their fields only the data means something here."""

    def __init__(self) -> None:
        self.is_done = False
        """True once `[DONE]` was read."""
        self._unfinished: list[bytes] = []
        self._data: bytes | None = None

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of the events that `piece` brings to their end; b"" says that nothing comes any more."""
        if piece[:5] == b"data:" and piece[-2:] == b"\n\n" and self._data is None and not any(self._unfinished):
            # Whole events of one line each, as nearly all pieces are.
            events = piece[5:-2].split(b"\n\ndata:")
            if piece.count(b"\n") == 2 * len(events):
                return self._until_done([event.strip() for event in events])
        if piece and b"\n" not in piece:
            # Put together once the line is whole: a server may take as many pieces over one as it likes.
            self._unfinished.append(piece)
            return []
        self._unfinished.append(piece or b"\n\n")
        *lines, rest = b"".join(self._unfinished).split(b"\n")
        self._unfinished = [rest]
        found = []
        for line in lines:
            if line[:5] == b"data:":
                told = line[5:].strip()
                self._data = told if self._data is None else b"%b\n%b" % (self._data, told)
            elif self._data is not None and line in (b"", b"\r"):
                found.append(self._data)
                self._data = None
        return self._until_done(found)

    def _until_done(self, events: list[bytes]) -> list[bytes]:
        if b"[DONE]" in events:
            self.is_done = True
            return events[: events.index(b"[DONE]")]
        return events
