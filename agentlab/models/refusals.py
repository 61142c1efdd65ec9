"""Translates the refusal of a server into one of our errors, by its status, its headers and its words.

    read_refusal(429, {"retry-after": "7"}, '{"error": {"message": "slow down"}}', "openai/m")     # RateLimited, 7 s

Only errors are searched for these words, never replies.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from agentlab.core import errors
from agentlab.core.strict_json import load_own_yaml
from agentlab.wire.limits import as_number, parse_duration

_TABLE = load_own_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
WORDS = {meaning: re.compile("|".join(patterns), re.IGNORECASE) for meaning, patterns in _TABLE.items()}
"""Pattern of the words of servers, by their meaning."""
_SECONDS = re.compile(r"\s*(m?)(?:illi)?sec(?:ond)?s?\b", re.IGNORECASE)
_TEXTS = ("message", "faultstring", "detail", "msg", "error_msg", "status_msg", "error_description", "errors", "title")
"""Fields for the text of an error, in order of preference."""


Redact = Callable[[str], str]
"""Masks the keys in a text."""


class ServerError(NamedTuple):
    message: str
    code: Any = None
    kind: Any = None
    parameter: Any = None


def read_refusal(
    status: int, headers: Mapping[str, str], body: str, model: str, redact: Redact = str, address: str | None = None
) -> errors.ModelError:
    """Return the error for a refused call; `status` is 0 if a response of status 200 holds the refusal.

    `address` is the base URL and adds a hint to an HTTP 404.
    """
    server_error = parse_server_error(body)
    status = status or http_status(server_error.code)
    text = redact(server_error.message) or f"HTTP {status} without a text"
    marks = f"{server_error.code} {server_error.kind} {server_error.message}"
    wait = read_wait(headers, body, status)
    kind = _classify(status, marks, wait)
    if kind is None:
        is_fault = status >= 500 if status else not re.search("invalid.(?:request|argument)", marks, re.IGNORECASE)
        is_passing = status in (408, 409, 424, 425, 498, 499) or (is_fault and status != 501)
        kind = errors.ServerFault if is_passing else errors.BadRequest
        if address and (status == 404 or "unexpected endpoint" in marks.lower()) and not re.search(r"\bmodel\b", text):
            kind, text = errors.BadRequest, text + address_hint(address)
    if status and server_error.message and kind in (errors.Refused, errors.ServerFault, errors.BadRequest):
        text = f"HTTP {status}: {text}"
    # This header overrules the status.
    if headers.get("x-should-retry") == "false" and issubclass(kind, errors.Retryable):
        kind = errors.ModelError
    return kind(text, model, wait) if kind in (errors.RateLimited, errors.ServerFault) else kind(text, model)


def http_status(code: Any) -> int:
    """Return the code of an error as an HTTP status, 0 if it is none."""
    return int(code) if re.fullmatch(r"[45]\d\d", str(code)) else 0


def _classify(status: int, marks: str, wait: float | None) -> type[errors.ModelError] | None:
    """Return the error that the words or the status decide alone; None if they do not."""
    words = {meaning for meaning, pattern in WORDS.items() if pattern.search(marks)}
    if "parameter" in words and status in (0, 400, 422):
        return None
    is_too_long = (status == 413 or "too_long" in words) and "other_size" not in words
    is_overflow = (is_too_long or "context_length_exceeded" in marks) and status not in (401, 402, 403, 404)
    is_key = status in (401, 402) or ("key" in words and status in (0, 400, 403))
    kinds: dict[type[errors.ModelError], Any] = {
        errors.RateLimited: status == 429 or ("rate" in words and status not in (402, 403)),
        errors.ContentFiltered: "filtered" in words and status in (0, 400, 403, 422, 451),
        errors.ContextOverflow: is_overflow,
        errors.Refused: is_key or (status == 403 and "place" not in words),
        errors.UnreadableAnswer: "lost_call" in words,
        errors.BadRequest: "template" in words and status,
    }
    if "no_credit" in words and wait is None and status in (0, 400, 403, 429):
        return errors.Refused
    return next((kind for kind, applies in kinds.items() if applies), None)


def reported_problem(document: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the error in an event or response, None if there is none; raises BadRequest for Ollama's form."""
    error, has_answer = document.get("error") or document.get("base_resp"), bool(document.get("choices"))
    # Some servers send a status of 0 with every response.
    is_fine = isinstance(error, dict) and error.get("code", error.get("status_code")) == 0
    if error and not (is_fine and (has_answer or not document.get("error"))):
        return error if isinstance(error, dict) else document
    if has_answer:
        return None
    if isinstance(document.get("message"), dict):
        raise errors.BadRequest("the server speaks Ollama's own protocol; use its address that ends in /v1")
    # Other documents have titles, too.
    is_problem = http_status(document.get("status")) or ":" in str(document.get("type"))
    has_words = any(document.get(name) for name in (_TEXTS if is_problem else _TEXTS[:-1]))
    return document if has_words and document.get("code") not in (0, "0") else None


def read_server_error(error: Any, model: str, redact: Redact = str, address: str | None = None) -> errors.ModelError:
    """Return the error that a server reports instead of a completion, or in the middle of one."""
    return read_refusal(0, {}, json.dumps({"error": error}), model, redact, address)


def parse_server_error(error: Any) -> ServerError:
    """Read an error: JSON, a web page or any text, or what stands in JSON: an object, or a list of them."""
    if isinstance(error, str):
        with suppress(ValueError, RecursionError):
            document = json.loads(error)
            read = parse_server_error(document) if isinstance(document, (dict, list)) else ServerError(str(document))
            return read if read.message or not document else read._replace(message=error)
        if not re.match(r"[\s\ufeff]*<[!?a-z]", error, re.IGNORECASE):
            return ServerError(error)
        title = re.search(r"<(?:title|h1)\b[^>]*>\s*([^<]*\w[^<]*)", error, re.IGNORECASE)
        content = title[1] if title else re.sub("<[^>]*>", " ", error)[:200]
        return ServerError(f"{' '.join(content.split())} (a web page in place of an answer)")
    if isinstance(error, list):
        each = [*map(parse_server_error, error), ServerError("")]
        return each[0]._replace(message="; ".join(read.message for read in each if read.message))
    if not isinstance(error, dict):
        return ServerError("" if isinstance(error, bool) else str(error), error)
    inner = parse_server_error(error.get("error") or error.get("fault") or "")
    own = _message(next((error[name] for name in _TEXTS if error.get(name)), ""))
    metadata = error.get("metadata")
    # The error of the server behind a router.
    behind = parse_server_error((isinstance(metadata, dict) and metadata.get("raw")) or "")
    message = ": ".join(dict.fromkeys(filter(None, (inner.message, own, behind.message))))
    code = error.get("code") or error.get("status_code") or inner.code or error.get("status")
    kind = inner.kind or error.get("type") or error.get("status")
    return ServerError(message, code, kind, inner.parameter or error.get("param"))


def _message(content: Any) -> str:
    """Return a message as text; FastAPI sends a list of places and problems."""
    if isinstance(content, list):
        return "; ".join(map(_message, content))
    if not isinstance(content, dict):
        return str(content)
    if "msg" in content:
        return ": ".join(filter(None, (".".join(map(str, content.get("loc") or ())), str(content["msg"]))))
    return _message(next((content[name] for name in _TEXTS if content.get(name)), [*content.values()]))


def lost_connection(problem: BaseException, model: str, redact: Redact) -> errors.ModelError:
    """Return the error for a call without a response, from the SDK's error or its cause in the transport."""
    import aiohttp

    while not isinstance(problem, (aiohttp.ClientError, TimeoutError)) and problem.__cause__ is not None:
        problem = problem.__cause__
    if isinstance(problem, TimeoutError):
        return errors.Unreachable("no answer in time", model)
    if type(problem).__name__ == "TooManyRedirects":
        return errors.ModelError("the server redirects again and again", model)
    text = redact(str(getattr(problem, "message", "")) or str(problem).partition(": <")[0] or type(problem).__name__)
    what = "cannot reach the server" if isinstance(problem, aiohttp.ClientConnectorError) else "the connection broke"
    return errors.Unreachable(f"{what}: {text}", model)


def read_wait(headers: Mapping[str, str], body: str = "", status: int = 429) -> float | None:
    """Return the seconds that a server asks to wait, from its headers or its words; None without any.

    Many servers send the reset of their limits with every response: it counts only with status 429, and only for a
    limit that is used up.
    """
    # Routers put the headers of the server behind them into the body.
    inner = re.findall(r'"([\w-]{0,40}rate-?limit[\w-]{0,40})":\s*"([^"]+)"', body, re.IGNORECASE)
    given = {name.lower(): value.strip() for name, value in (*inner, *headers.items())}
    for name in ("retry-after-ms", "x-ms-retry-after-ms", "retry-after", "x-retry-after"):
        if (seconds := _seconds(given.get(name, ""))) is not None:
            return seconds / (1000 if name.endswith("-ms") else 1)
    if match := WORDS["wait"].search(_SECONDS.sub(r"\1s", body)):
        return parse_duration(re.sub(r"\s", "", match[1] or match[2] or match[3]))
    return max((wait for wait in _resets(given) if wait is not None), default=None) if status == 429 else None


def _resets(headers: Mapping[str, str]) -> Iterator[float | None]:
    """Yield the seconds until each used up limit is free again; the header of the standard overrules all others."""
    standard = re.sub(r'"[^"]*"', "", headers.get("ratelimit", ""))
    for limit in [standard] if "reset=" in standard else standard.split(","):
        remaining, reset = (re.search(rf"(?:^|[;,])\s*(?:{of})=(\d+)", limit) for of in ("r|remaining", "t|reset"))
        if reset and (remaining is None or not remaining[1].strip("0")):
            yield float(reset[1][:9])
    if not standard:
        for name, value in headers.items():
            window = re.sub("reset(?:-after)?", "remaining", name)
            if window != name and "limit" in name and not as_number(headers.get(window)):
                yield _seconds(value)


def _seconds(given: str) -> float | None:
    """Return the seconds that a number, a duration, a time since 1970 or a date tells; None for other texts."""
    given = _SECONDS.sub(r"\1s", given)
    if seconds := re.match(r"\d{1,9}(?:\.\d+)?\s*(?=[,;]|$)|(?:\d+(?:\.\d+)?\s?(?:ms|d|h|m|s))+$", given):
        return parse_duration(re.sub(r"\s", "", seconds[0]))
    if moment := re.match(r"(\d{10})(?:\d{3})?(\.\d+)?$", given):  # seconds or milliseconds since 1970
        return max(0.0, float(moment[1] + (moment[2] or "")) - time.time())
    for read_date in (parsedate_to_datetime, datetime.fromisoformat):
        with suppress(ValueError):
            when = read_date(given)
            return max(0.0, (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() - time.time())
    return None


def address_hint(address: str) -> str:
    """Return the probable error in the address of a server that responds with 404."""
    path = urlsplit(address).path.rstrip("/")
    if path.endswith(("/completions", "/embeddings")):
        return "; end the address before /chat/completions"
    return "" if re.search(r"/v\d", path) else "; the address has no /v1 at its end, which most servers need"
