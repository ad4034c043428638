from google.protobuf import duration_pb2 as _duration_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Artifact(_message.Message):
    __slots__ = ("name", "job", "attempt", "files", "total_bytes", "metrics", "primary_metric", "accounting", "create_time", "expire_time")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    PRIMARY_METRIC_FIELD_NUMBER: _ClassVar[int]
    ACCOUNTING_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    name: str
    job: str
    attempt: int
    files: _containers.RepeatedCompositeFieldContainer[ArtifactFile]
    total_bytes: int
    metrics: _containers.ScalarMap[str, float]
    primary_metric: str
    accounting: Accounting
    create_time: _timestamp_pb2.Timestamp
    expire_time: _timestamp_pb2.Timestamp
    def __init__(self, name: _Optional[str] = ..., job: _Optional[str] = ..., attempt: _Optional[int] = ..., files: _Optional[_Iterable[_Union[ArtifactFile, _Mapping]]] = ..., total_bytes: _Optional[int] = ..., metrics: _Optional[_Mapping[str, float]] = ..., primary_metric: _Optional[str] = ..., accounting: _Optional[_Union[Accounting, _Mapping]] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class ArtifactFile(_message.Message):
    __slots__ = ("path", "size_bytes", "sha256", "media_type")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    MEDIA_TYPE_FIELD_NUMBER: _ClassVar[int]
    path: str
    size_bytes: int
    sha256: str
    media_type: str
    def __init__(self, path: _Optional[str] = ..., size_bytes: _Optional[int] = ..., sha256: _Optional[str] = ..., media_type: _Optional[str] = ...) -> None: ...

class Accounting(_message.Message):
    __slots__ = ("target_density", "density", "prunable_weights", "kept_weights", "encoder_parameters", "encoder_nonzero", "total_parameters", "total_nonzero", "dense_bytes", "sparse_bytes", "encoder_bytes", "embedding_bytes", "dense_flops", "sparse_flops")
    TARGET_DENSITY_FIELD_NUMBER: _ClassVar[int]
    DENSITY_FIELD_NUMBER: _ClassVar[int]
    PRUNABLE_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    KEPT_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    ENCODER_PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    ENCODER_NONZERO_FIELD_NUMBER: _ClassVar[int]
    TOTAL_PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_NONZERO_FIELD_NUMBER: _ClassVar[int]
    DENSE_BYTES_FIELD_NUMBER: _ClassVar[int]
    SPARSE_BYTES_FIELD_NUMBER: _ClassVar[int]
    ENCODER_BYTES_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_BYTES_FIELD_NUMBER: _ClassVar[int]
    DENSE_FLOPS_FIELD_NUMBER: _ClassVar[int]
    SPARSE_FLOPS_FIELD_NUMBER: _ClassVar[int]
    target_density: float
    density: float
    prunable_weights: int
    kept_weights: int
    encoder_parameters: int
    encoder_nonzero: int
    total_parameters: int
    total_nonzero: int
    dense_bytes: int
    sparse_bytes: int
    encoder_bytes: int
    embedding_bytes: int
    dense_flops: int
    sparse_flops: int
    def __init__(self, target_density: _Optional[float] = ..., density: _Optional[float] = ..., prunable_weights: _Optional[int] = ..., kept_weights: _Optional[int] = ..., encoder_parameters: _Optional[int] = ..., encoder_nonzero: _Optional[int] = ..., total_parameters: _Optional[int] = ..., total_nonzero: _Optional[int] = ..., dense_bytes: _Optional[int] = ..., sparse_bytes: _Optional[int] = ..., encoder_bytes: _Optional[int] = ..., embedding_bytes: _Optional[int] = ..., dense_flops: _Optional[int] = ..., sparse_flops: _Optional[int] = ...) -> None: ...

class GetArtifactRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListArtifactsRequest(_message.Message):
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

class ListArtifactsResponse(_message.Message):
    __slots__ = ("artifacts", "next_page_token")
    ARTIFACTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    artifacts: _containers.RepeatedCompositeFieldContainer[Artifact]
    next_page_token: str
    def __init__(self, artifacts: _Optional[_Iterable[_Union[Artifact, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GenerateDownloadUrlsRequest(_message.Message):
    __slots__ = ("name", "paths", "ttl")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATHS_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    name: str
    paths: _containers.RepeatedScalarFieldContainer[str]
    ttl: _duration_pb2.Duration
    def __init__(self, name: _Optional[str] = ..., paths: _Optional[_Iterable[str]] = ..., ttl: _Optional[_Union[_duration_pb2.Duration, _Mapping]] = ...) -> None: ...

class GenerateDownloadUrlsResponse(_message.Message):
    __slots__ = ("urls",)
    class Url(_message.Message):
        __slots__ = ("path", "url", "expire_time")
        PATH_FIELD_NUMBER: _ClassVar[int]
        URL_FIELD_NUMBER: _ClassVar[int]
        EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
        path: str
        url: str
        expire_time: _timestamp_pb2.Timestamp
        def __init__(self, path: _Optional[str] = ..., url: _Optional[str] = ..., expire_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...
    URLS_FIELD_NUMBER: _ClassVar[int]
    urls: _containers.RepeatedCompositeFieldContainer[GenerateDownloadUrlsResponse.Url]
    def __init__(self, urls: _Optional[_Iterable[_Union[GenerateDownloadUrlsResponse.Url, _Mapping]]] = ...) -> None: ...

class ReadFileRequest(_message.Message):
    __slots__ = ("name", "path", "offset")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    name: str
    path: str
    offset: int
    def __init__(self, name: _Optional[str] = ..., path: _Optional[str] = ..., offset: _Optional[int] = ...) -> None: ...

class ReadFileResponse(_message.Message):
    __slots__ = ("offset", "data", "end")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    offset: int
    data: bytes
    end: bool
    def __init__(self, offset: _Optional[int] = ..., data: _Optional[bytes] = ..., end: bool = ...) -> None: ...
