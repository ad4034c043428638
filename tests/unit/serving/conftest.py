"""Tiny artifacts of every kind that answers, and real servers."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
import transformers
from tests.waiting import PATIENCE
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from mvprune.artifact import Accounting, DatasetSource, ModelSource, ResultInfo, round_values, save_model
from mvprune.serving.app import application
from mvprune.serving.requests import Limits
from mvprune.serving.server import http_server, listen
from mvprune_core.prediction import Predictor

LIMITS = Limits(max_bytes=4096, max_batch=3, max_characters=200, max_waiting=4)
WORDS = ("the", "capital", "of", "france", "is", "paris", "what", "good", "bad", "film", ".", "?")
HEADS = {
    "sst2": ("BertForSequenceClassification", ("negative", "positive")),
    "mrpc": ("BertForSequenceClassification", ("not_equivalent", "equivalent")),
    "text-classification": ("BertForSequenceClassification", ("good", "bad", "ugly")),
    "stsb": ("BertForSequenceClassification", ("LABEL_0",)),
    "squad": ("BertForQuestionAnswering", ("LABEL_0", "LABEL_1")),
    "squad_v2": ("BertForQuestionAnswering", ("LABEL_0", "LABEL_1")),
    "ner": ("BertForTokenClassification", ("O", "B-LOC", "I-LOC")),
    "masked-lm": ("BertForMaskedLM", ("LABEL_0", "LABEL_1")),
}


@pytest.fixture(scope="session", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What the sparse runtime measures goes into a folder of the tests'."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def tokenizer() -> transformers.PreTrainedTokenizerFast:
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
    made = Tokenizer(models.WordLevel({word: index for index, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Callable[[str], Path]:
    """The folder of an artifact for a task."""
    root = tmp_path_factory.mktemp("artifacts")
    return cache(lambda task: write_artifact(root / task, task, tokenizer))


def write_artifact(folder: Path, task: str, tokenizer: Any) -> Path:
    """A BERT of two layers, 10 % of whose weights are kept."""
    name, labels = HEADS[task]
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.3,
        id2label=dict(enumerate(labels)),
        label2id={label: index for index, label in enumerate(labels)},
        problem_type="regression" if len(labels) == 1 else None,
    )
    model: Any = getattr(transformers, name)(config).eval()
    pruned = [name for name, value in model.named_parameters() if ".layer." in name and value.ndim == 2]
    with torch.no_grad():
        for name in pruned:
            model.get_parameter(name).mul_((torch.rand_like(model.get_parameter(name)) < 0.1).float())
    round_values(model, pruned)
    save_model(folder, model, tokenizer, pruned=pruned, result=tiny_result(task, model, pruned))
    return folder


def tiny_result(task: str, model: Any, pruned: Sequence[str]) -> ResultInfo:
    """What a job says of such a model."""
    kept = sum(int(model.get_parameter(name).count_nonzero()) for name in pruned)
    sizes = Accounting(0.1, 0.1, 10**6, kept, 10**6, kept, 10**6, kept, 4 * 10**6)
    digest = hashlib.sha256(task.encode()).hexdigest()
    return ResultInfo(
        spec={"task": task, "training": {"max_length": 32}},
        model=ModelSource("tiny", "", digest),
        dataset=DatasetSource(task, digest, 8, 8),
        metrics={"eval/accuracy": 0.75},
        primary_metric="accuracy",
        accounting=sizes,
        layers=(),
        versions={"mvprune": "0.1.0"},
        seed=0,
    )


@pytest.fixture(scope="session")
def predictor(artifact: Callable[[str], Path]) -> Callable[[str], Predictor]:
    """The predictor of an artifact for a task."""
    return cache(lambda task: Predictor.open(artifact(task)))


@pytest.fixture
def endpoint(predictor: Callable[[str], Predictor]) -> Iterator[Callable[..., httpx.Client]]:
    """Starts real servers in threads of this process, for a task or a predictor; gives a client of each."""
    with contextlib.ExitStack() as running:

        def start(served: str | Any, limits: Limits = LIMITS, **options: Any) -> httpx.Client:
            model = predictor(served) if isinstance(served, str) else served
            listening = running.enter_context(listen("127.0.0.1", 0))
            options = {"writer": getattr(model, "writer", None)} | options
            model = getattr(model, "predictor", model)
            server = http_server(application(model, {"task": "it", "model": "tiny"}, limits, **options), limits)
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
            thread.start()

            def stop() -> None:
                server.should_exit = True
                thread.join()

            running.callback(stop)
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            return running.enter_context(httpx.Client(base_url=url, timeout=PATIENCE))

        yield start
