"""Checks of a submitted job: all that can be known before it runs, every violation at once."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from mvprune.data import Columns, DataError, find_task_files, load_files
from mvprune.references import (
    KNOWN_SIZES,
    HubModel,
    InvalidReference,
    Roots,
    check_hub_id,
    inspect_model,
    resolve_model,
    resolve_path,
)
from mvprune.tasks import Task, TaskKind, UnknownTask, get_task
from mvprune.v1 import job_pb2
from mvprune_service.api.errors import Violation
from mvprune_service.executors.base import Capacity
from mvprune_service.ids import ID_PATTERN, ID_RULE

MAX_ATTEMPTS = 3
START_TIMEOUT_SECONDS = 900
_WARMUP, _COOLDOWN = 0.1, 0.2  # the contract's defaults
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}")
_METHODS = tuple(field.name for field in job_pb2.CompressionSpec.DESCRIPTOR.oneofs_by_name["method"].fields)


@dataclass(frozen=True)
class Bound:
    """An allowed range of numbers."""

    low: float
    high: float
    open_low: bool = False

    def __contains__(self, value: float) -> bool:
        return math.isfinite(value) and self.low <= value <= self.high and not (self.open_low and value == self.low)

    def __str__(self) -> str:
        return f"{'more than' if self.open_low else 'from'} {self.low:g} to {self.high:g}"


_TRAINING = {
    "max_steps": Bound(1, 10_000_000),
    "epochs": Bound(0, 1000, open_low=True),
    "batch_size": Bound(1, 4096),
    "learning_rate": Bound(0, 1, open_low=True),
    "weight_decay": Bound(0, 1),
    "max_length": Bound(8, 8192),
}
_RESOURCES = {"gpus": Bound(0, 1024), "cpus": Bound(0, 4096, open_low=True), "memory_bytes": Bound(1, 1 << 50)}


class Checker:
    """Collects the violations of one job."""

    def __init__(self, job: job_pb2.Job, job_id: str, roots: Roots) -> None:
        self._job = job
        self._job_id = job_id
        self._roots = roots
        self.violations: list[Violation] = []
        self.size: job_pb2.ModelSize | None = None

    def check(self) -> None:
        """Runs all checks. Reads the model's headers and the data files."""
        spec, policy = self._job.spec, self._job.policy
        if self._job_id and not ID_PATTERN.fullmatch(self._job_id):
            self._bad("job_id", self._job_id, ID_RULE)
        self._check_labels()
        self._check_density(spec.target_density)
        self._check_method(spec)
        self._check_numbers("job.spec.training", spec.training, _TRAINING)
        if spec.training.HasField("max_steps") and spec.training.HasField("epochs"):
            self._add("job.spec.training", "max_steps and epochs both given; allowed: one, which decides the length")
        if not 0 <= spec.seed < 1 << 32:
            self._bad("job.spec.seed", spec.seed, "from 0 to 4294967295")
        if spec.HasField("teacher"):
            self._add("job.spec.teacher", "distillation is not available yet; leave the teacher out")
        self._check_numbers("job.policy.resources", policy.resources, _RESOURCES)
        if not 0 <= policy.max_attempts <= 100:
            self._bad("job.policy.max_attempts", policy.max_attempts, f"1 to 100, or 0 for {MAX_ATTEMPTS}")
        if policy.HasField("start_timeout") and not 1 <= policy.start_timeout.seconds <= 86_400:
            self._bad("job.policy.start_timeout", f"{policy.start_timeout.seconds}s", "1 s to 1 day")
        self._check_model(spec)
        self._check_data(self._check_task(spec), spec)

    def check_feasible(self, capacity: Capacity) -> None:
        """Refuses resources that no node has."""
        asked = self._job.policy.resources
        for name, largest in (
            ("gpus", capacity.largest_gpus),
            ("cpus", capacity.largest_cpus),
            ("memory_bytes", capacity.largest_memory_bytes),
        ):
            if asked.HasField(name) and getattr(asked, name) > largest:
                self._bad(
                    f"job.policy.resources.{name}", getattr(asked, name), f"at most {largest:g}, the largest node's"
                )

    def _add(self, field: str, description: str) -> None:
        self.violations.append(Violation(field, description))

    def _bad(self, field: str, given: object, allowed: str) -> None:
        self._add(field, f"got {str(given)[:200]!r}; allowed: {allowed}")

    def _check_labels(self) -> None:
        if len(self._job.display_name) > 200:
            self._bad("job.display_name", f"{len(self._job.display_name)} characters", "at most 200")
        if len(self._job.labels) > 32:
            self._bad("job.labels", f"{len(self._job.labels)} labels", "at most 32")
        for key, value in self._job.labels.items():
            if not _LABEL.fullmatch(key):
                self._bad("job.labels", key, "keys of 1 to 63 letters, digits and . _ / -")
            if len(value) > 256:
                self._bad(f"job.labels.{key[:63]}", f"{len(value)} characters", "at most 256")

    def _check_density(self, density: float) -> None:
        if density not in Bound(0, 1, open_low=True):
            self._bad(
                "job.spec.target_density",
                density,
                "more than 0, up to 1: the fraction of weights that is kept (0.03 keeps 3 %)",
            )

    def _check_method(self, spec: job_pb2.CompressionSpec) -> None:
        method = spec.WhichOneof("method")
        if method is None:
            self._bad("job.spec.method", "", " or ".join(_METHODS))
            return
        options = getattr(spec, method)
        field = f"job.spec.{method}"
        self._check_numbers(field, options, {"score_learning_rate": Bound(0, 100, open_low=True)})
        schedule = options.schedule
        self._check_numbers(
            f"{field}.schedule", schedule, {"warmup": Bound(0, 1), "cooldown": Bound(0, 1, open_low=True)}
        )
        warmup = schedule.warmup if schedule.HasField("warmup") else _WARMUP
        both = warmup + (schedule.cooldown if schedule.HasField("cooldown") else _COOLDOWN)
        if both >= 1:
            self._bad(f"{field}.schedule", both, "warmup + cooldown below 1, so that steps are left to prune in")

    def _check_numbers(self, field: str, message: object, bounds: dict[str, Bound]) -> None:
        known = {found.name for found in message.DESCRIPTOR.fields}  # type: ignore[attr-defined]
        for name, bound in bounds.items():
            if name in known and message.HasField(name) and getattr(message, name) not in bound:  # type: ignore[attr-defined]
                self._bad(f"{field}.{name}", getattr(message, name), str(bound))

    def _check_model(self, spec: job_pb2.CompressionSpec) -> None:
        try:
            found = resolve_model(spec.model, self._roots)
            size = KNOWN_SIZES.get(found.id) if isinstance(found, HubModel) else inspect_model(found)
        except InvalidReference as error:
            self._add("job.spec.model", str(error))
            return
        if size is not None:
            self.size = job_pb2.ModelSize(
                total_parameters=size.total_parameters,
                encoder_parameters=size.encoder_parameters,
                prunable_weights=size.prunable_weights,
            )

    def _check_task(self, spec: job_pb2.CompressionSpec) -> Task | None:
        try:
            return get_task(spec.task)
        except UnknownTask as error:
            self._add("job.spec.task", str(error))
            return None

    def _check_data(self, task: Task | None, spec: job_pb2.CompressionSpec) -> None:
        dataset, field = spec.dataset, "job.spec.dataset"
        if dataset.hub_id:
            if dataset.train or dataset.validation:
                self._add(f"{field}.hub_id", "cannot be given together with train and validation files")
            try:
                check_hub_id(dataset.hub_id)
            except InvalidReference as error:
                self._add(f"{field}.hub_id", str(error))
        elif dataset.train or dataset.validation:
            train = self._data_path(f"{field}.train", dataset.train)
            validation = self._data_path(f"{field}.validation", dataset.validation)
            if task and train and validation:
                columns = Columns(
                    text=dataset.text_column or None,
                    text_pair=dataset.text_pair_column or None,
                    label=dataset.label_column or None,
                )
                self._check_files(task, train, validation, columns)
        elif task is None:
            return
        elif task.hub_id is None:
            self._add(field, f"the task {task.name} needs data: train and validation files, or a data set on the hub")
        elif self._roots.data is not None:
            found = find_task_files(task, self._roots.data)
            if found:
                self._check_files(task, *found, Columns())

    def _data_path(self, field: str, given: str) -> Path | None:
        if not given:
            self._add(field, "is missing: train and validation go together")
            return None
        try:
            return resolve_path(given, self._roots)
        except InvalidReference as error:
            self._add(field, str(error))
            return None

    def _check_files(self, task: Task, train: Path, validation: Path, columns: Columns) -> None:
        if task.kind is TaskKind.QUESTION_ANSWERING:
            return  # the worker reads these
        try:
            load_files(task, train, validation, columns)
        except DataError as error:
            at_validation = error.path is not None and Path(error.path) == validation
            self._add(f"job.spec.dataset.{'validation' if at_validation else 'train'}", str(error))


def with_defaults(policy: job_pb2.ExecutionPolicy) -> job_pb2.ExecutionPolicy:
    """The policy with its defaults written out."""
    filled = job_pb2.ExecutionPolicy()
    filled.CopyFrom(policy)
    filled.max_attempts = filled.max_attempts or MAX_ATTEMPTS
    if not filled.HasField("start_timeout"):
        filled.start_timeout.seconds = START_TIMEOUT_SECONDS
    return filled
