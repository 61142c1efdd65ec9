"""Makes conversations of a table of questions: one row a turn, several rows a conversation.

made = read_questions("questions.csv", {"user": "Frage"})
made.conversations, made.lines      # `lines` say which column became what, and count what was not taken
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from agentlab.core.errors import DatasetError
from agentlab.data.columns import ROLES, guess_columns, plain, words
from agentlab.data.conversations import INGEST_PREFIX, Conversation, Turn
from agentlab.data.documents import Document
from agentlab.data.markup import read_html
from agentlab.data.tables import Table, literal, read_table

_MAX_LISTED_ROWS = 8
SEPARATORS = ("||", "|", ";", "\n", " / ")
"""Signs between several answers in a cell, the surest first."""
_SURE = ("||", "|")
_PART = re.compile(r"(?!\s*([-*•\u2013]|\d+[.)])\s).{0,59}[^,:.\s]", re.DOTALL)
"""Matches a part of a cell that can be one of several answers: short, and neither a list item nor a sentence."""
_CHECK = re.compile(r"(?:equals|i?contains(?:-any|-all)?|similar(?:\([\d.]+\))?|starts-with): *", re.IGNORECASE)
"""Prefix of an expected value in a table of promptfoo."""
_TEXT_TYPES = (None, "text", "equals", "contains", "icontains", "contains-any", "icontains-any", "similar", "textarea")
_TEXT_KEYS = ("text", "value", "answer", "content", "output", "message", "expected", "result")
_OPTION = re.compile(r"(?:(?:option|choice|answer|antwort|auswahl|réponse|opción)[\W_]*)?([a-h]|\d)\b.{0,30}", re.I)
"""Name of a column with one choice, and its letter or number."""
_TAG = re.compile(r"</?(p|div|br|span|a|b|i|ul|ol|li|strong|em|table)\b[^>]*>", re.IGNORECASE)
_NOTHING = re.compile(r"[-\u2013\u2014:_.?\s]*|#(REF|NAME|VALUE|DIV/0|NUM|NULL|SPILL|CALC|N/A)[!?]?|Err:\d+")
"""Matches cells without a text: signs only, or the error of a formula."""
Row = tuple[int, Mapping[str, Any]]


class Questions(NamedTuple):
    """Conversations made from a table, and lines for the user: columns by meaning, rows not taken by cause."""

    conversations: list[Conversation]
    lines: list[str]


def read_questions(
    path: str | Path,
    columns: Mapping[str, str] | None = None,
    *,
    sheet: str | None = None,
    split: str | None = None,
    documents: Sequence[Document] = (),
) -> Questions:
    """Read a CSV, TSV, XLSX, JSON or JSONL file of questions.

    `columns` maps meanings to column names and overrides the guess. `split` separates answers in a cell, "none" if
    nothing does (default: as the file does it). `documents` are those that a row may name.

    Raises DatasetError in one line for a file that cannot be read, or without any question.
    """
    path = Path(path)
    try:
        table = read_table(path, sheet)
        if not table.rows:
            raise ValueError("the file contains no rows")
        roles = guess_columns(table.header, table.rows, columns or {})
        reader = _Reader(path.name, roles, table, split, documents)
        if not (conversations := reader.conversations()):
            causes = ", ".join(cause.removeprefix("not taken, ") for cause in reader.problems)
            raise ValueError(f"no row has a question in {roles['user'][0]!r} ({causes}); name it: --column user=NAME")
    except OSError as problem:
        raise DatasetError(f"cannot be read ({problem.strerror or problem})", path) from None
    except (ValueError, RecursionError) as problem:
        raise DatasetError(str(problem), path) from None
    turns = sum(len(conversation.turns) for conversation in conversations)
    size = f"{turns} questions" + (f" in {len(conversations)} conversations" if len(conversations) < turns else "")
    lines = ["; ".join([f"{path.name}: {size} from {len(table.rows)} rows", *table.notes])]
    lines += [f"  {r:12} <- {', '.join(roles[r])}{reader.remarks.get(r, '')}" for r in ROLES if r in roles]
    used = {name for names in roles.values() for name in names}
    if unused := [name for name in table.header if name not in used]:
        lines.append(f"  not used: {', '.join(unused)}")
    if not any(turn.reference_answers or turn.unanswerable for each in conversations for turn in each.turns):
        lines.append("  no answers, so nothing grades the replies; if a column has them: --column answers=NAME")
    return Questions(conversations, [*lines, *(_count(*problem) for problem in reader.problems.items())])


def _count(cause: str, rows: Sequence[int]) -> str:
    more = f" and {len(rows) - _MAX_LISTED_ROWS} more" if len(rows) > _MAX_LISTED_ROWS else ""
    return f"  {cause}: {len(rows)} (row {', '.join(map(str, rows[:_MAX_LISTED_ROWS]))}{more})"


class _Reader:
    """Makes conversations from rows; `problems` lists the rows of each value that is left out, by cause."""

    def __init__(
        self, file: str, roles: Mapping[str, list[str]], table: Table, split: str | None, documents: Sequence[Document]
    ) -> None:
        self._file = file
        self._roles = roles
        self._rows = table.rows
        self._names: dict[str, set[str]] = defaultdict(set)
        for doc_id, title in ((document.doc_id, document.title) for document in documents):
            for each in (doc_id, PurePosixPath(doc_id).name, PurePosixPath(doc_id).stem, title):
                self._names[each.casefold()].add(doc_id)
        self.problems: dict[str, list[int]] = defaultdict(list)
        self.remarks = {} if documents else {"document": "; not used without --documents"}
        free = [name for name in table.header if name not in chain.from_iterable(roles.values())]
        options = {match[1].casefold(): name for name in free if (match := _OPTION.fullmatch(name))}
        self._options = options if options.keys() & {"a", "0", "1"} else {}  # `3. Notes` alone is no choice
        self._separator = None if split == "none" else split or self._usual_separator()

    def conversations(self) -> list[Conversation]:
        """Return the conversations in the order of their first rows."""
        made = []
        for name, rows in self._grouped().items():
            if all(self._number(row) is not None for _, row in rows):
                rows.sort(key=lambda pair: self._number(pair[1]) or 0)
            if turns := self._turns(rows):
                made.append(Conversation(id=name, turns=turns, source=f"{self._file}, row {rows[0][0]}"))
        return made

    def _grouped(self) -> dict[str, list[Row]]:
        """Return the rows of each conversation by its id."""
        ids = Counter(self._text(row, "id") for _, row in self._rows)
        has_parts = "turn" in self._roles and max(ids.values()) > 1 and len(ids) > 1
        role = "conversation" if "conversation" in self._roles else "id" if has_parts else ""
        groups: dict[str, list[Row]] = {}
        name, before = "", float("inf")
        for number, row in self._rows:
            own, turn = self._text(row, role or "id"), self._number(row)
            own = own if own and not own.startswith(INGEST_PREFIX) else ""
            repeats = own in groups and self._text(groups[own][0][1], "user") == self._text(row, "user")
            # A blank cell continues the conversation above. Without such a column a higher turn does.
            if not role and (turn is None or turn <= before) and not repeats:
                if own in groups:
                    self.problems["duplicate id, so the row number is added"].append(number)
                name = f"{own}-row-{number}" if own in groups else own or f"row-{number:03}"
            elif role or repeats:
                name = own or name or f"row-{number:03}"
            before = float("inf") if turn is None else turn
            groups.setdefault(name, []).append((number, row))
        return groups

    def _number(self, row: Mapping[str, Any]) -> float | None:
        match = re.fullmatch(r"\D*(\d+(?:\.\d+)?)\D*", self._text(row, "turn"))
        return float(match[1]) if match else None

    def _turns(self, rows: Sequence[Row]) -> list[Turn]:
        turns: list[Turn] = []
        last = ""
        for number, row in rows:
            messages = self._messages(row)
            if not any(speaker for speaker, _ in messages):
                cause = "its speaker is neither user nor assistant" if messages else "no question"
                self.problems[f"not taken, {cause}"].append(number)
                continue
            for speaker, text in messages:
                answers = turns[-1].reference_answers if turns else []
                if speaker == "agent":
                    answers[:] = ["\n".join([*answers, text]) if last == "agent" else text]
                elif speaker == "user" and last == "user" and "speaker" in self._roles:
                    turns[-1] = Turn(user=f"{turns[-1].user}\n{text}")
                elif speaker == "user":
                    turns.append(Turn(user=text))
                last = speaker
            expected = self._expected(number, row) if turns and last == "user" else {}
            if len(turns) > 1 and turns[-2].user == turns[-1].user and expected:
                self.problems["repeats a question, so its answers are alternatives"].append(number)
                answers = turns[-2].reference_answers
                answers += [each for each in expected.get("reference_answers", ()) if each not in answers]
                turns.pop()
            elif turns:
                turns[-1] = turns[-1].model_copy(update=expected)
        return turns

    def _messages(self, row: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return the messages of a row with their speakers; the speaker is "" if it is neither user nor assistant."""
        if messages := [message for value in self._values(row, "user") for message in messages_of(value)]:
            return messages
        speaker = speaker_of(self._text(row, "speaker")) if "speaker" in self._roles else "user"
        texts, answers = self._texts(row, "user"), self._texts(row, "answers")
        if len(texts) == len(answers) > 1:  # a list of turns, and an answer to each
            return [
                each for both in zip(texts, answers, strict=True) for each in zip(("user", "agent"), both, strict=True)
            ]
        return [(speaker, text) for text in texts]

    def _expected(self, number: int, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the keys of a turn that the other columns of its row give."""
        answers = split_answers(self._texts(row, "answers"), self._separator)
        options = re.findall(r"\w+", " ".join(answers).casefold())
        if len(self._options) > 1 and options and all(option in self._options for option in options):
            answers = [text for option in options for text in texts_of(row.get(self._options[option]))]
        keys: dict[str, Any] = {}
        if metadata := {role: text for role in ("category", "language") if (text := self._text(row, role))}:
            keys["metadata"] = metadata
        if relevant := self._relevant(number, row):
            keys["relevant_doc_ids"] = relevant
        unanswerable = bool(answers) and all(plain(answer) in words("refusal") for answer in answers)
        # SQuAD marks a question without an answer by an empty list.
        values = [v.get("text") if isinstance(v, dict) else v for v in self._values(row, "answers")]
        unanswerable |= not answers and [] in values
        # A box that is not ticked is a blank cell.
        unanswerable |= not answers and "answerable" in self._roles and not self._text(row, "answerable")
        for role in ("unanswerable", "answerable"):
            if (text := plain(self._text(row, role))) in words("yes") | words("no") - {""}:
                unanswerable = (text in words("yes")) == (role == "unanswerable")
            elif text:
                self.problems[f"{role} is neither yes nor no"].append(number)
        if unanswerable:
            keys |= {"unanswerable": True, **({"relevant_doc_ids": []} if relevant else {})}
        elif answers:
            keys["reference_answers"] = answers
        elif "answers" in self._roles:
            self.problems["no answer and not marked as unanswerable, so nothing grades it"].append(number)
        return keys

    def _relevant(self, number: int, row: Mapping[str, Any]) -> list[str]:
        """Return the ids of the documents that a row names."""
        names = self._names
        texts = self._texts(row, "document") if names else []
        parts = [part for text in texts for part in ([text] if _document(text, names) else re.split(r"[;|,\n]", text))]
        ids = [_document(part.strip(), names) for part in parts if part.strip()]
        if None in ids:
            self.problems["names no single document of --documents"].append(number)
        return list(dict.fromkeys(filter(None, ids)))

    def _values(self, row: Mapping[str, Any], role: str) -> list[Any]:
        return [row[name] for name in self._roles.get(role, ()) if name in row]

    def _texts(self, row: Mapping[str, Any], role: str) -> list[str]:
        return [text for value in self._values(row, role) for text in texts_of(value)]

    def _text(self, row: Mapping[str, Any], role: str) -> str:
        return ", ".join(self._texts(row, role))

    def _usual_separator(self) -> str | None:
        """Return the sign between several answers in a cell, and describe it with an example."""
        cells = [text for _, row in self._rows for text in self._texts(row, "answers")]
        if (separator := separator_of(cells)) is not None:
            split = [cell for cell in cells if separator in cell]
            example = " and ".join(repr(part)[:40] for part in split_answers(split[:1], separator)[:2])
            self.remarks["answers"] = f"; split at {separator!r} in {len(split)} cells: {example} (--split none)"
        return separator


def _document(name: str, names: Mapping[str, set[str]]) -> str | None:
    """Return the id of the one document with a name, path, file name, title or address; None without exactly one."""
    path = PurePosixPath(unquote(urlsplit(name).path.rstrip("/").replace("\\", "/")) or name)
    forms = (name, str(path), path.name, path.stem)
    return next((min(ids) for form in forms if len(ids := names.get(form.casefold(), ())) == 1), None)


def texts_of(value: Any, depth: int = 8) -> list[str]:
    """Return the texts in a cell: those of a list, the text of an object, HTML as its visible text; [] if blank."""
    value = literal(value) or value if isinstance(value, str) else value
    if isinstance(value, list):
        return [text for item in value if depth for text in texts_of(item, depth - 1)]
    if isinstance(value, dict):
        texts: Any = next((value[key] for key in _TEXT_KEYS if value.get(key)), [])
        return texts_of(texts, depth - 1) if depth and value.get("type") in _TEXT_TYPES else []
    text = str(value or "").strip()
    text = read_html(text)[1] if _TAG.search(text) else text
    return [] if plain(text) in words("blank") or _NOTHING.fullmatch(text) else [text]


def messages_of(value: Any) -> list[tuple[str, str]]:
    """Return the messages in a cell as (`user` or `agent`, text); [] for a cell without messages of roles."""
    value = literal(value) if isinstance(value, str) else value
    rows = value if isinstance(value, list) and all(isinstance(row, dict) for row in value) else []
    messages = [(speaker_of(row.get("role", row.get("from", ""))), "\n".join(texts_of(row))) for row in rows]
    return [(speaker, text) for speaker, text in messages if speaker and text]


def speaker_of(name: Any) -> str:
    """Return `user`, `agent`, or "" for a role such as `system`."""
    name = plain(name)
    return "user" if name in words("user speakers") else "agent" if name in words("agent speakers") else ""


def separator_of(cells: Sequence[str]) -> str | None:
    """Return the sign between several answers, as cells with it use it; None if cells hold one answer each."""
    for separator in SEPARATORS:
        parts = [part.strip() for cell in cells if separator in cell for part in cell.split(separator)]
        are_answers = separator in _SURE or (len(parts) > 3 and all(map(_PART.fullmatch, parts)))
        if parts and all(parts) and are_answers:
            return separator
    return None


def split_answers(texts: Iterable[str], separator: str | None) -> list[str]:
    """Return the distinct answers of a cell, without the prefixes of checks and without checks that hold no answer."""
    texts = [text for text in texts if not (":" in text and plain(text.partition(":")[0]) in words("checks"))]
    parts = [part for text in texts for part in (text.split(separator) if separator else [text])]
    return list(dict.fromkeys(bare for part in parts if (bare := _CHECK.sub("", part.strip(), 1).strip())))
