"""The parts of a server, and how they are put together."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_network
from typing import Self

from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection, reflection_pb2, reflection_pb2_grpc

from mvprune.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    artifact_pb2,
    artifact_pb2_grpc,
    catalog_pb2,
    catalog_pb2_grpc,
    issuer_pb2,
    issuer_pb2_grpc,
    job_pb2,
    job_pb2_grpc,
    sweep_pb2,
    sweep_pb2_grpc,
    upload_pb2,
    upload_pb2_grpc,
    webhook_pb2,
    webhook_pb2_grpc,
    worker_pb2,
    worker_pb2_grpc,
)
from mvprune_service.api.access import ports, rules
from mvprune_service.api.access.auth import Authenticator
from mvprune_service.api.access.calls import Calls
from mvprune_service.api.access.connections import ConnectionLimit
from mvprune_service.api.access.connections import Limits as ConnectionLimits
from mvprune_service.api.access.limits import RateLimiter
from mvprune_service.api.access.peers import KnownAddresses
from mvprune_service.api.access.recording import Audit
from mvprune_service.api.access.streams import Streams
from mvprune_service.api.admin import AdminServicer
from mvprune_service.api.artifacts import ArtifactServicer
from mvprune_service.api.catalog import CatalogServicer
from mvprune_service.api.checks.data_checks import DataChecks
from mvprune_service.api.checks.lost_chunks import LostChunks
from mvprune_service.api.checks.uploaded import UploadReader
from mvprune_service.api.feeds import Feeds
from mvprune_service.api.issuers import IssuerServicer, issuer_settings
from mvprune_service.api.jobs import JobServicer
from mvprune_service.api.log_reader import LogReader
from mvprune_service.api.status import StatusReporter
from mvprune_service.api.submissions import Submissions, capacity_of
from mvprune_service.api.sweep_creation import SweepCreation
from mvprune_service.api.sweeps import SweepServicer
from mvprune_service.api.uploads import UploadServicer
from mvprune_service.api.webhooks import WebhookServicer
from mvprune_service.api.worker import WorkerServicer
from mvprune_service.assembly.resources import Resources
from mvprune_service.changes import Changes
from mvprune_service.config import Settings
from mvprune_service.control.dispatcher import Dispatcher
from mvprune_service.control.finalizer import Finalizer
from mvprune_service.control.janitor import Janitor
from mvprune_service.control.log_mover import LogMover
from mvprune_service.control.loop import Loop, Loops
from mvprune_service.control.pace import Pace
from mvprune_service.control.scheduler import Scheduler
from mvprune_service.control.sweep_controller import SweepController
from mvprune_service.control.watchdog import Watchdog
from mvprune_service.control.webhook_sender import Courier, WebhookSender
from mvprune_service.db import overview
from mvprune_service.db.engine.database import Database
from mvprune_service.db.quotas import QueueQuota
from mvprune_service.db.uploads import Limits
from mvprune_service.issuers import Issuers, load_issuers
from mvprune_service.observability import metrics
from mvprune_service.observability.descriptors import DescriptorWatch
from mvprune_service.observability.health import Health
from mvprune_service.observability.probes import Probe, Problems
from mvprune_service.observability.scrape import Gauges
from mvprune_service.outbound import Outbound

CONTRACT = tuple(
    service
    for file in (job_pb2, sweep_pb2, artifact_pb2, upload_pb2, catalog_pb2, admin_pb2, webhook_pb2, issuer_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
)
_WORKER_CONTRACT = tuple(worker_pb2.DESCRIPTOR.services_by_name.values())
_HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]
_REFLECTION = tuple(reflection_pb2.DESCRIPTOR.services_by_name.values())
_RATE, _BURST_SECONDS = 100.0, 2.0  # calls per second of a token
_STREAMS_OF_TOKEN, _STREAMS_OF_ADDRESS = 200, 2_000  # open streams
_LOOP_SECONDS = 1.0  # between steps that a change in the database starts earlier
_DESCRIPTOR_SECONDS = 2.0
_PACE_SECONDS = 5.0
_LOG_SECONDS = 5.0
_STREAM_SECONDS = 2.0
_CONNECTION_SECONDS = 1.0
_WRITE_SECONDS = 10.0  # between checks whether the database accepts writes: each is a write to the disk


@dataclass(frozen=True)
class Components:
    """The parts of a server. `build` creates them; nothing of them runs before the server starts it.

    Attributes:
        problems: what is wrong with the server now.
        streams: the open streams of both ports.
        authenticator: finds out who calls the clients' port.
        clients: answers the calls of the clients' port.
        workers: answers the calls of the workers' port.
        health: whether the server can do its work.
        loops: runs loops.
        schedule: the loops of a server.
        gauges: what the metrics ask the database, the executor and the store.
        closing: ends the threads of each service, once no call is in progress.
    """

    problems: Problems
    streams: Streams
    authenticator: Authenticator
    clients: Calls
    workers: Calls
    health: Health
    loops: Loops
    schedule: tuple[Loop, ...]
    gauges: Gauges
    closing: tuple[Callable[[], None], ...]

    @classmethod
    def build(cls, settings: Settings, resources: Resources) -> Self:
        """Creates the components of a server on open resources. Raises rules.MissingRule, BadIssuers."""
        rules.check_complete((*CONTRACT, *_WORKER_CONTRACT, _HEALTH, *_REFLECTION))
        db, problems, quota = resources.db, Problems(), QueueQuota(settings.max_queued_jobs)
        known = KnownAddresses()
        fixed = load_issuers(settings.issuers_file) if settings.issuers_file else ()
        issuers = Issuers(fixed, read=partial(issuer_settings, db))
        authenticator = Authenticator(db, known=known, issuers=issuers)
        required = ports.is_auth_required(settings)
        streams = Streams(settings.max_streams or (_STREAMS_OF_TOKEN if required else _STREAMS_OF_ADDRESS))
        clients = Calls(
            authenticator if required else None,
            _rate_limiter(settings, required),
            streams,
            metrics.call_ended,
            Audit(db),
        )
        workers = Calls(streams=streams, observe=metrics.call_ended)
        health = _health(db, problems)
        status = StatusReporter(db, resources.store, resources.executor, problems, lambda: streams.open)
        lost = LostChunks(db, resources.store)
        admin = AdminServicer(db, authenticator, status.status)
        closing = _add_client_services(clients, settings, resources, quota, admin, lost)
        outbound = Outbound([ip_network(one) for one in settings.webhook_allow])
        courier = Courier(outbound, resources.key)
        webhook_pb2_grpc.add_WebhookServiceServicer_to_server(WebhookServicer(db, outbound, courier), clients)
        issuer_pb2_grpc.add_IssuerServiceServicer_to_server(IssuerServicer(db, issuers), clients)
        pace = Pace(db, heartbeat_seconds=settings.heartbeat_seconds, lease_seconds=settings.lease_seconds)
        worker = WorkerServicer(db, resources.key, lost, pace=pace, known=known)
        worker_pb2_grpc.add_WorkerServiceServicer_to_server(worker, workers)
        for each in (clients, workers):
            health_pb2_grpc.add_HealthServicer_to_server(health.servicer, each)
        return cls(
            problems,
            streams,
            authenticator,
            clients,
            workers,
            health,
            Loops(problems),
            _schedule(settings, resources, problems, streams, quota, pace, known, courier),
            Gauges(
                Probe("database", lambda: db.read(overview.overview, overview.LIVE_JOBS), problems),
                status.capacity,
                status.quarantine,
                status.reach_store,
            ),
            (*closing, lost.close),
        )


def _rate_limiter(settings: Settings, required: bool) -> RateLimiter | None:
    rate = settings.rate_limit or (_RATE if required else None)
    return RateLimiter(rate, settings.rate_burst or max(1.0, _BURST_SECONDS * rate)) if rate else None


def _health(db: Database, problems: Problems) -> Health:
    names = [service.full_name for service in (*CONTRACT, *_WORKER_CONTRACT)]
    reads = Probe("database", lambda: db.read(overview.ping), problems)
    writes = Probe("database writes", lambda: db.write(overview.write), problems, fresh=_WRITE_SECONDS)
    return Health(names, (reads, writes), problems)


def _add_client_services(
    clients: Calls,
    settings: Settings,
    resources: Resources,
    quota: QueueQuota,
    admin: AdminServicer,
    lost: LostChunks,
) -> tuple[Callable[[], None], ...]:
    """Adds the services of the clients' port. Returns what closes them."""
    db, changes = resources.db, resources.changes
    capacity = capacity_of(resources.executor)
    reader = UploadReader(db, resources.store, lost, settings.home / "uploads")
    data = DataChecks()
    submissions = Submissions(
        db,
        resources.roots,
        capacity,
        quota=quota,
        retention_seconds=settings.retention_seconds,
        uploads=reader,
        data=data,
    )
    creation = SweepCreation(
        db,
        resources.roots,
        capacity,
        max_points=settings.max_sweep_points,
        retention_seconds=settings.retention_seconds,
        uploads=reader,
        data=data,
    )
    logs = LogReader(db, resources.store)
    jobs = JobServicer(db, changes, Feeds(db, changes), submissions, logs)
    job_pb2_grpc.add_JobServiceServicer_to_server(jobs, clients)
    sweep_pb2_grpc.add_SweepServiceServicer_to_server(SweepServicer(db, changes, creation), clients)
    artifacts = ArtifactServicer(db, resources.store)
    artifact_pb2_grpc.add_ArtifactServiceServicer_to_server(artifacts, clients)
    limits = Limits(stored_bytes=settings.max_upload_bytes, parts=settings.max_upload_parts)
    uploads = UploadServicer(db, resources.store, resources.ownership, limits=limits, upload_days=settings.upload_days)
    upload_pb2_grpc.add_UploadServiceServicer_to_server(uploads, clients)
    catalog = CatalogServicer(resources.roots)
    catalog_pb2_grpc.add_CatalogServiceServicer_to_server(catalog, clients)
    admin_pb2_grpc.add_AdminServiceServicer_to_server(admin, clients)
    if settings.reflection:
        names = [service.full_name for service in (*CONTRACT, _HEALTH)]
        reflection_pb2_grpc.add_ServerReflectionServicer_to_server(reflection.aio.ReflectionServicer(names), clients)
    return tuple(one.close for one in (data, submissions, creation, logs, artifacts, uploads, catalog))


def _schedule(
    settings: Settings,
    resources: Resources,
    problems: Problems,
    streams: Streams,
    quota: QueueQuota,
    pace: Pace,
    known: KnownAddresses,
    courier: Courier,
) -> tuple[Loop, ...]:
    db, store, executor = resources.db, resources.store, resources.executor
    scheduler = Scheduler(
        db, executor, max_running_gpus=settings.max_running_gpus, node_start_seconds=settings.node_start_seconds
    )
    python = str(settings.worker_python or sys.executable)
    dispatcher = Dispatcher(
        db, executor, resources.ownership, resources.key, _worker_environment(settings, resources), python=python
    )
    watchdog = Watchdog(db, executor, store, pace=pace, problems=problems)
    finalizer = Finalizer(db, store)
    janitor = Janitor(
        db,
        executor,
        store,
        problems,
        server=f"{socket.gethostname()}:{settings.home}",
        request_days=settings.request_days,
        checkpoint_days=settings.checkpoint_days,
        upload_days=settings.upload_days,
        quarantine_days=settings.quarantine_days,
        webhook_days=settings.webhook_days,
        audit_days=settings.audit_days,
    )
    limits = ConnectionLimits(
        ports.max_connections_per_address(settings),
        ports.strangers_connections(settings),
        ports.max_connections(settings),
    )
    listening = {ports.port_of(resources.address): "clients", ports.port_of(resources.worker_address): "workers"}
    connections = ConnectionLimit(listening, limits, known, problems)
    changes, unchanging = resources.changes, Changes()  # the latter wakes no loop before its interval ends
    return (
        Loop("sweeps", SweepController(db, quota).step, changes, _LOOP_SECONDS),
        Loop("scheduler", scheduler.step, changes, _LOOP_SECONDS, starts_jobs=True),
        Loop("dispatcher", dispatcher.step, changes, _LOOP_SECONDS),
        Loop("watchdog", watchdog.step, changes, _LOOP_SECONDS),
        Loop("finalizer", finalizer.step, changes, _LOOP_SECONDS),
        Loop("webhooks", WebhookSender(db, courier).step, changes, _LOOP_SECONDS),
        Loop("logs", LogMover(db, store).step, unchanging, _LOG_SECONDS),
        Loop("janitor", janitor.step, unchanging, settings.janitor_seconds),
        Loop("pace", pace.step, unchanging, _PACE_SECONDS),
        Loop("streams", streams.step, unchanging, _STREAM_SECONDS),
        Loop("descriptors", DescriptorWatch(problems).step, unchanging, _DESCRIPTOR_SECONDS),
        Loop("connections", connections.step, unchanging, _CONNECTION_SECONDS),
    )


def _worker_environment(settings: Settings, resources: Resources) -> Mapping[str, str]:
    """Variables of every worker."""
    return {
        **ports.worker_environment(settings, resources.worker_address),
        "MVPRUNE_STORE": settings.store_url,
        "MVPRUNE_SCRATCH": str(settings.home / "scratch"),
        **resources.roots.to_environment(),
        **{name: value for name, value in os.environ.items() if name.startswith("OTEL_")},
    }
