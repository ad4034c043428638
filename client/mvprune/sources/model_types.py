"""Facts about transformers' model types, so that options can be checked without it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

BASES: Mapping[str, str] = MappingProxyType(
    {
        "albert": "albert",
        "bert": "bert",
        "camembert": "roberta",
        "data2vec-text": "data2vec_text",
        "deberta": "deberta",
        "deberta-v2": "deberta",
        "distilbert": "distilbert",
        "electra": "electra",
        "ernie": "ernie",
        "megatron-bert": "bert",
        "mpnet": "mpnet",
        "roberta": "roberta",
        "roberta-prelayernorm": "roberta_prelayernorm",
        "xlm-roberta": "roberta",
    }
)
"""Where the model of a task keeps the model without a head, by model type (`base_model_prefix`)."""

DECODERS = ("bloom", "gemma", "gpt2", "gpt_neo", "gpt_neox", "gptj", "llama", "mistral", "opt", "phi", "qwen2", "qwen3")
"""Types whose models go on with a text."""
ENCODER_DECODERS = ("bart", "blenderbot", "encoder-decoder", "m2m_100", "marian", "mbart", "mt5", "pegasus", "t5")
"""Types whose models write a text from another one."""
OF_NO_TEXT = re.compile(
    "beit|bit|clap|clip|convnext|convnextv2|cvt|data2vec-audio|data2vec-vision|deit|detr|dinov2|dinov3_vit|dpt"
    "|efficientnet|hubert|levit|mobilenet_v1|mobilenet_v2|mobilevit|poolformer|pvt|regnet|resnet|sam|segformer|sew"
    "|siglip|siglip2|speecht5|swin|swinv2|timesformer|unispeech|videomae|vilt|vision-encoder-decoder|vit|vit_mae"
    "|vit_msn|vivit|wav2vec2|wav2vec2-bert|wavlm|yolos"
)
"""The best-known types of models of images and sounds, which transformers has for none of the tasks."""

_WRITERS = ("blenderbot", "encoder-decoder", "m2m_100", "marian", "pegasus")
_WITHOUT_HEAD: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "SequenceClassification": _WRITERS,
        "TokenClassification": (*_WRITERS, "bart", "gptj", "mbart", "opt"),
        "QuestionAnswering": (*_WRITERS, "gemma", "phi"),
        "MaskedLM": (*_WRITERS, *DECODERS, "mt5", "t5"),
    }
)
"""The types of `BASES`, `DECODERS` and `ENCODER_DECODERS` that have no such head."""

TRIMMABLE = ("albert", "bert", "camembert", "distilbert", "electra", "mpnet", "roberta", "xlm-roberta")
"""The types whose table of positions is all that depends on their number."""
WITHOUT_CHECKPOINTING = ("albert", "mpnet")
"""The types of `BASES` whose models do not support gradient checkpointing."""

_IN_BASE = ("embeddings_project", "encoder.embedding_hidden_mapping_in", "pooler", "pooler.dense")
_IN_HEADS = (
    "classifier",
    "classifier.dense",
    "classifier.out_proj",
    "cls.predictions.decoder",
    "cls.predictions.transform.dense",
    "generator_lm_head",
    "generator_predictions.dense",
    "lm_head.decoder",
    "lm_head.dense",
    "pooler.dense",
    "pre_classifier",
    "predictions.decoder",
    "predictions.dense",
    "qa_outputs",
    "vocab_projector",
    "vocab_transform",
)


def name_in_task(name: str, model_type: str) -> str:
    """The name that a layer of a checkpoint has in the model of a task, of a type of `BASES`."""
    prefix = f"{BASES[model_type]}."
    return name if name.startswith(prefix) else prefix + name


def name_without_head(name: str, model_type: str) -> str:
    """The name that a layer of `name_in_task` has in a model without a head, of a type of `BASES`."""
    return name.removeprefix(f"{BASES[model_type]}.")


def names_outside(model_type: str, *, has_head: bool) -> tuple[str, ...]:
    """The names that linear layers outside of the blocks may have, whatever the task, of a type of `BASES`."""
    if not has_head:
        return _IN_BASE
    return (*(f"{BASES[model_type]}.{name}" for name in _IN_BASE), *_IN_HEADS)


def problem_with_head(head: str, task: str, model_type: str, *, is_decoder: bool) -> str:
    """Why a model of a known type cannot have the head of a task; "" where it can, or where that is not known here.

    Args:
        head: see `mvprune.data.kinds.base.Kind`.
        task: its name.
        model_type: of the model.
        is_decoder: whether its config says that it reads only earlier tokens.
    """
    if not head and model_type in ENCODER_DECODERS:
        return f"must be no encoder-decoder for the task {task}, got a {model_type}; give an encoder, such as BERT"
    if head == "Seq2SeqLM" and model_type in (*BASES, *DECODERS):
        return f"must be an encoder-decoder, such as BART, T5 or Marian, for the task {task}, got a {model_type}"
    if head == "CausalLM" and (model_type in ENCODER_DECODERS or (model_type in BASES and not is_decoder)):
        return f"must be a decoder, such as GPT-2, OPT, Llama or Qwen, for the task {task}, got a {model_type}"
    if model_type in _WITHOUT_HEAD.get(head, ()):
        rule = f"must be of a type that transformers has an AutoModelFor{head} for, for the task {task}"
        return f"{rule}, got a {model_type}; give an encoder, such as BERT"
    return ""


def problem_with_trimming(model: str) -> str:
    """The error of trim_positions for a model that is none of `TRIMMABLE`.

    Args:
        model: what it is called in the message.
    """
    return f"must be false for a model that is none of {', '.join(TRIMMABLE)}, got true for {model}; submit without it"


def problem_with_checkpointing(model: str) -> str:
    """The error of gradient_checkpointing for a model that does not support it.

    Args:
        model: what it is called in the message.
    """
    return (
        f"must be false for a model that does not support it, got true for {model}; take more accumulation_steps to "
        "save memory"
    )
