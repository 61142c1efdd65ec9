"""A form over a data set: write conversations, duplicate, tag and check them, and save them as JSON lines.

    editor = notebook.edit_dataset("datasets/mine")     # a folder that is there, or a new one
    editor

What is typed enters the draft at once, if a data set can hold it; what it cannot hold is said and left out. Nothing
reaches the disk before *Save*. All parts can be worked from Python: `editor.user.value = "..."`, `editor.save.click()`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ipywidgets

from agentlab.core.errors import AgentlabError
from agentlab.data.conversations import Conversation, Turn
from agentlab.data.drafts import Draft
from agentlab.notebook.render import GREY, RED, html_text

WIDE = {"width": "auto"}
DOUBTS_SHOWN = 12


class DatasetEditor(ipywidgets.HBox):  # type: ignore[misc]  # ipywidgets has no type hints
    """One conversation and one turn of it at a time; `draft` is what would be saved."""

    def __init__(self, folder: str | Path) -> None:
        self.draft = Draft.open(folder)
        self._filling = False
        self.find = ipywidgets.Text(placeholder="find words or tags", continuous_update=False, layout=WIDE)
        self.conversations = ipywidgets.Select(rows=12, layout=WIDE, _dom_classes=("agentlab-conversations",))
        self.name = ipywidgets.Text(description="id", continuous_update=False)
        self.tags = ipywidgets.Text(description="tags", placeholder="commas between them", continuous_update=False)
        self.turn = ipywidgets.Dropdown(description="turn")
        long: dict[str, Any] = {"continuous_update": False, "layout": WIDE, "rows": 3}
        self.user = ipywidgets.Textarea(description="user", **long)
        self.answers = ipywidgets.Textarea(
            description="answers", placeholder="what is right, an alternative a line", **long
        )
        self.documents = ipywidgets.Text(
            description="documents",
            placeholder="ids of those that hold the answer",
            continuous_update=False,
            layout=WIDE,
        )
        self.unanswerable = ipywidgets.Checkbox(description="cannot be answered", indent=True)
        self.scored = ipywidgets.Checkbox(description="graded", value=True, indent=True)
        self.new = self._button("New", self._add)
        self.duplicate = self._button("Duplicate", lambda: self._show(self.draft.duplicate(self._chosen).id))
        self.remove = self._button("Delete", self._remove)
        self.add_turn = self._button("Add turn", self._add_turn)
        self.remove_turn = self._button("Delete turn", self._remove_turn)
        self.check = self._button("Check", self._check)
        self.save = self._button("Save", self._save)
        self.save.button_style = "primary"
        self.told = ipywidgets.HTML(_dom_classes=("agentlab-told",))
        self._fields = (self.user, self.answers, self.documents, self.unanswerable, self.scored)
        for part in (*self._fields, self.name, self.tags):
            part.observe(lambda change: self._changed(), "value")
        self.conversations.observe(lambda change: self._fill(), "value")
        self.turn.observe(lambda change: self._fill_turn(), "value")
        self.find.observe(lambda change: self._list(), "value")
        wraps = {"flex_flow": "row wrap"}
        left = ipywidgets.VBox(
            [self.find, self.conversations, ipywidgets.HBox([self.new, self.duplicate, self.remove], layout=wraps)],
            layout={"flex": "1 1 220px"},
        )
        right = ipywidgets.VBox(
            [
                ipywidgets.HBox([self.name, self.tags], layout=wraps),
                ipywidgets.HBox([self.turn, self.add_turn, self.remove_turn], layout=wraps),
                self.user,
                self.answers,
                self.documents,
                ipywidgets.HBox([self.unanswerable, self.scored], layout=wraps),
                ipywidgets.HBox([self.check, self.save], layout=wraps),
                self.told,
            ],
            layout={"flex": "3 1 420px"},
        )
        super().__init__([left, right], layout=wraps)
        if not self.draft.conversations:
            self._add()
        self._list()

    def __repr__(self) -> str:
        return f"<DatasetEditor: {len(self.draft.conversations)} conversations for {self.draft.folder.name}>"

    @property
    def _chosen(self) -> str:
        return str(self.conversations.value)

    def _button(self, name: str, does: Callable[[], None]) -> Any:
        def clicked(button: Any) -> None:
            self._tell("")
            try:
                does()
            except AgentlabError as problem:
                self._tell(str(problem), RED)

        button = ipywidgets.Button(description=name, layout=WIDE)
        button.on_click(clicked)
        return button

    def _tell(self, text: str, style: str = GREY) -> None:
        self.told.value = html_text(text, style) if text else ""

    # Showing.

    def _list(self) -> None:
        """The conversations that have all that is looked for; the chosen one stays chosen if it is among them."""
        words = self.find.value.lower().split()
        found = [
            talk
            for talk in self.draft.conversations.values()
            if all(word in talk.model_dump_json().lower() for word in words)
        ]
        chosen = self.conversations.value
        self._filling = True
        self.conversations.options = [(_title(talk), talk.id) for talk in found]
        names = [talk.id for talk in found]
        self.conversations.value = chosen if chosen in names else (names[0] if names else None)
        self._filling = False
        self._fill()

    def _show(self, name: str) -> None:
        self.find.value = ""
        self._list()
        self.conversations.value = name

    def _fill(self, turn: int = 0) -> None:
        if self._filling or self.conversations.value is None:
            return
        talk = self.draft[self._chosen]
        self._filling = True
        self.name.value = talk.id
        self.tags.value = ", ".join(map(str, talk.metadata.get("tags", [])))
        self.turn.options = [(f"{number + 1} of {len(talk.turns)}", number) for number in range(len(talk.turns))]
        self.turn.value = turn
        self._filling = False
        self._fill_turn()

    def _fill_turn(self) -> None:
        if self._filling or self.turn.value is None:
            return
        turn = self.draft[self._chosen].turns[self.turn.value]
        self._filling = True
        self.user.value = turn.user
        self.answers.value = "\n".join(turn.reference_answers)
        self.documents.value = ", ".join(turn.relevant_doc_ids or ())
        self.unanswerable.value, self.scored.value = turn.unanswerable, turn.scored
        self._filling = False

    # Changing.

    def _changed(self) -> None:
        """Take over what is in the fields, unless a data set cannot hold it."""
        if self._filling or self.conversations.value is None:
            return
        name, number = self._chosen, int(self.turn.value)
        talk = self.draft[name]
        documents = [doc for doc in map(str.strip, self.documents.value.split(",")) if doc]
        fields = {
            "user": self.user.value,
            "reference_answers": [line.strip() for line in self.answers.value.splitlines() if line.strip()],
            "relevant_doc_ids": documents or (talk.turns[number].relevant_doc_ids and []),
            "unanswerable": self.unanswerable.value,
            "scored": self.scored.value,
        }
        turns = [turn.model_copy(update=fields) if place == number else turn for place, turn in enumerate(talk.turns)]
        tags = list(dict.fromkeys(tag for tag in map(str.strip, self.tags.value.split(",")) if tag))
        metadata = {key: value for key, value in talk.metadata.items() if key != "tags"} | (
            {"tags": tags} if tags else {}
        )
        changed = talk.model_copy(update={"id": self.name.value.strip(), "turns": turns, "metadata": metadata})
        self._put(changed, number)

    def _put(self, changed: Conversation, turn: int) -> None:
        name = self._chosen
        try:
            self.draft.put(changed, replaces=name)
        except AgentlabError as problem:
            self._tell(f"not taken over: {problem}", RED)
            return
        self._tell("changed, not saved yet")
        self._filling = True
        self.conversations.options = [
            (_title(self.draft[changed.id]) if key == name else title, changed.id if key == name else key)
            for title, key in self.conversations.options
        ]
        self.conversations.value = changed.id
        self._filling = False
        self._fill(turn)

    def _add(self) -> None:
        self._show(self.draft.add([Turn(user="")]).id)

    def _remove(self) -> None:
        self.draft.remove(self._chosen)
        self._list()

    def _add_turn(self) -> None:
        talk = self.draft[self._chosen]
        self._put(talk.model_copy(update={"turns": [*talk.turns, Turn(user="")]}), len(talk.turns))

    def _remove_turn(self) -> None:
        talk, number = self.draft[self._chosen], int(self.turn.value)
        turns = [turn for place, turn in enumerate(talk.turns) if place != number]
        self._put(talk.model_copy(update={"turns": turns}), max(0, number - 1))

    def _check(self) -> None:
        doubts = [*self._empty(), *self.draft.doubts()]
        more = f"\n… and {len(doubts) - DOUBTS_SHOWN} more" if len(doubts) > DOUBTS_SHOWN else ""
        self._tell("\n".join(doubts[:DOUBTS_SHOWN]) + more if doubts else "nothing to doubt")

    def _empty(self) -> list[str]:
        talks = self.draft.conversations.values()
        return [
            f"{talk.id}: turn {n + 1} says nothing" for talk in talks for n, t in enumerate(talk.turns) if not t.user
        ]

    def _save(self) -> None:
        if empty := self._empty():
            raise AgentlabError(f"not saved: {empty[0]}")
        file = self.draft.save()
        self._tell(f"saved: {len(self.draft.conversations)} conversations in {file}")


def _title(talk: Conversation) -> str:
    tags = talk.metadata.get("tags", [])
    return f"{talk.id}: {talk.turns[0].user[:40]}" + (f" [{', '.join(map(str, tags))}]" if tags else "")
