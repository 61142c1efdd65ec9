"""Labelled texts have two halves in ten languages, and their bench reads them and its outside sets."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

LABELS = Path("evals/labels")
SIZES = {"messages": (160, 1220, 540), "replies": (279, 1411, 1110), "pairs": (266, 7338, 1500)}


def test_each_half_of_the_labels_is_whole_and_has_an_author():
    for name, (build, held_back, unseen) in SIZES.items():
        rows = [json.loads(line) for line in (LABELS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
        assert Counter(row["half"] for row in rows) == Counter(build=build, held=held_back, unseen=unseen)
        assert len({row["id"] for row in rows}) == len(rows)
        assert len({row["author"] for row in rows}) == {"messages": 8, "replies": 9, "pairs": 31}[name]
        assert len({row["lang"] for row in rows}) == 10


def test_the_bench_of_labels_prints_demands_and_wrong_texts():
    run = subprocess.run(
        [sys.executable, "evals/bench/labels.py", "--half", "held", "--wrong"],
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert run.returncode == 0, run.stderr
    assert "| stored: 229 of 229 of datasets/memory | 229/229 | holds |" in run.stdout
    assert "| searched: at most one miss a language | none | holds |" in run.stdout
    assert "questions not stored: mh-" in run.stdout and "pairs, " in run.stdout
