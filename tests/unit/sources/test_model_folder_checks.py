"""Model folders whose config.json does not fit the weights, or whose files are something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.sources.test_model_folders import CONFIG, HIDDEN, TENSORS, header_of, write_model, write_weights

from mvprune.sources.model_config import has_vocabulary
from mvprune.sources.model_folder import inspect_model
from mvprune.sources.references import InvalidReference

# Tensors against config.json


@pytest.mark.parametrize(
    ("key", "table", "given", "remedy"),
    [
        (
            "vocab_size",
            "word",
            18,
            r"set vocab_size to 20 in config\.json, or call model\.resize_token_embeddings\(18\)",
        ),
        ("vocab_size", "word", 24, r"set vocab_size to 20"),
        ("max_position_embeddings", "position", 16, r"set max_position_embeddings to 20"),
        ("type_vocab_size", "token_type", 2, r"set type_vocab_size to 20"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "roberta."])
def test_tables_of_other_rows_than_the_config_says(
    key: str, table: str, given: int, remedy: str, prefix: str, tmp_path: Path
):
    name = f"{prefix}embeddings.{table}_embeddings.weight"
    tensors = {f"{prefix}{name}": shape for name, shape in TENSORS.items()} | {name: (20, HIDDEN)}
    config = CONFIG | {"model_type": "roberta", key: given}
    message = rf"config\.json': {key} must be 20, the rows of {name} \[20, 8\] in the weights, got {given}; {remedy}"
    with pytest.raises(InvalidReference, match=message):
        inspect_model(write_model(tmp_path, tensors, config))
    assert inspect_model(write_model(tmp_path, tensors, config | {key: 20}))


@pytest.mark.parametrize(
    ("model_type", "key", "path"),
    [
        ("bert", "num_hidden_layers", "encoder.layer"),
        ("distilbert", "n_layers", "transformer.layer"),
        ("distilbert", "num_hidden_layers", "transformer.layer"),
    ],
)
@pytest.mark.parametrize("given", [1, 3])
def test_fewer_or_more_layers_than_the_config_says(model_type: str, key: str, path: str, given: int, tmp_path: Path):
    tensors = {name.replace("encoder.layer", path): shape for name, shape in TENSORS.items()}
    config = {"model_type": model_type, key: given}
    with pytest.raises(InvalidReference, match=rf"{key} must be 2, the number of layers in the weights, got {given}"):
        inspect_model(write_model(tmp_path, tensors, config))
    assert inspect_model(write_model(tmp_path, tensors, config | {key: 2}))


def test_blocks_that_are_shared_are_not_counted_as_layers(tmp_path: Path):
    tensors = {"encoder.albert_layer_groups.0.albert_layers.0.ffn.weight": (HIDDEN, HIDDEN)}
    assert inspect_model(write_model(tmp_path, tensors, {"model_type": "albert", "num_hidden_layers": 12}))


# Files that are something else


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json", "vocab.txt", "spm.model"])
def test_a_pointer_of_git_lfs(name: str, tmp_path: Path):
    write_model(tmp_path)
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 440449768\n"
    (tmp_path / name).write_text(pointer)
    with pytest.raises(
        InvalidReference, match=rf"{name}' must be the file itself, got a pointer of git-lfs; run `git lfs pull`"
    ):
        inspect_model(tmp_path)


@pytest.mark.parametrize("whole", [False, True])
def test_an_adapter_is_not_passed_over(whole: bool, tmp_path: Path):
    if whole:
        write_model(tmp_path)
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "bert-base-uncased"}))
    with pytest.raises(InvalidReference, match=r"got an adapter .* of the model 'bert-base-uncased'.*merge_and_unload"):
        inspect_model(tmp_path)


@pytest.mark.parametrize(("dtype", "suffix"), [("I8", "weight"), ("F8_E4M3", "weight"), ("I32", "qweight")])
def test_quantized_weights(dtype: str, suffix: str, tmp_path: Path):
    header, _ = header_of({})
    name = f"encoder.layer.0.output.dense.{suffix}"
    size = {"I32": 4}.get(dtype, 1) * HIDDEN**2
    header[name] = {"dtype": dtype, "shape": [HIDDEN, HIDDEN], "data_offsets": [0, size]}
    write_model(tmp_path)
    write_weights(tmp_path / "model.safetensors", header, size)
    with pytest.raises(InvalidReference, match=rf"must be floating-point, got {dtype} in '{name}'; give"):
        inspect_model(tmp_path)


@pytest.mark.parametrize(
    ("files", "is_enough"),
    [
        ({}, False),
        ({"tokenizer_config.json": '{"tokenizer_class": "BertTokenizer"}', "added_tokens.json": "{}"}, False),
        ({"tokenizer_config.json": '{"tokenizer_class": "ByT5Tokenizer"}'}, True),
        ({"tokenizer_config.json": '{"vocab_file": "words"}'}, False),
        ({"tokenizer_config.json": '{"vocab_file": "words"}', "words": "[UNK]"}, True),
        ({"README.txt": "a model", "special_tokens_map.json": "{}", "trainer_state.json": "{}"}, False),
    ],
)
def test_a_folder_without_a_tokenizer(files: dict[str, str], is_enough: bool, tmp_path: Path):
    (write_model(tmp_path) / "vocab.txt").unlink()
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    if is_enough:
        inspect_model(tmp_path)
        return
    with pytest.raises(InvalidReference) as raised:
        inspect_model(tmp_path)
    assert str(raised.value) == (
        f"the model {str(tmp_path)!r} has no tokenizer: put its files (tokenizer.json, vocab.txt, …) into the folder"
    )


def test_the_files_of_every_tokenizer_of_transformers_are_known(tmp_path: Path):
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES, tokenizer_class_from_name

    write_model(tmp_path)
    unknown = []
    for name in {*filter(None, TOKENIZER_MAPPING_NAMES.values())}:
        files = getattr(tokenizer_class_from_name(name), "vocab_files_names", None)
        if files is None:  # RAG's, which consists of two
            continue
        for path in tmp_path.glob("*"):
            if path.suffix not in (".safetensors", ".json") or path.name in files.values():
                path.unlink()
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
        for file in {*files.values()} - {"tokenizer_config.json"}:
            (tmp_path / file).write_text("{}")
        if not has_vocabulary(tmp_path):
            unknown.append(name)
        for file in files.values():
            (tmp_path / file).unlink()
    assert unknown == []


def test_a_model_of_no_text(tmp_path: Path):
    write_model(tmp_path, config=CONFIG | {"model_type": "vit"})
    with pytest.raises(InvalidReference, match="model_type must be that of a model of text, got 'vit'; give a model"):
        inspect_model(tmp_path)


def test_a_distributed_checkpoint_is_not_read_in_place_of_the_weights(tmp_path: Path):
    write_model(tmp_path)
    write_weights(tmp_path / "shard-00001-model-00001-of-00001.safetensors", *header_of(TENSORS))
    with pytest.raises(InvalidReference, match="got a distributed checkpoint"):
        inspect_model(tmp_path)


def _with_heads() -> list[Any]:
    from transformers import (
        BartConfig,
        BartForConditionalGeneration,
        BertConfig,
        BertForMaskedLM,
        BertForPreTraining,
        BertForSequenceClassification,
        DistilBertConfig,
        DistilBertForMaskedLM,
        GPT2Config,
        GPT2LMHeadModel,
        ModernBertConfig,
        ModernBertForMaskedLM,
        T5Config,
        T5ForConditionalGeneration,
        XLNetConfig,
        XLNetLMHeadModel,
    )

    tiny = {"vocab_size": 30, "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
    bert = BertConfig(**tiny, intermediate_size=16)
    ids = dict.fromkeys(("pad_token_id", "cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id"), 0)
    t5 = T5Config(d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, vocab_size=30, tie_word_embeddings=False)
    sizes = {"d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 8, "decoder_ffn_dim": 8}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "vocab_size": 30}
    return [
        BertForMaskedLM(bert),
        BertForPreTraining(bert),
        BertForSequenceClassification(bert),
        DistilBertForMaskedLM(DistilBertConfig(dim=8, n_layers=1, n_heads=2, hidden_dim=8, vocab_size=30)),
        ModernBertForMaskedLM(ModernBertConfig(**tiny, intermediate_size=16, **ids)),
        GPT2LMHeadModel(GPT2Config(n_embd=8, n_layer=1, n_head=2, vocab_size=30)),
        XLNetLMHeadModel(XLNetConfig(vocab_size=30, d_model=8, n_layer=1, n_head=2, d_inner=8)),
        T5ForConditionalGeneration(t5),
        BartForConditionalGeneration(BartConfig(**sizes, **heads)),
    ]


def test_heads_are_not_counted_whatever_the_checkpoint_has(tmp_path: Path):
    for model in _with_heads():
        folder = tmp_path / type(model).__name__
        model.save_pretrained(folder)
        (folder / "vocab.txt").write_text("[UNK]")
        heads = ("pooler", "lm_head")
        base = [parameter for name, parameter in model.base_model.named_parameters() if not name.startswith(heads)]
        counted = sum({id(parameter): parameter.numel() for parameter in base}.values())
        assert inspect_model(folder).base_parameters == counted, folder.name
