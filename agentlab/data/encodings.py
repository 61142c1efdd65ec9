"""Decodes text files of any encoding and names the encoding, so that a user can check a guess.

decode(b"Fu\\xdfball")                  # "Fußball", "cp1252"
decode("本".encode("utf-16"))           # "本", "utf-16"
"""

from __future__ import annotations

import codecs
import itertools
import re
from collections.abc import Iterator

_CODE_PAGES = (1252, 1250, 1251, 932, 949, 1253, 1254, 1255, 1256, 850)
_LEGACY = [*(f"cp{page}" for page in _CODE_PAGES), "koi8_r", "euc_jp", "gb18030", "big5", "mac_roman"]
"""Encodings of spreadsheets and editors before UTF-8; rarer ones would win by chance on a short text."""
_SAMPLE_BYTES = 200_000
_NOT_WESTERN = re.compile(
    # Three letters beyond ASCII in a row, a sign within a word, and letters that only Icelandic has.
    r"[^\x00-\x7f]{3}|(?<=[a-zA-Z])[¡-¿×÷†‡ˆ‰‹›](?=[a-zA-Z])|[ðÐþÞýÝ\x80-\x9f¤¦¨ª¬¯¸]"  # noqa: RUF001
)
_CENTRAL_EUROPEAN = re.compile(r"(?!.*å).*?[õûøìùòï][a-z]", re.DOTALL)
"""Letters of cp1252 that stand for frequent ones of Czech and Hungarian in cp1250; å stands for a rare one."""


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
    """Yield encodings that fit the letters; from a few letters a guess is often rare, so the usual ones come first."""
    from charset_normalizer import from_bytes

    sample = data[:_SAMPLE_BYTES]
    best = from_bytes(sample, cp_isolation=_LEGACY).best() or from_bytes(sample).best()
    western = sample.decode("cp1252", "ignore")
    if best is None or best.encoding != "cp1250" or not _CENTRAL_EUROPEAN.match(western):
        yield from (name for name in ("cp1252", "cp1254") if not _NOT_WESTERN.search(sample.decode(name, "ignore")))
    if best is not None:
        yield best.encoding
