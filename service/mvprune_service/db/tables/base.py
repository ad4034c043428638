"""The base of all tables. Times are microseconds since the epoch. Protobuf messages are stored serialized.

Each table has its columns, the table, and the row that statements return: a frozen type with the same columns in their
order. Columns that hold messages are `bytes`: the caller parses the messages that it needs."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from sqlalchemy import Dialect, MetaData, Text, TypeDecorator

E = TypeVar("E", bound=StrEnum)


# All constraints have predictable names, so that migrations can refer to them.
METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class Member(TypeDecorator[E]):
    """Text that is the name of a member of an enumeration. Rows have the member."""

    impl = Text
    cache_ok = True

    def __init__(self, kind: type[E]) -> None:
        super().__init__()
        self.kind = kind

    @property
    def python_type(self) -> type[str]:
        """The type that members have in common, as the driver takes it."""
        return str

    def process_result_value(self, value: str | None, dialect: Dialect) -> E | None:
        """The member that was stored. Raises ValueError for text that is none."""
        return None if value is None else self.kind(value)
