"""`agentlab chat`: a conversation with a flow in the terminal, its steps dimmed above each reply."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from rich.live import Live
from rich.markdown import Markdown
from rich.panel import Panel
from rich.text import Text

from agentlab.cli.progress import line_of
from agentlab.core import plugins
from agentlab.core.errors import AgentlabError, ConfigError
from agentlab.core.messages import Reply
from agentlab.core.shown import LogFormatter, paragraph, printable
from agentlab.core.stream import Done, Item, Noticed, ReplyTakenBack, ReplyText, TurnBegun
from agentlab.core.trace import numbers
from agentlab.data.conversations import Turn
from agentlab.evals.results.tables import Terminal
from agentlab.knowledge.citations import source_line
from agentlab.lab.chat import Chat
from agentlab.lab.lab import Lab
from agentlab.lab.saving import RECORDED, STORED
from agentlab.models import weights
from agentlab.workbench.variants import environment_notes

log = logging.getLogger(__name__)
DRAWINGS_PER_SECOND = 8
COMMANDS = {
    "/flow": "go on with another flow: /flow tools; alone it lists them",
    "/model": "go on with another model: /model openai/gpt-5-mini; alone it names the one that answers",
    "/memory": "what is remembered; /memory WORD only what has the word in it",
    "/canvas": "the last canvas again",
    "/fork": "go on after an earlier turn: /fork 2, under another flow: /fork 2 tools",
    "/trace": "every step of the last turn; /trace all of the whole chat",
    "/reset": "begin a new conversation; memory stays",
    "/save": "write the conversation as a data set that replays: /save FOLDER",
    "/quit": "end the chat",
    "/help": "this list",
}


class Screen:
    """Shows a turn: steps as they end, the reply as it grows, and at the end reply, sources and cost."""

    def __init__(self) -> None:
        self.console = Terminal()
        self.canvas = ""
        self._said = ""
        self._answering = True  # at first it is the opening of the chat that has something to say

    def turn(self) -> Live:
        """Draws while its block lasts; what it drew of the reply is then gone, for `end` to print it whole."""
        self._said = ""
        return Live(
            console=self.console,
            transient=True,
            auto_refresh=self.console.is_terminal,
            refresh_per_second=DRAWINGS_PER_SECOND,
            get_renderable=self._newest_lines,
        )

    def take(self, item: Item) -> None:
        match item:
            case TurnBegun():
                self._answering = True
            case ReplyText(text=piece):
                self._said += piece
            case ReplyTakenBack():
                self._said = ""
            case Done():
                self._answering = False
            case Noticed(event=event) if event.text in self._said:
                pass  # a flow tells its reply to whoever listens for that
            case _ if self._answering and (line := line_of(item)):
                self.console.print(Text(line, style="dim", no_wrap=True, overflow="ellipsis"))

    def _newest_lines(self) -> Text:
        wrapped = Text(printable(self._said)).wrap(self.console, self.console.width)
        return Text("\n").join(wrapped[-max(1, self.console.height - 2) :])

    def end(self, reply: Reply, costs: str) -> None:
        self.canvas = printable(str(reply.data.get("canvas") or self.canvas))
        said = printable(str(reply.data.get("chat", reply.shown)))
        if said.strip():
            self.console.print(Text(said))
        else:
            self.dim("(the reply is empty)")
        if reply.data.get("canvas"):
            self.show_canvas()
        if "shown" not in reply.data:
            for citation in reply.citations:
                self.dim(source_line(citation))
        self.dim(costs)

    def broken_off(self) -> None:
        """Keep what was said so far on display."""
        if self._said:
            self.console.print(Text(printable(self._said)))
        self.dim("(interrupted)")

    def show_canvas(self) -> None:
        # Links are shown as text: where one leads is the model's word.
        self.console.print(Panel(Markdown(self.canvas, hyperlinks=False), title="canvas", title_align="left"))

    def dim(self, text: str) -> None:
        self.console.print(Text(paragraph(text), style="dim"))

    def problem(self, text: str) -> None:
        self.console.print(Text(paragraph(text), style="red"))


class TerminalChat:
    """One chat at a time, of the flow and the model that were chosen last."""

    def __init__(self, lab: Lab, flow: str, options: dict[str, Any], folder: Path, speaker: tuple[str, str]) -> None:
        self.screen = Screen()
        self._lab = lab
        self._options = options
        self._folder = folder
        self._speaker = speaker
        self._model: str | None = None
        self._chat = self._opened(flow)

    def talk(self, read: Callable[[], str]) -> None:
        """Until the input ends, or /quit is typed."""
        self.screen.dim(f"{self._chat.variant.label} on {self._chat.variant.model}; /help lists the commands")
        while True:
            try:
                text = read().strip()
            except KeyboardInterrupt:
                self.screen.dim("(Ctrl-D or /quit ends the chat)")
                continue
            except EOFError:
                return
            if text == "/quit":
                return
            try:
                if text.startswith("/"):
                    self._obey(*text.split(maxsplit=1))
                elif text:
                    self._say(text)
            except AgentlabError as problem:
                self.screen.problem(str(problem))
            except KeyboardInterrupt:
                self.screen.broken_off()
            except Exception as failure:
                # A flow somebody is still writing, or a provider that went down: a line, and the chat goes on.
                log.debug("the turn failed", exc_info=True)
                self.screen.problem(f"{type(failure).__name__}: {failure}")

    def _say(self, text: str) -> None:
        name, speaker_id = self._speaker
        with self.screen.turn():
            reply = self._chat.say_sync(text, speaker_id=speaker_id or None, speaker_name=name or None)
        turn = max(self._chat.trace.turns(), default=0)
        self.screen.end(reply, numbers(self._chat.trace, turn))

    def _obey(self, command: str, argument: str = "") -> None:
        handler = getattr(self, f"_do_{command[1:]}", None) if command in COMMANDS else None
        if handler is None:
            raise ConfigError(plugins.unknown("command", command, COMMANDS))
        handler(argument.strip())

    def _do_help(self, argument: str) -> None:
        for name, does in COMMANDS.items():
            self.screen.dim(f"{name:8} {does}")

    def _do_flow(self, name: str) -> None:
        if not name:
            self.screen.dim(", ".join(variant.label for variant in self._lab.variants))
            return
        self._lab.variant(name)
        self._go_on(name)

    def _do_model(self, name: str) -> None:
        if name:
            plugins.provider("models", name)
            if (local := name.removeprefix("local/")) in weights.names("chat") and not weights.is_present(local):
                raise ConfigError(f"{name} is not on this machine: agentlab pull {local}")
            self._model = name
            self._go_on(self._chat.variant.label)
        else:
            self.screen.dim(self._chat.variant.model)

    def _do_memory(self, argument: str) -> None:
        facts = [fact for fact in self._chat.facts_sync() if argument.lower() in fact.text.lower()]
        for fact in facts:
            self.screen.dim(f"{fact.id}  {fact.created:%Y-%m-%d %H:%M}  {fact.text}")
        if not facts:
            self.screen.dim("nothing is remembered")

    def _do_canvas(self, argument: str) -> None:
        if self.screen.canvas:
            self.screen.show_canvas()
        else:
            self.screen.dim("there is no canvas yet; the flow ego writes one")

    def _do_trace(self, argument: str) -> None:
        turns = self._chat.trace.turns()
        if not turns:
            raise ConfigError("nothing was said yet, so there is no trace")
        self.screen.console.print(self._chat.trace.steps(None if argument == "all" else max(turns)))

    def _do_reset(self, argument: str) -> None:
        self._chat.reset_sync()
        self.screen.canvas = ""
        self.screen.dim("a new conversation; memory stays")

    def _do_fork(self, argument: str) -> None:
        turn, _, flow = argument.partition(" ")
        if not turn.isdecimal():
            raise ConfigError("name the turn to go on after: /fork 2, or /fork 2 tools")
        flow = flow.strip() or self._chat.variant.label
        self._lab.variant(flow)
        self._go_on(flow, self._chat.turns_until(int(turn)))

    def _do_save(self, argument: str) -> None:
        folder = Path(argument or f"chat-{datetime.now():%Y%m%d-%H%M%S}")
        command = self._chat.save(folder)
        self.screen.dim(f"saved; replay it with: {command}")

    def _go_on(self, flow: str, begins_with: Sequence[Turn] = ()) -> None:
        self._lab.wait(self._chat.close())
        self._chat = self._opened(flow, begins_with)
        self.screen.dim(f"{flow} on {self._chat.variant.model}")

    def _opened(self, flow: str, begins_with: Sequence[Turn] = ()) -> Chat:
        stored = self._folder / STORED
        stored.mkdir(exist_ok=True)
        chat = self._lab.chat(
            flow,
            model=self._model,
            memory=self._folder,
            database=stored / f"{flow}.sqlite",
            on_event=self.screen.take,
            begins_with=begins_with,
            **self._options,
        )
        if begins_with:
            self.screen.dim(f"{flow} goes on after turn {len(begins_with)}; memory is as it is now")
        elif chat.earlier:
            self.screen.dim(f"{flow} goes on after {chat.earlier} messages; /reset begins a new conversation")
        return chat


def chat(
    flow: str,
    *,
    overrides: dict[str, Any],
    memory: str | None,
    documents: str | None,
    data: str | None,
    mcp: str | None,
    speaker: str,
    prepare: Callable[[list[str]], None],
) -> None:
    """Talk until the user ends it. `prepare` fetches the weights that are missing."""
    name, _, speaker_id = speaker.partition(":")
    plugins.resolve("flows", flow)
    flows: list[Any] = list(dict.fromkeys([flow, *plugins.names("flows")]))
    if data is not None:
        flows = [{"flow": each, "data": data} if each == "ego" else each for each in flows]
    folder = Path(memory) if memory is not None else weights.home() / "chats"
    if mcp is not None and not Path(mcp).is_file():
        raise ConfigError(f"there is no file {mcp} of MCP servers")
    options = {"documents": documents or (), "mcp": mcp}
    with ExitStack() as stack:
        _claim(folder, stack)
        # Recorded, so that /save can hand the calls on, those of earlier chats too.
        given = {
            "name": "chat",
            "mode": "record",
            "recordings": str(folder / RECORDED),
            "flows": flows,
            **overrides,
        }
        lab = stack.enter_context(Lab(**given))
        prepare(lab.local_weights())
        label = plugins.label_of(flow)
        chat = TerminalChat(lab, label, options, folder, (name, speaker_id or name))
        for note in environment_notes(lab.spec, [lab.variant(label)]):
            chat.screen.dim(note)
        chat.talk(_reader())


def _claim(folder: Path, stack: ExitStack) -> None:
    """Keep the folder to this chat until it ends, and a log in it; ConfigError where another one has it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stack.enter_context(FileLock(folder / ".chat.lock", timeout=0))
        _log_to(folder / "chat.log", stack)
    except Timeout:
        raise ConfigError(f"another chat uses {folder}; end it, or name another folder: --memory FOLDER") from None
    except OSError as problem:
        raise ConfigError(f"{folder}: cannot keep the conversation here ({problem.strerror or problem})") from None


def _log_to(file: Path, stack: ExitStack) -> None:
    kept = logging.FileHandler(file, encoding="utf-8")
    kept.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    ours = logging.getLogger("agentlab")
    stack.callback(ours.setLevel, ours.level)
    stack.callback(kept.close)
    stack.callback(ours.removeHandler, kept)
    ours.addHandler(kept)
    ours.setLevel(logging.INFO)


def _reader() -> Callable[[], str]:
    """Reads a line of the user's: with editing, history and completion on a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return input
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import WordCompleter

    session: PromptSession[str] = PromptSession(
        completer=WordCompleter(list(COMMANDS), sentence=True), reserve_space_for_menu=0
    )
    return lambda: session.prompt("> ")
