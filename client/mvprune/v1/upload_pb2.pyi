from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Upload(_message.Message):
    __slots__ = ("name", "kind", "display_name", "files", "state", "missing", "total_bytes", "jobs", "creator", "create_time", "expire_time")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[Upload.State]
        INCOMPLETE: _ClassVar[Upload.State]
        READY: _ClassVar[Upload.State]
    STATE_UNSPECIFIED: Upload.State
    INCOMPLETE: Upload.State
    READY: Upload.State
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[Upload.Kind]
        MODEL: _ClassVar[Upload.Kind]
        DATA: _ClassVar[Upload.Kind]
    KIND_UNSPECIFIED: Upload.Kind
    MODEL: Upload.Kind
    DATA: Upload.Kind
    NAME_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    DISPLAY_NAME_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MISSING_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    CREATOR_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
    name: str
    kind: Upload.Kind
    display_name: str
    files: _containers.RepeatedCompositeFieldContainer[UploadFile]
    state: Upload.State
    missing: _containers.RepeatedScalarFieldContainer[str]
    total_bytes: int
    jobs: int
    creator: str
    create_time: _timestamp_pb2.Timestamp
    expire_time: _timestamp_pb2.Timestamp
    def __init__(self, name: _Optional[str] = ..., kind: _Optional[_Union[Upload.Kind, str]] = ..., display_name: _Optional[str] = ..., files: _Optional[_Iterable[_Union[UploadFile, _Mapping]]] = ..., state: _Optional[_Union[Upload.State, str]] = ..., missing: _Optional[_Iterable[str]] = ..., total_bytes: _Optional[int] = ..., jobs: _Optional[int] = ..., creator: _Optional[str] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., expire_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class UploadFile(_message.Message):
    __slots__ = ("path", "size_bytes", "chunks")
    PATH_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    path: str
    size_bytes: int
    chunks: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, path: _Optional[str] = ..., size_bytes: _Optional[int] = ..., chunks: _Optional[_Iterable[str]] = ...) -> None: ...

class CreateUploadRequest(_message.Message):
    __slots__ = ("parent", "upload", "validate_only")
    PARENT_FIELD_NUMBER: _ClassVar[int]
    UPLOAD_FIELD_NUMBER: _ClassVar[int]
    VALIDATE_ONLY_FIELD_NUMBER: _ClassVar[int]
    parent: str
    upload: Upload
    validate_only: bool
    def __init__(self, parent: _Optional[str] = ..., upload: _Optional[_Union[Upload, _Mapping]] = ..., validate_only: bool = ...) -> None: ...

class GetUploadRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListUploadsRequest(_message.Message):
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

class ListUploadsResponse(_message.Message):
    __slots__ = ("uploads", "next_page_token")
    UPLOADS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    uploads: _containers.RepeatedCompositeFieldContainer[Upload]
    next_page_token: str
    def __init__(self, uploads: _Optional[_Iterable[_Union[Upload, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteUploadRequest(_message.Message):
    __slots__ = ("name", "allow_missing")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALLOW_MISSING_FIELD_NUMBER: _ClassVar[int]
    name: str
    allow_missing: bool
    def __init__(self, name: _Optional[str] = ..., allow_missing: bool = ...) -> None: ...

class DeleteUploadResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GenerateChunkUrlsRequest(_message.Message):
    __slots__ = ("name", "chunks")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    name: str
    chunks: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., chunks: _Optional[_Iterable[str]] = ...) -> None: ...

class GenerateChunkUrlsResponse(_message.Message):
    __slots__ = ("urls",)
    class Url(_message.Message):
        __slots__ = ("chunk", "url", "expire_time", "headers")
        class HeadersEntry(_message.Message):
            __slots__ = ("key", "value")
            KEY_FIELD_NUMBER: _ClassVar[int]
            VALUE_FIELD_NUMBER: _ClassVar[int]
            key: str
            value: str
            def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
        CHUNK_FIELD_NUMBER: _ClassVar[int]
        URL_FIELD_NUMBER: _ClassVar[int]
        EXPIRE_TIME_FIELD_NUMBER: _ClassVar[int]
        HEADERS_FIELD_NUMBER: _ClassVar[int]
        chunk: str
        url: str
        expire_time: _timestamp_pb2.Timestamp
        headers: _containers.ScalarMap[str, str]
        def __init__(self, chunk: _Optional[str] = ..., url: _Optional[str] = ..., expire_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., headers: _Optional[_Mapping[str, str]] = ...) -> None: ...
    URLS_FIELD_NUMBER: _ClassVar[int]
    urls: _containers.RepeatedCompositeFieldContainer[GenerateChunkUrlsResponse.Url]
    def __init__(self, urls: _Optional[_Iterable[_Union[GenerateChunkUrlsResponse.Url, _Mapping]]] = ...) -> None: ...

class CommitChunksRequest(_message.Message):
    __slots__ = ("name", "chunks")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    name: str
    chunks: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., chunks: _Optional[_Iterable[str]] = ...) -> None: ...

class CommitChunksResponse(_message.Message):
    __slots__ = ("rejected",)
    REJECTED_FIELD_NUMBER: _ClassVar[int]
    rejected: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, rejected: _Optional[_Iterable[str]] = ...) -> None: ...

class PutChunkRequest(_message.Message):
    __slots__ = ("name", "chunk", "data")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    name: str
    chunk: str
    data: bytes
    def __init__(self, name: _Optional[str] = ..., chunk: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class PutChunkResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
