"""Separates replies that decline from replies that answer, by wording, without a model call and in English only.

declines("The documents do not say.")                                      # True
declines("The documents give no number, but eleven players are usual.")    # False: the sentence then answers
"""

from __future__ import annotations

import functools
import re

_MARKER = (
    r"[\[\u3010\uff3b]\s*[1-9]\d?(?:\s*[,;\u3001\uff0c\u060c]\s*[1-9]\d?)*(?:\u2020[^\]\u3011]*)?\s*[\]\u3011\uff3d]"
)
MARKERS = rf"{_MARKER}(?:\s?{_MARKER})*"
"""Pattern of adjacent citation markers: `[1]`, `[1, 2]`, `[1] [2]`, and those in lenticular or full-width brackets."""

# A marker after the full stop belongs to the sentence before it.
_SENTENCE = re.compile(rf"[^\n]+?(?:[.!?](?:\s*{MARKERS})?(?=\s|\Z)|(?=\n|\Z))")
_SOURCE = (
    r"(?:documents?|documentation|passages?|context|sources?|texts?|articles?|rules?|sections?|results?|information"
    r"|handbook|manual|guide|page)"
)
_NOT = r"(?:(?:does|do|did|is|are|was|were|could|has|have)(?: not|n't)|can(?: ?not|'t))"
# Verbs of documents that answer. Others are no refusal: rules that do not *allow* something do answer.
_ANSWER_VERBS = (
    "say|state|mention|specify|contain|include|provide|give|tell|talk|discuss|describe|detail|indicate|list|name|show"
    "|report|answer|explain|address|offer|reveal|define|cover|have|go into|touch|help|confirm|clarify|refer|appear"
)
_ANSWER_PARTICIPLES = (
    "available|provided|given|mentioned|specified|stated|found|included|contained|listed|clear|sufficient|enough|known"
    "|present|described|discussed|covered|in|about"
)
_REFUSAL = re.compile(
    rf"\bi(?: am|'m)? (?:{_NOT}|not able to|unable to|not sure)\b"
    rf"|\b(?:we|you) {_NOT} (?:\w+ )?(?:know|have|find|see|answer|tell|say|determine)\b"
    r"|\bunable to (?:find|answer|determine|help)|\b(?:cannot|can't|could not) be (?:determined|answered|found)"
    rf"|\b{_SOURCE} (?:\w+ ){{0,2}}{_NOT} (?:\w+ ){{0,2}}(?:{_ANSWER_VERBS}|{_ANSWER_PARTICIPLES})\b"
    rf"|\bnot (?:\w+ )?(?:in|by) (?:the|these|this|any|your) (?:\w+ )?{_SOURCE}\b"
    r"|\b(?:no|not enough|insufficient|lack of) (?:\w+ )?(?:information|mention)\b"
    rf"|\bnone of (?:the|these|those) (?:\w+ )?{_SOURCE} (?:mentions?|says?|states?|gives?|specif(?:y|ies)|contains?)\b"
    r"|^\W*(?:it|this|that)(?:'s| is| was)(?: not|n't) (?:\w+ )?(?:mentioned|specified|stated)\b"
    r"|\bi have no idea\b"
    r"|\bgives? no \w+"
    r"|^\W*(?:unanswerable|unknown|no answer|n/a|not (?:mentioned|specified|stated|known|available|given))\W*$"
)
_CONTRAST = re.compile(r"\b(?:but|however|although|though)\b")
_APOLOGY = re.compile(r"\W*(?:i am|i'm|i apologi[sz]e|we are)? ?(?:very )?(?:sorry)?\W*")


def claims(text: str) -> list[str]:
    """Return the sentences of `text` that state something, without those that only refuse."""
    sentences = []
    for sentence in _SENTENCE.findall(text):
        lowered = sentence.lower().replace("\u2019", "'").strip()
        refusal = _REFUSAL.search(lowered)
        if lowered and (refusal is None or _CONTRAST.search(lowered, refusal.end())):
            sentences.append(sentence)
    return sentences


@functools.lru_cache(maxsize=32)  # several scorers of a turn check the same texts
def declines(text: str) -> bool:
    """Return True for an empty reply, and for one that contains only refusals and apologies."""
    return all(_APOLOGY.fullmatch(sentence.lower()) for sentence in claims(text))
