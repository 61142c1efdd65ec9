"""Translates the refusal of a server into one of our errors, by its status, its headers and its words.

    read_refusal(429, {"retry-after": "7"}, '{"error": {"message": "slow down"}}', "openai/m")     # RateLimited, 7 s

Words are looked for in errors only, never in answers.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from agentlab.core.errors import (
    BadRequest,
    ContentFiltered,
    ContextOverflow,
    ModelError,
    RateLimited,
    Refused,
    Retryable,
    ServerFault,
    UnreadableAnswer,
)
from agentlab.wire.limits import parse_duration

_TOO_LONG = re.compile(
    r"context.?(?:length|size|window|limit)|(?:maximum|max) (?:prompt|model|sequence|input) length|payload size exceeds"
    r"|\b(?:prompt|inputs?|conversation|context|messages?|request)\b[^.]{0,60}\btoo.(?:long|large|many tokens)"
    r"|maximum number of (?:input )?tokens|tokens? count\b.{0,40}\bexceed|too many (?:input )?tokens|\d tokens > \d"
    r"|(?:reduce|shorten)\b.{0,30}\b(?:length|size|prompt|messages|input|conversation)|shorter (?:prompt|input|or)"
    r"|(?:exceed\w*|over|above)\b.{0,30}\btoken limit|token limit (?:is |was )?exceed|longer than the (?:model|max)"
    r"|range of input length|inputs?\W{0,2}tokens \+ |must have (?:less|fewer) than \d+ tokens|tokens exceed"
    r"|(?:input|prompt|sequence).{0,20}\bexceed.{0,30}\b(?:length|limit|maximum|tokens)|超长|过长|超过.{0,12}(?:长度|限制)",
    re.IGNORECASE,
)
"""Words of servers whose model cannot read a request of this length."""
_OTHER_SIZE = re.compile(
    r"image|audio|base64|string too long|max\w*tokens\W{0,3}(?:or \W?max\w*tokens\W{0,3})?(?:is |are )?too",
    re.IGNORECASE,
)
_RATE = re.compile(r"per.?(?:min|hour|day|second)|rate.?limit|\b[tr]p[md]\b|quota|too many requests", re.IGNORECASE)
_NO_CREDIT = re.compile(r"insufficient.?(?:quota|balance|credit|funds)|current quota|billing", re.IGNORECASE)
_FILTERED = re.compile(
    r"content.?filter|content management policy|responsibleai|flagged|moderation|(?:safety|usage|content) polic",
    re.IGNORECASE,
)
_KEY = re.compile(r"api.?key|credential|access token|auth\w* token|unauthenticated|authenticat", re.IGNORECASE)
_PLACE = re.compile(r"country|region|territory|location", re.IGNORECASE)
_LOST_CALL = re.compile(
    r"tool_use_failed|failed_generation|fail\w* to (?:call a|parse) (?:function|tool)", re.IGNORECASE
)
_TEMPLATE = re.compile(r"roles must alternate|chat.?template|jinja|raise_exception|conversation roles", re.IGNORECASE)
_WAIT_IN_WORDS = re.compile(
    r"(?:try again|retry|wait)(?:\s+(?:in|after|for))?\s+((?:[\d.]+\s?(?:ms|h|m|s))+)|\"retryDelay\":\s*\"([\d.]+s)\"",
    re.IGNORECASE,
)
TRIED_AGAIN = (408, 409, 425)


class ToldError(NamedTuple):
    message: str
    code: Any = None
    kind: Any = None


def read_refusal(
    status: int,
    headers: Mapping[str, str],
    body: str,
    model: str,
    redact: Callable[[str], str] = str,
    address: str | None = None,
) -> ModelError:
    """Return the error for a refused call; `status` is 0 if a response of status 200 holds the refusal."""
    told = read_told(body)
    said = redact(told.message)
    marks = f"{told.code} {told.kind} {told.message}"
    wait = read_wait(headers, body)
    error = _of_words(status, marks, said, model, wait)
    if error is None:
        said = f"HTTP {status}: {said}" if status else said
        if status >= 500 or status in TRIED_AGAIN or (not status and "invalid_request" not in marks):
            error = ServerFault(said, model, wait)
        else:
            error = BadRequest(said, model)
        if address and (status == 404 or "unexpected endpoint" in marks.lower()) and not re.search(r"\bmodel\b", said):
            error = BadRequest(said + address_hint(address), model)
    # Servers say so where their status would have it otherwise.
    if headers.get("x-should-retry") == "false" and isinstance(error, Retryable):
        return ModelError(said, model)
    return error


def _of_words(status: int, marks: str, said: str, model: str, wait: float | None) -> ModelError | None:
    """Return the error that the words or the status decide alone; None if they do not."""
    is_rate = status == 429 or (status != 402 and bool(_RATE.search(marks)))
    if is_rate and status != 403:
        is_spent = wait is None and bool(_NO_CREDIT.search(marks))
        return Refused(said, model) if is_spent else RateLimited(said, model, wait)
    if status in (0, 400, 403, 422, 451) and _FILTERED.search(marks):
        return ContentFiltered(said, model)
    is_overflow = "context_length_exceeded" in marks or (
        (status == 413 or _TOO_LONG.search(marks)) and not _OTHER_SIZE.search(marks)
    )
    if is_overflow and status not in (401, 402, 403, 404):
        return ContextOverflow(said, model)
    if status in (401, 402) or (status in (400, 403) and _KEY.search(marks)):
        return Refused(said, model)
    if status == 403:
        return BadRequest(f"HTTP 403: {said}", model) if _PLACE.search(marks) else Refused(said, model)
    if _LOST_CALL.search(marks):
        return UnreadableAnswer(said, model)
    return BadRequest(f"HTTP {status}: {said}", model) if status and _TEMPLATE.search(marks) else None


def read_told_error(
    told: Any, model: str, redact: Callable[[str], str] = str, address: str | None = None
) -> ModelError:
    """Return the error that a server reports in place of an answer, or in the middle of one."""
    code = (told.get("code") or told.get("status_code")) if isinstance(told, Mapping) else None
    status = int(str(code)) if re.fullmatch(r"[45]\d\d", str(code)) else 0
    return read_refusal(status, {}, json.dumps({"error": told}), model, redact, address)


def read_told(text: str) -> ToldError:
    """Read `{"error": {"message", "code", "type"}}`, its inner object, a web page, or any text."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        title = re.search(r"<title[^>]*>\s*([^<]+)", text, re.IGNORECASE)
        return ToldError(title[1] if title else text)
    said = said[0] if isinstance(said, list) and said else said
    error = said.get("error") or said if isinstance(said, dict) else said
    if not isinstance(error, dict):
        return ToldError(_words(error), said.get("code") if isinstance(said, dict) else None)
    words = next((error[name] for name in ("message", "detail", "msg", "error_msg", "errors") if error.get(name)), text)
    told = _words(words)
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("raw"), str):
        told = f"{told}: {read_told(metadata['raw']).message}"  # of the server behind the one that was asked
    return ToldError(told, error.get("code"), error.get("type") or error.get("status"))


def _words(told: Any) -> str:
    """Return a message as text; FastAPI sends a list of places and problems."""
    if isinstance(told, list):
        return "; ".join(map(_words, told))
    if isinstance(told, dict) and "msg" in told:
        return ": ".join(filter(None, (".".join(map(str, told.get("loc") or ())), str(told["msg"]))))
    return str(told.get("message") or told) if isinstance(told, dict) else str(told)


def read_wait(headers: Mapping[str, str], body: str = "") -> float | None:
    """Return the seconds that a server asks to wait, from its headers or its words; None without any."""
    for name, unit in (("retry-after-ms", 1000), ("retry-after", 1)):
        given = str(headers.get(name) or "").strip()
        if number := re.match(r"(\d{1,9}(?:\.\d+)?)\s*(?:,|$)", given):
            return float(number[1]) / unit
        if given and unit == 1:
            try:
                when = parsedate_to_datetime(given)
            except ValueError:
                continue
            return max(0.0, (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - time.time())
    words = _WAIT_IN_WORDS.search(re.sub(r"\s*sec(?:ond)?s?\b", "s", body))
    return parse_duration(words[1] or words[2]) if words else None


def address_hint(address: str) -> str:
    """Return what is probably wrong with the address of a server that responds with 404."""
    path = urlsplit(address).path.rstrip("/")
    if path.endswith(("/completions", "/embeddings")):
        return "; the address ends too late: it is what stands before /chat/completions"
    return "" if re.search(r"/v\d", path) else "; the address has no /v1 at its end, as most servers want it"
