"""LayerDrop: layers that are left out of training steps, and every other one that stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.core.test_layers import LAYERS, kept, make, read
from tests.unit.core.test_resume import StopIn, same
from tests.unit.core.training_runs import settings
from transformers import BertModel

from mvprune.artifact.structures import find_layers
from mvprune.data.loading import ClassificationData
from mvprune_core import Magnitude, Stopped, Training, compress
from mvprune_core.pruning.layers import EveryOther, every_other
from mvprune_core.training.layer_dropout import layers_dropped
from mvprune_core.training.masking import Masks
from mvprune_core.training.training_mode import training_mode

OPTIONS: dict[str, Any] = {
    "structure": "layers",
    "density": 0.5,
    "method": "magnitude",
    "dense_baseline": False,
    "teacher": None,
    "training": Training(max_steps=10, batch_size=16, learning_rate=5e-3),
}


def test_the_rule_is_that_of_the_paper_where_this_has_one() -> None:
    for layers in (4, 6, 12, 24):
        for left_out in range(1, layers):
            found = every_other(layers, left_out)
            if layers % left_out == 0:  # d ≡ 0 (mod ⌊1/p⌋), depths from 1
                assert found == [depth - 1 for depth in range(1, layers + 1) if depth % (layers // left_out) == 0]
            assert len(set(found)) == left_out
            between = np.diff([-1, *found])
            assert between.max() - between.min() <= 1, "as evenly as they can be"
    assert every_other(12, 0) == []
    assert every_other(12, 8) == [0, 2, 3, 5, 6, 8, 9, 11]


def test_the_deepest_go_first_whatever_the_method_ranks(bert_config: Callable[..., Any]) -> None:
    model = BertModel(bert_config(num_hidden_layers=LAYERS))
    layers = find_layers(model)
    chosen: Any = {name: model.get_submodule(name) for each in layers for name in each.layers}
    found = []
    for density in (1.0, 0.75, 0.5):
        options: dict[str, Any] = {"density": density, "total_steps": 10, "layers": chosen}
        masks = Masks(model, Magnitude(), seed=0, selector=EveryOther(layers, 0.5), **options)
        masks.update(10)
        found.append([*range(LAYERS)] if density == 1 else kept(masks, layers))
        assert masks.current_density == density
    assert found == [[0, 1, 2, 3], [0, 1, 2], [0, 2]]


def test_layers_are_drawn_by_seed_and_step(bert_config: Callable[..., Any]) -> None:
    model = make("bert", bert_config)
    blocks = [*model.bert.encoder.layer]
    entered: list[int] = []
    for number, block in enumerate(blocks):
        block.attention.register_forward_pre_hook(lambda *_, number=number: entered.append(number))

    def computed(seed: int, step: int) -> tuple[int, ...]:
        with layers_dropped(blocks, 0.4, seed) as draw:
            draw(step)
            entered.clear()
            read(model.train())
            return tuple(entered)

    first = [computed(0, step) for step in range(60)]
    assert first == [computed(0, step) for step in range(60)]
    assert first != [computed(1, step) for step in range(60)]
    counts = np.bincount([number for some in first for number in some], minlength=LAYERS) / 60
    assert np.all(np.abs(counts - 0.6) < 0.2)
    assert len(set(first)) > 8, "each layer for itself"
    with layers_dropped(blocks, 0.9, 0) as draw:
        draw(0)
        entered.clear()
        read(model.eval())
        assert entered == [0, 1, 2, 3], "only in training"
    assert all("forward" not in vars(block) for block in blocks)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_layer_that_is_left_out_returns_its_input(bert_config: Callable[..., Any], checkpointing: bool) -> None:
    model = make("bert", bert_config).train()
    blocks = [*model.bert.encoder.layer]
    with layers_dropped(blocks, 0.5, 0) as draw, training_mode(model, settings(gradient_checkpointing=checkpointing)):
        left_out = [number for number in range(LAYERS) if number in (0, 1)]
        step = next(step for step in range(1000) if _drawn(step) == left_out)
        draw(step)
        output = model(torch.tensor([[2, 5, 7, 3]]), output_hidden_states=True)
        output.logits.square().sum().backward()
    states = output.hidden_states
    for number, block in enumerate(blocks):
        assert torch.equal(states[number], states[number + 1]) is (number in left_out)
        assert all((one.grad is None) is (number in left_out) for one in block.parameters())


def _drawn(step: int) -> list[int]:
    """The layers of probability 0.5 that a step leaves out, of seed 0."""
    found: list[int] = []
    blocks = [_Number(number, found) for number in range(LAYERS)]
    with layers_dropped(blocks, 0.5, 0) as draw:
        draw(step)
        for block in blocks:
            block.train()(torch.zeros(1))
    return [number for number in range(LAYERS) if number not in found]


class _Number(torch.nn.Module):
    """Notes that it was computed."""

    def __init__(self, number: int, found: list[int]) -> None:
        super().__init__()
        self.number, self.found = number, found

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        self.found.append(self.number)
        return hidden


@pytest.fixture
def four_layers(save: Callable[..., Path], bert_config: Callable[..., Any]) -> Path:
    torch.manual_seed(1)
    return save(BertModel(bert_config(num_hidden_layers=LAYERS)))


@pytest.mark.slow
def test_a_run_keeps_every_other_layer_and_resumes(four_layers: Path, data: ClassificationData, tmp_path: Path) -> None:
    """Of some steps all four layers are left out."""
    whole = compress(four_layers, data, layer_dropout=0.7, **OPTIONS)
    removed = "2 of 4 layers are left; removed: bert.encoder.layer.1, bert.encoder.layer.3"
    assert removed in whole.notes
    assert whole.model.config.num_hidden_layers == 2
    assert whole.info.spec["layer_dropout"] == 0.7
    for step in (3, 8):
        options = {"checkpoint": tmp_path / "c", "callback": StopIn("pruning", step)}
        with pytest.raises(Stopped):
            compress(four_layers, data, layer_dropout=0.7, **OPTIONS, **options)
    assert same(whole, compress(four_layers, data, layer_dropout=0.7, checkpoint=tmp_path / "c", **OPTIONS))


def test_it_is_of_layers_alone(four_layers: Path, data: ClassificationData) -> None:
    wrong = r"^layer_dropout must be unset without structure layers, got 0\.2; give that structure"
    for structure in (None, "heads"):
        with pytest.raises(ValueError, match=wrong):
            compress(four_layers, data, layer_dropout=0.2, **OPTIONS | {"structure": structure})
    with pytest.raises(ValueError, match=r"^layer_dropout must be above 0, at most 0\.9, got 1"):
        compress(four_layers, data, layer_dropout=1, **OPTIONS)
