"""What a compression does one after the other: dense baseline, teacher, pruning."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from mvprune.artifact import ArtifactError, Base, ModelSource, round_values
from mvprune.artifact.history import Histogram, History, Phase, Plane
from mvprune.data.tasks import SHORTEST_WINDOW, TaskKind, higher_is_better
from mvprune_core.accounting import check_density
from mvprune_core.batching import Examples, Indices, trained_on
from mvprune_core.callbacks import Callback
from mvprune_core.curves import Curve
from mvprune_core.distillation import (
    HiddenStates,
    Lessons,
    Teacher,
    compare_states,
    lessons,
    reorder_classes,
    shape_in_words,
    teach,
    teacher_doubt,
)
from mvprune_core.distributions import Distributions
from mvprune_core.errors import CompressionError, Reason
from mvprune_core.families import prunable_layers
from mvprune_core.forward import check_forward, padding_side, set_padding_side
from mvprune_core.interruption import check_stop
from mvprune_core.masking import Masks
from mvprune_core.models import Loaded, Source, description_digest, find_model, load_model, longest_input
from mvprune_core.notes import Notes
from mvprune_core.plan import Plan
from mvprune_core.precision import check_speed
from mvprune_core.result import model_source, versions
from mvprune_core.settings import BASE_WIDTH, Training
from mvprune_core.storage import Cache, Checkpoints, identity
from mvprune_core.tasks.base import counted
from mvprune_core.tasks.chance import note_on
from mvprune_core.tasks.classes import class_names, model_classes
from mvprune_core.tokens import cached_examples, tokenizer_digest
from mvprune_core.training import Evaluation, FineTuning, fill, tensors_of
from mvprune_core.vocabulary import trim_vocabulary

_TAKEN = "the model was taken as fine-tuned for this data, and"
_MANY_PASSES = 5  # over the data: hidden states are worth it then (research/notebook.md)
_PER_TOKEN = (TaskKind.QUESTION_ANSWERING, TaskKind.TOKEN_CLASSIFICATION)  # what a teacher says


class Phases:
    """The phases of one compression, and what they share: examples, settings, cache and checkpoints.

    Raises:
        ValueError, CompressionError: see `compress`; all that can be known before training is checked here.
    """

    def __init__(
        self,
        plan: Plan,
        training: Training,
        callback: Callback,
        cache: Path | None,
        checkpoint: Path | None,
        checkpoint_seconds: float,
    ) -> None:
        self.plan, self.callback, self.notes = plan, callback, Notes(callback)
        callback.on_phase("loading")
        self.notes.add(*plan.data.notes)
        folder = checkpoint / "cache" if cache is None and checkpoint is not None else cache
        self._cache = Cache(folder)
        student = self._load()
        self._unused: Loaded | None = student
        self.notes.add(*student.notes)
        self._tokens, self._labels = tokenizer_digest(student.tokenizer), class_names(student.config)
        self._classes, self._shape = self._class_order(student.config), shape_in_words(student.config)
        layers = prunable_layers(student.model, plan.include, plan.exclude)
        if not plan.allow_density_miss:
            sizes = [layer.weight.numel() for layer in layers.values()]
            remedy = "take a density that the model's matrices are large enough for, global selection"
            check_density(plan.density, plan.method.kept(sizes, plan.density), sum(sizes), remedy)
        if training.gradient_checkpointing and not student.model.supports_gradient_checkpointing:
            raise CompressionError(
                Reason.UNSUPPORTED_ARCHITECTURE,
                f"training.gradient_checkpointing: given, but a {type(student.model).__name__} cannot do it; leave it "
                "out, or take more accumulation_steps to save memory",
            )
        self.max_length = self._longest_input(plan.source, student, training.max_length or plan.data.task.max_length)
        self.examples = self._examples(student, self.max_length, "train")
        self._validation = self._examples(student, self.max_length, "validation")
        splits = self.examples, self._validation
        for split in splits:
            check_forward(student.model, split)
        side = padding_side(student.model, splits)
        self.examples, self._validation = (replace(split, padding_side=side) for split in splits)
        width = getattr(student.config, "hidden_size", BASE_WIDTH)
        self.settings = training.settings(plan.data.task, width, len(self.examples))
        check_speed(plan.device, training.precision)
        self.total_steps = self.settings.total_steps(len(self.examples))
        passes = self.total_steps * self.settings.batch_size / len(self.examples)
        if plan.teacher is not None:
            self.plan = plan = replace(plan, teacher=self._decided(plan.teacher, passes, student))
        plan.method.schedule.check(self.total_steps)
        self._dense_steps = 0 if student.fine_tuned else self.total_steps
        self.method = plan.method.for_run(self.total_steps)
        self.steps_done = 0
        self._curves = {"dense": Curve("dense", self._dense_steps), "pruning": Curve("pruning", self.total_steps)}
        self._baseline: Phase | None = None
        self._distributions: tuple[Mapping[str, Histogram], Mapping[str, Plane]] = {}, {}
        self.model_source: ModelSource = model_source(plan.source)
        self.base = Base(plan.source.folder) if plan.delta else None
        self._teacher_model = self._find_teacher()
        named = self._teacher_model
        taught_by = named and [model_source(named).sha256, description_digest(named)]
        run = [
            [self.model_source.sha256, _options(student.config), self._tokens],
            [plan.data.task.name, plan.data.fingerprint],
            [plan.seed, str(plan.device), torch.get_num_threads(), versions(), side],
        ]
        settings = asdict(self.settings)
        growth = settings.pop("learning_rate_growth")  # the dense model has nothing to do with it
        self._dense_run = identity(run, settings)
        self._batches = self.settings.batch_size, plan.seed, self.total_steps
        partly = passes < 1 and self._batches  # else all examples are taught, whatever the order
        self._logits_key = taught_by and identity(
            [taught_by, plan.data.task.name, plan.data.fingerprint],
            [self.settings.max_length, self.max_length, self.settings.precision, self._tokens, self._labels, partly],
        )
        self._checkpoints = None
        if checkpoint is not None:
            teacher = plan.teacher and [taught_by, asdict(replace(plan.teacher, model=None))]
            options = [plan.method.name, repr(self.method), plan.density, plan.include, plan.exclude, teacher]
            # A run that was out of memory goes on with more passes a batch.
            del settings["accumulation_steps"]
            self._checkpoints = Checkpoints(checkpoint, identity(run, settings, growth, options), checkpoint_seconds)
        self._dense: Loaded | None = None
        self._dense_steps_done = 0
        # A teacher that cannot teach is found out before anything is trained.
        self._taught = None if self._teacher_model is None else self._lessons()

    def dense_metrics(self) -> dict[str, float]:
        """Metrics of the dense model; it is trained where the cache does not know them."""
        told, curve = False, self._curves["dense"]

        def measure() -> dict[str, Any]:
            nonlocal told
            told = True
            model = self._dense_model()
            metrics, notes = self._evaluate(model, "dense", self._dense_steps_done)
            return {"metrics": metrics, "steps": self._dense_steps_done, "curve": curve.state(), "notes": notes}

        found = self._cache.facts("baselines", self._dense_run, measure)
        curve.restore(found["curve"])
        self._baseline = curve.phase()  # a teacher may be trained once more
        metrics: dict[str, float] = found["metrics"]
        self.notes.add(*found["notes"])
        if not told:
            self.callback.on_evaluate("dense", found["steps"], metrics)
        return metrics

    def prune(self) -> tuple[Loaded, tuple[str, ...]]:
        """The pruned model, its values as the artifact stores them, and the names of its pruned weights."""
        plan, taught = self.plan, self._taught or self._lessons()
        self._dense = None
        loaded = self._take_student()
        loaded.model.to(plan.device)
        layers = prunable_layers(loaded.model, plan.include, plan.exclude)
        masks = Masks(
            loaded.model,
            self.method,
            target=plan.density,
            total_steps=self.total_steps,
            seed=plan.seed,
            layers=layers,
        )
        distributions = Distributions(masks.matrices)
        self.steps_done = self._train(loaded, "pruning", masks, taught)
        if plan.trim_vocabulary:
            trim_vocabulary(loaded.model, loaded.tokenizer, (self.examples, self._validation))
        try:
            round_values(loaded.model, masks.weight_names, plan.coding, self.base)
        except ArtifactError as error:
            raise CompressionError(
                Reason.NAN_LOSS,
                f"training went astray ({error}); lower the learning rate ({self.settings.learning_rate:g})",
            ) from error
        set_padding_side(loaded.tokenizer, self.examples.padding_side)
        self._distributions = distributions.after(masks.matrices)
        return loaded, masks.weight_names

    def evaluate(self, pruned: Loaded) -> dict[str, float]:
        """The task's metrics of the pruned model."""
        metrics, notes = self._evaluate(pruned, "pruning", self.steps_done)
        self.notes.add(*notes)
        return metrics

    def _evaluate(self, loaded: Loaded, phase: str, step: int) -> tuple[dict[str, float], list[str]]:
        """Metrics, and notes on them."""
        check_stop()
        with self._read_once("evaluating", loaded.model, len(self._validation)):
            metrics, predictions = self._measure(loaded, phase, step)
        doubt = self.plan.objective.doubt(predictions)
        if phase == "dense" and self._dense_steps == 0:
            return metrics, [] if doubt is None else [note_on(doubt, _TAKEN)]
        name = "the dense model" if phase == "dense" else "the pruned model"
        return metrics, [note_on(replace(doubt, fit=""), name)] if doubt is not None and doubt.by_chance else []

    @contextmanager
    def _read_once(self, phase: str, model: nn.Module, total: int) -> Iterator[None]:
        self.callback.on_phase(phase)
        with counted(model, lambda done: self.callback.on_examples(phase, done, total)):
            yield

    def _measure(self, loaded: Loaded, phase: str, step: int) -> tuple[dict[str, float], Any]:
        """Metrics, and the predictions that have them."""
        loaded.model.to(self.plan.device)
        predictions = self.plan.objective.predict(loaded.model, self._validation, self.plan.device)
        metrics = self.plan.objective.measure(predictions)
        self._curves[phase].evaluated(step, metrics)
        self.callback.on_evaluate(phase, step, metrics)
        return metrics, predictions

    @property
    def _best_metric(self) -> str:
        return self.settings.best_metric or self.plan.data.task.primary_metric

    def _judged(self, loaded: Loaded, phase: str, step: int) -> dict[str, float]:
        metrics, _ = self._measure(loaded, phase, step)
        if self._best_metric not in metrics:  # such as that of a second validation file
            raise CompressionError(
                Reason.INVALID_DATASET,
                f"training.best_metric: {self._best_metric!r} given; the validation data has {', '.join(metrics)}",
            )
        return metrics

    def history(self) -> History:
        """How the phases went that the result shows."""
        pruning = self._curves["pruning"].phase()
        return History((pruning,) if self._baseline is None else (self._baseline, pruning), *self._distributions)

    def _train(self, loaded: Loaded, phase: str, masks: Masks | None, taught: Lessons | None) -> int:
        self.callback.on_phase(phase)
        metric = self._best_metric
        return FineTuning(
            loaded.model.to(self.plan.device),
            self.examples,
            self.settings,
            phase=phase,
            seed=self.plan.seed,
            callback=self.callback,
            masks=masks,
            lessons=taught,
            evaluation=Evaluation(lambda step: self._judged(loaded, phase, step), metric, higher_is_better(metric)),
            checkpoints=self._checkpoints,
            steps_before=0 if phase == "dense" else self._dense_steps,
            curve=self._curves[phase],
        ).run()

    def _dense_model(self) -> Loaded:
        if self._dense is None:
            self._dense = self._take_student()
            if not self._dense.fine_tuned:
                self._dense_steps_done = self._train(self._dense, "dense", None, None)
        return self._dense

    def _lessons(self) -> Lessons | None:
        """What the teacher says of the training examples."""
        plan = self.plan
        if plan.teacher is None:
            return None
        weight = plan.teacher.hidden_states
        hidden = self._hidden_states(weight) if weight else None  # before it answers: it may be unlike the student
        found = self._cache.tensors("logits", self._logits_key or self._dense_run, self._teach)
        if self._teacher_model is not None and (doubt := teacher_doubt(found, self.examples, self._labels)):
            self.notes.add(note_on(doubt, "the teacher"))
        return lessons(found, plan.teacher, hidden)

    def _decided(self, teacher: Teacher, passes: float, student: Loaded) -> Teacher:
        """The teacher with how much its hidden states count, said or not."""
        given = teacher.hidden_states
        # A named one may be alike and have states of another pretraining, which mean something else.
        usual = float(passes >= _MANY_PASSES and teacher.model is None)
        weight = usual if given is None else given
        try:
            if weight:
                check_forward(student.model, self.examples, compare_states)
        except CompressionError:
            if given is not None:
                raise
            weight = 0.0
        return replace(teacher, hidden_states=weight)

    def _hidden_states(self, weight: float) -> HiddenStates:
        if self._teacher_model is None:
            values = self._cache.tensors("dense", self._dense_run, lambda: tensors_of(self._dense_model().model))
            loaded = self._load()
            fill(loaded.model, values)
        else:
            loaded = load_model(self._teacher_model, self.plan.objective, self.plan.seed)
            self._check_alike(loaded, self._teacher_model)
        model = loaded.model.to(self.plan.device).eval().requires_grad_(False)
        return HiddenStates(model, weight, self.settings.precision)

    def _check_alike(self, teacher: Loaded, source: Source) -> None:
        theirs = shape_in_words(teacher.config)
        if theirs != self._shape:
            wrong = f"is {theirs}, the student {self._shape}"
        elif tokenizer_digest(teacher.tokenizer) != self._tokens:
            wrong = "has another tokenizer"
        elif self._longest_input(source, teacher, self.settings.max_length) != self.max_length:
            wrong = "takes shorter inputs"
        else:
            return
        raise CompressionError(
            Reason.INVALID_MODEL,
            f"teacher.hidden_states: given, but the teacher {source.name!r} {wrong}; they are matched layer by layer "
            "and token by token: give a teacher that is like the student, or leave them out",
        )

    def _teach(self) -> dict[str, torch.Tensor]:
        plan = self.plan
        if self._teacher_model is None:
            model, examples = self._dense_model(), self.examples
        else:
            model = load_model(self._teacher_model, plan.objective, plan.seed)
            if not model.fine_tuned:
                raise CompressionError(
                    Reason.INVALID_MODEL,
                    f"the teacher {self._teacher_model.name!r} is not fine-tuned for {plan.data.task.name}: its "
                    "checkpoint has no head for these labels; give one that is, or let the service train one",
                )
            length = self._longest_input(self._teacher_model, model, self.settings.max_length)
            examples = self._examples(model, length, "train")
            check_forward(model.model, examples)
            examples = replace(examples, padding_side=padding_side(model.model, [examples]))
            if plan.data.task.kind in _PER_TOKEN and not np.array_equal(examples.lengths, self.examples.lengths):
                raise CompressionError(
                    Reason.INVALID_MODEL,
                    "the teacher reads other tokens than the student, which a task over tokens does not allow; "
                    "give a teacher with the student's tokenizer and input length",
                )
        outputs, precision = plan.objective.outputs, self.settings.precision
        which = trained_on(self.examples.lengths, *self._batches)
        with self._read_once("teaching", model.model, len(which)):
            found = teach(model.model.to(plan.device), examples, which, outputs, plan.device, precision)
        return reorder_classes(found, self._class_order(model.config), self._classes)

    def _class_order(self, config: Any) -> Indices | None:
        names = getattr(self.plan.data, "labels", ())
        return model_classes(config, names) if names else None

    def _find_teacher(self) -> Source | None:
        teacher = self.plan.teacher
        if teacher is None or teacher.model is None:
            return None
        return teacher.model if isinstance(teacher.model, Source) else find_model(teacher.model, teacher.revision)

    def _load(self) -> Loaded:
        return load_model(self.plan.source, self.plan.objective, self.plan.seed)

    def _take_student(self) -> Loaded:
        """A model with the original weights, once without reading the files again."""
        loaded, self._unused = self._unused, None
        return loaded if loaded is not None else self._load()

    def _longest_input(self, source: Source, loaded: Loaded, max_length: int) -> int:
        length = longest_input(loaded, max_length)
        if self.plan.data.task.kind is TaskKind.QUESTION_ANSWERING and length < SHORTEST_WINDOW <= max_length:
            raise CompressionError(
                Reason.INVALID_MODEL,
                f"the model {source.name!r} takes inputs of {length} tokens at most; question answering needs "
                f"{SHORTEST_WINDOW} or more",
            )
        return length

    def _examples(self, loaded: Loaded, max_length: int, split: str) -> Examples:
        objective, data = self.plan.objective, self.plan.data
        make = objective.training_examples if split == "train" else objective.validation_examples
        key = identity(
            [data.task.name, data.fingerprint, split, max_length],
            [tokenizer_digest(loaded.tokenizer), class_names(loaded.config)],
            loaded.config.is_encoder_decoder and loaded.config.eos_token_id,  # see `Classification`
        )
        return cached_examples(self._cache, key, lambda: make(loaded.tokenizer, loaded.config, max_length))


def _options(config: Any) -> dict[str, Any]:
    """What a model's config says beside where it came from."""
    return {name: value for name, value in json.loads(config.to_json_string()).items() if not name.startswith("_")}
