"""The id of the padding token, which config.json and the tokenizer may state differently.

A model may use the id of config.json when it is built (RoBERTa and its relatives count positions from it), when it
computes (a decoder classifies by the last token that is no padding), or not at all. So a trial decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from mvprune.artifact import ArtifactError
from mvprune.artifact.described import description, rebuilt
from mvprune.artifact.positions import longest_input
from mvprune_core.base.errors import CompressionError, Reason
from mvprune_core.models.forward import TOLERANCE, apart, padding_difference, read
from mvprune_core.tasks.batching import Examples, Side, pad_token
from mvprune_core.tasks.probes import probes

_LONGEST = 64  # tokens of an example in the trial


def settle_padding_id(name: str, model: Any, tokenizer: Any) -> tuple[str, ...]:
    """Sets `config.pad_token_id` to the tokenizer's id where that changes no output of the model, so that the model
    that is built from its config again is the same, and reads batches that its tokenizer pads.

    Else the config keeps its own id, if the model reads such batches with it.

    Args:
        name: the model's name, for messages.
        model: as it was loaded; left in evaluation mode.
        tokenizer: its tokenizer.

    Returns:
        Notes, if the two ids differ.

    Raises:
        CompressionError: INVALID_MODEL, neither id gives the outputs that the model has without padding.
    """
    config, ours = model.config, pad_token(tokenizer)
    theirs = getattr(config, "pad_token_id", None)
    if theirs == ours:
        return ()
    longest = min(longest_input(model) or _LONGEST, _LONGEST, tokenizer.model_max_length)
    examples = probes(tokenizer, int(longest))
    expected = _alone(model, examples)
    config.pad_token_id = ours
    differ = f"the padding token has the id {theirs} by config.json and {ours} by the tokenizer"
    if _is_same(_built_again(model), examples, expected):
        return () if theirs is None else (f"{differ}, which was used: the outputs are the same",)
    config.pad_token_id = theirs
    sides: tuple[Side, ...] = ("right", "left")
    if theirs is not None and any(padding_difference(model, examples, side) <= TOLERANCE for side in sides):
        return (f"{differ}; the model counts with its own, which stays, and texts are padded with the tokenizer's",)
    raise CompressionError(
        Reason.INVALID_MODEL,
        f"the model {name!r} cannot be used: pad_token_id must be the same in config.json and in the tokenizer, got "
        f"{theirs} and {ours}, and the outputs are wrong with either; give the tokenizer that the model was trained "
        "with, or one whose padding token is used for nothing else",
    )


def _built_again(model: Any) -> Any | None:
    """The model that its config describes, with the same tensors; None if it describes another one."""
    try:
        return rebuilt(description(model), model)
    except ArtifactError:
        return None


def _is_same(model: Any | None, examples: Examples, expected: list[Mapping[str, Tensor]]) -> bool:
    if model is None:
        return False
    found = _alone(model, examples)
    return all(
        apart(name, some[name], values[name]) <= TOLERANCE
        for some, values in zip(found, expected, strict=True)
        for name in values
    )


def _alone(model: Any, examples: Examples) -> list[Mapping[str, Tensor]]:
    """The `readings` of every example without padding."""
    return [read(model, examples, [number]) for number in range(len(examples))]
