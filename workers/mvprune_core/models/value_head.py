"""The last layer of a model for values: it gives standardised values in training, and those of the data elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from mvprune_core.models.forward import TOLERANCE, apart, read
from mvprune_core.tasks.batching import Examples
from mvprune_core.tasks.label_scale import LabelScale

NO_VALUE_HEAD = "the model's value comes from no linear layer with a bias, which could hold their mean and deviation"
"""Why there is no `ValueHead`, for notes."""

_PROBE = LabelScale(mean=1.0, deviation=2.0)


@dataclass(frozen=True)
class ValueHead:
    """The layer y = W h + b that a model's value comes from.

    With the mean m and the standard deviation s of the labels, it gives (y − m) / s with the weights W / s and the bias
    (b − m) / s. Both forms are plain models; only the layer's numbers differ.

    Attributes:
        name: of the layer.
        scale: of the labels.
    """

    name: str
    scale: LabelScale

    @property
    def note(self) -> str:
        """What happens to the labels, for the notes of the result."""
        return (
            f"training takes labels and the teacher's values in standard deviations ({self.scale.deviation:.6g}) from "
            f"the mean of the training labels ({self.scale.mean:.6g}), and so are its losses; metrics, outputs and the "
            f"stored model have the scale of the data, by {self.name}"
        )

    @contextmanager
    def trained(self, model: nn.Module, new: Collection[str]) -> Iterator[None]:
        """A context in which a model gives standardised values, and is trained.

        Args:
            model: changed in place; afterwards it has the scale of the data.
            new: names of tensors with random values: a new layer gives standardised values as it is.
        """
        if f"{self.name}.weight" not in new:
            self._standardise(model)
        yield
        self._restore(model)

    @contextmanager
    def standardised(self, model: nn.Module) -> Iterator[None]:
        """A context in which a model for the scale of the data gives standardised values. Afterwards its bits are as
        before."""
        with self._unchanged(model):
            self._standardise(model)
            yield

    @contextmanager
    def in_data_scale(self, model: nn.Module) -> Iterator[None]:
        """The inverse of `standardised`."""
        with self._unchanged(model):
            self._restore(model)
            yield

    @contextmanager
    def _unchanged(self, model: nn.Module) -> Iterator[None]:
        tensors = self._tensors(model)
        before = [tensor.clone() for tensor in tensors]
        try:
            yield
        finally:
            for tensor, value in zip(tensors, before, strict=True):
                tensor.copy_(value)

    def _standardise(self, model: nn.Module) -> None:
        weight, bias = self._tensors(model)
        weight.copy_(weight.double() / self.scale.deviation)
        bias.copy_((bias.double() - self.scale.mean) / self.scale.deviation)

    def _restore(self, model: nn.Module) -> None:
        weight, bias = self._tensors(model)
        weight.copy_(weight.double() * self.scale.deviation)
        bias.copy_(bias.double() * self.scale.deviation + self.scale.mean)

    def _tensors(self, model: nn.Module) -> tuple[Tensor, Tensor]:
        parameters = model.get_submodule(self.name)._parameters  # a masked layer's attribute is W', a copy
        weight, bias = parameters["weight"], parameters["bias"]
        if weight is None or bias is None:
            raise TypeError(f"{self.name} has a weight and a bias")
        return weight.detach(), bias.detach()


def find_value_head(model: Any, scale: LabelScale, examples: Examples) -> ValueHead | None:
    """The layer of a model with one output that its value comes from; None where no `nn.Linear` with a bias gives it,
    as in GPT-2.

    Args:
        model: on the CPU; left in evaluation mode, as it was.
        scale: of the labels.
        examples: of the task; the outputs for one of them tell whether the layer is the right one.
    """
    body = f"{model.base_model_prefix}."
    names = [
        name
        for name, layer in model.named_modules()
        if isinstance(layer, nn.Linear) and layer.out_features == 1 and layer.bias is not None
        if not name.startswith(body)
    ]
    if not names:
        return None
    probe = ValueHead(names[-1], _PROBE)
    before = read(model, examples, [0])["logits"]
    with probe.in_data_scale(model):
        after = read(model, examples, [0])["logits"]
    expected = before * _PROBE.deviation + _PROBE.mean
    return ValueHead(names[-1], scale) if apart("logits", after, expected) <= TOLERANCE else None
