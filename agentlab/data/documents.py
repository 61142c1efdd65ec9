"""Documents, from the `corpus.jsonl` of a data set or from a folder of .md, .txt and .html files.

    {"doc_id": "law-11", "title": "Law 11: Offside", "text": "A player is offside if ...", "metadata": {}}

`metadata` is optional and free. All other keys are strict: an invalid row raises a DatasetError with file, line and
key. Only HTML is converted to text; nothing is split, cleaned or indexed here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from agentlab.core.errors import DatasetError
from agentlab.core.files import read_text
from agentlab.core.jsonl import STRICT, read_rows
from agentlab.data import markup

_MAX_FILE_BYTES = 20_000_000


class Document(BaseModel):
    """One document of a corpus: `doc_id` (unique), `title` (may be empty), `text` and free `metadata`."""

    model_config = STRICT

    doc_id: str
    title: str
    text: str
    metadata: dict[str, Any] = {}


def load_documents(path: str | Path) -> tuple[Document, ...]:
    """Read documents from a .jsonl file, or from all .md, .txt and .html files of a folder, in order of path.

    In a folder the id of a document is its relative path (`rules/offside.md`). Its title is the first heading, the
    HTML `<title>` or the file name. Names that start with a dot are skipped.

    Raises DatasetError for a link out of the folder, a file over 20 MB or not in UTF-8, and if there is no document.
    """
    path = Path(path)
    documents = tuple(_read_folder(path) if path.is_dir() else _read_lines(path))
    if not documents:
        what = "no .md, .txt or .html file in this folder" if path.is_dir() else "no documents in this file"
        raise DatasetError(what, path)
    return documents


def _read_lines(path: Path) -> Iterator[Document]:
    for line, document in read_rows(path, Document, "doc_id"):
        if not document.doc_id.strip():
            raise DatasetError("doc_id: is empty", path, line)
        yield document


_READERS: dict[str, Callable[[str], tuple[str, str]]] = {
    ".md": markup.read_markdown,
    ".txt": lambda text: ("", text),
    ".html": markup.read_html,
    ".htm": markup.read_html,
}


def _read_folder(root: Path) -> Iterator[Document]:
    for path in sorted(_files(root), key=lambda path: path.relative_to(root).as_posix()):
        text = _read_text(path)
        try:
            title, text = _READERS[path.suffix.lower()](text)
        except RecursionError as error:
            raise DatasetError("nested too deep to be read", path) from error
        yield Document(doc_id=path.relative_to(root).as_posix(), title=title or path.stem, text=text)


def _files(root: Path) -> Iterator[Path]:
    def fail(error: OSError) -> None:
        raise DatasetError(f"cannot be read ({error.strerror or error})", error.filename or root) from error

    # os.walk does not follow links to folders: their target is inside the folder and read anyway, or is an error.
    for folder, folders, files in os.walk(root, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in (*folders, *files):
            path = Path(folder, name)
            is_read = name in folders or (path.suffix.lower() in _READERS and not name.startswith("."))
            if is_read and path.is_symlink() and not path.resolve().is_relative_to(root.resolve()):
                raise DatasetError("this link leads out of the folder of documents; copy the file instead", path)
            if is_read and name not in folders:
                yield path


def _read_text(path: Path) -> str:
    """Return the text of a file with Unix line ends; raises DatasetError."""
    try:
        return read_text(path, _MAX_FILE_BYTES).replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, ValueError) as error:
        raise DatasetError(getattr(error, "strerror", None) or str(error), path) from error
