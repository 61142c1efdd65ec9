"""The language of pages, cards, notebooks and docstrings: forbidden words, long sentences, the size of the README."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.paths import ROOT

README = ROOT / "README.md"
PAGES = [
    README,
    *(ROOT / name for name in ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
    *(ROOT / name for name in ("results/README.md", "results/LOG.md", "evals/labels/README.md")),
    *sorted((ROOT / "datasets").rglob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "notebooks").glob("*.ipynb")),
]
FORBIDDEN = re.compile(r"\b(whoever|anew|stands there)\b", re.IGNORECASE)
FORBIDDEN_IN_README = re.compile(
    r"\b(whoever|stands|told|said|anew|goes on|held against|would tell|of what)\b", re.IGNORECASE
)
FORBIDDEN_OPENING = re.compile(r"(What|Of|How|Whether|Where|As|Those|Who|Whose)\b")
FORBIDDEN_VARIABLES = {
    *("found", "said", "told", "asked", "known", "place", "kept", "held", "where", "judged", "began", "begun"),
}
"""Names that do not say what a variable holds."""
REACHES_A_MODEL = {"How often it was called, by a file that outlives the server."}
"""Docstrings that are descriptions of a tool."""
WRITTEN_FOR_A_MODEL = ('entries pruned, {len(merged)} written anew."',)
"""Ends of lines whose text a model reads."""
MAX_HELP_CHARS = 72
MAX_README_LINES = 130
MAX_CHANGELOG_LINES = 60
MAX_LINE_CHARS = 120
MAX_PARAGRAPH_LINES = 4
MAX_SENTENCE_WORDS = 20


def text_of(page: Path) -> str:
    """Return the text of a page, or the Markdown of a notebook."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb":
        return text
    cells = json.loads(text)["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")


def docstrings(file: Path) -> Iterator[str]:
    """Yield the docstrings of a module, its functions, classes and values."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        body = getattr(node, "body", None)
        for part in body if isinstance(body, list) else ():
            value = part.value if isinstance(part, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.value.strip()


def prose(page: Path) -> list[list[str]]:
    """Return the paragraphs and list items of a page as lines, without code, tables, headings and pictures."""
    text = re.sub(r"^```.*?^```$", "", text_of(page), flags=re.DOTALL | re.MULTILINE)
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
    assert [line for line in text_of(page).splitlines() if FORBIDDEN.search(line)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_sentence_of_a_page_is_long(page):
    assert [sentence for sentence in sentences(page) if len(sentence.split()) > MAX_SENTENCE_WORDS] == []


@pytest.mark.parametrize("folder", ["agentlab", "tests", "evals", "docs"])
def test_no_docstring_opens_with_a_question_word_or_a_preposition(folder):
    texts = [text for file in sorted((ROOT / folder).rglob("*.py")) for text in docstrings(file)]
    assert texts
    assert [text for text in texts if FORBIDDEN_OPENING.match(text) and text not in REACHES_A_MODEL] == []


def test_no_source_has_a_forbidden_word():
    files = [file for file in sorted((ROOT / "agentlab").rglob("*")) if file.suffix in (".py", ".txt", ".html", ".js")]
    lines = [f"{file}: {line.strip()}" for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    assert len(files) > 100
    assert [line for line in lines if FORBIDDEN.search(line) and not line.endswith(WRITTEN_FOR_A_MODEL)] == []


@pytest.mark.parametrize("folder", ["agentlab", "tests", "evals", "docs"])
def test_no_variable_has_a_forbidden_name(folder):
    names = {
        (str(file), node.id if isinstance(node, ast.Name) else node.arg)
        for file in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.arg) or (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    }
    assert len(names) > 10
    assert sorted(pair for pair in names if pair[1] in FORBIDDEN_VARIABLES) == []


def test_help_fits_its_width():
    files = sorted((ROOT / "agentlab" / "cli" / "help").glob("*.txt"))
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    assert lines and [line for line in lines if len(line) > MAX_HELP_CHARS] == []


def test_the_changelog_of_a_version_is_short():
    versions = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert versions and max(len(version.splitlines()) for version in versions) <= MAX_CHANGELOG_LINES


def test_the_readme_is_short():
    lines = README.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MAX_README_LINES
    assert [line for line in lines if len(line) > MAX_LINE_CHARS] == []
    assert [lines for lines in prose(README) if len(lines) > MAX_PARAGRAPH_LINES] == []
    assert [line for lines in prose(README) for line in lines if FORBIDDEN_IN_README.search(line)] == []
