"""`agentlab chat`: a conversation with a flow in the terminal, and the commands to type into it."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from filelock import FileLock, Timeout

from agentlab.cli.chat_screen import Screen
from agentlab.cli.commands import spec_overrides
from agentlab.cli.echo import echo
from agentlab.cli.interrupts import Interrupts
from agentlab.cli.pinning import pin_hub_files
from agentlab.cli.progress import fetch
from agentlab.core import plugins
from agentlab.core.errors import AgentlabError, ConfigError, os_errors_as
from agentlab.core.escaping import one_line
from agentlab.core.events import shorten
from agentlab.core.trace import format_totals, turn_index
from agentlab.data.conversations import Turn
from agentlab.data.documents import load_documents
from agentlab.evals.store.folder import run_log
from agentlab.lab.chat import Chat
from agentlab.lab.chat_export import HISTORY_FOLDER, RECORDED
from agentlab.lab.lab import Lab, turns_that_miss
from agentlab.lab.receipts import forget, list_facts, remember
from agentlab.models import weights
from agentlab.tools.mcp.browsing import Kind
from agentlab.workbench.spec import Spec

log = logging.getLogger(__name__)


class TerminalChat:
    """One chat at a time, with the last chosen flow and model."""

    def __init__(self, lab: Lab, flow: str, options: dict[str, Any], folder: Path, speaker: tuple[str, str]) -> None:
        self.screen = Screen()
        self._lab = lab
        self._options = options
        self._folder = folder
        self._speaker = speaker
        self._model: str | None = None
        self._interrupts = Interrupts()
        self._questions: SimpleQueue[Any] = SimpleQueue()
        self._chat = self._open_chat(flow)

    def talk(self, read: Callable[[], str]) -> None:
        """Talk until the input ends or the user types /quit."""
        self._read = read
        self.screen.dim(f"{self._chat.variant.label} on {self._chat.variant.model}; /help lists the commands")
        with self._interrupts:
            while True:
                try:
                    text = read().strip()
                except KeyboardInterrupt:
                    self.screen.dim("(Ctrl-D or /quit ends the chat)")
                    continue
                except EOFError:
                    break
                if text.split(maxsplit=1)[:1] == ["/quit"]:
                    break
                self._handle_line(text)
            # Wait for memory writes; Ctrl-C skips them.
            self._interrupts.forget()
            with contextlib.suppress(KeyboardInterrupt), self.screen.live_display(), self._interrupts.interruptible():
                self._lab.loop.run_coroutine(self._chat.close())

    def _handle_line(self, text: str) -> None:
        self._interrupts.forget()
        try:
            if text.startswith("/"):
                with self.screen.live_display(), self._interrupts.interruptible():
                    self._run_command(*text.split(maxsplit=1))
            elif text:
                self._say(text)
        except AgentlabError as problem:
            self.screen.problem(str(problem))
        except KeyboardInterrupt:
            self.screen.interrupted()
        except Exception as failure:
            # A failing flow or an unreachable provider prints a line and does not end the chat.
            log.debug("the turn failed", exc_info=True)
            self.screen.problem(f"{type(failure).__name__}: {failure}")

    def _say(self, text: str) -> None:
        name, speaker_id = self._speaker
        questions = self._questions = SimpleQueue()
        with self.screen.live_display() as live:
            pending = self._chat.submit(text, speaker_id=speaker_id or None, speaker_name=name or None)
            pending.add_done_callback(lambda done: questions.put(None))
            try:
                with self._interrupts.interruptible():
                    while (question := questions.get()) is not None:
                        live.stop()
                        self.screen.dim(question.text)
                        question.reply(self._read_answer())
                        live.start()
                    reply = self._lab.loop.result_of(pending)
            except KeyboardInterrupt:
                # Ctrl-C may come before `result_of` waits for the turn.
                self._lab.loop.cancel_and_wait(pending)
                raise
        turn = max(self._chat.trace.turns(), default=1)
        self.screen.end(reply, format_totals(self._chat.trace, turn))
        with contextlib.suppress(KeyboardInterrupt), self._interrupts.interruptible():
            self.screen.dim(*(shorten(line, 500) for line in self._chat.receipts_sync()))

    def _read_answer(self) -> str | None:
        with contextlib.suppress(EOFError):
            return self._read()
        return None

    def _run_command(self, command: str, argument: str = "") -> None:
        plugins.check_names("command", [command], COMMANDS)
        COMMANDS[command](self, argument.strip())

    def _do_flow(self, name: str) -> None:
        """switch to another flow: /flow tools; alone it lists the flows"""
        if not name:
            self.screen.dim(", ".join(variant.label for variant in self._lab.bench.variants))
            return
        self._switch(name)

    def _do_model(self, name: str) -> None:
        """switch to another model: /model openai/gpt-5-mini; alone it names the current one"""
        if name:
            if (local := name.removeprefix("local/")) in weights.names("chat") and not weights.is_present(local):
                raise ConfigError(f"{name} is not installed; run `agentlab pull {local}`")
            # Fail now if the model is unavailable, and keep the chat as it is.
            self._lab.loop.run_coroutine(self._lab.bench.model(name))
            self._model = name
            self._switch(self._chat.variant.label)
        else:
            self.screen.dim(self._chat.variant.model)

    def _do_memory(self, argument: str) -> None:
        """list stored facts; /memory WORD lists those that contain the word"""
        self.screen.dim(*list_facts(self._chat, argument))

    def _do_remember(self, text: str) -> None:
        """store a fact in memory without the model: /remember TEXT"""
        self.screen.dim(*remember(self._chat, text, self._speaker[0] or self._speaker[1]))

    def _do_forget(self, number: str) -> None:
        """delete a fact by its number in /memory: /forget 2"""
        self.screen.dim(*forget(self._chat, number))

    def _do_speaker(self, speaker: str) -> None:
        """speak as another person: /speaker NAME:ID; alone it names the current one"""
        if speaker:
            self._speaker = _speaker(speaker)
        name, speaker_id = self._speaker
        self.screen.dim(f"you are {name} (ID {speaker_id})" if name else "you have no name; set one: /speaker NAME:ID")

    def _do_canvas(self, argument: str) -> None:
        """show the last canvas again"""
        if self.screen.canvas:
            self.screen.show_canvas()
        else:
            self.screen.dim("no canvas yet; the flow ego writes one")

    def _do_trace(self, argument: str) -> None:
        """show every step of the last turn; /trace all of every turn"""
        turns = self._chat.trace.turns()
        if not turns:
            raise ConfigError("no trace yet: the chat has no turn")
        self.screen.tree(self._chat.trace.steps(None if argument == "all" else max(turns)))

    def _do_resources(self, argument: str) -> None:
        """list resources of MCP servers; /resources SERVER URI reads one"""
        self._browse("resources", argument)

    def _do_prompts(self, argument: str) -> None:
        """list prompts of MCP servers; /prompts SERVER NAME KEY=VALUE reads one"""
        self._browse("prompts", argument)

    def _browse(self, kind: Kind, argument: str) -> None:
        try:
            words = shlex.split(argument)
        except ValueError as problem:
            raise ConfigError(f"{argument}: {problem}") from None
        # The rows of a table are aligned; a text that is read stays one indented block.
        self.screen.dim(*self._chat.browse_sync(kind, *words).split("\n", 0 if words else -1))

    def _do_reset(self, argument: str) -> None:
        """start a new conversation; memory stays"""
        self._chat.reset_sync()
        self.screen.canvas = ""
        self.screen.dim("a new conversation; memory stays")

    def _do_fork(self, argument: str) -> None:
        """answer again from a turn on, also with another flow: /fork 2 tools; alone it lists the turns"""
        turn, _, flow = argument.partition(" ")
        if not argument and self._chat.turn_rows:
            for number, row in enumerate(self._chat.turn_rows, start=1):
                self.screen.dim(f"{number:3}  {shorten(one_line(row.user))}")
            return
        if not turn.isdecimal():
            raise ConfigError("name the first turn to answer again: /fork 2, or /fork 2 tools")
        flow = flow.strip() or self._chat.variant.label
        first = turn_index(int(turn))
        self._switch(flow, self._chat.turns_until(first) if first else ())

    def _do_save(self, argument: str) -> None:
        """export the conversation as a data set that replays: /save FOLDER"""
        folder = Path(argument or f"chat-{datetime.now():%Y%m%d-%H%M%S}")
        command = self._chat.save(folder)
        self.screen.dim(f"saved; replay it with: {command}")
        for turn in turns_that_miss(folder / "spec.yaml"):
            self.screen.problem(f"turn {turn} does not replay whole: a call of it differs from what was recorded")

    def _do_quit(self, argument: str) -> None:
        """end the chat"""

    def _do_help(self, argument: str) -> None:
        """list the commands"""
        self.screen.dim(*(f"{name:8} {command.__doc__}" for name, command in COMMANDS.items()))

    def _switch(self, flow: str, first_turns: Sequence[Turn] = ()) -> None:
        self._lab.bench.variant(flow)  # an unknown flow leaves the chat as it is
        self._lab.loop.run_coroutine(self._chat.close())
        self._chat = self._open_chat(flow, first_turns)
        self.screen.dim(f"{flow} on {self._chat.variant.model}")

    def _open_chat(self, flow: str, begins_with: Sequence[Turn] = ()) -> Chat:
        stored = self._folder / HISTORY_FOLDER
        stored.mkdir(exist_ok=True)
        self.screen.watch()
        chat = self._lab.chat(
            flow,
            model=self._model,
            memory=self._folder,
            database=stored / f"{flow}.sqlite",
            on_event=self.screen.on_item,
            begins_with=begins_with,
            **self._options,
        )
        chat.stream.on("question", lambda item: self._questions.put(item))
        if begins_with:
            self.screen.dim(f"{flow} continues from turn {len(begins_with) + 1}; memory is unchanged")
        elif earlier := len(chat.log.messages):
            self.screen.dim(f"Continuing your chat with {flow} ({earlier} messages); /reset starts a new one")
        self._report_other_memories(chat.variant.memory)
        return chat

    def _report_other_memories(self, backend: str | None) -> None:
        """Report if the folder has facts of other backends and none of this one."""
        files = {name: getattr(plugins.resolve("memory", name), "KEPT_IN", name) for name in plugins.names("memory")}
        present = [name for name, file in files.items() if (self._folder / file).exists()]
        if backend is not None and present and backend not in present:
            note = f"{self._folder} has the memory of {' and '.join(present)}, which {backend} does not read"
            self.screen.dim(f"{note}; use it with --set memory={present[0]}")


COMMANDS = {f"/{name[4:]}": do for name, do in vars(TerminalChat).items() if name.startswith("_do_")}
"""Commands to type; the docstring of each is its help."""


def chat(arguments: argparse.Namespace) -> None:
    """Run `agentlab chat` until the user ends it."""
    overrides = spec_overrides(arguments, ("model", "files"))
    flow = arguments.flow or "chatbox"
    if arguments.spec is None and "flows" not in overrides:
        first = _flow_entry(flow, arguments.data, overrides)
        others = [name for name in plugins.names("flows") if name != plugins.default_label(flow)]
        overrides["flows"] = [first, *(_flow_entry(name, arguments.data, {}) for name in others)]
    shared = weights.home() / "chats"
    folder = shared if arguments.memory is None else Path(arguments.memory)
    data = arguments.data or os.environ.get("LLM_AGENT_DATA_DIR")
    if arguments.memory is None and flow == "ego" and data and Path(data).is_dir():
        # The conversation moves with the agent, and another agent never reads it.
        folder = Path(data) / "chats"
    # Check paths first, because fetching weights takes minutes.
    for path, content in ((arguments.documents, "documents"), (arguments.mcp, "MCP servers")):
        if path and not Path(path).exists():
            raise ConfigError(f"{path} does not exist; name a path with {content}")
    documents = load_documents(arguments.documents, echo) if arguments.documents else ()
    options = {"documents": documents or (() if arguments.spec is None else None), "mcp": arguments.mcp}
    is_new = folder != shared and not folder.exists()
    with ExitStack() as stack:
        _claim(folder, stack)
        # Calls are recorded, so that /save can export them, also those of earlier chats.
        spec = {"name": "chat", "mode": "record", "recordings": str(folder / RECORDED), **overrides}
        pin_hub_files(arguments.spec and Path(arguments.spec), [arguments.model or ""])
        lab = stack.enter_context(Lab(arguments.spec, **spec))
        label = plugins.default_label(flow) if arguments.spec is None else arguments.flow or lab.bench.variants[0].label
        lab.bench.variant(label)
        fetch(lab.bench.local_weights())
        chat = TerminalChat(lab, label, options, folder, _speaker(arguments.speaker))
        if is_new:
            chat.screen.dim(f"{folder} is new; the conversation and its memory are stored there")
            if folder.name == shared.name and (shared / HISTORY_FOLDER / f"{label}.jsonl").exists():
                chat.screen.dim(f"an earlier chat with {label} is in {shared}; --memory {shared} continues it")
        chat.talk(_reader())


def _flow_entry(flow: str, data: str | None, overrides: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of the chat's flow; keys of `overrides` that are settings of the flow move to it."""
    settings = getattr(plugins.resolve("flows", flow), "Settings", None)
    names = {name for name in getattr(settings, "__dataclass_fields__", ()) if name not in Spec.model_fields}
    own = {key: overrides.pop(key) for key in [*overrides] if key in names}
    if data is not None and "data" in names:
        own["data"] = data
    return {"flow": flow, **own}


def _speaker(text: str) -> tuple[str, str]:
    name, _, speaker_id = text.partition(":")
    return name, speaker_id or name


def _claim(folder: Path, stack: ExitStack) -> None:
    """Lock the folder for this chat and write its log there; raises ConfigError if another chat uses it."""
    with os_errors_as(ConfigError, f"{folder}: cannot store the conversation here (", ")"):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            stack.enter_context(FileLock(folder / ".chat.lock", timeout=0))
        except Timeout:
            raise ConfigError(f"another chat uses {folder}; end it, or name another folder: --memory FOLDER") from None
        stack.enter_context(run_log("chat.log", logging.INFO))(folder)


def _reader() -> Callable[[], str]:
    """Return a function that reads a line; on a terminal with editing, history and completion."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return input
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter

    session: PromptSession[str] = PromptSession(
        completer=WordCompleter(list(COMMANDS), sentence=True), reserve_space_for_menu=0
    )
    return lambda: session.prompt("> ")
