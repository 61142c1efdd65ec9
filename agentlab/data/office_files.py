"""Opens files of office programs safely: XLSX and DOCX are ZIP archives of XML, which may hide gigabytes."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path

from agentlab.core.files import read_bytes

MAX_FILE_BYTES = 100 * 2**20
_OLD_FORMAT = b"\xd0\xcf\x11\xe0"
_MAX_OTHER_BYTES = 4 * 2**20
"""Bytes of styles, settings and links, which libraries hold as many objects."""
_MAX_PARTS = 10_000
_XML = (".xml", ".rels")


def open_office_file(path: Path, folder: str, max_xml_bytes: int) -> io.BytesIO:
    """Open an XLSX (`folder` is "xl") or DOCX ("word") file whose XML unpacks to at most `max_xml_bytes`.

    Raises OSError, and ValueError in one line for an encrypted, damaged or too large file, or another format.
    """
    kind = {"xl": "XLSX", "word": "DOCX"}[folder]
    file = io.BytesIO(read_bytes(path, MAX_FILE_BYTES))
    if file.getvalue().startswith(_OLD_FORMAT):
        raise ValueError(f"encrypted, or in the format of before 2007; save it as {kind} without a password")
    try:
        with zipfile.ZipFile(file) as archive:
            parts = [part for part in archive.infolist() if part.filename.endswith(_XML)]
            if not any(part.filename.startswith(f"{folder}/") for part in parts) or len(parts) > _MAX_PARTS:
                raise ValueError(f"not an {kind} file; save it as {kind}")
            # An archive cannot unpack to more than its directory declares: reading stops there.
            if (size := sum(part.file_size for part in parts)) > max_xml_bytes:
                raise ValueError(f"unpacks to {size:,} bytes, of which at most {max_xml_bytes:,} are read; split it")
            for part in parts:
                is_content = re.match(r"xl/(worksheets/|sharedStrings)|word/document", part.filename)
                if not is_content and part.file_size > _MAX_OTHER_BYTES:
                    raise ValueError(
                        f"{part.filename} unpacks to {part.file_size:,} bytes; save it again without styles"
                    )
                if b"<!" in archive.open(part).read(1000):
                    raise ValueError(f"{part.filename} declares XML entities, which no office program writes")
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError) as problem:
        raise ValueError(f"damaged ({problem}); open it and save it again") from None
    return file
