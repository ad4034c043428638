"""Numbers and times in words."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mvprune.common.units import count, duration, exact_size, percent
from mvprune.data.phases import TRAININGS

if TYPE_CHECKING:
    from mvprune.client.models import JobEvent, JobRecord, PlannedPhase, Progress
    from mvprune.spec.models import Spec

_CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff]")  # and what no encoding has
_WAITS = {
    "WAITING_FOR_CAPACITY": "waits until the cluster has room for it",
    "WAITING_FOR_NODE": "waits until the cluster has added a node for it",
    "WAITING_FOR_QUOTA": "waits until the project's quota leaves it GPUs",
    "WAITING_FOR_WORKER": "its worker runs and has not called the server; see mvpctl server status",
    "WAITING_FOR_TEACHER": "waits for the job of its teacher or baseline",
    "EXECUTOR_UNREACHABLE": "waits until the cluster can be reached",
}
_ADVICE = {
    "MAX_RUNTIME": "mvpctl retry {} goes on from its last checkpoint, with as much time again",
    "MAX_QUEUE_TIME": "mvpctl retry {} lets it wait as long again; submitted with a higher --priority it waits less",
}


def clean(text: str) -> str:
    """Without control characters: what a server sends must not steer a terminal."""
    return _CONTROL.sub(" ", text)


def smaller(dense: int, sparse: int) -> str:
    """How many times smaller, or larger; "" where that is not known."""
    if not (dense and sparse):
        return ""
    return f"{dense / sparse:.1f}x smaller" if sparse <= dense else f"{sparse / dense:.1f}x larger"


def timestamp(time: datetime | None) -> str:
    """2026-01-31 12:00:00, "" if there is none."""
    return f"{time:%Y-%m-%d %H:%M:%S}" if time else ""


def age(then: datetime | None) -> str:
    """Time since `then`, "" if there is none."""
    return duration((datetime.now(UTC) - then).total_seconds()) if then else ""


def labels(job: JobRecord) -> str:
    """model=bert, team=search"""
    return ", ".join(f"{key}={value}" for key, value in sorted(job.labels.items()))


def keeps(job: JobRecord) -> str:
    """What the job keeps, in words and, where the server can count the model, in numbers of weights."""
    density = job.spec.target_density
    if not density:
        return "keeps the weights that the mask keeps"
    if job.spec.structure is not None:
        return f"keeps {percent(density)} of the weights of {job.spec.structure.replace('_', ' ')}"
    if job.model_size is None:
        return f"keeps {percent(density)} of the prunable weights"
    weights = job.model_size.prunable_weights
    return f"keeps {percent(density)} of {count(weights)} prunable weights ({count(density * weights)})"


def stored(spec: Spec) -> str:
    """int8 weights, int8 embeddings, at most 10MB, trimmed vocabulary, delta; "" where all of it is the default."""
    dtypes = (("weights", spec.weight_dtype), ("embeddings", spec.embedding_dtype))
    words = [f"{dtype} {what}" for what, dtype in dtypes if dtype]
    if spec.target_bytes:
        words.append(f"at most {exact_size(spec.target_bytes)}")
    words += [f"trimmed {what}" for what in ("vocabulary", "positions") if getattr(spec, f"trim_{what}")]
    return ", ".join([*words, *["delta"] * spec.delta])


def state(job: JobRecord) -> str:
    """QUEUED: waits for the job of its teacher or baseline (WAITING_FOR_TEACHER)"""
    reason = job.state_reason
    if not reason or job.state.is_terminal:  # why it ended is its failure
        return job.state
    if job.state == "QUEUED" or reason in _WAITS:
        return f"{job.state}: {_WAITS.get(reason, 'tries again')} ({reason})"
    return f"{job.state} ({reason})"


def advice(job: JobRecord) -> str:
    """What to do about a job's failure, "" where its message says it."""
    return _ADVICE.get(job.failure.reason, "").format(job.id) if job.failure else ""


def plan(job: JobRecord) -> list[str]:
    """What a job will do, and how long that takes; [] where the answer has no estimate."""
    estimate = job.estimate
    if estimate is None:
        return []
    least = "" if job.spec.training.epochs else " or more"
    phases = (_planned(phase, f"{_counted(estimate.epochs, 'epoch')}{least}") for phase in estimate.phases)
    stops = "; early stopping may end a training sooner" if job.spec.training.patience else ""
    return [f"phases: {', '.join(phases)}{stops}", f"time: {estimate.text}"]


def _planned(phase: PlannedPhase, epochs: str) -> str:
    """pruning 3,000 steps with 6 evaluations"""
    words = phase.name
    if phase.name in TRAININGS:
        words += f" {_counted(phase.steps, 'step') if phase.steps else epochs}"
    elif phase.examples:
        words += f" {_counted(phase.examples, 'example')}"
    return words + (f" with {_counted(phase.evaluations, 'evaluation')}" if phase.evaluations else "")


def _counted(number: float, what: str) -> str:
    """3,000 steps; 1 step; 0.5 epochs"""
    return f"{number:,g} {what}{'s' if number != 1 else ''}" if number < 1e5 else f"{number:,.0f} {what}s"


def steps(progress: Progress | None) -> str:
    """pruning 120/400"""
    if progress is None:
        return ""
    return f"{progress.phase} {progress.step}/{progress.total_steps}" if progress.total_steps else progress.phase


def details(progress: Progress | None) -> str:
    """loss 0.4312  density 41.2 %  eta 1m20s"""
    if progress is None:
        return ""
    parts = [] if progress.loss is None else [f"loss {progress.loss:.4f}"]
    if progress.density:
        parts.append(f"density {percent(progress.density)}")
    if progress.eta is not None:
        parts.append(f"eta {duration(progress.eta)}")
    return "  ".join(parts)


def transition(event: JobEvent) -> str:
    """QUEUED -> STARTING; "" for an event that is no change of state."""
    known = [state for state in (event.from_state, event.to_state) if state != "UNSPECIFIED"]
    return " -> ".join(known)
