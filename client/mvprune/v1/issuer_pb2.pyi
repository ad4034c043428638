from google.protobuf import field_mask_pb2 as _field_mask_pb2
from google.protobuf import timestamp_pb2 as _timestamp_pb2
from mvprune.v1 import admin_pb2 as _admin_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Issuer(_message.Message):
    __slots__ = ("name", "url", "audience", "rules", "jwks_url", "jwks", "source", "problem", "creator", "create_time", "update_time", "etag")
    class Source(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        SOURCE_UNSPECIFIED: _ClassVar[Issuer.Source]
        API: _ClassVar[Issuer.Source]
        FILE: _ClassVar[Issuer.Source]
    SOURCE_UNSPECIFIED: Issuer.Source
    API: Issuer.Source
    FILE: Issuer.Source
    class Claim(_message.Message):
        __slots__ = ("name", "text", "flag", "number")
        NAME_FIELD_NUMBER: _ClassVar[int]
        TEXT_FIELD_NUMBER: _ClassVar[int]
        FLAG_FIELD_NUMBER: _ClassVar[int]
        NUMBER_FIELD_NUMBER: _ClassVar[int]
        name: str
        text: str
        flag: bool
        number: int
        def __init__(self, name: _Optional[str] = ..., text: _Optional[str] = ..., flag: bool = ..., number: _Optional[int] = ...) -> None: ...
    class Rule(_message.Message):
        __slots__ = ("claims", "project", "scope")
        CLAIMS_FIELD_NUMBER: _ClassVar[int]
        PROJECT_FIELD_NUMBER: _ClassVar[int]
        SCOPE_FIELD_NUMBER: _ClassVar[int]
        claims: _containers.RepeatedCompositeFieldContainer[Issuer.Claim]
        project: str
        scope: _admin_pb2.Token.Scope
        def __init__(self, claims: _Optional[_Iterable[_Union[Issuer.Claim, _Mapping]]] = ..., project: _Optional[str] = ..., scope: _Optional[_Union[_admin_pb2.Token.Scope, str]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    URL_FIELD_NUMBER: _ClassVar[int]
    AUDIENCE_FIELD_NUMBER: _ClassVar[int]
    RULES_FIELD_NUMBER: _ClassVar[int]
    JWKS_URL_FIELD_NUMBER: _ClassVar[int]
    JWKS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    CREATOR_FIELD_NUMBER: _ClassVar[int]
    CREATE_TIME_FIELD_NUMBER: _ClassVar[int]
    UPDATE_TIME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    name: str
    url: str
    audience: str
    rules: _containers.RepeatedCompositeFieldContainer[Issuer.Rule]
    jwks_url: str
    jwks: str
    source: Issuer.Source
    problem: str
    creator: str
    create_time: _timestamp_pb2.Timestamp
    update_time: _timestamp_pb2.Timestamp
    etag: str
    def __init__(self, name: _Optional[str] = ..., url: _Optional[str] = ..., audience: _Optional[str] = ..., rules: _Optional[_Iterable[_Union[Issuer.Rule, _Mapping]]] = ..., jwks_url: _Optional[str] = ..., jwks: _Optional[str] = ..., source: _Optional[_Union[Issuer.Source, str]] = ..., problem: _Optional[str] = ..., creator: _Optional[str] = ..., create_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., update_time: _Optional[_Union[_timestamp_pb2.Timestamp, _Mapping]] = ..., etag: _Optional[str] = ...) -> None: ...

class CreateIssuerRequest(_message.Message):
    __slots__ = ("issuer_id", "issuer")
    ISSUER_ID_FIELD_NUMBER: _ClassVar[int]
    ISSUER_FIELD_NUMBER: _ClassVar[int]
    issuer_id: str
    issuer: Issuer
    def __init__(self, issuer_id: _Optional[str] = ..., issuer: _Optional[_Union[Issuer, _Mapping]] = ...) -> None: ...

class GetIssuerRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListIssuersRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListIssuersResponse(_message.Message):
    __slots__ = ("issuers", "next_page_token")
    ISSUERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    issuers: _containers.RepeatedCompositeFieldContainer[Issuer]
    next_page_token: str
    def __init__(self, issuers: _Optional[_Iterable[_Union[Issuer, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class UpdateIssuerRequest(_message.Message):
    __slots__ = ("name", "issuer", "update_mask", "etag")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ISSUER_FIELD_NUMBER: _ClassVar[int]
    UPDATE_MASK_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    name: str
    issuer: Issuer
    update_mask: _field_mask_pb2.FieldMask
    etag: str
    def __init__(self, name: _Optional[str] = ..., issuer: _Optional[_Union[Issuer, _Mapping]] = ..., update_mask: _Optional[_Union[_field_mask_pb2.FieldMask, _Mapping]] = ..., etag: _Optional[str] = ...) -> None: ...

class DeleteIssuerRequest(_message.Message):
    __slots__ = ("name", "etag")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    name: str
    etag: str
    def __init__(self, name: _Optional[str] = ..., etag: _Optional[str] = ...) -> None: ...

class DeleteIssuerResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
