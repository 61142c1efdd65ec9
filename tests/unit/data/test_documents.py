"""Reading a corpus: strict about data sets, forgiving about nothing that would be silently wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentlab.core.errors import DatasetError
from agentlab.data import documents as module
from agentlab.data.documents import Document, load_documents

GOOD = {"doc_id": "law-11", "title": "Offside", "text": "A player is offside if ..."}


def corpus(tmp_path: Path, *lines: str | bytes | dict[str, object]) -> Path:
    path = tmp_path / "corpus.jsonl"
    raw = [
        line if isinstance(line, bytes) else (line if isinstance(line, str) else json.dumps(line)).encode()
        for line in lines
    ]
    path.write_bytes(b"\n".join(raw) + b"\n")
    return path


def test_a_corpus_keeps_its_order_and_its_metadata(tmp_path: Path) -> None:
    path = corpus(tmp_path, GOOD, "", {"doc_id": "a#b", "title": "", "text": "", "metadata": {"page": 3}})
    assert load_documents(path) == (
        Document(**GOOD),
        Document(doc_id="a#b", title="", text="", metadata={"page": 3}),
    )


def test_lines_end_at_newlines_only(tmp_path: Path) -> None:
    text = "one\u2028two\x85three\x0cfour"
    path = corpus(tmp_path, "\ufeff" + json.dumps(GOOD | {"text": text}, ensure_ascii=False))
    assert load_documents(path)[0].text == text


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        (b'{"doc_id": "\xff"}', "not UTF-8"),
        ("[" * 100_000, "nested deeper"),
        ('{"doc_id": "a", "title": "", "text": "", "metadata": {"n": ' + "1" * 5000 + "}}", "a number is too large"),
        ('{"doc_id": "a", "doc_id": "b"}', "duplicate key 'doc_id'"),
        ('{"doc_id": "a", "title": "", "text": "", "metadata": {"n": NaN}}', "NaN is not JSON"),
        ('{"doc_id": "a", "title": "", "text": "\\ud800"}', "surrogates not allowed"),
        (GOOD | {"titel": "x"}, "unknown key 'titel'. Did you mean 'title'?"),
        ({"doc_id": "a", "title": "x"}, "text: Field required"),
        (GOOD | {"title": None}, "title: Input should be a valid string"),
        (GOOD | {"doc_id": 7}, "doc_id: Input should be a valid string"),
        (GOOD | {"doc_id": " "}, "doc_id: is empty"),
        (GOOD | {"metadata": []}, "metadata: Input should be a valid dictionary"),
        (GOOD, "doc_id: duplicate 'law-11'; first used in line 1"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str | bytes | dict[str, object], problem: str) -> None:
    path = corpus(tmp_path, GOOD, line)
    with pytest.raises(DatasetError) as caught:
        load_documents(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_empty_or_missing_corpus_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="no documents in this file"):
        load_documents(corpus(tmp_path, ""))
    with pytest.raises(DatasetError, match="No such file"):
        load_documents(tmp_path / "nowhere.jsonl")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match=r"no \.md, \.txt or \.html file"):
        load_documents(tmp_path / "empty")


def test_a_folder_is_read_in_order_of_path(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.md").write_text("# hidden")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    (tmp_path / "z.md").write_bytes(b"```\n# a comment\n```\r\n\r\n## The title ##\r\ntext\r\n")
    (tmp_path / "b" / "notes.txt").write_text("\ufeffjust text")
    (tmp_path / "A.HTML").write_text(
        "<html><head><title> Two\n words </title><style>p {}</style></head><body><nav>Menu</nav>"
        "<p>Some <b>bold</b>\n text,<br>next line</p><script>evil()</script><ul><li>one</li><li>two</li></ul>"
        "<pre>def f():\n    return 1</pre><!-- no --></body></html>"
    )
    html, notes, markdown = load_documents(tmp_path)
    assert (html.doc_id, html.title) == ("A.HTML", "Two words")
    assert html.text == "Some bold text,\nnext line\n\none\n\ntwo\n\ndef f():\n    return 1"
    assert (notes.doc_id, notes.title, notes.text) == ("b/notes.txt", "notes", "just text")
    assert (markdown.doc_id, markdown.title) == ("z.md", "The title")
    assert markdown.text == "```\n# a comment\n```\n\n## The title ##\ntext\n"


def test_html_title_falls_back_to_the_first_heading_at_any_depth(tmp_path: Path) -> None:
    (tmp_path / "deep.html").write_text("<div>" * 5000 + "<h1>Deep &amp; down</h1>x")
    (document,) = load_documents(tmp_path)
    assert (document.title, document.text) == ("Deep & down", "Deep & down\n\nx")


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, kind: str) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("secret")
    inside = tmp_path / "docs"
    inside.mkdir()
    (inside / "ok.txt").write_text("fine")
    link, target = (inside / "l.txt", "secret.txt") if kind == "file" else (inside / "l", ".")
    link.symlink_to(tmp_path / "outside" / target)
    with pytest.raises(DatasetError, match="leads out of the folder"):
        load_documents(inside)


def test_a_link_inside_the_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / "ok.txt").write_text("fine")
    (tmp_path / "again.txt").symlink_to(tmp_path / "ok.txt")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert [document.doc_id for document in load_documents(tmp_path)] == ["again.txt", "ok.txt"]


def test_files_that_cannot_be_text_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = tmp_path / "latin.txt"
    bad.write_bytes(b"\x00\xff\xfe" * 20)
    with pytest.raises(DatasetError, match=r"latin\.txt: it is not text"):
        load_documents(tmp_path)
    bad.write_text("x" * 20)
    monkeypatch.setattr(module, "_MAX_FILE_BYTES", 10)
    with pytest.raises(DatasetError, match=r"latin\.txt: .*of which at most"):
        load_documents(tmp_path)
    bad.unlink()
    bad.symlink_to(tmp_path / "gone.txt")
    with pytest.raises(DatasetError, match=r"latin\.txt: No such file"):
        load_documents(tmp_path)
