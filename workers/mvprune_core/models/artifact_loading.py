"""Loading an artifact, to evaluate it or to predict with it: its model, its tokenizer and its task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import transformers

from mvprune.artifact import ArtifactError, Manifest, read_manifest
from mvprune.data.tasks import Task, UnknownTask, get_task
from mvprune.runtime import load
from mvprune.runtime._optimize import check_activations
from mvprune.runtime.kernel import Activations
from mvprune.sources.model_config import check_tokenizer
from mvprune_core.base.hub import first_line
from mvprune_core.models.forward import without_batch_effects
from mvprune_core.models.loading import Loaded, fit_tokenizer, longest_input, quiet
from mvprune_core.tasks import objective_of_kind
from mvprune_core.tasks.classes import class_names, entailment

Runtime = Literal["dense", "sparse"]


@dataclass(frozen=True)
class Opened:
    """A loaded artifact.

    Attributes:
        manifest: its manifest.
        task: the task that it is for.
        loaded: the model, on the CPU and in evaluation mode, and the tokenizer.
        labels: names of the model's classes or tags in the order of its logits.
        max_length: tokens of an input, as in training; longer inputs are cut.
        activations: those that were asked for, or the artifact's. A dense model computes in fp32 nevertheless, except
            in `mvprune.runtime.rounding.int8_simulated`.
    """

    manifest: Manifest
    task: Task
    loaded: Loaded
    labels: tuple[str, ...]
    max_length: int
    activations: Activations


def open_artifact(
    directory: str | Path,
    *,
    task: str | None = None,
    base: str | Path | None = None,
    runtime: Runtime = "dense",
    activations: Activations | None = None,
) -> Opened:
    """Verifies and loads an artifact with its tokenizer; nothing is downloaded and no code of the artifact is run.

    Args:
        directory: the artifact.
        task: a task other than the manifest's.
        base: the base model's folder, for a delta artifact.
        runtime: dense or sparse, see `mvprune.load`.
        activations: see `Opened`; None: the artifact's.

    Raises:
        ArtifactError: the artifact is not valid, or its model does not do such a task.
        ValueError: there are no such activations.
    """
    check_activations(activations or "fp32")
    manifest = read_manifest(directory)
    try:
        known = get_task(task or manifest.dataset.name, manifest.primary_metric)
    except UnknownTask as error:
        raise ArtifactError(f"{error}" if task else f"manifest.json: dataset.name: {error}") from error
    model: Any = load(directory, base, runtime=runtime, activations=activations if runtime == "sparse" else None)
    if not _has_head(model, known.kind.head):
        raise ArtifactError(
            f"{directory}: the model must have the head {known.kind.head} for {known.kind.name}, the task "
            f"{known.name}, got a {type(model).__name__}"
        )
    labels = tuple(class_names(model.config))
    if flaw := objective_of_kind(known.kind).flaw_of_head(labels):
        raise ArtifactError(f"{directory}: the model {flaw}, for the task {known.name}")
    without_batch_effects(model)
    loaded = Loaded(model, _tokenizer(directory, model), fine_tuned=True)
    length = longest_input(loaded, _max_length(manifest, known))
    return Opened(manifest, known, loaded, labels, length, activations or manifest.activations)


def check_entailment(opened: Opened) -> None:
    """Raises ArtifactError, unless the model says whether a text entails another one."""
    try:
        if not _has_head(opened.loaded.model, "SequenceClassification"):
            raise ValueError(
                f"the model must be one of natural language inference, got one for {opened.task.kind.name}"
            )
        entailment(opened.loaded.config)
    except ValueError as error:
        raise ArtifactError(str(error)) from error


def _has_head(model: Any, head: str) -> bool:
    if head and type(model).__name__.endswith(f"For{head}"):
        return True
    auto_class: Any = getattr(
        transformers, f"AutoModelFor{head}" if head else "AutoModel", None
    )  # GPT2LMHeadModel is one for CausalLM
    return auto_class is not None and auto_class._model_mapping.get(type(model.config), None) is type(model)


def _tokenizer(directory: str | Path, model: Any) -> Any:
    try:
        check_tokenizer(Path(directory))
        with quiet():
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                directory, config=model.config, trust_remote_code=False, local_files_only=True
            )
        fit_tokenizer(str(directory), tokenizer, model)
    except Exception as error:  # transformers raises almost anything over files that it cannot use
        raise ArtifactError(f"{directory}: its tokenizer cannot be used: {first_line(error)}") from error
    return tokenizer


def _max_length(manifest: Manifest, task: Task) -> int:
    training = manifest.spec.get("training")
    given = training.get("max_length") if isinstance(training, Mapping) else None
    return given if type(given) is int and given > 0 else task.max_length
