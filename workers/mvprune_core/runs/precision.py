"""The precision of a run that names none: measured once, and kept by all later attempts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from torch import nn
from transformers.pytorch_utils import Conv1D

from mvprune_core.base.group import ALONE, Group
from mvprune_core.base.notes import Notes
from mvprune_core.base.settings import Settings
from mvprune_core.base.storage import Checkpoints, identity
from mvprune_core.models.loading import Loaded
from mvprune_core.runs.resolved import Request
from mvprune_core.tasks.batching import Examples
from mvprune_core.training.precision import LEAST_WORK, Choice, check_speed, choose_precision

log = logging.getLogger(__name__)

_KEPT = "precision"  # beside the checkpoints of the phases


@dataclass(frozen=True)
class Attempt:
    """An attempt of a run.

    Attributes:
        checkpoints: the folder to resume from; None: there is none.
        group: the ranks. Rank 0 measures, and all take the same.
    """

    checkpoints: Path | None = None
    group: Group = ALONE


def with_precision(
    settings: Settings,
    request: Request,
    student: Loaded,
    layers: Mapping[str, nn.Linear | Conv1D],
    train: Examples,
    attempt: Attempt,
    notes: Notes,
) -> Settings:
    """The settings with a precision. A note says what was measured.

    Args:
        settings: of the training.
        request: what is asked for.
        student: the model; its tensors stay as they are.
        layers: those that are pruned.
        train: the training examples.
        attempt: measures, unless an earlier attempt with the same settings has.
        notes: receives the note.
    """
    if settings.precision != "auto":
        check_speed(request.device, settings.precision)
        return settings
    work = settings.total_steps(len(train)) * settings.batch_size * sum(x.weight.numel() for x in layers.values())
    if (
        work < LEAST_WORK or request.keeps(student) or settings.deterministic
    ):  # times decide, and another run may measure others
        return replace(settings, precision="fp32")
    of_run = asdict(settings) | {"accumulation_steps": 0}  # more after memory ran out
    run = identity(request.source.name, request.data.fingerprint, of_run)
    kept = None if attempt.checkpoints is None else Checkpoints(attempt.checkpoints, run, 0, attempt.group)
    found = None if kept is None else kept.load(_KEPT)
    if found is None:
        is_first = attempt.group.rank == 0
        measured = _measure(settings, request, student, layers, train, attempt) if is_first else Choice("fp32", "")
        choice = attempt.group.broadcast(measured)
        if kept is not None:
            with suppress(OSError):  # a full disk must not end the run
                kept.save(_KEPT, {}, choice._asdict())
    else:
        choice = Choice(found[1]["precision"], found[1]["why"])
    log.info("precision %s: %s", *choice)
    notes.add(f"training is in {choice.precision}: {choice.why}")
    return replace(settings, precision=choice.precision)


def _measure(
    settings: Settings,
    request: Request,
    student: Loaded,
    layers: Mapping[str, nn.Linear | Conv1D],
    train: Examples,
    attempt: Attempt,
) -> Choice:
    own = replace(settings, accumulation_steps=settings.accumulation_steps * attempt.group.size)
    model, loss = student.model.to(request.device), request.objective.loss(student.config)
    return choose_precision(model, [x.weight for x in layers.values()], train, loss, own, request.spec.seed)
