"""mvpctl server status"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mvprune.cli.shared.exit import ExitCode
from mvprune.cli.shared.options import command_parser, connect
from mvprune.cli.shared.output import answer, print_fields, print_table
from mvprune.common.units import age, duration, size, timestamp

if TYPE_CHECKING:
    from mvprune.client.server import Capacity, Quarantine, ServerStatus


def status_command(argv: Sequence[str]) -> ExitCode:
    """Shows how the server is doing."""
    details = "Shows how the server is doing. Exit codes: 0 all is well, 1 it has problems, 7 it cannot be reached."
    args = command_parser("server status", "mvpctl server status", details, job=False).parse_args(argv)
    with connect(args) as client:
        status = client.admin.server_status()
    answer(args.form, status, sorted(status.problems), lambda: _print(status, client.address))
    return ExitCode.ERROR if status.problems else ExitCode.OK


def _print(status: ServerStatus, address: str) -> None:
    print_fields(
        [
            ("server", f"{address}, mvprune {status.version}"),
            ("state", "has problems" if status.problems else "all is well"),
            ("up since", f"{timestamp(status.start_time)} UTC, {age(status.start_time)}" if status.start_time else ""),
            ("database", f"{status.database}, schema {status.schema_revision or 'unknown'}"),
            ("store", status.store),
            ("runs jobs on", status.executor),
            ("reserved", _reserved(status.capacity) if status.capacity else "unknown"),
            ("attempts", f"{status.live_attempts} live{_ago(', slowest heartbeat', status.longest_heartbeat_age)}"),
            ("queue", f"{status.jobs.get('QUEUED', 0)} waiting{_ago(', the oldest', status.oldest_queued_age)}"),
            ("streams", f"{status.watchers} open"),
            ("quarantine", _waiting(status.quarantine) if status.quarantine else "unknown"),
        ]
    )
    if status.jobs:
        print()
        print_table(["JOBS", ""], [[state, f"{count:,}"] for state, count in _in_order(status)], numbers=True)
    if status.problems:
        print()
        print_table(["PROBLEM", ""], [[part, what] for part, what in sorted(status.problems.items())])


def _in_order(status: ServerStatus) -> list[tuple[str, int]]:
    from mvprune.client.models import JobState

    return [(state, status.jobs[state]) for state in JobState if state in status.jobs]


def _reserved(capacity: Capacity) -> str:
    return ", ".join(
        (
            f"{capacity.reserved_cpus:g} of {capacity.cpus:g} CPUs",
            f"{capacity.reserved_gpus:g} of {capacity.gpus:g} GPUs",
            f"{size(capacity.reserved_memory_bytes)} of {size(capacity.memory_bytes)}",
        )
    )


def _waiting(garbage: Quarantine) -> str:
    if not garbage.objects:
        return "empty"
    since = f", since {timestamp(garbage.since)} UTC" if garbage.since else ""
    return f"{garbage.artifacts:,} artifacts; {garbage.objects:,} objects in all, {size(garbage.size_bytes)}{since}"


def _ago(text: str, seconds: float | None) -> str:
    return "" if seconds is None else f"{text} {duration(seconds)} ago"
