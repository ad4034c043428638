"""Which methods can prune which structures, and which models have them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from mvprune.common.patterns import METHODS as RANKING

GATED = ("l0",)
"""The methods that can have one gate for each head and unit."""

METHODS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "heads": (*RANKING, *GATED),
        "units": (*RANKING, *GATED),
        "heads_and_units": (*RANKING, *GATED),
        "blocks_and_units": RANKING,
        "layers": RANKING,
    }
)
"""The methods that can select among the structures, by the words of the option structure."""

LAYER_CLASSES: Mapping[str, str] = MappingProxyType(
    {
        "albert": "AlbertLayer",
        "bert": "BertLayer",
        "camembert": "CamembertLayer",
        "distilbert": "TransformerBlock",
        "electra": "ElectraLayer",
        "roberta": "RobertaLayer",
        "xlm-roberta": "XLMRobertaLayer",
    }
)
"""The types of models whose heads and units are known, and the class of their layers in transformers."""
SHARING = ("albert",)
"""The types of models whose layers share their weights."""
BLOCK_SIZE = 32
"""Rows and columns of a block, as published (Lagunas et al. 2021, https://arxiv.org/abs/2109.04838)."""


def problem_with_structure(structure: str, model: str, *, is_known: bool, shares_layers: bool) -> str:
    """What is wrong with a structure for a model; "" if it may have it.

    Args:
        structure: a word of the option.
        model: what it is called in the message.
        is_known: whether it has layers of `LAYER_CLASSES`.
        shares_layers: whether these are one and the same.
    """
    if structure == "layers" and shares_layers:
        return (
            f"must be other than layers for a model whose layers share their weights, got layers for a {model}; take "
            "heads_and_units"
        )
    if is_known:
        return ""
    names = "layers" if structure == "layers" else "heads and units"
    return (
        f"must be unset for a model whose {names} are not known, got {structure} for a {model}; known are those of "
        f"the model types {', '.join(LAYER_CLASSES)}"
    )


def problem_with_block_size(block_size: int, head_size: int, where: str) -> str:
    """What is wrong with a size of blocks that do not fill the part of a head in the matrices; "" if they do.

    Args:
        where: the heads are, in the message.
    """
    if head_size % block_size == 0:
        return ""
    return (
        f"must divide the size of a head, got {block_size} for heads of {head_size} in {where}; take a divisor of "
        f"{head_size}"
    )
