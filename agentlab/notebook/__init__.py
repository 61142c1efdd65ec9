"""What a notebook shows beyond tables: the chat widget, one question through all flows, a progress bar.

    from agentlab import notebook

    await lab.run(on_progress=notebook.progress())
    await notebook.show_flows(lab, "How wide is a goal?")
    notebook.chat_widget(lab)

Only the chat widget needs ipywidgets; it is imported when the widget is made. Whatever comes from models, documents
and tools is shown as text, never as HTML.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from agentlab.core.errors import MissingExtra
from agentlab.notebook.compare import FlowAnswer, FlowComparison, show_flows, show_flows_sync
from agentlab.notebook.progress_bar import progress

if TYPE_CHECKING:
    from agentlab.lab.lab import Lab
    from agentlab.notebook.chat import ChatWidget

__all__ = ["FlowAnswer", "FlowComparison", "chat_widget", "progress", "show_flows", "show_flows_sync"]


def chat_widget(lab: Lab) -> ChatWidget:
    """Talk to the flows of `lab`; raises MissingExtra without ipywidgets."""
    try:
        importlib.import_module("ipywidgets")
    except ImportError:
        raise MissingExtra("the chat widget", "notebook") from None
    from agentlab.notebook.chat import ChatWidget

    return ChatWidget(lab)
