from google.protobuf import descriptor_pb2 as _descriptor_pb2
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor
PARAMETER_FIELD_NUMBER: _ClassVar[int]
parameter: _descriptor.FieldDescriptor
CHOICE_FIELD_NUMBER: _ClassVar[int]
choice: _descriptor.FieldDescriptor
GROUP_FIELD_NUMBER: _ClassVar[int]
group: _descriptor.FieldDescriptor
METHOD_FIELD_NUMBER: _ClassVar[int]
method: _descriptor.FieldDescriptor

class Parameter(_message.Message):
    __slots__ = ("help", "default", "unset", "min", "max", "above_min", "max_items", "max_length", "unit", "group", "name", "flag", "metavar", "manifest_key", "place")
    class Place(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PLACE_UNSPECIFIED: _ClassVar[Parameter.Place]
        COMMON: _ClassVar[Parameter.Place]
        SET: _ClassVar[Parameter.Place]
    PLACE_UNSPECIFIED: Parameter.Place
    COMMON: Parameter.Place
    SET: Parameter.Place
    HELP_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    UNSET_FIELD_NUMBER: _ClassVar[int]
    MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_FIELD_NUMBER: _ClassVar[int]
    ABOVE_MIN_FIELD_NUMBER: _ClassVar[int]
    MAX_ITEMS_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FLAG_FIELD_NUMBER: _ClassVar[int]
    METAVAR_FIELD_NUMBER: _ClassVar[int]
    MANIFEST_KEY_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    help: str
    default: str
    unset: str
    min: float
    max: float
    above_min: bool
    max_items: int
    max_length: int
    unit: str
    group: str
    name: str
    flag: str
    metavar: str
    manifest_key: str
    place: Parameter.Place
    def __init__(self, help: _Optional[str] = ..., default: _Optional[str] = ..., unset: _Optional[str] = ..., min: _Optional[float] = ..., max: _Optional[float] = ..., above_min: bool = ..., max_items: _Optional[int] = ..., max_length: _Optional[int] = ..., unit: _Optional[str] = ..., group: _Optional[str] = ..., name: _Optional[str] = ..., flag: _Optional[str] = ..., metavar: _Optional[str] = ..., manifest_key: _Optional[str] = ..., place: _Optional[_Union[Parameter.Place, str]] = ...) -> None: ...

class MethodFacts(_message.Message):
    __slots__ = ("ranks_weights", "is_gated", "freezes_weights", "needs_dense_steps", "shape", "takes_blocks", "takes_start")
    RANKS_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    IS_GATED_FIELD_NUMBER: _ClassVar[int]
    FREEZES_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    NEEDS_DENSE_STEPS_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    TAKES_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    TAKES_START_FIELD_NUMBER: _ClassVar[int]
    ranks_weights: bool
    is_gated: bool
    freezes_weights: bool
    needs_dense_steps: bool
    shape: str
    takes_blocks: bool
    takes_start: bool
    def __init__(self, ranks_weights: bool = ..., is_gated: bool = ..., freezes_weights: bool = ..., needs_dense_steps: bool = ..., shape: _Optional[str] = ..., takes_blocks: bool = ..., takes_start: bool = ...) -> None: ...
