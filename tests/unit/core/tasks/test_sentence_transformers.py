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

def of(folder, texts):
    model = SentenceTransformer(folder)
    vectors = {name: encode(texts).tolist() for name, encode in
               (("plain", model.encode), ("query", model.encode_query), ("document", model.encode_document))}
    return {"vectors": vectors, "similarity": model.similarity_fn_name, "length": model.max_seq_length,
            "parts": [type(part).__name__ for part in model]}


folders, texts = json.loads(sys.argv[1])
answers = [of(folder, texts) for folder in folders]
used = sorted({".".join(name.split(".")[:2]) for name in sys.modules if name.partition(".")[0].startswith("mvprune")})
print(json.dumps([answers, used]))
"""


@pytest.mark.slow
def test_a_fresh_process_encodes_as_the_runtime_does(model_folder: Path, tmp_path: Path) -> None:
    prompts = {"query": "word1 ", "document": "word2 word3 "}
    training = Training(max_steps=8, batch_size=16, learning_rate=2e-3)
    kinds, folders = [("mean", True), ("cls", False)], list[Path]()
    for pooling, normalize in kinds:
        write_sentence_embedding(model_folder, SentenceEmbedding(pooling, normalize, prompts), 32)
        result = compress(model_folder, data(), density=0.3, method="magnitude", training=training)
        result.save(folder := tmp_path / pooling)
        folders.append(folder)

    asked = json.dumps([[*map(str, folders)], TEXTS])
    done = subprocess.run(
        [sys.executable, "-c", _ENCODE, asked], capture_output=True, text=True, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    answers, used = json.loads(done.stdout.splitlines()[-1])
    assert {"mvprune", "mvprune.hf", "mvprune.artifact"} <= set(used)
    assert not {"mvprune_core", "mvprune_service", "mvprune.runtime", "mvprune.v1"} & set(used)
    for (_, normalize), out, answer in zip(kinds, folders, answers, strict=True):
        check(out, answer, normalize)


def check(out: Path, answer: dict[str, Any], normalize: bool) -> None:
    """What a process answered beside what the runtimes compute."""
    assert answer["parts"] == ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    assert answer["similarity"] == "cosine"
    for runtime in ("dense", "sparse"):
        model: Any = load(out, runtime=runtime)  # type: ignore[arg-type]
        encode: dict[str, Callable[[], Any]] = {
            "plain": lambda model=model: model.encode(TEXTS),
            "query": lambda model=model: model.encode(TEXTS, prompt_name="query"),
            "document": lambda model=model: model.encode(TEXTS, prompt_name="document"),
        }
        for name, made in encode.items():
            np.testing.assert_allclose(made(), answer["vectors"][name], atol=1e-5, err_msg=f"{runtime} {name}")
