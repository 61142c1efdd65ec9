"""BM25 over the texts of an index, by the library bm25s with its defaults: k1 = 1.5, b = 0.75.

Words are sequences of two or more letters or digits, in lower case. The 33 English stopwords of the library are left
out; there is no stemming, which would need another package. `words` finds the words of scripts without blanks.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from agentlab.knowledge.words import separate_words


class Bm25Index:
    """A read-only BM25 index; safe to use from several threads."""

    def __init__(self, bm25: Any, size: int) -> None:
        self._bm25 = bm25
        self._size = size

    @classmethod
    def build(cls, texts: Sequence[str], folder: Path | None = None) -> Self:
        """Index `texts` and save the index to `folder` if given; without any word the folder stays empty."""
        bm25s = _library()
        words = _words(texts)
        if folder is not None:
            folder.mkdir()
        if not any(words):
            return cls(None, len(texts))
        bm25 = bm25s.BM25()
        # The library divides by zero for a word in no text, and warns about that.
        with np.errstate(invalid="ignore"):
            bm25.index(words, show_progress=False)
        if folder is not None:
            bm25.save(folder, show_progress=False)
        return cls(bm25, len(texts))

    @classmethod
    def load(cls, folder: Path, size: int) -> Self:
        """Open the index that `build` saved for `size` texts; raises OSError or ValueError if it is damaged."""
        bm25s = _library()
        if not any(folder.iterdir()):
            return cls(None, size)
        bm25 = bm25s.BM25.load(folder, show_progress=False, verbosity=0)
        if bm25.scores["num_docs"] != size:
            raise ValueError(f"{folder}: {bm25.scores['num_docs']} texts, not {size}")
        return cls(bm25, size)

    def scores(self, query: str) -> NDArray[np.float32]:
        """Return the BM25 score of each text, shape (size,); 0 for a text without a word of `query`."""
        words = _words([query])[0]
        if self._bm25 is None or not words:
            return np.zeros(self._size, dtype=np.float32)
        scores: NDArray[np.float32] = self._bm25.get_scores(words)
        return scores


def _library() -> Any:
    # Even a hidden progress bar of the library starts a thread that never ends.
    os.environ.setdefault("DISABLE_TQDM", "1")
    import bm25s

    return bm25s


def _words(texts: Sequence[str]) -> list[list[str]]:
    separated = [separate_words(text) for text in texts]
    plain = [rest for rest, _ in separated]
    words: list[list[str]] = _library().tokenize(plain, stopwords="en", return_ids=False, show_progress=False)
    return [[*some, *others] for some, (_, others) in zip(words, separated, strict=True)]
