"""Tool with which the model searches the indexed documents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentlab.core.errors import ToolError
from agentlab.core.protocols import ToolContext
from agentlab.data.catalogue import resolve_names
from agentlab.data.context import format_context
from agentlab.tools import tool


@tool(
    description="Search the documents for passages that answer a question.",
    parameters={
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
    instruction=(
        'As "query", write what to look for, in words that stand on their own; as "document_names", [] to search all'
        " documents, or the names of those the user asks for."
    ),
    defaults={"document_names": []},
)
async def lookup_documents(arguments: dict[str, Any], context: ToolContext) -> str:
    """Search all indexed documents or the named ones; return the passages found.

    Raises ToolError for an empty query, and if no name belongs to a document.
    """
    query = str(arguments["query"]).strip()
    if not query:
        raise ToolError("lookup_documents: query: is empty; say what to look for")
    doc_ids, unknown = _select(arguments["document_names"], context)
    passages = await context.retrieve(query, doc_ids=doc_ids)
    missing = f" (no document is called {', '.join(map(repr, unknown))})" if unknown else ""
    if not passages:
        return f"Found no sections{missing}."
    noun = "section" if len(passages) == 1 else "sections"
    return f"Found {len(passages)} {noun}{missing}.\n{format_context(passages, context.turn_passages())}"


def _select(names: Sequence[str], context: ToolContext) -> tuple[Sequence[str] | None, Sequence[str]]:
    """Return the ids of the named documents (None: all documents) and the names that no document has."""
    if not names or context.index is None:
        return None, ()
    documents = context.index.documents
    doc_ids, unknown = resolve_names(names, documents)
    if not doc_ids:
        examples = ", ".join(repr(document.title or document.doc_id) for document in documents[:5])
        raise ToolError(
            f"lookup_documents: document_names: no document is called {', '.join(map(repr, unknown))};"
            f" use names from the list ({examples}, ...) or an empty list to search everything"
        )
    return doc_ids, unknown
