"""Every retriever by the same promises: ours, Chroma in three places, and functions of the user."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab.core import plugins
from agentlab.core.errors import ConfigError, ModelUnavailable
from agentlab.core.protocols import Index
from agentlab.data.documents import Document
from agentlab.knowledge.retriever import Corpus, find_retriever
from agentlab.models.embedders import hashing
from support.stores import checksums, fill, served

ROWS = [
    ("ball", "The ball", "The ball is round and weighs 410 grams."),
    ("time", "Duration", "A match lasts two halves of 45 minutes."),
    ("cards", "Cards", "The referee shows a red card or a yellow card."),
    ("42", "Number", "The answer is a number."),
]
DOCUMENTS = tuple(Document(doc_id=doc_id, title=title, text=text) for doc_id, title, text in ROWS)
EMBEDDER = hashing.connect("hashing-256")
EXISTING = {"doc_id": "source", "title": "heading"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that another process filled; no test may change it."""
    return fill(tmp_path_factory.mktemp("chroma") / "store", ROWS)


async def by_words(query: str, *, top_k: int, doc_ids: Any) -> list[Any]:
    """Return all documents despite the filter and `top_k`: a Passage first, then mappings."""
    words = set(query.lower().split())
    ranked = sorted(ROWS, key=lambda row: -len(words & set(row[2].lower().replace(".", "").split())))
    (doc_id, title, text), *rest = ranked
    best = al.Passage(id=doc_id, doc_id=doc_id, title=title, text=text, start=0, end=len(text), score=9.0)
    return [best, *({"doc_id": d, "title": t, "text": x} for d, t, x in rest)]


class Searcher:
    search = staticmethod(by_words)


async def opened(tmp_path: Path, name: str, given: Any = None, documents: Any = DOCUMENTS, **settings: Any) -> Any:
    retriever = find_retriever(name, settings, ("method", "top_k", "max_tokens"), given)
    corpus = Corpus(
        documents=documents,
        embedder=EMBEDDER,
        query_embedder=EMBEDDER,
        folder=tmp_path / "indexes",
        max_tokens=200,
        progress=lambda done, total: None,
        options=retriever.options,
    )
    return await retriever.open(corpus)


async def search(index: Index, query: str, **options: Any) -> list[str]:
    vector = None if index.embedder is None else (await index.embedder.embed([query]))[0]
    passages = await index.search(query, vector, **options)
    assert all(isinstance(passage, al.Passage) for passage in passages)
    assert [p.score for p in passages] == sorted((p.score for p in passages), key=lambda s: -(s or 0))
    return [passage.doc_id for passage in passages]


@pytest.fixture(params=["dense", "bm25", "hybrid", "chroma", "folder", "server", "file", "function", "object"])
def index(request: pytest.FixtureRequest, tmp_path: Path, store: Path) -> Any:
    kind = request.param
    if kind in ("dense", "bm25", "hybrid", "chroma"):
        yield asyncio.run(opened(tmp_path, kind))
    elif kind == "folder":
        yield asyncio.run(opened(tmp_path, "chroma", path=str(store), **EXISTING))
    elif kind == "server":
        with served(Path(shutil.copytree(store, tmp_path / "store"))) as address:
            yield asyncio.run(opened(tmp_path, "chroma", path=address, collection="help", **EXISTING))
    elif kind == "file":
        file = tmp_path / "my_search.py"
        file.write_text(f"ROWS = {ROWS!r}\n" + FILE)
        yield asyncio.run(opened(tmp_path, str(file)))
    else:
        yield asyncio.run(opened(tmp_path, kind, by_words if kind == "function" else Searcher()))


FILE = """
async def search(query, *, top_k, doc_ids):
    words = set(query.lower().split())
    ranked = sorted(ROWS, key=lambda row: -len(words & set(row[2].lower().replace(".", "").split())))
    return [{"doc_id": doc_id, "text": text} for doc_id, _, text in ranked]
"""


async def test_a_search_finds_ranks_and_filters(index: Any) -> None:
    assert (await search(index, "who shows a red card", top_k=1)) == ["cards"]
    assert (await search(index, "the ball is round", top_k=3))[0] == "ball"
    assert len(await search(index, "the ball is a number", top_k=2)) <= 2
    assert set(await search(index, "the ball is round", top_k=4, doc_ids=["time", "42", "nobody"])) <= {"time", "42"}
    assert "42" in await search(index, "answer number", top_k=4, doc_ids=["42"])
    assert await search(index, "the ball", top_k=4, doc_ids=[]) == []
    assert [document.doc_id for document in index.documents] == [doc_id for doc_id, *_ in ROWS]
    if hasattr(index, "close"):
        await index.close()


async def test_a_store_that_exists_is_read_and_never_written(tmp_path: Path, store: Path) -> None:
    before = checksums(store)
    index = await opened(tmp_path, "chroma", path=str(store), documents=(), **EXISTING)
    await index.start()
    assert await search(index, "red card", top_k=1) == ["cards"]
    assert await index.list_documents() == [(doc_id, title) for doc_id, title, _ in ROWS]
    await index.close()
    assert checksums(store) == before


async def test_the_id_of_a_record_may_be_that_of_the_document(tmp_path: Path, store: Path) -> None:
    index = await opened(tmp_path, "chroma", path=str(store), documents=(), doc_id=None)
    assert await search(index, "red card", top_k=1, doc_ids=["record-2", "record-3"]) == ["record-2"]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"doc_id": "page"}, "unknown metadata of collection 'help' 'page'. Known: heading, source"),
        ({"doc_id": "heading"}, "no heading is that of a document of the data set: it has 'The ball'"),
        ({"collection": "helb"}, "unknown collection 'helb'. Did you mean 'help'?"),
        ({"path": "nowhere"}, "nowhere is not a store of Chroma"),
        ({"path": "http://127.0.0.1:9"}, "no Chroma responds at http://127.0.0.1:9"),
    ],
)
async def test_a_store_that_does_not_fit_is_one_line(
    tmp_path: Path, store: Path, change: dict[str, Any], line: str
) -> None:
    settings = {"path": str(store), **EXISTING, **change}
    index = await opened(tmp_path, "chroma", **settings)
    with pytest.raises(ConfigError, match=line.replace("?", r"\?")):
        await index.start()
    with pytest.raises(ModelUnavailable):  # ends the run, not a turn
        await search(index, "red card", top_k=1)


async def test_vectors_of_another_length_are_refused(tmp_path: Path) -> None:
    index = await opened(tmp_path, "chroma", path=str(fill(tmp_path / "s", ROWS, 64)), **EXISTING)
    with pytest.raises(ConfigError, match="has vectors of 64 dimensions, the embedder hashing/hashing-256 makes 256"):
        await index.start()


async def test_vectors_of_the_same_length_from_another_embedder_are_refused(tmp_path: Path, store: Path) -> None:
    class Other:
        name = "other/256"
        dimensions = 256

        async def embed(self, texts: Any) -> Any:
            return (await EMBEDDER.embed(texts))[:, ::-1]

    retriever = find_retriever("chroma", {"path": str(store), **EXISTING}, ())
    corpus: Any = {"documents": (), "embedder": Other(), "query_embedder": Other(), "folder": tmp_path}
    index: Any = await retriever.open(Corpus(**corpus, max_tokens=200, progress=print))
    with pytest.raises(ConfigError, match="was not filled by the embedder other/256"):
        await index.start()


@pytest.mark.parametrize(
    ("result", "line"),
    [
        ("text", "it returned .*return a list of passages"),
        (None, "it returned 'None'; return a list of passages"),
        ([{"text": "no id"}], "a search found {'text': 'no id'}, which is no document"),
        ([{"doc_id": "a", "text": 5.5}], None),
        ([{"doc_id": "a", "text": ["x"]}], "a search found {'doc_id': 'a', 'text': .'x'.}, which is no document"),
        (["text"], "a search found 'text', which is no document"),
    ],
)
async def test_a_function_that_returns_no_passages_is_one_line(tmp_path: Path, result: Any, line: str | None) -> None:
    async def wrong(query: str, *, top_k: int, doc_ids: Any) -> Any:
        return result

    index = await opened(tmp_path, "wrong", wrong)
    if line is None:
        assert await search(index, "x", top_k=1) == ["a"]
        return
    with pytest.raises(ConfigError, match=line):
        await search(index, "x", top_k=1)


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: find_retriever("magic", {}, ()), "unknown retriever 'magic'. Known: bm25, chroma, dense, hybrid"),
        (lambda: find_retriever("dense", {"path": "x"}, ("top_k",)), "unknown key 'path'. Known: top_k"),
        (lambda: find_retriever("./no.py", {}, ()), "there is no file no.py"),
        (lambda: find_retriever("chroma", {"path": 5}, ()), "retrieval: path: Input should be a valid string"),
        (lambda: find_retriever("mine", {}, (), object()), "it has no `async def search"),
        (lambda: find_retriever("magic", {}, (), is_replay=True), "unknown retriever 'magic'"),
    ],
)
def test_a_retriever_that_cannot_be_used_is_one_line(call: Callable[[], Any], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        call()


async def test_a_collection_needs_a_store(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="name its folder or server in `path`"):
        await opened(tmp_path, "chroma", collection="help")


def test_every_retriever_is_found_by_the_name_of_its_file() -> None:
    assert set(plugins.names("knowledge.retrievers")) == {"dense", "bm25", "hybrid", "chroma"}
