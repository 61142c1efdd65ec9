"""An index over the real embedder finds passages that share no word with the query."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentlab.data.documents import load_documents
from agentlab.knowledge.index import open_index
from agentlab.models import weights
from agentlab.models.embedders import local
from support.indexing import search
from support.paths import OWN

pytestmark = pytest.mark.real_model


async def test_meaning_finds_what_words_do_not(tmp_path: Path) -> None:
    if not weights.is_present("all-minilm-l6-v2"):
        pytest.skip("the weights of all-minilm-l6-v2 are not here: agentlab pull all-minilm-l6-v2")
    documents = load_documents(OWN / "laws" / "corpus.jsonl")
    embedder = local.connect("all-minilm-l6-v2")
    index = await open_index(documents, embedder, folder=tmp_path / "index", method="hybrid")
    hits = await search(index, "May a defender wear her wedding band?", top_k=4)
    assert any(passage.doc_id == "law-04-equipment" for passage in hits)
