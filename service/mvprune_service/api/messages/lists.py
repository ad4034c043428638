"""Filter, order and pages of the lists of sweeps, artifacts, uploads, tokens and the audit."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar, cast

import grpc
from google.protobuf.message import Message
from sqlalchemy import ColumnElement, func

from mvprune.common.suggestions import did_you_mean
from mvprune.sources.uploads import Kind
from mvprune_service.api.access.errors import bad, invalid
from mvprune_service.api.access.rules import RULES
from mvprune_service.api.messages.filters import Clause, Fields, moment, parse_filter, whole_number
from mvprune_service.api.messages.pagination import make_page, page_size, read_token
from mvprune_service.db.list_page import ListPage
from mvprune_service.db.tables.artifacts import ARTIFACTS
from mvprune_service.db.tables.audit import AUDIT
from mvprune_service.db.tables.jobs import JOBS
from mvprune_service.db.tables.server import TOKENS
from mvprune_service.db.tables.sweeps import SWEEPS
from mvprune_service.db.tables.uploads import UPLOADS
from mvprune_service.domain.sweeping import SweepState

R = TypeVar("R")
M = TypeVar("M", bound=Message)

_FAR = 1 << 62  # beyond any time: rows without one are last in either direction


class Asked(NamedTuple):
    """A page that a request asks for, with one row more, which says whether there is another page."""

    page: ListPage
    query: str
    names: Sequence[str]  # of the columns that are the keys of a row

    def answer(self, rows: Sequence[R], message: Callable[[R], M]) -> tuple[list[M], str]:
        """The messages of the page, and the token of the next one."""
        return make_page(rows, self.page.size - 1, message, lambda row: (self.query, *self._keys(row)))

    def _keys(self, row: Any) -> Sequence[Any]:
        missing = -_FAR if self.page.descending else _FAR
        return [missing if (value := getattr(row, name)) is None else value for name in self.names]


class List(NamedTuple):
    """A list.

    Attributes:
        fields: that a filter compares.
        orders: columns by the names of orders.
        age: the columns that order rows by age, each row's its own.
    """

    fields: Fields
    orders: Mapping[str, ColumnElement[Any]]
    age: Sequence[ColumnElement[Any]]

    def asked(self, request: Any) -> Asked:
        """The page of a request with page_size, page_token, filter and order_by. Raises ApiError."""
        size, wanted = page_size(request.page_size), parse_filter(request.filter, self.fields)
        column, descending = self._order(request.order_by)
        columns = [*([] if column is None or column is self.age[0] else [column]), *self.age]
        query = hashlib.sha256(f"{request.filter}\n{request.order_by}".encode()).hexdigest()[:16]
        types = [one.type.python_type for one in columns]
        after = read_token(request.page_token, *types, query=query)
        missing = -_FAR if descending else _FAR
        keys = [func.coalesce(one, missing) if getattr(one, "nullable", False) else one for one in columns]
        return Asked(ListPage(wanted, keys, descending, after, size + 1), query, [str(one.key) for one in columns])

    def _order(self, given: str) -> tuple[ColumnElement[Any] | None, bool]:
        words = given.split()
        if not words:
            return None, True
        if words[0] not in self.orders or words[1:] not in ([], ["asc"], ["desc"]):
            hint = did_you_mean(words[0][:100], self.orders)
            rule = f'one of {", ".join(self.orders)}, with " desc" for descending{hint}'
            raise invalid(bad("order_by", given, rule))
        return self.orders[words[0]], words[1:] == ["desc"]


def _vocabulary(words: Iterable[str]) -> type[StrEnum]:
    members: Any = {word: word for word in words}
    return cast("type[StrEnum]", StrEnum("Vocabulary", members))


def _sweep_label(key: str, value: str | None) -> Clause:
    found = SWEEPS.c.labels[key].as_string()
    return found.is_not(None) if value is None else func.coalesce(found == value, False)


SWEEP_LIST = List(
    Fields(
        texts={"display_name": SWEEPS.c.display_name, "creator": SWEEPS.c.creator},
        words={"state": (SWEEPS.c.state, SweepState)},
        numbers={"create_time": moment(SWEEPS.c.create_us), "end_time": moment(SWEEPS.c.end_us)},
        label=_sweep_label,
    ),
    {
        "create_time": SWEEPS.c.create_us,
        "end_time": SWEEPS.c.end_us,
        "state": SWEEPS.c.state,
        "display_name": SWEEPS.c.display_name,
    },
    (SWEEPS.c.create_us, SWEEPS.c.uid),
)
ARTIFACT_LIST = List(
    Fields(
        texts={"job": JOBS.c.job_id, "task": JOBS.c.task, "model": JOBS.c.model, "method": JOBS.c.method},
        words={},
        numbers={"create_time": moment(ARTIFACTS.c.create_us), "expire_time": moment(ARTIFACTS.c.expire_us)},
    ),
    {"create_time": ARTIFACTS.c.create_us, "expire_time": ARTIFACTS.c.expire_us},
    (ARTIFACTS.c.create_us, ARTIFACTS.c.sha256),
)
UPLOAD_LIST = List(
    Fields(
        texts={"display_name": UPLOADS.c.display_name, "creator": UPLOADS.c.creator},
        words={"kind": (UPLOADS.c.kind, Kind)},
        numbers={
            "total_bytes": whole_number(UPLOADS.c.total_bytes),
            "create_time": moment(UPLOADS.c.create_us),
            "ready_time": moment(UPLOADS.c.ready_us),
        },
    ),
    {
        "create_time": UPLOADS.c.create_us,
        "total_bytes": UPLOADS.c.total_bytes,
        "display_name": UPLOADS.c.display_name,
    },
    (UPLOADS.c.create_us, UPLOADS.c.digest),
)
TOKEN_LIST = List(
    Fields(
        texts={
            "display_name": TOKENS.c.display_name,
            "creator": TOKENS.c.creator,
            "resource": TOKENS.c.resource,
            "scope": TOKENS.c.scope,
        },
        words={},
        numbers={
            "create_time": moment(TOKENS.c.create_us),
            "expire_time": moment(TOKENS.c.expire_us),
            "revoke_time": moment(TOKENS.c.revoke_us),
            "last_use_time": moment(TOKENS.c.last_use_us),
        },
    ),
    {
        "create_time": TOKENS.c.create_us,
        "expire_time": TOKENS.c.expire_us,
        "last_use_time": TOKENS.c.last_use_us,
        "display_name": TOKENS.c.display_name,
    },
    (TOKENS.c.create_us, TOKENS.c.token_id),
)
AUDIT_LIST = List(
    Fields(
        texts={
            "principal": AUDIT.c.principal,
            "resource": AUDIT.c.resource,
            "project": AUDIT.c.project,
            "address": AUDIT.c.address,
            "request_id": AUDIT.c.request_id,
        },
        words={
            "method": (AUDIT.c.method, _vocabulary(name.rpartition("/")[2] for name in RULES)),
            "code": (AUDIT.c.code, _vocabulary(code.name for code in grpc.StatusCode)),
        },
        numbers={"create_time": moment(AUDIT.c.create_us)},
    ),
    {"create_time": AUDIT.c.create_us},
    (AUDIT.c.create_us, AUDIT.c.uid),
)
