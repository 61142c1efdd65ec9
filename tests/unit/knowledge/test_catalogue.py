"""The list of documents in a prompt, and the names by which a model chooses from it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentlab.data.catalogue import document_list, resolve_names
from agentlab.data.documents import Document


def documents(*pairs: tuple[str, str]) -> list[Document]:
    return [Document(doc_id=doc_id, title=title, text="") for doc_id, title in pairs]


CORPUS = documents(
    ("law-11", "Law 11: Offside"),
    ("py-1", "Library FAQ"),
    ("py-2", "library  faq"),
    ("0027-x", ""),
    ("other", "law-11"),
    ("py#3", " Odd\ntitle "),
)


def words(text: str) -> int:
    return len(text.split())


def test_titles_are_listed_only_where_they_name_one_document() -> None:
    assert document_list(CORPUS, words, 1000).split("\n") == [
        "- Law 11: Offside",
        "- py-1 (Library FAQ)",
        "- py-2 (library faq)",
        "- 0027-x",
        "- other (law-11)",
        "- Odd title",
    ]


def test_names_select_documents() -> None:
    def chosen(*names: str) -> tuple[str, ...]:
        ids, unknown = resolve_names(names, CORPUS)
        assert unknown == ()
        return ids

    assert chosen("  LAW 11:   offside ") == ("law-11",)
    assert chosen("Library FAQ") == ("py-1", "py-2")
    assert chosen("PY-2") == ("py-2",)
    assert chosen("law-11") == ("law-11",), "an exact id goes before a title"
    assert chosen("LAW-11") == ("other",), "a title goes before an id that is only alike"
    assert chosen("'odd title'", "py#3", "odd TITLE") == ("py#3",)
    assert chosen("", "  ") == (), "a blank name does not select the documents without a title"
    assert chosen() == ()


def test_unknown_names_are_returned_separately() -> None:
    assert resolve_names(["Law 12", "py-1", "Law 12"], CORPUS) == (("py-1",), ("Law 12",))


NAMES = st.text(alphabet="aAb #-(1)\n", max_size=6)


@given(
    st.lists(
        st.tuples(NAMES.filter(str.strip), NAMES),
        max_size=8,
        unique_by=lambda pair: " ".join(pair[0].split()).casefold(),
    )
)
def test_every_listed_line_selects_a_document(pairs: list[tuple[str, str]]) -> None:
    corpus = documents(*pairs)
    listed = document_list(corpus, words, 10_000)
    lines = listed.split("\n") if listed else []
    assert len(lines) == len(corpus)
    for line in lines:
        ids, unknown = resolve_names([line], corpus)
        assert ids
        assert not unknown


@given(st.integers(0, 400))
def test_the_list_keeps_to_its_budget(budget: int) -> None:
    corpus = documents(*((f"id-{n}", "Shared" if n % 2 else f"Title {n}") for n in range(100)))
    text = document_list(corpus, words, budget)
    assert words(text) <= budget
    assert text == document_list(corpus, words, budget)
    listed = [line for line in text.split("\n") if line.startswith("- ")]
    if 20 <= budget < 300:
        assert text.endswith(
            f"({100 - len(listed)} of 100 documents are not listed; an empty list of names searches all.)"
        )
        assert budget - words(text) < 3, "one more line would not have fitted"
    assert document_list([], words, budget) == ""
