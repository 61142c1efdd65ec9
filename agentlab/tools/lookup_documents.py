"""`lookup_documents`: the model searches the indexed documents, all of them or the ones it names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from agentlab.core.errors import ToolError
from agentlab.core.messages import Passage, ToolSpec
from agentlab.data.catalogue import resolve_names
from agentlab.data.context import format_context

if TYPE_CHECKING:
    from agentlab.session.session import Session

SPEC = ToolSpec(
    name="lookup_documents",
    description="Search the documents for passages that answer a question.",
    parameters={
        "type": "object",
        "properties": {
            # The query comes first because a small model fills in properties in this order, and chooses documents
            # better once it has said what it looks for.
            "query": {"type": "string", "description": "What to look for, in words that stand on their own."},
            "document_names": {
                "type": "array",
                "items": {"type": "string"},
                "maxItems": 5,
                "description": "Normally [], which searches all documents. Only if the user asks for one: its name.",
            },
        },
        "required": ["query", "document_names"],
        "additionalProperties": False,
    },
)


class LookupDocuments:
    spec = SPEC
    instruction = (
        'As "query", write what to look for, in words that stand on their own; as "document_names", [] to search all'
        " documents, or the names of those the user asks for."
    )

    async def run(self, arguments: dict[str, Any], session: Session) -> str:
        """Search and format; raises ToolError for an empty query and for names none of which exist."""
        query = str(arguments["query"]).strip()
        if not query:
            raise ToolError("lookup_documents: query: is empty; say what to look for")
        doc_ids, unknown = _select(arguments["document_names"], session)
        passages = await session.retrieve(query, doc_ids=doc_ids)
        return _format(passages, unknown, session.passages_of_turn())


def build() -> LookupDocuments:
    return LookupDocuments()


def _select(names: Sequence[str], session: Session) -> tuple[Sequence[str] | None, Sequence[str]]:
    if not names or session.index is None:
        return None, ()
    doc_ids, unknown = resolve_names(names, session.index.documents)
    if not doc_ids:
        known = ", ".join(repr(document.title or document.doc_id) for document in session.index.documents[:5])
        raise ToolError(
            f"lookup_documents: document_names: no document is called {', '.join(map(repr, unknown))};"
            f" use names from the list ({known}, ...) or an empty list to search everything"
        )
    return doc_ids, unknown


def _format(passages: Sequence[Passage], unknown: Sequence[str], seen: Sequence[Passage]) -> str:
    missing = f" (no document is called {', '.join(map(repr, unknown))})" if unknown else ""
    if not passages:
        return f"Found no sections{missing}."
    noun = "section" if len(passages) == 1 else "sections"
    return f"Found {len(passages)} {noun}{missing}.\n{format_context(passages, seen)}"
