"""How fast weights learn: over the steps of a run, and as the density falls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.unit.core.training_runs import trainer
from torch import Tensor

from mvprune.data.loading import ClassificationData
from mvprune.data.tasks import get_task
from mvprune_core import METHODS, Magnitude, Movement, Schedule, Teacher, Training, compress
from mvprune_core.methods import Method
from mvprune_core.models.loading import find_model, load_model
from mvprune_core.tasks import objective_for
from mvprune_core.training.masking import Masks

AT_ONCE = Schedule(shape="one_shot", pruning_start=0.0)
PRUNED = "bert.encoder.layer.0.output.dense.weight"
BIAS = "bert.encoder.layer.0.output.dense.bias"
POOLER = "bert.pooler.dense.weight"
RATE = 1e-4


def test_learning_rate_rises_and_falls_linearly() -> None:
    settings = Training().settings(get_task("sst2"))
    factors = [settings.lr_multiplier(step, 100) for step in range(100)]
    assert factors[:10] == pytest.approx([step / 10 for step in range(1, 11)])
    assert factors[9:] == pytest.approx([1 - step / 91 for step in range(91)])
    assert settings.lr_multiplier(0, 1) == 1.0


@pytest.mark.parametrize(("warmup", "factors"), [(0.5, [1 / 2, 1, 2 / 3, 1 / 3]), (0, [1, 3 / 4, 1 / 2, 1 / 4])])
def test_the_warmup_is_a_setting(warmup: float, factors: list[float]) -> None:
    settings = Training(lr_warmup=warmup).settings(get_task("sst2"))
    assert [settings.lr_multiplier(step, 4) for step in range(4)] == pytest.approx(factors)
    with pytest.raises(ValueError, match=r"^training\.lr_warmup must be from 0 to 1, got 1\.5"):
        Training(lr_warmup=1.5)


@pytest.mark.slow
def test_a_run_uses_its_warmup(one_layer: Path, data: ClassificationData) -> None:
    def weights(**options: Any) -> Tensor:
        training = Training(max_steps=4, batch_size=16, learning_rate=RATE, **options)
        method = Magnitude(schedule=AT_ONCE)
        result = compress(one_layer, data, method=method, density=0.25, training=training, dense_baseline=False)
        return result.model.state_dict()[POOLER]

    assert torch.equal(weights(), weights(lr_warmup=0.1))
    assert not torch.equal(weights(), weights(lr_warmup=1.0))


@pytest.mark.parametrize("method", [Magnitude(schedule=AT_ONCE), Movement(schedule=AT_ONCE)])
@pytest.mark.parametrize(("growth", "factor"), [(0.0, 1.0), (0.5, 2.0), (1.0, 4.0), (None, 4.0)])
def test_pruned_matrices_learn_faster_as_the_density_falls(
    one_layer: Path, data: ClassificationData, method: Method, growth: float | None, factor: float
) -> None:
    # Adam's first step is the learning rate, whatever the gradient.
    options: dict[str, Any] = {} if growth is None else {"lr_density_exponent": growth}
    training = Training(max_steps=1, batch_size=16, learning_rate=RATE, **options)
    before = load_model(find_model(one_layer, None), objective_for(data), seed=0).model.state_dict()
    result = compress(
        one_layer,
        data,
        method=method,
        density=0.25,
        training=training,
        dense_baseline=False,
        weight_dtype="fp32",
        embedding_dtype="fp32",
    )
    after = result.model.state_dict()
    assert _moved(before, after, PRUNED) == pytest.approx(factor * RATE, rel=1e-2)
    assert _moved(before, after, BIAS) == pytest.approx(RATE, rel=1e-2)
    assert _moved(before, after, POOLER) == pytest.approx(RATE, rel=1e-2)


@pytest.mark.parametrize("name", ["movement", "l0"])
def test_scores_learn_at_one_rate_whatever_the_density(one_layer: Path, data: ClassificationData, name: str) -> None:
    objective = objective_for(data)
    loaded = load_model(find_model(one_layer, None), objective, seed=0)
    examples = objective.training_examples(loaded.tokenizer, loaded.config, 32)
    settings = Training(max_steps=1, batch_size=16).settings(get_task("sst2"))
    method = METHODS[name](schedule=AT_ONCE).for_run(1)
    masks = Masks(loaded.model, method, density=0.25, total_steps=1, seed=0)
    before = [scores.detach().clone() for scores in masks.scores]
    trainer(loaded.model, examples, settings, masks=masks).run()
    assert method.score_learning_rate is not None
    moved = max((after - start).abs().max().item() for after, start in zip(masks.scores, before, strict=True))
    # Adam's first step is the learning rate, whatever the gradient.
    assert moved == pytest.approx(method.score_learning_rate, rel=1e-2)


@pytest.mark.slow
def test_the_rate_follows_the_schedule(one_layer: Path, data: ClassificationData) -> None:
    # While the schedule keeps all weights, growth changes nothing.
    weights: list[dict[str, Tensor]] = []
    for growth in (0.0, 2.0):
        training = Training(max_steps=10, batch_size=16, learning_rate=RATE, lr_density_exponent=growth)
        late = Magnitude(schedule=Schedule(shape="one_shot", pruning_start=1.0))
        result = compress(one_layer, data, method=late, density=0.25, training=training, dense_baseline=False)
        weights.append(result.model.state_dict())
    first, second = weights
    assert all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.mark.slow
def test_the_dense_model_is_the_same_at_every_growth(one_layer: Path, data: ClassificationData, tmp_path: Path) -> None:
    cached: list[set[Path]] = []
    for growth in (0.0, 1.0):
        training = Training(max_steps=6, batch_size=16, lr_density_exponent=growth)
        compress(
            one_layer, data, method="magnitude", density=0.25, training=training, teacher=Teacher(), cache=tmp_path
        )
        cached.append({path for kind in ("baselines", "logits") for path in (tmp_path / kind).iterdir()})
    first, second = cached
    assert first == second != set()


def _moved(before: dict[str, Tensor], after: dict[str, Tensor], name: str) -> float:
    kept = after[name] != 0
    return (after[name] - before[name])[kept].abs().max().item()
