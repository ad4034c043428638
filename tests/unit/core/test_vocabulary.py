"""A trimmed vocabulary reads the data as before, and any other text by its pieces."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

from mvprune_core.storing.vocabulary import trim_vocabulary

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [*"abcdefgé", *[f"##{letter}" for letter in "abcdefgé"]]
WORDS = ["bad", "bed", "cab", "##ge", "##ab", "bagge", "fade", "xx", "##xyz", "face"]  # x, y and z only in these


@pytest.fixture
def tokenizer() -> transformers.PreTrainedTokenizerFast:
    vocabulary = {word: number for number, word in enumerate([*SPECIAL, *WORDS, *LETTERS])}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


@pytest.fixture
def model() -> transformers.BertModel:
    config = transformers.BertConfig(
        vocab_size=64, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    return transformers.BertModel(config)


def examples(tokenizer: Any, texts: list[str]) -> Any:
    ids = [tokenizer(text)["input_ids"] for text in texts]
    return SimpleNamespace(pad_token=tokenizer.pad_token_id, inputs={"input_ids": ids})


def test_any_text_is_composed(tokenizer: Any, model: Any, tmp_path: Path) -> None:
    texts = ["bad cab", "bed"]
    before = {text: tokenizer.convert_ids_to_tokens(tokenizer(text)["input_ids"]) for text in [*texts, "fade", "xx"]}
    ids = tokenizer.get_vocab()
    assert before["fade"] == ["fade"]
    note = trim_vocabulary(model, tokenizer, [examples(tokenizer, texts)])
    tokenizer.save_pretrained(tmp_path)
    read = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for one in (tokenizer, read):
        for text in texts:
            assert one.convert_ids_to_tokens(one(text)["input_ids"]) == before[text]
        assert one.convert_ids_to_tokens(one("fade")["input_ids"]) == ["f", "##a", "##d", "##e"]
        assert one.convert_ids_to_tokens(one("Badé")["input_ids"]) == ["bad", "##é"]
        assert one.convert_ids_to_tokens(one("bagge xx axyz")["input_ids"]) == [
            *["b", "##a", "##g", "##g", "##e"], "xx", *["a", "##xyz"]
        ]  # fmt: skip
        assert one.convert_ids_to_tokens(one("q")["input_ids"]) == ["[UNK]"]
        assert all(ids[word] == index for word, index in one.get_vocab().items())
    filled = set(torch.nonzero(model.get_input_embeddings().weight.abs().sum(1)).flatten().tolist())
    expected = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "bad", "cab", "bed", *LETTERS, "xx", "##xyz"}
    expected |= {"[MASK]"}  # its letters are no pieces
    # Of [PAD], the model's row is zero from the start.
    assert filled == {ids[word] for word in expected - {"[PAD]"}}
    assert set(read.get_vocab()) == expected
    assert note == (
        "the vocabulary is trimmed to 26 of 31 tokens: 7 of the data, and 19 that compose the others: the tokenizer "
        "splits all other words into these"
    )


def test_another_tokenizer_does_not_change(model: Any) -> None:
    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate([*SPECIAL, *WORDS])}, "[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer: Any = transformers.PreTrainedTokenizerFast(tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]")
    before = tokenizer.backend_tokenizer.to_str()
    note = trim_vocabulary(model, tokenizer, [examples(tokenizer, ["bad cab"])])
    assert tokenizer.backend_tokenizer.to_str() == before
    assert note.endswith("the tokenizer is no WordPiece tokenizer, so any other token has a zero embedding")
    assert not model.get_input_embeddings().weight[tokenizer.get_vocab()["fade"]].any()
