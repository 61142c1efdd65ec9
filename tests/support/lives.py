"""Lives of persons with each system: ten turns over three sessions in two languages, on a model true to each schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from agentlab.core.messages import Message, Request, ToolCall

SYSTEMS = ("chatbox", "discord", "coordinator", "ego", "tools_rag_fallback")
WRITES = ("save_memory", "update_memory")


@dataclass(frozen=True)
class Life:
    """Messages of a person; those in `facts` tell something, the others ask or are courtesy."""

    sessions: tuple[tuple[str, ...], ...]
    facts: tuple[str, ...]


LIVES = {
    "english and german": Life(
        (
            ("Hi!", "My cat is called Fenchurch and I live in Ulm.", "What time is it?"),
            ("Ich bin gegen Nüsse allergisch.", "Wie heißt meine Katze?", "My sister is called Trillian.", "Danke!"),
            ("Ich arbeite seit Mai in einer Bäckerei.", "Where do I live?", "bye"),
        ),
        (
            "My cat is called Fenchurch and I live in Ulm.",
            "Ich bin gegen Nüsse allergisch.",
            "My sister is called Trillian.",
            "Ich arbeite seit Mai in einer Bäckerei.",
        ),
    ),
    "spanish and english": Life(
        (
            ("Vivo en Sevilla con mi hermana.", "¿Qué hora es?", "I play the oboe in a quintet."),
            ("gracias", "What do I play?", "My number ends in 4711."),
            ("Mi perro se llama Toby.", "¿Dónde vivo?", "Thanks a lot!", "What is the time now?"),
        ),
        (
            "Vivo en Sevilla con mi hermana.",
            "I play the oboe in a quintet.",
            "My number ends in 4711.",
            "Mi perro se llama Toby.",
        ),
    ),
    "french and german": Life(
        (
            ("Bonjour", "Mon fils est né en mars.", "Quelle heure est-il ?", "Ich esse kein Fleisch."),
            ("Was esse ich nicht?", "Je travaille à Lyon."),
            ("Unser Hund ist acht Jahre alt.", "Où est-ce que je travaille ?", "Wie alt ist unser Hund?", "merci"),
        ),
        (
            "Mon fils est né en mars.",
            "Ich esse kein Fleisch.",
            "Je travaille à Lyon.",
            "Unser Hund ist acht Jahre alt.",
        ),
    ),
    "chinese and english": Life(
        (
            ("我住在北京。", "What time is it?", "I am allergic to peanuts."),
            ("我叫什么名字?", "我的猫叫小白。", "ok"),
            ("I moved to Bergen last year.", "Where did I move?", "谢谢", "现在几点?"),
        ),
        ("我住在北京。", "I am allergic to peanuts.", "我的猫叫小白。", "I moved to Bergen last year."),
    ),
}


class Model:
    """Answers every request in its schema. Its sentences are numbered, so that each occurs once in a life."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._text = ""
        self.n_sentences = 0

    def typed(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield lines to type, which a terminal shows; the model's next answers are about the last one."""
        for self._text in lines:
            print(f"> {self._text}")
            yield self._text

    def __call__(self, request: Request) -> str | Message:
        text = self._text
        if request.output_schema is not None:
            return json.dumps(self._object(request.output_schema, request, text), ensure_ascii=False)
        asks_time = any(word in text.lower() for word in ("time", "hora", "heure", "几点"))
        results = any(message.role == "tool" for message in request.messages[self._position(request, text) :])
        names = [tool.name for tool in request.tools]
        if asks_time and "get_current_time" in names and not results and request.tool_choice != "none":
            call = ToolCall(id=f"call_{self.n_sentences}", name="get_current_time", arguments={})
            return Message(role="agent", text=self._sentences(1), tool_calls=(call,))
        return self._sentences(2)

    def _sentences(self, count: int) -> str:
        first = self.n_sentences
        self.n_sentences += count
        return " ".join(f"Sentence {number} ends." for number in range(first + 1, first + count + 1))

    def _position(self, request: Request, text: str) -> int:
        return max((n for n, message in enumerate(request.messages) if text in message.text), default=0)

    def _object(self, schema: dict[str, Any], request: Request, text: str) -> Any:
        properties = schema.get("properties", {})
        if set(properties) == {"tool"}:
            names = [name for name in properties["tool"]["enum"] if name]
            wanted = "save_memory" if text in self._life.facts else ""
            return {"tool": wanted if wanted in names else None}
        if "content" in properties:
            return {"content": text} | ({"fact_id": "none"} if "fact_id" in properties else {})
        return {name: self._value(name, part) for name, part in properties.items()}

    def _value(self, name: str, schema: dict[str, Any]) -> Any:
        if "enum" in schema:
            return "simple" if "simple" in schema["enum"] else schema["enum"][0]
        if "anyOf" in schema:
            return None
        kind = schema.get("type")
        if name in ("chat", "canvas"):
            return self._sentences(1) if name == "chat" else f"# Canvas\n\n{self._sentences(1)}"
        return {"array": [], "integer": 90, "number": 0.9, "boolean": True}.get(str(kind), "")


def sentences(rendered: str) -> list[int]:
    """Return the numbers of the sentences on the screen, in their order."""
    return [int(number) for number in re.findall(r"Sentence (\d+) ends", rendered)]
