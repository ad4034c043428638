from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import field_mask_pb2 as _field_mask_pb2
from google.protobuf import struct_pb2 as _struct_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from mvprune.v1 import artifact_pb2 as _artifact_pb2
from mvprune.v1 import job_pb2 as _job_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Sweep(_message.Message):
    __slots__ = ("name", "uid", "display_name", "spec", "policy", "labels", "state", "state_reason", "counts", "recommendation", "cost", "estimate", "creator", "create_time", "end_time", "update_time", "etag", "notes")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[Sweep.State]
        ACTIVE: _ClassVar[Sweep.State]
        PAUSED: _ClassVar[Sweep.State]
        CANCELLING: _ClassVar[Sweep.State]
        SUCCEEDED: _ClassVar[Sweep.State]
        FAILED: _ClassVar[Sweep.State]
        CANCELLED: _ClassVar[Sweep.State]
    STATE_UNSPECIFIED: Sweep.State
    ACTIVE: Sweep.State
    PAUSED: Sweep.State
    CANCELLING: Sweep.State
    SUCCEEDED: Sweep.State
    FAILED: Sweep.State
    CANCELLED: Sweep.State
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STATE_REASON_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    RECOMMENDATION_FIELD_NUMBER: _ClassVar[int]
    COST_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    CREATOR_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    uid: str
    display_name: str
    spec: SweepSpec
    policy: SweepPolicy
    labels: _containers.ScalarMap[str, str]
    state: Sweep.State
    state_reason: str
    counts: SweepCounts
    recommendation: Recommendation
    cost: SweepCost
    estimate: SweepEstimate
    creator: str
    create_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    etag: str
    notes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., uid: _Optional[str] = ..., display_name: _Optional[str] = ..., spec: _Optional[_Union[SweepSpec, _Mapping]] = ..., policy: _Optional[_Union[SweepPolicy, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., state: _Optional[_Union[Sweep.State, str]] = ..., state_reason: _Optional[str] = ..., counts: _Optional[_Union[SweepCounts, _Mapping]] = ..., recommendation: _Optional[_Union[Recommendation, _Mapping]] = ..., cost: _Optional[_Union[SweepCost, _Mapping]] = ..., estimate: _Optional[_Union[SweepEstimate, _Mapping]] = ..., creator: _Optional[str] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., etag: _Optional[str] = ..., notes: _Optional[_Iterable[str]] = ...) -> None: ...

class SweepSpec(_message.Message):
    __slots__ = ("base", "job_policy", "axes", "points", "exclude", "max_loss", "gates", "objectives", "seeds", "grid", "random", "search", "tickets", "train_rows")
    class Seeds(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SEEDS_UNSPECIFIED: _ClassVar[SweepSpec.Seeds]
        MEAN: _ClassVar[SweepSpec.Seeds]
        WORST: _ClassVar[SweepSpec.Seeds]
    SEEDS_UNSPECIFIED: SweepSpec.Seeds
    MEAN: SweepSpec.Seeds
    WORST: SweepSpec.Seeds
    BASE_FIELD_NUMBER: _ClassVar[int]
    JOB_POLICY_FIELD_NUMBER: _ClassVar[int]
    AXES_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    MAX_LOSS_FIELD_NUMBER: _ClassVar[int]
    GATES_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVES_FIELD_NUMBER: _ClassVar[int]
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    GRID_FIELD_NUMBER: _ClassVar[int]
    RANDOM_FIELD_NUMBER: _ClassVar[int]
    SEARCH_FIELD_NUMBER: _ClassVar[int]
    TICKETS_FIELD_NUMBER: _ClassVar[int]
    TRAIN_ROWS_FIELD_NUMBER: _ClassVar[int]
    base: _job_pb2.CompressionSpec
    job_policy: _job_pb2.ExecutionPolicy
    axes: _containers.RepeatedCompositeFieldContainer[Axis]
    points: _containers.RepeatedCompositeFieldContainer[_struct_pb2.Struct]
    exclude: _containers.RepeatedCompositeFieldContainer[_struct_pb2.Struct]
    max_loss: float
    gates: _containers.RepeatedCompositeFieldContainer[_job_pb2.Gate]
    objectives: _containers.RepeatedCompositeFieldContainer[Objective]
    seeds: SweepSpec.Seeds
    grid: GridStrategy
    random: RandomStrategy
    search: SearchStrategy
    tickets: TicketStrategy
    train_rows: int
    def __init__(self, base: _Optional[_Union[_job_pb2.CompressionSpec, _Mapping]] = ..., job_policy: _Optional[_Union[_job_pb2.ExecutionPolicy, _Mapping]] = ..., axes: _Optional[_Iterable[_Union[Axis, _Mapping]]] = ..., points: _Optional[_Iterable[_Union[_struct_pb2.Struct, _Mapping]]] = ..., exclude: _Optional[_Iterable[_Union[_struct_pb2.Struct, _Mapping]]] = ..., max_loss: _Optional[float] = ..., gates: _Optional[_Iterable[_Union[_job_pb2.Gate, _Mapping]]] = ..., objectives: _Optional[_Iterable[_Union[Objective, _Mapping]]] = ..., seeds: _Optional[_Union[SweepSpec.Seeds, str]] = ..., grid: _Optional[_Union[GridStrategy, _Mapping]] = ..., random: _Optional[_Union[RandomStrategy, _Mapping]] = ..., search: _Optional[_Union[SearchStrategy, _Mapping]] = ..., tickets: _Optional[_Union[TicketStrategy, _Mapping]] = ..., train_rows: _Optional[int] = ...) -> None: ...

class Axis(_message.Message):
    __slots__ = ("parameter", "values", "range")
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    RANGE_FIELD_NUMBER: _ClassVar[int]
    parameter: str
    values: _containers.RepeatedCompositeFieldContainer[_struct_pb2.Value]
    range: Range
    def __init__(self, parameter: _Optional[str] = ..., values: _Optional[_Iterable[_Union[_struct_pb2.Value, _Mapping]]] = ..., range: _Optional[_Union[Range, _Mapping]] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("min", "max", "log")
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    min: float
    max: float
    log: bool
    def __init__(self, min: _Optional[float] = ..., max: _Optional[float] = ..., log: bool = ...) -> None: ...

class GridStrategy(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RandomStrategy(_message.Message):
    __slots__ = ("points", "seed")
    POINTS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    points: int
    seed: int
    def __init__(self, points: _Optional[int] = ..., seed: _Optional[int] = ...) -> None: ...

class SearchStrategy(_message.Message):
    __slots__ = ("goal", "min_density", "max_density", "tolerance", "seeds", "way", "time")
    class Way(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        WAY_UNSPECIFIED: _ClassVar[SearchStrategy.Way]
        DESCENT: _ClassVar[SearchStrategy.Way]
        BISECTION: _ClassVar[SearchStrategy.Way]
    WAY_UNSPECIFIED: SearchStrategy.Way
    DESCENT: SearchStrategy.Way
    BISECTION: SearchStrategy.Way
    class Goal(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        GOAL_UNSPECIFIED: _ClassVar[SearchStrategy.Goal]
        DENSITY: _ClassVar[SearchStrategy.Goal]
        BYTES: _ClassVar[SearchStrategy.Goal]
        LATENCY: _ClassVar[SearchStrategy.Goal]
    GOAL_UNSPECIFIED: SearchStrategy.Goal
    DENSITY: SearchStrategy.Goal
    BYTES: SearchStrategy.Goal
    LATENCY: SearchStrategy.Goal
    GOAL_FIELD_NUMBER: _ClassVar[int]
    MIN_DENSITY_FIELD_NUMBER: _ClassVar[int]
    MAX_DENSITY_FIELD_NUMBER: _ClassVar[int]
    TOLERANCE_FIELD_NUMBER: _ClassVar[int]
    SEEDS_FIELD_NUMBER: _ClassVar[int]
    WAY_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    goal: SearchStrategy.Goal
    min_density: float
    max_density: float
    tolerance: float
    seeds: int
    way: SearchStrategy.Way
    time: _duration_pb2.Duration
    def __init__(self, goal: _Optional[_Union[SearchStrategy.Goal, str]] = ..., min_density: _Optional[float] = ..., max_density: _Optional[float] = ..., tolerance: _Optional[float] = ..., seeds: _Optional[int] = ..., way: _Optional[_Union[SearchStrategy.Way, str]] = ..., time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class TicketStrategy(_message.Message):
    __slots__ = ("step", "controls", "table_tasks", "transfer_density", "transfer_sources", "transfer_targets")
    class Control(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CONTROL_UNSPECIFIED: _ClassVar[TicketStrategy.Control]
        RANDOM_MASK: _ClassVar[TicketStrategy.Control]
        RANDOM: _ClassVar[TicketStrategy.Control]
        SHUFFLED: _ClassVar[TicketStrategy.Control]
        SHUFFLED_LAYERS: _ClassVar[TicketStrategy.Control]
        NONE: _ClassVar[TicketStrategy.Control]
    CONTROL_UNSPECIFIED: TicketStrategy.Control
    RANDOM_MASK: TicketStrategy.Control
    RANDOM: TicketStrategy.Control
    SHUFFLED: TicketStrategy.Control
    SHUFFLED_LAYERS: TicketStrategy.Control
    NONE: TicketStrategy.Control
    STEP_FIELD_NUMBER: _ClassVar[int]
    CONTROLS_FIELD_NUMBER: _ClassVar[int]
    TABLE_TASKS_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_DENSITY_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_SOURCES_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_TARGETS_FIELD_NUMBER: _ClassVar[int]
    step: float
    controls: _containers.RepeatedScalarFieldContainer[TicketStrategy.Control]
    table_tasks: _containers.RepeatedScalarFieldContainer[str]
    transfer_density: float
    transfer_sources: _containers.RepeatedScalarFieldContainer[str]
    transfer_targets: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, step: _Optional[float] = ..., controls: _Optional[_Iterable[_Union[TicketStrategy.Control, str]]] = ..., table_tasks: _Optional[_Iterable[str]] = ..., transfer_density: _Optional[float] = ..., transfer_sources: _Optional[_Iterable[str]] = ..., transfer_targets: _Optional[_Iterable[str]] = ...) -> None: ...

class Objective(_message.Message):
    __slots__ = ("metric", "direction")
    class Direction(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        DIRECTION_UNSPECIFIED: _ClassVar[Objective.Direction]
        MAXIMIZE: _ClassVar[Objective.Direction]
        MINIMIZE: _ClassVar[Objective.Direction]
    DIRECTION_UNSPECIFIED: Objective.Direction
    MAXIMIZE: Objective.Direction
    MINIMIZE: Objective.Direction
    METRIC_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    metric: str
    direction: Objective.Direction
    def __init__(self, metric: _Optional[str] = ..., direction: _Optional[_Union[Objective.Direction, str]] = ...) -> None: ...

class SweepPolicy(_message.Message):
    __slots__ = ("parallel", "max_failed", "on_failure", "max_runtime", "max_gpu_hours", "reuse", "early_stop", "own_baselines")
    class OnFailure(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ON_FAILURE_UNSPECIFIED: _ClassVar[SweepPolicy.OnFailure]
        LET_RUN: _ClassVar[SweepPolicy.OnFailure]
        STOP: _ClassVar[SweepPolicy.OnFailure]
    ON_FAILURE_UNSPECIFIED: SweepPolicy.OnFailure
    LET_RUN: SweepPolicy.OnFailure
    STOP: SweepPolicy.OnFailure
    PARALLEL_FIELD_NUMBER: _ClassVar[int]
    MAX_FAILED_FIELD_NUMBER: _ClassVar[int]
    ON_FAILURE_FIELD_NUMBER: _ClassVar[int]
    MAX_RUNTIME_FIELD_NUMBER: _ClassVar[int]
    MAX_GPU_HOURS_FIELD_NUMBER: _ClassVar[int]
    REUSE_FIELD_NUMBER: _ClassVar[int]
    EARLY_STOP_FIELD_NUMBER: _ClassVar[int]
    OWN_BASELINES_FIELD_NUMBER: _ClassVar[int]
    parallel: int
    max_failed: int
    on_failure: SweepPolicy.OnFailure
    max_runtime: _duration_pb2.Duration
    max_gpu_hours: float
    reuse: bool
    early_stop: bool
    own_baselines: bool
    def __init__(self, parallel: _Optional[int] = ..., max_failed: _Optional[int] = ..., on_failure: _Optional[_Union[SweepPolicy.OnFailure, str]] = ..., max_runtime: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., max_gpu_hours: _Optional[float] = ..., reuse: bool = ..., early_stop: bool = ..., own_baselines: bool = ...) -> None: ...

class SweepCounts(_message.Message):
    __slots__ = ("total", "pending", "queued", "running", "succeeded", "failed", "cancelled", "skipped", "deleted", "reused", "baselines")
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    QUEUED_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    REUSED_FIELD_NUMBER: _ClassVar[int]
    BASELINES_FIELD_NUMBER: _ClassVar[int]
    total: int
    pending: int
    queued: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    skipped: int
    deleted: int
    reused: int
    baselines: int
    def __init__(self, total: _Optional[int] = ..., pending: _Optional[int] = ..., queued: _Optional[int] = ..., running: _Optional[int] = ..., succeeded: _Optional[int] = ..., failed: _Optional[int] = ..., cancelled: _Optional[int] = ..., skipped: _Optional[int] = ..., deleted: _Optional[int] = ..., reused: _Optional[int] = ..., baselines: _Optional[int] = ...) -> None: ...

class Recommendation(_message.Message):
    __slots__ = ("passed", "point", "points", "text")
    PASSED_FIELD_NUMBER: _ClassVar[int]
    POINT_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    passed: bool
    point: int
    points: _containers.RepeatedScalarFieldContainer[int]
    text: str
    def __init__(self, passed: bool = ..., point: _Optional[int] = ..., points: _Optional[_Iterable[int]] = ..., text: _Optional[str] = ...) -> None: ...

class SweepCost(_message.Message):
    __slots__ = ("runtime", "gpu_hours", "baseline_runtime", "saved_runtime")
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    GPU_HOURS_FIELD_NUMBER: _ClassVar[int]
    BASELINE_RUNTIME_FIELD_NUMBER: _ClassVar[int]
    SAVED_RUNTIME_FIELD_NUMBER: _ClassVar[int]
    runtime: _duration_pb2.Duration
    gpu_hours: float
    baseline_runtime: _duration_pb2.Duration
    saved_runtime: _duration_pb2.Duration
    def __init__(self, runtime: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., gpu_hours: _Optional[float] = ..., baseline_runtime: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., saved_runtime: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class SweepEstimate(_message.Message):
    __slots__ = ("jobs", "baselines", "runtime", "gpu_hours", "measured_jobs", "text")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    BASELINES_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    GPU_HOURS_FIELD_NUMBER: _ClassVar[int]
    MEASURED_JOBS_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    jobs: int
    baselines: int
    runtime: _duration_pb2.Duration
    gpu_hours: float
    measured_jobs: int
    text: str
    def __init__(self, jobs: _Optional[int] = ..., baselines: _Optional[int] = ..., runtime: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., gpu_hours: _Optional[float] = ..., measured_jobs: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class SweepPoint(_message.Message):
    __slots__ = ("number", "cell", "state", "state_reason", "job", "reused", "artifact", "metrics", "primary_metric", "accounting", "total_bytes", "failure", "runtime", "gpu_hours", "progress", "optimal", "method", "target_density", "seed", "model", "task")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[SweepPoint.State]
        PENDING: _ClassVar[SweepPoint.State]
        QUEUED: _ClassVar[SweepPoint.State]
        RUNNING: _ClassVar[SweepPoint.State]
        SUCCEEDED: _ClassVar[SweepPoint.State]
        FAILED: _ClassVar[SweepPoint.State]
        CANCELLED: _ClassVar[SweepPoint.State]
        SKIPPED: _ClassVar[SweepPoint.State]
        DELETED: _ClassVar[SweepPoint.State]
    STATE_UNSPECIFIED: SweepPoint.State
    PENDING: SweepPoint.State
    QUEUED: SweepPoint.State
    RUNNING: SweepPoint.State
    SUCCEEDED: SweepPoint.State
    FAILED: SweepPoint.State
    CANCELLED: SweepPoint.State
    SKIPPED: SweepPoint.State
    DELETED: SweepPoint.State
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    CELL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STATE_REASON_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    REUSED_FIELD_NUMBER: _ClassVar[int]
    ARTIFACT_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_METRIC_FIELD_NUMBER: _ClassVar[int]
    ACCOUNTING_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    GPU_HOURS_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    OPTIMAL_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    TARGET_DENSITY_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    number: int
    cell: _struct_pb2.Struct
    state: SweepPoint.State
    state_reason: str
    job: str
    reused: bool
    artifact: str
    metrics: _containers.ScalarMap[str, float]
    primary_metric: str
    accounting: _artifact_pb2.Accounting
    total_bytes: int
    failure: _job_pb2.Failure
    runtime: _duration_pb2.Duration
    gpu_hours: float
    progress: _job_pb2.Progress
    optimal: bool
    method: str
    target_density: float
    seed: int
    model: str
    task: str
    def __init__(self, number: _Optional[int] = ..., cell: _Optional[_Union[_struct_pb2.Struct, _Mapping]] = ..., state: _Optional[_Union[SweepPoint.State, str]] = ..., state_reason: _Optional[str] = ..., job: _Optional[str] = ..., reused: bool = ..., artifact: _Optional[str] = ..., metrics: _Optional[_Mapping[str, float]] = ..., primary_metric: _Optional[str] = ..., accounting: _Optional[_Union[_artifact_pb2.Accounting, _Mapping]] = ..., total_bytes: _Optional[int] = ..., failure: _Optional[_Union[_job_pb2.Failure, _Mapping]] = ..., runtime: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., gpu_hours: _Optional[float] = ..., progress: _Optional[_Union[_job_pb2.Progress, _Mapping]] = ..., optimal: bool = ..., method: _Optional[str] = ..., target_density: _Optional[float] = ..., seed: _Optional[int] = ..., model: _Optional[str] = ..., task: _Optional[str] = ...) -> None: ...

class SweepEvent(_message.Message):
    __slots__ = ("sequence", "time", "type", "actor", "details")
    class DetailsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    ACTOR_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    time: _timestamp_pb2.Timestamp
    type: str
    actor: str
    details: _containers.ScalarMap[str, str]
    def __init__(self, sequence: _Optional[int] = ..., time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., type: _Optional[str] = ..., actor: _Optional[str] = ..., details: _Optional[_Mapping[str, str]] = ...) -> None: ...

class CreateSweepRequest(_message.Message):
    __slots__ = ("parent", "sweep_id", "sweep", "request_id", "validate_only")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    SWEEP_ID_FIELD_NUMBER: _ClassVar[int]
    SWEEP_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    parent: str
    sweep_id: str
    sweep: Sweep
    request_id: str
    validate_only: bool
    def __init__(self, parent: _Optional[str] = ..., sweep_id: _Optional[str] = ..., sweep: _Optional[_Union[Sweep, _Mapping]] = ..., request_id: _Optional[str] = ..., validate_only: bool = ...) -> None: ...

class GetSweepRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListSweepsRequest(_message.Message):
    __slots__ = ("parent", "page_size", "page_token", "filter", "order_by")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    ORDER_BY_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_size: int
    page_token: str
    filter: str
    order_by: str
    def __init__(self, parent: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., filter: _Optional[str] = ..., order_by: _Optional[str] = ...) -> None: ...

class ListSweepsResponse(_message.Message):
    __slots__ = ("sweeps", "next_page_token")
    SWEEPS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    sweeps: _containers.RepeatedCompositeFieldContainer[Sweep]
    next_page_token: str
    def __init__(self, sweeps: _Optional[_Iterable[_Union[Sweep, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchSweepRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class WatchSweepResponse(_message.Message):
    __slots__ = ("sweep", "done")
    SWEEP_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    sweep: Sweep
    done: bool
    def __init__(self, sweep: _Optional[_Union[Sweep, _Mapping]] = ..., done: bool = ...) -> None: ...

class ListSweepPointsRequest(_message.Message):
    __slots__ = ("parent", "page_size", "page_token", "optimal_only", "numbers")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    OPTIMAL_ONLY_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_size: int
    page_token: str
    optimal_only: bool
    numbers: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, parent: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., optimal_only: bool = ..., numbers: _Optional[_Iterable[int]] = ...) -> None: ...

class ListSweepPointsResponse(_message.Message):
    __slots__ = ("points", "next_page_token")
    POINTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    points: _containers.RepeatedCompositeFieldContainer[SweepPoint]
    next_page_token: str
    def __init__(self, points: _Optional[_Iterable[_Union[SweepPoint, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListSweepEventsRequest(_message.Message):
    __slots__ = ("parent", "page_size", "page_token")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_size: int
    page_token: str
    def __init__(self, parent: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListSweepEventsResponse(_message.Message):
    __slots__ = ("events", "next_page_token")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[SweepEvent]
    next_page_token: str
    def __init__(self, events: _Optional[_Iterable[_Union[SweepEvent, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class CancelSweepRequest(_message.Message):
    __slots__ = ("name", "reason", "etag")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    name: str
    reason: str
    etag: str
    def __init__(self, name: _Optional[str] = ..., reason: _Optional[str] = ..., etag: _Optional[str] = ...) -> None: ...

class PauseSweepRequest(_message.Message):
    __slots__ = ("name", "etag")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    name: str
    etag: str
    def __init__(self, name: _Optional[str] = ..., etag: _Optional[str] = ...) -> None: ...

class ResumeSweepRequest(_message.Message):
    __slots__ = ("name", "etag")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    name: str
    etag: str
    def __init__(self, name: _Optional[str] = ..., etag: _Optional[str] = ...) -> None: ...

class RetrySweepRequest(_message.Message):
    __slots__ = ("name", "etag")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    name: str
    etag: str
    def __init__(self, name: _Optional[str] = ..., etag: _Optional[str] = ...) -> None: ...

class ExtendSweepRequest(_message.Message):
    __slots__ = ("name", "axes", "points", "etag", "validate_only")
    NAME_FIELD_NUMBER: _ClassVar[int]
    AXES_FIELD_NUMBER: _ClassVar[int]
    POINTS_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    name: str
    axes: _containers.RepeatedCompositeFieldContainer[Axis]
    points: _containers.RepeatedCompositeFieldContainer[_struct_pb2.Struct]
    etag: str
    validate_only: bool
    def __init__(self, name: _Optional[str] = ..., axes: _Optional[_Iterable[_Union[Axis, _Mapping]]] = ..., points: _Optional[_Iterable[_Union[_struct_pb2.Struct, _Mapping]]] = ..., etag: _Optional[str] = ..., validate_only: bool = ...) -> None: ...

class UpdateSweepPolicyRequest(_message.Message):
    __slots__ = ("name", "policy", "update_mask", "etag")
    NAME_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    name: str
    policy: SweepPolicy
    update_mask: _field_mask_pb2.FieldMask
    etag: str
    def __init__(self, name: _Optional[str] = ..., policy: _Optional[_Union[SweepPolicy, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., etag: _Optional[str] = ...) -> None: ...

class DeleteSweepRequest(_message.Message):
    __slots__ = ("name", "allow_missing", "etag")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALLOW_MISSING_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    name: str
    allow_missing: bool
    etag: str
    def __init__(self, name: _Optional[str] = ..., allow_missing: bool = ..., etag: _Optional[str] = ...) -> None: ...

class DeleteSweepResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
