"""Artifacts of embedders in sentence-transformers, in processes that have imported `mvprune.hf` and nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.core.tasks.test_embedding import data, texts

from mvprune import load
from mvprune.sources.sentence_transformers import SentenceEmbedding, write_sentence_embedding
from mvprune_core import Training, compress

TEXTS = texts(9, 8)
_ENCODE = """
import json, sys
import mvprune.hf
from sentence_transformers import SentenceTransformer

folder, texts = json.loads(sys.argv[1])
model = SentenceTransformer(folder)
vectors = {name: encode(texts).tolist() for name, encode in
           (("plain", model.encode), ("query", model.encode_query), ("document", model.encode_document))}
used = sorted({".".join(name.split(".")[:2]) for name in sys.modules if name.partition(".")[0].startswith("mvprune")})
print(json.dumps({"vectors": vectors, "similarity": model.similarity_fn_name, "length": model.max_seq_length,
                  "parts": [type(part).__name__ for part in model], "used": used}))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("pooling", "normalize"), [("mean", True), ("cls", False)])
def test_a_fresh_process_encodes_as_the_runtime_does(
    model_folder: Path, tmp_path: Path, pooling: str, normalize: bool
) -> None:
    prompts = {"query": "word1 ", "document": "word2 word3 "}
    write_sentence_embedding(model_folder, SentenceEmbedding(pooling, normalize, prompts), 32)
    training = Training(max_steps=8, batch_size=16, learning_rate=2e-3)
    compress(model_folder, data(), density=0.3, method="magnitude", training=training).save(out := tmp_path / "out")

    asked = json.dumps([str(out), TEXTS])
    done = subprocess.run(
        [sys.executable, "-c", _ENCODE, asked], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert answer["parts"] == ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    assert answer["similarity"] == "cosine"
    assert {"mvprune", "mvprune.hf", "mvprune.artifact"} <= set(answer["used"])
    assert not {"mvprune_core", "mvprune_service", "mvprune.runtime", "mvprune.v1"} & set(answer["used"])
    for runtime in ("dense", "sparse"):
        model: Any = load(out, runtime=runtime)  # type: ignore[arg-type]
        encode: dict[str, Callable[[], Any]] = {
            "plain": lambda model=model: model.encode(TEXTS),
            "query": lambda model=model: model.encode(TEXTS, prompt_name="query"),
            "document": lambda model=model: model.encode(TEXTS, prompt_name="document"),
        }
        for name, made in encode.items():
            np.testing.assert_allclose(made(), answer["vectors"][name], atol=1e-5, err_msg=f"{runtime} {name}")
