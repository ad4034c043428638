"""Knowledge distillation: losses on a teacher's logits, computed once, and on its hidden states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mvprune.spec.rules import value_problems
from mvprune_core.base.group import ALONE, Group
from mvprune_core.base.options import given_fields, refuse
from mvprune_core.base.settings import Precision
from mvprune_core.models.loading import Source
from mvprune_core.tasks import Objective
from mvprune_core.tasks.batching import Examples, Indices, output_mask
from mvprune_core.tasks.chance import SanityFailure
from mvprune_core.tasks.language import VOCABULARY_BATCH
from mvprune_core.tasks.outputs import CLASSES, DistilledOutput
from mvprune_core.tasks.passes import EVALUATION_BATCH, forward_passes
from mvprune_core.training.precision import autocast

_WEIGHTS = ("temperature", "alpha", "hidden_states")
_DECODER_STATES = "decoder_hidden_states"
STARTS = ".starts"  # after the name of an output: the first row of each example
MOST_STORED = 4 << 30
"""Bytes that are stored of a teacher's probabilities over a vocabulary: those of some 11 million tokens."""


@dataclass(frozen=True)
class Teacher:
    """Teacher model and distillation loss weights.

    The loss becomes (1 − alpha) · L + alpha · T² · KL(softmax(t / T) ‖ softmax(s / T)) for teacher logits t and student
    logits s (Hinton, Vinyals and Dean 2015, https://arxiv.org/abs/1503.02531, section 2); for regression, which has
    no distribution, (1 − alpha) · L + alpha · (t − s)². Over a vocabulary, the KL divergence is that of the teacher's
    most probable tokens and of all others as one (see `VocabularyLogits`).

    Args:
        model: a model fine-tuned for the same task: a folder, a name under MVPRUNE_MODELS or a hub id. None: the dense
            baseline, a dense model trained with the same settings.
        revision: revision of a hub model.
        temperature: T.
        alpha: weight of the distillation loss, in [0, 1]; it is 1 where examples have no labels.
        hidden_states: weight, at least 0, of a further loss that matches the student's hidden states with the teacher's
            in every layer (as in TinyBERT, Jiao et al. 2020, https://arxiv.org/abs/1909.10351, equation 8, but relative
            to their size; see `HiddenStates`). Above 0, the teacher must have the student's architecture, size and
            tokenizer, and every step runs a forward pass of the teacher. None: 1 if the teacher is the dense baseline,
            this run's own or a `SharedBaseline`, and the run takes at least five epochs, else 0.
        writes_targets: the teacher writes the training targets, by the settings of its generation and without sampling,
            and the student learns these in place of the given ones (sequence-level distillation, Kim and Rush 2016,
            https://aclanthology.org/D16-1139, section 3.2). For summarization, translation, and causal-lm with prompts
            and answers. With alpha 0 that is all that is learned of the teacher, which may then have other tokens.

    Raises:
        ValueError: an option out of range.
    """

    model: str | Path | Source | None = None
    revision: str | None = None
    temperature: float = 2.0
    alpha: float = 0.9
    hidden_states: float | None = None
    writes_targets: bool = False

    @property
    def learns_outputs(self) -> bool:
        """Whether the student learns what the teacher predicts, and not only what it writes."""
        return self.alpha > 0 or not self.writes_targets

    def __post_init__(self) -> None:
        refuse(value_problems({name: value for name, value in given_fields(self).items() if name in _WEIGHTS}))


@dataclass(frozen=True)
class HiddenStates:
    """The loss that matches the student's hidden states with the teacher's.

    The loss of an example is weight · mean over layers of Σ‖s − t‖² / Σ‖t‖², summed over its tokens, for hidden states
    s of the student and t of the teacher.

    Attributes:
        model: the teacher, in evaluation mode on the student's device, with the student's number of layers and width.
        weight: `Teacher.hidden_states`.
        precision: precision of the teacher's forward pass.
        per_token: see `Examples.per_token`.
    """

    model: nn.Module
    weight: float
    precision: Precision
    per_token: bool = False

    def loss(self, output: Any, inputs: Mapping[str, Tensor]) -> Tensor:
        """The mean over the examples, or over the tokens if tokens have labels.

        Args:
            output: the student's output, with hidden states.
            inputs: what `output` was computed from.
        """
        answered = output_mask(inputs)
        masks = {_DECODER_STATES: answered}
        with torch.no_grad(), autocast(answered.device, self.precision):
            target = _states(self.model(**inputs, output_hidden_states=True))
        errors = [
            _relative_error(states, expected, masks.get(name, inputs["attention_mask"]))
            for (name, states), (_, expected) in zip(_states(output), target, strict=True)
        ]
        error = torch.stack(errors).mean(0)
        counts = answered.sum(1) if self.per_token else torch.ones_like(error)
        loss: Tensor = self.weight * (error * counts).sum() / counts.sum()
        return loss


def shape_in_words(config: Any) -> str:
    """Architecture, number of layers and width of a model, as text. Hidden states can be matched if they are equal."""
    layers, width = (getattr(config, name, "?") for name in ("num_hidden_layers", "hidden_size"))
    return f"a {config.model_type} of {layers} layers of {width}"


def compare_states(model: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """The loss of a model as its own teacher. Raises an error if its hidden states cannot be matched."""
    return HiddenStates(model, 1.0, "fp32").loss(model(**batch, output_hidden_states=True), batch)


def _states(output: Any) -> list[tuple[str, Tensor]]:
    """The outputs of all layers, with the name of their part of the model's output; without the embeddings, which are
    not pruned."""
    names = "hidden_states", "encoder_hidden_states", _DECODER_STATES
    found = [(name, states) for name in names for states in (output.get(name) or ())[1:]]
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
class DistillationLoss:
    """The training loss with a teacher, whose logits over the training examples are stored in half precision.

    Attributes:
        logits: by the names of `DistilledOutput.stored`: the rows of all examples, concatenated. An example has one
            row of logits over classes, or one for each of its texts or tokens; no row if the teacher did not read it.
        starts: by output name: the first row of each example, shape (examples + 1,).
        outputs: the model's outputs that are learned from; () where it is only what the teacher wrote.
        temperature, alpha: see `Teacher`.
        hidden: the loss on hidden states, if they are matched.
    """

    logits: Mapping[str, Tensor]
    starts: Mapping[str, Tensor]
    outputs: tuple[DistilledOutput, ...]
    temperature: float
    alpha: float
    hidden: HiddenStates | None = None

    @classmethod
    def from_logits(
        cls,
        found: Mapping[str, Tensor],
        outputs: tuple[DistilledOutput, ...],
        teacher: Teacher,
        hidden: HiddenStates | None = None,
    ) -> DistillationLoss:
        """The loss for the logits that `compute_teacher_logits` returned."""
        starts = {name.removesuffix(STARTS): value for name, value in found.items() if name.endswith(STARTS)}
        logits = {name: value for name, value in found.items() if not name.endswith(STARTS)}
        return cls(logits, starts, outputs, teacher.temperature, teacher.alpha, hidden)

    def loss(
        self,
        on_labels: Tensor,
        output: Any,
        inputs: Mapping[str, Tensor],
        indices: Indices,
        share: float | Tensor = 1.0,
    ) -> Tensor:
        """The loss to train with, in place of that of the labels.

        Args:
            on_labels: the loss on labels, weighted by this batch's share of the batch of the optimizer step.
            output: the student's output, with hidden states if they are matched.
            inputs: what `output` was computed from.
            indices: indices of the batch's examples, shape (batch,).
            share: weight of this batch in the batch of the optimizer step, for the teacher's terms.
        """
        loss = (1 - self.alpha) * on_labels
        if self.outputs:
            attended = output_mask(inputs)
            terms = [self._logits_loss(each, output[each.name].float(), attended, indices) for each in self.outputs]
            loss = loss + self.alpha * torch.stack(terms).mean() * share
        return loss if self.hidden is None else loss + self.hidden.loss(output, inputs) * share

    def _logits_loss(self, which: DistilledOutput, student: Tensor, attended: Tensor, indices: Indices) -> Tensor:
        starts = self.starts[which.name]
        teacher = {}
        for name in (which.name, which.name + CLASSES):
            if name in self.logits:
                rows = [self.logits[name][starts[i] : starts[i + 1]] for i in indices]
                padded = nn.utils.rnn.pad_sequence(rows, batch_first=True)
                teacher[name] = padded.to(student.device, non_blocking=True)
        if not which.per_token:
            one = {name: values.flatten(0, 1) for name, values in teacher.items()}  # a row for each text of an example
            return which.compared(student, one, attended.bool(), self.temperature)
        longest = teacher[which.name].shape[1]  # the batch may be padded further
        return which.compared(student[:, :longest], teacher, attended[:, :longest].bool(), self.temperature)


def check_stored(tokens: int, outputs: Sequence[DistilledOutput], remedy: str) -> None:
    """Checks that what is stored of a teacher's logits over so many tokens has a bounded size.

    A teacher in each step would need no store, but makes every step take a third longer, and more memory on the
    device; so a run says before it begins that it asks for too much.

    Raises:
        ValueError: it has not.
    """
    size = sum(each.bytes_per_token for each in outputs) * tokens
    if size > MOST_STORED:
        raise ValueError(
            f"teacher must be none for a run over so many tokens: at most {MOST_STORED >> 30} GiB of its probabilities "
            f"are stored, and {tokens:,} tokens have {size / 2**30:.1f}; take {remedy}"
        )


def compute_teacher_logits(
    model: nn.Module,
    examples: Examples,
    which: Indices,
    outputs: Sequence[DistilledOutput],
    device: torch.device,
    precision: Precision,
    group: Group = ALONE,
) -> dict[str, Tensor]:
    """A model's logits over the examples with the indices `which`. The ranks of a group share the forward passes.

    Returns:
        `logits` and `starts` of `DistillationLoss` for every output: "NAME" and "NAME.starts".
    """
    rows: dict[str, list[Tensor]] = {}
    lengths = examples.output_lengths

    def read(indices: Indices, output: Any) -> dict[str, list[Tensor]]:
        return {
            name: [
                # A copy, so that the rows do not keep the padded batch alive.
                values[row, : lengths[index]].clone()
                if each.per_token
                else values[row * examples.parts : (row + 1) * examples.parts]
                for row, index in enumerate(indices)
            ]
            for each in outputs
            for name, values in ((name, values.cpu()) for name, values in each.stored(output[each.name]).items())
        }

    # Logits over a vocabulary are large.
    size = VOCABULARY_BATCH if any(each.bytes_per_token for each in outputs) else EVALUATION_BATCH
    with autocast(device, precision):
        for indices, found in forward_passes(model, examples, device, read, batch_size=size, only=which, group=group):
            for name, parts in found.items():
                of_all = rows.setdefault(name, [parts[0][:0]] * len(examples))
                for index, some in zip(indices, parts, strict=True):
                    of_all[index] = some
    starts = {each.name + STARTS: torch.tensor([0, *map(len, rows[each.name])]).cumsum(0) for each in outputs}
    return {name: torch.cat(parts) for name, parts in rows.items()} | starts


def reorder_classes(
    found: dict[str, Tensor], outputs: Sequence[DistilledOutput], teacher: Indices | None, student: Indices | None
) -> dict[str, Tensor]:
    """`found` with the columns of the class logits in the student's order of classes.

    Args:
        found: what `compute_teacher_logits` returned.
        outputs: the outputs that it was called with.
        teacher: the teacher's index of each class of the data, shape (classes,); None if the data has no classes.
        student: the student's index of each class.
    """
    if teacher is None or student is None:
        return found
    ordered = {each.name: torch.empty_like(found[each.name]) for each in outputs if each.over_classes}
    for name, logits in ordered.items():
        logits[:, torch.from_numpy(student)] = found[name][:, torch.from_numpy(teacher)]
    return found | ordered


def check_teacher(
    found: Mapping[str, Tensor], objective: Objective, examples: Examples, names: Sequence[str]
) -> SanityFailure | None:
    """Whether the teacher's logits are far from the labels of the training examples.

    Args:
        found: what `compute_teacher_logits` returned, in the student's order of classes.
        objective: the student's.
        examples: the student's training examples.
        names: names of the student's classes.
    """
    starts = found[objective.outputs[0].name + STARTS].numpy()
    return objective.check_teacher(found, examples, np.flatnonzero(np.diff(starts)), names)
