"""Forward passes over examples in batches, which the ranks of a group share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from mvprune_core.base.group import Group
from mvprune_core.base.interruption import check_stop
from mvprune_core.tasks.batching import Examples, Indices, evaluation_batches

_T = TypeVar("_T")

EVALUATION_BATCH = 64


@contextmanager
def counted(model: nn.Module, report: Callable[[int], None]) -> Iterator[None]:
    """A context in which `report` receives the number of examples that the model has read, after each forward pass; of
    an encoder-decoder that writes, its encoder, which reads each example once."""
    writer: Any = model
    writes_from_input = writer.config.is_encoder_decoder and writer.can_generate()
    reader: nn.Module = writer.get_encoder() if writes_from_input else model
    done = 0

    def count(_: Any, __: Any, inputs: Mapping[str, Any], ___: Any) -> None:
        nonlocal done
        done += len(inputs["input_ids"])
        report(done)

    hook = reader.register_forward_hook(count, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


def forward_passes(
    model: nn.Module,
    examples: Examples,
    device: torch.device,
    read: Callable[[Indices, Any], _T],
    *,
    batch_size: int = EVALUATION_BATCH,
    only: Indices | None = None,
    group: Group,
) -> Iterator[tuple[Indices, _T]]:
    """Forward passes over all examples, or `only` these, without gradients. The ranks of a group share the batches.

    Args:
        model: the model, left in evaluation mode.
        examples: the examples.
        device: where the model is.
        read: takes from the model's output for the examples with some indices what is needed, on the CPU.
        batch_size, only, group: see `in_batches`.

    Yields:
        Indices of a batch, shape (batch,), and what `read` returned for it.
    """

    unlabelled = replace(examples, targets={})  # a model would compute its own loss on them, or not know them

    def passed(indices: Indices) -> _T:
        with torch.inference_mode():
            output = model(**unlabelled.batch(indices, device))
        return read(indices, output)

    model.eval()
    return in_batches(examples, passed, batch_size=batch_size, only=only, group=group)


def in_batches(
    examples: Examples,
    passed: Callable[[Indices], _T],
    *,
    batch_size: int,
    only: Indices | None = None,
    group: Group,
) -> Iterator[tuple[Indices, _T]]:
    """What is computed of batches of all examples, or `only` these, the longest first. The ranks of a group share them.

    Args:
        examples: the examples.
        passed: computes it for the examples with some indices, shape (batch,).
        batch_size: examples of a batch.
        only: indices of examples.
        group: the ranks; each receives what all of them computed, in the order that one process would have.

    Yields:
        Indices of a batch, shape (batch,), and what `passed` returned for it.
    """
    some = np.arange(len(examples)) if only is None else only
    batches = [some[batch] for batch in evaluation_batches(examples.lengths[some], batch_size)]
    if group.size == 1:
        for indices in batches:
            check_stop()
            yield indices, passed(indices)
        return
    ours: list[_T] = []
    for number in range(0, len(batches), group.size):
        check_stop(group)
        ours += [passed(indices) for indices in batches[number : number + group.size][group.rank : group.rank + 1]]
    found = group.gather(ours)
    for number, indices in enumerate(batches):
        yield indices, found[number % group.size][number // group.size]
