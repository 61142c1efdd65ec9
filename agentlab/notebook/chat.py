"""The chat widget: pick a flow and a model, type, and see the reply and every call behind it arrive.

    chat = ChatWidget(lab)              # the last line of a cell shows it
    await chat.say("How wide is a goal?")
    ChatWidget(lab, documents=(), speaker="Alex:1001", memory="my-memory")

`beside` puts a second flow next to the first: one question, two columns. Under a reply, *Fork* goes on from there,
under whatever flow is chosen then, and *Save as test* makes a case of a data set of it.

From Python it is driven by the same parts a hand uses: `ask.value = "..."`, `send_button.click()`,
`stop_button.click()`, `flow.value = "tools"`, `turns[0].save_button.click()`; `answering` is the future of the reply
under way. Where the notebook is opened without a kernel, the conversation stands there as text.

All work happens on the lab's own loop: a click may arrive in any thread, and the reply goes on while other cells run.
This file needs ipywidgets; `agentlab.notebook.chat_widget` says so where it is missing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import ipywidgets

from agentlab.core.errors import AgentlabError
from agentlab.core.messages import Reply
from agentlab.data.conversations import Turn
from agentlab.data.documents import Document
from agentlab.lab.chat import Chat
from agentlab.lab.lab import Lab
from agentlab.notebook.case_form import CaseForm
from agentlab.notebook.render import STYLE, html_text
from agentlab.notebook.seat import Seat
from agentlab.notebook.turn_view import SMALL, TurnView

BEFORE_ENTER = 0.2
_WIDGETS = count(1)
ALONE = "(no other)"
AS_GIVEN, NO_DOCUMENTS = "(as given)", "(none)"
CASES = "datasets/from_chat"
ASKED = "background: var(--jp-layout-color2, #eee); border-radius: 6px; padding: 4px 10px; margin-bottom: 4px"


class ChatWidget(ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets has no type hints
    """A chat with the flows of a lab. Choosing another flow or model begins a new conversation, unless after a fork.

    `speaker`, NAME:ID or a name, is who types, for flows that tell people apart. `documents` and `memory` are those of
    `Chat`: without them the documents of the lab's data sets, and a memory that ends with the conversation. Of two
    flows side by side the second keeps its memory in a folder of its own, `<memory>-beside`.
    """

    def __init__(
        self,
        lab: Lab,
        *,
        documents: Iterable[Document] | str | Path | None = None,
        speaker: str = "",
        memory: str | Path | None = None,
    ) -> None:
        self.lab = lab
        self._documents = documents
        self._begins_with: Sequence[Turn] = ()
        self.turns: list[TurnView] = []
        """The turns on display, of the first flow; the last one is the one under way."""
        self.answering: Any = None
        """The `concurrent.futures` future of the last reply; its result is a Reply, or None where there is none."""
        self._displays = False
        self._kept_name = f"agentlab-kept-{next(_WIDGETS)}"
        first = lab.bench.variants[0].label
        self._seats = (Seat(lab, first), Seat(lab, first))
        self.flow, self.model = self._seats[0].flow, self._seats[0].model
        self.model_beside = self._seats[1].model
        small, wide = {"width": "auto"}, {"width": "auto", "flex": "1 1 auto"}
        picker = {"flex": "1 1 200px", "max_width": "320px"}
        self.beside = ipywidgets.Dropdown(options=[ALONE, *self.flow.options], description="beside", layout=picker)
        self.speaker = ipywidgets.Text(
            value=speaker, description="speaker", placeholder="NAME:ID", continuous_update=False, layout=picker
        )
        self.memory = ipywidgets.Text(
            value="" if memory is None else str(memory),
            description="memory",
            placeholder="a folder that keeps it",
            continuous_update=False,
            layout=picker,
        )
        self.documents = ipywidgets.Combobox(
            value=AS_GIVEN,
            options=(AS_GIVEN, NO_DOCUMENTS, *lab.bench.spec.datasets),
            description="documents",
            placeholder="a folder, or a corpus.jsonl",
            continuous_update=False,
            layout=picker,
        )
        self._cases = CASES
        self.ask = ipywidgets.Text(placeholder="Type a message", continuous_update=False, layout=wide)
        self.send_button = ipywidgets.Button(description="Send", button_style="primary", layout=small)
        self.stop_button = ipywidgets.Button(description="Stop", disabled=True, layout=small)
        self.clear_button = ipywidgets.Button(
            description="Clear", tooltip="Forget this conversation and begin a new one", layout=small
        )
        self.transcript = ipywidgets.VBox(layout={"flex": "0 0 auto"})
        # The cursor goes there and back when something is sent, and the browser follows it.
        self._end = ipywidgets.Button(layout={"height": "2px", "width": "2px", "flex": "0 0 auto", "padding": "0"})
        self._end.style.button_color = "transparent"
        self._connect_parts()
        # In reverse order the browser keeps the end of the conversation in view as it grows.
        window = ipywidgets.VBox(
            [self._end, self.transcript],
            layout={"flex_flow": "column-reverse", "max_height": "480px", "overflow": "auto", "padding": "4px"},
            _dom_classes=("agentlab-window",),
        )
        # Where the widget lives, what is kept for readers without a kernel is not shown.
        hides = f"<style>.{self._kept_name} {{ display: none }}</style>"
        wraps = {"flex_flow": "row wrap"}
        super().__init__(
            [
                ipywidgets.HTML(f"{STYLE}{hides}", layout={"height": "0", "margin": "0"}),
                ipywidgets.HBox([self.flow, self.model, self.clear_button], layout=wraps),
                ipywidgets.HBox(
                    [self.beside, self.model_beside, self.speaker, self.memory, self.documents], layout=wraps
                ),
                window,
                ipywidgets.HBox([self.ask, self.send_button, self.stop_button]),
            ],
            layout={"border": "1px solid var(--jp-border-color2, #ccc)", "padding": "8px"},
        )

    def _connect_parts(self) -> None:
        self.model_beside.layout.display = "none"
        self.flow.observe(partial(self._flow_chosen, self._seats[0]), "value")
        self.beside.observe(self._beside_chosen, "value")
        for picker in (self.model, self.model_beside, self.memory, self.documents):
            picker.observe(lambda change: self._begin_anew(), "value")
        self.send_button.on_click(lambda button: self._send_typed())
        self.stop_button.on_click(lambda button: self.stop())
        self.clear_button.on_click(lambda button: self.clear())
        # `Text.on_submit` is deprecated, and what replaces it also fires when the cursor merely leaves the field.
        self.ask.on_msg(lambda widget, content, buffers: self._enter(content))

    def __repr__(self) -> str:
        beside = "" if self.beside.value == ALONE else f" and {self._seats[1]}"
        return f"<ChatWidget: {self._seats[0]}{beside}, {len(self.turns)} turns>"

    @property
    def chat(self) -> Chat | None:
        """The conversation of the first flow; None before its first turn."""
        return self._seats[0].chat

    @property
    def is_busy(self) -> bool:
        return self.answering is not None and not self.answering.done()

    async def say(self, text: str) -> Reply | None:
        """Send `text` and wait for the reply; None where it was stopped or failed, which the widget then shows."""
        if self.is_busy:
            raise AgentlabError("the chat is still answering; wait for the reply or stop it")
        reply: Reply | None = await asyncio.wrap_future(self._start(text))
        return reply

    def stop(self) -> None:
        """Break off the reply under way; what was said so far stays."""
        for seat in self._seats:
            if seat.chat is not None and self.is_busy:
                seat.chat.stop()

    def clear(self) -> None:
        """Empty the display and begin a new conversation."""
        self._leave()
        self._begins_with = ()
        self.turns = []
        self.transcript.children = ()
        self._keep()

    def close(self) -> None:
        """End the conversation; the lab stays open."""
        self._leave()
        super().close()

    # What a hand does.

    def _send_typed(self) -> None:
        text = self.ask.value.strip()
        if text and not self.is_busy:
            self.ask.value = ""
            self._go_to_end()
            self._start(text)

    def _go_to_end(self) -> None:
        self._end.focus()
        self.ask.focus()

    def _enter(self, content: dict[str, Any]) -> None:
        # The browser says that Enter was pressed before it sends the text.
        if content.get("event") == "submit":
            self.lab.loop.start(self._send_soon())

    async def _send_soon(self) -> None:
        await asyncio.sleep(BEFORE_ENTER)
        self._send_typed()

    def _fork(self, turn: TurnView) -> None:
        if not self.is_busy:
            self._begins_with = self._seats[0].fork(turn)
            self._leave()
            self._mark(f"a fork: it goes on after “{turn.question}”, under the flow and the model that are chosen now")
            self._go_to_end()

    def _open_form(self, turn: TurnView) -> None:
        form = CaseForm(turn.answer, self._cases, self.lab.bench.spec.datasets, partial(self._save_case, turn))
        turn.form.children = () if turn.form.children else (form,)

    def _save_case(self, turn: TurnView, corrected: str, folder: str) -> str:
        assert turn.chat is not None and turn.place is not None, "only such a turn has the button"
        case = turn.chat.save_case(turn.place, corrected, folder)
        self._cases = folder
        return f"saved as {case} in {folder}: agentlab run --dataset {folder} --flow {turn.chat.variant.label}"

    # A turn.

    def _start(self, text: str) -> Any:
        seats = self._seats if self.beside.value != ALONE else self._seats[:1]
        turns = [seat.new_turn(text, self.speaker.value.strip()) for seat in seats]
        self.turns.append(turns[0])
        turns[0].beside = turns[1] if len(turns) > 1 else None
        columns = ipywidgets.HBox([turn.view for turn in turns], layout={"flex_flow": "row wrap", "grid_gap": "14px"})
        asked = ipywidgets.HTML(html_text(text, ASKED))
        self.transcript.children += (ipywidgets.VBox([asked, columns], layout={"margin": "0 0 14px 0"}),)
        self._show_busy(True)
        self.answering = self.lab.loop.start(self._answer(seats, turns, text))
        return self.answering

    async def _answer(self, seats: Sequence[Seat], turns: Sequence[TurnView], text: str) -> Reply | None:
        name, _, speaker_id = self.speaker.value.strip().partition(":")
        speaker = {"speaker_name": name or None, "speaker_id": speaker_id or name or None}
        options = {"documents": self._chosen_documents(), "begins_with": self._begins_with}
        memories = [self.memory.value.strip(), f"{self.memory.value.strip()}-beside"]
        try:
            replies = await asyncio.gather(
                *(
                    seat.answer(turn, text, speaker, {**options, "memory": memory if self.memory.value else None})
                    for seat, turn, memory in zip(seats, turns, memories, strict=False)
                )
            )
        finally:
            self._begins_with = ()
            self._show_busy(False)
        for turn in turns:
            turn.on_late = self._keep
            if turn.place is not None:
                turn.fork_button = turn.offer("Fork", "Go on from here", partial(self._fork, turn))
                turn.save_button = turn.offer(
                    "Save as test", "Add this turn to a data set", partial(self._open_form, turn)
                )
        self._keep()
        return replies[0]

    def _chosen_documents(self) -> Any:
        chosen = self.documents.value.strip()
        if chosen in ("", AS_GIVEN):
            return self._documents
        if chosen == NO_DOCUMENTS:
            return ()
        corpus = Path(chosen) / "corpus.jsonl"
        return corpus if corpus.is_file() else chosen

    def _show_busy(self, busy: bool) -> None:
        pickers = (self.flow, self.model, self.beside, self.model_beside, self.memory, self.documents)
        for part in (self.send_button, *pickers):
            part.disabled = busy
        self.stop_button.disabled = not busy

    # Another conversation.

    def _flow_chosen(self, seat: Seat, change: Any) -> None:
        self._begin_anew()
        seat.model.value = self.lab.bench.variant(change["new"]).model

    def _beside_chosen(self, change: Any) -> None:
        self._begin_anew()
        alone = change["new"] == ALONE
        self.model_beside.layout.display = "none" if alone else "flex"
        if not alone:
            self._seats[1].flow.value = change["new"]
            self.model_beside.value = self.lab.bench.variant(change["new"]).model

    def _begin_anew(self) -> None:
        if self._leave():
            self._mark("a new conversation")

    def _leave(self) -> bool:
        left = [seat.leave() for seat in self._seats]
        return any(left)

    def _mark(self, text: str) -> None:
        self.transcript.children += (ipywidgets.HTML(html_text(f"— {text} —", SMALL)),)

    # For readers without a kernel.

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self._repr_mimebundle_(), raw=True)  # type: ignore[no-untyped-call]
        display(self._static(), raw=True, display_id=self._kept_name)  # type: ignore[no-untyped-call]
        self._displays = True

    def _keep(self) -> None:
        """Renew what stands in the notebook file; from any thread."""
        if self._displays:
            from IPython.display import update_display

            update_display(self._static(), raw=True, display_id=self._kept_name)  # type: ignore[no-untyped-call]

    def _static(self) -> dict[str, str]:
        """The conversation as text and as HTML, as it stands now."""
        rows, lines = [], [repr(self)]
        for turn in self.turns:
            shown = [turn, *([turn.beside] if turn.beside else [])]
            cells = "".join(f'<td style="text-align: left; vertical-align: top">{t.static()}</td>' for t in shown)
            rows.append(f"{html_text(turn.question, ASKED)}<table><tr>{cells}</tr></table>")
            lines += [f"\n> {turn.question}", *map(str, shown)]
        page = f'<div class="{self._kept_name}">{"".join(rows)}</div>'
        return {"text/plain": "\n".join(lines), "text/html": page}
