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

from agentlab.core.errors import AgentlabError
from agentlab.core.messages import Reply
from agentlab.data.conversations import Turn
from agentlab.data.documents import Document
from agentlab.lab.chat import Chat
from agentlab.lab.lab import Lab
from agentlab.notebook.answers import FlowComparison
from agentlab.notebook.case_form import CaseForm
from agentlab.notebook.chat_column import ChatColumn
from agentlab.notebook.chat_form import ALONE, AS_GIVEN, NO_DOCUMENTS, ChatForm
from agentlab.notebook.turn_view import TurnView, side_by_side

BEFORE_ENTER = 0.2
_WIDGETS = count(1)
DEFAULT_CASE_FOLDER = "datasets/from_chat"
OPENING, WORKING = "starting the model and opening the documents…", "working…"


class ChatWidget(ChatForm):
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
        # Where the widget lives, what is kept for readers without a kernel is not shown.
        self._kept_name = f"agentlab-kept-{next(_WIDGETS)}"
        super().__init__(lab, speaker, memory, self._kept_name)
        self.lab = lab
        self._given_documents = documents
        self._begins_with: Sequence[Turn] = ()
        self.asked: list[tuple[str, list[TurnView]]] = []
        """The questions on display, each with a turn a column; the last one is the one under way."""
        self.answering: Any = None
        """The `concurrent.futures` future of the last reply; its result is a Reply, or None where there is none."""
        self._kept: Any = None
        """The display of the kept page, once the widget is shown."""
        self._seats: list[ChatColumn] = []
        self._cases = DEFAULT_CASE_FOLDER
        self.flow.observe(partial(self._flow_chosen, self.model), "value")
        self.second_flow.observe(partial(self._flow_chosen, self.model_beside), "value")
        for picker in (self.model, self.model_beside, self.memory, self.documents):
            picker.observe(lambda change: self._begin_anew(), "value")
        self.send_button.on_click(lambda button: self._send_typed())
        self.stop_button.on_click(lambda button: self.stop())
        self.clear_button.on_click(lambda button: self.clear())
        # `Text.on_submit` is deprecated, and what replaces it also fires when the cursor merely leaves the field.
        self.ask.on_msg(lambda widget, content, buffers: self._enter(content))

    def __repr__(self) -> str:
        beside = (
            "" if self.second_flow.value == ALONE else f" and {self.second_flow.value} on {self.model_beside.value}"
        )
        return f"<ChatWidget: {self.flow.value} on {self.model.value}{beside}, {len(self.asked)} turns>"

    @property
    def turns(self) -> list[TurnView]:
        """The turns on display, of the first flow."""
        return [turns[0] for _, turns in self.asked]

    @property
    def chat(self) -> Chat | None:
        """The conversation of the first flow; None before its first turn."""
        return self._seats[0].chat if self._seats else None

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
        for seat in self._seats if self.is_busy else ():
            seat.stop()

    def clear(self) -> None:
        """Empty the display and begin a new conversation."""
        self._leave()
        self._begins_with = ()
        self.asked = []
        self.transcript.clear()
        self._refresh_saved_output()

    def close(self) -> None:
        """End the conversation; the lab stays open."""
        self._leave()
        super().close()

    # What a hand does.

    def _send_typed(self) -> None:
        text = self.ask.value.strip()
        if text and not self.is_busy:
            self.ask.value = ""
            self.go_to_end()
            self._start(text)

    def _enter(self, content: dict[str, Any]) -> None:
        # The browser says that Enter was pressed before it sends the text.
        if content.get("event") == "submit":
            self.lab.loop.submit(self._send_soon())

    async def _send_soon(self) -> None:
        await asyncio.sleep(BEFORE_ENTER)
        self._send_typed()

    def _fork(self, question: str, chat: Chat, place: int) -> None:
        if not self.is_busy:
            self._begins_with = chat.turns_until(place)
            self._leave()
            self.transcript.mark(
                f"a fork: it goes on after “{question}”, under the flow and the model that are chosen now"
            )
            self.go_to_end()

    def _open_form(self, turn: TurnView, reply: Reply, chat: Chat, place: int) -> None:
        said = str(reply.data.get("chat", reply.text))
        form = CaseForm(said, self._cases, self.lab.bench.spec.datasets, partial(self._save_case, chat, place))
        turn.form.children = () if turn.form.children else (form,)

    def _save_case(self, chat: Chat, place: int, corrected: str, folder: str) -> str:
        case = chat.save_case(place, corrected, folder)
        self._cases = folder
        return f"saved as {case} in {folder}: agentlab run --dataset {folder} --flow {chat.variant.label}"

    # A turn.

    def _start(self, text: str) -> Any:
        self._seats = self._seats or self._new_seats()
        speaker = self.speaker.value.strip()
        by = f", asked by {speaker}" if speaker else ""
        turns = [
            TurnView(seat, WORKING if seat.chat else OPENING, by, self._refresh_saved_output) for seat in self._seats
        ]
        self.asked.append((text, turns))
        self.transcript.add(side_by_side(text, turns))
        self.show_busy(True)
        self.answering = self.lab.loop.submit(self._answer(turns, text, speaker))
        return self.answering

    def _new_seats(self) -> list[ChatColumn]:
        memory = self.memory.value.strip()
        options = {"documents": self._chosen_documents(), "begins_with": self._begins_with}
        self._begins_with = ()
        columns = [
            (self.flow, self.model, memory),
            (self.second_flow, self.model_beside, memory and f"{memory}-beside"),
        ]
        return [
            ChatColumn(self.lab, flow.value, model.value.strip(), memory=folder or None, **options)
            for flow, model, folder in columns
            if flow.value != ALONE
        ]

    async def _answer(self, turns: list[TurnView], text: str, speaker: str) -> Reply | None:
        name, _, number = speaker.partition(":")
        by = {"speaker_name": name or None, "speaker_id": number or name or None}
        try:
            answers = await asyncio.gather(*(turn.show(text, **by) for turn in turns))
        finally:
            self.show_busy(False)
        for turn, answer in zip(turns, answers, strict=True):
            if answer.reply is not None and (chat := turn.seat.chat) is not None:
                here = chat, len(chat.turn_rows)
                turn.add_button("Fork", "Go on from here", partial(self._fork, text, *here))
                turn.add_button(
                    "Save as test", "Add this turn to a data set", partial(self._open_form, turn, answer.reply, *here)
                )
        self._refresh_saved_output()
        return answers[0].reply

    def _chosen_documents(self) -> Any:
        chosen = self.documents.value.strip()
        if chosen in ("", AS_GIVEN):
            return self._given_documents
        if chosen == NO_DOCUMENTS:
            return ()
        corpus = Path(chosen) / "corpus.jsonl"
        return corpus if corpus.is_file() else chosen

    # Another conversation.

    def _flow_chosen(self, model: Any, change: Any) -> None:
        self._begin_anew()
        model.layout.display = "none" if change["new"] == ALONE else "flex"
        if change["new"] != ALONE:
            model.value = self.lab.bench.variant(change["new"]).model

    def _begin_anew(self) -> None:
        if self._leave():
            self.transcript.mark("a new conversation")

    def _leave(self) -> bool:
        seats, self._seats = self._seats, []
        # A lab that is closed has closed its chats.
        for seat in seats if self.lab.loop.is_running else ():
            self.lab.loop.submit(seat.close())
        return any(seat.chat is not None for seat in seats)

    # For readers without a kernel.

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self._repr_mimebundle_(), raw=True)  # type: ignore[no-untyped-call]
        self._kept = display(self._static(), raw=True, display_id=self._kept_name)  # type: ignore[no-untyped-call]

    def _refresh_saved_output(self) -> None:
        """Renew what stands in the notebook file; from any thread."""
        if self._kept is not None:
            self._kept.update(self._static(), raw=True)

    def _static(self) -> dict[str, str]:
        """The conversation as text and as HTML, with the answers that there are by now."""
        rounds = [FlowComparison(text, tuple(t.answer for t in turns if t.answer)) for text, turns in self.asked]
        page = f'<div class="{self._kept_name}">{"".join(each._repr_html_() for each in rounds)}</div>'
        return {"text/plain": "\n\n".join(map(repr, [self, *rounds])), "text/html": page}
