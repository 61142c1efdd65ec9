"""Answers of flows to one question, call by call and side by side, as text and as HTML."""

from __future__ import annotations

from dataclasses import dataclass

from agentlab.core.errors import ConfigError
from agentlab.core.escaping import as_html, escape_block, one_line
from agentlab.core.events import Event, ModelCall
from agentlab.core.messages import Reply
from agentlab.core.plugins import unknown_name
from agentlab.core.trace import Trace, format_totals
from agentlab.knowledge.citations import source_line
from agentlab.notebook import render
from agentlab.session.session import REPLY_PHASES

STOPPED = "stopped"


@dataclass(frozen=True, kw_only=True)
class FlowAnswer:
    """Answer of one flow: a reply or an error, and its trace."""

    flow: str
    model: str
    trace: Trace
    turn: int = 0
    """Index of the turn in the trace."""
    reply: Reply | None = None
    error: str | None = None

    @property
    def steps(self) -> list[tuple[int, Event]]:
        """Events that get a line, in order of their start, each with its depth in the tree."""
        depth: dict[int | None, int] = {}
        for event in self.events:
            depth[event.id] = depth.get(event.parent, -1) + isinstance(event, render.RENDERED_EVENTS)
        return [(depth[event.id], event) for event in self.events if isinstance(event, render.RENDERED_EVENTS)]

    @property
    def events(self) -> list[Event]:
        return self.trace.at(self.turn)

    @property
    def truncation(self) -> str:
        """Note on a reply that was truncated at its token limit; "" for a complete one."""
        calls = [event for event in self.events if isinstance(event, ModelCall) and event.phase in REPLY_PHASES]
        return calls[-1].truncation if calls else ""

    @property
    def sources(self) -> list[str]:
        """Sources that the reply does not name itself, one line each."""
        if self.reply is None or "shown" in self.reply.data:
            return []
        return [source_line(citation) for citation in self.reply.citations]

    @property
    def costs(self) -> str:
        return format_totals(self.trace, self.turn + 1)

    def __str__(self) -> str:
        lines = [f"{'  ' * depth}{render.tag(event)}: {render.headline(event)}" for depth, event in self.steps]
        lines.append(f"= {self.reply.display_text}" if self.reply else f"! {self.error}")
        lines += [*self.sources, *([f"({self.truncation})"] if self.truncation else []), self.costs]
        return "\n".join([one_line(f"{self.flow} on {self.model}"), *(f"    {escape_block(line)}" for line in lines)])

    def html(self) -> str:
        """Return steps, reply and costs as HTML."""
        steps = "".join(
            f'<div style="padding-left: {1.2 * depth}em">{render.html_step(event)}</div>' for depth, event in self.steps
        )
        reply = render.html_markdown(self.reply.display_text) if self.reply else ""
        return f'{steps}<div style="margin-top: 8px">{reply}</div>{self.html_end()}'

    def html_end(self) -> str:
        """Return the lines below the reply as HTML: token limit, sources, error and costs."""
        parts = [render.html_badge(self.truncation)] if self.truncation else []
        parts += [render.html_text(line, render.SMALL) for line in self.sources]
        if self.error:
            parts.append(render.html_text(self.error, render.SMALL if self.error == STOPPED else render.RED))
        if self.events:
            parts.append(render.html_text(self.costs, f"{render.SMALL}; margin-top: 6px"))
        return "".join(parts)


@dataclass(frozen=True)
class FlowComparison:
    """Answers of all flows to one question: a table in a notebook, text when printed."""

    question: str
    answers: tuple[FlowAnswer, ...]

    def __getitem__(self, flow: str) -> FlowAnswer:
        for answer in self.answers:
            if answer.flow == flow:
                return answer
        raise ConfigError(unknown_name("flow of this comparison", flow, (answer.flow for answer in self.answers)))

    def __repr__(self) -> str:
        return "\n\n".join([escape_block(self.question), *map(str, self.answers)])

    def _repr_html_(self) -> str:
        cell = "text-align: left; vertical-align: top; padding: 8px; overflow-wrap: break-word; white-space: normal"
        heads = "".join(
            f'<th style="{cell}">{as_html(answer.flow)}'
            f'<div style="{render.GREY}; font-weight: normal">{as_html(answer.model)}</div></th>'
            for answer in self.answers
        )
        row = "".join(f'<td style="{cell}">{answer.html()}</td>' for answer in self.answers)
        # Columns keep a readable width, so many of them scroll sideways; JupyterLab colours a row under the mouse.
        return (
            f"{render.html_text(self.question, 'font-weight: 600')}"
            '<div style="overflow-x: auto"><table style="table-layout: fixed; width: 100%; border-collapse: collapse;'
            f' min-width: {17 * len(self.answers)}em"><thead><tr>{heads}</tr></thead>'
            f'<tbody><tr style="background: none">{row}</tr></tbody></table></div>'
        )
