"""Word embeddings in int8 with fewer steps for rare tokens: what a file of at most so many bytes can afford.

An error in the embedding of a token is made as often as the token is read. Let a row of root mean square m, whose
largest magnitude is a, have steps of a / n: its relative error is e = a / (√12 · n · m) if errors are uniform
(Widrow and Kollár 2008, Quantization Noise, chapter 1). A step half as large costs a bit for each number, and makes e²
a quarter. So Σ count · e² over the tokens is least, for a number of bits, where all rows add as much to it:
n = k · (a / m) · √count. One is added to the counts: a token that the data does not have may be read later.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from mvprune.artifact import Values
from mvprune.artifact.values import STEPS, rounded
from mvprune_core.base.state import tensors_of
from mvprune_core.tasks.batching import DECODER_IDS, Examples

Array = npt.NDArray[Any]

GRADES = 20
"""The coarsest. Most rows have the fewest steps then."""

_FINEST, _RATIO = 8.0, 2.0**-0.25  # k of grade 1, and of a grade to that of the one before


@dataclass(frozen=True)
class Words:
    """The table of word embeddings, and how often its rows are read.

    Attributes:
        names: of the table in the state dict; more than one if it is tied.
        counts: how often the training data has each token, (rows,).
    """

    names: Collection[str]
    counts: Array

    @classmethod
    def unread(cls, model: Any) -> Words:
        """Those of a transformers model, without counts: each row has as few steps as it can have."""
        table = model.get_input_embeddings().weight
        names = [name for name, value in model.state_dict(keep_vars=True).items() if value is table]
        return cls(names, np.zeros(len(table), np.int64))

    def read_by(self, examples: Examples) -> Words:
        """The same with the counts of examples."""
        tokens = np.concatenate([*examples.inputs["input_ids"], *examples.decoder.get(DECODER_IDS, ())])
        return replace(self, counts=np.bincount(tokens, minlength=len(self.counts)))

    def steps(self, table: Array, grade: int, ladder: Sequence[int] = STEPS) -> npt.NDArray[np.int64]:
        """The largest int8 number of each row, (rows,).

        Args:
            table: (rows, columns).
            grade: from 1, the finest, to `GRADES`.
            ladder: the numbers of steps that a row may have, ascending.
        """
        largest = np.maximum(table.max(1), -table.min(1))
        mean = np.sqrt(np.square(table, dtype=np.float32).mean(1))
        peaks = np.divide(largest, mean, out=np.zeros_like(mean), where=mean > 0)
        wanted = _FINEST * _RATIO ** (grade - 1) * peaks * np.sqrt(self.counts + 1)
        found: npt.NDArray[np.int64] = np.array(ladder)[np.searchsorted(ladder[:-1], wanted)]
        return found

    def rounded(self, tensors: Mapping[str, Array], grade: int) -> dict[str, Array]:
        """Tensors with the table, if it is among them, rounded to its steps; grade 0: as it is.

        Args:
            tensors: of `state_arrays`; tied ones are one array, and stay so.
            grade: see `steps`.
        """
        table = next((tensors[name] for name in self.names if name in tensors), None) if grade else None
        if table is None:
            return dict(tensors)
        coarse = rounded(table, Values.INT8, steps=self.steps(table, grade))
        return {name: coarse if array is table else array for name, array in tensors.items()}

    def round_in(self, model: nn.Module, grade: int) -> None:
        """Rounds the table of a model, in place; grade 0 changes nothing."""
        name, table = next((name, value) for name, value in tensors_of(model).items() if name in self.names)
        if grade:
            coarse = self.rounded({name: table.cpu().numpy()}, grade)
            table.copy_(torch.from_numpy(coarse[name]))
