"""Passages in a prompt: numbered for citation, and fenced, because their text is data.

    [1] Law 11: Offside
    <passage>
    A player is in an offside position if ...
    </passage>

A passage cannot close its fence or start a numbered heading: both imitations are escaped, in the prompt only. A model
may still ignore the fence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentlab.core.messages import Passage

_FENCE = re.compile(r"<(?=\s*/?\s*passage)", re.IGNORECASE)
# Matches only if the line continues: `[1]` alone is a list in a document about Python.
_HEADING = re.compile(r"^([^\S\n]*)\[(\d+)\](?=[^\S\n]+\S)", re.MULTILINE)


def format_context(passages: Sequence[Passage], seen: Sequence[Passage] = ()) -> str:
    """Return the passages for a prompt, numbered from [1] in the given order; "" for none.

    A passage in `seen` keeps its number, so that a number means the same passage over several searches. The heading is
    the title, or the document's id without one.
    """
    numbers: dict[str, int] = {}
    for passage in (*seen, *passages):
        numbers.setdefault(passage.id, len(numbers) + 1)
    return "\n\n".join(
        f"[{numbers[passage.id]}] {_heading(passage)}\n<passage>\n{_escape_fence(passage.text.strip())}\n</passage>"
        for passage in passages
    )


def _heading(passage: Passage) -> str:
    return _FENCE.sub("(", " ".join(passage.title.split()) or " ".join(passage.doc_id.split()))


def _escape_fence(text: str) -> str:
    lines = "\n".join(text.splitlines())
    return _HEADING.sub(r"\1(\2)", _FENCE.sub("(", lines))
