"""Who calls. api/access/calls.py finds it out; everything else asks `current_principal()`."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from enum import IntEnum

EVERY_PROJECT = "-"


class Scope(IntEnum):
    """Rights of a caller; each includes those before it. The numbers are those of Token.Scope."""

    READ = 1
    SUBMIT = 2
    ADMIN = 3


@dataclass(frozen=True)
class Principal:
    """A caller.

    Attributes:
        id: of the API token, or issuer and subject of a token of an issuer; "local" where the server asks for none.
        project: what it is bound to; "-" for an operator, who may use all projects.
        scope: what it may do there.
        resource: the name of the only job or sweep that it may see; "": all of the project.
        since_us: when its token was created.
        expire_us: when it stops to be valid; None: never.
    """

    id: str
    project: str
    scope: Scope
    resource: str = ""
    since_us: int = 0
    expire_us: int | None = None

    @property
    def is_operator(self) -> bool:
        """Whether it may use all projects."""
        return self.project == EVERY_PROJECT

    @property
    def is_administrator(self) -> bool:
        """Whether it may do everything here, and so may learn how the server is set up."""
        return self.is_operator and self.scope is Scope.ADMIN


LOCAL = Principal("local", EVERY_PROJECT, Scope.ADMIN)

_current: ContextVar[Principal] = ContextVar("principal", default=LOCAL)


def current_principal() -> Principal:
    """The caller of the RPC that this task serves. Ask on the event loop: other threads do not know it."""
    return _current.get()


def set_principal(principal: Principal) -> None:
    """Makes `principal` the caller of the RPC that this task serves."""
    _current.set(principal)
