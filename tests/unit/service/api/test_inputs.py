"""What messages may hold, checked by walking their descriptors."""

from __future__ import annotations

import math
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from mvprune.v1 import admin_pb2, catalog_pb2, job_pb2, worker_pb2
from mvprune_service.api.access.errors import ApiError
from mvprune_service.api.access.inputs import check_request, clean
from mvprune_service.api.messages.pagination import make_token


def violations(message: Message) -> dict[str, str]:
    """Field and description of each, {} for a message that is fine."""
    try:
        check_request(message)
    except ApiError as error:
        if error.code is not grpc.StatusCode.INVALID_ARGUMENT:
            raise
        return dict(error.violations)
    return {}


def create(**job: Any) -> job_pb2.CreateJobRequest:
    return job_pb2.CreateJobRequest(parent="projects/p", job=job_pb2.Job(**job))


@pytest.mark.parametrize(
    "message",
    [
        create(),
        create(display_name="Größe 日本語 \U0001f600", labels={"team": "search", "x": ""}),
        create(
            spec={"model": "m", "target_density": 0.5, "include": ["*"] * 64, "movement": {"schedule": {"shape": 2}}}
        ),
        create(policy={"start_timeout": {"seconds": 60, "nanos": 5}}, create_time={"seconds": 1, "nanos": 1}),
        job_pb2.CancelJobRequest(name="x" * 1000),
        catalog_pb2.ListModelsRequest(page_token=make_token(0, "é" * 2047)),  # a path may have 4,095 bytes
        worker_pb2.ReportMetricsRequest(points=[{"metric": "loss", "value": math.nan}] * 1000),
        worker_pb2.CompleteAttemptRequest(failure={"message": "Traceback:\n\t\x1b[31mno\x00"}),
        worker_pb2.AppendLogsRequest(data=b"\x00" * 100_000),
    ],
)
def test_what_is_fine(message: Message) -> None:
    assert violations(message) == {}


@pytest.mark.parametrize(
    ("message", "field", "found"),
    [
        (job_pb2.GetJobRequest(name="x" * 1001), "name", "must be at most 1000 characters, got 1001"),
        (
            job_pb2.GetJobRequest(name="a\nb"),
            "name",
            "must be printable characters and plain spaces, got U+000A (a",
        ),
        (job_pb2.GetJobRequest(name="a\x00"), "name", "got U+0000"),
        (create(display_name="a\u202egnp.exe"), "job.display_name", "got U+202E (RIGHT-TO-LEFT OVERRIDE)"),
        (create(display_name="a\u200bb"), "job.display_name", "got U+200B (ZERO WIDTH SPACE)"),
        (create(display_name="a\ufeff"), "job.display_name", "got U+FEFF"),
        (
            create(display_name="e\u0301"),
            "job.display_name",
            "composed form (NFC), got 'e\\u0301'",
        ),
        (create(labels={"a\u2066": "v"}), "job.labels", "got U+2066"),
        (
            create(labels={"key": "e\u0301"}),
            "job.labels.key",
            "composed form (NFC), got 'e\\u0301'",
        ),
        (create(labels={str(n): "" for n in range(101)}), "job.labels", "must be at most 100 entries, got 101"),
        (create(spec={"include": ["*"] * 65}), "job.spec.include", "must be at most 64 entries, got 65"),
        (create(spec={"exclude": ["*"] * 65}), "job.spec.exclude", "must be at most 64 entries, got 65"),
        (create(spec={"exclude": ["a", "b" * 257]}), "job.spec.exclude[1]", "at most 256 characters, got 257"),
        (create(policy={"gates": [{}] * 33}), "job.policy.gates", "must be at most 32 entries, got 33"),
        (create(spec={"target_density": math.nan}), "job.spec.target_density", "must be a finite number, got nan"),
        (create(policy={"resources": {"gpus": math.inf}}), "job.policy.resources.gpus", "got inf"),
        (create(metrics={"f1": -math.inf}), "job.metrics.f1", "got -inf"),
        (
            create(spec={"movement": {"schedule": {"shape": 9}}}),
            "job.spec.movement.schedule.shape",
            "must be one of CUBIC, LINEAR, ONE_SHOT, EVENTS, got 9",
        ),
        (
            admin_pb2.CreateTokenRequest(ttl={"seconds": 315_576_000_001}),
            "ttl",
            "must be at most 10,000 years, of one sign",
        ),
        (admin_pb2.CreateTokenRequest(ttl={"seconds": 1, "nanos": -1}), "ttl", "of one sign"),
        (admin_pb2.CreateTokenRequest(ttl={"nanos": 10**9}), "ttl", "got 0 s and 1000000000 ns"),
        (create(create_time={"seconds": 1 << 60}), "job.create_time", "must be in the years 1 to 9999"),
        (create(create_time={"nanos": -1}), "job.create_time", "the years 1 to 9999"),
        (admin_pb2.CreateTokenRequest(token={"display_name": "x" * 201}), "token.display_name", "at most 200"),
    ],
)
def test_what_is_refused(message: Message, field: str, found: str) -> None:
    told = violations(message)
    assert list(told) == [field]
    assert found in told[field]


def test_fields_that_the_server_does_not_know_are_refused_rather_than_dropped() -> None:
    newer = job_pb2.Job(display_name="x").SerializeToString() + b"\xba\x3e\x03abc"  # field 999
    message = job_pb2.CreateJobRequest(parent="projects/p", job=job_pb2.Job.FromString(newer))
    assert "must have only fields that this server knows" in violations(message)["request"]
    assert violations(message) == {}, "the field is gone"


def test_not_all_of_many_violations_are_told() -> None:
    assert len(violations(create(spec={"include": ["\n"] * 64}))) == 12


def test_free_text_is_cleaned_where_it_is_stored() -> None:
    assert clean("a\x00b\x1b[31m\n\tc\x7f\x85", 100) == "a b [31m\n\tc  "
    assert clean("é" * 10, 3) == "ééé"
