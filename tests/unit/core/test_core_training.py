from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mvprune.data import ClassificationData
from mvprune.tasks import get_task
from mvprune_core import Callback, CompressionError, Magnitude, Method, Movement, Progress, Reason, Training
from mvprune_core.batching import evaluation_batches, training_batches
from mvprune_core.masking import Masks
from mvprune_core.models import Loaded, find_model, load_model
from mvprune_core.tasks import Objective, objective_for
from mvprune_core.training import Settings, rate_factor, train

CPU = torch.device("cpu")


def settings(**changes: Any) -> Settings:
    return Training(**({"max_steps": 12, "batch_size": 16, "learning_rate": 1e-3} | changes)).settings(get_task("sst2"))


@pytest.fixture
def objective(data: ClassificationData) -> Objective:
    return objective_for(data)


@pytest.fixture
def loaded(model_folder: Path, objective: Objective) -> Loaded:
    return load_model(find_model(model_folder, None), objective, seed=0)


def run(
    loaded: Loaded, objective: Objective, chosen: Settings, method: Method | None, callback: Callback | None = None
) -> Masks | None:
    masks = None if method is None else Masks(loaded.model, method, target=0.25, seed=0)
    examples = objective.training_examples(loaded.tokenizer, loaded.config, 32)
    train(loaded.model, examples, chosen, seed=0, device=CPU, callback=callback or Callback(), masks=masks)
    return masks


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


def test_inputs_are_padded_no_further_than_the_batch_needs(loaded: Loaded, objective: Objective) -> None:
    examples = objective.training_examples(loaded.tokenizer, loaded.config, 8)
    assert examples.lengths.max() == 8
    indices = np.argsort(examples.lengths, kind="stable")[[0, 1, 60]]
    batch = examples.batch(indices, CPU)
    longest = examples.lengths[indices[-1]]
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (3, longest)
    assert batch["attention_mask"].sum(dim=1).tolist() == examples.lengths[indices].tolist()
    assert (batch["input_ids"][batch["attention_mask"] == 0] == 0).all()
    assert batch["labels"].shape == (3,)


@pytest.mark.parametrize("method", [None, Movement(), Magnitude()])
def test_the_same_seed_gives_the_same_model(model_folder: Path, objective: Objective, method: Method | None) -> None:
    states: list[dict[str, Tensor]] = []
    for noise in (1, 2):
        torch.manual_seed(noise)  # the state outside must not matter
        loaded = load_model(find_model(model_folder, None), objective, seed=0)
        loaded.config.hidden_dropout_prob = 0.1
        masks = run(loaded, objective, settings(), method)
        if masks is not None:
            masks.fold()
        states.append(loaded.model.state_dict())
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_the_random_state_outside_is_left_alone(loaded: Loaded, objective: Objective) -> None:
    before = torch.get_rng_state()
    run(loaded, objective, settings(), Movement())
    assert torch.equal(torch.get_rng_state(), before)


def test_embeddings_are_frozen_and_all_else_is_trained(loaded: Loaded, objective: Objective) -> None:
    before = {name: value.clone() for name, value in loaded.model.state_dict().items()}
    run(loaded, objective, settings(), None)
    same = {name for name, value in loaded.model.state_dict().items() if torch.equal(value, before[name])}
    assert same == {name for name in before if name.endswith("_embeddings.weight")}


def test_only_matrices_decay(loaded: Loaded, objective: Objective) -> None:
    # With a learning rate of next to nothing, what shrinks does so by weight decay alone.
    before = {name: value.clone() for name, value in loaded.model.state_dict().items()}
    masks = run(loaded, objective, settings(learning_rate=1e-9, weight_decay=1e8, max_steps=5), Movement())
    assert masks is not None
    assert all(score.abs().max() < 0.1 for score in masks.scores)
    masks.fold()
    after = loaded.model.state_dict()
    matrix, vector = "bert.pooler.dense.weight", "bert.encoder.layer.0.output.LayerNorm.weight"
    assert after[matrix].norm() < 0.9 * before[matrix].norm()
    torch.testing.assert_close(after[vector], before[vector], rtol=1e-5, atol=1e-5)


def test_progress_tells_every_step(loaded: Loaded, objective: Objective) -> None:
    told: list[Progress] = []

    class Listener(Callback):
        def on_step(self, progress: Progress) -> None:
            told.append(progress)

    run(loaded, objective, settings(), Movement(), Listener())
    assert [progress.step for progress in told] == list(range(1, 13))
    assert {progress.total_steps for progress in told} == {12}
    assert told[0].density == 1.0
    assert told[-1].density == 0.25
    assert all(0 < progress.loss < 5 for progress in told)
    assert told[-1].eta_seconds == 0


def test_a_loss_that_is_not_finite_ends_the_run(loaded: Loaded, objective: Objective) -> None:
    with torch.no_grad():
        loaded.model.get_submodule("classifier").weight[0, 0] = torch.nan
    with pytest.raises(CompressionError, match="no longer finite at step 1 of 12") as raised:
        run(loaded, objective, settings(), Movement())
    assert raised.value.reason is Reason.NAN_LOSS


def test_learning_rate_rises_and_falls_linearly() -> None:
    factors = [rate_factor(step, 100) for step in range(100)]
    assert factors[:10] == pytest.approx([step / 10 for step in range(1, 11)])
    assert factors[9:] == pytest.approx([1 - step / 91 for step in range(91)])
    assert rate_factor(0, 1) == 1.0


def test_tasks_fill_in_what_is_not_given() -> None:
    task = get_task("sst2")
    chosen = Training(batch_size=7, weight_decay=0.0).settings(task)
    assert (chosen.batch_size, chosen.weight_decay, chosen.max_length) == (7, 0.0, task.max_length)
    assert chosen.total_steps(70) == round(task.epochs * 10)
    assert Training().settings(task, hidden_size=768).learning_rate == task.learning_rate
    assert Training().settings(task, hidden_size=384).learning_rate == 1e-4
    assert Training(learning_rate=1e-5).settings(task, hidden_size=384).learning_rate == 1e-5
    assert Training(epochs=0.5, batch_size=8).settings(task).total_steps(80) == 5
    assert Training(max_steps=3).settings(task).total_steps(80) == 3


@pytest.mark.parametrize("field", ["max_steps", "epochs", "batch_size", "learning_rate", "weight_decay", "max_length"])
@pytest.mark.parametrize("value", [-1, float("nan"), float("inf")])
def test_settings_out_of_range_are_refused(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"^training\.{field}: {value} given"):
        Training(**{field: value})


def test_contradicting_options_are_refused() -> None:
    with pytest.raises(ValueError, match="max_steps and epochs"):
        Training(max_steps=5, epochs=1)
    with pytest.raises(ValueError, match="score_learning_rate"):
        Movement(score_learning_rate=0)
