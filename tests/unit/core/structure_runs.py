"""What tests of structures share: models whose heads and units are known, their masks, and options of quick runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from tests.unit.core.masks import new_masks, update
from torch import Tensor, nn
from transformers import AlbertConfig, AlbertModel, BertModel, DistilBertConfig, DistilBertModel

from mvprune.artifact.structures import Structures, find_structures
from mvprune_core import Movement, Training
from mvprune_core.pruning.selectors import Selector
from mvprune_core.training.masking import Masks

TOTAL = 10  # steps of masks without a run
SIDE = 4  # of a block
QUICK: dict[str, Any] = {
    "training": Training(max_steps=12, batch_size=32, learning_rate=5e-3),
    "dense_baseline": False,
}


def bert(bert_config: Callable[..., Any]) -> nn.Module:
    """Three blocks, each with four heads of 8 and 24 units."""
    return BertModel(bert_config(num_hidden_layers=3, num_attention_heads=4, intermediate_size=24))


def distilbert(_: Any) -> nn.Module:
    return DistilBertModel(DistilBertConfig(vocab_size=40, dim=32, n_layers=2, n_heads=4, hidden_dim=48))


def albert(_: Any) -> nn.Module:
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48, "embedding_size": 16}
    return AlbertModel(AlbertConfig(vocab_size=40, num_hidden_layers=2, **sizes))


def structure_masks(
    model: nn.Module,
    selector_of: Callable[[nn.Module, list[Structures]], Selector],
    density: float,
    method: Any = None,
    step: int = TOTAL,
) -> tuple[Masks, list[Structures]]:
    """Masks after `step` of ten updates, with scores that tell structures apart."""
    structures = list(find_structures(model))
    layers: Any = {name: model.get_submodule(name) for each in structures for name in each.layers}
    method, selector = method or Movement(selection="global"), selector_of(model, structures)
    masks = new_masks(model, method, density=density, total_steps=TOTAL, seed=0, layers=layers, selector=selector)
    generator = torch.Generator().manual_seed(5)
    for scores in masks.scores:
        scores.data += torch.randn(scores.shape, generator=generator)
    for one in sorted({step, min(step, masks.method.schedule.pruning_end(TOTAL))}):
        update(masks, one)
    return masks, structures


def by_layer(masks: Masks) -> dict[str, Tensor]:
    return {matrix.name.removesuffix(".weight"): matrix.kept.clone() for matrix in masks.matrices}


def importance(masks: Masks) -> dict[str, Tensor]:
    """|W|, or S + c · v · |W| / mean |W| for movement."""
    found = {}
    for matrix in masks.matrices:
        values = matrix.weight.detach().abs()
        if matrix.scores is not None:
            values = matrix.scores.detach() + 5 * 100 * masks.scheduled_density * values / matrix.scale
        found[matrix.name.removesuffix(".weight")] = values
    return found


def outputs(model: Any) -> Tensor:
    """Logits, or without a head the last hidden state."""
    ids = torch.randint(4, 40, (3, 11), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        found = model(ids)
    values: Tensor = found.logits if hasattr(found, "logits") else found.last_hidden_state
    return values
