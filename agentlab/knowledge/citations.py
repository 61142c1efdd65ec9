"""Which passages a reply rests on, without asking a model.

    cite("Eleven players [2], one of them the goalkeeper.", passages)     # the second passage
    cite("Eleven players.", passages)                                     # those that hold its words

Markers that name a passage count as the model's own word. A reply without them is given the passages that hold at
least half of its content words. What only refuses, thanks or greets has no source. Words are compared as they stand:
no stemming, no synonyms; whether the passage *supports* the reply is a question for a judge.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentlab.messages import Citation, Passage

_NUMBERS = r"\[\s*[1-9]\d?(?:\s*[,;]\s*[1-9]\d?)*\s*\]"
_CHAIN = rf"{_NUMBERS}(?:\s?{_NUMBERS})*"
# `[1]`, `[1, 2]`, `[1][2]`, but neither `x = [1, 2]` nor the index of `argv[1]`: glued to a word, a marker has to end
# the clause.
_MARKERS = re.compile(
    rf"(?<![\w)\]=])(?<!= )(?<!return )(?<!>>> ){_CHAIN}|(?<=[\w)]){_CHAIN}(?=[.,;:!?](?:\s|\Z)|\s*\Z)"
)
_BLANK_AND_MARKERS = re.compile(rf"(?m:^)(?:{_MARKERS.pattern})[^\S\n]*|[^\S\n]*(?:{_MARKERS.pattern})")
_CODE = re.compile(r"(```.*?(?:```|\Z)|`[^`\n]*`)", re.DOTALL)
# A marker after the full stop belongs to the sentence it follows.
_SENTENCE = re.compile(rf"[^\n]+?(?:[.!?](?:\s*{_CHAIN})?(?=\s|\Z)|(?=\n|\Z))")
_WORD = re.compile(r"[^\W_]+")

_SOURCE = r"(?:documents?|passages?|context|sources?|text|articles?|information)"
_REFUSAL = re.compile(
    r"\bi(?: am|'m)? (?:do not|don't|did not|didn't|cannot|can't|could not|couldn't|not able to|unable to|not sure)\b"
    r"|\bunable to (?:find|answer|determine|help)|\b(?:cannot|can't|could not) be (?:determined|answered|found)"
    rf"|\b{_SOURCE} (?:\w+ )?(?:does|do|did)(?: not|n't)\b"
    rf"|\bnot (?:\w+ )?(?:in|by) (?:the|these|this|any|your) (?:\w+ )?{_SOURCE}\b"
    r"|\b(?:no|not enough|insufficient|lack of) (?:\w+ )?(?:information|mention)\b"
    r"|^\W*(?:unanswerable|unknown|no answer)\W*$"
)
_BUT = re.compile(r"\b(?:but|however|although|though)\b")

_FUNCTION_WORDS = """
    a about after all also am an and any are aren as at be because been before being but by can could couldn d did
    didn do does doesn doing don done for from get gets got had has have having he her here hers him his how however i
    if in into is isn it its itself just like ll m may me might more most must my no nor not of off on once only or
    other our ours out over own per re s same shall she should so some such t than that the their theirs them then
    there these they this those through to too under until up us ve very via was wasn we were weren what when where
    whether which while who whom whose why will with within won would wouldn yes you your yours"""
_SAID_ANYWAY = """
    according answer answers anything assist based bye chat context day document documents else glad good goodbye great
    happy hello help hey hi hope information know let mention mentioned nice ok okay passage passages please pleasure
    provided question questions said say says something sorry source sources sure tell thank thanks today understand
    want welcome well"""
_STOPWORDS = frozenset(f"{_FUNCTION_WORDS} {_SAID_ANYWAY}".split())


def cite(reply_text: str, passages: Sequence[Passage], limit: int = 3) -> tuple[Citation, ...]:
    """The passages behind `reply_text`, at most `limit`, each once; () for a refusal or small talk.

    Markers [n] count from 1 in the order of `passages` and come in the order they are written in; numbers that name no
    passage are ignored. Without a usable marker: the passages that hold the largest share of the reply's content words,
    half or more, the earlier passage first where shares are equal.
    """
    claims = "\n".join(_claims(reply_text))
    named = [number for number in _marked(claims) if 1 <= number <= len(passages)]
    if named:
        cited = [passages[number - 1] for number in named]
    else:
        cited = _holding(set(_content_words(strip_markers(claims))), passages)
    distinct = {passage.id: passage for passage in cited}
    return tuple(
        Citation(doc_id=passage.doc_id, passage_id=passage.id, title=passage.title)
        for passage in list(distinct.values())[:limit]
    )


def strip_markers(text: str) -> str:
    """`text` without its markers [n] and the blank before each; code in backticks is left alone."""
    parts = _CODE.split(text)
    parts[::2] = [_BLANK_AND_MARKERS.sub("", part) for part in parts[::2]]
    return "".join(parts)


def format_citations(citations: Sequence[Citation]) -> str:
    """The lines shown under a reply, one for each source; "" for none."""
    return "\n".join(
        f"Source: {' '.join(citation.title.split()) or citation.doc_id} "
        f"(document {citation.doc_id}, passage {citation.passage_id})"
        for citation in citations
    )


def _claims(text: str) -> list[str]:
    """The sentences that say something: one that refuses and stops there is left out, with its markers."""
    sentences = _SENTENCE.findall(text)
    plain = [sentence.lower().replace("\u2019", "'") for sentence in sentences]
    return [
        sentence
        for sentence, said in zip(sentences, plain, strict=True)
        if not (refusal := _REFUSAL.search(said)) or _BUT.search(said, refusal.end())
    ]


def _marked(text: str) -> list[int]:
    prose = " ".join(_CODE.split(text)[::2])
    return [int(number) for marker in _MARKERS.findall(prose) for number in re.findall(r"\d+", marker)]


def _content_words(text: str) -> list[str]:
    return [word for word in _WORD.findall(text.lower()) if word not in _STOPWORDS]


def _holding(words: set[str], passages: Sequence[Passage]) -> list[Passage]:
    if not words:
        return []
    shares = [(len(words.intersection(_content_words(f"{p.title}\n{p.text}"))), p) for p in passages]
    best_first = sorted(shares, key=lambda pair: -pair[0])
    return [passage for held, passage in best_first if 2 * held >= len(words)]
