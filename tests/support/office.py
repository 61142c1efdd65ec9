"""Small PDF and DOCX files, and archives that unpack to more than they weigh, written for a test."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"><Default Extension="rels" '
    'ContentType="application/vnd.openxmlformats-package.relationships+xml"/><Default Extension="xml" '
    'ContentType="application/xml"/><Override PartName="/word/document.xml" ContentType="application/'
    'vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>'
)
_LINKS = (
    '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships"><Relationship Id="r1" '
    'Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument" '
    'Target="word/document.xml"/></Relationships>'
)


def paragraph(text: str, raised: str = "", after: str = "") -> str:
    power = f'<w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:t>{raised}</w:t></w:r>' if raised else ""
    return f'<w:p><w:r><w:t xml:space="preserve">{text}</w:t></w:r>{power}<w:r><w:t>{after}</w:t></w:r></w:p>'


def table(*rows: Sequence[str]) -> str:
    cells = ["".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in row) for row in rows]
    return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in cells)}</w:tbl>"


def write_docx(path: Path, body: str, parts: Mapping[str, str] = {}) -> Path:
    document = f"<w:document {_W}><w:body>{body}</w:body></w:document>"
    files = {"[Content_Types].xml": _TYPES, "_rels/.rels": _LINKS, "word/document.xml": document, **parts}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return path


def write_pdf(path: Path, pages: Sequence[Sequence[str]], encrypt: str = "") -> Path:
    """Write a PDF with a line of text for each line of a page; `^` raises the digits after it."""
    objects = [b"<</Type/Catalog/Pages 2 0 R>>", b"", b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"]
    kids = []
    for lines in pages:
        stream = "".join(_line(line, 780 - 16 * number) for number, line in enumerate(lines)).encode("cp1252")
        kids.append(f"{len(objects) + 1} 0 R")
        objects.append(
            b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 595 842]/Resources<</Font<</F 3 0 R>>>>/Contents %d 0 R>>"
            % (len(objects) + 2)
        )
        objects.append(b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream))
    objects[1] = f"<</Type/Pages/Count {len(kids)}/Kids[{' '.join(kids)}]>>".encode()
    data, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        offsets.append(len(data))
        data += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    trailer = f"trailer<</Size {len(offsets) + 1}/Root 1 0 R{encrypt}>>\nstartxref\n{len(data)}\n%%EOF"
    path.write_bytes(data + f"xref\n0 {len(offsets) + 1}\n0000000000 65535 f \n{table}{trailer}".encode())
    return path


def _line(text: str, height: int) -> str:
    plain, *powers = text.split("^")
    drawn = f"BT /F 12 Tf 50 {height} Td ({plain}) Tj "
    for power in powers:
        digits = len(power) - len(power.lstrip("0123456789"))
        drawn += f"/F 7 Tf 5 Ts ({power[:digits]}) Tj /F 12 Tf 0 Ts ({power[digits:]}) Tj "
    return f"{drawn}ET\n"


def write_bomb(path: Path, part: str, megabytes: int) -> Path:
    """Write an archive of a few kilobytes whose `part` unpacks to `megabytes`."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(part, "w", force_zip64=True) as file:
        file.write(b"<worksheet>")
        for _ in range(megabytes):
            file.write(b" " * 2**20)
    return path
