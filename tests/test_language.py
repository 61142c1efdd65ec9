"""The language of the pages: words that a reader stumbles over, and the size of the README."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support.paths import ROOT

README = ROOT / "README.md"
PAGES = [
    README,
    *(ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
    *(ROOT / name / "README.md" for name in ("datasets", "results")),
    *sorted((ROOT / "docs").rglob("*.md")),
]
FORBIDDEN = re.compile(r"\b(whoever|anew|stands there)\b", re.IGNORECASE)
FORBIDDEN_IN_README = re.compile(
    r"\b(whoever|stands|told|said|anew|goes on|held against|would tell|of what)\b", re.IGNORECASE
)
MAX_README_LINES = 130
MAX_CHANGELOG_LINES = 60
MAX_LINE_CHARS = 120
MAX_PARAGRAPH_LINES = 4
MAX_SENTENCE_WORDS = 20


def prose(page: Path) -> list[list[str]]:
    """Return the paragraphs and list items of a page as lines, without code, tables, headings and pictures."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    paragraphs: list[list[str]] = [[]]
    for line in text.splitlines():
        is_item = re.match(r"\s*([*-]|\d+\.) ", line) is not None
        if is_item or not line.strip() or line.startswith(("    ", "|", "#", "!", "[!", "<!--")):
            paragraphs.append([line] if is_item and not line.startswith("    ") else [])
        else:
            paragraphs[-1].append(line)
    return [lines for lines in paragraphs if lines]


def sentences(page: Path) -> list[str]:
    """Return the sentences of a page; code and links count as one word and as their text."""
    joined = [re.sub(r"^\s*([*-]|\d+\.) ", "", " ".join(line.strip() for line in lines)) for lines in prose(page)]
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", re.sub(r"`[^`]*`", "code", text)) for text in joined]
    return [part for text in plain for part in re.split(r"(?<=[.!?:;])\s+", text.replace("**", ""))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_has_a_forbidden_word(page):
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if FORBIDDEN.search(line)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_sentence_of_a_page_is_long(page):
    assert [sentence for sentence in sentences(page) if len(sentence.split()) > MAX_SENTENCE_WORDS] == []


def test_the_changelog_of_a_version_is_short():
    versions = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert versions and max(len(version.splitlines()) for version in versions) <= MAX_CHANGELOG_LINES


def test_the_readme_is_short():
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MAX_README_LINES
    assert [line for line in lines if len(line) > MAX_LINE_CHARS] == []
    assert [lines for lines in prose(README) if len(lines) > MAX_PARAGRAPH_LINES] == []
    assert [line for lines in prose(README) for line in lines if FORBIDDEN_IN_README.search(line)] == []
