"""Fine-tuning: the one loop that trains dense and masked models alike."""

from __future__ import annotations

import itertools
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from mvprune_core.batching import IGNORED, Examples, Indices, training_batches
from mvprune_core.callbacks import Callback, Progress
from mvprune_core.curves import Curve
from mvprune_core.distillation import Lessons
from mvprune_core.dropout import without_dropout
from mvprune_core.errors import CompressionError, Reason
from mvprune_core.families import in_block
from mvprune_core.interruption import Stopped, stop_requested
from mvprune_core.masking import Masks
from mvprune_core.precision import autocast, suited
from mvprune_core.settings import Settings
from mvprune_core.storage import Checkpoints

LEARNING_RATE_WARMUP = 0.1  # fraction of the steps
CLIP_NORM = 1.0
_STEPS_BETWEEN_SYNCS = 10  # on a device that works apart from the CPU


@dataclass(frozen=True)
class Evaluation:
    """How a model in training is judged.

    Attributes:
        measure: gives the metrics of the model as it is.
        metric: the one that decides.
        higher_is_better: which way.
    """

    measure: Callable[[int], Mapping[str, float]]
    metric: str
    higher_is_better: bool


class FineTuning:
    """One phase of training, which prunes on the way where there are masks.

    AdamW; gradients of weights and of scores are clipped apart, at norm 1. Masks are renewed after every step, so that
    whatever is evaluated next sees the masks of now. The same seed and number of threads give the same model, bit for
    bit, however often the run is stopped and resumed on the way.

    Args:
        model: trained in place, on its device.
        examples: to train on.
        settings: of the training.
        phase: "dense" or "pruning".
        seed: of batches and dropout.
        callback: is told about every step.
        masks: of the model.
        lessons: of a teacher.
        evaluation: needed where the settings say to evaluate on the way.
        checkpoints: where to resume from, and to save to.
        steps_before: of the phases before this one.
        curve: records loss and density; goes on from the checkpoint, as the training does.
    """

    def __init__(
        self,
        model: nn.Module,
        examples: Examples,
        settings: Settings,
        *,
        phase: str,
        seed: int,
        callback: Callback,
        masks: Masks | None = None,
        lessons: Lessons | None = None,
        evaluation: Evaluation | None = None,
        checkpoints: Checkpoints | None = None,
        steps_before: int = 0,
        curve: Curve | None = None,
    ) -> None:
        self.examples = suited(examples, settings.precision)
        self.model, self.settings, self.phase, self.seed = model, settings, phase, seed
        self.callback, self.masks, self.lessons = callback, masks, lessons
        self.evaluation, self.checkpoints, self.steps_before = evaluation, checkpoints, steps_before
        self.device = next(model.parameters()).device
        self.total_steps = settings.total_steps(len(examples))
        self._curve = curve or Curve(phase, self.total_steps)
        self.step = 0
        self._settled = 0
        if masks is not None:
            masks.method.schedule.check(self.total_steps)
            self._settled = masks.method.schedule.settled(self.total_steps)
        self._freeze()
        self._scores = [] if masks is None else masks.scores
        hidden = {} if masks is None else masks.weights
        self._weights = [hidden.get(p, p) for p in model.parameters() if p.requires_grad]
        self._optimizer = self._build_optimizer()
        self._forward = torch.compile(model, dynamic=True) if settings.compile else model
        self._asked = {"output_hidden_states": True} if lessons is not None and lessons.hidden is not None else {}
        self._finite = torch.ones((), dtype=torch.bool, device=self.device)
        self._syncs = 1 if self.device.type == "cpu" else _STEPS_BETWEEN_SYNCS
        self._loss, self._density = math.nan, 1.0
        self._best: float | None = None
        self._best_model: dict[str, Tensor] = {}
        self._evaluations_since_best = 0
        self._evaluated = 0  # the step of the last evaluation

    def run(self) -> int:
        """Trains to the end, from the newest checkpoint if there is one. Returns the number of steps done.

        Raises:
            CompressionError: NAN_LOSS.
            Stopped: `request_stop` was called; a checkpoint was written before.
        """
        with _random_state(self.seed, self.device), self._training_mode():
            self._resume()
            first = self.step
            self._train()
            if self.checkpoints is not None and self.step > first:
                self._save(self.checkpoints)
        if self.masks is not None:
            self.masks.finish()
        if self._best_model:
            fill(self.model, self._best_model)
        return self.step

    def _train(self) -> None:
        batches = training_batches(self.examples.lengths, self.settings.batch_size, self.seed)
        began, first = time.monotonic(), self.step
        self._evaluate_if_due()  # a stop may have cut it short
        for indices in itertools.islice(batches, self.step, self.total_steps):
            if self._gave_up:
                return
            loss = self.advance(indices)
            if self.step == 1 or self.step % self._syncs == 0 or self.step == self.total_steps:
                self._check_finite()
                self._loss = loss.item()
                self._density = 1.0 if self.masks is None else self.masks.density
                self._curve.add(self.step, self._loss, self._density)
            eta = (time.monotonic() - began) / (self.step - first) * (self.total_steps - self.step)
            self.callback.on_step(Progress(self.phase, self.step, self.total_steps, self._density, self._loss, eta))
            with suppress(Stopped):  # not before there is a checkpoint
                self._evaluate_if_due()
            if self.checkpoints is not None and (stop_requested() or self.checkpoints.due):
                self._save(self.checkpoints)
            if stop_requested():
                raise Stopped

    def advance(self, indices: Indices) -> Tensor:
        """One step over the examples of these indices: gradients, update, new masks. Returns the loss."""
        loss = self._backward(indices)
        self._update(loss)
        self.step += 1
        if self.masks is not None:
            self.masks.renew(self.step)
        return loss

    def _backward(self, indices: Indices) -> Tensor:
        """Gradients of one batch; returns its loss."""
        total = torch.zeros((), device=self.device)
        whole = self.examples.batch(indices, self.device, np.random.default_rng((self.seed, self.step)))
        count = min(self.settings.accumulation_steps, len(indices))
        # Cut when it is padded and masked: the parts then have the gradients of the whole.
        columns = (column.tensor_split(count) for column in whole.values())
        batches = [dict(zip(whole, values, strict=True)) for values in zip(*columns, strict=True)]
        parts = np.array_split(indices, count)
        for some, batch, labelled, taught in zip(parts, batches, *_shares(batches), strict=True):
            with autocast(self.device, self.settings.precision):
                output = self._forward(**batch, **self._asked)
            output.loss = output.loss * labelled
            loss = output.loss if self.lessons is None else self.lessons.loss(output, batch, some, taught)
            loss.backward()
            total += loss.detach()
        return total

    def _update(self, loss: Tensor) -> None:
        if self.masks is not None:
            self.masks.take_gradients()
        norms = [_clip(group) for group in (self._weights, self._scores) if group]
        self._finite &= torch.stack([loss, *norms]).isfinite().all()
        factor = rate_factor(self.step, self.total_steps)
        density = 1.0 if self.masks is None else self.masks.scheduled_density
        for group in self._optimizer.param_groups:
            group["lr"] = group["peak"] * factor * density ** -group["growth"]
        self._optimizer.step()
        self._optimizer.zero_grad()

    def _evaluate_if_due(self) -> None:
        every = self.settings.evaluate_every
        if every and self.step > self._evaluated and (self.step % every == 0 or self.step == self.total_steps):
            self._evaluate()
            self._evaluated = self.step

    def _evaluate(self) -> None:
        if self.evaluation is None:
            raise ValueError("evaluate_every is set, but there is nothing to evaluate with")
        with _masks_settled(self.masks):
            value = self.evaluation.measure(self.step)[self.evaluation.metric]
            self.model.train()
            if self.step < self._settled:
                return
            sign = 1 if self.evaluation.higher_is_better else -1
            if self._best is None or sign * value > sign * self._best:
                self._best, self._evaluations_since_best = value, 0
                if self.settings.keep_best:
                    self._best_model = {name: tensor.cpu().clone() for name, tensor in tensors_of(self.model).items()}
            else:
                self._evaluations_since_best += 1

    @property
    def _gave_up(self) -> bool:
        patience = self.settings.patience
        return patience is not None and self._evaluations_since_best >= patience

    def _save(self, checkpoints: Checkpoints) -> None:
        self._check_finite()  # not at every step on a GPU, and what is lost must not replace what is good
        tensors = {f"model.{name}": value for name, value in tensors_of(self.model).items()}
        tensors |= {f"best.{name}": value for name, value in self._best_model.items()}
        for index, state in self._optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{name}": value for name, value in state.items()}
        if self.masks is not None:
            # W' is W ⊙ M: the model's own copy is not needed.
            for matrix in self.masks.matrices:
                del tensors[f"model.{matrix.name}"]
            tensors |= {f"masks.{name}": value for name, value in self.masks.state().items()}
        tensors |= {f"random.{name}": state for name, state in _random_states(self.device).items()}
        facts = {
            "step": self.step,
            "density": 1.0 if self.masks is None else self.masks.density,
            "loss": self._loss,
            "best": self._best,
            "since_best": self._evaluations_since_best,
            "evaluated": self._evaluated,
            "curve": self._curve.state(),
        }
        try:
            checkpoints.save(self.phase, tensors, facts)
        except OSError as error:  # a full disk is no reason to lose what is done
            warnings.warn(f"step {self.step}: the checkpoint cannot be written ({error})", RuntimeWarning, stacklevel=2)
        else:
            self.callback.on_checkpoint(self.steps_before + self.step)

    def _resume(self) -> None:
        found = None if self.checkpoints is None else self.checkpoints.load(self.phase)
        if found is None:
            return
        tensors, facts = found
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "best": {}, "optimizer": {}, "masks": {}, "random": {}}
        for name, tensor in tensors.items():
            part, _, rest = name.partition(".")
            parts[part][rest] = tensor
        fill(self.model, parts["model"])
        self._best_model = parts["best"]
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in parts["optimizer"].items():
            index, _, field = name.partition(".")
            state.setdefault(int(index), {})[field] = tensor
        groups = self._optimizer.state_dict()["param_groups"]
        self._optimizer.load_state_dict({"state": state, "param_groups": groups})
        self.step, self._loss = facts["step"], facts["loss"]
        self._best, self._evaluations_since_best = facts["best"], facts["since_best"]
        self._evaluated = facts["evaluated"]
        self._curve.restore(facts["curve"])
        if self.masks is not None:
            self.masks.restore(parts["masks"], self.step, facts["density"])
        _set_random_states(parts["random"], self.device)
        self.callback.on_resume(self.phase, self.step)

    def _freeze(self) -> None:
        for name, module in self.model.named_modules():
            if isinstance(module, nn.Embedding) and not in_block(name):
                module.requires_grad_(self.settings.train_embeddings)

    def _build_optimizer(self) -> torch.optim.AdamW:
        """Matrices decay; biases and norms, which are vectors, do not; scores are the method's affair."""
        pruned = set() if self.masks is None else set(self.masks.weights.values())
        others = [weight for weight in self._weights if weight not in pruned]
        decay, growth = self.settings.weight_decay, self.settings.learning_rate_growth
        groups: list[dict[str, Any]] = [
            {"params": params, "lr": self.settings.learning_rate} | options
            for params, options in (
                ([weight for weight in self._weights if weight in pruned], {"weight_decay": decay, "growth": growth}),
                ([weight for weight in others if weight.dim() > 1], {"weight_decay": decay, "growth": 0.0}),
                ([weight for weight in others if weight.dim() <= 1], {"weight_decay": 0.0, "growth": 0.0}),
            )
            if params
        ]
        if self.masks is not None:
            groups += [{"growth": 0.0} | group for group in self.masks.score_groups()]
        for group in groups:
            group["peak"] = group["lr"]
        return torch.optim.AdamW(groups, fused=True)

    def _check_finite(self) -> None:
        if not self._finite.item():
            raise CompressionError(
                Reason.NAN_LOSS,
                f"the loss or its gradient is no longer finite at step {self.step} of {self.total_steps} "
                f"({self.phase}); lower the learning rate (now {self.settings.learning_rate:g}), its growth "
                f"({self.settings.learning_rate_growth:g}) or that of the scores",
            )

    @contextmanager
    def _training_mode(self) -> Iterator[None]:
        model: Any = self.model
        checkpointing, deterministic = self.settings.gradient_checkpointing, self.settings.deterministic
        before = torch.are_deterministic_algorithms_enabled()
        warned = torch.is_deterministic_algorithms_warn_only_enabled()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        if deterministic:
            os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS refuses
            torch.use_deterministic_algorithms(True)
        model.train()
        try:
            with nullcontext() if self.settings.dropout else without_dropout(model):
                yield
        finally:
            torch.use_deterministic_algorithms(before, warn_only=warned)
            if checkpointing:
                model.gradient_checkpointing_disable()


def rate_factor(step: int, total_steps: int) -> float:
    """Factor of the learning rates in update `step` (from 0): linear warm-up to 1, then linear decay towards 0."""
    warmup = max(1, round(LEARNING_RATE_WARMUP * total_steps))
    return min((step + 1) / warmup, (total_steps - step) / (total_steps - warmup + 1))


def _shares(batches: Sequence[Mapping[str, Tensor]]) -> tuple[Sequence[float | Tensor], Sequence[float | Tensor]]:
    """What part of a step's loss each of its batches makes up: of that over labels, of that over a teacher's logits.

    Both are means over examples; where tokens have labels, over the tokens with one, and over all tokens.
    """
    if all("labels" in batch and batch["labels"].dim() == 2 for batch in batches):
        labelled = torch.stack([batch["labels"].ne(IGNORED).sum() for batch in batches])
        attended = torch.stack([batch["attention_mask"].sum() for batch in batches])
        return list(labelled / labelled.sum()), list(attended / attended.sum())
    sizes = [len(batch["input_ids"]) for batch in batches]
    shares = [size / sum(sizes) for size in sizes]
    return shares, shares


def _clip(parameters: list[nn.Parameter]) -> Tensor:
    """Scales the gradients to a norm of 1 at most; returns the norm that they had."""
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = get_total_norm(grads)
    if norm.device.type != "cpu" or norm > CLIP_NORM:  # on the CPU, no pass over memory where nothing changes
        clip_grads_with_norm_(parameters, CLIP_NORM, norm)
    return norm


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, tied ones once."""
    return {name: tensor.detach() for name, tensor in (*model.named_parameters(), *model.named_buffers())}


def fill(model: nn.Module, values: Mapping[str, Tensor]) -> None:
    """Writes what `tensors_of` returned, or a part of it, into a model of the same shape."""
    tensors = tensors_of(model)
    for name, value in values.items():
        tensors[name].copy_(value)


@contextmanager
def _masks_settled(masks: Masks | None) -> Iterator[None]:
    if masks is None:
        yield
    else:
        with masks.settled():
            yield


@contextmanager
def _random_state(seed: int, device: torch.device) -> Iterator[None]:
    """Dropout draws from `seed`; the caller's random state is left alone."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def _random_states(device: torch.device) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def _set_random_states(states: Mapping[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(states["cpu"])
    if "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
