"""Rendering of events, replies and numbers in a notebook, as a line of text and as escaped HTML.

Markdown only shapes text: HTML, links and pictures stay source text. Numbers are folds over the trace.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from markdown_it import MarkdownIt

from agentlab.core.escaping import as_html, printable
from agentlab.core.events import Decision, Event, MemoryOp, ModelCall, Search, ToolRun, shorten
from agentlab.core.messages import ToolCall
from agentlab.core.trace import whole

RENDERED_EVENTS = (ModelCall, Search, ToolRun, MemoryOp, Decision)
"""Events that get a line; the others group these or repeat them."""

MAX_TEXT_CHARS = 20_000

GREY = "color: var(--jp-ui-font-color2, #666)"
SMALL = f"{GREY}; font-size: 90%"
RED = "color: var(--jp-error-color1, #b00020)"
FRAME = "border: 1px solid var(--jp-border-color2, #ccc); border-radius: 6px; padding: 6px 12px; margin-top: 6px"
_MARKDOWN = MarkdownIt("commonmark", {"html": False, "breaks": True}).enable("table")
_MARKDOWN.disable(["link", "image", "autolink", "reference"])
STYLE = """<style>
@keyframes agentlab-pulse { 50% { opacity: .35 } }
.agentlab-running { animation: agentlab-pulse 1.2s ease-in-out infinite }
@media (prefers-reduced-motion: reduce) { .agentlab-running { animation: none; font-style: italic } }
</style>"""
_BADGES = {"model_call": "#2a6fb0", "search": "#3b7d3b", "tool": "#8a5a00", "memory": "#6a4c93", "decision": "#6b6b6b"}


def notebook_display() -> Callable[..., Any] | None:
    """Return IPython's `display`; None outside a notebook or without ipywidgets."""
    try:
        import ipywidgets  # noqa: F401
        from IPython.core.getipython import get_ipython
        from IPython.display import display
    except ImportError:
        return None
    return None if getattr(get_ipython(), "kernel", None) is None else display


def tag(event: Event) -> str:
    """Return the tag of an event's line: its phase, or else its kind."""
    return event.phase or event.kind


def headline(event: Event) -> str:
    """Return an event as one line, without its tag."""
    match event:
        case ModelCall():
            parts = [event.detail or "no answer", event.truncation]
        case ToolRun(call=call):
            parts = [f"{format_call(call)}: {event.detail}"]
        case Search(query=query):
            parts = [f'"{shorten(query)}": {event.detail}']
        case _:
            parts = [f"{event.title}: {event.detail}".removesuffix(": ")]
    if event.is_billable:
        parts.append(f"{event.seconds:.2f} s")
    if event.error:
        parts.append(f"FAILED: {shorten(event.error, 200)}" if failed(event) else event.error)
    return " · ".join(filter(None, parts))


def failed(event: Event) -> bool:
    """Return True if the event has an error; a call that the user cancelled has not failed."""
    return event.error not in (None, "interrupted")


def details(event: Event) -> str:
    """Return the text that a line unfolds to; "" if there is nothing to add."""
    if isinstance(event, MemoryOp):
        return clip("\n".join([event.text, *(f"{fact.id}: {fact.text}" for fact in event.facts)]))
    return clip(whole(event))


def clip(text: str) -> str:
    """Truncate a text that would make the notebook file large."""
    if len(text) <= MAX_TEXT_CHARS:
        return text
    return f"{text[:MAX_TEXT_CHARS]}… ({len(text) - MAX_TEXT_CHARS} more characters)"


def format_call(call: ToolCall) -> str:
    """Return a tool call as one line of Python-like code."""
    arguments = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in call.arguments.items())
    return shorten(f"{call.name}({arguments if call.malformed is None else call.malformed})", 110)


# HTML.


def html_step(event: Event) -> str:
    """Return an event as a line that unfolds to its details."""
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
    """Return a running event as a pulsing line (see `STYLE`)."""
    title = format_call(event.call) if isinstance(event, ToolRun) else event.title
    elapsed = f" · {seconds:.0f} s" if seconds >= 1 else ""
    return (
        f'<div class="agentlab-running" style="line-height: 1.6; padding-left: 1.05em">{_badge(event)}'
        f" {as_html(title)}…{elapsed}</div>"
    )


def html_badge(text: str, colour: str = "#9a5b00") -> str:
    return (
        f'<span class="agentlab-badge" style="background: {colour}; color: white; border-radius: 3px; padding: 0 5px;'
        f' font-size: 85%">{as_html(text)}</span>'
    )


def html_text(text: str, style: str = "") -> str:
    """Return escaped text that keeps its line breaks."""
    return (
        f'<div style="white-space: pre-wrap; overflow-wrap: anywhere; line-height: 1.5; {style}">'
        f"{as_html(clip(text))}</div>"
    )


def html_markdown(text: str, style: str = "") -> str:
    """Return Markdown as HTML; links and pictures stay text, because their targets are untrusted."""
    return (
        '<div class="jp-RenderedHTMLCommon" style="padding: 0; line-height: 1.5; overflow: auto;'
        f' overflow-wrap: anywhere; {style}">{_MARKDOWN.render(printable(clip(text)))}</div>'
    )


def _badge(event: Event) -> str:
    return html_badge(tag(event), _BADGES[event.kind])
