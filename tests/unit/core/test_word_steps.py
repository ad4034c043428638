"""Steps of word embeddings by how often their tokens are read."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForMaskedLM

from mvprune.artifact import Coding, Values, round_values
from mvprune.artifact.model import state_arrays
from mvprune.artifact.values import STEPS, rounded
from mvprune_core.storing.word_steps import GRADES, Words
from mvprune_core.tasks.batching import Examples

NAMES = ("bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight")


def by_hand(row: list[float], count: int, grade: int) -> int:
    """The fewest steps that are at least k · largest / root mean square · √(count + 1)."""
    mean = math.sqrt(sum(value * value for value in row) / len(row))
    if not mean:
        return STEPS[0]
    wanted = 8 * 2 ** (-(grade - 1) / 4) * max(map(abs, row)) / mean * math.sqrt(count + 1)
    return next((steps for steps in STEPS if steps >= wanted), 127)


def table_of(rows: int = 300, columns: int = 64) -> np.ndarray:
    random = np.random.default_rng(0)
    table = (random.normal(0, 1, (rows, columns)) * np.exp(random.normal(0, 1, (rows, 1)))).astype(np.float32)
    table[5] = 0
    return table


def counts_of(rows: int = 300) -> np.ndarray:
    return np.array([int(5000 / (1 + index)) * (index % 3 > 0) for index in range(rows)])


@pytest.mark.parametrize("grade", [1, 6, GRADES])
def test_the_formula(grade: int) -> None:
    table, counts = table_of(), counts_of()
    found = Words(["words"], counts).steps(table, grade).tolist()
    assert found == [by_hand(row, count, grade) for row, count in zip(table.tolist(), counts.tolist(), strict=True)]
    assert len(set(found)) > 3


def test_a_ladder_that_goes_further_down_changes_only_the_rows_with_the_fewest_steps() -> None:
    table, words = table_of(), Words(["words"], counts_of())
    found, lower = words.steps(table, GRADES), words.steps(table, GRADES, [1, 2, 3, 5, *STEPS])
    assert (lower[found > STEPS[0]] == found[found > STEPS[0]]).all()
    assert min(lower) < STEPS[0]


def test_each_grade_is_coarser_than_the_one_before() -> None:
    table, words = table_of(), Words(["words"], counts_of())
    steps = [words.steps(table, grade) for grade in range(1, GRADES + 1)]
    for finer, coarser in itertools.pairwise(steps):
        assert (coarser <= finer).all()
        assert (coarser < finer).any()


def test_the_tokens_that_are_read_lose_less_than_with_equal_steps_of_as_many_bits() -> None:
    table, counts = table_of(3000), counts_of(3000)
    graded = Words(["words"], counts).steps(table, 12)
    bits = np.log2(2 * graded + 1).mean()
    equal = np.full(len(table), next(steps for steps in STEPS if np.log2(2 * steps + 1) >= bits))

    def error(steps: np.ndarray) -> float:
        """Of the tokens as they are read, relative to each."""
        change = np.square(rounded(table, Values.INT8, steps=steps) - table).mean(1)
        sizes = np.square(table).mean(1)
        return float((counts * np.divide(change, sizes, out=np.zeros_like(change), where=sizes > 0)).sum())

    assert error(graded) < 0.5 * error(equal)


def test_a_tied_table_is_rounded_once_and_stays_so() -> None:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    model = BertForMaskedLM(BertConfig(vocab_size=200, **sizes))
    ids = [np.arange(200, dtype=np.int32), np.array([3, 3, 3], np.int32)]
    words = Words.unread(model).read_by(Examples({"input_ids": ids}, {}, 0))
    assert set(words.names) == set(NAMES)
    assert (words.counts[:5].tolist(), words.counts.sum()) == ([1, 1, 1, 4, 1], 203)

    arrays = state_arrays(model)
    coarse = words.rounded(arrays, 9)
    assert coarse[NAMES[0]] is coarse[NAMES[1]]
    assert coarse[NAMES[0]].tolist() != arrays[NAMES[0]].tolist()
    assert all(coarse[name] is arrays[name] for name in arrays if name not in NAMES)
    assert words.rounded({}, 9) == {}
    assert words.rounded(arrays, 0) == arrays

    before = {name: value.clone() for name, value in model.state_dict().items()}
    words.round_in(model, 0)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    words.round_in(model, 9)
    assert torch.equal(model.state_dict()[NAMES[1]], torch.from_numpy(coarse[NAMES[0]]))
    round_values(model, (), Coding(Values.INT8, Values.INT8))
    assert torch.equal(model.state_dict()[NAMES[0]], torch.from_numpy(coarse[NAMES[0]]))
