"""Checks of a submitted job: all that can be known before it runs, every violation at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from mvprune.artifact.masks import Inspect, inspect_mask
from mvprune.common.excerpts import hidden
from mvprune.common.identifiers import ID_PATTERN, ID_RULE
from mvprune.data.loading import Columns, DataError, TaskFiles, find_task_files
from mvprune.data.tasks import Task, UnknownTask, get_task
from mvprune.data.textfiles import check_file, expanded_limit
from mvprune.sources.buckets import bucket_path
from mvprune.sources.known_models import KNOWN_SIZES
from mvprune.sources.model_folder import inspect_model
from mvprune.sources.references import (
    HubModel,
    InvalidReference,
    Roots,
    check_hub_id,
    check_inside,
    check_new,
    check_revision,
    resolve_model,
    resolve_path,
)
from mvprune.sources.schemes import shown as in_words
from mvprune.sources.uploads import is_upload, parse
from mvprune.spec.given import options_of
from mvprune.v1 import job_pb2
from mvprune_service.api.access.errors import Violation, bad
from mvprune_service.api.checks.architectures import check_architecture, check_kept
from mvprune_service.api.checks.data_checks import SECONDS, DataChecks, Files, Problem
from mvprune_service.api.checks.model_checks import ModelCheck, ModelChecks
from mvprune_service.api.checks.names import check_labels, check_name
from mvprune_service.api.checks.options import check_options, check_steps
from mvprune_service.api.checks.policies import check_gates, check_policy, check_ranks, notes_on_cpus, notes_on_ranks
from mvprune_service.api.checks.uploaded import Uploaded
from mvprune_service.db.upload_uses import NoUpload
from mvprune_service.domain.method import fill_method
from mvprune_service.domain.placement import Reserved, can_hold, together, workers_of
from mvprune_service.domain.run_length import Rows, known_steps, notes_on_length, outlook
from mvprune_service.domain.uploading import references
from mvprune_service.executors.base import Capacity
from mvprune_service.fair import SERVER

MAX_CHECKED_BYTES = 256 << 20  # of a job's files together: the worker checks larger ones, a client waits for 30 s


class Checker:
    """Collects the violations of one job. Chooses its method where none is given.

    Args:
        models: what was found out about models; checkers of several jobs that share it read each model once.
        uploaded: the project's uploads; None: there are none.
        in_sweep: whether the job is a point of a sweep.
        data: reads data files.
        owner: the project.
        deadline: when data files must have been checked, of time.monotonic; None: in a while from now.

    Attributes:
        violations: what is wrong.
        notes: what should be known of the job.
        size: of the model; None where it is not known.
        steps: of each training; 0 where only the worker knows them.
        outlook: the phases.
    """

    def __init__(
        self,
        job: job_pb2.Job,
        job_id: str,
        roots: Roots,
        models: ModelChecks | None = None,
        uploaded: Uploaded | None = None,
        *,
        in_sweep: bool = False,
        data: DataChecks | None = None,
        owner: str = SERVER,
        deadline: float | None = None,
    ) -> None:
        self._job = job
        self._job_id = job_id
        self._roots = roots
        self._models = {} if models is None else models
        self._uploaded = uploaded
        self._in_sweep = in_sweep
        self._data = data or DataChecks()
        self._owner = owner
        self._deadline = time.monotonic() + SECONDS if deadline is None else deadline
        self.violations: list[Violation] = []
        self.notes, self.length_notes = tuple[str, ...](), tuple[str, ...]()
        self._rows: Rows | None = None
        self.size: job_pb2.ModelSize | None = None
        self.steps = 0
        self.outlook = job_pb2.JobEstimate()

    @property
    def reads_files(self) -> bool:
        """Whether `check` may have to wait for a disk."""
        spec, roots = self._job.spec, self._roots
        others = {spec.teacher.model, spec.locked_mask.mask_from.model}
        known = spec.model in KNOWN_SIZES and others <= {"", *KNOWN_SIZES} and not references(spec)
        return not known or spec.dataset.train != "" or roots.models is not None or roots.data is not None

    def check(self) -> None:
        """Runs all checks. Reads the model's headers and the data files."""
        job, spec, policy = self._job, self._job.spec, self._job.policy
        if self._job_id and not ID_PATTERN.fullmatch(self._job_id):
            self._bad("job_id", self._job_id, ID_RULE)
        self.violations += check_name("job.display_name", job.display_name)
        self.violations += check_labels("job.labels", job.labels)
        task = self._check_task(spec)
        self.size = self._check_model("job.spec.model", spec.model)
        self._check_data(task, spec)
        self.notes += tuple(filter(None, [fill_method(spec, self._rows)]))
        self.violations += check_options(spec, task, in_sweep=self._in_sweep)
        self.violations += check_policy(policy)
        if task is not None:
            self.violations += check_ranks(policy.resources, spec.training.batch_size or task.batch_size)
        if (found := self._models[spec.model, inspect_model].architecture) is not None:
            refused = {violation.field for violation in self.violations}  # these say nothing about the model yet
            of_model = check_architecture(spec, found, in_sweep=self._in_sweep)
            self.violations += [violation for violation in of_model if violation.field not in refused]
        fields = {violation.field for violation in self.violations}
        if self.size is not None and not (self._in_sweep or spec.include or "job.spec.target_density" in fields):
            self.violations += check_kept(spec, self.size.prunable_weights, is_exact=False)
        self._check_revision("job.spec.model_revision", spec.model_revision)
        self._check_mask(spec.locked_mask.mask_from)
        self.violations += check_gates(self._job, task)
        length = spec.training.max_length
        if task is not None and spec.training.HasField("max_length") and length < task.kind.min_tokens:
            self._bad("job.spec.training.max_length", length, f"at least {task.kind.min_tokens} for {task.kind.name}")
        if spec.HasField("teacher"):
            self._check_teacher(spec.teacher)
        self.steps = known_steps(spec.training, task, self._rows)
        self.violations += self._check_steps()
        if task is not None and not self.violations:
            self.length_notes = tuple(notes_on_length(spec, task, self._rows))
            self.notes += self.length_notes
            self.outlook = outlook(spec, task, self._rows)
        self.notes += tuple(notes_on_ranks(policy.resources))
        if self._uploaded is not None:
            self.notes += tuple(self._uploaded.notes)

    @property
    def knows_shapes(self) -> bool:
        """Whether the shapes of the model's matrices are known, once `check` has run."""
        model, found = self._job.spec.model, self._models.get((self._job.spec.model, inspect_model))
        return model in KNOWN_SIZES or bool(found and found.architecture and found.architecture.shapes)

    def train_rows(self) -> int:
        """The rows to train on; 0 where they are not known. Reads the data files."""
        self._check_data(self._check_task(self._job.spec), self._job.spec)
        return 0 if self._rows is None else self._rows.number

    def check_feasible(self, capacity: Capacity) -> None:
        """Refuses resources that the nodes do not have. While there are no nodes, nobody knows."""
        resources, field = self._job.policy.resources, "job.policy.resources"
        if any(violation.field.startswith(field) for violation in self.violations):
            return
        asked = together(resources)
        if not capacity.nodes or can_hold(capacity, asked):
            self.notes += tuple(notes_on_cpus(resources, capacity))
            return
        apart = Reserved(asked.cpus, asked.gpus, asked.memory_bytes, workers_of(resources))
        if can_hold(capacity, apart):
            self.notes += (f"no node has what {apart.parts} workers need together: they share several nodes",)
            return
        largest = Reserved(capacity.largest_cpus, capacity.largest_gpus, capacity.largest_memory_bytes)
        every = Reserved(capacity.cpus, capacity.gpus, capacity.memory_bytes)
        for wanted, most, whose in (
            (apart.part, largest, "the largest node's"),
            (asked, every, f"that of all nodes, for {apart.parts} workers together"),
        ):
            too_large = [
                name for name in ("gpus", "cpus", "memory_bytes") if getattr(wanted, name) > getattr(most, name)
            ]
            for name in too_large:
                self._bad(f"{field}.{name}", getattr(wanted, name), f"at most {getattr(most, name):,.15g}, {whose}")
            if too_large:
                return
        self._add(field, "must be what one node has, got more; a worker runs on one node")

    def check_teachers_base(self, field: str, teacher: job_pb2.CompressionSpec) -> None:
        """Refuses a teacher's job whose artifact needs a base model that may not be read any more."""
        try:
            if teacher.delta and not (is_upload(teacher.model) or bucket_path(teacher.model, self._roots)):
                resolve_model(teacher.model, self._roots)
        except InvalidReference as error:
            self._add(field, f"must be a job whose base model can be read, got one whose artifact is a delta: {error}")

    def _check_steps(self) -> Iterator[Violation]:
        """Rules about the number of steps, where it is known and the options that they are about are right."""
        spec = self._job.spec
        method = spec.WhichOneof("method")
        about = ("job.spec.training", f"job.spec.{method}", "job.spec.method")
        if self.steps and not any(violation.field.startswith(about) for violation in self.violations):
            yield from check_steps(spec, self.steps)

    def _add(self, field: str, description: str) -> None:
        self.violations.append(Violation(field, self._roots.describe(description)))

    def _bad(self, field: str, given: object, rule: str) -> None:
        self.violations.append(bad(field, given, rule))

    def _check_model(self, field: str, reference: str, inspect: Inspect = inspect_model) -> job_pb2.ModelSize | None:
        key = reference, inspect
        if key not in self._models:
            self._models[key] = self._look_at_model(reference, field.removeprefix("job.spec."), inspect)
        checked = self._models[key]
        if checked.problem:
            self._add(field, checked.problem)
        return checked.size

    def _look_at_model(self, reference: str, what: str, inspect: Inspect) -> ModelCheck:
        if reference in KNOWN_SIZES and self._roots.models is None:
            return _known_model(reference, self._roots)
        try:
            check_new(reference)
            if is_upload(reference):
                return ModelCheck.of(self._sent(reference).size_of(reference, what, inspect))
            if bucket_path(reference, self._roots):
                return ModelCheck()  # the worker looks into it
            found = resolve_model(reference, self._roots)
            with hidden(when=self._roots.discreet):
                size = KNOWN_SIZES.get(found.id) if isinstance(found, HubModel) else inspect(found)
        except InvalidReference as error:
            return ModelCheck(problem=str(error))
        return ModelCheck.of(size)

    def _check_revision(self, field: str, revision: str) -> None:
        try:
            if revision:
                check_revision(revision)
        except InvalidReference as error:
            self._add(field, str(error))

    def _check_teacher(self, teacher: job_pb2.Teacher) -> None:
        if teacher.WhichOneof("source") == "model":
            self._check_model("job.spec.teacher.model", teacher.model)
        self._check_revision("job.spec.teacher.revision", teacher.revision)

    def _check_mask(self, mask: job_pb2.Mask) -> None:
        """The model or artifact whose zeros are the mask. A job is checked elsewhere, zeros by the worker."""
        field = "job.spec.locked_mask.mask_from"
        if mask.model:
            size, own = self._check_model(f"{field}.model", mask.model, inspect_mask), self.size
            if size is not None and own is not None and size.encoder_parameters != own.encoder_parameters:
                rule = "must be a model of the architecture and the size of the one that is pruned"
                counts = f"{size.encoder_parameters:,} parameters in its blocks in place of {own.encoder_parameters:,}"
                self._add(f"{field}.model", f"{rule}, got {in_words(mask.model)[:200]!r}, which has {counts}")
        self._check_revision(f"{field}.revision", mask.revision)

    def _check_task(self, spec: job_pb2.CompressionSpec) -> Task | None:
        try:
            return get_task(spec.task, spec.metric)
        except UnknownTask as error:
            self._add("job.spec.task", str(error))
            return None

    def _check_data(self, task: Task | None, spec: job_pb2.CompressionSpec) -> None:
        dataset, field = spec.dataset, "job.spec.dataset"
        test = self._test_path(f"{field}.test", dataset)
        if dataset.hub_id:
            if dataset.train or dataset.validation:
                self._bad(f"{field}.hub_id", dataset.hub_id, "unset beside train and validation files")
            try:
                check_hub_id(dataset.hub_id)
                self._not_opened(f"the data set {dataset.hub_id} of the Hub")
            except InvalidReference as error:
                self._add(f"{field}.hub_id", str(error))
        elif dataset.train or dataset.validation:
            train = self._data_path(f"{field}.train", dataset.train)
            validation = self._data_path(f"{field}.validation", dataset.validation)
            if task and train and validation:
                self._check_files(task, TaskFiles(train, validation), test)
                return
            if train or validation:  # the other one is elsewhere
                self._not_opened(in_words(dataset.train if train else dataset.validation))
        elif task is None:
            return
        elif task.hub_id is None:
            self._bad(field, "", f"train and validation files or a data set on the hub for the task {task.name}")
        elif self._roots.data is not None:
            found = find_task_files(task, self._roots.data)
            if found and self._are_inside(field, found):
                self._check_files(task, found, test)
                return
        if test is not None:
            self._not_opened(in_words(dataset.test))

    def _test_path(self, field: str, dataset: job_pb2.Dataset) -> Path | None:
        """Where the test file is, if it can be read here."""
        if not dataset.test:
            return None
        if dataset.test in (dataset.train, dataset.validation):
            rule = "another file than train and validation; give examples that the search has not seen, or leave it out"
            self._bad(field, in_words(dataset.test), rule)
            return None
        if dataset.hold_out:
            self._bad("job.spec.dataset.hold_out", "true", "unset beside a test file")
        return self._data_path(field, dataset.test)

    def _are_inside(self, field: str, files: TaskFiles) -> bool:
        try:
            for path in files.paths:
                check_inside(path, self._roots)
        except InvalidReference as error:
            self._add(field, str(error))
            return False
        return True

    def _not_opened(self, what: str) -> None:
        """Notes what only the worker reads."""
        note = f"not opened here: {what}; the worker checks it"
        self.notes += () if note in self.notes else (note,)

    def _data_path(self, field: str, given: str) -> Path | None:
        """Where a file is that can be read here; None for one in a bucket too."""
        if not given:
            self._bad(field, given, "a file; train and validation go together")
            return None
        try:
            check_new(given)
            if is_upload(given):
                return self._sent(given).path_of(given, field.removeprefix("job.spec.dataset."), MAX_CHECKED_BYTES)
            if bucket_path(given, self._roots) is None:
                return resolve_path(given, self._roots)
            self._not_opened(in_words(given))
            return None
        except InvalidReference as error:
            self._add(field, str(error))
            return None

    def _sent(self, reference: str) -> Uploaded:
        if self._uploaded is None:
            raise InvalidReference(str(NoUpload(reference)))
        return self._uploaded

    def _check_files(self, task: Task, files: TaskFiles, test: Path | None) -> None:
        splits = (task.name, files.train, files.validation, files.more_validation)
        of_data = {"metric", *task.kind.options}
        options = tuple(sorted(each for each in options_of(self._job.spec).items() if each[0] in of_data))
        columns = Columns.named_in(self._job.spec.dataset)
        wanted = Files(*splits, test=test, columns=columns, discreet=self._roots.discreet, options=options)
        try:
            found = [check_file(path) for path in wanted.paths]
        except DataError as error:
            self._add_data_error(wanted.problem(error))
            return
        states = tuple((one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for one in found)
        limits = (expanded_limit(path, one.st_size) for path, one in zip(wanted.paths, found, strict=True))
        if sum(limits) > MAX_CHECKED_BYTES:
            self._not_opened(f"the data, as files of more than {MAX_CHECKED_BYTES >> 20} MiB in total")
            return
        dataset = self._job.spec.dataset
        given = (dataset.train, dataset.validation, *([dataset.test] if dataset.test else []))
        key = given if all(map(is_upload, given)) else (wanted.paths, states)  # the content of an upload never changes
        checked = self._data.check(wanted, key, owner=self._owner, deadline=self._deadline)
        if checked.unchecked:
            why = checked.unchecked
            self.notes += (f"the rows of train and validation were not checked: {why}; the worker checks them",)
        elif checked.problem is not None:
            self._add_data_error(checked.problem)
        else:
            for option, text in checked.options:
                self._add(f"job.spec.{option}", text)
            self.notes = checked.notes
            known = checked.rows is not None
            self._rows = Rows(checked.rows or 0, checked.has_pairs, checked.validation) if known else None

    def _add_data_error(self, problem: Problem) -> None:
        name, text = problem.parameter, problem.text
        given = getattr(self._job.spec.dataset, name)
        if is_upload(given):
            text = text.replace(problem.path, parse(given).name)
        self._add(f"job.spec.dataset.{name}", text)


@lru_cache(1_000)
def _known_model(reference: str, roots: Roots) -> ModelCheck:
    """The facts about a model of the Hub whose size is known, if the roots, which hold no models, allow it."""
    try:
        resolve_model(reference, roots)
    except InvalidReference as error:
        return ModelCheck(problem=str(error))
    return ModelCheck.of(KNOWN_SIZES[reference])
