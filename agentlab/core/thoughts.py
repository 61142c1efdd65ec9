"""Splits the thought of a model from its text, if the server sends both as one text.

    split_thought("<think>Lyon? No.</think>Paris.")          # "Paris.", "Lyon? No."
    split_thought("Write `<think>` first.")                  # "Write `<think>` first.", ""
    split_tool_markup('<tool_call>{"name": "lookup"}')       # "", '<tool_call>{"name": "lookup"}'

A thought is at the beginning of a text. Without an opening mark, everything before the closing mark is a thought,
because templates often write the opening mark. A mark in quoted code or in a sentence is ordinary text.
"""

from __future__ import annotations

import re

_FORMS = {
    **{f"<{name}>": f"</{name}>" for name in ("think", "thinking", "thought", "reasoning", "seed:think")},
    "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷",
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|START_THINKING|>": "<|END_THINKING|>",
    "<|channel>thought": "<channel|>",
    "<unused94>thought": "<unused95>",
}
"""Marks around a thought, as models write them."""
_ANSWER_MARKS = re.compile(r"<\|(?:START_RESPONSE|END_RESPONSE|(?:begin|end)_of_(?:solution|box))\|>")
_ANSWER = re.compile(r"\A\s*<answer>((?:(?!</answer>).)*)(?:</answer>\s*)?\Z", re.DOTALL)
"""Marks around the answer after a thought; a box may also come without one."""
_END_TOKEN = re.compile(
    r"(?i)(?:<(?:\|(?:im_end|eo[mt]_id|eot|end(?:_?of_?(?:text|turn(?:_token)?))?|return|user)\||end_of_turn|eos|/s"
    r"|[|\uff5c]end▁of▁sentence[|\uff5c])>\s{0,9}){1,4}\Z"
)
"""Marks at the end of a turn, which a server should leave out."""
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
_TOOL_MARKUP = re.compile(
    r"<tool_calls?>\s*(?=[{\[<]|[\w.-]+\s*<arg_key>)|\[TOOL_(?:CALLS|REQUEST)\]\s*(?=[\[{\w])|<function=[\w.-]+>"
    r"|<\|python_tag\|>|<TOOLCALL>\s*(?=\[)|functools\s*(?=\[\{)"
    r"|<function_calls?>\s*(?=[{\[<])|<(?:[\w-]+:)?(?:invoke|tool_call)\b[^>]*>\s*(?=[{<])"
    r"|<[|\uff5c]tool[_▁]calls?[_▁](?:section[_▁])?(?:begin|start)[|\uff5c]>|<\|tool_call\|?>\s*(?=[{\[]|call:)"
    r"|<[|\uff5c]DSML[|\uff5c]\w+|<\|(?:start\|>\s*assistant\s+to=|channel\|>\s*\w+\s+to=)"
)
"""Starts of tool calls as models write them; a server should read them and send calls."""
_LAST_OF_A_MARK = re.compile(r"[>\]▷]")
_BEGINNINGS = (*map(str.lower, _FORMS), "<|start|>assistant<|channel|>", "<|channel|>analysis<|message|>")
MAX_OPENING = max(map(len, _BEGINNINGS))


def split_thought(text: str, *, is_split: bool = False) -> tuple[str, str]:
    """Return text and thought; `is_split` is true if the server has already separated the thought.

    A thought without an end leaves no text.
    """
    text = _without_end_tokens(text)
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
    if not (thoughts or text.startswith("<|begin_of_box|>")):
        return text, ""
    return _ANSWER.sub(r"\1", _ANSWER_MARKS.sub("", rest)).strip(), "\n\n".join(filter(None, thoughts))


def _without_end_tokens(text: str) -> str:
    mark = _END_TOKEN.search(text, max(0, len(text) - 200))
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
    """Streams a text without the thought at its start."""

    def __init__(self) -> None:
        self._buffer: str | None = ""
        """Text that may be a thought; None once the thought is over."""
        self._is_thinking = False

    def feed(self, piece: str) -> str:
        """Return the visible text that `piece` adds."""
        if self._buffer is None:
            return piece
        self._buffer += piece
        if self._is_thinking and not _LAST_OF_A_MARK.search(piece):
            return ""
        answer, thought = split_thought(self._buffer)
        beginning = answer.lstrip().lower()
        if not beginning or (len(beginning) < MAX_OPENING and any(mark.startswith(beginning) for mark in _BEGINNINGS)):
            # A text that ends like a mark may be the end of the thought.
            self._is_thinking = bool(thought) and not _LAST_OF_A_MARK.search(self._buffer.rstrip()[-1:])
            return ""
        self._buffer = None
        return answer


def _is_code(text: str, position: int) -> bool:
    return any(code.start() <= position < code.end() for code in _CODE.finditer(text))


def _is_quoted(text: str, position: int) -> bool:
    return bool(_IN_A_SENTENCE.search(text, max(0, position - 2), position)) or _is_code(text, position)
