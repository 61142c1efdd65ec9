"""The chat widget: choose a flow and a model, type a message, and watch the reply and its calls arrive.

    chat = ChatWidget(lab)              # the last line of a cell shows it
    await chat.say("How wide is a goal?")
    ChatWidget(lab, documents=(), speaker="Alex:1001", memory="my-memory")

`beside` adds a second flow: one question, two columns. Under a reply, *Fork* continues from that turn with the chosen
flow, and *Save as test* adds the turn to a data set.

Python code uses the same widgets as a user: `ask.value = "..."`, `send_button.click()`, `stop_button.click()`,
`flow.value = "tools"`, `turns[0].save_button.click()`. The messages `/memory`, `/remember TEXT` and `/forget N` list,
store and delete facts without the model. `answering` is the future of the running reply. A notebook
without a kernel shows the conversation as text.

All work runs on the lab's own loop: a click may arrive in any thread, and the reply continues while other cells run.
This module needs ipywidgets; `agentlab.notebook.chat_widget` reports if it is missing.
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
from agentlab.core.stream import UserQuestion
from agentlab.data.conversations import Turn
from agentlab.data.documents import Document
from agentlab.lab.chat import Chat
from agentlab.lab.lab import Lab
from agentlab.lab.receipts import MEMORY_COMMANDS
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
    """A chat with the flows of a lab; another flow or model starts a new conversation, except after a fork.

    `speaker` is the user, NAME:ID or a name, for flows that distinguish speakers. `documents` and `memory` are those of
    `Chat`: the default documents are those of the lab's data sets, and the default memory ends with the conversation.
    A second flow stores its memory in `<memory>-beside`.
    """

    def __init__(
        self,
        lab: Lab,
        *,
        documents: Iterable[Document] | str | Path | None = None,
        speaker: str = "",
        memory: str | Path | None = None,
    ) -> None:
        # The saved page is for readers without a kernel, so a live widget hides it.
        self._saved_class = f"agentlab-kept-{next(_WIDGETS)}"
        super().__init__(lab, speaker, memory, self._saved_class)
        self.lab = lab
        self._default_documents = documents
        self._first_turns: Sequence[Turn] = ()
        self.questions: list[tuple[str, list[TurnView]]] = []
        """Questions on display, each with one turn per column; the last one may be running."""
        self.answering: Any = None
        """`concurrent.futures` future of the last reply; its result is a Reply, or None if there is none."""
        self._saved_page: Any = None
        """Display of the saved page, once the widget is shown."""
        self._columns: list[ChatColumn] = []
        self._open_questions: list[UserQuestion] = []
        """Questions of MCP servers that the next typed lines answer."""
        self._cases = DEFAULT_CASE_FOLDER
        self.flow.observe(partial(self._flow_chosen, self.model), "value")
        self.second_flow.observe(partial(self._flow_chosen, self.model_beside), "value")
        for picker in (self.model, self.model_beside, self.memory, self.documents):
            picker.observe(lambda change: self._start_over(), "value")
        self.send_button.on_click(lambda button: self._send_typed())
        self.stop_button.on_click(lambda button: self.stop())
        self.clear_button.on_click(lambda button: self.clear())
        # `Text.on_submit` is deprecated, and its replacement also fires if the cursor leaves the field.
        self.ask.on_msg(lambda widget, content, buffers: self._enter(content))

    def __repr__(self) -> str:
        beside = (
            "" if self.second_flow.value == ALONE else f" and {self.second_flow.value} on {self.model_beside.value}"
        )
        return f"<ChatWidget: {self.flow.value} on {self.model.value}{beside}, {len(self.questions)} turns>"

    @property
    def turns(self) -> list[TurnView]:
        """Turns of the first flow on display."""
        return [turns[0] for _, turns in self.questions]

    @property
    def chat(self) -> Chat | None:
        """Conversation of the first flow; None before its first turn."""
        return self._columns[0].chat if self._columns else None

    @property
    def is_busy(self) -> bool:
        return self.answering is not None and not self.answering.done()

    async def say(self, text: str) -> Reply | None:
        """Send `text` and return the reply; None if it was stopped or failed, as the widget then shows.

        Raises AgentlabError if a reply is still running.
        """
        if self.is_busy:
            raise AgentlabError("the chat is still answering; wait for the reply or stop it")
        reply: Reply | None = await asyncio.wrap_future(self._start(text))
        return reply

    def stop(self) -> None:
        """Cancel the running reply; its text so far stays."""
        for column in self._columns if self.is_busy else ():
            column.stop()

    def clear(self) -> None:
        """Clear the display and start a new conversation."""
        self._leave()
        self._first_turns = ()
        self.questions = []
        self.transcript.clear()
        self._refresh_saved_output()

    def close(self) -> None:
        """End the conversation; the lab stays open."""
        self._leave()
        super().close()

    # Actions of the user.

    def _send_typed(self) -> None:
        text = self.ask.value.strip()
        if self._open_questions and self.is_busy:
            self.ask.value = ""
            self._open_questions.pop(0).reply(text)
        elif text and not self.is_busy:
            self.ask.value = ""
            self.go_to_end()
            self._start(text)

    def _enter(self, content: dict[str, Any]) -> None:
        # The browser reports Enter before it sends the text.
        if content.get("event") == "submit":
            self.lab.loop.submit(self._send_soon())

    async def _send_soon(self) -> None:
        await asyncio.sleep(BEFORE_ENTER)
        self._send_typed()

    def _ask(self, question: UserQuestion) -> None:
        self._open_questions.append(question)
        self.transcript.mark(question.text)
        self.send_button.disabled = False

    def _fork(self, question: str, chat: Chat, turn: int) -> None:
        if not self.is_busy:
            self._first_turns = chat.turns_until(turn)
            self._leave()
            self.transcript.mark(f"a fork: continues after “{question}” with the flow and the model chosen now")
            self.go_to_end()

    def _open_form(self, turn: TurnView, reply: Reply, chat: Chat, number: int) -> None:
        text = str(reply.data.get("chat", reply.text))
        form = CaseForm(text, self._cases, self.lab.bench.spec.datasets, partial(self._save_case, chat, number))
        turn.form.children = () if turn.form.children else (form,)

    def _save_case(self, chat: Chat, turn: int, corrected: str, folder: str) -> str:
        case = chat.save_case(turn, corrected, folder)
        self._cases = folder
        return f"saved as {case} in {folder}: agentlab run --dataset {folder} --flow {chat.variant.label}"

    # A turn.

    def _start(self, text: str) -> Any:
        self._columns = self._columns or self._new_columns()
        self.show_busy(True)
        speaker, (command, _, argument) = self.speaker.value.strip(), text.partition(" ")
        if command in MEMORY_COMMANDS:
            self.answering = self.lab.loop.submit(self._run_command(command, argument.strip(), speaker))
            return self.answering
        by = f", asked by {speaker}" if speaker else ""
        turns = [
            TurnView(seat, WORKING if seat.chat else OPENING, by, self._refresh_saved_output) for seat in self._columns
        ]
        self.questions.append((text, turns))
        self.transcript.add(side_by_side(text, turns))
        self.answering = self.lab.loop.submit(self._answer(turns, text, speaker))
        return self.answering

    async def _run_command(self, command: str, argument: str, speaker: str) -> None:
        name, _, user_id = speaker.partition(":")
        arguments = argument, name or user_id
        try:
            for column in self._columns:
                # In a thread, because the command waits for the loop.
                for line in await asyncio.to_thread(MEMORY_COMMANDS[command], await column.open(), *arguments):
                    self.transcript.mark(line)
        except AgentlabError as problem:
            self.transcript.mark(str(problem))
        finally:
            self.show_busy(False)

    def _new_columns(self) -> list[ChatColumn]:
        memory = self.memory.value.strip()
        options = {"documents": self._chosen_documents(), "begins_with": self._first_turns}
        self._first_turns = ()
        second = self.second_flow, self.model_beside, memory and f"{memory}-beside"
        return [
            ChatColumn(self.lab, flow.value, model.value.strip(), self._ask, memory=folder or None, **options)
            for flow, model, folder in ((self.flow, self.model, memory), second)
            if flow.value != ALONE
        ]

    async def _answer(self, turns: list[TurnView], text: str, speaker: str) -> Reply | None:
        name, _, user_id = speaker.partition(":")
        by = {"speaker_name": name or None, "speaker_id": user_id or name or None}
        try:
            answers = await asyncio.gather(*(turn.show(text, **by) for turn in turns))
        finally:
            self._open_questions.clear()
            self.show_busy(False)
        for turn, answer in zip(turns, answers, strict=True):
            self.lab.loop.submit(turn.show_receipts())
            if answer.reply is not None and (chat := turn.seat.chat) is not None:
                at = chat, len(chat.turn_rows)
                turn.add_button("Fork", "Continue from here", partial(self._fork, text, *at))
                open_form = partial(self._open_form, turn, answer.reply, *at)
                turn.add_button("Save as test", "Add this turn to a data set", open_form)
        self._refresh_saved_output()
        return answers[0].reply

    def _chosen_documents(self) -> Any:
        chosen = self.documents.value.strip()
        if chosen in ("", AS_GIVEN):
            return self._default_documents
        if chosen == NO_DOCUMENTS:
            return ()
        corpus = Path(chosen) / "corpus.jsonl"
        return corpus if corpus.is_file() else chosen

    # Another conversation.

    def _flow_chosen(self, model: Any, change: Any) -> None:
        self._start_over()
        model.layout.display = "none" if change["new"] == ALONE else "flex"
        if change["new"] != ALONE:
            model.value = self.lab.bench.variant(change["new"]).model

    def _start_over(self) -> None:
        if self._leave():
            self.transcript.mark("a new conversation")

    def _leave(self) -> bool:
        columns, self._columns = self._columns, []
        # A closed lab has already closed its chats.
        for column in columns if self.lab.loop.is_running else ():
            self.lab.loop.submit(column.close())
        return any(column.chat is not None for column in columns)

    # For readers without a kernel.

    def _ipython_display_(self) -> None:
        from IPython.display import display

        display(self._repr_mimebundle_(), raw=True)  # type: ignore[no-untyped-call]
        self._saved_page = display(self._page(), raw=True, display_id=self._saved_class)  # type: ignore[no-untyped-call]

    def _refresh_saved_output(self) -> None:
        """Update the conversation in the notebook file; any thread may call this."""
        if self._saved_page is not None:
            self._saved_page.update(self._page(), raw=True)

    def _page(self) -> dict[str, str]:
        """Return the conversation so far, as text and as HTML."""
        rounds = [FlowComparison(text, tuple(t.answer for t in turns if t.answer)) for text, turns in self.questions]
        page = f'<div class="{self._saved_class}">{"".join(each._repr_html_() for each in rounds)}</div>'
        return {"text/plain": "\n\n".join(map(repr, [self, *rounds])), "text/html": page}
