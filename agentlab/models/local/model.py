"""Provider `local`: small language models run by llama.cpp, without key and without a server to start.

    model = connect("qwen2.5-coder-0.5b")
    completion = await model.complete(Request(messages=(Message(role="user", text="Hello!"),)), emit=print)
    await model.close()

The first call downloads the weights and starts `server` as a child process that ends with this one. One request runs
at a time. `local/PATH.gguf` runs a file, `local/hf:OWNER/REPO/FILE.gguf` one of a model hub. With
`AGENTLAB_LOCAL_MODEL=/path/to.gguf` every name runs that file. `tool_protocol` offers the tools and reads the calls;
`trial` finds out what a file can do. At temperature 0 the same request gets the same reply.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import logging
import os
import secrets
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from msgspec.structs import replace

from agentlab.core import errors
from agentlab.core.messages import Completion, FinishReason, Message, Request
from agentlab.models import hub_files, weights
from agentlab.models.chat_reading import ChatReader
from agentlab.models.chat_writing import write_messages, write_tools
from agentlab.models.local import server as llama_server
from agentlab.models.local import tool_protocol as protocol
from agentlab.models.local.trial import MEASURED, Trial, file_id, load_or_run, read_template
from agentlab.models.provider import Provider, wired_tools
from agentlab.models.refusals import read_refusal, read_server_error

if TYPE_CHECKING:
    from agentlab.core.protocols import Emit

log = logging.getLogger(__name__)
MAX_CHARS_PER_TOKEN = 16
"""No tokenizer packs more into a token, so a longer text overflows the context and need not be tokenized."""
CONNECT_SECONDS = 10
SILENCE_SECONDS = 900
"""The server sends nothing while it reads a prompt, which takes minutes on a busy machine."""
EXIT_SECONDS = 5


def connect(name: str, *, context: int = 8192, prompt_cache: int | None = None) -> LocalModel:
    """Return the embedded model `name`, a name of the catalogue or a GGUF file; the first call loads it.

    `context` is in tokens, prompt and reply together. `prompt_cache` is in MiB and defaults to `AGENTLAB_PROMPT_CACHE`,
    else to 0. A cache saves reading the same prompt prefix again, but replies may then depend, by rounding, on earlier
    requests. Raises ConfigError.
    """
    prompt_cache = _prompt_cache() if prompt_cache is None else prompt_cache
    if (path := _own_file(name)) is not None:
        if not path.is_file():
            given = f"AGENTLAB_LOCAL_MODEL={path}" if os.environ.get("AGENTLAB_LOCAL_MODEL") else f"local/{name}"
            raise errors.ConfigError(f"{given} is not a file; give the path of a GGUF file")
        return LocalModel(path.stem, lambda: path, context, prompt_cache, trial=None)
    if (file := hub_files.parse(name)) is not None:
        return LocalModel(file.name, lambda: hub_files.fetch(file), context, prompt_cache, trial=None)
    entry = weights.entry(name)
    if entry.kind != "chat":
        raise errors.ConfigError(f"local/{name} is not a chat model; known: {', '.join(weights.names('chat'))}")
    only = entry.files[0].name
    return LocalModel(name, lambda: weights.fetch(name)[only], context, prompt_cache)


def _own_file(name: str) -> Path | None:
    """Return the GGUF file of the user that `name` runs; None for a name of the catalogue or of a hub."""
    if own := os.environ.get("AGENTLAB_LOCAL_MODEL"):
        return Path(own).expanduser()
    is_path = name.lower().endswith(".gguf") and not name.startswith(hub_files.PREFIX)
    return Path(name).expanduser() if is_path else None


def _prompt_cache() -> int:
    given = os.environ.get("AGENTLAB_PROMPT_CACHE", "0")
    if not given.isdecimal():
        raise errors.ConfigError(
            f"AGENTLAB_PROMPT_CACHE={given} is not a number of MiB; give one, such as 1000, or unset it"
        )
    return int(given)


def identity(name: str) -> tuple[str, str]:
    """Return the full name of the model, and the edition of the texts and schemas that offer tools to it.

    Raises ConfigError for a file of a hub whose hash is unknown.
    """
    edition = f"llama.cpp, tools {protocol.EDITION}"
    if (path := _own_file(name)) is not None:
        with contextlib.suppress(OSError):
            edition += f", file {file_id(path)}"
        return f"local/{path.stem}", edition
    if (file := hub_files.parse(name)) is not None:
        return f"local/{file.name}", f"{edition}, file {hub_files.digest(file)}"
    return f"local/{name}", edition


def seconds_per_call(name: str) -> float | None:
    """Return the rough seconds of a call on two cores: 700 tokens of prompt and 40 of reply, no cache."""
    return {"qwen2.5-coder-0.5b": 5.5, "qwen2.5-coder-1.5b": 11.0}.get(name)


@dataclass(frozen=True)
class Exchange:
    """One call: its body, and what was read of the reply so far."""

    body: dict[str, Any]
    request: Request
    chat: ChatReader
    own_form: protocol.ReplyReader | None = None
    """Reader of a text with tool calls in our form; None for plain text and for calls in the form of the template."""


class LocalModel(Provider[Exchange, Exchange]):
    """A chat model in a child process; each start of the child calls `weights_file` in a thread."""

    parallel = 1

    def __init__(
        self,
        name: str,
        weights_file: Callable[[], Path],
        context: int = 8192,
        prompt_cache: int = 0,
        *,
        trial: Trial | None = MEASURED,
    ) -> None:
        self.name = f"local/{name}"
        self._model = name
        self._weights_file = weights_file
        self._context = context
        self._key = secrets.token_hex(16)
        cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
        self._settings = {"context": context, "threads": cores, "prompt_cache": prompt_cache, "key": self._key}
        self._starting = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._log: IO[bytes] | None = None
        self._port = 0
        self._trial = trial
        """Abilities of the model; None until the trial of an unknown file."""

    @property
    def pid(self) -> int | None:
        """Return the process id of the child, None if it is not running."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    async def start(self) -> None:
        """Download the weights and start the child if it is not running. Raises WeightsError or ConfigError."""
        async with self._starting:
            if self.pid is None:
                await self.close()
                path = await asyncio.to_thread(self._launch)
                if self._trial is None:
                    self._trial = read_template(self.name, await self._properties())
                    try:
                        self._trial = await load_or_run(path, self._trial, self._try)
                    except BaseException:
                        self._trial = None  # the next start tries it again
                        await self.close()
                        raise
                    log.info("%s: %s", self.name, self._trial)

    async def _try(self, request: Request, in_template_form: bool) -> Completion:
        wired = self._in_template_form(request) if in_template_form else self.translate(request)
        return self.parse(await self._stream(wired, lambda text: None), request)

    def translate(self, request: Request) -> Exchange:
        """Build the body of the request, with tools in our form. Raises ContextOverflow and BadRequest."""
        offered = protocol.offered_tools(request)
        messages = protocol.render(request, offered, self.format_tool_result)
        own_form = protocol.ReplyReader(request, offered) if offered else None
        return self._exchange(request, messages, protocol.constraint(request, offered, self._model), own_form)

    def _in_template_form(self, request: Request) -> Exchange:
        """Build the body of the request, with tools, calls and results as the chat template of the file has them."""
        names = wired_tools(request)
        messages = write_messages(request.messages, names)
        for row in messages:
            row["content"] = protocol.escape_control_tokens(row["content"] or "")
        # llama.cpp knows no choice of one tool, so the others are not offered.
        choice = "auto" if request.tool_choice == "auto" else "required"
        offered = replace(request, tools=protocol.offered_tools(request), tool_choice=choice)
        return self._exchange(request, messages, write_tools(offered, names), None)

    def _exchange(self, request: Request, messages: Any, tools: Any, own_form: protocol.ReplyReader | None) -> Exchange:
        length = sum(len(message["content"]) for message in messages)
        if length > self._context * MAX_CHARS_PER_TOKEN:
            raise errors.ContextOverflow(f"{length} characters do not fit in {self._context} tokens", self.name)
        settings = {"temperature": request.temperature, "seed": request.seed, "max_tokens": request.max_tokens}
        given = {name: value for name, value in settings.items() if value is not None}
        body = {"messages": messages, "stream": True, "stream_options": {"include_usage": True}, **given, **tools}
        chat = ChatReader(self._model, lambda error: read_server_error(error, self.name))
        return Exchange(body, request, chat, own_form)

    async def call(self, wired: Exchange, emit: Emit) -> Exchange:
        """Stream the reply, after restarting the child if it died; also raises the errors of `start`."""
        await self.start()
        assert self._trial is not None, "an unknown file is tried at its start"
        if wired.own_form is not None and not self._trial.calls_tools:
            raise errors.BadRequest("its trial found that it calls no tools; use a flow without tools", self.name)
        # Only our form combines tools with a schema of the reply.
        if wired.own_form is not None and self._trial.prefers_template_form and wired.request.output_schema is None:
            wired = self._in_template_form(wired.request)
        return await self._stream(wired, emit)

    async def _stream(self, wired: Exchange, emit: Emit) -> Exchange:
        if self._trial is not None and not self._trial.system_role:
            wired.body["messages"] = protocol.without_system_role(wired.body["messages"])
        async with contextlib.aclosing(self._pieces("POST", "/v1/chat/completions", wired.body)) as pieces:
            piece = b" "
            while piece and not wired.chat.is_done:
                piece = await anext(pieces, b"")
                text = wired.chat.feed(piece)
                if visible := wired.own_form.feed(text) if wired.own_form else text:
                    emit(visible)
        return wired

    def parse(self, raw: Exchange, request: Request) -> Completion:
        completion = raw.chat.completion({wired: name for name, wired in wired_tools(request).items()})
        completion = replace(completion, model=self._model)
        if raw.own_form is None:
            return completion
        text, calls = raw.own_form.finish()
        reason: FinishReason = "length" if completion.finish_reason == "length" else "tool_calls" if calls else "stop"
        message = Message(role="agent", text=text, tool_calls=calls)
        return replace(completion, message=message, finish_reason=reason, stopped="", thought="")

    def format_tool_result(self, call_id: str, name: str, result: str) -> str:
        return protocol.RESULT.format(call=name, text=result)

    async def close(self) -> None:
        """End the child and wait for it; the next call starts a new one."""
        process, self._process = self._process, None
        if process is not None:
            await asyncio.to_thread(_end, process)
        if self._log is not None:
            self._log.close()
            self._log = None

    async def _pieces(self, method: str, path: str, body: dict[str, Any] | None = None) -> AsyncGenerator[bytes, None]:
        """Yield the pieces of the server's response."""
        import aiohttp

        patience = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS)
        headers = {"Authorization": f"Bearer {self._key}"}
        try:
            # A session belongs to one event loop, so each call opens its own; that costs little next to the model.
            async with (
                aiohttp.ClientSession(f"http://127.0.0.1:{self._port}", timeout=patience, headers=headers) as session,
                session.request(method, path, json=body) as response,
            ):
                if response.status != 200:
                    raise read_refusal(response.status, {}, await response.text(errors="replace"), self.name)
                async for piece in response.content.iter_any():
                    yield piece
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise errors.Unreachable(f"lost the model server: {error or type(error).__name__}", self.name) from error

    async def _properties(self) -> dict[str, Any]:
        """Return llama.cpp's description of the loaded file; {} if it gives none."""
        with contextlib.suppress(errors.ModelError, ValueError):
            return dict(json.loads(b"".join([piece async for piece in self._pieces("GET", "/props")])))
        return {}

    def _launch(self) -> Path:
        if importlib.util.find_spec("xllamacpp") is None:
            raise errors.ConfigError(
                "embedded models need the package xllamacpp, which is not installed: pip install xllamacpp"
            )
        path = self._weights_file()
        # Appending lets parent and child share the file; it is deleted when both have closed it.
        self._log = tempfile.TemporaryFile("a+b")  # noqa: SIM115 - closed by `close`
        self._process = process = subprocess.Popen(  # noqa: S603 - our own interpreter, our own file
            # The child runs the file with -P, so that it imports neither this package nor a file next to it.
            [sys.executable, "-P", llama_server.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,  # Ctrl-C is for the parent, which may want to finish the turn
        )
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # the child ended at once; its log has the reason
            process.stdin.write(json.dumps({"model": str(path), **self._settings}).encode() + b"\n")
            process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            _end(process)
            self._log.seek(0)
            complaints = self._log.read().decode(errors="replace").split("\n")
            last = next((line for line in reversed(complaints) if line.strip()), "it ended without an error message")
            raise errors.WeightsError(f"{self.name}: llama.cpp cannot run {path}: {last.strip()[:300]}")
        self._port = int(line)
        return path


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the standard input of the child, which makes it exit; kill it after EXIT_SECONDS."""
    try:
        process.communicate(timeout=EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
