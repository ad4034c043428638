"""Several processes that train one model: the same result as one process, up to rounding, and the same on every rank.

The processes are real ones, connected by gloo. The same ones compute all runs of `ranks`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.core import ranks
from tests.unit.core.decoders import gpt2, of_decoders
from tests.unit.core.encoder_decoders import encoder_decoder
from torch import nn
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from mvprune_core import METHODS, CompressionError, Reason, Training
from mvprune_core.base import group
from mvprune_core.base.group import ALONE, Alone, check_group

pytestmark = pytest.mark.timeout(900)  # the first test waits for all runs, which take half a minute
NAMES = (
    "methods",
    "whole",
    "resumed",
    "hand_over",
    "handed_over",
    "dropout",
    "tasks",
    "sparse",
    "refused",
    "poisoned",
    "written",
)


@pytest.fixture(scope="module")
def folder(
    tmp_path_factory: pytest.TempPathFactory,
    tokenizer: PreTrainedTokenizerFast,
    bert_config: Callable[..., BertConfig],
) -> Path:
    """A folder with models, one of which has a mask token and two write, and a checkpoint of one process."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("ranks")
    torch.manual_seed(1)
    masked = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer,
        **{f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep")},
        mask_token="word19",
    )
    for name, words in (("model", tokenizer), ("masked", masked)):
        BertModel(bert_config()).save_pretrained(folder / name)
        words.save_pretrained(folder / name)
    gpt2().save_pretrained(folder / "decoder")
    of_decoders(tokenizer).save_pretrained(folder / "decoder")
    encoder_decoder("bart").save_pretrained(folder / "encoder-decoder")
    tokenizer.save_pretrained(folder / "encoder-decoder")
    ranks.hand_over(ALONE, folder)
    return folder


@pytest.fixture(scope="module")
def returned(folder: Path) -> dict[int, dict[str, list[Any]]]:
    """What the ranks return, by their number."""
    return ranks.start(folder, {2: NAMES, 3: ["whole"]})


@pytest.fixture(scope="module")
def two(returned: dict[int, dict[str, list[Any]]]) -> dict[str, list[Any]]:
    """What two ranks return."""
    return returned[2]


def same(first: Any, second: Any) -> bool:
    """Whether two results have the same bits."""
    if isinstance(first, torch.Tensor | np.ndarray):
        return bool((torch.as_tensor(first) == torch.as_tensor(second)).all())
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(value, second[name]) for name, value in first.items())
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["dense", *METHODS, *(f"{name} in blocks" for name in ranks.IN_BLOCKS), "layer_dropout", "int8 activations"],
)
def test_two_ranks_train_as_one_process_that_cuts_its_batches_does(
    two: dict[str, list[Any]], one: dict[str, Any], name: str
) -> None:
    """Bit for bit: the sum of two gradients has no order."""
    first, second = (found[name] for found in two["methods"])
    assert same(first, second)
    assert same(first, one[name])


@pytest.fixture(scope="module")
def one(folder: Path) -> dict[str, Any]:
    """What every method does in one process."""
    return ranks.methods(ALONE, folder)


@pytest.fixture(scope="module")
def whole(folder: Path) -> dict[str, Any]:
    """A compression in one process."""
    return ranks.whole(ALONE, folder)


@pytest.mark.slow
def test_a_compression_by_two_ranks_is_that_of_one_process(two: dict[str, list[Any]], whole: dict[str, Any]) -> None:
    first, second = two["whole"]
    assert same(first, second)
    for ours, theirs in zip(first["loss"], whole["loss"], strict=True):
        assert ours == pytest.approx(theirs, rel=2e-5)
    assert first["metrics"] == pytest.approx(whole["metrics"], abs=1e-6)
    note = "2 ranks train together; another number of ranks gives the same result up to rounding"
    assert first["notes"] == (note, *whole["notes"])


@pytest.mark.slow
def test_two_ranks_that_were_stopped_end_as_those_that_were_not(two: dict[str, list[Any]]) -> None:
    assert all(same(found, two["whole"][0]) for found in two["resumed"])


@pytest.mark.slow
def test_a_checkpoint_is_resumed_by_another_number_of_ranks(
    two: dict[str, list[Any]], folder: Path, whole: dict[str, Any]
) -> None:
    of_one, of_two = two["handed_over"][0], ranks.compressed(ALONE, folder, checkpoint=folder / "of-2")
    for resumed in (of_one, ranks.described(of_two)):
        for ours, theirs in zip(resumed["loss"], whole["loss"], strict=True):
            assert ours == pytest.approx(theirs, rel=2e-5)
        assert resumed["metrics"] == pytest.approx(whole["metrics"], abs=1e-6)
    assert of_one["loss"][1][:6] == whole["loss"][1][:6], "these steps were taken by one process"


@pytest.mark.slow
def test_ranks_drop_different_values_and_resume_with_the_same(two: dict[str, list[Any]], folder: Path) -> None:
    first, second = two["dropout"]
    assert same(first, second)
    assert same(first["whole"], first["resumed"])
    by_itself = ranks.dropout(ALONE, folder)
    assert by_itself["whole"]["loss"] != pytest.approx(first["whole"]["loss"], rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ranks.TASKS)
def test_ranks_share_the_batches_of_every_kind_of_task(
    two: dict[str, list[Any]], tasks: dict[str, Any], name: str
) -> None:
    first, second = (found[name] for found in two["tasks"])
    assert same(first, second)
    assert same(first["predictions"], tasks[name]["predictions"])
    assert first["loss"] == pytest.approx(tasks[name]["loss"], rel=2e-5)


@pytest.fixture(scope="module")
def tasks(folder: Path) -> dict[str, Any]:
    """The other kinds of tasks in one process."""
    return ranks.tasks(ALONE, folder)


@pytest.mark.slow
def test_ranks_share_what_a_teacher_writes(two: dict[str, list[Any]], folder: Path) -> None:
    first, second = two["written"]
    assert same(first, second)
    assert same(first["first"], first["again"])
    alone = ranks.written(ALONE, folder)["first"]
    for ours, theirs in zip(first["first"]["loss"], alone["loss"], strict=True):
        assert ours == pytest.approx(theirs, rel=2e-5)


@pytest.mark.slow
def test_rank_0_chooses_the_sparse_products(two: dict[str, list[Any]]) -> None:
    first, second = two["sparse"]
    assert (first["asked"], second["asked"]) == ([0], [])
    assert same(first["model"], second["model"])


@pytest.mark.slow
def test_a_rank_that_differs_by_one_bit_is_found(two: dict[str, list[Any]]) -> None:
    first, second = two["poisoned"]
    assert first == second
    assert first.startswith("ranks diverged at step 8: masks.scores.")
    assert first.endswith(" of rank 1 is not that of rank 0")


@pytest.mark.slow
def test_runs_that_ranks_cannot_share_are_refused_before_training(two: dict[str, list[Any]]) -> None:
    batch, seeds = two["refused"][0]
    assert two["refused"][1] == [batch, seeds]
    assert batch == (
        "training.batch_size must be at least the number of ranks, 2, got 1; take a larger batch, fewer workers or "
        "fewer GPUs"
    )
    assert seeds.startswith("ranks must have the same arguments, data, versions of packages and number of threads")


def test_a_model_that_keeps_statistics_of_its_batches_is_refused() -> None:
    class Pair(Alone):
        size = 2

    settings = Training(max_steps=1, batch_size=4).settings(ranks.DATA.task)
    with pytest.raises(CompressionError, match=r"statistics of the batches .* \(BatchNorm1d\), got 2 ranks") as raised:
        check_group(Pair(), nn.Sequential(nn.BatchNorm1d(3)), settings, "run")
    assert raised.value.reason is Reason.UNSUPPORTED_ARCHITECTURE


@pytest.mark.slow
def test_three_ranks_train_as_one_process_does(
    returned: dict[int, dict[str, list[Any]]], whole: dict[str, Any]
) -> None:
    found = returned[3]["whole"]
    assert all(same(found[0], other) for other in found[1:])
    for ours, theirs in zip(found[0]["loss"], whole["loss"], strict=True):
        assert ours == pytest.approx(theirs, rel=2e-5)


def test_buckets_have_one_type_and_a_size_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "_BUCKET", 10)
    tensors = [torch.zeros(size) for size in (4, 6, 1, 30, 2)] + [torch.zeros(2, dtype=torch.float64)]
    buckets = group._buckets(tensors)
    assert [[each.numel() for each in bucket] for bucket in buckets] == [[4, 6], [1], [30], [2], [2]]


def test_a_digest_is_that_of_all_words_whatever_is_summed_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.randn(10, 7, generator=torch.Generator().manual_seed(0))
    words = values.view(torch.int32).reshape(-1).tolist()
    weighted = sum(place * word for place, word in enumerate(words, start=1))
    for size in (1 << 20, 70, 16, 1):
        monkeypatch.setattr(group, "_DIGESTED", size)
        assert group._digest(values).tolist() == [sum(words), weighted]
