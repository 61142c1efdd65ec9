"""Grades the decision to search: python evals/bench/retrieval_decision.py datasets/laws [DIR ...]

A turn of a data set says by `needs_document_lookup` whether it needs the documents. Printed for each set: turns that
need them and are searched for, turns that need none and are left alone, and of both the messages that are got wrong.
"""

from __future__ import annotations

import sys
from pathlib import Path

from agentlab.data.datasets import load_dataset
from agentlab.knowledge.small_talk import is_small_talk


def main(folders: list[str]) -> None:
    for folder in folders:
        turns = [turn for conversation in load_dataset(Path(folder)).conversations for turn in conversation.turns]
        for needed, told in ((True, "need the documents, searched"), (False, "need none, left alone")):
            of_kind = [turn.user for turn in turns if turn.needs_document_lookup is needed]
            wrong = [text for text in of_kind if is_small_talk(text) is needed]
            if of_kind:
                print(f"{folder}: {len(of_kind) - len(wrong)} of {len(of_kind)} turns that {told}")
            for text in wrong:
                print(f"    wrong: {text[:100]!r}")


if __name__ == "__main__":
    main(sys.argv[1:] or ["datasets/laws", "datasets/research"])
