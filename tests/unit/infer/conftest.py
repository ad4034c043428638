"""Tiny artifacts of every kind that answers, with a tokenizer like BERT's."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tests.unit.runtime.decoders import twin
from tests.unit.serving.conftest import WORDS, tiny_result
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from mvprune import infer, load
from mvprune.artifact import round_values, save_model
from mvprune.runtime import optimize
from mvprune.sources.sentence_transformers import KEY, SentenceEmbedding

NLI = ("contradiction", "entailment", "neutral")
# By task: the class of transformers, labels, problem_type and what else is in the config.
HEADS: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "sst2": ("BertForSequenceClassification", ("negative", "positive"), {}),
    "mnli": ("BertForSequenceClassification", NLI, {}),
    "text-classification": ("RobertaForSequenceClassification", ("good", "bad", "ugly"), {}),
    "stsb": ("BertForSequenceClassification", ("LABEL_0",), {"problem_type": "regression"}),
    "text-regression": ("BertForSequenceClassification", ("LABEL_0",), {"problem_type": "multi_label_classification"}),
    "reranking": ("BertForSequenceClassification", ("LABEL_0",), {}),
    "multi-label-classification": (
        "BertForSequenceClassification",
        ("one", "two", "three"),
        {"problem_type": "multi_label_classification", "label_thresholds": [0.3, 0.5, 0.7]},
    ),
    "squad": ("BertForQuestionAnswering", ("LABEL_0", "LABEL_1"), {}),
    "squad_v2": ("RobertaForQuestionAnswering", ("LABEL_0", "LABEL_1"), {}),
    "ner": ("BertForTokenClassification", ("O", "B-LOC", "I-LOC"), {}),
    "embedding": ("BertModel", (), {}),
    "reranking of grades": ("BertForSequenceClassification", ("0", "1", "2"), {}),
    "masked-lm": ("BertForMaskedLM", ("LABEL_0", "LABEL_1"), {}),
}
SIZES = {
    "vocab_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
}


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What the sparse runtime in torch measures goes into a folder of the tests'."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def tokenizer() -> transformers.PreTrainedTokenizerFast:
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
    made = Tokenizer(models.WordPiece({word: index for index, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Callable[[str], Path]:
    """The folder of an artifact for a task."""
    root = tmp_path_factory.mktemp("artifacts")
    return cache(lambda task: write_artifact(root / task, task, tokenizer))


def write_artifact(folder: Path, task: str, tokenizer: Any) -> Path:
    """A model of two layers, 10 % of whose weights are kept."""
    name, labels, more = HEADS[task]
    torch.manual_seed(0)
    kind: Any = transformers.RobertaConfig if name.startswith("Roberta") else transformers.BertConfig
    special = {"type_vocab_size": 1, "pad_token_id": 0} if name.startswith("Roberta") else {}
    names = (
        {"id2label": dict(enumerate(labels)), "label2id": {one: i for i, one in enumerate(labels)}} if labels else {}
    )
    config = kind(**SIZES, **special, **names, **more)
    if task == "embedding":
        how = SentenceEmbedding("mean", normalize=True, prompts={"query": "good "}, max_seq_length=32)
        setattr(config, KEY, how.content)
    model: Any = getattr(transformers, name)(config).eval()
    pruned = [name for name, value in model.named_parameters() if ".layer." in name and value.ndim == 2]
    with torch.no_grad():
        for one in pruned:
            model.get_parameter(one).mul_((torch.rand_like(model.get_parameter(one)) < 0.1).float())
    round_values(model, pruned)
    name = task.partition(" of ")[0]
    save_model(folder, model, tokenizer, pruned=pruned, result=tiny_result(name, model, pruned))
    return folder


def with_int8(folder: Path) -> Any:
    """The model in torch with int8 activations, of an artifact that `mvprune.infer` opens with them."""
    with infer.load(folder) as opened:
        assert opened.activations == "int8"
    return optimize(twin(load(folder)), backend="kernel", activations="int8")
