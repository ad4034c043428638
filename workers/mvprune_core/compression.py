"""The whole way: load, dense baseline, prune while fine-tuning, fold, evaluate, count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from mvprune.artifact import Accounting, ArtifactError, DatasetSource, ResultInfo, round_values
from mvprune.tasks import Task
from mvprune_core.accounting import account
from mvprune_core.callbacks import Callback
from mvprune_core.errors import CompressionError, Reason
from mvprune_core.masking import Masks, prunable_layers
from mvprune_core.methods import Method, get_method
from mvprune_core.models import Loaded, Source, find_model, load_model, longest_input
from mvprune_core.result import Result, model_source, versions
from mvprune_core.tasks import Objective, TaskData, objective_for
from mvprune_core.training import BASE_WIDTH, Settings, Training, train

_DENSITY_TOLERANCE = 0.1  # relative


def compress(
    model: str | Path | Source,
    data: TaskData,
    *,
    method: str | Method = "movement",
    density: float,
    training: Training = Training(),  # noqa: B008 (immutable)
    seed: int = 0,
    device: str | None = None,
    callback: Callback | None = None,
    dense_baseline: bool = True,
    revision: str | None = None,
) -> Result:
    """Fine-tunes a Transformer on a task while pruning it.

    The dense baseline is the model as it is where it is fine-tuned for the task already, else the model fine-tuned with
    the same settings, steps and seed. Pruning starts from the original weights either way. What is evaluated in the end
    is what the artifact stores: masks folded in, values rounded as the format does.

    Args:
        model: a folder, a name under MVPRUNE_MODELS, a hub id, or what `find_model` made of one.
        data: of `load_task`.
        method: name or options of the method.
        density: fraction of the prunable weights to KEEP, in (0, 1]; 0.03 is the "3 %" of the literature.
        training: fine-tuning settings; unset ones are the task's.
        seed: of new heads, batches, dropout and ties. The same seed and number of threads give the same model.
        device: a torch device; by default a GPU where there is one.
        callback: is told about phases, steps and evaluations.
        dense_baseline: whether to evaluate the dense model too; False saves its training.
        revision: of a model of the hub.

    Raises:
        ValueError: an argument out of its range, or a run too short for the schedule.
        CompressionError: everything that is wrong with the model or the run; `reason` says what.
    """
    if not 0 < density <= 1:
        raise ValueError(f"density: {density} given; a fraction in (0, 1] is allowed: the part of the weights to keep")
    chosen, objective, tell = get_method(method), objective_for(data), callback or Callback()
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    with _memory_errors():
        tell.on_phase("loading")
        source = model if isinstance(model, Source) else find_model(model, revision)
        loaded = load_model(source, objective, seed)
        prunable_layers(loaded.model)
        settings = training.settings(data.task, getattr(loaded.config, "hidden_size", BASE_WIDTH))
        run = _Run(objective, settings, seed, place, tell, loaded)
        chosen.schedule.check(run.total_steps)
        metrics: dict[str, float] = {}
        if dense_baseline:
            metrics |= {f"dense/{name}": value for name, value in run.dense(loaded).items()}
            if not loaded.fine_tuned:
                loaded = load_model(source, objective, seed)
        pruned = run.prune(loaded, chosen, density)
        accounting, layers = account(loaded.model, pruned, density)
        _check_density(accounting)
        evaluated = run.evaluate(loaded, "pruning", run.total_steps)
        metrics |= {f"eval/{name}": value for name, value in evaluated.items()}
        metrics |= {
            f"delta/{name}": value - metrics[f"dense/{name}"] for name, value in evaluated.items() if dense_baseline
        }
        loaded.model.cpu()
    info = ResultInfo(
        spec=_spec(source, data.task, chosen, density, settings, seed),
        model=model_source(source),
        dataset=DatasetSource(data.task.name, data.fingerprint, len(data.train), len(data.validation)),
        metrics=metrics,
        primary_metric=data.task.primary_metric,
        accounting=accounting,
        layers=layers,
        versions=versions(),
        seed=seed,
    )
    return Result(loaded.model, loaded.tokenizer, pruned, info)


class _Run:
    """What the dense and the pruning phase share: examples, settings, seed and device."""

    def __init__(
        self,
        objective: Objective,
        settings: Settings,
        seed: int,
        device: torch.device,
        callback: Callback,
        loaded: Loaded,
    ) -> None:
        self.objective, self.settings, self.seed, self.device, self.callback = (
            objective,
            settings,
            seed,
            device,
            callback,
        )
        self.max_length = longest_input(loaded, settings.max_length)
        self.examples = objective.training_examples(loaded.tokenizer, loaded.config, self.max_length)
        self.total_steps = settings.total_steps(len(self.examples))

    def dense(self, loaded: Loaded) -> dict[str, float]:
        steps = 0
        if not loaded.fine_tuned:
            steps = self.total_steps
            self._train(loaded, None)
        return self.evaluate(loaded, "dense", steps)

    def prune(self, loaded: Loaded, method: Method, density: float) -> tuple[str, ...]:
        masks = Masks(loaded.model, method, target=density, seed=self.seed)
        self._train(loaded, masks)
        masks.fold()
        try:
            round_values(loaded.model)
        except ArtifactError as error:
            raise CompressionError(
                Reason.NAN_LOSS,
                f"training went astray ({error}); lower the learning rate ({self.settings.learning_rate:g})",
            ) from error
        return masks.weight_names

    def evaluate(self, loaded: Loaded, phase: str, step: int) -> dict[str, float]:
        self.callback.on_phase("evaluating")
        loaded.model.to(self.device)
        metrics = self.objective.evaluate(loaded.model, loaded.tokenizer, self.max_length, self.device)
        self.callback.on_evaluate(phase, step, metrics)
        return metrics

    def _train(self, loaded: Loaded, masks: Masks | None) -> None:
        self.callback.on_phase("dense" if masks is None else "pruning")
        train(
            loaded.model.to(self.device),
            self.examples,
            self.settings,
            seed=self.seed,
            device=self.device,
            callback=self.callback,
            masks=masks,
        )


def _check_density(accounting: Accounting) -> None:
    asked, reached = accounting.target_density, accounting.density
    if abs(reached - asked) > _DENSITY_TOLERANCE * asked:
        raise CompressionError(
            Reason.DENSITY_NOT_REACHED,
            f"density {asked:g} was asked for and {reached:g} reached ({accounting.kept_weights:,} of "
            f"{accounting.prunable_weights:,} weights), which is off by more than 10 %; "
            "take a density that the model's matrices are large enough for",
        )


def _spec(
    source: Source, task: Task, method: Method, density: float, settings: Settings, seed: int
) -> Mapping[str, Any]:
    return {
        "model": source.name,
        "model_revision": source.revision,
        "task": task.name,
        "method": {method.name: asdict(method)},
        "target_density": density,
        "training": {name: value for name, value in asdict(settings).items() if value is not None},
        "seed": seed,
    }


@contextmanager
def _memory_errors() -> Iterator[None]:
    advice = "take a smaller batch_size or max_length, or a machine with more memory"
    try:
        yield
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise CompressionError(Reason.OUT_OF_MEMORY, f"the memory is used up; {advice}") from error
    except RuntimeError as error:
        if "DefaultCPUAllocator" not in str(error):  # torch has no class of its own for the CPU
            raise
        raise CompressionError(Reason.OUT_OF_MEMORY, f"the memory is used up; {advice}") from error
