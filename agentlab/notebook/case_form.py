"""The form under a turn of the chat: what it should have been answered, and the data set that is to have it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import ipywidgets

from agentlab.core.errors import AgentlabError
from agentlab.notebook.render import RED, html_text


class CaseForm(ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets has no type hints
    """`save(corrected, folder)` adds the case and says where it is; its errors are shown, and the form stays."""

    def __init__(self, reply: str, folder: str, folders: Iterable[str], save: Callable[[str, str], str]) -> None:
        self.corrected = ipywidgets.Textarea(
            value=reply,
            placeholder="What it should have said; nothing where it should have declined",
            rows=3,
            layout={"width": "auto"},
            _dom_classes=("agentlab-corrected",),
        )
        self.folder = ipywidgets.Combobox(
            value=folder,
            options=tuple(dict.fromkeys([folder, *folders])),
            description="data set",
            continuous_update=False,
            layout={"flex": "1 1 200px"},
        )
        self.save_button = ipywidgets.Button(description="Save case", button_style="primary", layout={"width": "auto"})
        self.told = ipywidgets.HTML(_dom_classes=("agentlab-told",))
        self._save = save
        self.save_button.on_click(lambda clicked: self._saved())
        row = ipywidgets.HBox([self.folder, self.save_button], layout={"flex_flow": "row wrap"})
        super().__init__([self.corrected, row, self.told])

    def _saved(self) -> None:
        try:
            self.told.value = html_text(self._save(self.corrected.value, self.folder.value.strip()))
            self.children = (self.told,)
        except AgentlabError as problem:
            self.told.value = html_text(str(problem), RED)
