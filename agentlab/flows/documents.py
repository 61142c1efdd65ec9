"""Steps of the three document flows. Each flow file combines them in its own order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge

from agentlab.core.constants import LOOKUP_DOCUMENTS
from agentlab.core.events import Phase, ToolRun
from agentlab.core.messages import CHARACTERS_PER_TOKEN, Message, Passage, Reply, UserTurn
from agentlab.data.catalogue import document_list
from agentlab.data.context import format_context
from agentlab.flows.text_files import read_texts
from agentlab.knowledge.citations import cite, with_sources, with_titles
from agentlab.knowledge.intent import ends_in_question, read_intent
from agentlab.knowledge.small_talk import is_small_talk
from agentlab.session.session import Session

PROMPTS = read_texts(Path(__file__).with_name("documents.yaml"))


@dataclass(frozen=True, kw_only=True)
class DocumentSettings:
    history: Annotated[int, Ge(0)] = 6
    """Number of earlier messages in the prompt."""
    rag_retrieval: bool = True
    """Let the flow search the documents; if false, only the model searches, with its tool."""
    retrieval_decision: Literal["always", "words", "rules"] = "rules"
    """Searches: always, or not for courtesy, which `rules` read in ten languages and `words` as older recordings do."""
    markers_in_history: bool = False
    """Keep markers such as [1] in earlier replies; if false, the titles of their documents replace them."""
    rewrite_query: bool = False
    """Let the model rewrite the question as a self-contained query before the search: one more call per turn."""

    @property
    def max_calls_per_turn(self) -> int:
        return self.rewrite_query + 1


@dataclass(frozen=True, kw_only=True)
class DocumentToolSettings(DocumentSettings):
    max_rounds: Annotated[int, Ge(1)] = 3
    """Maximum number of model calls with tools per turn; the next call may not use tools."""
    initial_context: bool = False
    """Search the documents once before the first model call, too."""
    document_list_tokens: Annotated[int, Ge(0)] = 300
    """Maximum length of the document list in the prompt, in tokens of four characters."""

    @property
    def max_calls_per_turn(self) -> int:
        # A fallback searches and answers again, but only after a first reply without tools.
        return self.rewrite_query * (1 + self.initial_context) + max(2, self.max_rounds + 1)


async def retrieve_documents(session: Session, turn: UserTurn, history: Sequence[Message]) -> tuple[Passage, ...]:
    """Search all documents for the user's message, if retrieval is available and useful for it."""
    query = turn.text
    with session.step("retrieve_documents"):
        settings: DocumentSettings = session.settings
        problem = "" if settings.rag_retrieval else "retrieval is switched off"
        problem = problem if session.index is not None else "none indexed"
        if not session.decide("documents available", not problem, problem):
            return ()
        is_useful = any(map(str.isalnum, query)) and not _only_greets(query, history, settings.retrieval_decision)
        if not session.decide("should_use_retrieval", is_useful, "" if is_useful else "nothing is to be looked up"):
            return ()
        if session.settings.rewrite_query and history:
            system = Message(role="system", text=session.prompt("rewrite"))
            messages = (system, *history, Message(role="user", text=query))
            rewritten = (await session.complete(messages, phase="rewrite", max_tokens=64)).message.text
            query = " ".join(rewritten.split()) or query
        return await session.retrieve(query)


def _only_greets(message: str, history: Sequence[Message], decision: str) -> bool:
    if decision == "words":
        return is_small_talk(message)
    is_answer = bool(history) and ends_in_question(history[-1].text)
    return decision == "rules" and not is_answer and read_intent(message) == "greets"


async def generate_from_passages(
    session: Session,
    turn: UserTurn,
    history: Sequence[Message],
    passages: Sequence[Passage],
    phase: Phase | None = None,
) -> str:
    """Return the reply of one model call with the passages beside the question and without tools."""
    with session.step("format_context"):
        question = _question_message(session, turn, passages)
    with session.step("generate_response"):
        messages = (Message(role="system", text=session.prompt("system")), *history, question)
        return (await session.complete(messages, phase=phase)).message.text


async def generate_with_tools(session: Session, turn: UserTurn, history: Sequence[Message]) -> str:
    """Call the model, which may use tools in at most `max_rounds` rounds, and return its final reply."""
    settings: DocumentToolSettings = session.settings
    passages = await retrieve_documents(session, turn, history) if settings.initial_context else ()
    with session.step("generate_response_with_tools"):
        with session.step("list_documents"):
            documents = session.index.documents if session.index else ()
            titles = document_list(documents, _estimated_tokens, settings.document_list_tokens)
            if LOOKUP_DOCUMENTS in session.tools:
                system = session.prompt("system_with_tools", tool=LOOKUP_DOCUMENTS, documents=titles)
            else:
                system = session.prompt("system_with_other_tools")
        messages = [Message(role="system", text=system), *history, _question_message(session, turn, passages)]
        tools = session.tool_specs()
        for _ in range(settings.max_rounds):
            reply = (await session.complete(messages, tools=tools)).message
            if not reply.tool_calls:
                return reply.text
            messages.append(reply)
            messages.extend([await session.call_tool(call) for call in reply.tool_calls])
        session.decide("tool limit reached", True, f"{settings.max_rounds} rounds; the next reply has to be an answer")
        return (await session.complete(messages, tools=tools, tool_choice="none")).message.text


def _question_message(session: Session, turn: UserTurn, passages: Sequence[Passage]) -> Message:
    text = turn.text
    if passages:
        text = session.prompt("question", context=format_context(passages), question=turn.text)
    return Message(role="user", text=text)


def tool_was_called(session: Session) -> bool:
    """Return True if the model has called any tool in this turn, also if the tool rejected the call.

    A tool may have had an effect, and a reply made without tools would not mention it. A call whose arguments are no
    JSON object ran no tool.
    """
    return any(isinstance(event, ToolRun) and event.call.malformed is None for event in session.turn_events())


def finish_turn(session: Session, turn: UserTurn, text: str) -> Reply:
    """Append citations, send the reply, store both messages and return the reply."""
    with session.step("append_citations"):
        citations = cite(text, session.turn_passages())
        text_with_sources = with_sources(text, citations)
    with session.step("send_and_persist"):
        session.notify("reply", text_with_sources)
        session.save_message("user", turn.text, speaker=turn.speaker_name)
        stored = text if session.settings.markers_in_history else with_titles(text, citations)
        session.save_message("agent", stored)
    session.notify("info", f"answered with {len(citations)} citation{'' if len(citations) == 1 else 's'}")
    return Reply(text=text, citations=citations, data={"shown": text_with_sources})


def _estimated_tokens(text: str) -> int:
    return len(text) // CHARACTERS_PER_TOKEN + 1
