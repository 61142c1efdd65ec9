"""Extracts title and text of PDF and DOCX files. Raises ValueError in one line for a file without readable text.

Rows of tables stay lines, and superscripts keep their place: 10^6.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from agentlab.core.errors import needs
from agentlab.core.files import open_regular_file
from agentlab.data.markup import read_html
from agentlab.data.office_files import MAX_FILE_BYTES, open_office_file
from agentlab.data.repeated_lines import remove_repeated

_MAX_XML_BYTES = 10 * 2**20
_MAX_TEXT_CHARS = 20_000_000
_MAX_HEADER_LINES = 3
_FILE_AS_TITLE = re.compile(r"^\W*$|^untitled|^microsoft |\.\w{2,5}$", re.IGNORECASE)
"""Titles that programs write: the name of a file, or of nothing."""


def read_docx(path: Path) -> tuple[str, str]:
    """Return the title and the text of a DOCX file; pictures and linked files are not read."""
    with needs("A DOCX file", "documents"):
        import mammoth
    with open_office_file(path, "word", _MAX_XML_BYTES) as file:
        try:
            page = mammoth.convert_to_html(file, convert_image=mammoth.images.img_element(lambda image: {})).value
        except Exception as problem:  # the library raises errors of many types for damaged XML
            raise ValueError(f"damaged ({' '.join(str(problem).split())[:200]}); save it again") from None
    return read_html(page)


def read_pdf(path: Path) -> tuple[str, str]:
    """Return the title and the text of a PDF file, without headers and footers that repeat on its pages."""
    with needs("A PDF file", "documents"):
        import pypdfium2 as pdfium
    with open_regular_file(path, MAX_FILE_BYTES) as file:
        try:
            document = pdfium.PdfDocument(file)
        except pdfium.PdfiumError as problem:
            is_locked = "password" in str(problem).lower()
            raise ValueError("encrypted; save it without a password" if is_locked else "not a readable PDF") from None
        try:
            title = str(document.get_metadata_value("Title")).strip()
            pages, size = [], 0
            for page in document:
                pages.append(_page_text(page))
                page.close()
                if (size := size + len(pages[-1])) > _MAX_TEXT_CHARS:
                    raise ValueError(f"more than {_MAX_TEXT_CHARS:,} characters of text; split it")
        except pdfium.PdfiumError as problem:
            raise ValueError(f"damaged ({problem})") from None
        finally:
            document.close()
    if pages and not any(map(str.strip, pages)):
        raise ValueError("its pages are pictures without text; run OCR on it")
    body, _ = remove_repeated(pages, lambda line: re.sub(r"\d+", "#", line.strip()), max_lines=_MAX_HEADER_LINES)
    return "" if _FILE_AS_TITLE.search(title) else title, "\n\n".join(filter(None, map(str.strip, body)))


def _page_text(page: Any) -> str:
    from pypdfium2 import raw

    text_page = page.get_textpage()
    # This text has the right line ends; positions of characters belong to the other one.
    text, characters = text_page.get_text_bounded(), text_page.get_text_range()
    raised = {
        len("".join(characters[:index].split()))
        for match in re.finditer(r"(?<=[^\W_])\d(?!\d*[^\W\d_])|(?<=\d)\d", characters)
        if _is_raised(raw, text_page, index := match.start())
    }
    text_page.close()
    if raised and len("".join(text.split())) == len("".join(characters.split())):
        shown = -1
        text = "".join(f"^{c}" if not c.isspace() and (shown := shown + 1) in raised else c for c in text)
    # PDFium writes a hyphen at the end of a line as one of these signs.
    return re.sub("[\ufffe\x02]\r?\n?", "", text).replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")


def _is_raised(raw: Any, text_page: Any, index: int) -> bool:
    """Return True if a character is smaller than the one before it and begins higher."""
    before, size = (raw.FPDFText_GetFontSize(text_page, at) for at in (index - 1, index))
    if not 0 < size < 0.9 * before:
        return False
    lows = [text_page.get_charbox(at)[1] for at in (index - 1, index)]
    return bool(lows[1] > lows[0] + 0.2 * before)
