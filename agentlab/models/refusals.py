"""Translates the refusal of a server into one of our errors, by its status, its headers and its words.

    read_refusal(429, {"retry-after": "7"}, '{"error": {"message": "slow down"}}', "openai/m")     # RateLimited, 7 s

Only errors are searched for these words, never replies.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from agentlab.core import errors
from agentlab.core.strict_json import load_own_yaml
from agentlab.wire.limits import parse_duration

_TABLE = load_own_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
WORDS = {meaning: re.compile("|".join(patterns), re.IGNORECASE) for meaning, patterns in _TABLE.items()}
"""Pattern of the words of servers, by their meaning."""
_SECONDS = re.compile(r"\s*(m?)(?:illi)?sec(?:ond)?s?\b", re.IGNORECASE)
_TEXTS = ("message", "faultstring", "detail", "msg", "error_msg", "status_msg", "error_description")
"""Fields for the text of an error."""


class ServerError(NamedTuple):
    message: str
    code: Any = None
    kind: Any = None
    parameter: Any = None


def read_refusal(
    status: int,
    headers: Mapping[str, str],
    body: str,
    model: str,
    redact: Callable[[str], str] = str,
    address: str | None = None,
) -> errors.ModelError:
    """Return the error for a refused call; `status` is 0 if a response of status 200 holds the refusal.

    `redact` masks keys in the text; `address` is the base URL and adds a hint to an HTTP 404.
    """
    server_error = parse_server_error(body)
    text = redact(server_error.message) or f"HTTP {status} without a text"
    marks = f"{server_error.code} {server_error.kind} {server_error.message}"
    wait = read_wait(headers, body, status)
    error = _classify(status, marks, text, model, wait)
    if error is None:
        text = f"HTTP {status}: {text}" if status and server_error.message else text
        is_fault = status >= 500 if status else "invalid_request" not in marks
        if status in (408, 409, 424, 425, 498, 499) or (is_fault and status != 501):
            error = errors.ServerFault(text, model, wait)
        else:
            error = errors.BadRequest(text, model)
        if address and (status == 404 or "unexpected endpoint" in marks.lower()) and not re.search(r"\bmodel\b", text):
            error = errors.BadRequest(text + address_hint(address), model)
    elif isinstance(error, errors.Refused) and status and server_error.message:
        error = errors.Refused(f"HTTP {status}: {text}", model)
    # This header overrules the status.
    if headers.get("x-should-retry") == "false" and isinstance(error, errors.Retryable):
        return errors.ModelError(text, model)
    return error


def _classify(status: int, marks: str, text: str, model: str, wait: float | None) -> errors.ModelError | None:
    """Return the error that the words or the status decide alone; None if they do not."""
    if status in (0, 400, 422) and WORDS["parameter"].search(marks):
        return None
    if wait is None and status in (0, 400, 403, 429) and WORDS["no_credit"].search(marks):
        return errors.Refused(text, model)
    if status == 429 or (status not in (402, 403) and WORDS["rate"].search(marks)):
        return errors.RateLimited(text, model, wait)
    if status in (0, 400, 403, 422, 451) and WORDS["filtered"].search(marks):
        return errors.ContentFiltered(text, model)
    is_overflow = "context_length_exceeded" in marks or (
        (status == 413 or WORDS["too_long"].search(marks)) and not WORDS["other_size"].search(marks)
    )
    if is_overflow and status not in (401, 402, 403, 404):
        return errors.ContextOverflow(text, model)
    if status in (401, 402) or (status in (0, 400, 403) and WORDS["key"].search(marks)):
        return errors.Refused(text, model)
    if status == 403 and not WORDS["place"].search(marks):
        return errors.Refused(text, model)
    if WORDS["lost_call"].search(marks):
        return errors.UnreadableAnswer(text, model)
    return errors.BadRequest(f"HTTP {status}: {text}", model) if status and WORDS["template"].search(marks) else None


def read_server_error(
    error: Any, model: str, redact: Callable[[str], str] = str, address: str | None = None
) -> errors.ModelError:
    """Return the error that a server reports instead of a completion, or in the middle of one."""
    code = (error.get("code") or error.get("status_code")) if isinstance(error, Mapping) else None
    status = int(str(code)) if re.fullmatch(r"[45]\d\d", str(code)) else 0
    return read_refusal(status, {}, json.dumps({"error": error}), model, redact, address)


def parse_server_error(text: str) -> ServerError:
    """Read `{"error": {"message", "code", "type"}}`, its inner object, a web page, or any text."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        if not re.match(r"[\s\ufeff]*<[!?a-z]", text, re.IGNORECASE):
            return ServerError(text)
        title = re.search(r"<(?:title|h1)\b[^>]*>\s*([^<]*\w[^<]*)", text, re.IGNORECASE)
        content = title[1] if title else re.sub("<[^>]*>", " ", text)[:200]
        return ServerError(f"{' '.join(content.split())} (a web page in place of an answer)")
    document = document[0] if isinstance(document, list) and document else document
    document = document if isinstance(document, dict) else {"error": document}
    error = document.get("error") or document.get("fault") or (document if any(document.values()) else "")
    if not isinstance(error, dict):
        words = [error, *filter(None, map(document.get, _TEXTS))]
        return ServerError(": ".join(dict.fromkeys(map(_message, words))), document.get("code"))
    message = _message(next((error[name] for name in (*_TEXTS, "errors") if error.get(name)), text))
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("raw"), str):
        message = f"{message}: {parse_server_error(metadata['raw']).message}"  # the error of the server behind a router
    return ServerError(message, error.get("code"), error.get("type") or error.get("status"), error.get("param"))


def _message(content: Any) -> str:
    """Return a message as text; FastAPI sends a list of places and problems."""
    if isinstance(content, list):
        return "; ".join(map(_message, content))
    if isinstance(content, dict) and "msg" in content:
        return ": ".join(filter(None, (".".join(map(str, content.get("loc") or ())), str(content["msg"]))))
    inner = isinstance(content, dict) and (content.get("message") or content.get("detail"))
    return _message(inner) if inner else str(content)


def lost_connection(problem: BaseException, model: str, redact: Callable[[str], str]) -> errors.ModelError:
    """Return the error for a call without a response, from the SDK's error or its cause in the transport."""
    import aiohttp

    while not isinstance(problem, (aiohttp.ClientError, TimeoutError)) and problem.__cause__ is not None:
        problem = problem.__cause__
    if isinstance(problem, TimeoutError):
        return errors.Unreachable("no answer in time", model)
    if type(problem).__name__ == "TooManyRedirects":
        return errors.ModelError("the server redirects again and again", model)
    text = redact(str(getattr(problem, "message", "")) or str(problem).partition(": <")[0] or type(problem).__name__)
    is_unreachable = isinstance(problem, aiohttp.ClientConnectorError)
    what = "cannot reach the server" if is_unreachable else "the connection broke"
    return errors.Unreachable(f"{what}: {text}", model)


def read_wait(headers: Mapping[str, str], body: str = "", status: int = 429) -> float | None:
    """Return the seconds that a server asks to wait, from its headers or its words; None without any.

    Some servers send the reset of a limit with every response: it counts only with status 429.
    """
    for name in ("retry-after-ms", "retry-after", "x-ratelimit-reset", "ratelimit-reset")[: 4 if status == 429 else 2]:
        given = _SECONDS.sub(r"\1s", str(headers.get(name) or "").strip())
        if seconds := re.match(r"\d{1,9}(?:\.\d+)?\s*(?=,|$)|(?:\d+(?:\.\d+)?\s?(?:ms|h|m|s))+$", given):
            return parse_duration(re.sub(r"\s", "", seconds[0])) / (1000 if name.endswith("-ms") else 1)
        if moment := re.match(r"\d{10}(?=(?:\d{3})?(?:\.\d+)?$)", given):  # seconds or milliseconds since 1970
            return max(0.0, float(moment[0]) - time.time())
        for read_date in (parsedate_to_datetime, datetime.fromisoformat):
            with suppress(ValueError):
                when = read_date(given)
                return max(0.0, (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - time.time())
    match = WORDS["wait"].search(_SECONDS.sub(r"\1s", body))
    return parse_duration(re.sub(r"\s", "", match[1] or match[2])) if match else None


def address_hint(address: str) -> str:
    """Return the probable error in the address of a server that responds with 404."""
    path = urlsplit(address).path.rstrip("/")
    if path.endswith(("/completions", "/embeddings")):
        return "; end the address before /chat/completions"
    return "" if re.search(r"/v\d", path) else "; the address has no /v1 at its end, which most servers need"
