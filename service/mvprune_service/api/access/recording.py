"""The audit of a port's calls: an entry for each call that changes something, and for each that is refused.

A change and its entry are in one transaction: neither is there without the other. Only calls that are let in are known
to be about a project; a refused one is recorded for the caller's own.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Any, Self

import grpc
from google.protobuf.message import Message

from mvprune.common.identifiers import ID_PATTERN
from mvprune_service import ids
from mvprune_service.api.access.errors import ApiError
from mvprune_service.api.access.limits import RateLimiter
from mvprune_service.api.access.peers import Origin, address_of
from mvprune_service.api.access.principal import Principal
from mvprune_service.api.access.rules import RULES, name_in, project_of
from mvprune_service.clock import Clock, system_clock
from mvprune_service.db import audit
from mvprune_service.db.engine.database import RIDER, Database, Tx

log = logging.getLogger(__name__)

_OK, _DENIED = grpc.StatusCode.OK, grpc.StatusCode.PERMISSION_DENIED
_FAILED_RATE, _FAILED_BURST = 0.1, 200.0  # entries of a caller's calls that changed nothing: they cost it little
_CHARACTERS = 200  # of a name or an id: those of requests that were refused can be anything


class Audit:
    """Records calls."""

    def __init__(self, db: Database, clock: Clock = system_clock) -> None:
        self.db = db
        self._failed = RateLimiter(_FAILED_RATE, _FAILED_BURST, clock, "calls that changed nothing")

    def has_room(self, principal: Principal) -> bool:
        """Takes room for an entry of a call that changed nothing; whether there was some."""
        try:
            self._failed.take(principal.id)
        except ApiError:
            return False
        return True


class Recording:
    """One call, from when it is known who calls until it has ended: `async with Recording(…)`."""

    def __init__(self, kept: Audit, method: str, principal: Principal, origin: Origin, request: Any) -> None:
        self._audit = kept
        self._method = method
        self._rule = RULES[method]
        self._principal = principal
        self._origin = origin
        self._request = request if isinstance(request, Message) else None
        self._changes = self._rule.is_recorded and not getattr(request, "validate_only", False)
        self._has_ended = False  # or is recorded

    async def __aenter__(self) -> Self:
        if self._changes:
            RIDER.set(self._ride)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._changes:
            RIDER.set(None)
        if self._has_ended:
            return
        self._has_ended = True
        code = _OK if error is None else error.code if isinstance(error, ApiError) else None
        # Where the server failed or the caller went away, what was not committed did not happen.
        if code is _DENIED or (self._changes and code not in (None, grpc.StatusCode.UNAVAILABLE)):
            await self._add(code)

    def _ride(self, tx: Tx, result: object) -> None:
        if not self._has_ended:
            audit.add(tx, self._entry(_OK, getattr(result, "name", None)))
            tx.after.append(self._end)

    def _end(self) -> None:
        self._has_ended = True

    async def _add(self, code: grpc.StatusCode) -> None:
        """Adds the entry of a call that wrote nothing."""
        entry = self._entry(code)
        if code is not _OK and not self._audit.has_room(self._principal):
            log.warning("too many calls of one caller failed, so the audit lacks %s", entry)
            return
        try:
            await self._audit.db.write(audit.add, entry)
        except Exception as failure:  # the call has ended, and is answered
            log.error("%s: the audit lacks %s", type(failure).__name__, entry)

    def _entry(self, code: grpc.StatusCode, made: object = None) -> audit.Entry:
        """The entry of the call. `made`: the name of what it created or changed."""
        given = "" if self._request is None else name_in(self._rule, self._request)
        project = None if self._request is None or code is _DENIED else project_of(self._rule, self._request)
        return audit.Entry(
            project=project if project and ID_PATTERN.fullmatch(project) else self._principal.project,
            principal=self._principal.id,
            method=self._method.rpartition("/")[2],
            resource=str(made) if isinstance(made, ids.Name) else _clean(given),
            code=code.name,
            address=_clean(address_of(self._origin.peer())),
            request_id=_clean(getattr(self._request, "request_id", "")),
        )


def _clean(text: str) -> str:
    cut = text[:_CHARACTERS]
    return cut if cut.isprintable() else "".join(one if one.isprintable() else "?" for one in cut)
