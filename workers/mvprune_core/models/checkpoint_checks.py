"""Checks that a checkpoint has every tensor of a model except the task head, in the right shape and finite."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import nn

from mvprune.artifact import Coding, Values
from mvprune.common.blocks import block_list, in_block
from mvprune.sources.model_folder import table_key, table_remedy
from mvprune_core.base.errors import CompressionError, Reason

_EXAMPLES = 3  # of names in a message
_PRETRAINING = re.compile(
    r"(^|\.)(cls|lm_\w+|\w*predictions?\w*|vocab_\w+|\w*_lm_head|\w*lm_loss|sop_classifier)\.|logits_bias$"
)


@dataclass(frozen=True)
class Unlike:
    """A tensor whose shape in the checkpoint differs from its shape in the model."""

    name: str
    stored: Sequence[int]
    described: Sequence[int]

    def __str__(self) -> str:
        return f"{self.name} is {list(self.stored)} in the weights, {list(self.described)} by config.json"


@dataclass(frozen=True)
class NewHead:
    """Tensors of the task head that do not come from the checkpoint: they are initialised from the seed.

    Attributes:
        missing: names of tensors that the checkpoint lacks.
        unlike: tensors that have another shape in the checkpoint, such as a head for more classes.
        unused: names of tensors of a head that only the checkpoint has, other than those of pretraining.
    """

    missing: tuple[str, ...] = ()
    unlike: tuple[Unlike, ...] = ()
    unused: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all of them, sorted."""
        return tuple(sorted({*self.missing, *(tensor.name for tensor in self.unlike)}))

    def notes(self) -> tuple[str, ...]:
        """Sentences that name the new tensors, and a head that is not used; () if there are none."""
        if not self.names:
            return ()
        why = f" ({'; '.join(map(str, self.unlike))})" if self.unlike else ""
        new = f"new in the model, drawn from the seed: {', '.join(self.names)}{why}"
        if not self.unused:
            return (new,)
        return (
            new,
            f"the weights have {_listed(self.unused)}, which the model of transformers does not use: its head, and "
            "with it a dense baseline, is not the one that was given",
        )


def check_body(name: str, model: Any, report: Mapping[str, Any]) -> NewHead:
    """Checks that a checkpoint and a model agree in every tensor outside the task head.

    Args:
        name: the model's name, for the message.
        model: the model that transformers loaded.
        report: the loading report of transformers, from `output_loading_info`.

    Returns:
        The tensors of the task head that are new.

    Raises:
        CompressionError: INVALID_MODEL, a tensor is missing, surplus or of another shape; the message names it, its
            shapes and the remedy.
    """
    unlike = [Unlike(*entry) for entry in sorted(report["mismatched_keys"])]
    for tensor in unlike:
        if _is_body(tensor.name, model):
            _refuse(name, f"{tensor}; {_remedy(tensor)}")
    body = sorted(key for key in report["missing_keys"] if _is_body(key, model) and not _is_pooler(key))
    if body:
        _refuse(
            name,
            f"the weights lack {_listed(body)}, which config.json describes; give the config.json that belongs to "
            "the weights, or all of the weights",
        )
    surplus = sorted(key for key in report["unexpected_keys"] if _is_of_base(key, model) and not _is_pooler(key))
    if surplus:
        _refuse(
            name,
            f"the weights have {_listed(surplus)}, which config.json does not describe{_layers(surplus, model)}; give "
            "the config.json that belongs to the weights, or save the smaller model with save_pretrained of "
            "transformers",
        )
    others = (key for key in report["unexpected_keys"] if not _is_of_base(key, model))
    unused = sorted(key for key in others if not (_is_pooler(key) or _PRETRAINING.search(key)))
    return NewHead(tuple(sorted(report["missing_keys"])), tuple(unlike), tuple(unused))


def check_finite(name: str, model: nn.Module) -> None:
    """Checks that all floating-point values of a model are finite.

    Raises:
        CompressionError: INVALID_MODEL, a tensor holds NaN or infinity; the message names it.
    """
    for key, tensor in model.state_dict().items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            _refuse(
                name,
                f"tensor {key} holds NaN or infinity, as after a training that diverged or in a damaged file; give "
                "another checkpoint",
            )


def check_range(name: str, model: nn.Module, coding: Coding, pruned: Collection[str]) -> None:
    """Checks that the values of a model can be stored as they are to be.

    Args:
        name: the model's name, for the message.
        model: its values are finite.
        coding: how they are to be stored.
        pruned: names of the weights that are to be pruned.

    Raises:
        CompressionError: INVALID_MODEL, a value is too large for fp16; the message names the tensor and the option.
    """
    for key, tensor in model.state_dict().items():
        is_pruned = key in pruned
        if tensor.is_floating_point() and coding.of(key, pruned=is_pruned, shape=tuple(tensor.shape)) is Values.FP16:
            largest = float(tensor.abs().max()) if tensor.numel() else 0.0
            if largest > torch.finfo(torch.float16).max:
                option = "weight_dtype" if is_pruned else "embedding_dtype"
                _refuse(
                    name,
                    f"tensor {key} must be within the range of fp16 (65504), as which it is stored, got {largest:g}; "
                    f"take {option} bf16 or fp32",
                )


def _refuse(name: str, what: str) -> NoReturn:
    raise CompressionError(Reason.INVALID_MODEL, f"the model {name!r} cannot be used: {what}")


def _is_body(name: str, model: Any) -> bool:
    """Whether a tensor is outside the task head: in a part of the model that has blocks or embeddings."""
    part, _, rest = name.partition(".")
    module = getattr(model, part, None)
    if not rest or in_block(name):
        return in_block(name)
    return isinstance(module, nn.Module) and any(
        isinstance(inner, nn.Embedding) or in_block(path) for path, inner in module.named_modules()
    )


def _is_of_base(name: str, model: Any) -> bool:
    """Whether a tensor that only the checkpoint has belongs to the base model. Checkpoints name the parts of a base
    model with or without its prefix."""
    prefix = f"{model.base_model_prefix}."
    base = model.base_model
    parts = {part for part, _ in base.named_children()} | {part for part, _ in base.named_parameters(recurse=False)}
    return (name.startswith(prefix) and base is not model) or name.partition(".")[0] in parts


def _is_pooler(name: str) -> bool:
    """Whether a tensor is the pooler's, which transformers counts to the base model; many checkpoints have none."""
    return "pooler" in name.split(".")


def _remedy(tensor: Unlike) -> str:
    key = table_key(tensor.name)
    if key and list(tensor.stored[1:]) == list(tensor.described[1:]):
        return table_remedy(key, tensor.stored[0], tensor.described[0])
    return "give the config.json that belongs to the weights"


def _listed(names: Collection[str]) -> str:
    few = sorted(names)[:_EXAMPLES]
    more = f" and {len(names) - len(few):,} more" if len(names) > len(few) else ""
    return f"{', '.join(few)}{more}"


def _layers(surplus: Collection[str], model: Any) -> str:
    """A remark about the numbers of blocks, if the surplus tensors are whole blocks; else ""."""
    for name in surplus:
        stem = block_list(name)
        if stem is None:
            continue
        have = _blocks(stem, (key for key, _ in model.named_parameters()))
        found = have | _blocks(stem, surplus)
        if found > have:
            return f" ({stem} has {len(found)} blocks in the weights, {len(have)} by config.json)"
    return ""


def _blocks(stem: str, names: Any) -> set[str]:
    """The numbers of the blocks under a stem, which may have any prefix."""
    found = set()
    for name in names:
        _, separator, after = f".{name}".partition(f".{stem}.")
        number = after.partition(".")[0]
        if separator and number.isdecimal():
            found.add(number)
    return found
