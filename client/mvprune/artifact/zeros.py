"""Training a model that was loaded from an artifact, so that the zeros of its pruned weights stay."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from mvprune.artifact.header import SPARSE_LAYOUTS, Header

_PRUNED, _WARNED = "_mvprune_pruned", "_mvprune_warned"  # attributes of a model
_KEPT = "_mvprune_zeros"  # an attribute of its parameters


class FilledZerosWarning(UserWarning):
    """A model from an artifact is trained, and its zeros are not kept."""


def pruned_names(header: Header) -> list[str]:
    """Names of the pruned weights in the model of a weights file."""
    return [name for name, packed in header.packed.items() if packed.layout in SPARSE_LAYOUTS]


def remember_pruned(model: nn.Module, names: Iterable[str]) -> None:
    """Notes in a model which of its weights are pruned, so that `keep_zeros` finds them."""
    setattr(model, _PRUNED, tuple(names))


def keep_zeros(model: nn.Module) -> None:
    """Keeps the zeros of a model's pruned weights while it is trained, by any optimizer of torch.

    Their gradients are set to zero, so that momentum, clipping and the like see nothing of them. After each step of an
    optimizer the weights themselves are set to zero again, because some optimizers, such as Muon, do not change every
    weight by its own gradient. What `save_pretrained` or a `Trainer` writes then has the same zeros.

    The zeros belong to the model's parameters. They are not kept where a copy is trained (`copy.deepcopy`, FSDP) or
    another weight is added (a merged LoRA adapter).

    Args:
        model: what `mvprune.load`, or `from_pretrained` after `import mvprune.hf`, returned.

    Raises:
        ValueError: the model is from no artifact.
    """
    names = getattr(model, _PRUNED, None)
    if names is None:
        raise ValueError(
            "model must be loaded from an artifact, by mvprune.load or by from_pretrained after import mvprune.hf, got "
            f"another {type(model).__name__}"
        )
    _zero_after_steps()
    for name in names:
        parameter = model.get_parameter(name)
        if not hasattr(parameter, _KEPT):
            setattr(parameter, _KEPT, zeros := _Zeros(parameter))
            if parameter.requires_grad:
                parameter.register_hook(zeros.without)  # type: ignore[no-untyped-call]


def warn_of_filled_zeros(model: nn.Module) -> None:
    """Makes a model warn once, at its first forward pass in training mode, unless its zeros are kept then."""
    if getattr(model, _PRUNED, ()):
        model.register_forward_pre_hook(_warn)


class _Zeros:
    """The places of a parameter that are zero."""

    def __init__(self, parameter: Tensor) -> None:
        self._places = parameter.detach() == 0

    def without(self, values: Tensor) -> Tensor:
        """The values, zero at these places."""
        return values.masked_fill(self._on(values.device), 0)

    def write(self, values: Tensor) -> None:
        """Sets the values at these places to zero."""
        values.detach().masked_fill_(self._on(values.device), 0)

    def _on(self, device: torch.device) -> Tensor:
        if self._places.device != device:  # the model was moved
            self._places = self._places.to(device)
        return self._places


@functools.cache
def _zero_after_steps() -> None:
    register_optimizer_step_post_hook(_zero_again)


def _zero_again(optimizer: Any, _args: Any, _kwargs: Any) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if (zeros := getattr(parameter, _KEPT, None)) is not None:
                zeros.write(parameter)


def _warn(model: nn.Module, _inputs: Any) -> None:
    if not (model.training and torch.is_grad_enabled()) or hasattr(model, _WARNED):
        return
    trained = [one for name in getattr(model, _PRUNED, ()) if (one := model.get_parameter(name)).requires_grad]
    if any(not hasattr(parameter, _KEPT) for parameter in trained):
        warnings.warn(
            "training fills the zeros of this model's pruned weights: call mvprune.hf.keep_zeros(model) before it, or "
            "load it by mvprune.load(..., keep_zeros=True)",
            FilledZerosWarning,
            stacklevel=2,
        )
    setattr(model, _WARNED, True)
