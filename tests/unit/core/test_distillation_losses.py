"""The losses that a student learns a teacher's outputs by."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from mvprune_core.tasks.outputs import ClassLogits, DistilledOutput, PositionLogits, TokenLogits, Values
from mvprune_core.training.distillation import DistillationLoss


class Output(dict[str, torch.Tensor]):
    """A model's output: read by name or by attribute."""

    __getattr__ = dict.__getitem__


def loss_of(
    output: DistilledOutput, rows: list[torch.Tensor], alpha: float, temperature: float = 2.0
) -> DistillationLoss:
    starts = torch.tensor([0, *map(len, rows)]).cumsum(0)
    return DistillationLoss({output.name: torch.cat(rows).half()}, {output.name: starts}, (output,), temperature, alpha)


def divergence(teacher: torch.Tensor, student: torch.Tensor, temperature: float) -> torch.Tensor:
    """T² · KL of one distribution, written out."""
    p, q = (functional.softmax(logits / temperature, dim=-1) for logits in (teacher, student))
    return temperature**2 * (p * (p.log() - q.log())).sum()


def padded(attended: list[list[int]], further: int) -> torch.Tensor:
    """An attention mask whose batch is longer than its longest example."""
    return functional.pad(torch.tensor(attended), (0, further))


def test_loss_over_classes() -> None:
    torch.manual_seed(0)
    teacher, student = torch.randn(5, 3).half().float(), torch.randn(2, 3)
    output = Output(logits=student)
    batch = {"attention_mask": torch.ones(2, 4, dtype=torch.long)}
    found = loss_of(ClassLogits(), list(teacher.split(1)), alpha=0.25).loss(
        torch.tensor(0.7), output, batch, np.array([3, 1])
    )
    expected = torch.stack([divergence(teacher[3], student[0], 2), divergence(teacher[1], student[1], 2)]).mean()
    torch.testing.assert_close(found, 0.75 * torch.tensor(0.7) + 0.25 * expected)


def test_loss_over_values_is_the_squared_difference() -> None:
    output = Output(logits=torch.tensor([[1.5], [0.0]]))
    batch = {"attention_mask": torch.ones(2, 4, dtype=torch.long)}
    found = loss_of(Values(), [torch.tensor([[1.0]]), torch.tensor([[2.0]])], alpha=0.5).loss(
        torch.tensor(1.0), output, batch, np.array([0, 1])
    )
    assert float(found) == pytest.approx(0.5 * 1.0 + 0.5 * (0.25 + 4.0) / 2)


@pytest.mark.parametrize("further", [0, 3])
def test_loss_over_spans_leaves_padding_out(further: int) -> None:
    torch.manual_seed(0)
    rows = [torch.randn(n).half().float() for n in (4, 2)]
    student = torch.randn(2, 4 + further)
    batch = {"attention_mask": padded([[1, 1, 1, 1], [1, 1, 0, 0]], further)}
    output, zero = Output(start_logits=student), torch.tensor(0.0)
    found = loss_of(PositionLogits("start_logits"), rows, alpha=1.0).loss(zero, output, batch, np.array([0, 1]))
    expected = (divergence(rows[0], student[0, :4], 2) + divergence(rows[1], student[1, :2], 2)) / 2
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("further", [0, 3])
def test_loss_over_tokens_is_the_mean_over_real_ones(further: int) -> None:
    torch.manual_seed(0)
    rows = [torch.randn(n, 3).half().float() for n in (3, 1)]
    student = torch.randn(2, 3 + further, 3)
    batch = {"attention_mask": padded([[1, 1, 1], [1, 0, 0]], further)}
    found = loss_of(TokenLogits(), rows, alpha=1.0).loss(
        torch.tensor(0.0), Output(logits=student), batch, np.array([0, 1])
    )
    each = [divergence(rows[0][i], student[0, i], 2) for i in range(3)] + [divergence(rows[1][0], student[1, 0], 2)]
    torch.testing.assert_close(found, torch.stack(each).mean())
