"""Decodes text files of any encoding and names the encoding, so that a user can check a guess.

decode(b"Fu\\xdfball")                  # "Fußball", "cp1252"
decode("本".encode("utf-16"))           # "本", "utf-16"
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from agentlab.core.files import read_text
from agentlab.core.strict_json import load_own_yaml

_CODE_PAGES = (1252, 1250, 1251, 932, 949, 1253, 1254, 1255, 1256, 850)
_LEGACY = [*(f"cp{page}" for page in _CODE_PAGES), "koi8_r", "euc_jp", "gb18030", "big5", "mac_roman"]
"""Encodings of spreadsheets and editors before UTF-8; rarer ones would win by chance on a short text."""
_SAMPLE_BYTES = 200_000


def decode(data: bytes, declared: str | None = None) -> tuple[str, str]:
    """Return the text with Unix line ends and the encoding: by its mark, UTF-8, the `declared` one, or a guess.

    Raises ValueError in one line for data that is no text.
    """
    names = ["utf-8-sig", declared or "utf-8"]
    if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        names = ["utf-16"]
    elif b"\0" in data[:1000]:
        names = ["utf-16-le" if data[1:2] == b"\0" else "utf-16-be"]
    for name in itertools.chain(names, () if b"\0" in data[:1000] else _guesses(data)):
        try:
            text = data.decode(name)
        except (UnicodeDecodeError, LookupError):
            continue
        if name.startswith("utf-16-") and not all(c.isprintable() or c.isspace() for c in text[:1000]):
            break
        return text.replace("\r\n", "\n").replace("\r", "\n"), name.removesuffix("-sig")
    raise ValueError("it is not text, or of an unknown encoding; save it as UTF-8")


def _guesses(data: bytes) -> Iterator[str]:
    """Yield encodings that fit the letters; from a few letters a count is often wrong, so signs come first."""
    from charset_normalizer import from_bytes

    # Cells in ASCII, such as an English header, fit every encoding, so the sample leaves them out.
    sample = b"\n".join(cell for cell in re.split(rb"[,;\t\n]", data[:_SAMPLE_BYTES]) if not cell.isascii())
    best = from_bytes(sample, cp_isolation=_LEGACY).best() or from_bytes(sample).best()
    counted = best and best.encoding
    for sign in load_own_yaml(read_text(Path(__file__).parent / "encoding_signs.yaml")):
        read = sample.decode(sign["read"], "ignore")
        if sign.get("counted", counted) == counted and re.search(sign["signs"], read):
            yield sign["encoding"]
    if counted:
        yield counted
