"""What a notebook shows beyond tables: the chat widget, one question through all flows, a progress bar.

    from agentlab import notebook

    await lab.run(on_progress=notebook.progress())
    await notebook.show_flows(lab, "How wide is a goal?")
    notebook.chat_widget(lab)
    notebook.chat_widget(lab, documents=(), speaker="Alex:1001", memory="my-memory")
    notebook.label(run)

Only widgets need ipywidgets, and import it when they are made. Whatever comes from models, documents
and tools is shown as text, never as HTML.
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
    """Talk to the flows of `lab`; options are those of ChatWidget. Raises MissingExtra without ipywidgets."""
    with needs("the chat widget", "notebook"):
        from agentlab.notebook.chat import ChatWidget
    return ChatWidget(lab, **options)


def label(run: Run, file: str | Path = "labels.csv") -> Labelling:
    """Label the replies of `run` by hand, blind to the flow; `file` is one for `al.judge`.

    Raises MissingExtra without ipywidgets.
    """
    with needs("labelling", "notebook"):
        from agentlab.notebook.labelling import Labelling
    return Labelling(run, file)


def progress() -> Callable[[RunProgress], None]:
    """A callback for `on_progress`; outside a notebook, or without ipywidgets, it does nothing."""
    if (display := notebook_display()) is None:
        return lambda progress: None
    from agentlab.notebook.progress_bar import ProgressBar

    bar = ProgressBar()
    display(bar)
    return bar.update
