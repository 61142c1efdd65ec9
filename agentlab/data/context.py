"""Passages as a prompt shows them: numbered for citation, and fenced, because their text is data.

    [1] Law 11: Offside
    <passage>
    A player is in an offside position if ...
    </passage>

Nothing in a passage can close its fence or open a numbered heading of its own: both imitations are defused, in the
prompt only. Whether the model heeds the fence is the model's affair.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentlab.core.messages import Passage

_FENCE = re.compile(r"<(?=\s*/?\s*passage)", re.IGNORECASE)
# Only where more follows on the line: `[1]` alone is a list in a document about Python.
_HEADING = re.compile(r"^([^\S\n]*)\[(\d+)\](?=[^\S\n]+\S)", re.MULTILINE)


def format_context(passages: Sequence[Passage], seen: Sequence[Passage] = ()) -> str:
    """The passages for a prompt, numbered from [1] in the order given; "" for none.

    A passage that is among `seen` keeps the number it has there, so that numbers mean the same over several searches.
    The heading is the title, or the document's id where it has none.
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
