"""The index: built once, never used half-built, filtered before ranking, the same order every time."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentlab.core.errors import ConfigError
from agentlab.core.messages import Passage
from agentlab.data.documents import Document, load_documents
from agentlab.knowledge.index import DocumentIndex, Method, open_index
from agentlab.models import weights
from agentlab.models.embedders import hashing, local
from agentlab.models.embedders.cache import CachedEmbedder

LAWS = Path(__file__).parent.parent / "datasets" / "laws" / "corpus.jsonl"
METHODS: tuple[Method, ...] = ("dense", "bm25", "hybrid")
EMBEDDER = hashing.connect("hashing-256")


def document(doc_id: str, text: str, title: str = "") -> Document:
    return Document(doc_id=doc_id, title=title, text=text)


SMALL = (
    document("ball", "The ball is round. It weighs 410 grams.", "The ball"),
    document("time", "A match lasts two halves. Each half takes 45 minutes.", "Duration"),
    document("twin#0", "Green grass grows slowly."),
    document("twin", "Green grass grows slowly."),
    document("blank", " \n "),
    document("cards", "The referee shows a red card. The referee shows a yellow card. A card is shown once."),
)


async def search(index: DocumentIndex, query: str, **options: Any) -> tuple[Passage, ...]:
    vector = None if index.embedder is None else (await index.embedder.embed([query]))[0]
    return await index.search(query, vector, **options)


@pytest.fixture(scope="module", params=METHODS)
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> DocumentIndex:
    folder = tmp_path_factory.mktemp("index")
    return asyncio.run(open_index(SMALL, EMBEDDER, folder=folder, method=request.param, max_tokens=12))


async def test_the_best_passage_comes_first(small: DocumentIndex) -> None:
    assert small.embedder is (None if small.method == "bm25" else EMBEDDER)
    assert small.documents == SMALL
    for query, doc_id in (("how heavy is a round ball", "ball"), ("halves of a match in minutes", "time")):
        found = await search(small, query, top_k=3)
        assert found[0].doc_id == doc_id
        scores = [passage.score for passage in found if passage.score is not None]
        assert scores == sorted(scores, reverse=True)
        assert len(scores) == len(found)


async def test_passages_are_pieces_of_their_documents(small: DocumentIndex) -> None:
    texts = {document.doc_id: document.text for document in SMALL}
    assert all(p.text == texts[p.doc_id][p.start : p.end] and p.score is None for p in small.passages)
    assert {p.doc_id for p in small.passages} == set(texts) - {"blank"}
    assert len({p.id for p in small.passages}) == len(small.passages) > len(SMALL)


async def test_equal_scores_keep_the_order_of_the_corpus(small: DocumentIndex) -> None:
    found = await search(small, "green grass grows slowly", top_k=2)
    assert [passage.id for passage in found] == ["twin#0#0", "twin#0"]


@pytest.mark.parametrize("method", METHODS)
async def test_of_more_equals_than_are_looked_at_the_first_come_first(tmp_path: Path, method: Method) -> None:
    copies = [document(f"page{n}", "The same notice stands on every page.") for n in range(300)]
    corpus = [*copies[:150], document("other", "Green grass grows slowly."), *copies[150:]]
    index = await open_index(corpus, EMBEDDER, folder=tmp_path, method=method)
    found = await search(index, "the notice on every page", top_k=4)
    assert [passage.doc_id for passage in found] == ["page0", "page1", "page2", "page3"]
    assert len({passage.score for passage in found}) == 1
    some = [f"page{n}" for n in range(120, 260)]
    found = await search(index, "the notice on every page", top_k=3, doc_ids=some)
    assert [passage.doc_id for passage in found] == some[:3]
    index.close()


async def test_the_filter_is_applied_before_ranking(small: DocumentIndex) -> None:
    query = "the referee shows a red card, not the ball"
    assert (await search(small, query, top_k=1))[0].doc_id == "cards"
    assert [p.doc_id for p in await search(small, query, top_k=1, doc_ids=["ball"])] == ["ball"]
    assert {p.doc_id for p in await search(small, query, top_k=9, doc_ids=("ball", "nowhere"))} == {"ball"}
    for nothing in ([], ["nowhere"], ["blank"]):
        assert await search(small, query, top_k=3, doc_ids=nothing) == ()


async def test_any_top_k_is_fine(small: DocumentIndex) -> None:
    everything = await search(small, "the card", top_k=10**6)
    assert len({p.id for p in everything}) == len(everything)
    assert len(everything) == len(small.passages) or small.method == "bm25"
    assert await search(small, "the card", top_k=0) == ()


@pytest.mark.parametrize("query", ["", "the", "zzzz", "\u4e2d\u6587", "\ud800", "'; DROP TABLE x; --", "card " * 5000])
async def test_any_query_is_answered(small: DocumentIndex, query: str) -> None:
    found = await search(small, query, top_k=4)
    assert all(passage.score is not None and np.isfinite(passage.score) for passage in found)
    if small.method == "bm25" and "card" not in query:
        assert found == (), "words that are nowhere find nothing"


async def test_searches_at_once_agree(small: DocumentIndex) -> None:
    alone = await search(small, "a yellow card", top_k=4)
    assert all(
        found == alone for found in await asyncio.gather(*(search(small, "a yellow card", top_k=4) for _ in range(40)))
    )


async def test_a_vector_is_needed_where_meaning_is_searched(small: DocumentIndex) -> None:
    if small.method == "bm25":
        assert await small.search("card", None, top_k=1)
    else:
        with pytest.raises(ValueError, match="needs the vector"):
            await small.search("card", None, top_k=1)


TEXTS = st.lists(st.sampled_from(["ball", "card", "grass", "half", "round", "ninety"]), min_size=1, max_size=6).map(
    " ".join
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(TEXTS, min_size=1, max_size=12), query=TEXTS)
async def test_dense_ranks_as_exact_cosine_does(tmp_path: Path, texts: list[str], query: str) -> None:
    documents = [document(f"d{n}", text) for n, text in enumerate(texts)]
    index = await open_index(documents, EMBEDDER, folder=tmp_path, method="dense")
    found = await search(index, query, top_k=5)
    exact = (await EMBEDDER.embed(texts)) @ (await EMBEDDER.embed([query]))[0]
    assert [p.score for p in found] == pytest.approx(sorted(exact, reverse=True)[:5], abs=2e-3)
    order = [(-(p.score or 0), int(p.doc_id[1:])) for p in found]
    assert order == sorted(order)
    index.close()


# -- on disk -----------------------------------------------------------------------------------------------------------


class Asked:
    """An embedder that counts what it is asked, and fails after `fails_after` texts."""

    name = "asked/1"
    dimensions = 256

    def __init__(self, fails_after: int = 10**9) -> None:
        self.texts: list[str] = []
        self._fails_after = fails_after

    async def embed(self, texts: Sequence[str]) -> Any:
        self.texts += texts
        if len(self.texts) > self._fails_after:
            raise ConfigError("the embedder broke")
        return await EMBEDDER.embed(texts)


MANY = tuple(document(f"d{n}", f"Document number {n} is about item {n * n}. " * 3) for n in range(600))


async def test_an_index_is_built_once_and_opens_fast(tmp_path: Path) -> None:
    embedder, steps = Asked(), []
    first = await open_index(
        MANY, embedder, folder=tmp_path, method="dense", progress=lambda done, total: steps.append((done, total))
    )
    assert steps[-1] == (len(first.passages), len(first.passages))
    assert len(embedder.texts) == len(first.passages)
    began = time.perf_counter()
    second = await open_index(MANY, embedder, folder=tmp_path, method="hybrid")
    assert time.perf_counter() - began < 1
    assert len(embedder.texts) == len(first.passages), "dense and hybrid share what is on disk"
    assert await search(second, "item 49", top_k=3) == await search(second, "item 49", top_k=3)
    first.close()
    assert (await search(second, "item 49", top_k=1))[0].doc_id == "d7"
    second.close()


async def test_other_content_is_another_index(tmp_path: Path) -> None:
    embedder = Asked()
    for documents, max_tokens in ((SMALL, 200), (SMALL[1:], 200), (SMALL[::-1], 200), (SMALL, 100)):
        before = len(embedder.texts)
        index = await open_index(documents, embedder, folder=tmp_path, method="dense", max_tokens=max_tokens)
        assert len(embedder.texts) > before
        assert {p.doc_id for p in index.passages} <= {d.doc_id for d in documents}
        index.close()
    embedder.name = "asked/2"
    before = len(embedder.texts)
    (await open_index(SMALL, embedder, folder=tmp_path, method="dense")).close()
    assert len(embedder.texts) > before


async def test_a_failed_build_is_not_used(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the embedder broke"):
        await open_index(MANY, Asked(fails_after=300), folder=tmp_path, method="dense")
    index = await open_index(MANY, Asked(), folder=tmp_path, method="dense")
    assert len(await search(index, "document", top_k=10**4)) == len(index.passages)
    index.close()


def _die_while_building(folder: str) -> None:
    class Deadly(Asked):
        async def embed(self, texts: Sequence[str]) -> Any:
            if len(self.texts) > 250:
                os.kill(os.getpid(), signal.SIGKILL)
            return await super().embed(texts)

    asyncio.run(open_index(MANY, Deadly(), folder=Path(folder), method="hybrid"))


async def _open_and_search_here(folder: str) -> tuple[str, ...]:
    index = await open_index(MANY, Asked(), folder=Path(folder), method="hybrid")
    found = await search(index, "number 12 about item 144", top_k=3)
    index.close()
    return tuple(passage.id for passage in found)


def _open_and_search(folder: str, answers: multiprocessing.Queue[tuple[str, ...]]) -> None:
    answers.put(asyncio.run(_open_and_search_here(folder)))


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")
async def test_killed_builds_and_processes_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    killed = context.Process(target=_die_while_building, args=(str(tmp_path),))
    killed.start()
    await asyncio.to_thread(killed.join)
    assert killed.exitcode == -signal.SIGKILL
    (home,) = tmp_path.iterdir()
    assert not (home / "current").exists()

    answers: multiprocessing.Queue[tuple[str, ...]] = context.Queue()
    other = context.Process(target=_open_and_search, args=(str(tmp_path), answers))
    other.start()
    ours = await _open_and_search_here(str(tmp_path))
    theirs = await asyncio.to_thread(answers.get, True, 120)
    await asyncio.to_thread(other.join)
    assert ours == theirs
    assert ours[0] == "d12#0"
    assert len([build for build in home.iterdir() if build.is_dir()]) == 1, "the killed build is gone"
    answers.close()
    answers.join_thread()


async def test_tasks_that_open_at_once_build_once(tmp_path: Path) -> None:
    embedder = Asked()
    indexes = await asyncio.gather(*(open_index(SMALL, embedder, folder=tmp_path, method="hybrid") for _ in range(4)))
    assert len(embedder.texts) == len(indexes[0].passages)
    for index in indexes:
        index.close()


@pytest.mark.parametrize("spoil", ["no passages", "no words", "no vectors", "other build", "cut vectors"])
async def test_a_damaged_index_is_built_again(tmp_path: Path, spoil: str) -> None:
    (await open_index(SMALL, EMBEDDER, folder=tmp_path, method="hybrid")).close()
    (home,) = tmp_path.iterdir()
    build = home / (home / "current").read_text()
    if spoil == "no passages":
        (build / "passages.json").write_text("[[0, 0")
    elif spoil == "no words":
        shutil.rmtree(build / "bm25")
    elif spoil == "no vectors":
        shutil.rmtree(build / "chroma")
    elif spoil == "other build":
        (home / "current").write_text("gone")
    else:
        (build / "chroma" / "chroma.sqlite3").write_bytes(b"SQLite format 3\0" + b"\0" * 500)
    index = await open_index(SMALL, EMBEDDER, folder=tmp_path, method="hybrid")
    assert (await search(index, "round ball", top_k=1))[0].doc_id == "ball"
    index.close()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("documents", [(), (document("a", ""),), (document("a", "a . !"), document("b", "of the"))])
async def test_a_corpus_with_next_to_nothing_in_it(
    tmp_path: Path, method: Method, documents: tuple[Document, ...]
) -> None:
    for _ in range(2):
        index = await open_index(documents, EMBEDDER, folder=tmp_path, method=method)
        found = await search(index, "of what", top_k=3)
        assert len(found) <= len(index.passages)
        index.close()


async def test_what_cannot_be_opened_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="retrieval method 'magic' is unknown: choose dense, bm25 or hybrid"):
        await open_index(SMALL, EMBEDDER, folder=tmp_path, method="magic")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'hybrid' needs an embedder"):
        await open_index(SMALL, None, folder=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot build or read the index"):
        await open_index(SMALL, None, folder=tmp_path / "file", method="bm25")


async def test_meaning_finds_what_words_do_not(tmp_path: Path) -> None:
    if not weights.is_present("all-minilm-l6-v2"):
        pytest.skip("the weights of all-minilm-l6-v2 are not here: agentlab pull all-minilm-l6-v2")
    documents = load_documents(LAWS)
    embedder = CachedEmbedder(local.connect("all-minilm-l6-v2"), tmp_path / "cache")
    index = await open_index(documents, embedder, folder=tmp_path / "index", method="hybrid")
    found = await search(index, "May a defender wear her wedding band?", top_k=4)
    assert any(passage.doc_id == "law-04-equipment" for passage in found)
    index.close()
