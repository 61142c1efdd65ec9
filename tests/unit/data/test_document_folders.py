"""A folder of files of several kinds becomes documents; a file without text becomes a line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentlab.core.errors import DatasetError, MissingExtra
from agentlab.data.documents import load_documents
from support.office import paragraph, table, write_bomb, write_docx, write_pdf

LOCKED = "/Encrypt<</Filter/Standard/V 1/R 2/O<{0}>/U<{0}>/P -4>>/ID[<00><00>]".format("00" * 32)


def read(folder: Path) -> tuple[dict[str, str], list[str]]:
    """The texts of a folder's documents by id, and the lines about skipped files."""
    lines: list[str] = []
    return {document.doc_id: document.text for document in load_documents(folder, lines.append)}, lines


@pytest.mark.parametrize(
    "page, text",
    [
        ("<html><head><title>T</title><body><p>Open at ten.", "Open at ten."),
        ("<html><head><title>T</title><style>p {}</style><p>Open at ten.</html>", "Open at ten."),
        ("<head><meta charset=utf-8><h1>Hours</h1>Open at ten.", "Hours\n\nOpen at ten."),
        ("<title>T</title><nav>Home<p>Open at ten.", "Home\n\nOpen at ten."),
        ("<nav>Menu</nav><p>Open at ten.<nav>Menu</nav>", "Open at ten."),
        ("<![if !IE]><p>Open<![endif]> at ten.<![foo<p>", "Open at ten."),
        ("<svg><title>Logo</title></svg><select><option>DE</select><noscript>No</noscript><p>Open", "Open"),
        (
            "10<sup>6</sup> m<sup>2</sup>, the 5<sup>th</sup>, H<sub>2</sub>O, see<sup>[1]</sup>",
            "10^6 m^2, the 5th, H2O, see[1]",
        ),
        (
            "<p>Prices<table><tr><th>Plan<th>Price<tr><td><p>Basic</p><td>10<br>EUR<tr><td>Big<td></table>End",
            "Prices\n\nPlan | Price\nBasic | 10 EUR\nBig\n\nEnd",
        ),
        ("<table><tr><td><h1>Hours</h1><p>Open</p><td><ul><li>a<li>b</ul></table>", "Hours\n\nOpen\n\na\n\nb"),
    ],
)
def test_html_is_read_as_browsers_show_it(tmp_path: Path, page: str, text: str) -> None:
    (tmp_path / "a.html").write_text(page)
    assert read(tmp_path) == ({"a.html": text}, [])


@pytest.mark.parametrize(
    "data, text",
    [
        ("Fußball für 5 €".encode("cp1252"), "Fußball für 5 €"),
        ("本は八冊まで借りられます。".encode("cp932"), "本は八冊まで借りられます。"),
        ("Сколько книг можно взять домой?".encode("cp1251"), "Сколько книг можно взять домой?"),
        ("Öffnung".encode("utf-16"), "Öffnung"),
        ("Open at ten, daily.".encode("utf-16-le"), "Open at ten, daily."),
        ("\ufeffÖffnung\r\nzehn".encode(), "Öffnung\nzehn"),
    ],
)
def test_the_encoding_of_a_file_is_recognised(tmp_path: Path, data: bytes, text: str) -> None:
    (tmp_path / "a.txt").write_bytes(data)
    assert read(tmp_path)[0] == {"a.txt": text}


def test_the_encoding_that_a_page_declares_counts(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_bytes('<meta charset="koi8-r"><p>Да'.encode("koi8-r"))
    assert read(tmp_path)[0] == {"a.html": "Да"}


def test_front_matter_names_the_title_and_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text('---\ntitle: "Opening hours"\ntags: [a]\n---\n\n# Hours\nOpen at ten.\n')
    (tmp_path / "b.md").write_text("---\nA rule above, and no front matter.\n")
    front, rule = load_documents(tmp_path)
    assert (front.title, front.text.strip()) == ("Opening hours", "# Hours\nOpen at ten.")
    assert (rule.title, rule.text) == ("b", "---\nA rule above, and no front matter.\n")


def test_docx_keeps_rows_of_tables_and_the_place_of_superscripts(tmp_path: Path) -> None:
    body = paragraph("The load is 10", "6", " N.") + table(["Plan", "Price"], ["Basic", "10 EUR"])
    write_docx(tmp_path / "a.docx", body)
    assert read(tmp_path) == ({"a.docx": "The load is 10^6 N.\n\nPlan | Price\nBasic | 10 EUR"}, [])


def test_pdf_keeps_lines_superscripts_and_loses_headers_that_repeat(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    lines_of_pages = ("The load is 10^6 N, not 106.", "Rules apply", "Basic 10 EUR", "End")
    pages = [["Acme Handbook", line, f"Page {number}"] for number, line in enumerate(lines_of_pages)]
    write_pdf(tmp_path / "sub" / "a.pdf", pages)
    texts, lines = read(tmp_path)
    first, _, third, _ = texts["sub/a.pdf"].split("\n\n")
    assert (first, third, lines) == ("The load is 10^6 N, not 106.", "Basic 10 EUR", [])


def test_menus_and_footers_that_repeat_on_most_pages_are_removed(tmp_path: Path) -> None:
    for name in ("Loans", "Hours", "Fees", "Cards"):
        page = (
            f"<div>Acme Help</div><div>Search</div><h1>{name}</h1><p>Steps<p>About {name}.<footer>Contact us</footer>"
        )
        (tmp_path / f"{name}.html").write_text(page)
    (tmp_path / "other.html").write_text("<h1>Own</h1><p>Acme Help is old.")
    texts, lines = read(tmp_path)
    assert texts["Loans.html"] == "Loans\n\nSteps\n\nAbout Loans." and texts["other.html"] == "Own\n\nAcme Help is old."
    assert lines == ["not read: 3 lines at the start or end of most .html files, such as 'Acme Help'"]


def test_two_pages_or_equal_pages_keep_all_lines(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.html").write_text(f"<p>Acme Help<p>{name}")
    assert read(tmp_path)[0] == {"a.html": "Acme Help\n\na", "b.html": "Acme Help\n\nb"}
    for name in "abc":
        (tmp_path / f"{name}.html").write_text("<p>Acme Help<p>the same")
    assert set(read(tmp_path)[0].values()) == {"Acme Help\n\nthe same"}


def test_each_file_without_text_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "good.md").write_text("# Good\nText")
    (tmp_path / "script.html").write_text("<div id=app></div><script>render()</script>")
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "photo.png").write_bytes(b"\x89PNG")
    (tmp_path / "broken.pdf").write_bytes(b"%PDF-1.4 and nothing else")
    (tmp_path / "broken.docx").write_bytes(b"PK\x03\x04 and nothing else")
    (tmp_path / "old.docx").write_bytes(b"\xd0\xcf\x11\xe0" + bytes(600))
    write_pdf(tmp_path / "scan.pdf", [[], []])
    write_pdf(tmp_path / "locked.pdf", [["secret"]], LOCKED)
    write_docx(tmp_path / "damaged.docx", "<w:p><w:r>")
    texts, lines = read(tmp_path)
    assert list(texts) == ["good.md"] and not any("\n" in line for line in lines)
    causes = dict(line.removeprefix("not read: ").split(": ", 1) for line in lines)
    assert set(causes) == {
        *(
            "script.html",
            "empty.txt",
            "broken.pdf",
            "broken.docx",
            "old.docx",
            "scan.pdf",
            "locked.pdf",
            "damaged.docx",
        ),
        "1 file of another kind",
    }
    assert "no text is left" in causes["script.html"] and "OCR" in causes["scan.pdf"]
    assert "password" in causes["locked.pdf"] and "password" in causes["old.docx"]


def test_a_docx_that_unpacks_to_gigabytes_or_has_entities_is_a_line(tmp_path: Path) -> None:
    (tmp_path / "good.md").write_text("Text")
    write_bomb(tmp_path / "bomb.docx", "word/document.xml", 50)
    write_docx(
        tmp_path / "laugh.docx", paragraph("&a;"), {"word/styles.xml": '<!DOCTYPE a [<!ENTITY a "ha">]><a>&a;</a>'}
    )
    texts, lines = read(tmp_path)
    assert list(texts) == ["good.md"]
    assert "unpacks to" in lines[0] and "entities" in lines[1]


@pytest.mark.parametrize("name, module", [("a.pdf", "pypdfium2"), ("a.docx", "mammoth")])
def test_a_missing_extra_is_named(tmp_path: Path, name: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / name).write_bytes(b"")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=r"agentlab-harness\[documents\]"):
        load_documents(tmp_path)


def test_a_folder_of_files_without_text_is_an_error_that_names_one(tmp_path: Path) -> None:
    (tmp_path / "empty.md").write_text("")
    with pytest.raises(DatasetError, match=r"no \.md.* in this folder; empty\.md: no text is left of it"):
        load_documents(tmp_path)
