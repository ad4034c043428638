"""A tiny model, a tokenizer and a task that can be learned in seconds."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.core.structure_runs import albert, bert, distilbert
from tests.unit.core.training_runs import SHORT
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import nn
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from mvprune.data.loading import ClassificationData, Split
from mvprune.data.tasks import get_task
from mvprune_core import compress
from mvprune_core.models.loading import Loaded, find_model, load_model
from mvprune_core.tasks import Objective, objective_for

GOOD, BAD = ("good", "great", "fine"), ("bad", "awful", "poor")
NEUTRAL = tuple(f"word{number}" for number in range(20))


@pytest.fixture(scope="session")
def bert_config() -> Callable[..., BertConfig]:
    """Configuration of a tiny BERT; dropout off, for quick learning."""

    def make(**changes: Any) -> BertConfig:
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
        sizes["max_position_embeddings"] = 64
        dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        return BertConfig(vocab_size=40, initializer_range=0.2, **(sizes | dropout | changes))

    return make


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *GOOD, *BAD, *NEUTRAL]
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


@pytest.fixture
def save(tmp_path: Path, tokenizer: PreTrainedTokenizerFast) -> Callable[..., Path]:
    """Writes a model and the tokenizer into a folder."""

    def write(model: Any, name: str = "model") -> Path:
        model.save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        return tmp_path / name

    return write


@dataclass(frozen=True)
class Drawn:
    """A BERT without a task head, written once for all tests, and the state of torch's generator after it was drawn."""

    folder: Path
    state: torch.Tensor
    tokenizer: PreTrainedTokenizerFast

    def copy(self, folder: Path) -> Path:
        """As if it was drawn for a test: with the tokenizer as `save` writes it now, which tests leave changed."""
        torch.set_rng_state(self.state)
        shutil.copytree(self.folder, folder)
        self.tokenizer.save_pretrained(folder)
        return folder


@pytest.fixture(scope="session")
def drawn(
    tmp_path_factory: pytest.TempPathFactory,
    tokenizer: PreTrainedTokenizerFast,
    bert_config: Callable[..., BertConfig],
) -> Callable[[int], Drawn]:
    """A model of so many layers."""

    @cache
    def draw(layers: int) -> Drawn:
        folder = tmp_path_factory.mktemp("drawn") / "model"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            BertModel(bert_config(num_hidden_layers=layers)).save_pretrained(folder)
            state = torch.get_rng_state()
        tokenizer.save_pretrained(folder)
        return Drawn(folder, state, tokenizer)

    return draw


@pytest.fixture(scope="session")
def shared_model(drawn: Callable[[int], Drawn]) -> Path:
    """The folder of `model_folder` for fixtures of whole files: none may change it."""
    return drawn(2).folder


@pytest.fixture
def model_folder(drawn: Callable[[int], Drawn], tmp_path: Path) -> Path:
    """A BERT without a task head."""
    return drawn(2).copy(tmp_path / "model")


@pytest.fixture
def one_layer(drawn: Callable[[int], Drawn], tmp_path: Path) -> Path:
    """A BERT of one layer, which learns in fewer and faster steps, in place of `model_folder`."""
    return drawn(1).copy(tmp_path / "model")


@pytest.fixture
def four_heads(save: Callable[..., Path], bert_config: Callable[..., BertConfig]) -> Path:
    """A BERT without a task head, with four heads of 8 in each block."""
    torch.manual_seed(1)
    return save(BertModel(bert_config(num_attention_heads=4)))


@pytest.fixture(params=[bert, distilbert, albert], ids=lambda make: make.__name__)
def known_model(request: pytest.FixtureRequest, bert_config: Callable[..., BertConfig]) -> nn.Module:
    """A model of each architecture that names its heads and units differently."""
    torch.manual_seed(1)
    made: nn.Module = request.param(bert_config)
    return made


def sentences(count: int, seed: int) -> Split:
    """Texts whose one word of judgement decides the label."""
    source = random.Random(seed)
    texts, labels = [], []
    for _ in range(count):
        label = source.randrange(2)
        words = source.choices(NEUTRAL, k=source.randint(3, 9))
        words.insert(source.randrange(len(words)), source.choice((BAD, GOOD)[label]))
        texts.append(" ".join(words))
        labels.append(label)
    return Split(texts, None, labels)


@pytest.fixture(scope="session")
def data() -> ClassificationData:
    return ClassificationData(get_task("sst2"), ("negative", "positive"), sentences(400, 1), sentences(200, 2))


@pytest.fixture
def objective(data: ClassificationData) -> Objective:
    return objective_for(data)


@pytest.fixture
def loaded(model_folder: Path, objective: Objective) -> Loaded:
    return load_model(find_model(model_folder, None), objective, seed=0)


@pytest.fixture
def make(model_folder: Path, data: ClassificationData, tmp_path: Path) -> Callable[..., tuple[Any, Path]]:
    """A short compression with some options, and its artifact."""

    def run(**options: Any) -> tuple[Any, Path]:
        usual: dict[str, Any] = {"density": 0.2, "method": "magnitude", "training": SHORT, "dense_baseline": False}
        result = compress(model_folder, data, **usual | options)
        result.save(tmp_path / "out")
        return result, tmp_path / "out"

    return run
