"""A search engine with the results that a test chooses, and a session that searches with it."""

from __future__ import annotations

from typing import Any

from agentlab.models.scripted import Scripted
from agentlab.session.session import Session
from agentlab.tools.web import search_web
from agentlab.wire.recorder import Recorder
from support.tool_sessions import session_with


class Engine:
    """Stands in for `ddgs.DDGS`."""

    results: Any = ()
    received: list[tuple[str, dict[str, Any]]]

    def __init__(self, **options: Any) -> None:
        pass

    def text(self, query: str, **options: Any) -> list[dict[str, str]]:
        type(self).received.append((query, options))
        if isinstance(self.results, Exception):
            raise self.results
        return list(self.results)


def hit(url: str, title: str = "A title", body: str = "A snippet.") -> dict[str, str]:
    return {"title": title, "href": url, "body": body}


def searching(*replies: Any, recorder: Recorder | None = None) -> tuple[Session, Scripted]:
    model = Scripted(replies)
    return session_with(search_web, model=model, recorder=recorder), model
