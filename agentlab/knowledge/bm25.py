"""BM25 over the texts of an index, by the library bm25s, with its defaults.

Words are runs of two or more letters or digits, lower case, without the 33 English stopwords of the library; no
stemming (it would need another package). k1 = 1.5, b = 0.75. Text without blanks between words, such as Chinese, is
one long word here and is found by the dense half of a hybrid index only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray


class Bm25Index:
    """Read-only; safe to use from several threads."""

    def __init__(self, bm25: Any, size: int) -> None:
        self._bm25 = bm25
        self._size = size

    @classmethod
    def build(cls, texts: Sequence[str], folder: Path | None = None) -> Self:
        """Index `texts` and save to `folder`, if one is given, which stays empty where no text has a word."""
        bm25s = _library()
        words = _words(texts)
        if folder is not None:
            folder.mkdir()
        if not any(words):
            return cls(None, len(texts))
        bm25 = bm25s.BM25()
        # The library divides by zero for a word that would be in no text, and says so as a warning.
        with np.errstate(invalid="ignore"):
            bm25.index(words, show_progress=False)
        if folder is not None:
            bm25.save(folder, show_progress=False)
        return cls(bm25, len(texts))

    @classmethod
    def load(cls, folder: Path, size: int) -> Self:
        """Open what `build` saved for `size` texts; raises OSError or ValueError where it is damaged."""
        bm25s = _library()
        if not any(folder.iterdir()):
            return cls(None, size)
        bm25 = bm25s.BM25.load(folder, show_progress=False, verbosity=0)
        if bm25.scores["num_docs"] != size:
            raise ValueError(f"{folder}: {bm25.scores['num_docs']} texts, not {size}")
        return cls(bm25, size)

    def scores(self, query: str) -> NDArray[np.float32]:
        """The BM25 score of each text, shape (size,); 0 where no word of `query` is in it."""
        words = _words([query])[0]
        if self._bm25 is None or not words:
            return np.zeros(self._size, dtype=np.float32)
        scores: NDArray[np.float32] = self._bm25.get_scores(words)
        return scores


def _library() -> Any:
    # A progress bar of it starts a thread that never ends, also where the bar is not shown.
    os.environ.setdefault("DISABLE_TQDM", "1")
    import bm25s

    return bm25s


def _words(texts: Sequence[str]) -> list[list[str]]:
    words: list[list[str]] = _library().tokenize(list(texts), stopwords="en", return_ids=False, show_progress=False)
    return words
