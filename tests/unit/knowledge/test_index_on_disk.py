"""An index on disk: built once, never used half-built, built again where it is damaged."""

from __future__ import annotations

import asyncio
import multiprocessing
import shutil
import signal
import time
from pathlib import Path

import pytest

from agentlab.core.errors import ConfigError
from agentlab.data.documents import Document
from agentlab.knowledge.index import Method, open_index
from support.indexing import (
    EMBEDDER,
    MANY,
    METHODS,
    SMALL,
    CountingEmbedder,
    die_while_building,
    document,
    open_and_search,
    open_and_search_here,
    search,
)


async def test_an_index_is_built_once_and_opens_fast(tmp_path: Path) -> None:
    embedder, steps = CountingEmbedder(), []
    first = await open_index(
        MANY, embedder, folder=tmp_path, method="dense", progress=lambda done, total: steps.append((done, total))
    )
    assert steps[-1] == (len(first.passages), len(first.passages))
    assert len(embedder.texts) == len(first.passages)
    started = time.perf_counter()
    second = await open_index(MANY, embedder, folder=tmp_path, method="hybrid")
    assert time.perf_counter() - started < 1
    assert len(embedder.texts) == len(first.passages), "dense and hybrid share what is on disk"
    assert await search(second, "item 49", top_k=3) == await search(second, "item 49", top_k=3)
    assert (await search(second, "item 49", top_k=1))[0].doc_id == "d7"


async def test_other_content_is_another_index(tmp_path: Path) -> None:
    embedder = CountingEmbedder()
    for documents, max_tokens in ((SMALL, 200), (SMALL[1:], 200), (SMALL[::-1], 200), (SMALL, 100)):
        before = len(embedder.texts)
        index = await open_index(documents, embedder, folder=tmp_path, method="dense", max_tokens=max_tokens)
        assert len(embedder.texts) > before
        assert {p.doc_id for p in index.passages} <= {d.doc_id for d in documents}
    embedder.name = "asked/2"
    before = len(embedder.texts)
    await open_index(SMALL, embedder, folder=tmp_path, method="dense")
    assert len(embedder.texts) > before


async def test_a_failed_build_is_not_used(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the embedder broke"):
        await open_index(MANY, CountingEmbedder(fails_after=300), folder=tmp_path, method="dense")
    index = await open_index(MANY, CountingEmbedder(), folder=tmp_path, method="dense")
    assert len(await search(index, "document", top_k=10**4)) == len(index.passages)


def _finished(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_dir() and path.suffix != ".new"]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")
async def test_killed_builds_and_processes_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    killed = context.Process(target=die_while_building, args=(str(tmp_path),))
    killed.start()
    await asyncio.to_thread(killed.join)
    assert killed.exitcode == -signal.SIGKILL
    assert any(tmp_path.glob("*.new")) and not _finished(tmp_path), "it was killed half-way"

    answers: multiprocessing.Queue[tuple[str, ...]] = context.Queue()
    other = context.Process(target=open_and_search, args=(str(tmp_path), answers))
    other.start()
    ours = await open_and_search_here(str(tmp_path))
    theirs = await asyncio.to_thread(answers.get, True, 120)
    await asyncio.to_thread(other.join)
    assert ours == theirs
    assert ours[0] == "d12#0"
    assert len(_finished(tmp_path)) == 1 and not any(tmp_path.glob("*.new")), "the killed build was removed"
    answers.close()
    answers.join_thread()


async def test_tasks_that_open_at_once_build_once(tmp_path: Path) -> None:
    embedder = CountingEmbedder()
    indexes = await asyncio.gather(*(open_index(SMALL, embedder, folder=tmp_path, method="hybrid") for _ in range(4)))
    assert len(embedder.texts) == len(indexes[0].passages)


@pytest.mark.parametrize("spoil", ["no passages", "no words", "no vectors", "of an older version", "cut vectors"])
async def test_a_damaged_index_is_built_again(tmp_path: Path, spoil: str) -> None:
    await open_index(SMALL, EMBEDDER, folder=tmp_path, method="hybrid")
    (home,) = _finished(tmp_path)
    if spoil == "no passages":
        (home / "passages.json").write_text("[[0, 0")
    elif spoil == "no words":
        shutil.rmtree(next(home.glob("bm25*")))
    elif spoil == "no vectors":
        (home / "vectors.npy").unlink()
    elif spoil == "of an older version":
        home.rename(tmp_path / "build")
        home.mkdir()
        (tmp_path / "build").rename(home / "build")
        (home / "current").write_text("build")
    else:
        (home / "vectors.npy").write_bytes((home / "vectors.npy").read_bytes()[:500])
    index = await open_index(SMALL, EMBEDDER, folder=tmp_path, method="hybrid")
    assert (await search(index, "round ball", top_k=1))[0].doc_id == "ball"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("documents", [(), (document("a", ""),), (document("a", "a . !"), document("b", "of the"))])
async def test_a_corpus_with_next_to_nothing_in_it(
    tmp_path: Path, method: Method, documents: tuple[Document, ...]
) -> None:
    for _ in range(2):
        index = await open_index(documents, EMBEDDER, folder=tmp_path, method=method)
        hits = await search(index, "of what", top_k=3)
        assert len(hits) <= len(index.passages)


async def test_unusable_index_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="retrieval method 'magic' is unknown: choose dense, bm25 or hybrid"):
        await open_index(SMALL, EMBEDDER, folder=tmp_path, method="magic")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'hybrid' needs an embedder"):
        await open_index(SMALL, None, folder=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot build or read the index"):
        await open_index(SMALL, None, folder=tmp_path / "file", method="bm25")
