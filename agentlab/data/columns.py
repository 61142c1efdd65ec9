"""Finds the columns of a table of questions: by their names in many languages, then by their content.

guess_columns(["Nr", "Frage", "Antwort"], rows, {})
# {"id": ["Nr"], "user": ["Frage"], "answers": ["Antwort"]}
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentlab.core.files import read_text
from agentlab.core.plugins import unknown_name
from agentlab.core.strict_json import load_own_yaml

ROLES = (
    *("user", "answers", "id", "conversation", "turn", "speaker", "category", "unanswerable", "answerable"),
    *("language", "document"),
)
"""Meanings of a column; a name with several meanings gets the first free one."""
Rows = Sequence[tuple[int, Mapping[str, Any]]]
_WHOLE_NAMES_ONLY = ("id", "turn", "speaker")
_QUESTION_MARKS = ("?", "\uff1f", "\u061f")
_FIRST_VAGUE_RANK = 6
"""Rank from which a name is vague, such as `body`: a column with more questions has precedence."""
_DATA = re.compile(r"[?\uff1f\u061f!.]\s*$|^[\d.,%]+$|.{41}")
"""Signs of a value: the end of a sentence, a number or a long text. Names of columns have none of them."""
_MAX_HEADER_ROW = 30
_SAMPLE_ROWS = 500


@functools.cache
def _lists() -> dict[str, Any]:
    lists: dict[str, Any] = load_own_yaml(read_text(Path(__file__).parent / "column_names.yaml"))
    return lists


@functools.cache
def words(name: str) -> frozenset[str]:
    """Return the values of a list of `column_names.yaml`, such as `yes`, in their plain form."""
    return frozenset(map(plain, _lists()[name]))


@functools.cache
def _roles_by_name() -> dict[str, list[tuple[int, int]]]:
    """Return rank and role of each known name; the smaller, the surer."""
    names: dict[str, list[tuple[int, int]]] = {}
    for order, role in enumerate(ROLES):
        for rank, spellings in enumerate(_lists()[role]):
            for spelling in spellings:
                names.setdefault(plain(spelling), []).append((rank, order))
    return names


def plain(name: Any) -> str:
    """Return a name without case, accents, signs and a number at its end; a mark such as `-` stays as it is."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", str(name))
    letters = unicodedata.normalize("NFKD", spaced).casefold()
    parts = re.findall(r"[^\W_]+|^[-#?.✓✔\u2013\u2014]+$", "".join(c for c in letters if not unicodedata.combining(c)))
    return re.sub(r"(?<=[^\W\d])\s*\d+$", "", " ".join(parts))


def names_of_columns(cells: Iterable[Any]) -> int:
    """Return the number of cells that are a known name of a column."""
    names = _roles_by_name().keys() | words("alternatives") | words("of no use")
    return sum(plain(cell) in names for cell in cells if isinstance(cell, str) and len(cell) < 60)


def find_header(rows: Sequence[Sequence[str]]) -> int | None:
    """Return the index of the row with the names of the columns; None if the table begins with data.

    Titles and notes may precede it.
    """
    filled = [sum(map(bool, row)) for row in rows]
    candidates = [i for i, cells in enumerate(filled[:_MAX_HEADER_ROW]) if cells >= min(2, max(filled))]
    if not candidates or not any(filled):
        return None
    scores = [names_of_columns(rows[index]) for index in candidates]
    if any(scores):
        return candidates[scores.index(max(scores))]
    first = next(index for index in candidates if filled[index])
    cells = [cell for cell in rows[first] if cell]
    return None if any(map(_DATA.search, cells)) or len(set(cells)) < len(cells) else first


def guess_columns(header: Sequence[str], rows: Rows, overrides: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the columns of each role; `overrides` maps roles to names of columns, "" for none.

    Raises ValueError in one line for an unknown role or column, and without a column of questions.
    """
    chosen: dict[str, list[str]] = {}
    for name, column in overrides.items():
        meanings = _roles_by_name().get(plain(name))
        if name not in ROLES and not meanings:
            raise ValueError(f"--column: {unknown_name('meaning', name, ROLES)}")
        same = [each for each in header if each == column] or [
            c for c in header if column and plain(c) == plain(column)
        ]
        if column and not same:
            raise ValueError(f"--column: {unknown_name('column', column, header)}")
        chosen[name if name in ROLES else ROLES[meanings[0][1]]] = same[:1]  # type: ignore[index]
    matches = (match for name in header for match in _matches(name))
    vague = []
    for _, rank, _, order, column in sorted(matches, key=lambda match: match[:4]):
        if ROLES[order] == "user" and rank >= _FIRST_VAGUE_RANK:
            vague.append(column)
        elif ROLES[order] not in chosen and not any(column in columns for columns in chosen.values()):
            same = [other for other in header if plain(other) == plain(column) or plain(other) in words("alternatives")]
            chosen[ROLES[order]] = same if ROLES[order] == "answers" else [column]
    _guess_by_content(header, rows, chosen, vague)
    return {role: columns for role, columns in chosen.items() if columns}


def _matches(column: str) -> list[tuple[bool, int, int, int, str]]:
    """Return the matches of a name, best first: whole name, last part (`inputs.question`), or a word in it."""
    names, name = _roles_by_name(), plain(column)
    forms = [[name], [plain(re.split(r"[./:]", column)[-1])]]
    forms.append([n for n in names if len(n) > 1 and (f" {n} " in f" {name} " or (not n.isascii() and n in name))])
    return [
        (looseness == 2, rank, looseness, order, column)
        for looseness, group in enumerate(forms if len(column) < 60 else ())
        for form in group
        for rank, order in names.get(form, ())
        if looseness < 2 or ROLES[order] not in _WHOLE_NAMES_ONLY
    ]


def _guess_by_content(header: Sequence[str], rows: Rows, chosen: dict[str, list[str]], vague: Sequence[str]) -> None:
    """Add a column of questions and one of answers, if no sure name has them, from the texts in them.

    A column with one of the `vague` names is taken if no other has more questions.
    """
    free = [column for column in header if not any(column in columns for columns in chosen.values())]
    cells = {column: [str(row[column]) for _, row in rows[:_SAMPLE_ROWS] if row.get(column)] for column in free}
    # Values that repeat are categories, those without a letter numbers or dates.
    texts = [c for c, t in cells.items() if len(set(t)) > len(t) / 2 and any(map(str.isalpha, "".join(t)))]

    def are_questions(column: str) -> float:
        return sum(cell.rstrip().endswith(_QUESTION_MARKS) for cell in cells[column]) / max(1, len(cells[column]))

    likely = [column for column in vague if column in free][:1]
    if "user" not in chosen:
        ordered = [*likely, *sorted(texts, key=are_questions, reverse=True)]
        if not ordered or (not likely and are_questions(ordered[0]) < 1 / 3):
            listed = ", ".join(repr(name) for name in header[:8])
            raise ValueError(f"no column is recognised as the questions; name it: --column user=NAME (one of {listed})")
        chosen["user"] = [next((column for column in ordered if are_questions(column) >= 1 / 3), ordered[0])]
    texts = [column for column in texts if column not in chosen["user"]]
    if "answers" not in chosen and "speaker" not in chosen:
        # In a table without a header the answer follows the question.
        after = {f"column {number + 2}" for number in range(len(header)) if chosen["user"] == [f"column {number + 1}"]}
        answers = [column for column in texts if column in likely or column in after]
        chosen["answers"] = answers or (texts if len(texts) == 1 else [])
