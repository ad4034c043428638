"""Models of the Hugging Face hub whose sizes are known without a look at the hub."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mvprune.sources.sentence_transformers import SentenceEmbedding


@dataclass(frozen=True)
class Architecture:
    """The facts of config.json and of the shapes of the weights about a model, for checks of options.

    Attributes:
        model_types: of the model, and of the models that it consists of.
        head_size: rows of an attention head, 0 where it is not known.
        shapes: (rows, columns) of the matrices in the blocks, by the names that their layers have in the model of a
            task; empty where these, or which side the rows are, are not known.
        is_decoder: whether config.json says that the model reads only earlier tokens.
        vectors: how it makes vectors of texts, where files of sentence-transformers say it; or what is wrong with them.
    """

    model_types: tuple[str, ...]
    head_size: int
    shapes: Mapping[str, tuple[int, int]]
    is_decoder: bool = False
    vectors: SentenceEmbedding | str | None = None


@dataclass(frozen=True)
class ModelSize:
    """Parameters of a model folder, as far as they do not depend on the task.

    Attributes:
        base_parameters: of the base model, without pooler and task head: embeddings, blocks, norms.
        encoder_parameters: in numbered blocks (`layer.0.`, `h.11.`): weights, biases and norms.
        prunable_weights: the encoder's matrices without embeddings; 84,934,656 for BERT-base.
    """

    base_parameters: int
    encoder_parameters: int
    prunable_weights: int


@dataclass(frozen=True)
class InspectedModel(ModelSize):
    """The size of a model folder that was looked into, and its architecture."""

    architecture: Architecture


# Counted from the published configurations.
_BERT_BASE = ModelSize(108_891_648, 85_054_464, 84_934_656)
_BERT_BASE_CASED = ModelSize(107_719_680, 85_054_464, 84_934_656)
_BERT_LARGE = ModelSize(334_092_288, 302_309_376, 301_989_888)
_ROBERTA_BASE = ModelSize(124_055_040, 85_054_464, 84_934_656)
_DISTILBERT = ModelSize(66_362_880, 42_527_232, 42_467_328)
KNOWN_SIZES: Mapping[str, ModelSize] = MappingProxyType(
    {
        "bert-base-uncased": _BERT_BASE,
        "google-bert/bert-base-uncased": _BERT_BASE,
        "bert-base-cased": _BERT_BASE_CASED,
        "google-bert/bert-base-cased": _BERT_BASE_CASED,
        "bert-large-uncased": _BERT_LARGE,
        "google-bert/bert-large-uncased": _BERT_LARGE,
        "roberta-base": _ROBERTA_BASE,
        "FacebookAI/roberta-base": _ROBERTA_BASE,
        "distilbert-base-uncased": _DISTILBERT,
        "distilbert/distilbert-base-uncased": _DISTILBERT,
    }
)
