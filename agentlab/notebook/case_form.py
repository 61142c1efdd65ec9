"""Form under a turn of the chat: the expected reply, and the data set to add the turn to."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import ipywidgets

from agentlab.core.errors import AgentlabError
from agentlab.notebook.controls import FITS, WRAPS, button, field, html
from agentlab.notebook.render import RED, html_text


class CaseForm(ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets has no type hints
    """Form that calls `save(corrected, folder)`, then shows the text it returns; an error leaves the form open."""

    def __init__(self, reply: str, folder: str, folders: Iterable[str], save: Callable[[str, str], str]) -> None:
        self.corrected = ipywidgets.Textarea(
            value=reply,
            placeholder="The expected reply; empty if the flow should have declined",
            rows=3,
            layout=FITS,
            _dom_classes=("agentlab-corrected",),
        )
        choices = tuple(dict.fromkeys([folder, *folders]))
        self.folder = field("data set", folder, choices, layout={"flex": "1 1 200px"})
        self.save_button = button("Save case", self._saved, button_style="primary")
        self.status = html("status")
        self._save = save
        row = ipywidgets.HBox([self.folder, self.save_button], layout=WRAPS)
        super().__init__([self.corrected, row, self.status])

    def _saved(self) -> None:
        try:
            self.status.value = html_text(self._save(self.corrected.value, self.folder.value.strip()))
            self.children = (self.status,)
        except AgentlabError as problem:
            self.status.value = html_text(str(problem), RED)
