"""The identities under which a run finds what it computed before."""

from __future__ import annotations

import json
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any

import torch

from mvprune_core.base.storage import identity
from mvprune_core.models.loading import description_digest
from mvprune_core.runs.baselines import ON_THE_WAY
from mvprune_core.runs.resolved import ResolvedRun
from mvprune_core.runs.result import model_source, versions
from mvprune_core.tasks.classes import class_names


@dataclass(frozen=True)
class RunKeys:
    """Digests of everything that a result depends on.

    Attributes:
        dense: key of the dense baseline's weights in the cache.
        baseline: key of what was measured of it.
        targets: key of what the teacher wrote, in the cache.
        logits: key of the teacher's logits in the cache.
        checkpoints: identity of the run in its checkpoints.
    """

    dense: str
    baseline: str
    targets: str
    logits: str
    checkpoints: str


def run_keys(run: ResolvedRun) -> RunKeys:
    """The keys of a run. They also depend on the number of threads and on the versions of the packages."""
    settings = asdict(run.dense_settings)
    del settings["preset"]  # the epochs replace it
    # Those of evaluations during training change no result but the one that is kept.
    of_kind = sorted((name, value) for name, value in run.objective.options.items() if name != ON_THE_WAY)
    data: list[Any] = [run.data.task.name, run.data.fingerprint, of_kind]
    base = [
        [run.model.sha256, config_options(run.config), run.tokenizer],
        data,
        [run.spec.seed, str(run.device), torch.get_num_threads(), versions(), run.train.padding_side],
    ]
    if weights := run.objective.options.get("class_weights"):
        base.append(["class_weights", weights])
    if run.value_head is not None:
        base.append(list(astuple(run.value_head.scale)))
    exponent = settings.pop("lr_density_exponent")  # the dense model does not depend on it
    dense = identity(base, settings)
    source = run.named_teacher
    named = source and [model_source(source).sha256, description_digest(source)]
    teacher = run.teacher and [named, asdict(replace(run.teacher, model=None))]
    # In a run of one epoch or more, the teacher reads all examples.
    batches = run.settings.passes(len(run.train)) < 1 and [run.settings.batch_size, run.spec.seed, run.total_steps]
    read = [settings["max_length"], run.max_length, settings["precision"]]
    read += [run.tokenizer, class_names(run.config), batches]
    targets = identity(named or dense, data, read, versions())
    logits = identity([named, *data], read) if named else dense
    if run.teacher is not None and run.teacher.writes_targets:
        logits = identity(logits, targets)
    # After running out of memory, a run resumes with more accumulation steps.
    del settings["accumulation_steps"]
    settings["learning_rate"] = [run.settings.learning_rate, settings["learning_rate"]]
    mask = run.given_mask and run.given_mask.sha256
    spec = run.spec
    groups = [spec.structure, spec.structure_density, spec.structure_block_size, spec.structure_fill, spec.pattern]
    groups += [spec.layer_dropout] if spec.layer_dropout is not None else []
    groups += ["int8 activations"] if spec.rounds else []
    groups += [run.start.sha256] if run.start is not None else []
    groups += ["from the dense model"] if run.prunes_dense else []
    compared = [spec.metric, run.objective.options.get("threshold")]
    groups += ["compared by", *compared] if any(compared) else []
    options = [run.method.name, repr(run.method), run.density, groups, spec.include, spec.exclude, teacher, mask]
    task, test = run.data.task, run.test and run.test.objective.data.fingerprint
    baseline = identity(dense, "resampled", test, task.primary_metric, task.metrics, compared)
    return RunKeys(dense, baseline, targets, logits, identity(base, settings, exponent, options))


def config_options(config: Any) -> dict[str, Any]:
    """The options of a config, without the place where the model was found."""
    return {name: value for name, value in json.loads(config.to_json_string()).items() if not name.startswith("_")}
