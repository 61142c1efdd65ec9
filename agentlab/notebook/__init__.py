"""Widgets for notebooks: a chat, one question to all flows, labelling of replies, a progress bar.

    from agentlab import notebook

    await lab.run(on_progress=notebook.progress())
    await notebook.show_flows(lab, "How wide is a goal?")
    notebook.chat_widget(lab)
    notebook.chat_widget(lab, documents=(), speaker="Alex:1001", memory="my-memory")
    notebook.label(run)

Only widgets need ipywidgets, and import it when they are created. Text of models, documents and tools is shown as text,
never as HTML.

`chat`, `chat_column`, `chat_form`: the chat widget, one flow in it, its layout. `compare`, `answers`: one question
through all flows. `turn_view`: one turn. `case_form`: saves a turn as a test. `labelling`: human labels.
`progress_bar`, `controls`, `render`: progress; buttons and fields; events as text and HTML.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentlab.core.errors import needs
from agentlab.evals.store.progress import RunProgress
from agentlab.lab.lab import Lab
from agentlab.lab.run import Run
from agentlab.notebook.answers import FlowAnswer, FlowComparison
from agentlab.notebook.compare import show_flows, show_flows_sync
from agentlab.notebook.render import notebook_display

if TYPE_CHECKING:
    from agentlab.notebook.chat import ChatWidget
    from agentlab.notebook.labelling import Labelling

__all__ = [
    "FlowAnswer",
    "FlowComparison",
    "chat_widget",
    "label",
    "progress",
    "show_flows",
    "show_flows_sync",
]


def chat_widget(lab: Lab, **options: Any) -> ChatWidget:
    """Return a chat with the flows of `lab`, as a widget.

    Options: `documents` and `memory` as in `al.Chat`, and `speaker` (NAME:ID or a name). Raises MissingExtra without
    ipywidgets.
    """
    with needs("the chat widget", "notebook"):
        from agentlab.notebook.chat import ChatWidget
    return ChatWidget(lab, **options)


def label(run: Run, file: str | Path = "labels.csv") -> Labelling:
    """Return a form to label replies of `run`, blind to the flow; `al.judge` reads `file`.

    Raises MissingExtra without ipywidgets.
    """
    with needs("labelling", "notebook"):
        from agentlab.notebook.labelling import Labelling
    return Labelling(run, file)


def progress() -> Callable[[RunProgress], None]:
    """Return a callback for `on_progress`; outside a notebook or without ipywidgets it does nothing."""
    if (display := notebook_display()) is None:
        return lambda progress: None
    from agentlab.notebook.progress_bar import ProgressBar

    bar = ProgressBar()
    display(bar)
    return bar.update
