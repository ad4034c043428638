"""The metrics of an artifact on a data set, measured as when the artifact was made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from mvprune.artifact import Manifest
from mvprune.data.columns import NamedColumnMissing
from mvprune.data.hypotheses import Hypotheses
from mvprune.data.loading import Columns, DataError, load_validation
from mvprune.data.tasks import get_task
from mvprune.runtime import Used, used
from mvprune.runtime.kernel import Activations
from mvprune.runtime.rounding import int8_simulated
from mvprune_core.base.errors import CompressionError
from mvprune_core.models.artifact_loading import Opened, Runtime, check_entailment, open_artifact
from mvprune_core.models.forward import padding_side
from mvprune_core.tasks import Objective, TaskData, measured_by, objective_for
from mvprune_core.tasks.metrics import import_packages
from mvprune_core.tasks.passes import counted
from mvprune_core.tasks.probes import probes
from mvprune_core.tasks.sources import load_task
from mvprune_core.tasks.zero_shot import zero_shot


class CannotEvaluate(ValueError):
    """The data does not fit the artifact; the message says why, in one sentence."""


@dataclass(frozen=True)
class Evaluated:
    """The result of an evaluation.

    Attributes:
        manifest: of the artifact.
        task: the task's name.
        runtime: dense or sparse.
        activations: int8 if a layer of the sparse runtime uses them, or all of a dense model simulate them; else fp32.
        rows: number of texts, questions or sentences that were evaluated.
        metrics: fractions, correlations or a perplexity, by name.
        recorded: the values of the same metrics in the manifest.
        same_data: whether the recorded metrics were measured on the same data. None: unknown, since the manifest has
            one fingerprint for the data of training and evaluation together.
        notes: which columns of the data were read, and what was guessed, was replaced or looks wrong in it.
    """

    manifest: Manifest
    task: str
    runtime: str
    activations: str
    rows: int
    metrics: Mapping[str, float]
    recorded: Mapping[str, float]
    same_data: bool | None
    notes: tuple[str, ...]


def evaluate(
    directory: str | Path,
    data: str | Path | None = None,
    *,
    task: str | None = None,
    columns: Columns = Columns(),  # noqa: B008 (immutable)
    base: str | Path | None = None,
    runtime: Runtime = "dense",
    activations: Activations | None = None,
    hypotheses: Hypotheses | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Evaluated:
    """Evaluates an artifact as `compress` did when it made it: the same data gives the same metrics.

    Args:
        directory: the artifact.
        data: a file to evaluate on, see `mvprune.data.load_files`; None: the task's own validation data, in the folder
            MVPRUNE_DATA or on the hub. A file that the manifest names is never opened: its path is of another machine.
        task: another task of the same kind in place of the manifest's, such as text-classification for other columns.
        columns: names of columns; None: those that the artifact's data had by its manifest, if the file has them; else
            found by name.
        base: the base model's folder, for a delta artifact.
        runtime: dense, on a GPU where there is one, or sparse, see `mvprune.load`.
        activations: int8: of the sparse runtime in the layers that are faster so; simulated in all layers of the dense
            one, as when the artifact was made. None: what the manifest says.
        hypotheses: the labels of texts that a model of natural language inference chooses from; None: its own classes.
        progress: receives the number of inputs done and of all inputs.

    Raises:
        ArtifactError: the artifact is not valid.
        CannotEvaluate: what is wrong with the data, or between it and the model.
    """
    opened = open_artifact(directory, task=task, base=base, runtime=runtime, activations=activations)
    try:
        objective = _objective(opened, data, columns, hypotheses)
        import_packages(objective.imports)
        metrics = _measure(opened, objective, runtime, progress)
        if not metrics:
            raise CannotEvaluate(
                f"the task {opened.task.name} measures against the given model, which an artifact does not have; name "
                "a task that needs none, such as retrieval or sentence-similarity, and its data"
            )
    except (DataError, CompressionError) as error:
        raise CannotEvaluate(str(error)) from error
    runs = used(opened.loaded.model, runtime, opened.activations)
    if runtime == "dense":
        runs = replace(runs, activations=opened.activations)
    found: Any = objective.data
    of_manifest = opened.manifest.metrics if hypotheses is None else {}
    recorded = {name: of_manifest.get(f"eval/{name}") for name in metrics}
    return Evaluated(
        manifest=opened.manifest,
        task=found.task.name,
        runtime=runtime,
        activations=runs.activations,
        rows=len(found.validation),
        metrics=metrics,
        recorded={name: value for name, value in recorded.items() if value is not None},
        same_data=_is_same(opened.manifest, found),
        notes=(*found.columns, *found.notes, *_notes_on_activations(opened.manifest.activations, runs)),
    )


def _notes_on_activations(own: Activations, runs: Used) -> tuple[str, ...]:
    if runs.activations_reason:
        return (f"activations stayed fp32: {runs.activations_reason}",)
    if runs.activations == own == "fp32":
        return ()
    simulated = ", simulated on the dense model" * (runs.runtime == "dense" and runs.activations != "fp32")
    of_manifest = ", as the artifact says" if runs.activations == own else f"; the metrics in the manifest are of {own}"
    return (f"activations are {runs.activations}{simulated}{of_manifest}",)


def _objective(opened: Opened, path: str | Path | None, columns: Columns, hypotheses: Hypotheses | None) -> Objective:
    if hypotheses is None:
        data = measured_by(_data(opened, path, columns), opened.task.primary_metric)
        objective = objective_for(data, opened.manifest.spec)
        try:
            objective.class_order(opened.loaded.config)
        except ValueError as error:
            raise CannotEvaluate(str(error)) from error
        return objective
    if path is None:
        raise CannotEvaluate("labels to choose from need a file to evaluate on (--data)")
    check_entailment(opened)
    task = get_task("text-classification")
    return zero_shot(hypotheses, load_validation(task, Path(path), hypotheses.labels, columns))


def _data(opened: Opened, path: str | Path | None, columns: Columns) -> TaskData:
    if path is not None:
        return _read(opened, Path(path), columns)
    if opened.task.hub_id is None:
        raise CannotEvaluate(f"the task {opened.task.name} has no data of its own; name a file to evaluate on (--data)")
    return load_task(opened.task.name, columns=columns)


def _read(opened: Opened, path: Path, columns: Columns) -> TaskData:
    """A file to evaluate on. Names of columns that the submitted options had count where the file has these columns."""
    recorded = opened.manifest.spec.get("dataset")
    names = recorded.items() if isinstance(recorded, Mapping) else ()
    given = SimpleNamespace(**{key: name for key, name in names if isinstance(name, str)})
    try:
        return load_validation(opened.task, path, opened.labels, columns.or_else(Columns.named_in(given)))
    except NamedColumnMissing as error:
        try:
            return load_validation(opened.task, path, opened.labels, columns)
        except DataError as other:
            raise (other if columns == Columns() else error) from None


def _measure(
    opened: Opened, objective: Objective, runtime: str, progress: Callable[[int, int], None]
) -> dict[str, float]:
    model = opened.loaded.model
    examples = objective.validation_examples(opened.loaded.tokenizer, opened.loaded.config, opened.max_length)
    side = padding_side(model, (examples, probes(opened.loaded.tokenizer, opened.max_length)))
    examples = replace(examples, padding_side=side)
    device = torch.device("cuda" if runtime == "dense" and torch.cuda.is_available() else "cpu")
    rounds = runtime == "dense" and opened.activations == "int8"
    with (
        counted(model, lambda done: progress(done, len(examples))),
        int8_simulated(model.to(device)) if rounds else nullcontext(),
    ):
        return objective.measure(objective.predict(model.to(device), examples, device))


def _is_same(manifest: Manifest, data: TaskData) -> bool | None:
    if len(data.validation) != manifest.dataset.validation_rows:
        return False
    return manifest.dataset.fingerprint == data.fingerprint if data.train else None
