"""The tables that a terminal and a page show: headings, and rows of cells."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from mvprune.client.display import failure, transition, why
from mvprune.client.models import JobState
from mvprune.common.units import age, count, duration, exact_size, percent, size, timestamp

if TYPE_CHECKING:
    from mvprune.client.admin import AuditEntry, Project, Token
    from mvprune.client.catalog import ModelEntry, TaskEntry
    from mvprune.client.issuers import Issuer, IssuerRule
    from mvprune.client.models import Artifact, Attempt, Capacity, JobEvent, Queue
    from mvprune.client.server import Quarantine, ServerStatus
    from mvprune.client.upload_models import Upload
    from mvprune.client.webhooks import Webhook, WebhookDelivery

EVENT_COLUMNS = ("#", "TIME (UTC)", "TYPE", "STATE", "ACTOR", "DETAILS")
ATTEMPT_TIMES = ("CREATED (UTC)", "STARTED", "ENDED")
ATTEMPT_COLUMNS = ("#", "STATE", "NODE", *ATTEMPT_TIMES, "FAILURE")
ARTIFACT_COLUMNS = ("ARTIFACT", "JOB", "KEPT", "METRIC", "DIFFERENCE", "SIZE", "CREATED (UTC)", "EXPIRES")
MODEL_COLUMNS = ("MODEL", "WHERE", "PARAMETERS", "PRUNABLE", "PROBLEM")
TASK_COLUMNS = ("TASK", "KIND", "METRICS", "DATA", "")
UPLOAD_COLUMNS = ("DIGEST", "NAME", "KIND", "STATE", "SIZE", "JOBS", "CREATOR", "CREATED (UTC)", "EXPIRES")
QUEUE_COLUMNS = ("JOB", "AHEAD", "WAITS FOR", "SINCE", "NAME")
TOKEN_COLUMNS = ("ID", "SCOPE", "STATE", "CREATED (UTC)", "EXPIRES", "LAST USED", "CREATOR", "SHOWS", "NAME")
ISSUER_COLUMNS = ("ID", "URL", "AUDIENCE", "RULES", "FROM", "PROBLEM")
WEBHOOK_COLUMNS = ("ID", "STATE", "EVENTS", "WAITING", "FAILURES", "URL", "NAME")
DELIVERY_COLUMNS = ("ID", "STATE", "EVENT", "SUBJECT", "TIME (UTC)", "ATTEMPTS", "ANSWER")
AUDIT_COLUMNS = ("TIME (UTC)", "PRINCIPAL", "METHOD", "CODE", "RESOURCE", "ADDRESS", "REQUEST")
PROJECT_COLUMNS = ("PROJECT", "QUEUED", "MAX", "RUNNING", "GPUS", "MAX GPUS", "UPLOADS", "MAX UPLOADS")


def event_rows(events: Sequence[JobEvent]) -> list[list[str]]:
    """The audit trail of a job: the cells below EVENT_COLUMNS."""
    return [
        [
            str(event.sequence),
            timestamp(event.time),
            event.type,
            transition(event),
            event.actor,
            " ".join(f"{key}={value}" for key, value in sorted(event.details.items())),
        ]
        for event in events
    ]


def attempt_rows(attempts: Sequence[Attempt]) -> list[list[str]]:
    """The attempts of a job: the cells below ATTEMPT_COLUMNS."""
    return [
        [
            attempt.name.rpartition("/")[2],
            attempt.state,
            attempt.node,
            *map(timestamp, (attempt.create_time, attempt.start_time, attempt.end_time)),
            failure(attempt.failure),
        ]
        for attempt in attempts
    ]


def model_rows(models: Sequence[ModelEntry]) -> list[list[str]]:
    """Models: the cells below MODEL_COLUMNS."""
    return [
        [
            model.name,
            model.source.lower(),
            count(model.size.base_parameters) if model.size else "",
            count(model.size.prunable_weights) if model.size else "",
            model.problem,
        ]
        for model in models
    ]


def task_rows(tasks: Sequence[TaskEntry]) -> list[list[str]]:
    """Tasks: the cells below TASK_COLUMNS."""
    return [
        [
            task.name,
            task.kind,
            ", ".join((task.primary_metric, *(name for name in task.metrics if name != task.primary_metric))),
            "server" if task.has_data else "hub" if task.hub_id else "yours",
            task.description,
        ]
        for task in tasks
    ]


def artifact_rows(artifacts: Sequence[Artifact]) -> list[list[str]]:
    """Artifacts: the cells below ARTIFACT_COLUMNS."""
    return [
        [
            artifact.sha256[:12],
            artifact.job.rpartition("/")[2],
            percent(artifact.accounting.density),
            _number(artifact, "eval", ".4f"),
            _number(artifact, "delta", "+.4f"),
            size(artifact.total_bytes),
            timestamp(artifact.create_time),
            timestamp(artifact.expire_time),
        ]
        for artifact in artifacts
    ]


def _number(artifact: Artifact, kind: str, form: str) -> str:
    value = artifact.metrics.get(f"{kind}/{artifact.primary_metric}")
    return "" if value is None else format(value, form)


def upload_rows(uploads: Sequence[Upload]) -> list[list[str]]:
    """Uploads: the cells below UPLOAD_COLUMNS."""
    return [
        [
            upload.digest[:12],
            upload.display_name,
            upload.kind,
            upload.state,
            size(upload.total_bytes),
            f"{upload.jobs}",
            upload.creator,
            timestamp(upload.create_time),
            timestamp(upload.expire_time),
        ]
        for upload in uploads
    ]


def project_rows(projects: Sequence[Project]) -> list[list[str]]:
    """Projects with their quotas: the cells below PROJECT_COLUMNS."""
    return [
        [
            project.id,
            f"{project.queued_jobs}",
            "default" if project.max_queued_jobs is None else f"{project.max_queued_jobs}",
            f"{project.running_jobs}",
            f"{project.running_gpus:g}",
            "default" if project.max_running_gpus is None else f"{project.max_running_gpus:g}",
            size(project.upload_bytes),
            "default" if project.max_upload_bytes is None else exact_size(project.max_upload_bytes),
        ]
        for project in projects
    ]


def token_rows(tokens: Sequence[Token]) -> list[list[str]]:
    """Tokens: the cells below TOKEN_COLUMNS."""
    now, rows = datetime.now(UTC), []
    for token in tokens:
        expired = token.expire_time is not None and token.expire_time <= now
        state = "revoked" if token.revoke_time else "expired" if expired else "good"
        times = [timestamp(time) for time in (token.create_time, token.expire_time, token.last_use_time)]
        rows.append([token.id, token.scope, state, *times, token.creator, token.resource, token.display_name])
    return rows


def audit_rows(entries: Sequence[AuditEntry]) -> list[list[str]]:
    """Entries of the audit: the cells below AUDIT_COLUMNS."""
    return [
        [timestamp(one.create_time), one.principal, one.method, one.code, one.resource, one.address, one.request_id]
        for one in entries
    ]


def status_fields(status: ServerStatus, address: str) -> list[tuple[str, str]]:
    """How a server is doing: names and values."""
    return [
        ("server", f"{address}, mvprune {status.version}"),
        ("state", "has problems" if status.problems else "all is well"),
        ("up since", f"{timestamp(status.start_time)} UTC, {age(status.start_time)}" if status.start_time else ""),
        ("database", f"{status.database}, schema {status.schema_revision or 'unknown'}"),
        ("store", status.store),
        ("runs jobs on", status.executor),
        ("reserved", reserved(status.capacity) if status.capacity else "unknown"),
        ("attempts", f"{status.live_attempts} live{_ago(', slowest heartbeat', status.longest_heartbeat_age)}"),
        ("queue", f"{status.jobs.get('QUEUED', 0)} waiting{_ago(', the oldest', status.oldest_queued_age)}"),
        ("streams", f"{status.watchers} open"),
        ("quarantine", _waiting(status.quarantine) if status.quarantine else "unknown"),
    ]


def queue_rows(queue: Queue) -> list[list[str]]:
    """The queued jobs of a project: the cells below QUEUE_COLUMNS."""
    return [
        [
            entry.job.rpartition("/")[2],
            f"{entry.ahead}",
            why(entry.state_reason),
            age(entry.create_time),
            entry.display_name,
        ]
        for entry in queue.entries
    ]


def queue_lines(queue: Queue) -> list[str]:
    """What is said about the queue of all projects."""
    lines = [f"all projects: {queue.queued_jobs} queued, {queue.running_jobs} running"]
    return [*lines, *([f"in use: {reserved(queue.capacity)}"] if queue.capacity else [])]


def jobs_by_state(status: ServerStatus) -> list[tuple[str, str]]:
    """How many jobs there are in each state."""
    return [(str(state), f"{status.jobs[state]:,}") for state in JobState if state in status.jobs]


def reserved(capacity: Capacity) -> str:
    """2 of 16 CPUs, 0 of 0 GPUs, 4.0 GB of 64.0 GB"""
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


def issuer_rows(issuers: Sequence[Issuer]) -> list[list[str]]:
    """Issuers: the cells below ISSUER_COLUMNS."""
    return [[one.id, one.url, one.audience, f"{len(one.rules)}", one.source, one.problem] for one in issuers]


def issuer_fields(issuer: Issuer) -> list[tuple[str, str]]:
    """Name and value of all that matters of an issuer; without a value: there is none."""
    made = f"{timestamp(issuer.create_time)} UTC by {issuer.creator}" if issuer.create_time else ""
    return [
        ("issuer", issuer.id),
        ("url", issuer.url),
        ("audience", issuer.audience),
        *((f"rule {number}", _rule(rule)) for number, rule in enumerate(issuer.rules, 1)),
        ("keys", issuer.jwks_url or ("given with it" if issuer.jwks else "")),
        ("from", "the server's file" if issuer.source == "file" else issuer.source),
        ("problem", issuer.problem),
        ("created", made),
    ]


def _rule(rule: IssuerRule) -> str:
    return f"{rule.project}:{rule.scope} for {', '.join(f'{name}={value}' for name, value in rule.claims.items())}"


def webhook_rows(webhooks: Sequence[Webhook]) -> list[list[str]]:
    """Webhooks: the cells below WEBHOOK_COLUMNS."""
    return [
        [one.id, one.state, ",".join(one.events), f"{one.pending}", f"{one.failures}", one.url, one.display_name]
        for one in webhooks
    ]


def webhook_fields(webhook: Webhook) -> list[tuple[str, str]]:
    """Name and value of all that matters of a webhook; without a value: there is none."""
    return [
        ("webhook", webhook.id),
        ("name", webhook.display_name),
        ("url", webhook.url),
        ("events", ", ".join(webhook.events)),
        ("labels", ", ".join(f"{key}={value}" for key, value in webhook.labels.items())),
        ("format", webhook.format),
        ("state", f"{webhook.state}{f': {webhook.state_reason}' if webhook.state_reason else ''}"),
        ("waiting", f"{webhook.pending} deliveries"),
        ("failures", f"{webhook.failures} in a row" if webhook.failures else ""),
        ("next attempt", timestamp(webhook.next_attempt_time) if webhook.next_attempt_time else ""),
        ("created", f"{timestamp(webhook.create_time)} UTC by {webhook.creator}"),
    ]


def delivery_rows(deliveries: Sequence[WebhookDelivery]) -> list[list[str]]:
    """Deliveries to a webhook: the cells below DELIVERY_COLUMNS."""
    return [
        [
            one.id,
            one.state,
            one.type.removeprefix("dev.mvprune.").removesuffix(".v1"),
            one.subject.rpartition("/")[2],
            timestamp(one.create_time),
            f"{one.attempts}",
            _answer(one),
        ]
        for one in deliveries
    ]


def delivery_line(delivery: WebhookDelivery) -> str:
    """A delivery in a line."""
    why = _answer(delivery)
    return f"{delivery.id}: {delivery.state}{f' ({why})' if why else ''}"


def _answer(delivery: WebhookDelivery) -> str:
    return delivery.error or (f"HTTP {delivery.status}" if delivery.status else "")
