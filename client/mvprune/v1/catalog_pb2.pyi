from mvprune.v1 import job_pb2 as _job_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ModelEntry(_message.Message):
    __slots__ = ("name", "source", "size", "problem")
    class Source(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SOURCE_UNSPECIFIED: _ClassVar[ModelEntry.Source]
        SERVER: _ClassVar[ModelEntry.Source]
        HUB: _ClassVar[ModelEntry.Source]
    SOURCE_UNSPECIFIED: ModelEntry.Source
    SERVER: ModelEntry.Source
    HUB: ModelEntry.Source
    NAME_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    name: str
    source: ModelEntry.Source
    size: _job_pb2.ModelSize
    problem: str
    def __init__(self, name: _Optional[str] = ..., source: _Optional[_Union[ModelEntry.Source, str]] = ..., size: _Optional[_Union[_job_pb2.ModelSize, _Mapping]] = ..., problem: _Optional[str] = ...) -> None: ...

class TaskEntry(_message.Message):
    __slots__ = ("name", "kind", "description", "metrics", "primary_metric", "higher_is_better", "has_data", "hub_id")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_METRIC_FIELD_NUMBER: _ClassVar[int]
    HIGHER_IS_BETTER_FIELD_NUMBER: _ClassVar[int]
    HAS_DATA_FIELD_NUMBER: _ClassVar[int]
    HUB_ID_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: str
    description: str
    metrics: _containers.RepeatedScalarFieldContainer[str]
    primary_metric: str
    higher_is_better: bool
    has_data: bool
    hub_id: str
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[str] = ..., description: _Optional[str] = ..., metrics: _Optional[_Iterable[str]] = ..., primary_metric: _Optional[str] = ..., higher_is_better: bool = ..., has_data: bool = ..., hub_id: _Optional[str] = ...) -> None: ...

class MethodEntry(_message.Message):
    __slots__ = ("name", "description", "options")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    name: str
    description: str
    options: _containers.RepeatedCompositeFieldContainer[MethodOption]
    def __init__(self, name: _Optional[str] = ..., description: _Optional[str] = ..., options: _Optional[_Iterable[_Union[MethodOption, _Mapping]]] = ...) -> None: ...

class MethodOption(_message.Message):
    __slots__ = ("name", "field", "words", "min", "max", "above_min", "description")
    NAME_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    ABOVE_MIN_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    name: str
    field: str
    words: _containers.RepeatedScalarFieldContainer[str]
    min: float
    max: float
    above_min: bool
    description: str
    def __init__(self, name: _Optional[str] = ..., field: _Optional[str] = ..., words: _Optional[_Iterable[str]] = ..., min: _Optional[float] = ..., max: _Optional[float] = ..., above_min: bool = ..., description: _Optional[str] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListModelsResponse(_message.Message):
    __slots__ = ("models", "next_page_token")
    MODELS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[ModelEntry]
    next_page_token: str
    def __init__(self, models: _Optional[_Iterable[_Union[ModelEntry, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListTasksRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTasksResponse(_message.Message):
    __slots__ = ("tasks", "next_page_token")
    TASKS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[TaskEntry]
    next_page_token: str
    def __init__(self, tasks: _Optional[_Iterable[_Union[TaskEntry, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListMethodsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListMethodsResponse(_message.Message):
    __slots__ = ("methods", "next_page_token")
    METHODS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    methods: _containers.RepeatedCompositeFieldContainer[MethodEntry]
    next_page_token: str
    def __init__(self, methods: _Optional[_Iterable[_Union[MethodEntry, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...
