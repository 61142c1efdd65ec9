"""Whether a remembered text tells a certain fact, in whatever words.

It does if the cosine similarity of the two (the run's embedder) is at least `SAME_AT`, or the token F1 at least
`NEARLY_VERBATIM`, which needs no embedding. Where other facts could be meant too, such as the older version of a
corrected one, which is often the nearer in cosine, it must be closer to the one asked about than to any of them, by the
sum of both measures.

`SAME_AT` was set on `datasets/memory` and nothing else, with local/all-minilm-l6-v2: 265 pairs of a fact and what the
user said to tell or repeat it, 2,399 pairs of a fact and something else from the same conversation. The best separation
on a random half of the conversations lay between 0.45 and 0.52 in 20 draws, and on the other half it accepted 89 % of
the first and 7 % of the second; 0.5 accepts 88 % and 5 % of all. Facts as a model writes them are closer to the
reference than what a user says, so the first figure is a floor. Older and newer version of a corrected fact were told
apart in 126 of 132 cases (cosine alone: 117). With another embedder the threshold is only a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from agentlab.evals.scorers.words import f1, normalise

if TYPE_CHECKING:
    import numpy as np

    from agentlab.data.conversations import Turn

SAME_AT = 0.5
NEARLY_VERBATIM = 0.8


def telling(
    texts: Sequence[str], fact: str, embed: Callable[[Sequence[str]], np.ndarray], rivals: Iterable[str] = ()
) -> list[int]:
    """The positions of the `texts` that tell `fact`, and none of the `rivals` rather."""
    facts = [fact, *(rival for rival in dict.fromkeys(rivals) if rival != fact)]
    words = {at: [f1(normalise(text), normalise(other)) for other in facts] for at, text in enumerate(texts)}
    sure = {position for position, shared in words.items() if shared[0] == 1.0}
    if len(facts) == 1:
        sure |= {position for position, shared in words.items() if shared[0] >= NEARLY_VERBATIM}
    unsure = [position for position in words if position not in sure]
    if unsure:
        vectors = embed([*facts, *(texts[position] for position in unsure)])
        for position, near in zip(unsure, (vectors[len(facts) :] @ vectors[: len(facts)].T).tolist(), strict=True):
            shared = words[position]
            closest = all(near[0] + shared[0] > n + s for n, s in zip(near[1:], shared[1:], strict=True))
            if closest and (near[0] >= SAME_AT or shared[0] >= NEARLY_VERBATIM):
                sure.add(position)
    return sorted(sure)


def told(turns: Iterable[Turn]) -> list[str]:
    """Every fact of `turns`, outdated ones too, in the order they were told."""
    return [memory.content for turn in turns for memory in turn.expected_memory or () if memory.content is not None]


def other_versions(fact: str, turns: Iterable[Turn]) -> list[str]:
    """What `fact` was before it was corrected, and what that was, as far as `turns` tell."""
    line = [fact]
    for turn in reversed(list(turns)):
        line += [m.replaces for m in turn.expected_memory or () if m.content in line and m.replaces is not None]
    return line[1:]
