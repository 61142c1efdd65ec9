"""Layout of the chat widget; `chat` defines the behaviour."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ipywidgets

from agentlab.lab.lab import Lab
from agentlab.models import weights
from agentlab.notebook.controls import FITS, PICKER, WRAPS, field
from agentlab.notebook.render import SMALL, STYLE, html_text

ALONE = "none"
AS_GIVEN, NO_DOCUMENTS = "(as given)", "(none)"


class ChatForm(ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets has no type hints
    """Pickers, transcript and input field; `hidden` is a CSS class that the widget hides."""

    def __init__(self, lab: Lab, speaker: str, memory: str | Path | None, hidden: str) -> None:
        flows = [variant.label for variant in lab.bench.variants]
        used = [variant.model for variant in lab.bench.variants]
        present = (f"local/{name}" for name in weights.names("chat") if weights.is_present(name))
        models, hint = tuple(dict.fromkeys([*used, *present])), "provider/model; clear it to list models"
        self.flow = ipywidgets.Dropdown(options=flows, description="flow", layout=PICKER)
        self.second_flow = ipywidgets.Dropdown(
            options=[ALONE, *flows], description="compare with", layout=PICKER, style={"description_width": "initial"}
        )
        self.model, self.model_beside = (field("model", used[0], models, placeholder=hint) for _ in range(2))
        self.model_beside.layout.display = "none"
        self.speaker = field("speaker", speaker, placeholder="NAME:ID")
        self.memory = field("memory", str(memory or ""), placeholder="a folder to store it")
        corpora = (AS_GIVEN, NO_DOCUMENTS, *lab.bench.spec.datasets)
        self.documents = field("documents", AS_GIVEN, corpora, placeholder="a folder, or a corpus.jsonl")
        self.ask = ipywidgets.Text(
            placeholder="Type a message", continuous_update=False, layout={**FITS, "flex": "1 1 auto"}
        )
        self.send_button = ipywidgets.Button(description="Send", button_style="primary", layout=FITS)
        self.stop_button = ipywidgets.Button(description="Stop", disabled=True, layout=FITS)
        clear_hint = "Clear this conversation and start a new one"
        self.clear_button = ipywidgets.Button(description="Clear", tooltip=clear_hint, layout=FITS)
        self.transcript = Transcript()
        more_fields = [self.second_flow, self.model_beside, self.speaker, self.memory, self.documents]
        style = f"{STYLE}<style>.{hidden} {{ display: none }}</style>"
        super().__init__(
            [
                ipywidgets.HTML(style, layout={"height": "0", "margin": "0"}),
                ipywidgets.HBox([self.flow, self.model, self.clear_button], layout=WRAPS),
                ipywidgets.HBox(more_fields, layout=WRAPS),
                self.transcript,
                ipywidgets.HBox([self.ask, self.send_button, self.stop_button]),
            ],
            layout={"border": "1px solid var(--jp-border-color2, #ccc)", "padding": "8px"},
        )

    def show_busy(self, busy: bool) -> None:
        pickers = (self.flow, self.model, self.second_flow, self.model_beside, self.memory, self.documents)
        for part in (self.send_button, *pickers):
            part.disabled = busy
        self.stop_button.disabled = not busy

    def go_to_end(self) -> None:
        # The browser scrolls to the end as the focus moves there and back.
        self.transcript.end.focus()
        self.ask.focus()


class Transcript(ipywidgets.VBox):  # type: ignore[misc]
    """Questions and answers; in reverse order, so that the browser keeps the end in view."""

    def __init__(self) -> None:
        point = {"height": "2px", "width": "2px", "flex": "0 0 auto", "padding": "0"}
        self.end = ipywidgets.Button(tooltip="end of the chat", layout=point, style={"button_color": "transparent"})
        self._parts = ipywidgets.VBox(layout={"flex": "0 0 auto"})
        super().__init__(
            [self.end, self._parts],
            layout={"flex_flow": "column-reverse", "max_height": "480px", "overflow": "auto", "padding": "4px"},
            _dom_classes=("agentlab-window",),
        )

    def add(self, part: Any) -> None:
        self._parts.children += (part,)

    def mark(self, text: str) -> None:
        self.add(ipywidgets.HTML(html_text(f"— {text} —", SMALL)))

    def clear(self) -> None:
        self._parts.children = ()
