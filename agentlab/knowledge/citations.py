"""Finds the passages that a reply rests on, without a model call.

    cite("Eleven players [2], one of them the goalkeeper.", passages)     # the second passage
    cite("Eleven players.", passages)                                     # the passages that share its words

A marker that names a passage cites it. A reply without markers cites the passages that contain at least half of its
content words, compared without stemming or synonyms. In scripts without blanks pairs of characters are words. A
sentence that only refuses, thanks or greets cites nothing. A judge must decide if a passage *supports* the reply.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from agentlab.core.messages import Citation, Passage
from agentlab.core.strict_json import load_own_yaml
from agentlab.knowledge.refusal import MARKERS, claims
from agentlab.knowledge.words import separate_words

# `[1]`, `[1, 2]` and `[1][2]` match; `x = [1, 2]` and the index of `argv[1]` do not. A marker right after a Latin
# letter or digit must end the clause; after another letter it need not, since Chinese has no blanks.
_MARKERS = re.compile(
    rf"(?<![a-zA-Z0-9_)\]=])(?<!= )(?<!return )(?<!>>> ){MARKERS}"
    rf"|(?<=[a-zA-Z0-9_)]){MARKERS}(?=[.,;:!?](?:\s|\Z)|[^\x00-\x7f]|\s*\Z)"
)
# Compiled when first used, which takes longer than to load the rest of the module.
_SPACE_AND_MARKERS = rf"(?m:^)(?:{_MARKERS.pattern})[^\S\n]*|(?<![^\S\n])[^\S\n]*(?:{_MARKERS.pattern})"
_CODE = re.compile(r"(```.*?(?:```|\Z)|`[^`\n]*`)", re.DOTALL)
_WORD = re.compile(r"[^\W_]+")

_WORDS = load_own_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
_STOPWORDS = frozenset(" ".join(_WORDS.values()).split())


def cite(reply_text: str, passages: Sequence[Passage], limit: int = 3) -> tuple[Citation, ...]:
    """Return citations of at most `limit` different passages behind `reply_text`; () for a refusal or small talk.

    Markers [n] count from 1 in the order of `passages`; the citations keep the order of the text. A number that names
    no passage is ignored. Without a usable marker the passages with the largest share of the reply's content words are
    cited, if the share is at least half. At equal shares the earlier passage comes first.
    """
    claimed = "\n".join(claims(reply_text))
    cited = [(passages[number - 1], number) for number in _marker_numbers(claimed) if 1 <= number <= len(passages)]
    if not cited:
        cited = [(passage, 0) for passage in _passages_sharing(set(_content_words(strip_markers(claimed))), passages)]
    distinct: dict[str, Citation] = {}
    for passage, number in cited:
        citation = Citation(doc_id=passage.doc_id, passage_id=passage.id, title=passage.title, marker=number)
        distinct.setdefault(passage.id, citation)
    return tuple(distinct.values())[:limit]


def strip_markers(text: str) -> str:
    """Return `text` without its markers [n] and the space before each; code in backticks is unchanged."""
    return _replace_markers(text, {}) if re.search(r"[\[\u3010\uff3b]", text) else text


def with_sources(text: str, citations: Sequence[Citation]) -> str:
    """Return `text` with a line for each source below it, without markers that name no source."""
    shown = _replace_markers(text, {citation.marker: f"[{citation.marker}]" for citation in citations})
    return "\n\n".join(filter(None, [shown, "\n".join(map(source_line, citations))]))


def with_titles(text: str, citations: Sequence[Citation]) -> str:
    """Return `text` with the document's title in place of each marker, without markers that name no source.

    A later prompt numbers other passages, so a marker of an earlier reply would name the wrong one.
    """
    return _replace_markers(text, {citation.marker: f" ({_name(citation)})" for citation in citations})


def _replace_markers(text: str, texts: Mapping[int, str]) -> str:
    def replace(markers: re.Match[str]) -> str:
        replaced = "".join(texts.get(number, "") for number in _numbers(markers[0]))
        before, after = re.match(r"\s*", markers[0]), re.search(r"\s*\Z", markers[0])
        assert before is not None and after is not None
        return f"{before[0]}{replaced}{after[0]}".replace("  ", " ") if replaced else ""

    parts = _CODE.split(text)
    parts[::2] = [re.sub(_SPACE_AND_MARKERS, replace, part) for part in parts[::2]]
    return "".join(parts)


def source_line(citation: Citation) -> str:
    """Return the line of a source below a reply, with the marker that names it."""
    marker = f" [{citation.marker}]" if citation.marker else ""
    return f"Source{marker}: {_name(citation)} (document {citation.doc_id}, passage {citation.passage_id})"


def _name(citation: Citation) -> str:
    return " ".join(citation.title.split()) or citation.doc_id


def _marker_numbers(text: str) -> list[int]:
    prose = " ".join(_CODE.split(text)[::2])
    return [number for marker in _MARKERS.findall(prose) for number in _numbers(marker)]


def _numbers(markers: str) -> list[int]:
    # In 【1†title】 only the number before the dagger names a passage.
    return [int(number) for number in re.findall(r"\d+", re.sub(r"\u2020[^\]\u3011]*", "", markers))]


def _content_words(text: str) -> list[str]:
    rest, others = separate_words(text.lower())
    return [word for word in (*_WORD.findall(rest), *others) if word not in _STOPWORDS]


def _passages_sharing(words: set[str], passages: Sequence[Passage]) -> list[Passage]:
    if not words:
        return []
    counts = [(len(words.intersection(_content_words(f"{p.title}\n{p.text}"))), p) for p in passages]
    best_first = sorted(counts, key=lambda pair: -pair[0])
    return [passage for count, passage in best_first if 2 * count >= len(words)]
