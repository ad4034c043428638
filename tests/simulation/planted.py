"""Mistakes to plant in the product, each of which the simulation must find."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from mvprune_service.control import watchdog
from mvprune_service.db import attempt_logs, heartbeats, leases, lifecycle, outbox, webhooks
from mvprune_service.db.engine.database import Database, Tx
from mvprune_service.domain import machine, watching
from mvprune_service.domain.webhooks import Answer
from mvprune_service.executors.base import Phase


@contextmanager
def without_token() -> Iterator[None]:
    """Heartbeats and reports count without the token of the lease."""

    def check_nothing(*args: object, **kwargs: object) -> None:
        pass

    with patch.object(leases, "check_fence", check_nothing), patch.object(heartbeats, "check_fence", check_nothing):
        yield


@contextmanager
def announced_early() -> Iterator[None]:
    """Changes are announced before they are committed."""
    write = Database.write

    async def early(self: Database, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        def announcing(tx: Tx, *given: Any, **named: Any) -> Any:
            result = work(tx, *given, **named)
            self.on_commit(set(tx.changed), False)
            return result

        return await write(self, announcing, *args, **kwargs)

    with patch.object(Database, "write", early):
        yield


@contextmanager
def without_event() -> Iterator[None]:
    """The event of a claim is left out."""
    write = lifecycle._event

    def most(tx: Tx, job_uid: str, sequence: int, kind: str, *rest: Any) -> None:
        if kind != machine.Command.CLAIM:
            write(tx, job_uid, sequence, kind, *rest)

    with patch.object(lifecycle, "_event", most):
        yield


@contextmanager
def published_twice() -> Iterator[None]:
    """A server publishes what another one has just published."""
    known = machine.transition

    def again(state: machine.JobState, command: machine.Command) -> machine.JobState:
        if command is machine.Command.PUBLISH:
            return machine.JobState.SUCCEEDED
        return known(state, command)

    with patch.object(leases, "TERMINAL", frozenset()), patch.object(lifecycle, "transition", again):
        yield


@contextmanager
def lost_when_unknown() -> Iterator[None]:
    """When the executor does not answer, the attempt is given up."""
    over = (*watching.OVER, Phase.UNKNOWN)
    with patch.object(watching, "OVER", over), patch.object(watchdog, "OVER", over):
        yield


@contextmanager
def outside_the_table() -> Iterator[None]:
    """A command that comes too late is carried out all the same."""

    def lenient(state: machine.JobState, command: machine.Command) -> machine.JobState:
        known = machine.TRANSITIONS.get((state, command))
        return known or next(to for (_, one), to in machine.TRANSITIONS.items() if one is command)

    with patch.object(lifecycle, "transition", lenient):
        yield


@contextmanager
def stored_twice() -> Iterator[None]:
    """A part of a log that arrives again is stored again."""
    append = attempt_logs.append_log

    def again(tx: Tx, attempt: Any, offset: int, data: bytes) -> int:
        return append(tx, attempt, attempt.log_bytes, data)

    with patch.object(attempt_logs, "append_log", again):
        yield


@contextmanager
def never_again() -> Iterator[None]:
    """A job whose attempt failed stays as it is, and nobody takes it up."""
    move = leases.move

    def most(tx: Tx, job: Any, command: machine.Command, *rest: Any, **values: Any) -> Any:
        return None if command is machine.Command.REQUEUE else move(tx, job, command, *rest, **values)

    with patch.object(leases, "move", most):
        yield


@contextmanager
def untold() -> Iterator[None]:
    """Nothing is to be sent for a cancellation."""

    def most(tx: Tx, job: Any, sequence: int, source: Any, target: Any, values: Any) -> None:
        if target is not machine.JobState.CANCELLED:
            write(tx, job, sequence, source, target, values)

    write = outbox.job_moved
    with patch.object(outbox, "job_moved", most):
        yield


@contextmanager
def taken_for_delivered() -> Iterator[None]:
    """An attempt that failed counts as a delivery."""
    known = webhooks.verdict

    def lenient(answer: Answer, **about: Any) -> Any:
        return known(Answer(204), **about)

    with patch.object(webhooks, "verdict", lenient):
        yield


PLANTED: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    plant.__name__: plant
    for plant in (
        without_token,
        announced_early,
        without_event,
        published_twice,
        lost_when_unknown,
        outside_the_table,
        stored_twice,
        never_again,
        untold,
        taken_for_delivered,
    )
}
