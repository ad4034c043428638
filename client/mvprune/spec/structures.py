"""Which methods can prune which structures, and which models have them."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

from mvprune.spec.parameter import MethodFacts
from mvprune.spec.parameters import METHODS

Kind = Literal["heads", "units", "layers"]
KINDS: Mapping[str, tuple[Kind, ...]] = MappingProxyType(
    {
        "heads": ("heads",),
        "units": ("units",),
        "heads_and_units": ("heads", "units"),
        "blocks_and_units": ("heads", "units"),
        "layers": ("layers",),
    }
)
"""The removed parts, by the words of the option structure."""

_WITH_GATES = ("heads", "units", "heads_and_units")
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


def takes(structure: str, method: MethodFacts) -> bool:
    """Whether a method can select among structures, by a word of the option structure."""
    return method.ranks_weights or (method.is_gated and structure in _WITH_GATES)


def methods_of(structure: str) -> tuple[str, ...]:
    """The methods that can select among structures."""
    return tuple(name for name, method in METHODS.items() if takes(structure, method))


class BlockNames(NamedTuple):
    """Where a block that normalizes after each sum keeps its parts."""

    attention: str
    query: str
    key: str
    value: str
    out: str
    attention_norm: str
    up: str
    activation: str
    down: str
    output_norm: str

    @property
    def matrices(self) -> tuple[str, ...]:
        """Its matrices: those of the attention, the output's last, and those of the feed-forward layer."""
        return (self.query, self.key, self.value, self.out, self.up, self.down)


BERT = BlockNames(
    attention="attention.self",
    query="attention.self.query",
    key="attention.self.key",
    value="attention.self.value",
    out="attention.output.dense",
    attention_norm="attention.output.LayerNorm",
    up="intermediate.dense",
    activation="intermediate.intermediate_act_fn",
    down="output.dense",
    output_norm="output.LayerNorm",
)
BLOCKS: Mapping[str, BlockNames] = {
    **{LAYER_CLASSES[name]: BERT for name in ("bert", "camembert", "electra", "roberta", "xlm-roberta")},
    LAYER_CLASSES["albert"]: BlockNames(
        attention="attention",
        query="attention.query",
        key="attention.key",
        value="attention.value",
        out="attention.dense",
        attention_norm="attention.LayerNorm",
        up="ffn",
        activation="activation",
        down="ffn_output",
        output_norm="full_layer_layer_norm",
    ),
    LAYER_CLASSES["distilbert"]: BlockNames(
        attention="attention",
        query="attention.q_lin",
        key="attention.k_lin",
        value="attention.v_lin",
        out="attention.out_lin",
        attention_norm="sa_layer_norm",
        up="ffn.lin1",
        activation="ffn.activation",
        down="ffn.lin2",
        output_norm="output_layer_norm",
    ),
}
"""The names in the layers of known architectures, by the class of the layer."""
BLOCK_SIZE = 32
"""Rows and columns of a block, as published (Lagunas et al. 2021, https://arxiv.org/abs/2109.04838)."""


def problem_with_structure(structure: str, model: str, *, is_known: bool, shares_layers: bool) -> str:
    """The error of a structure for a model; "" if it may have it.

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
    """The error of a size of blocks that do not fill the part of a head in the matrices; "" if they do.

    Args:
        where: the heads are, in the message.
    """
    if head_size % block_size == 0:
        return ""
    return (
        f"must divide the size of a head, got {block_size} for heads of {head_size} in {where}; take a divisor of "
        f"{head_size}"
    )


LEAST: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(("heads", "units", "heads_and_units", "blocks_and_units"), "one of each in a block")
    | {"layers": "at least one of them"}
)
"""The parts that always stay, by the words of the option structure."""
TOLERANCE = 0.1
"""Relative, of a density that was requested."""


def problem_with_density(structure: str, density: float, reached: float) -> str:
    """The error of a density that structures miss by more than `TOLERANCE`; "" if they reach it.

    Args:
        structure: a word of the option.
        density: the fraction of the weights whose structures are to stay.
        reached: the nearest that they have.
    """
    if abs(reached / density - 1) <= TOLERANCE:
        return ""
    return (
        f"must be a density of whole {structure}, with {LEAST[structure]}, within 10 %, got {density:g}; take "
        f"{reached:.4g}, the nearest, or allow_density_miss"
    )


class Counts(NamedTuple):
    """All heads, or all units, of a model that may be removed.

    Attributes:
        least: how many stay at least: one in each block.
        number: how many there are.
        size: weights of each.
    """

    least: int
    number: int
    size: int


def nearest_density(heads: Counts, units: Counts, density: float) -> float:
    """The density nearest to `density` that heads and units have together, of either of which there may be none."""
    total = heads.number * heads.size + units.number * units.size
    found = []
    for number in range(heads.least, heads.number + 1):
        left = density * total - number * heads.size
        others = min(max(round(left / max(units.size, 1)), units.least), units.number)
        found.append(number * heads.size + others * units.size)
    return min(found, key=lambda weights: abs(weights - density * total)) / total


class Part(NamedTuple):
    """The heads or the units of a block, or a block that is one layer of the encoder.

    Attributes:
        kind: which of the three.
        layers: the linear layers that have them, the output last.
    """

    kind: Kind
    layers: tuple[str, ...]


def parts_of(names: Sequence[str], layer_class: str) -> Iterator[Part]:
    """The heads, the units and the whole of every block, by the names of a model's linear layers.

    Args:
        names: of all linear layers in the blocks.
        layer_class: a key of `BLOCKS`.
    """
    query, *rest = BLOCKS[layer_class].matrices
    every = set(names)
    for name in names:
        block = name.removesuffix(f".{query}")
        layers = (name, *(f"{block}.{one}" for one in rest))
        if block != name and every.issuperset(layers):
            yield from (Part("heads", layers[:4]), Part("units", layers[4:]), Part("layers", layers))


def problem_with_selection(structure: str, parts: Sequence[Part], selected: Container[str]) -> str:
    """The error of include and exclude for structures; "" if they select whole parts, and some.

    Args:
        structure: a word of the option.
        parts: of the model, some of them of the structure's kinds.
        selected: the names of the layers that include and exclude leave.
    """
    kinds = KINDS[structure]
    parts = [part for part in parts if part.kind in kinds]
    for part in parts:
        left_out = [name for name in part.layers if name not in selected]
        if 0 < len(left_out) < len(part.layers):
            what = "a layer" if part.kind == "layers" else f"the {part.kind} of a block"
            return (
                f"must select all matrices of {what} or none, got some without {left_out[0]}; change them so that they "
                f"select {', '.join(part.layers)}"
            )
    if any(part.layers[-1] in selected for part in parts):
        return ""
    return (
        f"must select the matrices of some {' or '.join(kinds)}, got none; change them so that they select layers such "
        f"as {', '.join(parts[0].layers)}"
    )
