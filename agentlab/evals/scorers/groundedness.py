"""How much of what the reply says stands in the passages that were found: the mean over its sentences, from 0 to 1.

Of a sentence that claims something it is the share of its content (`stems`) that a
passage of this turn or an earlier one holds, or the question. A reply that only declines claims nothing and has 1, so
read it with `answered`; one without passages has what the question said before.

Words, not meaning: a sentence that turns round what a passage says is grounded to it. How far it goes with people's
ratings of faithfulness: `evals/bench/groundedness.py`, `results/LOG.md`.
"""

from __future__ import annotations

from collections.abc import Iterable

from agentlab.core.events import Search
from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome
from agentlab.evals.scorers.stems import content
from agentlab.knowledge.citations import strip_markers
from agentlab.knowledge.refusal import claims


def metrics(turn: Turn) -> tuple[str, ...]:
    return ("groundedness",) if turn.relevant_doc_ids else ()


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    searches = (event for event in (*outcome.events_before, *outcome.events) if isinstance(event, Search))
    passages = {passage.id: f"{passage.title} {passage.text}" for search in searches for passage in search.passages}
    found = supports(strip_markers(outcome.reply.text), [turn.user, *passages.values()])
    if not found:
        return {"groundedness": Score(value=1.0, reason="the reply claims nothing")}
    least = min(found, key=found.__getitem__)
    value = sum(found.values()) / len(found)
    return {"groundedness": Score(value=value, reason=f"least supported, {found[least]:.2f}: {least.strip()[:120]}")}


def supports(said: str, sources: Iterable[str]) -> dict[str, float]:
    """Each sentence that claims something, and the share of its content that is in a source."""
    held = frozenset[str]().union(*map(content, sources))
    words = {sentence: content(sentence) for sentence in claims(said)}
    return {sentence: len(words[sentence] & held) / len(words[sentence]) for sentence in words if words[sentence]}
