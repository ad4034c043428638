"""An example's outputs do not depend on its batch: found out before training, and when an artifact is opened."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import PreTrainedTokenizerFast

from mvprune.artifact import ArtifactError
from mvprune.data.loading import ClassificationData
from mvprune.export import export
from mvprune_core import CompressionError, Reason, Training, compress
from mvprune_core.batching import Examples
from mvprune_core.evaluation import CannotEvaluate, evaluate
from mvprune_core.forward import padding_side, without_batch_effects
from mvprune_core.prediction import Predictor

PAGE = Path(__file__).parents[3] / "docs" / "models.md"
CPU = torch.device("cpu")
QUICK = Training(max_steps=8, batch_size=32)

_MODEL: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
_MODEL |= {"vocab_size": 40, "max_position_embeddings": 96, "pad_token_id": 0}
_ENDS = {"bos_token_id": 2, "eos_token_id": 3, "pad_token_id": 0}
_BOTH = {"d_model": 32, "vocab_size": 40, "decoder_start_token_id": 0, **_ENDS}
_BART = _BOTH | {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
_BART |= {"encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 96}
_T5 = _BOTH | {"d_kv": 16, "num_heads": 2, "d_ff": 64, "num_layers": 1}
_GPT = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": 40, "n_positions": 96, "pad_token_id": 0}
_LLAMA = _MODEL | {"num_key_value_heads": 1}
_RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]}
_XLM = {"vocab_size": 40, "emb_dim": 32, "n_layers": 2, "n_heads": 2, "pad_index": 0, "max_position_embeddings": 96}
_XLM |= {"pad_token_id": 0}

RIGHT: dict[str, dict[str, Any]] = {
    "albert": _MODEL | {"embedding_size": 16},
    "bart": _BART,
    "bert": _MODEL,
    "big_bird": _MODEL | {"attention_type": "block_sparse", "block_size": 2, "num_random_blocks": 1},
    "bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 2, "vocab_size": 40, "pad_token_id": 0},
    "camembert": _MODEL,
    "ctrl": _GPT | {"dff": 64},
    "data2vec-text": _MODEL,
    "deberta": _MODEL | _RELATIVE,
    "deberta-v2": _MODEL | _RELATIVE | {"conv_kernel_size": 3, "position_buckets": 8},
    "distilbert": {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64, "vocab_size": 40},
    "electra": _MODEL | {"embedding_size": 16},
    "ernie": _MODEL,
    "esm": _MODEL | {"mask_token_id": 4},
    "falcon": _MODEL,
    "flaubert": _XLM,
    "funnel": {"vocab_size": 40, "d_model": 32, "n_head": 2, "d_head": 16, "d_inner": 64, "block_sizes": [1, 1]},
    "gemma": _LLAMA | {"head_dim": 16},
    "gpt2": _GPT,
    "gpt_bigcode": _GPT,
    "gpt_neo": _MODEL | {"num_layers": 2, "attention_types": [[["global", "local"], 1]], "window_size": 4},
    "gpt_neox": _MODEL,
    "gptj": _GPT | {"rotary_dim": 8},
    "layoutlm": _MODEL,
    "llama": _LLAMA,
    "longformer": _MODEL | {"attention_window": 8, "max_position_embeddings": 104},
    "luke": _MODEL | {"entity_vocab_size": 10, "entity_emb_size": 8},
    "mbart": _BART,
    "megatron-bert": _MODEL,
    "mistral": _LLAMA,
    "mixtral": _LLAMA | {"num_local_experts": 4, "num_experts_per_tok": 2},
    "mobilebert": _MODEL | {"embedding_size": 32, "intra_bottleneck_size": 32, "true_hidden_size": 32},
    "modernbert": _MODEL | {"cls_token_id": 2, "sep_token_id": 3, **_ENDS},
    "mpnet": _MODEL,
    "mt5": _T5,
    "opt": _MODEL | {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "qwen2": _LLAMA,
    "qwen3": _LLAMA | {"head_dim": 16},
    "rembert": _MODEL | {"input_embedding_size": 16, "output_embedding_size": 16},
    "roberta": _MODEL,
    "roformer": _MODEL | {"embedding_size": 32},
    "squeezebert": _MODEL | {"embedding_size": 32}
    | {f"{part}_groups": 1 for part in ("q", "k", "v", "post_attention", "intermediate", "output")},
    "t5": _T5,
    "umt5": _T5,
    "xlm": _XLM,
    "xlm-roberta": _MODEL,
    "xmod": _MODEL | {"languages": ["en_XX"], "default_language": "en_XX"},
}  # fmt: skip
LEFT: dict[str, dict[str, Any]] = {
    "xlnet": {"vocab_size": 40, "d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 64, "pad_token_id": 0}
}
REFUSED: dict[str, dict[str, Any]] = {
    "convbert": _MODEL | {"embedding_size": 32},
    "fnet": {name: value for name, value in _MODEL.items() if name != "num_attention_heads"},
    "nystromformer": _MODEL | {"num_landmarks": 64, "segment_means_seq_len": 64},
    "reformer": {"vocab_size": 40, "hidden_size": 32, "attention_head_size": 16, "num_attention_heads": 2}
    | {"axial_pos_embds": False, "attn_layers": ["local", "lsh"], "num_buckets": 2, "is_decoder": False}
    | {"lsh_attn_chunk_length": 4, "local_attn_chunk_length": 4, "feed_forward_size": 64, "pad_token_id": 0},
    "yoso": _MODEL,
}


def build(name: str, options: dict[str, Any], head: str = "SequenceClassification") -> Any:
    """A model none of whose weights is zero or small, those of padding neither."""
    torch.manual_seed(0)
    config = transformers.CONFIG_MAPPING[name](**options)
    model = getattr(transformers, f"AutoModelFor{head}").from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(std=0.2)
    return model


def examples(*lengths: int) -> Examples:
    source = random.Random(0)
    rows = [[2, *(source.randrange(5, 40) for _ in range(length - 2)), 3] for length in lengths]
    return Examples({"input_ids": [np.array(row, dtype=np.int32) for row in rows]}, {}, pad_token=0)


def side(name: str, options: dict[str, Any], head: str = "SequenceClassification") -> str:
    model = build(name, options, head)
    without_batch_effects(model)
    return padding_side(model, [examples(7, 20, 30), examples(60, 5)])


@pytest.mark.parametrize("name", RIGHT)
def test_padding_on_the_right_leaves_outputs_alone(name: str) -> None:
    assert side(name, RIGHT[name]) == "right"


@pytest.mark.parametrize("name", ["bert", "big_bird", "deberta-v2", "longformer", "mobilebert", "t5", "xlnet"])
def test_so_it_does_for_outputs_of_tokens(name: str) -> None:
    assert side(name, (RIGHT | LEFT)[name], "TokenClassification") == "right"


@pytest.mark.parametrize("name", LEFT)
def test_padding_on_the_left_leaves_outputs_alone(name: str) -> None:
    assert side(name, LEFT[name]) == "left"


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_whose_outputs_depend_on_padding_is_refused(name: str) -> None:
    with pytest.raises(CompressionError, match=r"for an example must not depend on the rest of its batch") as error:
        side(name, REFUSED[name])
    assert error.value.reason is Reason.UNSUPPORTED_ARCHITECTURE


@pytest.mark.parametrize("name", ["convbert", "fnet", "funnel"])
def test_so_is_one_whose_outputs_of_tokens_do(name: str) -> None:
    with pytest.raises(CompressionError, match="must not depend on the rest of its batch"):
        side(name, (RIGHT | REFUSED)[name], "TokenClassification")


def test_the_documentation_lists_the_architectures_that_are_tried_here() -> None:
    table = re.findall(r"^\| ([^|]+) \| (yes|no) \| ([^|]+) \|$", PAGE.read_text(), re.MULTILINE)
    found = {answer + how[:5].strip(): set(re.findall(r"`([\w-]+)`", names)) for names, answer, how in table}
    classes = {"yesright": set(RIGHT), "yesleft,": set(LEFT), "norefus": set(REFUSED)}
    assert found == classes


def test_padding_on_the_left() -> None:
    split = examples(3, 5)
    ids = split.inputs["input_ids"]
    left = Examples(split.inputs, {}, pad_token=9, padding_side="left").batch(np.array([0, 1]), CPU)
    assert left["input_ids"].tolist() == [[9, 9, *ids[0]], [*ids[1]]]
    assert left["attention_mask"].tolist() == [[0, 0, 1, 1, 1], [1] * 5]


def test_examples_of_one_length_are_not_compared() -> None:
    assert padding_side(build("fnet", REFUSED["fnet"]), [examples(7, 7)]) == "right"


def test_a_model_that_depends_on_the_batch_is_refused_before_training(
    save: Callable[..., Path], data: ClassificationData
) -> None:
    folder = save(transformers.FNetModel(transformers.FNetConfig(**REFUSED["fnet"])))
    with pytest.raises(CompressionError, match=r"^the outputs of FNetForSequenceClassification .* such as BERT"):
        compress(folder, data, density=0.5, training=QUICK)


def test_an_artifact_that_depends_on_the_batch_is_not_opened(
    save: Callable[..., Path], data: ClassificationData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save(build("convbert", REFUSED["convbert"]))
    monkeypatch.setattr("mvprune_core.plan.padding_side", lambda *_: "right")  # as before this was looked at
    compress(folder, data, density=0.5, training=QUICK, dense_baseline=False).save(tmp_path / "out")
    with pytest.raises(ArtifactError, match="must not depend on the rest of its batch"):
        Predictor.open(tmp_path / "out")
    rows = "".join(f"{text}\t{label}\n" for text, label in zip(*(data.train.texts, data.train.labels), strict=True))
    (tmp_path / "dev.tsv").write_text(f"sentence\tlabel\n{rows}")
    with pytest.raises(CannotEvaluate, match="must not depend on the rest of its batch"):
        evaluate(tmp_path / "out", tmp_path / "dev.tsv")


@pytest.mark.parametrize("runtime", ["dense", "sparse"])
def test_xlnet_answers_alone_as_in_company(
    save: Callable[..., Path], data: ClassificationData, tmp_path: Path, runtime: Any
) -> None:
    result = compress(save(build("xlnet", LEFT["xlnet"])), data, density=0.5, training=QUICK)
    result.save(tmp_path / "out")
    predictor = Predictor.open(tmp_path / "out", runtime=runtime)
    texts = [{"text": text} for text in data.validation.texts[:20]]
    together = predictor.predict([*texts, {"text": " ".join(data.validation.texts[:4])}])
    for text, found in zip(texts, together, strict=False):
        (alone,) = predictor.predict([text])
        assert found["scores"] == pytest.approx(alone["scores"], abs=1e-4)
    right = sum(predictor.predict([{"text": text}])[0]["label"] == data.labels[label]
                for text, label in zip(data.validation.texts, data.validation.labels, strict=True))  # fmt: skip
    assert result.metrics["eval/accuracy"] == right / len(data.validation)
    export(tmp_path / "out", tmp_path / "dense", to="dense")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "dense")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "dense")
    batch = tokenizer([text["text"] for text in texts], padding=True, return_tensors="pt")
    with torch.inference_mode():
        theirs = model(**batch).logits.softmax(dim=1).tolist()
    assert [[*found["scores"].values()] for found in together[:20]] == [pytest.approx(row, abs=1e-4) for row in theirs]


def test_full_attention_of_a_block_sparse_model_is_noted(
    save: Callable[..., Path],
    data: ClassificationData,
    tokenizer: PreTrainedTokenizerFast,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = save(build("big_bird", RIGHT["big_bird"]))
    result = compress(folder, data, density=0.5, training=QUICK, dense_baseline=False)
    assert "is block-sparse" in caplog.text
    assert len([note for note in result.notes if "block-sparse" in note]) == 1
    assert result.model.config.attention_type == "original_full"
