"""Batches: padding, masking, order."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mvprune_core.tasks.batching import (
    IGNORED,
    Examples,
    TokenMasking,
    evaluation_batches,
    rounded_length,
    trained_on,
    training_batches,
)

CPU = torch.device("cpu")
MASKING = TokenMasking(probability=0.15, mask_token=99, vocabulary=50)


def ragged(*rows: list[int]) -> list[np.ndarray]:
    return [np.array(row, dtype=np.int32) for row in rows]


def test_inputs_are_padded_labels_ignored_notes_kept_back() -> None:
    inputs = {
        "input_ids": ragged([5, 6, 7], [8]),
        "token_type_ids": ragged([0, 1, 1], [1]),
        "labels": ragged([1, 2, 3], [4]),
    }
    targets = {"start_positions": torch.tensor([2, 0])}
    batch = Examples(inputs, targets, 9, {"question": ragged([0], [1])}).batch(np.array([1, 0]), CPU)
    assert {name: value.tolist() for name, value in batch.items()} == {
        "input_ids": [[8, 9, 9], [5, 6, 7]],
        "token_type_ids": [[1, 0, 0], [0, 1, 1]],
        "labels": [[4, IGNORED, IGNORED], [1, 2, 3]],
        "attention_mask": [[1, 0, 0], [1, 1, 1]],
        "start_positions": [0, 2],
    }
    assert {value.dtype for value in batch.values()} == {torch.int64}


@given(st.integers(1, 10_000))
def test_lengths_are_rounded_up_by_an_eighth_at_most(tokens: int) -> None:
    rounded = rounded_length(tokens)
    assert tokens <= rounded <= tokens * 9 / 8
    assert rounded_length(rounded) == rounded


def test_rounded_lengths_are_eight_an_octave() -> None:
    assert {rounded_length(tokens) for tokens in range(129, 257)} == set(range(144, 257, 16))
    assert [rounded_length(tokens) for tokens in range(1, 20)] == [*range(1, 17), 18, 18, 20]


def test_few_lengths_pad_further_but_never_beyond_the_longest_example() -> None:
    examples = Examples({"input_ids": ragged([1] * 17, [2] * 35)}, {}, 9, few_lengths=True)
    short = examples.batch(np.array([0]), CPU)
    assert short["input_ids"].tolist() == [[1] * 17 + [9]]
    assert short["attention_mask"].tolist() == [[1] * 17 + [0]]
    assert examples.batch(np.array([1]), CPU)["input_ids"].shape == (1, 35)


def test_masking_draws_from_the_generator_alone() -> None:
    rows = [np.arange(5, 45, dtype=np.int32)] * 3
    examples = Examples({"input_ids": rows, "labels": rows}, {}, 0, masking=MASKING)
    one, same, other = (examples.batch(np.arange(3), CPU, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert torch.equal(one["input_ids"], same["input_ids"])
    assert torch.equal(one["labels"], same["labels"])
    assert not torch.equal(one["labels"], other["labels"])
    assert not torch.equal(one["labels"][0], one["labels"][1])
    assert np.array_equal(rows[0], np.arange(5, 45)), "the examples stay as they are"
    with pytest.raises(ValueError, match="random must be given"):
        examples.batch(np.arange(3), CPU)


def test_fifteen_percent_are_chosen_of_which_80_hidden_10_replaced_10_kept() -> None:
    ids = np.full((400, 500), 60)  # no random token is 60
    hidden, labels = MASKING.hide(ids, ids, np.random.default_rng(0))
    chosen = labels != IGNORED
    assert chosen.mean() == pytest.approx(0.15, abs=0.005)
    assert (labels[chosen] == 60).all()
    assert (hidden[~chosen] == 60).all()
    assert (hidden[chosen] == 99).mean() == pytest.approx(0.8, abs=0.01)
    assert (hidden[chosen] < 50).mean() == pytest.approx(0.1, abs=0.01)
    assert (hidden[chosen] == 60).mean() == pytest.approx(0.1, abs=0.01)


@given(allowed=st.lists(st.booleans(), min_size=1, max_size=12), seed=st.integers(0, 2**32 - 1))
def test_some_token_is_always_chosen_and_never_one_that_may_not_be(allowed: list[bool], seed: int) -> None:
    ids = np.arange(len(allowed), dtype=np.int32)
    hidden, labels = MASKING.hide(ids, np.where(allowed, ids, IGNORED), np.random.default_rng(seed))
    chosen = labels != IGNORED
    assert chosen.any() == any(allowed)
    assert not (chosen & ~np.array(allowed)).any()
    assert (hidden == ids)[~chosen].all()
    assert hidden.dtype == ids.dtype


def test_every_row_with_tokens_has_a_label() -> None:
    ids = np.arange(300).reshape(100, 3)
    labels = np.where(ids < 6, IGNORED, ids)
    _, targets = MASKING.hide(ids, labels, np.random.default_rng(0))
    assert (targets != IGNORED).any(axis=1).tolist() == [False] * 2 + [True] * 98
    assert (targets != IGNORED).mean() < 0.45


@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=60), size=st.integers(1, 9), seed=st.integers(0, 99))
def test_every_example_comes_once_an_epoch(lengths: list[int], size: int, seed: int) -> None:
    array = np.array(lengths)
    every = np.concatenate(evaluation_batches(array, size))
    assert sorted(every) == list(range(len(lengths)))
    assert (np.diff(array[every]) <= 0).all()
    batches = training_batches(array, size, seed)
    for _ in range(2):
        epoch = [next(batches) for _ in range(-(-len(lengths) // size))]
        assert sorted(np.concatenate(epoch)) == list(range(len(lengths)))
        assert max(map(len, epoch)) <= size


def test_batches_cover_every_example_once_an_epoch_and_are_of_similar_length() -> None:
    lengths = np.random.default_rng(0).integers(3, 90, size=1003)
    batches = training_batches(lengths, 16, seed=5)
    epochs = [[next(batches) for _ in range(63)] for _ in range(2)]
    for epoch in epochs:
        assert sorted(np.concatenate(epoch).tolist()) == list(range(1003))
        assert sum(lengths[batch].max() * len(batch) for batch in epoch) < 1.1 * lengths.sum()
    assert not np.array_equal(np.concatenate(epochs[0]), np.concatenate(epochs[1]))
    again = training_batches(lengths, 16, seed=5)
    assert all(np.array_equal(next(again), batch) for batch in epochs[0] + epochs[1])
    assert sorted(np.concatenate(evaluation_batches(lengths, 64)).tolist()) == list(range(1003))


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 3), st.integers(1, 12))
def test_what_a_run_trains_on(examples: int, batch_size: int, seed: int, steps: int) -> None:
    lengths = np.arange(examples) % 5 + 1
    batches = itertools.islice(training_batches(lengths, batch_size, seed), steps)
    assert trained_on(lengths, batch_size, seed, steps).tolist() == sorted({i for batch in batches for i in batch})
