"""Folders of sentence-transformers, old and new, and what of them is refused."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling

from mvprune.sources.references import InvalidReference
from mvprune.sources.sentence_transformers import (
    KEY,
    POOLINGS,
    SentenceEmbedding,
    read_sentence_embedding,
    write_sentence_embedding,
)

TRANSFORMER, POOLING, NORMALIZE = (
    f"sentence_transformers.models.{name}" for name in ("Transformer", "Pooling", "Normalize")
)


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


def old(folder: Path, *types: str, pooling: dict[str, Any] | None = None, path: str = "") -> Path:
    """A folder as version 2 writes it."""
    paths = [path, "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": number, "name": str(number), "path": one, "type": name}
        for number, (name, one) in enumerate(zip(types, paths, strict=False))
    ]
    write(folder / "modules.json", modules)
    write(
        folder / "1_Pooling/config.json",
        {"word_embedding_dimension": 8} | (pooling or {"pooling_mode_cls_token": True}),
    )
    return folder


def test_what_is_written_is_read(tmp_path: Path) -> None:
    for number, pooling in enumerate(POOLINGS):
        folder = tmp_path / pooling
        folder.mkdir()
        found = SentenceEmbedding(
            pooling, bool(number % 2), {"query": "q: "}, "query" if number else None, 64 * number or None
        )
        write_sentence_embedding(folder, found, 8)
        assert read_sentence_embedding(folder) == found
        theirs = Pooling.load(str(folder), subfolder="1_Pooling")
        assert (theirs.embedding_dimension, theirs.pooling_mode) == (8, pooling)
        if found.normalize:
            Normalize.load(str(folder), subfolder="2_Normalize")


def test_old_folders_are_read(tmp_path: Path) -> None:
    assert read_sentence_embedding(tmp_path) is None
    folder = old(tmp_path, TRANSFORMER, POOLING, NORMALIZE)
    write(folder / "sentence_bert_config.json", {"max_seq_length": 256, "do_lower_case": False})
    write(folder / "config_sentence_transformers.json", {"__version__": {}, "prompts": {"query": None, "doc": "d: "}})
    assert read_sentence_embedding(folder) == SentenceEmbedding("cls", True, {"query": "", "doc": "d: "}, None, 256)
    old(folder, TRANSFORMER, POOLING, pooling={"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False})
    assert read_sentence_embedding(folder) == SentenceEmbedding("mean", False, {"query": "", "doc": "d: "}, None, 256)


@pytest.mark.parametrize(
    ("types", "options", "error"),
    [
        (
            (TRANSFORMER, POOLING, "sentence_transformers.models.Dense"),
            {},
            "got Transformer in '', .* a Dense layer after",
        ),
        ((TRANSFORMER,), {}, "must name a Transformer in the folder itself, a Pooling"),
        ((TRANSFORMER, POOLING), {"path": "0_Transformer"}, "must name a Transformer in the folder itself"),
        ((TRANSFORMER, POOLING), {"path": "../other"}, "a path must be inside of the folder, got ../other"),
        (
            (TRANSFORMER, POOLING),
            {"pooling": {"pooling_mode": "weightedmean"}},
            "pooling must be one of mean, cls, max, l",
        ),
        (
            (TRANSFORMER, POOLING),
            {"pooling": {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True}},
            "got cls and max",
        ),
        ((TRANSFORMER, POOLING), {"pooling": {"include_prompt": False}}, "include_prompt must be true"),
    ],
)
def test_what_cannot_be_pruned_is_refused(
    types: tuple[str, ...], options: dict[str, Any], error: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidReference, match=error):
        read_sentence_embedding(old(tmp_path, *types, **options))


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"a": 1}', b"[1]", b'[{"type": 1, "path": ""}]'])
def test_a_damaged_list_of_parts_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "modules.json").write_bytes(content)
    with pytest.raises(InvalidReference, match=r"modules\.json"):
        read_sentence_embedding(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        1,
        {"pooling_mode": "middle"},
        {"pooling_mode": ["mean"]},
        {"normalize": "yes"},
        {"prompts": {"a": 1}},
        {"prompts": ["a"]},
        {"default_prompt_name": "query"},
        {"max_seq_length": 0},
        {"max_seq_length": True},
        {"more": 1},
    ],
)
def test_a_config_that_says_what_is_not_possible_is_refused(content: Any) -> None:
    with pytest.raises(ValueError, match="must be"):
        SentenceEmbedding.of_config(SimpleNamespace(**{KEY: content}))
    assert SentenceEmbedding.of_config(SimpleNamespace()) is None
