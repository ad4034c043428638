"""The presentation of a job, in words without a form: a terminal, a notebook and a page show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from mvprune.common.metrics import bounds_text, measured
from mvprune.common.units import age, count, counted, duration, exact_size, percent, size, smaller, timestamp
from mvprune.data.phases import TRAININGS
from mvprune.sources.schemes import shown

if TYPE_CHECKING:
    from mvprune.client.models import Artifact, Failure, JobEvent, JobRecord, PlannedPhase, Progress
    from mvprune.spec.models import Spec

RESULT_COLUMNS = ("", "dense", "pruned", "difference")
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


_TONES = {
    **dict.fromkeys(("SUCCEEDED", "READY", "passed"), "good"),
    **dict.fromkeys(("FAILED", "LOST", "missed"), "bad"),
    **dict.fromkeys(("CANCELLED", "CANCELLING", "PAUSED"), "stopped"),
    **dict.fromkeys(("STARTING", "RUNNING", "FINALIZING", "ACTIVE"), "active"),
    **dict.fromkeys(("QUEUED", "PENDING"), "waits"),
}


def tone(state: str) -> str:
    """good, bad, stopped, active or waits: what colours say of a state, with or without its reason, or of the outcome
    of a gate; "" for any other text."""
    return _TONES.get(state.partition(":")[0].partition(" ")[0], "")


def line(job: JobRecord) -> str:
    """job sst2-k3x9: RUNNING, pruning 120/400; sst2 by movement, keeps 3.0 % of bert-base-uncased"""
    now = ", ".join(filter(None, (str(job.state), _progress(job), job.failure.reason if job.failure else "")))
    what = f"{job.spec.task} by {job.spec.method}, keeps {density_asked(job.spec)} of {shown(job.spec.model)}"
    return " ".join(f"job {job.id}: {now}; {what}".split())


def fields(job: JobRecord) -> list[tuple[str, str]]:
    """All that matters of a job: names and values; "": there is nothing to say."""
    teacher, baseline = job.spec.teacher, job.spec.baseline
    return [
        ("job", job.id),
        ("name", job.display_name),
        ("state", state(job)),
        ("progress", "" if job.state.is_terminal else "  ".join(filter(None, (_progress(job), details(job.progress))))),
        ("failure", failure(job.failure)),
        ("hint", advice(job)),
        ("model", shown(job.spec.model)),
        ("task", job.spec.task),
        ("method", job.spec.method),
        ("mask", shown(str(job.spec.method_options.get("mask_from", "")))),
        ("goes on from", job.spec.start_from),
        ("teacher", shown(teacher.model) or teacher.job or ("none" if teacher.none else "") if teacher else ""),
        ("baseline", baseline.job or ("none" if baseline.none else "") if baseline else ""),
        ("density", keeps(job)),
        ("stored", stored(job.spec)),
        ("activations", job.spec.activations or ""),
        ("priority", str(job.policy.priority or "")),
        ("attempt", str(job.attempt or "")),
        ("labels", labels(job)),
        ("your note", job.note),
        ("creator", job.creator),
        ("created", f"{timestamp(job.create_time)} UTC, {age(job.create_time)} ago" if job.create_time else ""),
        ("expires", f"{timestamp(job.expire_time)} UTC, with its artifact" if job.expire_time else ""),
        ("sweep", job.sweep),
        ("artifact", job.artifact),
        *(("note", note) for note in job.notes),
    ]


def table(job: JobRecord) -> str:
    """A small table in HTML, with the metrics. All that comes from a server is escaped."""
    metrics = ", ".join(f"{name} {value:.4f}" for name, value in sorted(job.metrics.items()))
    rows = [*fields(job), ("metrics", metrics)]
    cells = (f"<tr><th>{name}</th><td>{escape(value)}</td></tr>" for name, value in rows if value)
    return f"<table>{''.join(cells)}</table>"


class Column(NamedTuple):
    """A column of a table of jobs.

    Attributes:
        cell: its text for a job.
        matters: whether a job is a reason to show the column where none were chosen; None: it is always shown.
    """

    heading: str
    cell: Callable[[JobRecord], str]
    matters: Callable[[JobRecord], Any] | None = None


def _metric(job: JobRecord) -> str:
    return "" if job.metric is None else f"{job.primary_metric} {job.metric:.4f}"


def _difference(job: JobRecord) -> str:
    from mvprune.spec.gates import is_percent  # most lists begin with jobs that have none yet

    if job.difference is None:
        return ""
    if is_percent(f"delta/{job.primary_metric}"):
        return f"{100 * job.difference:+.2f}"
    return f"{job.difference:+.4f} {job.primary_metric}"


def _duration(job: JobRecord) -> str:
    return "" if job.duration is None else duration(job.duration)


def _failure(job: JobRecord) -> str:
    return job.failure.reason if job.failure else ""


def _gates(job: JobRecord) -> str:
    total = len(job.gate_results)
    return f"{total - len(job.missed_gates)} of {total} passed" if total else ""


def _progress(job: JobRecord) -> str:
    return "" if job.state.is_terminal else steps(job.progress)


COLUMNS: Mapping[str, Column] = {
    "job": Column("JOB", lambda job: job.id),
    "name": Column("NAME", lambda job: job.display_name),
    "model": Column("MODEL", lambda job: shown(job.spec.model)),
    "task": Column("TASK", lambda job: job.spec.task),
    "method": Column("METHOD", lambda job: job.spec.method),
    "density": Column("DENSITY", lambda job: density_asked(job.spec)),
    "priority": Column("PRIORITY", lambda job: str(job.policy.priority), lambda job: job.policy.priority),
    "state": Column("STATE", lambda job: job.state),
    "progress": Column("PROGRESS", _progress),
    "metric": Column("METRIC", _metric, _metric),
    "difference": Column("DIFF", _difference, _difference),
    "gates": Column("GATES", _gates, _gates),
    "duration": Column("DURATION", _duration, _duration),
    "failure": Column("FAILURE", _failure, _failure),
    "labels": Column("LABELS", lambda job: labels(job), lambda job: job.labels),
    "creator": Column("CREATOR", lambda job: job.creator),
    "age": Column("AGE", lambda job: age(job.create_time)),
}
"""The columns of a list of jobs."""
LIST_COLUMNS = (
    *("job", "task", "method", "density", "priority", "state", "progress"),
    *("metric", "difference", "duration", "failure", "labels", "age"),
)
"""Those that are shown where none were chosen, as far as they matter."""


def that_matter(names: Iterable[str], jobs: Sequence[JobRecord]) -> list[str]:
    """The columns, of these names, that say something of one of the jobs."""
    return [name for name in names if (matters := COLUMNS[name].matters) is None or any(map(matters, jobs))]


def state(job: JobRecord) -> str:
    """QUEUED: waits for the job of its teacher or baseline (WAITING_FOR_TEACHER)"""
    reason = job.state_reason
    if not reason or job.state.is_terminal:  # why it ended is its failure
        return job.state
    if job.state == "QUEUED" or reason in _WAITS:
        return f"{job.state}: {_WAITS.get(reason, 'tries again')} ({reason})"
    return f"{job.state} ({reason})"


def why(reason: str) -> str:
    """What a queued job waits for, in words: waits until the cluster has room for it."""
    return _WAITS.get(reason, "") if reason else ""


def failure(of: Failure | None) -> str:
    """OUT_OF_MEMORY: the message; "" if there is none."""
    return f"{of.reason}: {of.message}" if of else ""


def advice(job: JobRecord) -> str:
    """The remedy for a job's failure, "" if its message says it."""
    return _ADVICE.get(job.failure.reason, "").format(job.id) if job.failure else ""


def transition(event: JobEvent) -> str:
    """QUEUED -> STARTING; "" for an event that is no change of state."""
    known = [state for state in (event.from_state, event.to_state) if state != "UNSPECIFIED"]
    return " -> ".join(known)


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


def density_asked(spec: Spec) -> str:
    """3.0 %; of a job that takes it from its mask, that."""
    return percent(spec.target_density) if spec.target_density else "as many as the mask"


def keeps(job: JobRecord) -> str:
    """The kept part of the model, in words and, if the server can count the model, in numbers of weights."""
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


def labels(job: JobRecord) -> str:
    """model=bert, team=search"""
    return ", ".join(f"{key}={value}" for key, value in sorted(job.labels.items()))


def plan(job: JobRecord) -> list[str]:
    """The phases of a job, and how long they take; [] where the answer has no estimate."""
    estimate = job.estimate
    if estimate is None:
        return []
    training = job.spec.training
    least = "" if training.epochs else " or more"
    phases = (_planned(phase, f"{counted(estimate.epochs, 'epoch')}{least}") for phase in estimate.phases)
    more = "; early stopping may end a training sooner" if training.patience else ""
    if not (training.max_steps or training.epochs or training.preset):
        more += "; this length is the default: max_steps, epochs or preset changes it"
    if any(phase.name == "dense" for phase in estimate.phases):
        more += "; the dense model is trained first, unless the model is fine-tuned for the task already"
    return [f"phases: {', '.join(phases)}{more}", f"time: {estimate.text}"]


def _planned(phase: PlannedPhase, epochs: str) -> str:
    """pruning 3,000 steps with 6 evaluations"""
    words = phase.name
    if phase.name in TRAININGS:
        words += f" {counted(phase.steps, 'step') if phase.steps else epochs}"
    elif phase.examples:
        words += f" {counted(phase.examples, 'example')}"
    return words + (f" with {counted(phase.evaluations, 'evaluation')}" if phase.evaluations else "")


def gate_rows(job: JobRecord) -> list[tuple[str, str, bool | None]]:
    """Each gate of a job: what was asked, what was observed, whether it passed (None: it was not evaluated)."""
    from mvprune.spec.gates import gate_text, observed_text  # most jobs have no gates

    if not job.gate_results:
        return [(gate_text(gate), "", None) for gate in job.policy.gates]
    return [(gate_text(result.gate), observed_text(result), result.passed) for result in job.gate_results]


def result_rows(artifact: Artifact) -> list[list[str]]:
    """The pruned model beside the dense one: the cells below RESULT_COLUMNS."""
    counts, metrics, primary = artifact.accounting, artifact.metrics, artifact.primary_metric
    rows = []
    for names, name, label in measured(metrics, primary):
        difference = _cell(metrics, f"{names.delta}/{name}", "+") + bounds_text(metrics, name, names)
        rows.append([label, *(_cell(metrics, f"{kind}/{name}") for kind in (names.dense, names.own)), difference])
    encoder = 4 * counts.encoder_parameters
    above = _cell(metrics, "above_constant", "+")
    return [
        *rows,
        *([["above a constant answer", "", "", above]] if above else []),
        ["density asked", "", percent(counts.target_density), ""],
        ["density reached", "", percent(counts.density), ""],
        ["non-zero weights", f"{counts.prunable_weights:,}", f"{counts.kept_weights:,}", ""],
        [
            "bytes",
            size(counts.dense_bytes),
            size(artifact.total_bytes),
            smaller(counts.dense_bytes, artifact.total_bytes),
        ],
        ["of the encoder", size(encoder), size(counts.encoder_bytes), smaller(encoder, counts.encoder_bytes)],
        ["of the embeddings", "", size(counts.embedding_bytes), ""],
    ]


def _cell(metrics: Mapping[str, float], key: str, sign: str = "") -> str:
    return f"{metrics[key]:{sign}.4f}" if key in metrics else ""
