"""Static model pruning: what is trained, and how the matrices of one kind share their weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import AutoModel, BertConfig, BertModel

from mvprune.data.loading import ClassificationData
from mvprune_core import SMP, Training, compress
from mvprune_core.methods.smp import _counts
from mvprune_core.models.loading import find_model, load_model
from mvprune_core.tasks import objective_for
from mvprune_core.training.masking import Masks


@pytest.mark.slow
def test_only_the_head_is_trained_and_the_result_is_the_model_and_a_mask(
    model_folder: Path, data: ClassificationData
) -> None:
    original = AutoModel.from_pretrained(model_folder).state_dict()
    training = Training(max_steps=60, batch_size=32, learning_rate=5e-3)
    result = compress(
        model_folder, data, method=SMP(), density=0.3, training=training, dense_baseline=False, weight_dtype="fp32",
        embedding_dtype="fp32",
    )  # fmt: skip
    state = result.model.state_dict()
    masked = 0
    for name, value in original.items():
        found = state.get(f"bert.{name}")
        if found is None:
            continue
        if f"bert.{name}" in result.pruned:
            masked += int((found == 0).sum())
            assert torch.equal(found[found != 0], value[found != 0])
        else:
            assert torch.equal(found, value), name
    assert masked == pytest.approx(0.7 * result.accounting.prunable_weights, rel=1e-3)
    head = state["classifier.weight"]
    assert head.abs().max() > 0.1, "its initial values have a deviation of 0.02"


def test_a_pooler_that_the_checkpoint_lacks_is_trained(
    save: Callable[..., Path], bert_config: Callable[..., BertConfig], data: ClassificationData
) -> None:
    torch.manual_seed(1)
    folder = save(BertModel(bert_config(), add_pooling_layer=False), "no-pooler")
    drawn = load_model(find_model(folder, None), objective_for(data), seed=0).model.state_dict()
    training = Training(max_steps=20, batch_size=32, learning_rate=5e-3)
    result = compress(folder, data, method=SMP(), density=0.3, training=training, dense_baseline=False)
    name = "bert.pooler.dense.weight"
    assert not torch.allclose(result.model.state_dict()[name], drawn[name], atol=1e-2)


def test_embeddings_are_not_to_be_trained_with_it(model_folder: Path, data: ClassificationData) -> None:
    training = Training(max_steps=20, train_embeddings=True)
    with pytest.raises(
        ValueError, match=r"training\.train_embeddings must be unset with the method smp, .* got 'true'"
    ):
        compress(model_folder, data, method=SMP(), density=0.3, training=training)


def test_the_share_of_a_matrix_is_its_mean_probability_among_those_of_its_kind() -> None:
    # v · L · R(S_l) / Σ R(S): 0.1 · 2 · 100 · 0.6 / (0.6 + 0.2), and the same of the other kind by itself.
    kinds = ["block.query", "block.query", "block.key", "block.key"]
    assert _counts([100, 100, 50, 50], kinds, [0.6, 0.2, 0.5, 0.5], 0.1) == [15, 5, 5, 5]


def test_a_matrix_that_would_keep_more_than_it_has_keeps_all() -> None:
    assert _counts([10, 10, 10], ["a", "a", "a"], [0.98, 0.01, 0.01], 0.5) == [10, 3, 2]


@pytest.mark.parametrize("density", [0.01, 0.1, 0.37, 0.99])
def test_the_counts_of_a_kind_add_up_to_its_density(density: float) -> None:
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        shares = torch.rand(5, generator=generator).tolist()
        counts = _counts([90, 70, 50, 80, 10], ["a", "a", "a", "b", "b"], shares, density)
        assert sum(counts[:3]) == int(density * 210 + 1e-9)
        assert sum(counts[3:]) == int(density * 90 + 1e-9)
        assert all(0 <= count <= size for count, size in zip(counts, [90, 70, 50, 80, 10], strict=True))


def test_the_masks_follow_the_shares_of_the_scores() -> None:
    torch.manual_seed(0)
    model = nn.ModuleDict({"layer": nn.ModuleList([nn.ModuleDict({"query": nn.Linear(20, 20)}) for _ in range(2)])})
    masks = Masks(model, SMP(initial_scores="zero"), density=0.2, total_steps=10, seed=0)
    for scores, mean in zip(masks.scores, (1.0, -1.0), strict=True):
        scores.data.copy_(mean + 0.1 * torch.randn(20, 20))
    masks.update(10)
    first, second = (int(matrix.kept.sum()) for matrix in masks.matrices)
    shares = [float(torch.sigmoid(scores).mean()) for scores in masks.scores]
    assert first + second == 160
    assert first == pytest.approx(160 * shares[0] / sum(shares), abs=1)


def test_options_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="penalty must be"):
        SMP(penalty=-1.0)
    with pytest.raises(ValueError, match="allocation must be"):
        SMP(allocation="layer")  # type: ignore[arg-type]
