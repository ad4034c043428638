"""Checkpoints of the training loop: what was stopped ends as what was not."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from tests.tiers import first_fast
from tests.unit.core.training_runs import method_of, run, same, settings, trainer, with_dropout
from tests.waiting import PATIENCE

from mvprune_core import METHODS, Callback, CompressionError, Movement, Progress, Stopped, request_stop
from mvprune_core.base import interruption, storage
from mvprune_core.base.interruption import check_stop
from mvprune_core.base.storage import Checkpoints
from mvprune_core.models.loading import Loaded
from mvprune_core.tasks import Objective
from mvprune_core.training.evaluation import Evaluation


class StopAt(Callback):
    """Asks for a stop after some step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, progress: Progress) -> None:
        if progress.step == self.step:
            request_stop()


@pytest.fixture(autouse=True)
def _nothing_requested() -> Iterator[None]:
    yield
    interruption._requested.clear()


@pytest.mark.slow
@pytest.mark.parametrize("name", [None, *METHODS])
def test_a_run_that_was_stopped_twice_ends_as_one_that_was_not(
    model_folder: Path, objective: Objective, name: str | None, tmp_path: Path
) -> None:
    method = method_of(name)
    chosen = settings(evaluate_every=2, keep_best=True)

    def judged(loaded: Loaded) -> Evaluation:
        # any value will do that depends on the model
        return Evaluation(
            lambda step: {"size": loaded.model.get_submodule("classifier").weight.sum().item()}, "size", True
        )

    whole = with_dropout(model_folder, objective)
    run(whole, objective, chosen, method, evaluation=judged(whole))
    checkpoints = Checkpoints(tmp_path, "this run", seconds=1e9)
    for step in (5, 11):
        loaded = with_dropout(model_folder, objective)
        torch.manual_seed(step)
        with pytest.raises(Stopped):
            run(
                loaded,
                objective,
                chosen,
                method,
                callback=StopAt(step),
                checkpoints=checkpoints,
                evaluation=judged(loaded),
            )
        interruption._requested.clear()
    last = with_dropout(model_folder, objective)
    seen: list[int] = []

    class Listener(Callback):
        def on_step(self, progress: Progress) -> None:
            seen.append(progress.step)

    run(last, objective, chosen, method, callback=Listener(), checkpoints=checkpoints, evaluation=judged(last))
    assert seen == [12]
    assert same(whole.model.state_dict(), last.model.state_dict())


@pytest.mark.slow
@pytest.mark.parametrize("name", [None, "l0", "obert", "rigl", "soft_movement"])  # of all methods: above
def test_a_stop_in_an_evaluation_leaves_a_checkpoint(
    model_folder: Path, objective: Objective, name: str | None, tmp_path: Path
) -> None:
    method = method_of(name)
    chosen = settings(evaluate_every=4, keep_best=True)

    def judged(loaded: Loaded, stop_at: int = 0) -> Evaluation:
        def measure(step: int) -> dict[str, float]:
            if step == stop_at:
                request_stop()
            check_stop()
            return {"size": loaded.model.get_submodule("classifier").weight.sum().item()}

        return Evaluation(measure, "size", True)

    whole = with_dropout(model_folder, objective)
    run(whole, objective, chosen, method, evaluation=judged(whole))
    checkpoints = Checkpoints(tmp_path, "this run", seconds=1e9)
    for step in (4, 12):
        loaded = with_dropout(model_folder, objective)
        with pytest.raises(Stopped):
            run(loaded, objective, chosen, method, checkpoints=checkpoints, evaluation=judged(loaded, step))
        interruption._requested.clear()
        assert checkpoints.load("pruning")[1]["step"] == step
    last = with_dropout(model_folder, objective)
    run(last, objective, chosen, method, checkpoints=checkpoints, evaluation=judged(last))
    assert same(whole.model.state_dict(), last.model.state_dict())


def test_a_checkpoint_holds_all_that_the_next_step_depends_on(
    model_folder: Path, objective: Objective, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Stopped):
        run(
            with_dropout(model_folder, objective),
            objective,
            settings(),
            Movement(),
            callback=StopAt(6),
            checkpoints=Checkpoints(tmp_path, "run", seconds=1e9),
        )
    tensors, facts = Checkpoints(tmp_path, "run", seconds=1e9).load("pruning")
    matrix = "bert.encoder.layer.1.output.dense.weight"
    assert {f"masks.weight.{matrix}", f"masks.scores.{matrix}", f"masks.mask.{matrix}", "random.cpu"} <= tensors.keys()
    assert any(name.startswith("optimizer.") and name.endswith(".exp_avg_sq") for name in tensors)
    assert facts["step"] == 6
    assert 0.25 < facts["density"] < 1
    with pytest.warns(RuntimeWarning, match="is of another run"):
        assert Checkpoints(tmp_path, "another run", seconds=1e9).load("pruning") is None
    monkeypatch.setattr("mvprune_core.base.storage._FORMAT", 0)
    with pytest.warns(RuntimeWarning, match="is of another run"):
        assert Checkpoints(tmp_path, "run", seconds=1e9).load("pruning") is None, "of another version"


@pytest.mark.parametrize("name", first_fast([None, "l0", "locked_mask", "magnitude", "obert", "rigl"], 2))
def test_the_last_checkpoint_is_written_while_the_run_goes_on(
    model_folder: Path, objective: Objective, name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained, write = threading.Event(), storage._write

    def write_later(*args: Any) -> None:
        assert trained.wait(PATIENCE)
        write(*args)

    class Told(Callback):
        steps: ClassVar[list[int]] = []

        def on_checkpoint(self, steps: int) -> None:
            self.steps.append(steps)

    monkeypatch.setattr(storage, "_write", write_later)
    method = method_of(name)
    whole = with_dropout(model_folder, objective)
    Told.steps.clear()
    with Checkpoints(tmp_path, "this run", seconds=1e9) as checkpoints:
        run(whole, objective, settings(), method, callback=Told(), checkpoints=checkpoints)
        expected = {name: value.clone() for name, value in whole.model.state_dict().items()}
        for value in whole.model.state_dict().values():  # as masks and rounding change them
            value.zero_()
        assert Told.steps == []
        trained.set()
    assert Told.steps == [12]
    again = with_dropout(model_folder, objective)
    run(again, objective, settings(), method, callback=StopAt(1), checkpoints=Checkpoints(tmp_path, "this run", 1e9))
    assert same(expected, again.model.state_dict())


def test_a_damaged_checkpoint_is_not_used(model_folder: Path, objective: Objective, tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, "run", seconds=0)
    run(with_dropout(model_folder, objective), objective, settings(), None, checkpoints=checkpoints)
    path = tmp_path / "pruning.safetensors"
    content = path.read_bytes()
    assert checkpoints.load("pruning") is not None
    for damaged in (content[:-1000], content[:-1000] + bytes([content[-1000] ^ 1]) + content[-999:]):
        path.write_bytes(damaged)
        with pytest.warns(RuntimeWarning, match=r"pruning\.safetensors is damaged or cannot be read: .* anew"):
            assert checkpoints.load("pruning") is None


def test_what_is_not_finite_does_not_become_a_checkpoint(loaded: Loaded, objective: Objective, tmp_path: Path) -> None:
    """On a GPU other steps are under way before one is looked at."""
    examples = objective.training_examples(loaded.tokenizer, loaded.config, 32)
    with torch.no_grad():
        loaded.model.get_submodule("classifier").weight[0, 0] = torch.nan
    spoiled = trainer(loaded.model, examples, settings())
    spoiled.train_step(np.arange(4))
    checkpoints = Checkpoints(tmp_path, "run", seconds=0)
    with pytest.raises(CompressionError, match="no longer finite at step 1 of 12"):
        spoiled._save(checkpoints)
    assert checkpoints.load("pruning") is None
