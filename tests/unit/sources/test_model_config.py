"""Keys of a model's JSON files that reach code or other files: values that are allowed, and those that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.sources.test_model_folders import CONFIG, write_model

from mvprune.sources.model_folder import inspect_model
from mvprune.sources.references import InvalidReference

REFUSED: list[dict[str, Any]] = [
    {"attn_implementation": "owner/kernel"},
    {"attn_implementation": "flash_attention_2"},  # the kernels library fetches it where it is not installed
    {"_attn_implementation": "owner/kernel@main:forward"},
    {"_attn_implementation_internal": "owner/kernel"},
    {"attn_implementation": {"": "sdpa", "text_config": "owner/kernel"}},
    {"experts_implementation": "owner/kernel"},
    {"mlp_implementation": "owner/kernel"},
    {"kernel_config": {"kernel_mapping": {"RMSNorm": "owner/kernel:RMSNorm"}}},
    {"encoder": {"attn_implementation": "owner/kernel"}},
    {"per_layer_config": {"0": {"layers": [{"attn_implementation": "owner/kernel"}]}}},
    {"auto_map": {"AutoConfig": "owner/code--configuration.Mine"}},
    {"auto_map": ["tokenization.Mine", None]},
    {"quantization_config": {"quant_method": "bitsandbytes", "load_in_8bit": True}},
    {"compression_config": {"quantization_config": {}, "format": "dense"}},
    {"transformers_weights": "other.safetensors"},
    {"configuration_files": ["config.4.0.0.json"]},
    {"fusion_config": {"patch_embeddings": True}},
    {"distributed_config": {"tp_size": 2}},
    {"dtype": "load"},
    {"torch_dtype": "hub"},
    {"tokenizer_class": "pipeline"},
    {"tokenizer_class": "AutoModel"},
]
REFUSED_OF_TOKENIZERS: list[dict[str, Any]] = [
    {"auto_map": {"AutoTokenizer": ["tokenization.Mine", None]}},
    {"tokenizer_class": "Trainer"},
    {"vocab_file": "/etc/hostname"},
    {"source_spm": "../other/spm.model"},
    {"vocab": "/etc/hostname"},
    {"init_inputs": ["/etc/hostname"]},
    {"fast_tokenizer_files": ["../other/tokenizer.5.0.0.json"]},
    {"gguf_file": "model.gguf"},
]


def ids(cases: list[dict[str, Any]]) -> list[str]:
    return [json.dumps(case) for case in cases]


@pytest.mark.parametrize("keys", REFUSED, ids=ids(REFUSED))
def test_keys_that_reach_code_are_refused_with_file_key_value_and_remedy(keys: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InvalidReference) as raised:
        inspect_model(write_model(tmp_path, config=CONFIG | keys))
    assert str(raised.value).startswith(f"{str(tmp_path / 'config.json')!r}: ")
    _, _, message = str(raised.value).partition("config.json': ")
    key, _, rest = message.partition(" must be ")
    assert key in json.dumps(keys)
    assert " got " in rest
    assert "; " in rest.partition(" got ")[2]


@pytest.mark.parametrize("keys", REFUSED_OF_TOKENIZERS, ids=ids(REFUSED_OF_TOKENIZERS))
def test_keys_of_a_tokenizer_that_reach_code_or_other_files_are_refused(keys: dict[str, Any], tmp_path: Path) -> None:
    write_model(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(keys))
    with pytest.raises(InvalidReference, match=rf"tokenizer_config\.json: {next(iter(keys))} must be .*, got "):
        inspect_model(tmp_path)


def test_the_map_of_special_tokens_holds_only_tokens(tmp_path: Path) -> None:
    write_model(tmp_path)
    file = tmp_path / "special_tokens_map.json"
    file.write_text(json.dumps({"cls_token": "[CLS]", "additional_special_tokens": ["<a>"]}))
    inspect_model(tmp_path)
    file.write_text(json.dumps({"cls_token": "[CLS]", "vocab_file": "/etc/hostname"}))
    with pytest.raises(InvalidReference, match=r"special_tokens_map\.json: keys must be .*, got 'vocab_file'"):
        inspect_model(tmp_path)


def test_what_published_models_say_is_allowed(tmp_path: Path) -> None:
    config = CONFIG | {
        "_name_or_path": "owner/model",
        "_attn_implementation_autoset": True,
        "attn_implementation": None,
        "_attn_implementation": "sdpa",
        "quantization_config": None,
        "torch_dtype": "bfloat16",
        "conv_kernel_size": 9,
        "conv_kernel": [10, 3, 3],
        "tokenizer_class": "XLMRobertaTokenizer",
        "finetuning_task": "sst2",
        "label2id": {"auto_map": 0, "dtype": 1, "kernel": 2},  # a user's own names
        "id2label": {"0": "auto_map", "1": "dtype", "2": "kernel"},
        "task_specific_params": {"summarization": {"num_beams": 4, "prefix": "summarize: "}},
    }
    write_model(tmp_path, config=config)
    tokenizer = {
        "tokenizer_class": "BertTokenizerFast",
        "special_tokens_map_file": "/root/.cache/huggingface/transformers/1a2b",
        "tokenizer_file": None,
        "init_inputs": [],
        "chat_template": "{% for message in messages %}{{ message }}{% endfor %}",
        "added_tokens_decoder": {"0": {"content": "[PAD]", "special": True}},
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    assert inspect_model(tmp_path).prunable_weights > 0


def test_keys_nested_deeper_than_recursion_allows(tmp_path: Path) -> None:
    deep: Any = {"attn_implementation": "owner/kernel"}
    for _ in range(200):
        deep = [{"a": deep}]
    with pytest.raises(InvalidReference, match="attn_implementation must be eager or sdpa"):
        inspect_model(write_model(tmp_path, config=CONFIG | {"sub": deep}))
