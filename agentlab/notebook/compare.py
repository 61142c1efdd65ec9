"""One question through all flows of a lab, call by call and side by side.

    await show_flows(lab, "How wide is a goal?")          # in a notebook cell
    print(show_flows_sync(lab, "How wide is a goal?"))    # in a script

The flows take their turn one after the other, so that none waits for another's model call. For means over a data set
with intervals there is `lab.run`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from agentlab.core.errors import AgentlabError, ConfigError
from agentlab.core.events import Event
from agentlab.core.messages import Reply
from agentlab.core.plugins import unknown
from agentlab.core.shown import as_html, one_line, paragraph
from agentlab.core.trace import Trace, numbers
from agentlab.lab.lab import Lab
from agentlab.notebook.render import (
    GREY,
    RED,
    SHOWN,
    headline,
    html_sources,
    html_step,
    html_text,
    source_lines,
    tag,
)


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
            outer = -1 if event.parent is None else depth[event.parent]
            depth[event.id] = outer + isinstance(event, SHOWN)
            if isinstance(event, SHOWN):
                lines.append((depth[event.id], event))
        return lines

    def __str__(self) -> str:
        lines = [f"{'  ' * depth}{tag(event)}: {headline(event)}" for depth, event in self.steps]
        lines.append(f"= {self.reply.shown}" if self.reply else f"! {self.error}")
        lines += source_lines(self.reply) if self.reply else []
        lines.append(numbers(self.trace, 0))
        return "\n".join([one_line(f"{self.flow} on {self.model}"), *(f"    {paragraph(line)}" for line in lines)])

    def _html(self) -> str:
        steps = "".join(
            f'<div style="padding-left: {1.2 * depth}em">{html_step(event)}</div>' for depth, event in self.steps
        )
        citations = html_sources(self.reply) if self.reply else ""
        said = html_text(self.reply.shown, "font-weight: 600") if self.reply else html_text(self.error or "", RED)
        counted = html_text(numbers(self.trace, 0), f"{GREY}; font-size: 90%; margin-top: 6px")
        return f'{steps}<div style="margin-top: 8px">{said}</div>{citations}{counted}'


@dataclass(frozen=True)
class FlowComparison:
    """The answers of all flows to one question; shows itself as a table, and as plain text when printed."""

    question: str
    answers: tuple[FlowAnswer, ...]

    def __getitem__(self, flow: str) -> FlowAnswer:
        for answer in self.answers:
            if answer.flow == flow:
                return answer
        raise ConfigError(unknown("flow of this comparison", flow, (answer.flow for answer in self.answers)))

    def __repr__(self) -> str:
        return "\n\n".join([paragraph(self.question), *map(str, self.answers)])

    def _repr_html_(self) -> str:
        cell = "text-align: left; vertical-align: top; padding: 8px; overflow-wrap: anywhere; white-space: normal"
        heads = "".join(
            f'<th style="{cell}">{as_html(answer.flow)}'
            f'<div style="{GREY}; font-weight: normal">{as_html(answer.model)}</div></th>'
            for answer in self.answers
        )
        cells = "".join(f'<td style="{cell}">{answer._html()}</td>' for answer in self.answers)
        return (
            f"{html_text(self.question, 'font-weight: 600')}"
            '<table style="table-layout: fixed; width: 100%; border-collapse: collapse">'
            f"<thead><tr>{heads}</tr></thead><tbody><tr>{cells}</tr></tbody></table>"
        )


async def show_flows(lab: Lab, question: str) -> FlowComparison:
    """Ask every flow of `lab` the question, each in a fresh conversation over the lab's documents."""
    return await asyncio.wrap_future(lab.start(_ask_all(lab, question)))


def show_flows_sync(lab: Lab, question: str) -> FlowComparison:
    """`show_flows` for scripts, and for cells that do not want to await."""
    return lab.wait(_ask_all(lab, question))


async def _ask_all(lab: Lab, question: str) -> FlowComparison:
    answers = []
    for variant in lab.variants:
        chat = lab.chat(variant.label)
        reply, error = None, None
        try:
            reply = await chat.say(question)
        except AgentlabError as problem:
            error = str(problem)
        finally:
            # The next flow begins when this one's background work is done and counted.
            await chat.close()
        answers.append(FlowAnswer(flow=variant.label, model=variant.model, trace=chat.trace, reply=reply, error=error))
    return FlowComparison(question, tuple(answers))
