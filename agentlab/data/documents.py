"""Documents, from the `corpus.jsonl` of a data set or from a folder of .md, .txt, .html, .docx and .pdf files.

    {"doc_id": "law-11", "title": "Law 11: Offside", "text": "A player is offside if ...", "metadata": {}}

`metadata` is optional and free. All other keys are strict: an invalid row raises a DatasetError with file, line and
key. Files of a folder become text; menus, headers and footers that repeat on most files of a kind are removed.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from agentlab.core.errors import DatasetError
from agentlab.core.events import shorten
from agentlab.core.files import read_bytes
from agentlab.core.jsonl import STRICT, read_rows
from agentlab.data import markup
from agentlab.data.encodings import decode
from agentlab.data.office_documents import read_docx, read_pdf
from agentlab.data.repeated_lines import remove_repeated

log = logging.getLogger(__name__)
_MAX_FILE_BYTES = 20_000_000
_MAX_MENU_LINES = 100
_MAX_HEADER_LINES = 3


class Document(BaseModel):
    """One document of a corpus: `doc_id` (unique), `title` (may be empty), `text` and free `metadata`."""

    model_config = STRICT

    doc_id: str
    title: str
    text: str
    metadata: dict[str, Any] = {}


def load_documents(path: str | Path, report: Callable[[str], None] = log.warning) -> tuple[Document, ...]:
    """Read documents from a .jsonl file, or from the .md, .txt, .html, .docx and .pdf files of a folder, by path.

    In a folder the id of a document is its relative path (`rules/offside.md`). Its title is that of the file, its first
    heading or the file name. Names that start with a dot are skipped. `report` receives a line for each file without
    readable text, for other kinds of files, and for lines that repeat and were removed.

    Raises DatasetError for a link out of the folder, and if there is no document; MissingExtra for a .docx or .pdf file
    without the extra `documents`.
    """
    path = Path(path)
    if path.is_dir():
        return _read_folder(path, report)
    documents = tuple(_read_lines(path))
    if not documents:
        raise DatasetError("no documents in this file", path)
    return documents


def _read_lines(path: Path) -> Iterator[Document]:
    for line, document in read_rows(path, Document, "doc_id"):
        if not document.doc_id.strip():
            raise DatasetError("doc_id: is empty", path, line)
        yield document


def _text(path: Path, is_html: bool = False) -> str:
    data = read_bytes(path, _MAX_FILE_BYTES)
    if not is_html:
        return decode(data)[0]
    from bs4.dammit import EncodingDetector

    return decode(data, EncodingDetector.find_declared_encoding(data, is_html=True))[0]


_READERS: dict[str, Callable[[Path], tuple[str, str]]] = {
    **{".md": lambda path: markup.read_markdown(_text(path)), ".txt": lambda path: ("", _text(path))},
    **dict.fromkeys((".html", ".htm"), lambda path: markup.read_html(_text(path, is_html=True))),
    **{".docx": read_docx, ".pdf": read_pdf},
}


def _read_folder(root: Path, report: Callable[[str], None]) -> tuple[Document, ...]:
    others = Counter[str]()
    problems = []
    by_kind: dict[str, list[Document]] = {}
    for path in sorted(_files(root), key=lambda path: path.relative_to(root).as_posix()):
        kind, name = path.suffix.lower(), path.relative_to(root).as_posix()
        if kind not in _READERS:
            others[kind or "no suffix"] += 1
            continue
        try:
            title, text = _READERS[kind](path)
            if not text.strip():
                raise ValueError("no text is left of it")
            document = Document(doc_id=name, title=title or path.stem, text=text)
            by_kind.setdefault(kind, []).append(document)
        except RecursionError:
            problems.append(f"{name}: nested too deep to be read")
        except (OSError, ValueError) as problem:
            problems.append(f"{name}: {getattr(problem, 'strerror', None) or problem}")
    if not by_kind:
        what = "; ".join(["no .md, .txt or .html file, no .docx and no .pdf with text in this folder", *problems[:1]])
        raise DatasetError(what, root)
    problems += [f"{n} file{'s' * (n > 1)} of another kind: {kind}" for kind, n in others.items()]
    documents = [page for kind, pages in by_kind.items() for page in _without_menus(kind, pages, problems)]
    for line in problems:
        report(f"not read: {line}")
    return tuple(sorted(documents, key=lambda document: document.doc_id))


def _without_menus(kind: str, pages: Sequence[Document], problems: list[str]) -> list[Document]:
    """Return the files of one kind without the lines that repeat on most of them; add to `problems` how many."""
    max_lines = _MAX_MENU_LINES if kind.startswith(".htm") else _MAX_HEADER_LINES
    texts, removed = remove_repeated([page.text for page in pages], max_lines=max_lines)
    if removed:
        lines = f"{len(removed)} line{'s' * (len(removed) > 1)} at the start or end of most {kind} files"
        problems.append(f"{lines}, such as {shorten(removed[0], 40)!r}")
    return [page.model_copy(update={"text": text}) for page, text in zip(pages, texts, strict=True)]


def _files(root: Path) -> Iterator[Path]:
    def fail(error: OSError) -> None:
        raise DatasetError(f"cannot be read ({error.strerror or error})", error.filename or root) from error

    # os.walk does not follow links to folders: their target is inside the folder and read anyway, or is an error.
    for folder, folders, files in os.walk(root, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in (*folders, *files):
            path = Path(folder, name)
            is_read = name in folders or not name.startswith(".")
            if is_read and path.is_symlink() and not path.resolve().is_relative_to(root.resolve()):
                raise DatasetError("this link leads out of the folder of documents; copy the file instead", path)
            if is_read and name not in folders:
                yield path
