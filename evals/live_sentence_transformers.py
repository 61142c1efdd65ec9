"""The embedder `sentence_transformers` with the real library, on a tiny model that is built here.

    pip install -c constraints.txt -e '.[sentence-transformers]'
    python evals/live_sentence_transformers.py

The model has random weights, so its vectors mean nothing; the promises of an embedder hold all the same. It exits with
1 at the first one that does not hold. No model is downloaded.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

from agentlab.core.errors import ConfigError
from agentlab.core.plugins import resolve_provider

os.environ["HF_HUB_OFFLINE"] = "1"
TEXTS = ["The ball is round.", "A match lasts 90 minutes.", "", "The ball is round.", "\ud800 x", "word " * 3000]
VOCABULARY = "[PAD] [UNK] [CLS] [SEP] [MASK] the ball is round a match lasts minutes word . x"


def build(folder: Path, width: int, seed: int) -> Path:
    """Write a model with one layer of `width` and random weights, its tokenizer and its pooling."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    torch.manual_seed(seed)
    parts = folder / "parts"
    parts.mkdir(parents=True)
    (parts / "vocab.txt").write_text(VOCABULARY.replace(" ", "\n"), encoding="utf-8")
    BertTokenizerFast(vocab_file=str(parts / "vocab.txt"), model_max_length=64).save_pretrained(parts)
    shape = {"hidden_size": width, "intermediate_size": width, "num_hidden_layers": 1, "num_attention_heads": 2}
    BertModel(BertConfig(vocab_size=VOCABULARY.count(" ") + 1, max_position_embeddings=64, **shape)).save_pretrained(
        parts
    )
    transformer = Transformer(str(parts))
    SentenceTransformer(modules=[transformer, Pooling(width)], device="cpu").save(str(folder / "model"))
    return folder / "model"


async def check(folder: Path) -> None:
    model, other = build(folder / "one", 32, seed=1), build(folder / "other", 32, seed=2)
    provider, name = resolve_provider("models.embedders", f"sentence_transformers/{model}")
    embedder = provider.connect(name)
    rows = await embedder.embed(TEXTS)
    assert rows.shape == (len(TEXTS), embedder.dimensions) == (len(TEXTS), 32), rows.shape
    assert rows.dtype == np.float32 and (rows == rows.astype(np.float16)).all(), "rounded to float16"
    assert np.abs(np.linalg.norm(rows, axis=1) - 1).max() < 1e-3, "unit length"
    for text, row in zip(TEXTS, rows, strict=True):
        assert np.abs((await embedder.embed([text]))[0] - row).max() < 2e-3, "no dependence on the batch"
    again = await asyncio.gather(*(embedder.embed([TEXTS[0]]) for _ in range(8)))
    assert all((vectors[0] == again[0][0]).all() for vectors in again), "many callers at once"
    assert (await embedder.embed([])).shape == (0, 32)
    assert provider.identity(name)[0] == embedder.name != provider.identity(str(other))[0], "weights are the identity"
    try:
        provider.connect(str(folder / "nowhere"))
    except ConfigError as problem:
        print(problem)
    else:
        raise AssertionError("a folder without a model must be one line")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        try:
            asyncio.run(check(Path(scratch)))
        except AssertionError as failure:
            sys.exit(f"sentence_transformers: {failure}")
    print("sentence_transformers: every promise of an embedder holds")
