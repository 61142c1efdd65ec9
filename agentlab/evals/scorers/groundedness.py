"""Share of the reply's content that the retrieved passages contain: the mean over its sentences, from 0 to 1.

A sentence scores the share of its stems (`stems`) that occur in the question or in a passage of this or an earlier
turn. Sentences that only decline do not count. A reply without other sentences scores 1, so read this metric with
`answered`. If no passage was retrieved only the question counts.

The metric compares words, not meaning: a sentence that reverses a passage counts as grounded.
`evals/bench/groundedness.py` measures its correlation with human ratings of faithfulness; see `results/LOG.md`.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentlab.core.events import Search
from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome
from agentlab.evals.scorers.stems import content_stems
from agentlab.knowledge.citations import strip_markers
from agentlab.knowledge.refusal import claims


def metrics(turn: Turn) -> tuple[str, ...]:
    return ("groundedness",) if turn.relevant_doc_ids else ()


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    searches = (event for event in (*outcome.events_before, *outcome.events) if isinstance(event, Search))
    passages = {passage.id: f"{passage.title} {passage.text}" for search in searches for passage in search.passages}
    shares = supported_shares(strip_markers(outcome.reply.text), [turn.user, *passages.values()])
    if not shares:
        return {"groundedness": Score(value=1.0, reason="the reply claims nothing")}
    least = min(shares, key=shares.__getitem__)
    value = sum(shares.values()) / len(shares)
    return {"groundedness": Score(value=value, reason=f"least supported, {shares[least]:.2f}: {least.strip()[:120]}")}


def supported_shares(reply: str, sources: Iterable[str]) -> dict[str, float]:
    """Return, for each sentence that claims something, the share of its stems that occur in `sources`."""
    source_stems = frozenset[str]().union(*map(content_stems, sources))
    by_sentence = {sentence: content_stems(sentence) for sentence in claims(reply)}
    return {sentence: len(stems & source_stems) / len(stems) for sentence, stems in by_sentence.items() if stems}
