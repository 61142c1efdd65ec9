"""Extracts title and text of PDF and DOCX files. Raises ValueError in one line for a file without readable text.

Rows of tables stay lines, and superscripts keep their place: 10^6.
"""

from __future__ import annotations

import itertools
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
    """Return "" for the title, which is seldom one, and the text without headers and footers that repeat."""
    with needs("A PDF file", "documents"):
        import pypdfium2 as pdfium
    with open_regular_file(path, MAX_FILE_BYTES) as file:
        try:
            document = pdfium.PdfDocument(file)
        except pdfium.PdfiumError as problem:
            is_locked = "password" in str(problem).lower()
            raise ValueError("encrypted; save it without a password" if is_locked else "not a readable PDF") from None
        try:
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
    return "", "\n\n".join(filter(None, map(str.strip, body)))


def _page_text(page: Any) -> str:
    from pypdfium2 import raw

    text_page = page.get_textpage()

    def is_raised(index: int) -> bool:
        before, size = (raw.FPDFText_GetFontSize(text_page, at) for at in (index - 1, index))
        lows = [text_page.get_charbox(at)[1] for at in (index - 1, index)] if 0 < size < 0.9 * before else [0, 0]
        return bool(lows[1] > lows[0] + 0.2 * before)

    # The first text has the right line ends; positions of characters belong to the second one.
    text, characters = text_page.get_text_bounded(), text_page.get_text_range()
    digits = [match.start() for match in re.finditer(r"(?<=\w)\d", characters)]
    raised = {len("".join(characters[:index].split())) for index in digits if is_raised(index)}
    text_page.close()
    places = itertools.count()
    text = "".join(f"^{c}" if not c.isspace() and next(places) in raised else c for c in text)
    # PDFium writes a hyphen at the end of a line as one of these signs.
    return re.sub("[\ufffe\x02]\r?\n?|\0", "", text).replace("\r\n", "\n").replace("\r", "\n")
