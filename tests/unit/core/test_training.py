from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiers import first_fast
from tests.unit.core.training_runs import method_of, run, same, settings, trainer, with_dropout
from torch import Tensor, nn
from transformers import BertForMaskedLM, BertForQuestionAnswering

from mvprune.data.loading import ClassificationData
from mvprune_core import (
    L0,
    OBERT,
    Callback,
    CompressionError,
    Method,
    Movement,
    Progress,
    Reason,
    Schedule,
)
from mvprune_core.base.settings import Precision
from mvprune_core.models.loading import Loaded, find_model, load_model
from mvprune_core.tasks import Objective, objective_for
from mvprune_core.tasks.batching import Examples, TokenMasking, rounded_length
from mvprune_core.tasks.losses import CrossEntropy, SpanCrossEntropy
from mvprune_core.training.evaluation import Evaluation
from mvprune_core.training.gradients import BatchGradients

CPU = torch.device("cpu")


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


@pytest.mark.parametrize("name", first_fast([None, "l0", "obert", "random"], 2))  # of all: test_checkpoints.py
def test_the_same_seed_gives_the_same_model(model_folder: Path, objective: Objective, name: str | None) -> None:
    states: list[dict[str, Tensor]] = []
    for noise in (1, 2):
        torch.manual_seed(noise)  # the state outside must not matter
        loaded = with_dropout(model_folder, objective)
        run(loaded, objective, settings(), method_of(name))
        states.append(loaded.model.state_dict())
    assert same(*states)


def test_each_phase_of_an_event_of_obert_tells_how_far_it_is(model_folder: Path, objective: Objective) -> None:
    told: list[tuple[str, int, int]] = []

    class Listener(Callback):
        def on_examples(self, phase: str, done: int, total: int) -> None:
            told.append((phase, done, total))

    loaded = load_model(find_model(model_folder, None), objective, seed=0)
    method = OBERT(Schedule("events", events=1), gradients=2, gradient_batch_size=8)
    masks, _ = run(loaded, objective, settings(), method, callback=Listener())
    assert masks is not None
    passes = 2 * len(masks.matrices)
    scoring = [("scoring", done, passes) for done in range(1, passes + 1)]
    assert told == [("sampling", 8, 16), ("sampling", 16, 16), *scoring]


@pytest.mark.slow
@pytest.mark.parametrize("method", [None, Movement()])
def test_nothing_is_dropped_unless_asked_for(model_folder: Path, objective: Objective, method: Method | None) -> None:
    plain = load_model(find_model(model_folder, None), objective, seed=0)
    run(plain, objective, settings(), method)
    states = {}
    for dropout in (False, True):
        loaded = with_dropout(model_folder, objective)
        run(loaded, objective, settings(dropout=dropout), method)
        states[dropout] = loaded.model.state_dict()
        assert {module.p for module in loaded.model.modules() if isinstance(module, nn.Dropout)} == {0.1}
    assert same(states[False], plain.model.state_dict())
    assert not same(states[True], plain.model.state_dict())


@pytest.mark.slow
def test_accumulated_gradients_are_those_of_the_whole_batch(model_folder: Path, objective: Objective) -> None:
    weights = []
    for parts in (1, 3, 16):
        loaded = load_model(find_model(model_folder, None), objective, seed=0)
        run(loaded, objective, settings(accumulation_steps=parts, max_steps=5), Movement())
        weights.append(loaded.model.get_submodule("classifier").weight.detach().clone())
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(weights[2], weights[0], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("hidden", [False, True])
def test_parts_of_a_batch_are_padded_and_masked_as_the_whole(bert_config: Callable[..., Any], hidden: bool) -> None:
    """The loss over spans counts padding; which tokens are hidden is drawn for a batch."""
    random = np.random.default_rng(0)
    ids = [random.integers(4, 40, size, dtype=np.int32) for size in (3, 5, 9, 20, 4)]
    if hidden:
        examples = Examples({"input_ids": ids, "labels": ids}, {}, 0, masking=TokenMasking(0.3, 1, 40))
    else:
        ends = {"start_positions": torch.tensor([0, 1, 2, 3, 0]), "end_positions": torch.tensor([1, 1, 5, 9, 3])}
        examples = Examples({"input_ids": ids}, ends, 0)
    gradients = []
    for parts in (1, 2, 5):
        torch.manual_seed(0)
        model = (BertForMaskedLM if hidden else BertForQuestionAnswering)(bert_config())
        chosen = settings(accumulation_steps=parts)
        loss = CrossEntropy() if hidden else SpanCrossEntropy()
        batch = BatchGradients(model=model, forward=model, examples=examples, loss=loss, settings=chosen, seed=0)
        batch.compute(np.arange(5), 0)
        gradients.append(model.bert.encoder.layer[0].output.dense.weight.grad)
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(gradients[2], gradients[0], rtol=1e-3, atol=1e-6)


@pytest.mark.slow
def test_gradient_checkpointing_changes_nothing_but_memory(model_folder: Path, objective: Objective) -> None:
    states = []
    for checkpointing in (False, True):
        loaded = with_dropout(model_folder, objective)
        run(loaded, objective, settings(gradient_checkpointing=checkpointing), Movement())
        assert not any(getattr(module, "gradient_checkpointing", False) for module in loaded.model.modules())
        states.append(loaded.model.state_dict())
    for name, value in states[0].items():
        torch.testing.assert_close(states[1][name], value, rtol=1e-4, atol=1e-6)


def test_bf16_keeps_weights_and_scores_in_fp32(loaded: Loaded, objective: Objective) -> None:
    used: set[torch.dtype] = set()

    def look(module: nn.Module, inputs: Any, output: Tensor) -> None:
        used.add(output.dtype)

    layer: Any = loaded.model.get_submodule("bert.encoder.layer.0.output.dense")
    handle = layer.register_forward_hook(look)
    masks, _ = run(loaded, objective, settings(precision="bf16"), Movement())
    handle.remove()
    assert used == {torch.bfloat16}
    assert masks is not None
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {torch.float32}
    assert {scores.dtype for scores in masks.scores} == {torch.float32}
    assert len(masks.scores[0].unique()) > 0.9 * masks.scores[0].numel()


@pytest.mark.slow
def test_bf16_takes_batches_of_few_lengths(loaded: Loaded, data: ClassificationData) -> None:
    lengths: dict[Precision, set[int]] = {"fp32": set(), "bf16": set()}
    split = replace(data.train, texts=[text * 2 for text in data.train.texts])
    objective = objective_for(replace(data, train=split))
    longest = int(objective.training_examples(loaded.tokenizer, loaded.config, 32).lengths.max())
    for precision, seen in lengths.items():
        handle = loaded.model.register_forward_pre_hook(
            lambda module, given, named, seen=seen: seen.add(named["input_ids"].shape[1]), with_kwargs=True
        )
        run(loaded, objective, settings(precision=precision, batch_size=2, max_steps=100), None)
        handle.remove()
    assert lengths["bf16"] == {min(rounded_length(length), longest) for length in lengths["fp32"]} != lengths["fp32"]


def test_embeddings_are_trained_on_request(loaded: Loaded, objective: Objective) -> None:
    before = loaded.model.get_input_embeddings().weight.detach().clone()
    run(loaded, objective, settings(train_embeddings=True), None)
    assert not torch.equal(loaded.model.get_input_embeddings().weight, before)


def test_deterministic_mode_holds_for_the_run_alone(loaded: Loaded, objective: Objective) -> None:
    modes: list[bool] = []

    class Listener(Callback):
        def on_step(self, progress: Progress) -> None:
            modes.append(torch.are_deterministic_algorithms_enabled())

    run(loaded, objective, settings(deterministic=True), Movement(), callback=Listener())
    assert modes == [True] * 12
    assert not torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        run(loaded, objective, settings(deterministic=True), None)
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


class Judge:
    """Gives the values that it is told to, one an evaluation."""

    def __init__(self, *values: float) -> None:
        self.values = list(values)
        self.steps: list[int] = []

    def __call__(self, step: int) -> dict[str, float]:
        self.steps.append(step)
        return {"accuracy": self.values[len(self.steps) - 1]}


def test_evaluates_every_few_steps_and_at_the_end(loaded: Loaded, objective: Objective) -> None:
    judge = Judge(*[0.5] * 9)
    run(loaded, objective, settings(evaluate_every=5), Movement(), evaluation=Evaluation(judge, "accuracy", True))
    assert judge.steps == [5, 10, 12]


@pytest.mark.parametrize(("higher_is_better", "ended"), [(True, 11), (False, 8)])
def test_ends_early_without_improvement_at_the_target_density(
    loaded: Loaded, objective: Objective, higher_is_better: bool, ended: int
) -> None:
    # The target density is reached after step 6; what came before does not count.
    judge = Judge(9, 9, 9, 9, 9, 0.5, 0.6, 0.7, 0.8, 0.7, 0.6, 0.5)
    chosen = settings(evaluate_every=1, patience=2)
    method = Movement(schedule=Schedule(cooldown=0.5))
    _, steps = run(loaded, objective, chosen, method, evaluation=Evaluation(judge, "accuracy", higher_is_better))
    assert steps == judge.steps[-1] == ended


def test_the_best_model_is_kept(loaded: Loaded, objective: Objective) -> None:
    states = {}

    def judge(step: int) -> dict[str, float]:
        states[step] = {name: value.clone() for name, value in loaded.model.state_dict().items()}
        return {"accuracy": {10: 0.9}.get(step, 0.8)}

    chosen = settings(evaluate_every=1, keep_best=True)
    run(loaded, objective, chosen, L0(), evaluation=Evaluation(judge, "accuracy", True))
    assert same(loaded.model.state_dict(), states[10])
    assert not same(loaded.model.state_dict(), states[12])


def test_the_random_state_outside_is_left_alone(loaded: Loaded, objective: Objective) -> None:
    before = torch.get_rng_state()
    run(loaded, objective, settings(), Movement())
    assert torch.equal(torch.get_rng_state(), before)


def test_embeddings_are_frozen_and_all_else_is_trained(loaded: Loaded, objective: Objective) -> None:
    before = {name: value.clone() for name, value in loaded.model.state_dict().items()}
    run(loaded, objective, settings(), None)
    same = {name for name, value in loaded.model.state_dict().items() if torch.equal(value, before[name])}
    assert same == {name for name in before if name.endswith("_embeddings.weight")}


def test_moments_exist_before_the_first_activations(loaded: Loaded, objective: Objective) -> None:
    examples = objective.training_examples(loaded.tokenizer, loaded.config, 32)
    trained = trainer(loaded.model, examples, settings(max_steps=2))
    found: list[dict[str, Tensor]] = []
    hook = loaded.model.register_forward_pre_hook(lambda *_: found.append(trained.optimizer.state()))
    trained.run()
    hook.remove()
    first, second = found
    assert first.keys() == second.keys() == trained.optimizer.state().keys()
    moments = [name for name in first if name.endswith(".exp_avg")]
    assert len(moments) == sum(parameter.requires_grad for parameter in loaded.model.parameters())
    assert all(first[name] is second[name] for name in moments), "they are not allocated again"


def test_only_matrices_decay(loaded: Loaded, objective: Objective) -> None:
    # With a learning rate of next to nothing, what shrinks does so by weight decay alone, here far above its bound.
    before = {name: value.clone() for name, value in loaded.model.state_dict().items()}
    strong = replace(settings(learning_rate=1e-9, max_steps=5), weight_decay=1e8)
    masks, _ = run(loaded, objective, strong, Movement())
    assert masks is not None
    assert all(0.02 < score.abs().max() < 0.06 for score in masks.scores), "five steps of 0.01 at most"
    after = loaded.model.state_dict()
    matrix, vector = "bert.pooler.dense.weight", "bert.encoder.layer.0.output.LayerNorm.weight"
    assert after[matrix].norm() < 0.9 * before[matrix].norm()
    torch.testing.assert_close(after[vector], before[vector], rtol=1e-5, atol=1e-5)


def test_progress_reports_every_step(loaded: Loaded, objective: Objective) -> None:
    told: list[Progress] = []

    class Listener(Callback):
        def on_step(self, progress: Progress) -> None:
            told.append(progress)

    run(loaded, objective, settings(), Movement(), callback=Listener())
    assert [progress.step for progress in told] == list(range(1, 13))
    assert {progress.total_steps for progress in told} == {12}
    assert told[0].density == 1.0
    assert told[-1].density == 0.25
    assert all(0 < progress.loss < 5 for progress in told)


def test_the_loss_is_known_from_the_first_step_on_where_few_are_read(loaded: Loaded, objective: Objective) -> None:
    losses: list[float] = []

    class Listener(Callback):
        def on_step(self, progress: Progress) -> None:
            losses.append(progress.loss)

    examples = objective.training_examples(loaded.tokenizer, loaded.config, 32)
    asynchronous = trainer(loaded.model, examples, settings(), callback=Listener())
    asynchronous._steps_between_syncs = 10  # as on a GPU
    asynchronous.run()
    assert losses == [losses[0]] * 9 + [losses[9]] * 2 + [losses[11]]
    assert len(set(losses)) == 3


def test_a_loss_that_is_not_finite_ends_the_run(loaded: Loaded, objective: Objective) -> None:
    with torch.no_grad():
        loaded.model.get_submodule("classifier").weight[0, 0] = torch.nan
    with pytest.raises(CompressionError, match="no longer finite at step 1 of 12") as raised:
        run(loaded, objective, settings(), Movement())
    assert raised.value.reason is Reason.NAN_LOSS
