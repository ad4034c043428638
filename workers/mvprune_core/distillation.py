"""Knowledge distillation: a teacher's logits, computed once, and its hidden states, beside the labels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from mvprune_core.batching import IGNORED, Examples, Indices
from mvprune_core.models import Source
from mvprune_core.options import check_positive
from mvprune_core.precision import autocast, suited
from mvprune_core.settings import Precision
from mvprune_core.tasks.base import forward_passes
from mvprune_core.tasks.chance import Doubt, class_doubt, value_doubt

CLASS_LOGITS = "logits"
_STARTS = ".starts"


@dataclass(frozen=True)
class Teacher:
    """Who teaches, and how much it counts.

    The loss becomes (1 − alpha) · L + alpha · T² · KL(softmax(t / T) ‖ softmax(s / T)) for teacher logits t and student
    logits s (Hinton, Vinyals and Dean 2015, https://arxiv.org/abs/1503.02531, section 2); for regression, where there
    is no distribution, (1 − alpha) · L + alpha · (t − s)².

    Args:
        model: fine-tuned for the same task: a folder, a name under MVPRUNE_MODELS or a hub id. None: the dense model
            that the same settings give, which is trained first.
        revision: of a model of the hub.
        temperature: T.
        alpha: the teacher's share of the loss, in [0, 1].
        hidden_states: at least 0: how much the student's hidden states count beside that, which are to be the
            teacher's in every layer (as in TinyBERT, Jiao et al. 2020, https://arxiv.org/abs/1909.10351, equation 8,
            but relative to their size; see `HiddenStates`). Above 0 it takes a teacher of the student's architecture,
            size and tokenizer, and a forward pass of it in every step. None: 1 in runs of five passes over the data or
            more where the dense baseline teaches, else 0.

    Raises:
        ValueError: an option out of its range.
    """

    model: str | Path | Source | None = None
    revision: str | None = None
    temperature: float = 2.0
    alpha: float = 0.9
    hidden_states: float | None = None

    def __post_init__(self) -> None:
        check_positive("teacher.temperature", self.temperature)
        if not 0 <= self.alpha <= 1:
            raise ValueError(f"teacher.alpha: {self.alpha} given; a fraction in [0, 1] is allowed")
        if self.hidden_states is not None and not 0 <= self.hidden_states < math.inf:
            raise ValueError(f"teacher.hidden_states: {self.hidden_states} given; a number of at least 0 is allowed")


@dataclass(frozen=True)
class HiddenStates:
    """A teacher whose hidden states the student's are to match.

    The loss of an example is weight · mean over layers of Σ‖s − t‖² / Σ‖t‖², summed over its tokens, for hidden states
    s of the student and t of the teacher.

    Attributes:
        model: the teacher, in evaluation mode on the student's device; of the student's layers and widths.
        weight: of `Teacher.hidden_states`.
        precision: of the teacher's forward pass.
    """

    model: nn.Module
    weight: float
    precision: Precision

    def loss(self, output: Any, batch: Mapping[str, Tensor]) -> Tensor:
        """The mean over examples; over tokens, where these have labels.

        Args:
            output: the student's, with its hidden states.
            batch: what it was computed from.
        """
        attended = batch["attention_mask"]
        with torch.no_grad(), autocast(attended.device, self.precision):
            taught = _states(self.model(**batch, output_hidden_states=True))
        errors = [_relative_error(*pair, attended) for pair in zip(_states(output), taught, strict=True)]
        error = torch.stack(errors).mean(0)
        per_token = "labels" in batch and batch["labels"].dim() == 2
        counts = attended.sum(1) if per_token else torch.ones_like(error)
        loss: Tensor = self.weight * (error * counts).sum() / counts.sum()
        return loss


def shape_in_words(config: Any) -> str:
    """Architecture, layers and width of a model: the same, where hidden states can be matched."""
    layers, width = (getattr(config, name, "?") for name in ("num_hidden_layers", "hidden_size"))
    return f"a {config.model_type} of {layers} layers of {width}"


def compare_states(model: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """The loss of a model as its own teacher: it raises what stands in the way of matching hidden states."""
    return HiddenStates(model, 1.0, "fp32").loss(model(**batch, output_hidden_states=True), batch)


def _states(output: Any) -> list[Tensor]:
    """What the layers give, but not what they are given: embeddings are not pruned."""
    names = "hidden_states", "encoder_hidden_states", "decoder_hidden_states"
    found = [states for name in names for states in (output.get(name) or ())[1:]]
    if not found:
        raise ValueError("it gives no hidden states")
    return found


def _relative_error(student: Tensor, teacher: Tensor, attended: Tensor) -> Tensor:
    """Shape (examples,), of states of shape (examples, tokens, width)."""
    tokens = attended.bool().unsqueeze(-1)
    target = teacher.float().masked_fill(~tokens, 0)
    error = student.float().masked_fill(~tokens, 0) - target
    return error.square().sum((1, 2)) / target.square().sum((1, 2))


@dataclass(frozen=True)
class Lessons:
    """A teacher's logits over the training examples, in half precision.

    Attributes:
        logits: by the name of the model's output: the rows of all examples one after the other. An example has one row
            of logits over classes, or as many as it has tokens; none, where it was not taught.
        starts: by the same name: where each example's rows begin, shape (examples + 1,).
        temperature, alpha: of the `Teacher`.
        hidden: its hidden states, where they are to be matched.
    """

    logits: Mapping[str, Tensor]
    starts: Mapping[str, Tensor]
    temperature: float
    alpha: float
    hidden: HiddenStates | None = None

    def loss(self, output: Any, batch: Mapping[str, Tensor], indices: Indices, share: float | Tensor = 1.0) -> Tensor:
        """The loss to train with, in place of `output.loss`.

        Args:
            output: the student's, with its loss, and with its hidden states where these are to be matched.
            batch: what it was computed from.
            indices: of the batch's examples, shape (batch,).
            share: what part of a larger batch this one is, for the teacher's part; `output.loss` is weighted already.
        """
        taught = [self._taught(name, output[name].float(), batch["attention_mask"], indices) for name in self.logits]
        loss: Tensor = (1 - self.alpha) * output.loss + self.alpha * torch.stack(taught).mean() * share
        return loss if self.hidden is None else loss + self.hidden.loss(output, batch) * share

    def _taught(self, name: str, student: Tensor, attended: Tensor, indices: Indices) -> Tensor:
        rows = [self.logits[name][self.starts[name][i] : self.starts[name][i + 1]] for i in indices]
        teacher = nn.utils.rnn.pad_sequence(rows, batch_first=True).to(student.device, non_blocking=True).float()
        longest = teacher.shape[1]  # the batch may be padded further
        tokens = attended[:, :longest].bool()
        if name != CLASS_LOGITS:  # one distribution over the tokens of each example
            hidden = torch.finfo(torch.float32).min
            return self._divergence(
                student[:, :longest].masked_fill(~tokens, hidden), teacher.masked_fill(~tokens, hidden)
            ).mean()
        if student.dim() == 2:
            if student.shape[1] == 1:
                return functional.mse_loss(student, teacher[:, 0])
            return self._divergence(student, teacher[:, 0]).mean()
        return (self._divergence(student[:, :longest], teacher) * tokens).sum() / tokens.sum()

    def _divergence(self, student: Tensor, teacher: Tensor) -> Tensor:
        """T² · KL(softmax(teacher / T) ‖ softmax(student / T)) over the last dimension."""
        divergence = functional.kl_div(
            functional.log_softmax(student / self.temperature, dim=-1),
            functional.log_softmax(teacher / self.temperature, dim=-1),
            reduction="none",
            log_target=True,
        )
        summed: Tensor = divergence.sum(-1)
        return summed * self.temperature**2


def teach(
    model: nn.Module,
    examples: Examples,
    which: Indices,
    outputs: Sequence[str],
    device: torch.device,
    precision: Precision,
) -> dict[str, Tensor]:
    """A model's logits over the examples of these indices: `name` and `name.starts` of `Lessons`, for every output."""
    rows: dict[str, list[Tensor]] = {name: [torch.empty(0)] * len(examples) for name in outputs}
    lengths = examples.lengths
    with autocast(device, precision):
        for indices, output in forward_passes(model, suited(examples, precision), device, only=which):
            for name in outputs:
                value = output[name].shape[-1] == 1  # of a regression, of any size
                logits = output[name].to(torch.float32 if value else torch.float16).cpu()
                per_token = name != CLASS_LOGITS or logits.dim() == 3
                for row, index in enumerate(indices):
                    # A copy: the padded batch is not to be kept alive by its rows.
                    rows[name][index] = logits[row, : lengths[index]].clone() if per_token else logits[row : row + 1]
    found = {}
    for name, parts in rows.items():
        found[name] = torch.cat(parts)
        found[name + _STARTS] = torch.tensor([0, *map(len, parts)]).cumsum(0)
    return found


def reorder_classes(found: dict[str, Tensor], teacher: Indices | None, student: Indices | None) -> dict[str, Tensor]:
    """The same with the columns of the class logits in the student's order.

    Args:
        found: of `teach`.
        teacher: the teacher's number of each of the data's classes, shape (classes,); None where there are no classes.
        student: the student's.
    """
    if teacher is None or student is None:
        return found
    logits = found[CLASS_LOGITS]
    ordered = torch.empty_like(logits)
    ordered[:, torch.from_numpy(student)] = logits[:, torch.from_numpy(teacher)]
    return found | {CLASS_LOGITS: ordered}


def teacher_doubt(found: Mapping[str, Tensor], examples: Examples, names: Sequence[str]) -> Doubt | None:
    """Whether what `teach` returned is far from the labels of the training examples.

    Args:
        found: of `teach`, with the student's order of classes.
        examples: the student's.
        names: of the student's classes.
    """
    if CLASS_LOGITS not in found:
        return None
    logits, starts = found[CLASS_LOGITS].float().numpy(), found[CLASS_LOGITS + _STARTS].numpy()
    taught = np.flatnonzero(np.diff(starts))
    if "labels" in examples.inputs:
        true = np.concatenate([examples.inputs["labels"][int(index)] for index in taught])
    else:
        true = examples.targets["labels"].numpy()[taught]
    if logits.shape[1] == 1:
        return value_doubt(logits[:, 0], true)
    labelled = true != IGNORED
    return class_doubt(logits.argmax(axis=1)[labelled], true[labelled], names)


def lessons(found: Mapping[str, Tensor], teacher: Teacher, hidden: HiddenStates | None = None) -> Lessons:
    """What `teach` returned, to be learned from."""
    starts = {name.removesuffix(_STARTS): value for name, value in found.items() if name.endswith(_STARTS)}
    return Lessons({name: found[name] for name in starts}, starts, teacher.temperature, teacher.alpha, hidden)
