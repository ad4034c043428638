"""Messages to models."""

from __future__ import annotations

from collections.abc import Mapping, MutableSequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from mvprune.client import models
from mvprune.sources.known_models import ModelSize
from mvprune.spec import models as spec_models
from mvprune.spec.fields import is_duration
from mvprune.spec.gate import GateResult, gate_of
from mvprune.spec.parameters import PARAMETERS
from mvprune.v1 import artifact_pb2, job_pb2

if TYPE_CHECKING:
    from mvprune.v1 import admin_pb2, sweep_pb2

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_T = TypeVar("_T")
_State = TypeVar("_State", bound=StrEnum)


def job_fields(message: job_pb2.Job) -> dict[str, Any]:
    """The fields of a `JobRecord`."""
    return fields_of(
        models.JobRecord,
        message,
        spec=spec_of(message.spec),
        policy=policy_of(message.policy),
        state=_job_state(message.state),
        progress=progress_of(message),
        model_size=same_fields(ModelSize, message.model_size) if message.HasField("model_size") else None,
        failure=failure_of(message),
        gate_results=tuple(same_fields(GateResult, one, gate=gate_of(one.gate)) for one in message.gate_results),
        estimate=_estimate(message.estimate) if message.HasField("estimate") else None,
    )


def _estimate(message: job_pb2.JobEstimate) -> models.JobEstimate:
    phases = tuple(same_fields(models.PlannedPhase, phase) for phase in message.phases)
    return same_fields(models.JobEstimate, message, phases=phases)


def update(message: job_pb2.WatchJobResponse, job: models.AnyJob) -> models.JobUpdate[models.AnyJob]:
    """One message of a watch, with its job."""
    return models.JobUpdate(
        sequence=message.sequence,
        job=job,
        events=tuple(event(one) for one in message.events),
        done=message.done,
    )


def event(message: job_pb2.JobEvent) -> models.JobEvent:
    """One entry of the audit trail."""
    states = {"from_state": _job_state(message.from_state), "to_state": _job_state(message.to_state)}
    return same_fields(models.JobEvent, message, **states)


def attempt(message: job_pb2.Attempt) -> models.Attempt:
    """One attempt."""
    state = state_of(models.AttemptState, job_pb2.Attempt.State, message.state)
    return same_fields(models.Attempt, message, state=state, failure=failure_of(message))


def metric(message: job_pb2.MetricPoint) -> models.MetricPoint:
    """One recorded value."""
    return same_fields(models.MetricPoint, message)


def queue(message: job_pb2.Queue) -> models.Queue:
    """A Queue."""
    entries = tuple(same_fields(models.QueueEntry, entry, **_resources(entry.resources)) for entry in message.entries)
    room = message.capacity if message.HasField("capacity") else None
    return models.Queue(entries, message.queued_jobs, message.running_jobs, capacity(room) if room else None)


def capacity(message: job_pb2.Queue.Capacity | admin_pb2.ServerStatus.Capacity) -> models.Capacity:
    """A Capacity."""
    return same_fields(models.Capacity, message)


def artifact(message: artifact_pb2.Artifact) -> models.Artifact:
    """An artifact with its files."""
    return same_fields(
        models.Artifact,
        message,
        files=tuple(same_fields(models.ArtifactFile, file) for file in message.files),
        accounting=same_fields(models.Accounting, message.accounting),
    )


def spec_of(message: job_pb2.CompressionSpec) -> spec_models.Spec:
    """The spec of a job."""
    method = message.WhichOneof("method") or ""
    return same_fields(
        spec_models.Spec,
        message,
        method=method,
        method_options=_method_options(getattr(message, method), method) if method else {},
        dataset=same_fields(spec_models.Dataset, message.dataset) if message.HasField("dataset") else None,
        teacher=same_fields(spec_models.Teacher, message.teacher) if message.HasField("teacher") else None,
        baseline=same_fields(spec_models.Baseline, message.baseline) if message.HasField("baseline") else None,
        training=same_fields(spec_models.Training, message.training),
    )


def _method_options(message: Any, method: str) -> dict[str, float | str]:
    options = {}
    for one in PARAMETERS.values():
        path = next((field for field in one.fields if field.startswith(f"spec.{method}.")), "")
        if not path:
            continue
        holder = message
        *parents, name = path.split(".")[2:]
        for parent in parents:
            holder = getattr(holder, parent)
        if name in holder.DESCRIPTOR.oneofs_by_name:  # as it is given: a model, or job:ID
            chosen = holder.WhichOneof(name)
            value = chosen and f"{'job:' if chosen == 'job' else ''}{getattr(holder, chosen)}"
        else:
            value = option(holder, holder.DESCRIPTOR.fields_by_name[name])
        if value is not None:
            options[one.name] = value
    return options


def policy_of(message: job_pb2.ExecutionPolicy) -> spec_models.Policy:
    """How a job is run."""
    resources = _resources(message.resources)
    return same_fields(spec_models.Policy, message, **resources, gates=tuple(map(gate_of, message.gates)))


def _resources(message: job_pb2.Resources) -> dict[str, Any]:
    return {field.name: _value(message, field) for field in message.DESCRIPTOR.fields}


def progress_of(message: job_pb2.Job | sweep_pb2.SweepPoint) -> models.Progress | None:
    """Where a job is, None where it is not known."""
    return same_fields(models.Progress, message.progress) if message.HasField("progress") else None


def failure_of(message: job_pb2.Job | job_pb2.Attempt | sweep_pb2.SweepPoint) -> models.Failure | None:
    """Why the work failed, None where it has not."""
    if not message.HasField("failure"):
        return None
    known = job_pb2.Failure.Reason.DESCRIPTOR.values_by_number.get(message.failure.reason)
    return models.Failure(
        reason=known.name if known else f"REASON_{message.failure.reason}", message=message.failure.message
    )


def _job_state(number: int) -> models.JobState:
    return state_of(models.JobState, job_pb2.Job.State, number)


def state_of(kind: type[_State], enum: Any, number: int) -> _State:
    """A state of this kind; one that this version does not know is UNSPECIFIED."""
    known = enum.DESCRIPTOR.values_by_number.get(number)
    return kind[known.name] if known and known.name in kind.__members__ else kind["UNSPECIFIED"]


def same_fields(kind: type[_T], message: Message, **other: Any) -> _T:
    """A dataclass from a message with the same field names.

    Args:
        other: the fields that hold what the message does not have as such: other dataclasses, states.
    """
    return kind(**fields_of(kind, message, **other))


def fields_of(kind: type[Any], message: Message, **other: Any) -> dict[str, Any]:
    """The fields of such a dataclass: see `same_fields`."""
    named = message.DESCRIPTOR.fields_by_name
    own = (name for name in kind.__dataclass_fields__ if name not in other)
    return {name: _value(message, named[name]) for name in own} | other


def _value(message: Message, field: Any) -> Any:
    """The value of a field; None: an unset option, time or duration."""
    kind = field.message_type
    if is_duration(field):
        return seconds_of(message, field.name)
    if kind is not None and kind.full_name == "google.protobuf.Timestamp":
        return time_of(message, field.name)
    value = getattr(message, field.name)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(field.default_value, list):
        return tuple(value)
    is_choice = field.containing_oneof is not None and len(field.containing_oneof.fields) > 1
    if field.enum_type is not None or (field.has_presence and not is_choice):
        return option(message, field)
    return value


def option(message: Any, field: Any) -> Any:
    """The value of an option as users have it: a number, an enum's word in lower case; a tuple of them; None if it is
    unset."""
    if not any(found.name == field.name for found, _ in message.ListFields()):
        return None
    value = getattr(message, field.name)
    if isinstance(value, MutableSequence):
        return tuple(_plain(one, field.enum_type) for one in value)
    return _plain(value, field.enum_type)


def _plain(value: Any, enum: Any) -> Any:
    if enum is None:
        return value
    known = enum.values_by_number.get(value)
    return known.name.lower() if known else str(value)


def time_of(message: Message, field: str) -> datetime | None:
    """The time in a field, None where it is unset."""
    if not message.HasField(field):
        return None
    value: Timestamp = getattr(message, field)
    return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)


def seconds_of(message: Message, field: str) -> float | None:
    """The duration in a field, None where it is unset."""
    if not message.HasField(field):
        return None
    value: Duration = getattr(message, field)
    return value.seconds + value.nanos / 1e9
