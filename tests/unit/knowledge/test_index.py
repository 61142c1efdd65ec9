"""Searching an index: filtered before ranking, the same order every time, any query answered."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentlab.knowledge.index import DocumentIndex, Method, open_index
from support.indexing import EMBEDDER, METHODS, SMALL, document, search


@pytest.fixture(scope="module", params=METHODS)
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> DocumentIndex:
    folder = tmp_path_factory.mktemp("index")
    return asyncio.run(open_index(SMALL, EMBEDDER, folder=folder, method=request.param, max_tokens=12))


async def test_the_best_passage_comes_first(small: DocumentIndex) -> None:
    assert small.embedder is (None if small.method == "bm25" else EMBEDDER)
    assert small.documents == SMALL
    for query, doc_id in (("how heavy is a round ball", "ball"), ("halves of a match in minutes", "time")):
        hits = await search(small, query, top_k=3)
        assert hits[0].doc_id == doc_id
        scores = [passage.score for passage in hits if passage.score is not None]
        assert scores == sorted(scores, reverse=True)
        assert len(scores) == len(hits)


async def test_passages_are_pieces_of_their_documents(small: DocumentIndex) -> None:
    texts = {document.doc_id: document.text for document in SMALL}
    assert all(p.text == texts[p.doc_id][p.start : p.end] and p.score is None for p in small.passages)
    assert {p.doc_id for p in small.passages} == set(texts) - {"blank"}
    assert len({p.id for p in small.passages}) == len(small.passages) > len(SMALL)


async def test_equal_scores_keep_the_order_of_the_corpus(small: DocumentIndex) -> None:
    hits = await search(small, "green grass grows slowly", top_k=2)
    assert [passage.id for passage in hits] == ["twin#0#0", "twin#0"]


@pytest.mark.parametrize("method", METHODS)
async def test_earlier_passages_precede_at_equal_scores(tmp_path: Path, method: Method) -> None:
    copies = [document(f"page{n}", "The same notice stands on every page.") for n in range(300)]
    corpus = [*copies[:150], document("other", "Green grass grows slowly."), *copies[150:]]
    index = await open_index(corpus, EMBEDDER, folder=tmp_path, method=method)
    hits = await search(index, "the notice on every page", top_k=4)
    assert [passage.doc_id for passage in hits] == ["page0", "page1", "page2", "page3"]
    assert len({passage.score for passage in hits}) == 1
    some = [f"page{n}" for n in range(120, 260)]
    hits = await search(index, "the notice on every page", top_k=3, doc_ids=some)
    assert [passage.doc_id for passage in hits] == some[:3]


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
    hits = await search(small, query, top_k=4)
    assert all(passage.score is not None and np.isfinite(passage.score) for passage in hits)
    if small.method == "bm25" and "card" not in query:
        assert hits == (), "words that are nowhere find nothing"


async def test_searches_at_once_agree(small: DocumentIndex) -> None:
    alone = await search(small, "a yellow card", top_k=4)
    assert all(
        result == alone
        for result in await asyncio.gather(*(search(small, "a yellow card", top_k=4) for _ in range(40)))
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


@settings(max_examples=12)
@given(texts=st.lists(TEXTS, min_size=1, max_size=12), query=TEXTS)
async def test_dense_ranks_as_exact_cosine_does(tmp_path: Path, texts: list[str], query: str) -> None:
    documents = [document(f"d{n}", text) for n, text in enumerate(texts)]
    index = await open_index(documents, EMBEDDER, folder=tmp_path, method="dense")
    hits = await search(index, query, top_k=5)
    exact = (await EMBEDDER.embed(texts)) @ (await EMBEDDER.embed([query]))[0]
    assert [p.score for p in hits] == pytest.approx(sorted(exact, reverse=True)[:5], abs=2e-3)
    order = [(-(p.score or 0), int(p.doc_id[1:])) for p in hits]
    assert order == sorted(order)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> dict[Method, DocumentIndex]:
    """Build indexes with more passages than candidates; a third of the passages have a duplicate."""
    words = ["ball", "card", "grass", "half", "round", "ninety", "goal"]
    texts = [" ".join(words[(n // step) % 7] for step in (1, 3, 11, 13)) + f" {n % 90}" for n in range(420)]
    corpus = [document(f"d{n}", text) for n, text in enumerate(texts)]
    folder = tmp_path_factory.mktemp("large")
    return {method: asyncio.run(open_index(corpus, EMBEDDER, folder=folder, method=method)) for method in METHODS}


@settings(max_examples=40)
@given(
    chosen=st.one_of(st.sets(st.integers(0, 450)), st.integers(1, 60).map(lambda step: set(range(0, 420, step)))),
    query=TEXTS,
    top_k=st.sampled_from([1, 4, 120]),
)
def test_no_filter_loses_a_passage(
    large: dict[Method, DocumentIndex], chosen: set[int], query: str, top_k: int
) -> None:
    doc_ids = [f"d{n}" for n in chosen]
    for method, index in large.items():
        # Asked for all there are, an index ranks every passage, and nothing is passed over.
        everything = asyncio.run(search(index, query, top_k=10**6))
        of_them = [passage for passage in everything if passage.doc_id in {*doc_ids}]
        hits = asyncio.run(search(index, query, top_k=top_k, doc_ids=doc_ids))
        if method == "hybrid":  # which scales over the chosen
            assert len(hits) == min(top_k, len(of_them)) and {p.doc_id for p in hits} <= {*doc_ids}
        else:
            assert hits == tuple(of_them[:top_k])
