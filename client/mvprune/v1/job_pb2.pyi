from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Selection(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SELECTION_UNSPECIFIED: _ClassVar[Selection]
    LOCAL: _ClassVar[Selection]
    GLOBAL: _ClassVar[Selection]
SELECTION_UNSPECIFIED: Selection
LOCAL: Selection
GLOBAL: Selection

class Job(_message.Message):
    __slots__ = ("name", "uid", "display_name", "spec", "policy", "labels", "state", "state_reason", "progress", "attempt", "model_size", "artifact", "failure", "metrics", "creator", "gate_results", "create_time", "start_time", "end_time", "update_time", "etag", "expire_time", "notes", "sweep", "primary_metric", "estimate", "note")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[Job.State]
        QUEUED: _ClassVar[Job.State]
        STARTING: _ClassVar[Job.State]
        RUNNING: _ClassVar[Job.State]
        FINALIZING: _ClassVar[Job.State]
        CANCELLING: _ClassVar[Job.State]
        SUCCEEDED: _ClassVar[Job.State]
        FAILED: _ClassVar[Job.State]
        CANCELLED: _ClassVar[Job.State]
    STATE_UNSPECIFIED: Job.State
    QUEUED: Job.State
    STARTING: Job.State
    RUNNING: Job.State
    FINALIZING: Job.State
    CANCELLING: Job.State
    SUCCEEDED: Job.State
    FAILED: Job.State
    CANCELLED: Job.State
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    UID_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    STATE_REASON_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MODEL_SIZE_FIELD_NUMBER: _ClassVar[int]
    ARTIFACT_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    CREATOR_FIELD_NUMBER: _ClassVar[int]
    GATE_RESULTS_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    NOTES_FIELD_NUMBER: _ClassVar[int]
    SWEEP_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_METRIC_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    name: str
    uid: str
    display_name: str
    spec: CompressionSpec
    policy: ExecutionPolicy
    labels: _containers.ScalarMap[str, str]
    state: Job.State
    state_reason: str
    progress: Progress
    attempt: int
    model_size: ModelSize
    artifact: str
    failure: Failure
    metrics: _containers.ScalarMap[str, float]
    creator: str
    gate_results: _containers.RepeatedCompositeFieldContainer[GateResult]
    create_time: _timestamp_pb2.Timestamp
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    etag: str
    expire_time: _timestamp_pb2.Timestamp
    notes: _containers.RepeatedScalarFieldContainer[str]
    sweep: str
    primary_metric: str
    estimate: JobEstimate
    note: str
    def __init__(self, name: _Optional[str] = ..., uid: _Optional[str] = ..., display_name: _Optional[str] = ..., spec: _Optional[_Union[CompressionSpec, _Mapping]] = ..., policy: _Optional[_Union[ExecutionPolicy, _Mapping]] = ..., labels: _Optional[_Mapping[str, str]] = ..., state: _Optional[_Union[Job.State, str]] = ..., state_reason: _Optional[str] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., attempt: _Optional[int] = ..., model_size: _Optional[_Union[ModelSize, _Mapping]] = ..., artifact: _Optional[str] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., metrics: _Optional[_Mapping[str, float]] = ..., creator: _Optional[str] = ..., gate_results: _Optional[_Iterable[_Union[GateResult, _Mapping]]] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., etag: _Optional[str] = ..., expire_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., notes: _Optional[_Iterable[str]] = ..., sweep: _Optional[str] = ..., primary_metric: _Optional[str] = ..., estimate: _Optional[_Union[JobEstimate, _Mapping]] = ..., note: _Optional[str] = ...) -> None: ...

class JobEstimate(_message.Message):
    __slots__ = ("phases", "epochs", "runtime", "text")
    class Phase(_message.Message):
        __slots__ = ("name", "steps", "examples", "evaluations")
        NAME_FIELD_NUMBER: _ClassVar[int]
        STEPS_FIELD_NUMBER: _ClassVar[int]
        EXAMPLES_FIELD_NUMBER: _ClassVar[int]
        EVALUATIONS_FIELD_NUMBER: _ClassVar[int]
        name: str
        steps: int
        examples: int
        evaluations: int
        def __init__(self, name: _Optional[str] = ..., steps: _Optional[int] = ..., examples: _Optional[int] = ..., evaluations: _Optional[int] = ...) -> None: ...
    PHASES_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    RUNTIME_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    phases: _containers.RepeatedCompositeFieldContainer[JobEstimate.Phase]
    epochs: float
    runtime: _duration_pb2.Duration
    text: str
    def __init__(self, phases: _Optional[_Iterable[_Union[JobEstimate.Phase, _Mapping]]] = ..., epochs: _Optional[float] = ..., runtime: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., text: _Optional[str] = ...) -> None: ...

class CompressionSpec(_message.Message):
    __slots__ = ("model", "model_revision", "task", "dataset", "target_density", "movement", "soft_movement", "l0", "magnitude", "one_shot_magnitude", "random", "platon", "obert", "smp", "locked_mask", "rigl", "sparse_momentum", "rpp", "auto", "include", "exclude", "pattern", "structure", "structure_density", "structure_block_size", "structure_fill", "layer_dropout", "allow_density_miss", "weight_dtype", "embedding_dtype", "activations", "trim_vocabulary", "trim_positions", "target_bytes", "delta", "teacher", "baseline", "training", "start_from", "start_artifact", "keep_fine_tuned", "max_target_length", "source_prefix", "source_language", "target_language", "num_beams", "length_penalty", "no_repeat_ngram_size", "evaluated_examples", "metric", "class_weights", "threshold", "pooling", "prompt_name", "learn_pairs", "learn_margins", "seed")
    class Values(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        VALUES_UNSPECIFIED: _ClassVar[CompressionSpec.Values]
        FP32: _ClassVar[CompressionSpec.Values]
        FP16: _ClassVar[CompressionSpec.Values]
        BF16: _ClassVar[CompressionSpec.Values]
        INT8: _ClassVar[CompressionSpec.Values]
        INT4: _ClassVar[CompressionSpec.Values]
    VALUES_UNSPECIFIED: CompressionSpec.Values
    FP32: CompressionSpec.Values
    FP16: CompressionSpec.Values
    BF16: CompressionSpec.Values
    INT8: CompressionSpec.Values
    INT4: CompressionSpec.Values
    class Structure(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STRUCTURE_UNSPECIFIED: _ClassVar[CompressionSpec.Structure]
        HEADS: _ClassVar[CompressionSpec.Structure]
        UNITS: _ClassVar[CompressionSpec.Structure]
        HEADS_AND_UNITS: _ClassVar[CompressionSpec.Structure]
        BLOCKS_AND_UNITS: _ClassVar[CompressionSpec.Structure]
        LAYERS: _ClassVar[CompressionSpec.Structure]
    STRUCTURE_UNSPECIFIED: CompressionSpec.Structure
    HEADS: CompressionSpec.Structure
    UNITS: CompressionSpec.Structure
    HEADS_AND_UNITS: CompressionSpec.Structure
    BLOCKS_AND_UNITS: CompressionSpec.Structure
    LAYERS: CompressionSpec.Structure
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MODEL_REVISION_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    TARGET_DENSITY_FIELD_NUMBER: _ClassVar[int]
    MOVEMENT_FIELD_NUMBER: _ClassVar[int]
    SOFT_MOVEMENT_FIELD_NUMBER: _ClassVar[int]
    L0_FIELD_NUMBER: _ClassVar[int]
    MAGNITUDE_FIELD_NUMBER: _ClassVar[int]
    ONE_SHOT_MAGNITUDE_FIELD_NUMBER: _ClassVar[int]
    RANDOM_FIELD_NUMBER: _ClassVar[int]
    PLATON_FIELD_NUMBER: _ClassVar[int]
    OBERT_FIELD_NUMBER: _ClassVar[int]
    SMP_FIELD_NUMBER: _ClassVar[int]
    LOCKED_MASK_FIELD_NUMBER: _ClassVar[int]
    RIGL_FIELD_NUMBER: _ClassVar[int]
    SPARSE_MOMENTUM_FIELD_NUMBER: _ClassVar[int]
    RPP_FIELD_NUMBER: _ClassVar[int]
    AUTO_FIELD_NUMBER: _ClassVar[int]
    INCLUDE_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    PATTERN_FIELD_NUMBER: _ClassVar[int]
    STRUCTURE_FIELD_NUMBER: _ClassVar[int]
    STRUCTURE_DENSITY_FIELD_NUMBER: _ClassVar[int]
    STRUCTURE_BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    STRUCTURE_FILL_FIELD_NUMBER: _ClassVar[int]
    LAYER_DROPOUT_FIELD_NUMBER: _ClassVar[int]
    ALLOW_DENSITY_MISS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DTYPE_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_DTYPE_FIELD_NUMBER: _ClassVar[int]
    ACTIVATIONS_FIELD_NUMBER: _ClassVar[int]
    TRIM_VOCABULARY_FIELD_NUMBER: _ClassVar[int]
    TRIM_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    TARGET_BYTES_FIELD_NUMBER: _ClassVar[int]
    DELTA_FIELD_NUMBER: _ClassVar[int]
    TEACHER_FIELD_NUMBER: _ClassVar[int]
    BASELINE_FIELD_NUMBER: _ClassVar[int]
    TRAINING_FIELD_NUMBER: _ClassVar[int]
    START_FROM_FIELD_NUMBER: _ClassVar[int]
    START_ARTIFACT_FIELD_NUMBER: _ClassVar[int]
    KEEP_FINE_TUNED_FIELD_NUMBER: _ClassVar[int]
    MAX_TARGET_LENGTH_FIELD_NUMBER: _ClassVar[int]
    SOURCE_PREFIX_FIELD_NUMBER: _ClassVar[int]
    SOURCE_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    TARGET_LANGUAGE_FIELD_NUMBER: _ClassVar[int]
    NUM_BEAMS_FIELD_NUMBER: _ClassVar[int]
    LENGTH_PENALTY_FIELD_NUMBER: _ClassVar[int]
    NO_REPEAT_NGRAM_SIZE_FIELD_NUMBER: _ClassVar[int]
    EVALUATED_EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    METRIC_FIELD_NUMBER: _ClassVar[int]
    CLASS_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    THRESHOLD_FIELD_NUMBER: _ClassVar[int]
    POOLING_FIELD_NUMBER: _ClassVar[int]
    PROMPT_NAME_FIELD_NUMBER: _ClassVar[int]
    LEARN_PAIRS_FIELD_NUMBER: _ClassVar[int]
    LEARN_MARGINS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    model: str
    model_revision: str
    task: str
    dataset: Dataset
    target_density: float
    movement: MovementPruning
    soft_movement: SoftMovementPruning
    l0: L0Pruning
    magnitude: MagnitudePruning
    one_shot_magnitude: OneShotMagnitudePruning
    random: RandomPruning
    platon: PlatonPruning
    obert: ObertPruning
    smp: StaticModelPruning
    locked_mask: LockedMask
    rigl: RigLPruning
    sparse_momentum: SparseMomentumPruning
    rpp: ReweightedProximalPruning
    auto: AutoPruning
    include: _containers.RepeatedScalarFieldContainer[str]
    exclude: _containers.RepeatedScalarFieldContainer[str]
    pattern: str
    structure: CompressionSpec.Structure
    structure_density: float
    structure_block_size: int
    structure_fill: bool
    layer_dropout: float
    allow_density_miss: bool
    weight_dtype: CompressionSpec.Values
    embedding_dtype: CompressionSpec.Values
    activations: Runtime.Activations
    trim_vocabulary: bool
    trim_positions: bool
    target_bytes: int
    delta: bool
    teacher: Teacher
    baseline: Baseline
    training: Training
    start_from: str
    start_artifact: str
    keep_fine_tuned: bool
    max_target_length: int
    source_prefix: str
    source_language: str
    target_language: str
    num_beams: int
    length_penalty: float
    no_repeat_ngram_size: int
    evaluated_examples: int
    metric: str
    class_weights: str
    threshold: float
    pooling: str
    prompt_name: str
    learn_pairs: bool
    learn_margins: bool
    seed: int
    def __init__(self, model: _Optional[str] = ..., model_revision: _Optional[str] = ..., task: _Optional[str] = ..., dataset: _Optional[_Union[Dataset, _Mapping]] = ..., target_density: _Optional[float] = ..., movement: _Optional[_Union[MovementPruning, _Mapping]] = ..., soft_movement: _Optional[_Union[SoftMovementPruning, _Mapping]] = ..., l0: _Optional[_Union[L0Pruning, _Mapping]] = ..., magnitude: _Optional[_Union[MagnitudePruning, _Mapping]] = ..., one_shot_magnitude: _Optional[_Union[OneShotMagnitudePruning, _Mapping]] = ..., random: _Optional[_Union[RandomPruning, _Mapping]] = ..., platon: _Optional[_Union[PlatonPruning, _Mapping]] = ..., obert: _Optional[_Union[ObertPruning, _Mapping]] = ..., smp: _Optional[_Union[StaticModelPruning, _Mapping]] = ..., locked_mask: _Optional[_Union[LockedMask, _Mapping]] = ..., rigl: _Optional[_Union[RigLPruning, _Mapping]] = ..., sparse_momentum: _Optional[_Union[SparseMomentumPruning, _Mapping]] = ..., rpp: _Optional[_Union[ReweightedProximalPruning, _Mapping]] = ..., auto: _Optional[_Union[AutoPruning, _Mapping]] = ..., include: _Optional[_Iterable[str]] = ..., exclude: _Optional[_Iterable[str]] = ..., pattern: _Optional[str] = ..., structure: _Optional[_Union[CompressionSpec.Structure, str]] = ..., structure_density: _Optional[float] = ..., structure_block_size: _Optional[int] = ..., structure_fill: bool = ..., layer_dropout: _Optional[float] = ..., allow_density_miss: bool = ..., weight_dtype: _Optional[_Union[CompressionSpec.Values, str]] = ..., embedding_dtype: _Optional[_Union[CompressionSpec.Values, str]] = ..., activations: _Optional[_Union[Runtime.Activations, str]] = ..., trim_vocabulary: bool = ..., trim_positions: bool = ..., target_bytes: _Optional[int] = ..., delta: bool = ..., teacher: _Optional[_Union[Teacher, _Mapping]] = ..., baseline: _Optional[_Union[Baseline, _Mapping]] = ..., training: _Optional[_Union[Training, _Mapping]] = ..., start_from: _Optional[str] = ..., start_artifact: _Optional[str] = ..., keep_fine_tuned: bool = ..., max_target_length: _Optional[int] = ..., source_prefix: _Optional[str] = ..., source_language: _Optional[str] = ..., target_language: _Optional[str] = ..., num_beams: _Optional[int] = ..., length_penalty: _Optional[float] = ..., no_repeat_ngram_size: _Optional[int] = ..., evaluated_examples: _Optional[int] = ..., metric: _Optional[str] = ..., class_weights: _Optional[str] = ..., threshold: _Optional[float] = ..., pooling: _Optional[str] = ..., prompt_name: _Optional[str] = ..., learn_pairs: bool = ..., learn_margins: bool = ..., seed: _Optional[int] = ...) -> None: ...

class Runtime(_message.Message):
    __slots__ = ()
    class Activations(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ACTIVATIONS_UNSPECIFIED: _ClassVar[Runtime.Activations]
        FP32: _ClassVar[Runtime.Activations]
        INT8: _ClassVar[Runtime.Activations]
    ACTIVATIONS_UNSPECIFIED: Runtime.Activations
    FP32: Runtime.Activations
    INT8: Runtime.Activations
    def __init__(self) -> None: ...

class Dataset(_message.Message):
    __slots__ = ("train", "validation", "hub_id", "hub_config", "test", "hold_out", "text_column", "text_pair_column", "label_column", "source_column", "target_column")
    TRAIN_FIELD_NUMBER: _ClassVar[int]
    VALIDATION_FIELD_NUMBER: _ClassVar[int]
    HUB_ID_FIELD_NUMBER: _ClassVar[int]
    HUB_CONFIG_FIELD_NUMBER: _ClassVar[int]
    TEST_FIELD_NUMBER: _ClassVar[int]
    HOLD_OUT_FIELD_NUMBER: _ClassVar[int]
    TEXT_COLUMN_FIELD_NUMBER: _ClassVar[int]
    TEXT_PAIR_COLUMN_FIELD_NUMBER: _ClassVar[int]
    LABEL_COLUMN_FIELD_NUMBER: _ClassVar[int]
    SOURCE_COLUMN_FIELD_NUMBER: _ClassVar[int]
    TARGET_COLUMN_FIELD_NUMBER: _ClassVar[int]
    train: str
    validation: str
    hub_id: str
    hub_config: str
    test: str
    hold_out: bool
    text_column: str
    text_pair_column: str
    label_column: str
    source_column: str
    target_column: str
    def __init__(self, train: _Optional[str] = ..., validation: _Optional[str] = ..., hub_id: _Optional[str] = ..., hub_config: _Optional[str] = ..., test: _Optional[str] = ..., hold_out: bool = ..., text_column: _Optional[str] = ..., text_pair_column: _Optional[str] = ..., label_column: _Optional[str] = ..., source_column: _Optional[str] = ..., target_column: _Optional[str] = ...) -> None: ...

class Schedule(_message.Message):
    __slots__ = ("pruning_start", "cooldown", "shape", "events", "first_event")
    class Shape(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SHAPE_UNSPECIFIED: _ClassVar[Schedule.Shape]
        CUBIC: _ClassVar[Schedule.Shape]
        LINEAR: _ClassVar[Schedule.Shape]
        ONE_SHOT: _ClassVar[Schedule.Shape]
        EVENTS: _ClassVar[Schedule.Shape]
    SHAPE_UNSPECIFIED: Schedule.Shape
    CUBIC: Schedule.Shape
    LINEAR: Schedule.Shape
    ONE_SHOT: Schedule.Shape
    EVENTS: Schedule.Shape
    PRUNING_START_FIELD_NUMBER: _ClassVar[int]
    COOLDOWN_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    FIRST_EVENT_FIELD_NUMBER: _ClassVar[int]
    pruning_start: float
    cooldown: float
    shape: Schedule.Shape
    events: int
    first_event: float
    def __init__(self, pruning_start: _Optional[float] = ..., cooldown: _Optional[float] = ..., shape: _Optional[_Union[Schedule.Shape, str]] = ..., events: _Optional[int] = ..., first_event: _Optional[float] = ...) -> None: ...

class MovementPruning(_message.Message):
    __slots__ = ("schedule", "score_learning_rate", "selection", "initial_scores", "penalty")
    class InitialScores(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        INITIAL_SCORES_UNSPECIFIED: _ClassVar[MovementPruning.InitialScores]
        ZERO: _ClassVar[MovementPruning.InitialScores]
        MAGNITUDE: _ClassVar[MovementPruning.InitialScores]
    INITIAL_SCORES_UNSPECIFIED: MovementPruning.InitialScores
    ZERO: MovementPruning.InitialScores
    MAGNITUDE: MovementPruning.InitialScores
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    SCORE_LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    INITIAL_SCORES_FIELD_NUMBER: _ClassVar[int]
    PENALTY_FIELD_NUMBER: _ClassVar[int]
    schedule: Schedule
    score_learning_rate: float
    selection: Selection
    initial_scores: MovementPruning.InitialScores
    penalty: float
    def __init__(self, schedule: _Optional[_Union[Schedule, _Mapping]] = ..., score_learning_rate: _Optional[float] = ..., selection: _Optional[_Union[Selection, str]] = ..., initial_scores: _Optional[_Union[MovementPruning.InitialScores, str]] = ..., penalty: _Optional[float] = ...) -> None: ...

class SoftMovementPruning(_message.Message):
    __slots__ = ("schedule", "score_learning_rate", "penalty", "initial_scores")
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    SCORE_LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    PENALTY_FIELD_NUMBER: _ClassVar[int]
    INITIAL_SCORES_FIELD_NUMBER: _ClassVar[int]
    schedule: Schedule
    score_learning_rate: float
    penalty: float
    initial_scores: MovementPruning.InitialScores
    def __init__(self, schedule: _Optional[_Union[Schedule, _Mapping]] = ..., score_learning_rate: _Optional[float] = ..., penalty: _Optional[float] = ..., initial_scores: _Optional[_Union[MovementPruning.InitialScores, str]] = ...) -> None: ...

class L0Pruning(_message.Message):
    __slots__ = ("schedule", "score_learning_rate", "penalty", "gate_temperature")
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    SCORE_LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    PENALTY_FIELD_NUMBER: _ClassVar[int]
    GATE_TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    schedule: Schedule
    score_learning_rate: float
    penalty: float
    gate_temperature: float
    def __init__(self, schedule: _Optional[_Union[Schedule, _Mapping]] = ..., score_learning_rate: _Optional[float] = ..., penalty: _Optional[float] = ..., gate_temperature: _Optional[float] = ...) -> None: ...

class MagnitudePruning(_message.Message):
    __slots__ = ("schedule", "selection")
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    schedule: Schedule
    selection: Selection
    def __init__(self, schedule: _Optional[_Union[Schedule, _Mapping]] = ..., selection: _Optional[_Union[Selection, str]] = ...) -> None: ...

class OneShotMagnitudePruning(_message.Message):
    __slots__ = ("when", "selection")
    class When(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        WHEN_UNSPECIFIED: _ClassVar[OneShotMagnitudePruning.When]
        BEFORE: _ClassVar[OneShotMagnitudePruning.When]
        AFTER: _ClassVar[OneShotMagnitudePruning.When]
    WHEN_UNSPECIFIED: OneShotMagnitudePruning.When
    BEFORE: OneShotMagnitudePruning.When
    AFTER: OneShotMagnitudePruning.When
    WHEN_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    when: OneShotMagnitudePruning.When
    selection: Selection
    def __init__(self, when: _Optional[_Union[OneShotMagnitudePruning.When, str]] = ..., selection: _Optional[_Union[Selection, str]] = ...) -> None: ...

class RandomPruning(_message.Message):
    __slots__ = ("schedule", "selection")
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    schedule: Schedule
    selection: Selection
    def __init__(self, schedule: _Optional[_Union[Schedule, _Mapping]] = ..., selection: _Optional[_Union[Selection, str]] = ...) -> None: ...

class PlatonPruning(_message.Message):
    __slots__ = ("schedule", "selection", "sensitivity_decay", "uncertainty_decay")
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    SENSITIVITY_DECAY_FIELD_NUMBER: _ClassVar[int]
    UNCERTAINTY_DECAY_FIELD_NUMBER: _ClassVar[int]
    schedule: Schedule
    selection: Selection
    sensitivity_decay: float
    uncertainty_decay: float
    def __init__(self, schedule: _Optional[_Union[Schedule, _Mapping]] = ..., selection: _Optional[_Union[Selection, str]] = ..., sensitivity_decay: _Optional[float] = ..., uncertainty_decay: _Optional[float] = ...) -> None: ...

class ObertPruning(_message.Message):
    __slots__ = ("schedule", "selection", "gradients", "gradient_batch_size", "damping", "fisher_block_size", "weight_update")
    class WeightUpdate(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        WEIGHT_UPDATE_UNSPECIFIED: _ClassVar[ObertPruning.WeightUpdate]
        LAYER: _ClassVar[ObertPruning.WeightUpdate]
        FISHER: _ClassVar[ObertPruning.WeightUpdate]
    WEIGHT_UPDATE_UNSPECIFIED: ObertPruning.WeightUpdate
    LAYER: ObertPruning.WeightUpdate
    FISHER: ObertPruning.WeightUpdate
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    DAMPING_FIELD_NUMBER: _ClassVar[int]
    FISHER_BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_UPDATE_FIELD_NUMBER: _ClassVar[int]
    schedule: Schedule
    selection: Selection
    gradients: int
    gradient_batch_size: int
    damping: float
    fisher_block_size: int
    weight_update: ObertPruning.WeightUpdate
    def __init__(self, schedule: _Optional[_Union[Schedule, _Mapping]] = ..., selection: _Optional[_Union[Selection, str]] = ..., gradients: _Optional[int] = ..., gradient_batch_size: _Optional[int] = ..., damping: _Optional[float] = ..., fisher_block_size: _Optional[int] = ..., weight_update: _Optional[_Union[ObertPruning.WeightUpdate, str]] = ...) -> None: ...

class RigLPruning(_message.Message):
    __slots__ = ("selection", "drop_fraction", "mask_interval", "mask_until")
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    DROP_FRACTION_FIELD_NUMBER: _ClassVar[int]
    MASK_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    MASK_UNTIL_FIELD_NUMBER: _ClassVar[int]
    selection: Selection
    drop_fraction: float
    mask_interval: int
    mask_until: float
    def __init__(self, selection: _Optional[_Union[Selection, str]] = ..., drop_fraction: _Optional[float] = ..., mask_interval: _Optional[int] = ..., mask_until: _Optional[float] = ...) -> None: ...

class SparseMomentumPruning(_message.Message):
    __slots__ = ("selection", "drop_fraction", "mask_interval", "mask_until")
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    DROP_FRACTION_FIELD_NUMBER: _ClassVar[int]
    MASK_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    MASK_UNTIL_FIELD_NUMBER: _ClassVar[int]
    selection: Selection
    drop_fraction: float
    mask_interval: int
    mask_until: float
    def __init__(self, selection: _Optional[_Union[Selection, str]] = ..., drop_fraction: _Optional[float] = ..., mask_interval: _Optional[int] = ..., mask_until: _Optional[float] = ...) -> None: ...

class ReweightedProximalPruning(_message.Message):
    __slots__ = ("schedule",)
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    schedule: Schedule
    def __init__(self, schedule: _Optional[_Union[Schedule, _Mapping]] = ...) -> None: ...

class AutoPruning(_message.Message):
    __slots__ = ("schedule", "score_learning_rate", "penalty", "initial_scores", "selection", "gradients", "gradient_batch_size", "damping", "fisher_block_size", "weight_update")
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    SCORE_LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    PENALTY_FIELD_NUMBER: _ClassVar[int]
    INITIAL_SCORES_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    GRADIENTS_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    DAMPING_FIELD_NUMBER: _ClassVar[int]
    FISHER_BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_UPDATE_FIELD_NUMBER: _ClassVar[int]
    schedule: Schedule
    score_learning_rate: float
    penalty: float
    initial_scores: MovementPruning.InitialScores
    selection: Selection
    gradients: int
    gradient_batch_size: int
    damping: float
    fisher_block_size: int
    weight_update: ObertPruning.WeightUpdate
    def __init__(self, schedule: _Optional[_Union[Schedule, _Mapping]] = ..., score_learning_rate: _Optional[float] = ..., penalty: _Optional[float] = ..., initial_scores: _Optional[_Union[MovementPruning.InitialScores, str]] = ..., selection: _Optional[_Union[Selection, str]] = ..., gradients: _Optional[int] = ..., gradient_batch_size: _Optional[int] = ..., damping: _Optional[float] = ..., fisher_block_size: _Optional[int] = ..., weight_update: _Optional[_Union[ObertPruning.WeightUpdate, str]] = ...) -> None: ...

class StaticModelPruning(_message.Message):
    __slots__ = ("schedule", "score_learning_rate", "initial_scores", "penalty", "allocation")
    class Allocation(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ALLOCATION_UNSPECIFIED: _ClassVar[StaticModelPruning.Allocation]
        KIND: _ClassVar[StaticModelPruning.Allocation]
        LOCAL: _ClassVar[StaticModelPruning.Allocation]
    ALLOCATION_UNSPECIFIED: StaticModelPruning.Allocation
    KIND: StaticModelPruning.Allocation
    LOCAL: StaticModelPruning.Allocation
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    SCORE_LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    INITIAL_SCORES_FIELD_NUMBER: _ClassVar[int]
    PENALTY_FIELD_NUMBER: _ClassVar[int]
    ALLOCATION_FIELD_NUMBER: _ClassVar[int]
    schedule: Schedule
    score_learning_rate: float
    initial_scores: MovementPruning.InitialScores
    penalty: float
    allocation: StaticModelPruning.Allocation
    def __init__(self, schedule: _Optional[_Union[Schedule, _Mapping]] = ..., score_learning_rate: _Optional[float] = ..., initial_scores: _Optional[_Union[MovementPruning.InitialScores, str]] = ..., penalty: _Optional[float] = ..., allocation: _Optional[_Union[StaticModelPruning.Allocation, str]] = ...) -> None: ...

class LockedMask(_message.Message):
    __slots__ = ("mask_from", "initial_weights", "selection", "rewind")
    class InitialWeights(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        INITIAL_WEIGHTS_UNSPECIFIED: _ClassVar[LockedMask.InitialWeights]
        MASK: _ClassVar[LockedMask.InitialWeights]
        MODEL: _ClassVar[LockedMask.InitialWeights]
        RANDOM: _ClassVar[LockedMask.InitialWeights]
        SHUFFLED: _ClassVar[LockedMask.InitialWeights]
        SHUFFLED_LAYERS: _ClassVar[LockedMask.InitialWeights]
    INITIAL_WEIGHTS_UNSPECIFIED: LockedMask.InitialWeights
    MASK: LockedMask.InitialWeights
    MODEL: LockedMask.InitialWeights
    RANDOM: LockedMask.InitialWeights
    SHUFFLED: LockedMask.InitialWeights
    SHUFFLED_LAYERS: LockedMask.InitialWeights
    MASK_FROM_FIELD_NUMBER: _ClassVar[int]
    INITIAL_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    SELECTION_FIELD_NUMBER: _ClassVar[int]
    REWIND_FIELD_NUMBER: _ClassVar[int]
    mask_from: Mask
    initial_weights: LockedMask.InitialWeights
    selection: Selection
    rewind: float
    def __init__(self, mask_from: _Optional[_Union[Mask, _Mapping]] = ..., initial_weights: _Optional[_Union[LockedMask.InitialWeights, str]] = ..., selection: _Optional[_Union[Selection, str]] = ..., rewind: _Optional[float] = ...) -> None: ...

class Mask(_message.Message):
    __slots__ = ("model", "job", "revision", "artifact")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    ARTIFACT_FIELD_NUMBER: _ClassVar[int]
    model: str
    job: str
    revision: str
    artifact: str
    def __init__(self, model: _Optional[str] = ..., job: _Optional[str] = ..., revision: _Optional[str] = ..., artifact: _Optional[str] = ...) -> None: ...

class Training(_message.Message):
    __slots__ = ("preset", "max_steps", "epochs", "batch_size", "learning_rate", "lr_warmup", "lr_density_exponent", "weight_decay", "max_length", "accumulation_steps", "precision", "train_embeddings", "dropout", "compile", "gradient_checkpointing", "deterministic", "evaluate_every", "patience", "keep_best", "best_metric")
    class Precision(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PRECISION_UNSPECIFIED: _ClassVar[Training.Precision]
        FP32: _ClassVar[Training.Precision]
        BF16: _ClassVar[Training.Precision]
        AUTO: _ClassVar[Training.Precision]
    PRECISION_UNSPECIFIED: Training.Precision
    FP32: Training.Precision
    BF16: Training.Precision
    AUTO: Training.Precision
    class Preset(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PRESET_UNSPECIFIED: _ClassVar[Training.Preset]
        SHORT: _ClassVar[Training.Preset]
        PAPER: _ClassVar[Training.Preset]
        LONG: _ClassVar[Training.Preset]
    PRESET_UNSPECIFIED: Training.Preset
    SHORT: Training.Preset
    PAPER: Training.Preset
    LONG: Training.Preset
    PRESET_FIELD_NUMBER: _ClassVar[int]
    MAX_STEPS_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    LR_WARMUP_FIELD_NUMBER: _ClassVar[int]
    LR_DENSITY_EXPONENT_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    ACCUMULATION_STEPS_FIELD_NUMBER: _ClassVar[int]
    PRECISION_FIELD_NUMBER: _ClassVar[int]
    TRAIN_EMBEDDINGS_FIELD_NUMBER: _ClassVar[int]
    DROPOUT_FIELD_NUMBER: _ClassVar[int]
    COMPILE_FIELD_NUMBER: _ClassVar[int]
    GRADIENT_CHECKPOINTING_FIELD_NUMBER: _ClassVar[int]
    DETERMINISTIC_FIELD_NUMBER: _ClassVar[int]
    EVALUATE_EVERY_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_FIELD_NUMBER: _ClassVar[int]
    KEEP_BEST_FIELD_NUMBER: _ClassVar[int]
    BEST_METRIC_FIELD_NUMBER: _ClassVar[int]
    preset: Training.Preset
    max_steps: int
    epochs: float
    batch_size: int
    learning_rate: float
    lr_warmup: float
    lr_density_exponent: float
    weight_decay: float
    max_length: int
    accumulation_steps: int
    precision: Training.Precision
    train_embeddings: bool
    dropout: bool
    compile: bool
    gradient_checkpointing: bool
    deterministic: bool
    evaluate_every: int
    patience: int
    keep_best: bool
    best_metric: str
    def __init__(self, preset: _Optional[_Union[Training.Preset, str]] = ..., max_steps: _Optional[int] = ..., epochs: _Optional[float] = ..., batch_size: _Optional[int] = ..., learning_rate: _Optional[float] = ..., lr_warmup: _Optional[float] = ..., lr_density_exponent: _Optional[float] = ..., weight_decay: _Optional[float] = ..., max_length: _Optional[int] = ..., accumulation_steps: _Optional[int] = ..., precision: _Optional[_Union[Training.Precision, str]] = ..., train_embeddings: bool = ..., dropout: bool = ..., compile: bool = ..., gradient_checkpointing: bool = ..., deterministic: bool = ..., evaluate_every: _Optional[int] = ..., patience: _Optional[int] = ..., keep_best: bool = ..., best_metric: _Optional[str] = ...) -> None: ...

class Teacher(_message.Message):
    __slots__ = ("model", "job", "train", "none", "revision", "temperature", "alpha", "hidden_states", "writes_targets")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    TRAIN_FIELD_NUMBER: _ClassVar[int]
    NONE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    ALPHA_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_STATES_FIELD_NUMBER: _ClassVar[int]
    WRITES_TARGETS_FIELD_NUMBER: _ClassVar[int]
    model: str
    job: str
    train: bool
    none: bool
    revision: str
    temperature: float
    alpha: float
    hidden_states: float
    writes_targets: bool
    def __init__(self, model: _Optional[str] = ..., job: _Optional[str] = ..., train: bool = ..., none: bool = ..., revision: _Optional[str] = ..., temperature: _Optional[float] = ..., alpha: _Optional[float] = ..., hidden_states: _Optional[float] = ..., writes_targets: bool = ...) -> None: ...

class Baseline(_message.Message):
    __slots__ = ("job", "train", "none")
    JOB_FIELD_NUMBER: _ClassVar[int]
    TRAIN_FIELD_NUMBER: _ClassVar[int]
    NONE_FIELD_NUMBER: _ClassVar[int]
    job: str
    train: bool
    none: bool
    def __init__(self, job: _Optional[str] = ..., train: bool = ..., none: bool = ...) -> None: ...

class ExecutionPolicy(_message.Message):
    __slots__ = ("resources", "priority", "max_attempts", "max_runtime", "max_queue_time", "start_timeout", "checkpoint_interval", "retention", "measure_latency", "gates")
    RESOURCES_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    MAX_RUNTIME_FIELD_NUMBER: _ClassVar[int]
    MAX_QUEUE_TIME_FIELD_NUMBER: _ClassVar[int]
    START_TIMEOUT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_INTERVAL_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    MEASURE_LATENCY_FIELD_NUMBER: _ClassVar[int]
    GATES_FIELD_NUMBER: _ClassVar[int]
    resources: Resources
    priority: int
    max_attempts: int
    max_runtime: _duration_pb2.Duration
    max_queue_time: _duration_pb2.Duration
    start_timeout: _duration_pb2.Duration
    checkpoint_interval: _duration_pb2.Duration
    retention: _duration_pb2.Duration
    measure_latency: bool
    gates: _containers.RepeatedCompositeFieldContainer[Gate]
    def __init__(self, resources: _Optional[_Union[Resources, _Mapping]] = ..., priority: _Optional[int] = ..., max_attempts: _Optional[int] = ..., max_runtime: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., max_queue_time: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., start_timeout: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., checkpoint_interval: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., retention: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., measure_latency: bool = ..., gates: _Optional[_Iterable[_Union[Gate, _Mapping]]] = ...) -> None: ...

class Gate(_message.Message):
    __slots__ = ("metric", "min", "max", "fail_job")
    METRIC_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    FAIL_JOB_FIELD_NUMBER: _ClassVar[int]
    metric: str
    min: float
    max: float
    fail_job: bool
    def __init__(self, metric: _Optional[str] = ..., min: _Optional[float] = ..., max: _Optional[float] = ..., fail_job: bool = ...) -> None: ...

class GateResult(_message.Message):
    __slots__ = ("gate", "observed", "passed")
    GATE_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_FIELD_NUMBER: _ClassVar[int]
    PASSED_FIELD_NUMBER: _ClassVar[int]
    gate: Gate
    observed: float
    passed: bool
    def __init__(self, gate: _Optional[_Union[Gate, _Mapping]] = ..., observed: _Optional[float] = ..., passed: bool = ...) -> None: ...

class Resources(_message.Message):
    __slots__ = ("gpus", "cpus", "memory_bytes", "workers")
    GPUS_FIELD_NUMBER: _ClassVar[int]
    CPUS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    gpus: float
    cpus: float
    memory_bytes: int
    workers: int
    def __init__(self, gpus: _Optional[float] = ..., cpus: _Optional[float] = ..., memory_bytes: _Optional[int] = ..., workers: _Optional[int] = ...) -> None: ...

class ModelSize(_message.Message):
    __slots__ = ("base_parameters", "encoder_parameters", "prunable_weights")
    BASE_PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    ENCODER_PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    PRUNABLE_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    base_parameters: int
    encoder_parameters: int
    prunable_weights: int
    def __init__(self, base_parameters: _Optional[int] = ..., encoder_parameters: _Optional[int] = ..., prunable_weights: _Optional[int] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("reason", "message")
    class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        REASON_UNSPECIFIED: _ClassVar[Failure.Reason]
        INVALID_MODEL: _ClassVar[Failure.Reason]
        INVALID_DATASET: _ClassVar[Failure.Reason]
        UNREACHABLE_HUB: _ClassVar[Failure.Reason]
        UNSUPPORTED_ARCHITECTURE: _ClassVar[Failure.Reason]
        NAN_LOSS: _ClassVar[Failure.Reason]
        OUT_OF_MEMORY: _ClassVar[Failure.Reason]
        DENSITY_NOT_REACHED: _ClassVar[Failure.Reason]
        ARTIFACT_CORRUPT: _ClassVar[Failure.Reason]
        STORE_UNAVAILABLE: _ClassVar[Failure.Reason]
        WORKER_LOST: _ClassVar[Failure.Reason]
        START_TIMEOUT: _ClassVar[Failure.Reason]
        TRAINER_CRASHED: _ClassVar[Failure.Reason]
        UNSATISFIABLE_RESOURCES: _ClassVar[Failure.Reason]
        MISSING_DEPENDENCY: _ClassVar[Failure.Reason]
        PREEMPTED: _ClassVar[Failure.Reason]
        TEACHER_FAILED: _ClassVar[Failure.Reason]
        MAX_RUNTIME: _ClassVar[Failure.Reason]
        MAX_QUEUE_TIME: _ClassVar[Failure.Reason]
        GATE_FAILED: _ClassVar[Failure.Reason]
        DISK_FULL: _ClassVar[Failure.Reason]
        TRAINER_KILLED: _ClassVar[Failure.Reason]
        WRONG_VERSION: _ClassVar[Failure.Reason]
        TARGET_NOT_REACHED: _ClassVar[Failure.Reason]
    REASON_UNSPECIFIED: Failure.Reason
    INVALID_MODEL: Failure.Reason
    INVALID_DATASET: Failure.Reason
    UNREACHABLE_HUB: Failure.Reason
    UNSUPPORTED_ARCHITECTURE: Failure.Reason
    NAN_LOSS: Failure.Reason
    OUT_OF_MEMORY: Failure.Reason
    DENSITY_NOT_REACHED: Failure.Reason
    ARTIFACT_CORRUPT: Failure.Reason
    STORE_UNAVAILABLE: Failure.Reason
    WORKER_LOST: Failure.Reason
    START_TIMEOUT: Failure.Reason
    TRAINER_CRASHED: Failure.Reason
    UNSATISFIABLE_RESOURCES: Failure.Reason
    MISSING_DEPENDENCY: Failure.Reason
    PREEMPTED: Failure.Reason
    TEACHER_FAILED: Failure.Reason
    MAX_RUNTIME: Failure.Reason
    MAX_QUEUE_TIME: Failure.Reason
    GATE_FAILED: Failure.Reason
    DISK_FULL: Failure.Reason
    TRAINER_KILLED: Failure.Reason
    WRONG_VERSION: Failure.Reason
    TARGET_NOT_REACHED: Failure.Reason
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    reason: Failure.Reason
    message: str
    def __init__(self, reason: _Optional[_Union[Failure.Reason, str]] = ..., message: _Optional[str] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("phase", "step", "total_steps", "density", "loss", "eta")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    TOTAL_STEPS_FIELD_NUMBER: _ClassVar[int]
    DENSITY_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    ETA_FIELD_NUMBER: _ClassVar[int]
    phase: str
    step: int
    total_steps: int
    density: float
    loss: float
    eta: _duration_pb2.Duration
    def __init__(self, phase: _Optional[str] = ..., step: _Optional[int] = ..., total_steps: _Optional[int] = ..., density: _Optional[float] = ..., loss: _Optional[float] = ..., eta: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class Attempt(_message.Message):
    __slots__ = ("name", "state", "executor_ref", "node", "failure", "create_time", "start_time", "end_time", "last_heartbeat_time")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[Attempt.State]
        CREATED: _ClassVar[Attempt.State]
        SUBMITTED: _ClassVar[Attempt.State]
        RUNNING: _ClassVar[Attempt.State]
        SUCCEEDED: _ClassVar[Attempt.State]
        FAILED: _ClassVar[Attempt.State]
        CANCELLED: _ClassVar[Attempt.State]
        LOST: _ClassVar[Attempt.State]
    STATE_UNSPECIFIED: Attempt.State
    CREATED: Attempt.State
    SUBMITTED: Attempt.State
    RUNNING: Attempt.State
    SUCCEEDED: Attempt.State
    FAILED: Attempt.State
    CANCELLED: Attempt.State
    LOST: Attempt.State
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    EXECUTOR_REF_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    LAST_HEARTBEAT_TIME_FIELD_NUMBER: _ClassVar[int]
    name: str
    state: Attempt.State
    executor_ref: str
    node: str
    failure: Failure
    create_time: _timestamp_pb2.Timestamp
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    last_heartbeat_time: _timestamp_pb2.Timestamp
    def __init__(self, name: _Optional[str] = ..., state: _Optional[_Union[Attempt.State, str]] = ..., executor_ref: _Optional[str] = ..., node: _Optional[str] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., last_heartbeat_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class JobEvent(_message.Message):
    __slots__ = ("sequence", "time", "type", "actor", "from_state", "to_state", "details")
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
    FROM_STATE_FIELD_NUMBER: _ClassVar[int]
    TO_STATE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    time: _timestamp_pb2.Timestamp
    type: str
    actor: str
    from_state: Job.State
    to_state: Job.State
    details: _containers.ScalarMap[str, str]
    def __init__(self, sequence: _Optional[int] = ..., time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., type: _Optional[str] = ..., actor: _Optional[str] = ..., from_state: _Optional[_Union[Job.State, str]] = ..., to_state: _Optional[_Union[Job.State, str]] = ..., details: _Optional[_Mapping[str, str]] = ...) -> None: ...

class MetricPoint(_message.Message):
    __slots__ = ("metric", "step", "value", "time", "attempt")
    METRIC_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    metric: str
    step: int
    value: float
    time: _timestamp_pb2.Timestamp
    attempt: int
    def __init__(self, metric: _Optional[str] = ..., step: _Optional[int] = ..., value: _Optional[float] = ..., time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., attempt: _Optional[int] = ...) -> None: ...

class CreateJobRequest(_message.Message):
    __slots__ = ("parent", "job_id", "job", "request_id", "validate_only")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    JOB_ID_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    parent: str
    job_id: str
    job: Job
    request_id: str
    validate_only: bool
    def __init__(self, parent: _Optional[str] = ..., job_id: _Optional[str] = ..., job: _Optional[_Union[Job, _Mapping]] = ..., request_id: _Optional[str] = ..., validate_only: bool = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListJobsRequest(_message.Message):
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

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs", "next_page_token")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    next_page_token: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class WatchJobRequest(_message.Message):
    __slots__ = ("name", "after_sequence")
    NAME_FIELD_NUMBER: _ClassVar[int]
    AFTER_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    name: str
    after_sequence: int
    def __init__(self, name: _Optional[str] = ..., after_sequence: _Optional[int] = ...) -> None: ...

class WatchJobResponse(_message.Message):
    __slots__ = ("sequence", "job", "events", "done")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    job: Job
    events: _containers.RepeatedCompositeFieldContainer[JobEvent]
    done: bool
    def __init__(self, sequence: _Optional[int] = ..., job: _Optional[_Union[Job, _Mapping]] = ..., events: _Optional[_Iterable[_Union[JobEvent, _Mapping]]] = ..., done: bool = ...) -> None: ...

class WatchJobsRequest(_message.Message):
    __slots__ = ("parent", "filter")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    parent: str
    filter: str
    def __init__(self, parent: _Optional[str] = ..., filter: _Optional[str] = ...) -> None: ...

class WatchJobsResponse(_message.Message):
    __slots__ = ("jobs", "removed", "missed")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    removed: _containers.RepeatedScalarFieldContainer[str]
    missed: bool
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., removed: _Optional[_Iterable[str]] = ..., missed: bool = ...) -> None: ...

class GetQueueRequest(_message.Message):
    __slots__ = ("parent", "page_size", "page_token")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_size: int
    page_token: str
    def __init__(self, parent: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class Queue(_message.Message):
    __slots__ = ("entries", "next_page_token", "queued_jobs", "running_jobs", "capacity")
    class Entry(_message.Message):
        __slots__ = ("job", "ahead", "state_reason", "priority", "resources", "create_time", "display_name")
        JOB_FIELD_NUMBER: _ClassVar[int]
        AHEAD_FIELD_NUMBER: _ClassVar[int]
        STATE_REASON_FIELD_NUMBER: _ClassVar[int]
        PRIORITY_FIELD_NUMBER: _ClassVar[int]
        RESOURCES_FIELD_NUMBER: _ClassVar[int]
        CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
        DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
        job: str
        ahead: int
        state_reason: str
        priority: int
        resources: Resources
        create_time: _timestamp_pb2.Timestamp
        display_name: str
        def __init__(self, job: _Optional[str] = ..., ahead: _Optional[int] = ..., state_reason: _Optional[str] = ..., priority: _Optional[int] = ..., resources: _Optional[_Union[Resources, _Mapping]] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., display_name: _Optional[str] = ...) -> None: ...
    class Capacity(_message.Message):
        __slots__ = ("cpus", "gpus", "memory_bytes", "reserved_cpus", "reserved_gpus", "reserved_memory_bytes")
        CPUS_FIELD_NUMBER: _ClassVar[int]
        GPUS_FIELD_NUMBER: _ClassVar[int]
        MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
        RESERVED_CPUS_FIELD_NUMBER: _ClassVar[int]
        RESERVED_GPUS_FIELD_NUMBER: _ClassVar[int]
        RESERVED_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
        cpus: float
        gpus: float
        memory_bytes: int
        reserved_cpus: float
        reserved_gpus: float
        reserved_memory_bytes: int
        def __init__(self, cpus: _Optional[float] = ..., gpus: _Optional[float] = ..., memory_bytes: _Optional[int] = ..., reserved_cpus: _Optional[float] = ..., reserved_gpus: _Optional[float] = ..., reserved_memory_bytes: _Optional[int] = ...) -> None: ...
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    QUEUED_JOBS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_JOBS_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[Queue.Entry]
    next_page_token: str
    queued_jobs: int
    running_jobs: int
    capacity: Queue.Capacity
    def __init__(self, entries: _Optional[_Iterable[_Union[Queue.Entry, _Mapping]]] = ..., next_page_token: _Optional[str] = ..., queued_jobs: _Optional[int] = ..., running_jobs: _Optional[int] = ..., capacity: _Optional[_Union[Queue.Capacity, _Mapping]] = ...) -> None: ...

class UpdateJobRequest(_message.Message):
    __slots__ = ("name", "display_name", "set_labels", "remove_labels", "note", "comment", "etag")
    class SetLabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    SET_LABELS_FIELD_NUMBER: _ClassVar[int]
    REMOVE_LABELS_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    COMMENT_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    name: str
    display_name: str
    set_labels: _containers.ScalarMap[str, str]
    remove_labels: _containers.RepeatedScalarFieldContainer[str]
    note: str
    comment: str
    etag: str
    def __init__(self, name: _Optional[str] = ..., display_name: _Optional[str] = ..., set_labels: _Optional[_Mapping[str, str]] = ..., remove_labels: _Optional[_Iterable[str]] = ..., note: _Optional[str] = ..., comment: _Optional[str] = ..., etag: _Optional[str] = ...) -> None: ...

class CancelJobRequest(_message.Message):
    __slots__ = ("name", "reason", "grace", "etag")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    GRACE_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    name: str
    reason: str
    grace: _duration_pb2.Duration
    etag: str
    def __init__(self, name: _Optional[str] = ..., reason: _Optional[str] = ..., grace: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ..., etag: _Optional[str] = ...) -> None: ...

class RetryJobRequest(_message.Message):
    __slots__ = ("name", "etag", "from_scratch")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    FROM_SCRATCH_FIELD_NUMBER: _ClassVar[int]
    name: str
    etag: str
    from_scratch: bool
    def __init__(self, name: _Optional[str] = ..., etag: _Optional[str] = ..., from_scratch: bool = ...) -> None: ...

class DeleteJobRequest(_message.Message):
    __slots__ = ("name", "etag", "allow_missing")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    ALLOW_MISSING_FIELD_NUMBER: _ClassVar[int]
    name: str
    etag: str
    allow_missing: bool
    def __init__(self, name: _Optional[str] = ..., etag: _Optional[str] = ..., allow_missing: bool = ...) -> None: ...

class DeleteJobResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListJobEventsRequest(_message.Message):
    __slots__ = ("parent", "page_size", "page_token")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_size: int
    page_token: str
    def __init__(self, parent: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListJobEventsResponse(_message.Message):
    __slots__ = ("events", "next_page_token")
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    events: _containers.RepeatedCompositeFieldContainer[JobEvent]
    next_page_token: str
    def __init__(self, events: _Optional[_Iterable[_Union[JobEvent, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListAttemptsRequest(_message.Message):
    __slots__ = ("parent", "page_size", "page_token")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_size: int
    page_token: str
    def __init__(self, parent: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListAttemptsResponse(_message.Message):
    __slots__ = ("attempts", "next_page_token")
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    attempts: _containers.RepeatedCompositeFieldContainer[Attempt]
    next_page_token: str
    def __init__(self, attempts: _Optional[_Iterable[_Union[Attempt, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class FollowLogsRequest(_message.Message):
    __slots__ = ("attempt", "offset", "follow", "tail_lines")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    TAIL_LINES_FIELD_NUMBER: _ClassVar[int]
    attempt: str
    offset: int
    follow: bool
    tail_lines: int
    def __init__(self, attempt: _Optional[str] = ..., offset: _Optional[int] = ..., follow: bool = ..., tail_lines: _Optional[int] = ...) -> None: ...

class FollowLogsResponse(_message.Message):
    __slots__ = ("offset", "data", "end")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    end: bool
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ..., end: bool = ...) -> None: ...

class SearchLogsRequest(_message.Message):
    __slots__ = ("attempt", "query", "start_time", "end_time", "page_size", "page_token")
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    START_TIME_FIELD_NUMBER: _ClassVar[int]
    END_TIME_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    attempt: str
    query: str
    start_time: _timestamp_pb2.Timestamp
    end_time: _timestamp_pb2.Timestamp
    page_size: int
    page_token: str
    def __init__(self, attempt: _Optional[str] = ..., query: _Optional[str] = ..., start_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., end_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class SearchLogsResponse(_message.Message):
    __slots__ = ("lines", "next_page_token")
    class Line(_message.Message):
        __slots__ = ("offset", "text", "time")
        OFFSET_FIELD_NUMBER: _ClassVar[int]
        TEXT_FIELD_NUMBER: _ClassVar[int]
        TIME_FIELD_NUMBER: _ClassVar[int]
        offset: int
        text: str
        time: _timestamp_pb2.Timestamp
        def __init__(self, offset: _Optional[int] = ..., text: _Optional[str] = ..., time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
    LINES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    lines: _containers.RepeatedCompositeFieldContainer[SearchLogsResponse.Line]
    next_page_token: str
    def __init__(self, lines: _Optional[_Iterable[_Union[SearchLogsResponse.Line, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListMetricsRequest(_message.Message):
    __slots__ = ("parent", "page_size", "page_token", "metrics", "after_step", "max_points")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    AFTER_STEP_FIELD_NUMBER: _ClassVar[int]
    MAX_POINTS_FIELD_NUMBER: _ClassVar[int]
    parent: str
    page_size: int
    page_token: str
    metrics: _containers.RepeatedScalarFieldContainer[str]
    after_step: int
    max_points: int
    def __init__(self, parent: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., metrics: _Optional[_Iterable[str]] = ..., after_step: _Optional[int] = ..., max_points: _Optional[int] = ...) -> None: ...

class ListMetricsResponse(_message.Message):
    __slots__ = ("points", "next_page_token")
    POINTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    points: _containers.RepeatedCompositeFieldContainer[MetricPoint]
    next_page_token: str
    def __init__(self, points: _Optional[_Iterable[_Union[MetricPoint, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
