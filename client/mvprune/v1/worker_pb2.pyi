from google.protobuf import duration_pb2 as _duration_pb2
from mvprune.v1 import job_pb2 as _job_pb2
from mvprune.v1 import upload_pb2 as _upload_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Lease(_message.Message):
    __slots__ = ("attempt", "fencing_token")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FENCING_TOKEN_FIELD_NUMBER: _ClassVar[int]
    attempt: str
    fencing_token: int
    def __init__(self, attempt: _Optional[str] = ..., fencing_token: _Optional[int] = ...) -> None: ...

class Checkpoint(_message.Message):
    __slots__ = ("attempt_uid", "step", "manifest_sha256")
    ATTEMPT_UID_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_SHA256_FIELD_NUMBER: _ClassVar[int]
    attempt_uid: str
    step: int
    manifest_sha256: str
    def __init__(self, attempt_uid: _Optional[str] = ..., step: _Optional[int] = ..., manifest_sha256: _Optional[str] = ...) -> None: ...

class ClaimAttemptRequest(_message.Message):
    __slots__ = ("lease", "runner_id", "node", "version")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    RUNNER_ID_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    runner_id: str
    node: str
    version: str
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., runner_id: _Optional[str] = ..., node: _Optional[str] = ..., version: _Optional[str] = ...) -> None: ...

class ClaimAttemptResponse(_message.Message):
    __slots__ = ("spec", "lease_ttl", "heartbeat_interval", "log_offset", "teacher_manifest_sha256", "checkpoints", "checkpoint_interval", "accumulation_factor", "measure_latency", "uploads")
    SPEC_FIELD_NUMBER: _ClassVar[int]
    LEASE_TTL_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    LOG_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TEACHER_MANIFEST_SHA256_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    ACCUMULATION_FACTOR_FIELD_NUMBER: _ClassVar[int]
    MEASURE_LATENCY_FIELD_NUMBER: _ClassVar[int]
    UPLOADS_FIELD_NUMBER: _ClassVar[int]
    spec: _job_pb2.CompressionSpec
    lease_ttl: _duration_pb2.Duration
    heartbeat_interval: _duration_pb2.Duration
    log_offset: int
    teacher_manifest_sha256: str
    checkpoints: _containers.RepeatedCompositeFieldContainer[Checkpoint]
    checkpoint_interval: _duration_pb2.Duration
    accumulation_factor: int
    measure_latency: bool
    uploads: _containers.RepeatedCompositeFieldContainer[UploadedInput]
    def __init__(self, spec: _Optional[_Union[_job_pb2.CompressionSpec, _Mapping]] = ..., lease_ttl: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., heartbeat_interval: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., log_offset: _Optional[int] = ..., teacher_manifest_sha256: _Optional[str] = ..., checkpoints: _Optional[_Iterable[_Union[Checkpoint, _Mapping]]] = ..., checkpoint_interval: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., accumulation_factor: _Optional[int] = ..., measure_latency: bool = ..., uploads: _Optional[_Iterable[_Union[UploadedInput, _Mapping]]] = ...) -> None: ...

class UploadedInput(_message.Message):
    __slots__ = ("reference", "files", "keys")
    class KeysEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    reference: str
    files: _containers.RepeatedCompositeFieldContainer[_upload_pb2.UploadFile]
    keys: _containers.ScalarMap[str, str]
    def __init__(self, reference: _Optional[str] = ..., files: _Optional[_Iterable[_Union[_upload_pb2.UploadFile, _Mapping]]] = ..., keys: _Optional[_Mapping[str, str]] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("lease", "progress")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    progress: _job_pb2.Progress
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., progress: _Optional[_Union[_job_pb2.Progress, _Mapping]] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("directive", "grace", "interval")
    class Directive(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DIRECTIVE_UNSPECIFIED: _ClassVar[HeartbeatResponse.Directive]
        CONTINUE: _ClassVar[HeartbeatResponse.Directive]
        CANCEL: _ClassVar[HeartbeatResponse.Directive]
    DIRECTIVE_UNSPECIFIED: HeartbeatResponse.Directive
    CONTINUE: HeartbeatResponse.Directive
    CANCEL: HeartbeatResponse.Directive
    DIRECTIVE_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_FIELD_NUMBER: _ClassVar[int]
    directive: HeartbeatResponse.Directive
    grace: _duration_pb2.Duration
    interval: _duration_pb2.Duration
    def __init__(self, directive: _Optional[_Union[HeartbeatResponse.Directive, str]] = ..., grace: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., interval: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class AppendLogsRequest(_message.Message):
    __slots__ = ("lease", "offset", "data")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    offset: int
    data: bytes
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class AppendLogsResponse(_message.Message):
    __slots__ = ("next_offset",)
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    next_offset: int
    def __init__(self, next_offset: _Optional[int] = ...) -> None: ...

class ReportMetricsRequest(_message.Message):
    __slots__ = ("lease", "points")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    points: _containers.RepeatedCompositeFieldContainer[_job_pb2.MetricPoint]
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., points: _Optional[_Iterable[_Union[_job_pb2.MetricPoint, _Mapping]]] = ...) -> None: ...

class ReportMetricsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CommitCheckpointRequest(_message.Message):
    __slots__ = ("lease", "step", "manifest_sha256")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_SHA256_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    step: int
    manifest_sha256: str
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., step: _Optional[int] = ..., manifest_sha256: _Optional[str] = ...) -> None: ...

class CommitCheckpointResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ReportLostChunksRequest(_message.Message):
    __slots__ = ("lease", "chunks")
    LEASE_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    chunks: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., chunks: _Optional[_Iterable[str]] = ...) -> None: ...

class ReportLostChunksResponse(_message.Message):
    __slots__ = ("missing",)
    MISSING_FIELD_NUMBER: _ClassVar[int]
    missing: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, missing: _Optional[_Iterable[str]] = ...) -> None: ...

class CompleteAttemptRequest(_message.Message):
    __slots__ = ("lease", "manifest_sha256", "failure", "cancelled", "killed")
    class Cancelled(_message.Message):
        __slots__ = ()
        def __init__(self) -> None: ...
    class Killed(_message.Message):
        __slots__ = ("signal", "phase", "step")
        SIGNAL_FIELD_NUMBER: _ClassVar[int]
        PHASE_FIELD_NUMBER: _ClassVar[int]
        STEP_FIELD_NUMBER: _ClassVar[int]
        signal: int
        phase: str
        step: int
        def __init__(self, signal: _Optional[int] = ..., phase: _Optional[str] = ..., step: _Optional[int] = ...) -> None: ...
    LEASE_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_SHA256_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    KILLED_FIELD_NUMBER: _ClassVar[int]
    lease: Lease
    manifest_sha256: str
    failure: _job_pb2.Failure
    cancelled: CompleteAttemptRequest.Cancelled
    killed: CompleteAttemptRequest.Killed
    def __init__(self, lease: _Optional[_Union[Lease, _Mapping]] = ..., manifest_sha256: _Optional[str] = ..., failure: _Optional[_Union[_job_pb2.Failure, _Mapping]] = ..., cancelled: _Optional[_Union[CompleteAttemptRequest.Cancelled, _Mapping]] = ..., killed: _Optional[_Union[CompleteAttemptRequest.Killed, _Mapping]] = ...) -> None: ...

class CompleteAttemptResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
