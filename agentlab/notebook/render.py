"""How events, replies and numbers look in a notebook: as one line of text, and as HTML in which everything is escaped.

Of Markdown only what shapes text is followed: HTML, links and pictures in it are shown as they are written.

Numbers are folds over the trace; nothing is counted here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from markdown_it import MarkdownIt

from agentlab.core.events import Decision, Event, MemoryOp, ModelCall, Search, ToolRun, shorten
from agentlab.core.messages import Reply, ToolCall
from agentlab.core.shown import as_html, printable
from agentlab.core.trace import tokens, whole
from agentlab.knowledge.citations import source_line
from agentlab.session.session import ANSWERING

SHOWN = (ModelCall, Search, ToolRun, MemoryOp, Decision)
"""The events that get a line; the others group these or repeat what is shown elsewhere."""

LONGEST_TEXT = 20_000

GREY = "color: var(--jp-ui-font-color2, #666)"
SMALL = f"{GREY}; font-size: 90%"
RED = "color: var(--jp-error-color1, #b00020)"
_MARKDOWN = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable("table")
_MARKDOWN.disable(["link", "image", "autolink", "reference"])
STYLE = """<style>
@keyframes agentlab-pulse { 50% { opacity: .35 } }
.agentlab-running { animation: agentlab-pulse 1.2s ease-in-out infinite }
@media (prefers-reduced-motion: reduce) { .agentlab-running { animation: none; font-style: italic } }
</style>"""
_BADGES = {"model_call": "#2a6fb0", "search": "#3b7d3b", "tool": "#8a5a00", "memory": "#6a4c93", "decision": "#6b6b6b"}


def cut_at(event: Event) -> int | None:
    """The tokens after which a model was made to end, where it had not come to an end; None elsewhere."""
    if not isinstance(event, ModelCall) or event.completion is None or event.completion.finish_reason != "length":
        return None
    return event.completion.usage.output_tokens or event.request.max_tokens or 0


def reply_cut_at(events: Iterable[Event]) -> int | None:
    """`cut_at` of the call that wrote the reply."""
    answers = [event for event in events if isinstance(event, ModelCall) and event.phase in ANSWERING]
    return cut_at(answers[-1]) if answers else None


def tag(event: Event) -> str:
    """The short word in front of an event's line: its phase, where it has one."""
    return event.phase or event.kind


def headline(event: Event) -> str:
    """What happened, in one line without its tag."""
    parts = [_happened(event)]
    if isinstance(event, ModelCall) and event.completion is not None:
        usage = event.completion.usage
        parts.append(tokens(usage.input_tokens, usage.output_tokens))
        if (cut := cut_at(event)) is not None:
            parts.append(f"cut at {cut} tokens")
    if event.costed:
        parts.append(f"{event.seconds:.2f} s")
    if event.error:
        parts.append(f"FAILED: {shorten(event.error, 200)}" if failed(event) else event.error)
    return " · ".join(parts)


def failed(event: Event) -> bool:
    """False also for a call that the user broke off."""
    return event.error not in (None, "interrupted")


def details(event: Event) -> str:
    """What a line unfolds to; "" where the line says it all."""
    if isinstance(event, MemoryOp):
        return clip("\n".join([event.text, *(f"{fact.id}: {fact.text}" for fact in event.facts)]))
    return clip(whole(event))


def source_lines(reply: Reply) -> list[str]:
    """The sources that the reply does not name itself."""
    return [] if "shown" in reply.data else [source_line(citation) for citation in reply.citations]


def clip(text: str) -> str:
    """`text`, cut where it would make the notebook itself heavy."""
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]}… ({len(text) - LONGEST_TEXT} more characters)"


def called(call: ToolCall) -> str:
    """A tool call the way one would type it, in a line."""
    given = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in call.arguments.items())
    return shorten(f"{call.name}({given if call.malformed is None else call.malformed})", 110)


# HTML.


def html_step(event: Event) -> str:
    """An event as one line that unfolds to its details."""
    colour = f' style="{RED}"' if failed(event) else ""
    line = f"{_badge(event)} <span{colour}>{as_html(headline(event))}</span>"
    unfolded = details(event)
    if not unfolded:
        return f'<div style="line-height: 1.6; padding-left: 1.05em">{line}</div>'
    return (
        f'<details style="line-height: 1.6"><summary style="cursor: pointer">{line}</summary>'
        f'<pre style="white-space: pre-wrap; overflow-wrap: anywhere; max-height: 20em; overflow: auto; margin: 4px 0'
        f' 8px 1.05em; padding: 6px; line-height: 1.35; background: var(--jp-layout-color2, #f3f3f3)">'
        f"{as_html(unfolded)}</pre></details>"
    )


def html_running(event: Event, seconds: float) -> str:
    """An event that has begun and not ended, as a line that pulses (`STYLE`)."""
    what = called(event.call) if isinstance(event, ToolRun) else event.title
    since = f" · {seconds:.0f} s" if seconds >= 1 else ""
    return (
        f'<div class="agentlab-running" style="line-height: 1.6; padding-left: 1.05em">{_badge(event)}'
        f" {as_html(what)}…{since}</div>"
    )


def html_badge(text: str, colour: str = "#9a5b00") -> str:
    return (
        f'<span class="agentlab-badge" style="background: {colour}; color: white; border-radius: 3px; padding: 0 5px;'
        f' font-size: 85%">{as_html(text)}</span>'
    )


def html_cut(events: Iterable[Event]) -> str:
    """A badge where the reply was cut; "" where it came to its end."""
    cut = reply_cut_at(events)
    return "" if cut is None else f"<div>{html_badge(f'cut at {cut} tokens')}</div>"


def html_text(text: str, style: str = "") -> str:
    """Text with its line breaks kept and nothing in it read as HTML."""
    return (
        f'<div style="white-space: pre-wrap; overflow-wrap: anywhere; line-height: 1.5; {style}">'
        f"{as_html(clip(text))}</div>"
    )


def html_markdown(text: str, style: str = "") -> str:
    """Markdown. Links and pictures stay text: where one leads is the model's word."""
    return (
        '<div class="jp-RenderedHTMLCommon" style="padding: 0; line-height: 1.5; overflow: auto;'
        f' overflow-wrap: anywhere; {style}">{_MARKDOWN.render(printable(clip(text)))}</div>'
    )


def html_canvas(text: str) -> str:
    """Markdown in a frame."""
    frame = "border: 1px solid var(--jp-border-color2, #ccc); border-radius: 6px; padding: 6px 12px; margin-top: 6px"
    return html_markdown(text, frame)


def _badge(event: Event) -> str:
    return html_badge(tag(event), _BADGES[event.kind])


def html_sources(reply: Reply) -> str:
    return "".join(html_text(line, f"{GREY}; font-size: 90%") for line in source_lines(reply))


def _happened(event: Event) -> str:
    match event:
        case ModelCall(completion=None):
            return "no answer"
        case ModelCall(completion=completion):
            assert completion is not None
            calls = completion.message.tool_calls
            return f"calls {'; '.join(map(called, calls))}" if calls else f'"{shorten(completion.message.text)}"'
        case Search(query=query, passages=passages):
            where = "" if event.doc_ids is None else f" in {', '.join(event.doc_ids)}"
            noun = "passage" if len(passages) == 1 else "passages"
            return f'{len(passages)} {noun} for "{shorten(query)}"{shorten(where)}'
        case ToolRun(call=call, output=output):
            return f"{call.name}: {shorten(output)}"
        case MemoryOp(op=op):
            return f"{op}: {event.detail}"
    return f"{event.title} {event.detail}".strip()
