"""Decides if a stored text states a given fact, whatever its wording.

It does if the cosine similarity (by the run's embedder) is at least `MIN_COSINE`. It also does if the token F1 is at
least `MIN_TOKEN_F1`; this needs no embedding. A fact can have rivals, such as its older version, which is often the
nearer one in cosine. Then the text must be closer to the fact than to every rival, by the sum of both measures.

`MIN_COSINE` was set on `datasets/memory` alone, with local/all-minilm-l6-v2. There are 265 pairs of a fact and the
user's sentence that states or repeats it, and 2,399 pairs of a fact and another text of the same conversation. In 20
draws the best threshold of a random half of the conversations was between 0.45 and 0.52. On the other half it accepted
89 % of the first pairs and 7 % of the second. 0.5 accepts 88 % and 5 % of all pairs. A model's wording is closer to the
reference than a user's, so the first figure is a lower bound. The older and newer version of a corrected fact were
separated in 126 of 132 cases (117 by cosine alone). With another embedder the threshold is a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from agentlab.data.conversations import Turn
from agentlab.evals.scorers.words import f1, normalise

MIN_COSINE = 0.5
MIN_TOKEN_F1 = 0.8


def positions_stating(
    texts: Sequence[str], fact: str, embed: Callable[[Sequence[str]], np.ndarray], rivals: Iterable[str] = ()
) -> list[int]:
    """Return the sorted positions of the `texts` that state `fact` and are closer to it than to any of the `rivals`."""
    facts = [fact, *(rival for rival in dict.fromkeys(rivals) if rival != fact)]
    overlaps = [[f1(normalise(text), normalise(other)) for other in facts] for text in texts]
    stating = {position for position, overlap in enumerate(overlaps) if overlap[0] == 1.0}
    if len(facts) == 1:
        stating |= {position for position, overlap in enumerate(overlaps) if overlap[0] >= MIN_TOKEN_F1}
    unsure = [position for position in range(len(texts)) if position not in stating]
    if unsure:
        vectors = embed([*facts, *(texts[position] for position in unsure)])
        for position, cosine in zip(unsure, (vectors[len(facts) :] @ vectors[: len(facts)].T).tolist(), strict=True):
            overlap = overlaps[position]
            closest = all(cosine[0] + overlap[0] > c + o for c, o in zip(cosine[1:], overlap[1:], strict=True))
            if closest and (cosine[0] >= MIN_COSINE or overlap[0] >= MIN_TOKEN_F1):
                stating.add(position)
    return sorted(stating)


def stated_facts(turns: Iterable[Turn]) -> list[str]:
    """Return every fact that `turns` state, outdated ones included, in their order."""
    return [memory.content for turn in turns for memory in turn.expected_memory or () if memory.content is not None]


def older_versions(fact: str, turns: Iterable[Turn]) -> list[str]:
    """Return the facts that `fact` replaced in `turns`, the newest first."""
    versions = [fact]
    for turn in reversed(list(turns)):
        versions += [m.replaces for m in turn.expected_memory or () if m.content in versions and m.replaces is not None]
    return versions[1:]
