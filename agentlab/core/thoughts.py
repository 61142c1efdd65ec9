"""Splits the thought of a model from its text, if the server sends both as one text.

    split_thought("<think>Lyon? No.</think>Paris.")          # "Paris.", "Lyon? No."
    split_thought("Write `<think>` first.")                  # "Write `<think>` first.", ""
    split_tool_markup('<tool_call>{"name": "lookup"}')       # "", '<tool_call>{"name": "lookup"}'

A thought is at the beginning of a text. Without an opening mark, everything before the closing mark is a thought,
because templates often write the opening mark. A mark in quoted code or in a sentence is ordinary text.
"""

from __future__ import annotations

import re
from pathlib import Path

from agentlab.core.strict_json import load_own_yaml

_TABLE = load_own_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
_FORMS: dict[str, str] = _TABLE["thoughts"]
"""Marks around a thought, as models write them."""
_ANSWER_MARKS, _TOOL_MARKUP = (re.compile("|".join(_TABLE[name])) for name in ("answer", "tool_call"))
_ANSWER = re.compile(
    r"(?is)\A((?:(?!<answer>|```).)*)(?<![^\n])(?<!>\n)[ \t]*<answer>\s*((?:(?!\s{0,9}</?answer>).)*)"
    r"(?:\s{0,9}</answer>[ \t]*(?=\n|\Z)|\Z)((?:(?!<answer>).)*)\Z"
)
"""Text with one answer in tags, on lines of their own and not within other markup."""
_END_TOKENS = re.compile(rf"(?i)(?:(?:{'|'.join(_TABLE['end_token'])})\s{{0,9}})+\Z")
_OPENING = re.compile(rf"[\s\ufeff\u200b]*({'|'.join(map(re.escape, _FORMS))})", re.IGNORECASE)
_CLOSING = re.compile("|".join(map(re.escape, _FORMS.values())), re.IGNORECASE)
_OPENS = {closing.lower(): opening for opening, closing in _FORMS.items()}
_CLOSES = {opening.lower(): closing for opening, closing in _FORMS.items()}
_CODE = re.compile(
    r"^ {0,3}(```+|~~~+).*?(?:^ {0,3}\1|\Z)|(?<!`)(`+)(?!`)[^\n]*?(?<!`)\2(?!`)", re.DOTALL | re.MULTILINE
)
_IN_A_SENTENCE = re.compile(r"(?:[\w,;][ \t]|[`'\"])$")
"""End of the text before a mark, if a sentence only names the mark."""
_HARMONY = re.compile(r"(?:<\|start\|>\s*assistant[^<]*)?<\|channel\|>\s*(?:analysis|commentary|final)\b")
_HARMONY_WORDS = re.compile(r"analysis(?=\S)(.+?)assistant(?:commentary.*?assistant)?final(.*)", re.DOTALL)
"""Harmony without its special tokens, which many tokenizers leave out."""
_GRANITE = re.compile(r"\s*Here(?:'s| is) my thought process:(.*?)Here(?:'s| is) my response:(.*)", re.DOTALL)
_UNDECIDED = re.compile(r"(?:[<\[][^<>\[\]\s]{0,40}[>\]]\s*)*(?:[<\[][^<>\[\]\s]{0,40})?\Z")
"""End of a text that the next piece may turn into marks; always matches."""
_ONLY_WHOLE = re.compile(rf"</?answer>|<tool_calls?>|{_ANSWER_MARKS.pattern}|{_TOOL_MARKUP.pattern}", re.IGNORECASE)
"""Marks whose meaning only the whole text tells."""
_FIRST_MARK = re.compile(rf"\A\s*(?:<answer>|{_ANSWER_MARKS.pattern})", re.IGNORECASE)
MAX_UNDECIDED = 300
_LAST_OF_A_MARK = re.compile(r"[>\]▷]")
_BEGINNINGS = (*map(str.lower, _FORMS), "<|start|>assistant<|channel|>", "<|channel|>analysis<|message|>")


def split_thought(text: str, *, is_split: bool = False, is_whole: bool = True) -> tuple[str, str]:
    """Return text and thought; `is_split` is true if the server has already separated the thought.

    A thought without an end leaves no text. Marks stay in a text that is not whole.
    """
    text = _without_end_tokens(text) if is_whole else text
    if words := _HARMONY_WORDS.match(text) or _GRANITE.match(text):
        return words[2].strip(), words[1].strip()
    if (opening := _HARMONY.search(text)) and not _is_quoted(text, opening.start()):
        return _split_harmony(text)
    thoughts: list[str] = []
    rest = text
    while opened := _OPENING.match(rest):
        closed = _end_of_thought(rest, opened.end(), _CLOSES[opened[1].lower()])
        if closed is None and is_split:
            break  # the tag is what the answer begins with
        thoughts.append(rest[opened.end() : closed.start() if closed else None].strip())
        rest = rest[closed.end() :] if closed else ""
    if not thoughts and (closed := _lone_closing(text)) and not (is_split and text[: closed.start()].strip()):
        thoughts.append(text[: closed.start()].strip())
        rest = text[closed.end() :]
    if not is_whole or not (thoughts or text.startswith("<|begin_of_box|>") or (is_split and _ANSWER.match(text))):
        return rest, "\n\n".join(filter(None, thoughts))
    return _ANSWER.sub(r"\1\2\3", _ANSWER_MARKS.sub("", rest)).strip(), "\n\n".join(filter(None, thoughts))


def _without_end_tokens(text: str) -> str:
    mark = _END_TOKENS.search(text, max(0, len(text) - 200)) if text.rstrip()[-1:] == ">" else None
    if mark is None or _is_code(text, mark.start()) or ("<s>" in text and "</s>" in mark[0]):
        return text
    before = text[: mark.start()]
    return text if before[-1:].isspace() and _is_quoted(text, len(before)) else before.rstrip()


def _end_of_thought(text: str, begin: int, closing: str) -> re.Match[str] | None:
    """Return the closing mark; one in quotes counts only if there is no other."""
    mark = re.escape(closing)
    bare = re.compile(rf"(?<![`'\"]){mark}(?![`'\"])", re.IGNORECASE)
    return bare.search(text, begin) or re.compile(mark, re.IGNORECASE).search(text, begin)


def _lone_closing(text: str) -> re.Match[str] | None:
    """Return a closing mark whose opening mark is in the prompt."""
    for mark in _CLOSING.finditer(text):
        if _OPENS[mark[0].lower()] in text[: mark.start()].lower():
            return None
        if not _is_quoted(text, mark.start()):
            return mark
    return None


def _split_harmony(text: str) -> tuple[str, str]:
    final, remarks, thoughts, calls = (list[str]() for _ in range(4))
    for part in re.split(r"<\|(?:end|return|call)\|>|(?=<\|start\|>)", text):
        head, is_whole, body = part.removeprefix("<|start|>assistant").partition("<|message|>")
        if "to=" in head and "to=user" not in head:
            calls.append(head + is_whole + body)
        elif "<|channel|>" not in head:
            thoughts.append(head + body)
        elif is_whole:
            kinds = {"final": final, "commentary": remarks}
            kinds.get(head.partition("<|channel|>")[2].strip(), thoughts).append(body)
    if final:
        thoughts, remarks = [*thoughts, *remarks], final
    answer, thought = ("\n".join(filter(None, map(str.strip, parts))) for parts in ([*remarks, *calls], thoughts))
    return answer, thought


def split_tool_markup(text: str) -> tuple[str, str]:
    """Return the text before the first tool call in it, and the rest; the rest is "" without a call."""
    for mark in _TOOL_MARKUP.finditer(text):
        if not _is_code(text, mark.start()):
            return text[: mark.start()].rstrip(), text[mark.start() :]
    return text, ""


class ThoughtFilter:
    """Streams a text without the thought at its start, and without marks that `split_thought` may remove.

    The end of a text that may become a mark is shown with the next piece, or not at all: the caller has the whole text.
    """

    def __init__(self) -> None:
        self._held = ""
        """Text that may be a thought or a mark."""
        self._is_begun = self._is_thinking = self._is_over = False

    def feed(self, piece: str) -> str:
        """Return the visible text that `piece` adds."""
        if self._is_begun and not self._held and "<" not in piece and "[" not in piece:
            return piece
        self._held += "" if self._is_over else piece
        if self._is_over or not (self._is_begun or self._begins(piece)):
            return ""
        text = self._held
        mark, undecided = _ONLY_WHOLE.search(text), _UNDECIDED.search(text, max(0, len(text) - MAX_UNDECIDED))
        self._is_over = mark is not None
        end = min(each.start() for each in (mark, undecided) if each)
        end = len(text[:end].rstrip()) if end < len(text) else end
        self._held = text[end:]
        return text[:end]

    def _begins(self, piece: str) -> bool:
        """Return True once the visible text begins, and remove what is before it."""
        if piece.isspace() or (self._is_thinking and not _LAST_OF_A_MARK.search(piece)):
            return False
        rest, thought = split_thought(self._held, is_whole=False)
        may_open = any(mark.startswith(rest.lstrip().lower()) for mark in _BEGINNINGS)
        visible = rest.rstrip() if rest == self._held else _FIRST_MARK.sub("", rest).strip()
        if may_open or (len(visible) < MAX_UNDECIDED and _UNDECIDED.match(visible)):
            # A text that ends like a mark may be the end of the thought.
            self._is_thinking = bool(thought) and not _LAST_OF_A_MARK.search(self._held.rstrip()[-1:])
            return False
        self._is_begun = True
        self._held = visible + self._held[len(self._held.rstrip()) :]
        return True


def _is_code(text: str, position: int) -> bool:
    return any(code.start() <= position < code.end() for code in _CODE.finditer(text))


def _is_quoted(text: str, position: int) -> bool:
    return bool(_IN_A_SENTENCE.search(text, max(0, position - 2), position)) or _is_code(text, position)
