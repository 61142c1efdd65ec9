"""One question through all flows of a lab, call by call and side by side.

    await show_flows(lab, "How wide is a goal?")          # in a notebook cell: the columns fill while they work
    print(show_flows_sync(lab, "How wide is a goal?"))    # in a script

The flows take their turn one after the other, so that none waits for another's model call. For means over a data set
with intervals there is `lab.run`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from agentlab.core.errors import AgentlabError, ConfigError
from agentlab.core.events import Event
from agentlab.core.messages import Reply
from agentlab.core.plugins import unknown
from agentlab.core.shown import as_html, one_line, paragraph
from agentlab.core.stream import Item, ReplyTakenBack, ReplyText, StepBegun, StepEnded
from agentlab.core.trace import Trace, numbers
from agentlab.lab.chat import Chat
from agentlab.lab.lab import Lab
from agentlab.notebook.render import (
    GREY,
    RED,
    SHOWN,
    STYLE,
    headline,
    html_cut,
    html_markdown,
    html_running,
    html_sources,
    html_step,
    html_text,
    reply_cut_at,
    source_lines,
    tag,
)

BETWEEN_DRAWINGS = 0.25
STOPPED = "stopped"
_LIVE = count(1)


@dataclass(frozen=True, kw_only=True)
class FlowAnswer:
    """What one flow made of the question: a reply or an error, and the trace of the way there."""

    flow: str
    model: str
    trace: Trace
    reply: Reply | None = None
    error: str | None = None

    @property
    def steps(self) -> list[tuple[int, Event]]:
        """The events worth a line in the order they began, with how deep they lie in one another."""
        depth: dict[int, int] = {}
        lines: list[tuple[int, Event]] = []
        for event in self.trace.of_turn(0):
            # Of what is still at work the parts end first.
            outer = -1 if event.parent is None else depth.get(event.parent, -1)
            depth[event.id] = outer + isinstance(event, SHOWN)
            if isinstance(event, SHOWN):
                lines.append((depth[event.id], event))
        return lines

    def __str__(self) -> str:
        lines = [f"{'  ' * depth}{tag(event)}: {headline(event)}" for depth, event in self.steps]
        lines.append(f"= {self.reply.shown}" if self.reply else f"! {self.error}")
        lines += source_lines(self.reply) if self.reply else []
        if (cut := reply_cut_at(self.trace.of_turn(0))) is not None:
            lines.append(f"(cut at {cut} tokens)")
        lines.append(numbers(self.trace, 0))
        return "\n".join([one_line(f"{self.flow} on {self.model}"), *(f"    {paragraph(line)}" for line in lines)])

    def html(self, running: str = "", said: str = "") -> str:
        """Steps, reply and costs; of a flow that is still at work, `running` and what it has `said`."""
        steps = "".join(
            f'<div style="padding-left: {1.2 * depth}em">{html_step(event)}</div>' for depth, event in self.steps
        )
        if self.reply is None and self.error is None:
            return f"{steps}{running}{html_markdown(said)}"
        citations = html_sources(self.reply) if self.reply else ""
        shown = html_markdown(self.reply.shown) if self.reply else html_text(self.error or "", RED)
        counted = html_text(numbers(self.trace, 0), f"{GREY}; font-size: 90%; margin-top: 6px")
        cut = html_cut(self.trace.of_turn(0))
        return f'{steps}<div style="margin-top: 8px">{shown}</div>{cut}{citations}{counted}'


@dataclass(frozen=True)
class FlowComparison:
    """The answers of all flows to one question; shows itself as a table, and as plain text when printed."""

    question: str
    answers: tuple[FlowAnswer, ...]
    shown_in: int | None = field(default=None, compare=False)
    """The cell that showed it while it came, which need not show it again."""

    def __getitem__(self, flow: str) -> FlowAnswer:
        for answer in self.answers:
            if answer.flow == flow:
                return answer
        raise ConfigError(unknown("flow of this comparison", flow, (answer.flow for answer in self.answers)))

    def __repr__(self) -> str:
        return "\n\n".join([paragraph(self.question), *map(str, self.answers)])

    def _repr_html_(self) -> str:
        return _table(self.question, self.answers, [answer.html() for answer in self.answers])

    def _ipython_display_(self) -> None:
        from IPython.core.getipython import get_ipython
        from IPython.display import display

        shell = get_ipython()
        if shell is None or self.shown_in != shell.execution_count:
            display({"text/plain": repr(self), "text/html": self._repr_html_()}, raw=True)  # type: ignore[no-untyped-call]


def _table(question: str, answers: Sequence[FlowAnswer], cells: Sequence[str]) -> str:
    cell = "text-align: left; vertical-align: top; padding: 8px; overflow-wrap: break-word; white-space: normal"
    heads = "".join(
        f'<th style="{cell}">{as_html(answer.flow)}'
        f'<div style="{GREY}; font-weight: normal">{as_html(answer.model)}</div></th>'
        for answer in answers
    )
    row = "".join(f'<td style="{cell}">{content}</td>' for content in cells)
    # A column is never narrower than a line that one can read: many of them are scrolled.
    return (
        f"{html_text(question, 'font-weight: 600')}"
        '<div style="overflow-x: auto"><table style="table-layout: fixed; width: 100%; border-collapse: collapse;'
        f' min-width: {17 * len(answers)}em"><thead><tr>{heads}</tr></thead><tbody><tr>{row}</tr></tbody></table></div>'
    )


class FlowQuestion:
    """The question on its way through the flows of `lab`; `html` shows how far it is, `stop` ends it."""

    def __init__(self, lab: Lab, question: str) -> None:
        self._lab = lab
        self.question = question
        self.answers = [FlowAnswer(flow=v.label, model=v.model, trace=Trace(v.label, "")) for v in lab.bench.variants]
        self._at = 0
        self._running: dict[int, tuple[Event, float]] = {}
        self._said = ""
        self._chat: Chat | None = None
        self._stopped = False

    def stop(self) -> None:
        """Break off the flow that is at work and ask no further one; what has come stays."""
        self._stopped = True
        if self._chat is not None:
            self._chat.stop()

    def html(self) -> str:
        cells = []
        for place, answer in enumerate(self.answers):
            if place == self._at:
                running = "".join(
                    html_running(event, time.monotonic() - since)
                    for event, since in list(self._running.values())
                    if isinstance(event, SHOWN)
                )
                cells.append(answer.html(running, self._said))
            elif place > self._at:
                cells.append(html_text("waits for its turn", GREY))
            else:
                cells.append(answer.html())
        return STYLE + _table(self.question, self.answers, cells)

    async def ask(self) -> FlowComparison:
        for place, waiting in enumerate(self.answers):
            self._at = place
            self._running, self._said = {}, ""
            if self._stopped:
                self.answers[place] = replace(waiting, error=STOPPED)
                continue
            self._chat = self._lab.chat(waiting.flow, on_event=self._take)
            self.answers[place] = waiting = replace(waiting, trace=self._chat.trace)
            reply, error = None, None
            try:
                reply = await self._chat.say(self.question)
            except AgentlabError as problem:
                error = str(problem)
            except asyncio.CancelledError:
                if not self._stopped:
                    raise
                error = STOPPED
            finally:
                # The next flow begins when this one's background work is done and counted.
                await self._chat.close()
            self.answers[place] = replace(waiting, reply=reply, error=error)
        return FlowComparison(self.question, tuple(self.answers))

    def _take(self, item: Item) -> None:
        match item:
            case StepBegun(event=event):
                self._running[event.id] = event, time.monotonic()
            case StepEnded(event=event):
                self._running.pop(event.id, None)
            case ReplyText(text=piece):
                self._said += piece
            case ReplyTakenBack():
                self._said = ""


async def show_flows(lab: Lab, question: str) -> FlowComparison:
    """Ask every flow of `lab` the question, each in a fresh conversation over the lab's documents.

    In a notebook the columns fill while the flows work, with a button that stops them.
    """
    asked = FlowQuestion(lab, question)
    answering = asyncio.wrap_future(lab.loop.start(asked.ask()))
    live = _Live(asked)
    try:
        while not (await asyncio.wait([answering], timeout=BETWEEN_DRAWINGS))[0]:
            live.draw()
        return live.end(answering.result())
    except BaseException:
        # An interrupt of the kernel ends the work, too.
        asked.stop()
        answering.cancel()
        raise


def show_flows_sync(lab: Lab, question: str) -> FlowComparison:
    """`show_flows` for scripts, and for cells that do not want to await; it shows nothing before the end."""
    return lab.loop.wait(FlowQuestion(lab, question).ask())


class _Live:
    """Where the columns fill: below the cell, in a notebook; nowhere without one."""

    def __init__(self, asked: FlowQuestion) -> None:
        from IPython.core.getipython import get_ipython

        self._asked = asked
        self._shell: Any = get_ipython()
        self._button: Any = None
        if getattr(self._shell, "kernel", None) is None:
            self._shell = None
            return
        self._name = f"agentlab-flows-{next(_LIVE)}"
        from IPython.display import display

        try:
            import ipywidgets
        except ImportError:
            pass  # the kernel's own stop is there all the same
        else:
            self._button = ipywidgets.Button(description="Stop", layout={"width": "auto"})
            self._button.on_click(lambda clicked: asked.stop())
            self._stop_name = f"{self._name}-stop"
            display(self._button, display_id=self._stop_name)  # type: ignore[no-untyped-call]
        display(self._bundle(asked.html()), raw=True, display_id=self._name)  # type: ignore[no-untyped-call]

    def draw(self) -> None:
        self._update(self._asked.html())

    def end(self, shown: FlowComparison) -> FlowComparison:
        if self._shell is None:
            return shown
        if self._button is not None:
            from IPython.display import update_display

            self._button.close()
            update_display({"text/html": ""}, raw=True, display_id=self._stop_name)  # type: ignore[no-untyped-call]
        self._update(shown._repr_html_(), repr(shown))
        return replace(shown, shown_in=self._shell.execution_count)

    def _update(self, page: str, text: str = "") -> None:
        if self._shell is not None:
            from IPython.display import update_display

            update_display(self._bundle(page, text), raw=True, display_id=self._name)  # type: ignore[no-untyped-call]

    def _bundle(self, page: str, text: str = "") -> dict[str, str]:
        return {"text/plain": text or self._asked.question, "text/html": page}
