"""What a checkpoint must give a model, and what it may lack."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    BartConfig,
    BartForConditionalGeneration,
    BertForMaskedLM,
    BertForPreTraining,
    BertForSequenceClassification,
    BertModel,
    DebertaV2Config,
    DebertaV2ForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    GPT2Model,
    PreTrainedModel,
    RobertaConfig,
    RobertaModel,
    T5Config,
    T5ForConditionalGeneration,
    XLNetConfig,
    XLNetLMHeadModel,
    dynamic_module_utils,
)
from transformers.integrations import hub_kernels

from mvprune.artifact import read_manifest
from mvprune.data.loading import ClassificationData
from mvprune_core import CompressionError, Reason, Teacher, Training, compress
from mvprune_core.models.loading import Loaded, Source, find_model, load_model
from mvprune_core.tasks import Objective

Change = Callable[[dict[str, torch.Tensor]], object]
WORDS, LAYER = "bert.embeddings.word_embeddings.weight", "bert.encoder.layer"
TINY: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def load(folder: Path, objective: Objective) -> Loaded:
    """Loads a folder without the checks of its headers, which refuse some of the same before."""
    return load_model(Source("mine", "", folder), objective, seed=0)


def refused(folder: Path, objective: Objective) -> str:
    with pytest.raises(CompressionError) as raised:
        load(folder, objective)
    assert raised.value.reason is Reason.INVALID_MODEL
    return raised.value.message


def change_weights(folder: Path, change: Change) -> Path:
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})
    return folder


def change_config(folder: Path, **keys: Any) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | keys))
    return folder


@pytest.fixture
def bert(save: Callable[..., Path], bert_config: Callable[..., Any]) -> Path:
    """A fine-tuned BERT."""
    torch.manual_seed(1)
    return save(BertForSequenceClassification(bert_config()), "bert")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"vocab_size": 48},
            rf"{WORDS} is \[40, 32\] in the weights, \[48, 32\] by config.json; set vocab_size to 40 in config.json, "
            r"or call model.resize_token_embeddings\(48\)",
        ),
        ({"max_position_embeddings": 32}, r"position_embeddings\.weight is \[64, 32\].*set max_position_embeddings to"),
        ({"type_vocab_size": 3}, r"token_type_embeddings\.weight is \[2, 32\].*set type_vocab_size to 2"),
        ({"intermediate_size": 128}, r"is \[64\] in the weights, \[128\] by config.json; give the config.json that"),
        ({"hidden_size": 16}, r"give the config\.json that belongs to the weights"),
        ({"num_hidden_layers": 1}, rf"the weights have {LAYER}\.1\..* \({LAYER} has 2 blocks in the weights, 1 by"),
        ({"num_hidden_layers": 3}, rf"the weights lack {LAYER}\.2\..* and \d+ more, which config.json describes"),
    ],
)
def test_a_config_that_differs_from_the_weights(
    bert: Path, objective: Objective, keys: dict[str, Any], message: str
) -> None:
    assert load(bert, objective).fine_tuned
    assert re.search(message, refused(change_config(bert, **keys), objective))


@pytest.mark.parametrize("change", ["larger", "smaller"])
def test_embeddings_of_a_family_whose_headers_are_not_compared(
    save: Callable[..., Path], objective: Objective, change: str
) -> None:
    config = GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=50, bos_token_id=3, eos_token_id=3)
    folder = save(GPT2Model(config))
    find_model(change_config(folder, vocab_size=48 if change == "smaller" else 60), None)
    assert "wte.weight is [50, 32] in the weights" in refused(folder, objective)
    change_config(folder, vocab_size=50, n_layer=1)
    assert "h has 2 blocks in the weights, 1 by config.json" in refused(folder, objective)


@pytest.mark.parametrize(
    "name",
    [
        WORDS,
        "bert.embeddings.position_embeddings.weight",
        "bert.embeddings.token_type_embeddings.weight",
        "bert.embeddings.LayerNorm.weight",
        f"{LAYER}.1.output.LayerNorm.bias",
    ],
)
def test_a_missing_tensor_of_the_body(bert: Path, objective: Objective, name: str) -> None:
    change_weights(bert, lambda tensors: tensors.pop(name))
    message = f"the model 'mine' cannot be used: the weights lack {name}, which config.json describes; give the"
    assert refused(bert, objective).startswith(message)


@pytest.mark.parametrize("name", [f"{LAYER}.0.output.adapter.weight", "bert.embeddings.more.weight"])
def test_a_tensor_of_the_body_that_the_model_does_not_have(bert: Path, objective: Objective, name: str) -> None:
    change_weights(bert, lambda tensors: tensors.update({name: torch.ones(2, 2)}))
    assert f"the weights have {name}, which config.json does not describe; give" in refused(bert, objective)


def _old_names(tensors: dict[str, torch.Tensor]) -> None:
    for name in [name for name in tensors if "LayerNorm" in name]:
        old = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        tensors[old] = tensors.pop(name)


def _positions(tensors: dict[str, torch.Tensor]) -> None:
    tensors["bert.embeddings.position_ids"] = torch.arange(64)[None]


@pytest.mark.parametrize("change", [_old_names, _positions])
def test_names_and_buffers_of_old_checkpoints(bert: Path, objective: Objective, change: Change) -> None:
    before = load(bert, objective).model.state_dict()
    after = load(change_weights(bert, change), objective)
    assert after.fine_tuned
    assert all(torch.equal(tensor, before[name]) for name, tensor in after.model.state_dict().items())


def _models() -> dict[str, Callable[[Any], PreTrainedModel]]:
    t5 = T5Config(d_model=32, d_kv=16, d_ff=32, num_layers=2, num_heads=2, vocab_size=40, eos_token_id=3)
    bart = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "vocab_size": 40}
    bart |= {"decoder_attention_heads": 2, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "max_position_embeddings": 64}
    gpt2 = GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=40, bos_token_id=3, eos_token_id=3)
    return {
        "no pooler": BertForMaskedLM,
        "heads of pretraining": BertForPreTraining,
        "no head": BertModel,
        "a pooler that is not used": lambda _: RobertaModel(RobertaConfig(**TINY, vocab_size=40)),
        "shared blocks": lambda _: AlbertForMaskedLM(AlbertConfig(**TINY, vocab_size=40, embedding_size=16)),
        "relative positions": lambda _: DebertaV2ForMaskedLM(
            DebertaV2Config(**TINY, vocab_size=40, relative_attention=True, position_biased_input=False)
        ),
        "DistilBERT": lambda _: DistilBertForMaskedLM(
            DistilBertConfig(dim=32, n_layers=1, n_heads=2, hidden_dim=32, vocab_size=40)
        ),
        "a decoder": lambda _: GPT2LMHeadModel(gpt2),
        "XLNet": lambda _: XLNetLMHeadModel(XLNetConfig(vocab_size=40, d_model=32, n_layer=1, n_head=2, d_inner=32)),
        "tied embeddings": lambda _: T5ForConditionalGeneration(t5),
        "a bias of logits": lambda _: BartForConditionalGeneration(BartConfig(**bart)),
    }


@pytest.mark.parametrize("name", _models())
def test_only_the_head_may_be_new_and_is_named(
    save: Callable[..., Path], bert_config: Callable[..., Any], objective: Objective, name: str
) -> None:
    model = _models()[name](bert_config())
    loaded = load_model(find_model(save(model), None), objective, seed=0)
    assert not loaded.fine_tuned
    [note] = [note for note in loaded.notes if not note.startswith("the padding token has")]
    assert note.startswith("new in the model, ")
    assert not {"embeddings", "layer", "block", "wte"} & set(note.rpartition("seed: ")[2].replace(",", ".").split("."))


def test_shards_and_half_precision(bert: Path, objective: Objective) -> None:
    whole = load(bert, objective).model
    whole.half().save_pretrained(bert, max_shard_size="20KB")
    (bert / "model.safetensors").unlink(missing_ok=True)
    assert len(list(bert.glob("model-*.safetensors"))) > 1
    loaded = load_model(find_model(bert, None), objective, seed=0)
    assert loaded.fine_tuned
    assert loaded.notes == ()


def test_a_head_of_another_size_is_new_with_both_shapes(
    save: Callable[..., Path], bert_config: Callable[..., Any], data: ClassificationData, tmp_path: Path
) -> None:
    folder = save(BertForSequenceClassification(bert_config(num_labels=3)))
    quick = Training(max_steps=5, batch_size=32)
    result = compress(folder, data, method="magnitude", density=0.5, training=quick, dense_baseline=False)
    result.save(tmp_path / "artifact")
    notes = [note for note in read_manifest(tmp_path / "artifact").notes if note.startswith("new in the model")]
    assert len(notes) == 1
    assert "classifier.weight is [3, 32] in the weights, [2, 32] by config.json" in notes[0]


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "name", [f"{LAYER}.0.output.dense.weight", "bert.embeddings.LayerNorm.bias", "classifier.bias"]
)
def test_values_that_are_not_finite(
    bert: Path, objective: Objective, value: float, dtype: torch.dtype, name: str
) -> None:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors.update({key: tensor.to(dtype) for key, tensor in tensors.items()})
        tensors[name].view(-1)[-1] = value

    assert f"tensor {name} holds NaN or infinity" in refused(change_weights(bert, change), objective)


@pytest.mark.parametrize("wrong", ["embeddings", "values"])
def test_a_teacher_is_refused_for_what_is_wrong_with_it(bert: Path, data: ClassificationData, wrong: str) -> None:
    student = bert.rename(bert.parent / "student")
    teacher = bert.parent / "teacher"
    teacher.mkdir()
    for file in student.iterdir():
        (teacher / file.name).write_bytes(file.read_bytes())
    if wrong == "embeddings":
        change_config(teacher, vocab_size=48)
        message = r"vocab_size must be 40, .*set vocab_size to 40"
    else:
        change_weights(teacher, lambda tensors: tensors[WORDS].fill_(float("nan")))
        message = rf"'{teacher}' cannot be used: tensor {WORDS} holds NaN or infinity"
    with pytest.raises(CompressionError, match=message) as raised:
        compress(
            student,
            data,
            method="magnitude",
            density=0.5,
            training=Training(max_steps=5),
            teacher=Teacher(model=teacher),
        )
    assert raised.value.reason is Reason.INVALID_MODEL


# Keys that reach code


def _guard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever would fetch or import a stranger's code fails the test."""

    def fail(*args: Any, **_: Any) -> None:
        pytest.fail(f"code or a file was to be fetched: {args}")

    monkeypatch.setattr(socket.socket, "connect", fail)
    monkeypatch.setattr(hub_kernels, "get_kernel", fail)
    monkeypatch.setattr(hub_kernels, "is_kernels_available", lambda: True)
    monkeypatch.setattr(dynamic_module_utils, "get_class_from_dynamic_module", fail)


@pytest.mark.parametrize(
    "keys",
    [
        {"attn_implementation": "owner/kernel"},
        {"_attn_implementation": "owner/kernel:forward"},
        {"attribute_map": {"number": "_attn_implementation"}, "number": "owner/kernel"},
        {"sub_configs": {}},
        {"experts_implementation": "owner/kernel"},
        {"auto_map": {"AutoModelForSequenceClassification": "owner/code--modeling.Mine"}},
        {"quantization_config": {"quant_method": "eetq"}},
        {"transformers_weights": "other.safetensors"},
        {"tokenizer_class": "pipeline"},
        {"model_type": "mine"},
        {"num_hidden_layers": 10**9},
        {"__class__": "str"},
    ],
    ids=json.dumps,
)
def test_nothing_is_fetched_or_imported_for_a_key(
    bert: Path, objective: Objective, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any]
) -> None:
    _guard(monkeypatch)
    assert next(iter(keys)) in refused(change_config(bert, **keys), objective)


def test_another_file_does_not_take_the_place_of_config_json(bert: Path, objective: Objective) -> None:
    other = json.loads((bert / "config.json").read_text()) | {"attn_implementation": "owner/kernel"}
    (bert / "config.4.0.0.json").write_text(json.dumps(other))
    assert load(bert, objective).fine_tuned
    assert "configuration_files" in refused(change_config(bert, configuration_files=["config.4.0.0.json"]), objective)


@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
def test_a_tokenizer_does_not_read_files_of_other_folders(
    bert: Path, objective: Objective, file: str, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nsesame\n")
    (bert / "tokenizer.json").unlink()
    (bert / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "BertTokenizer"}))
    (bert / file).write_text(json.dumps({"vocab_file": str(secret)}))
    message = refused(bert, objective)
    assert f"{file}: " in message
    assert "vocab_file" in message
    assert "sesame" not in message


@pytest.mark.parametrize("implementation", ["eager", "sdpa", None])
def test_an_implementation_of_transformers_own_is_taken(
    bert: Path, objective: Objective, implementation: str | None
) -> None:
    loaded = load(change_config(bert, attn_implementation=implementation), objective)
    assert loaded.config._attn_implementation == (implementation or "sdpa")


@pytest.mark.parametrize("name", ["classifier.2", "score", "span_head.dense"])
def test_a_head_that_is_not_used_is_named(bert: Path, objective: Objective, name: str) -> None:
    def change(tensors: dict[str, Any]) -> None:
        tensors[f"{name}.weight"] = tensors.pop("classifier.weight").repeat(2, 1)
        tensors[f"{name}.bias"] = tensors.pop("classifier.bias").repeat(2)

    notes = load(change_weights(bert, change), objective).notes
    assert any(f"the weights have {name}.bias, {name}.weight, which the model of trans" in note for note in notes)
