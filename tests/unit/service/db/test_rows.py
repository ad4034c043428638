"""The types of rows: they are the tables' columns, and nothing past the statements has a row without a type."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import pytest
from sqlalchemy import Table

import mvprune_service
from mvprune_service.db.tables import artifacts, attempts, base, jobs, server, sweeps, uploads
from mvprune_service.domain.machine import JobState

TABLES: dict[type[NamedTuple], tuple[Table[Any], type]] = {
    jobs.JobRow: (jobs.JOBS, jobs.JobColumns),
    attempts.AttemptRow: (attempts.ATTEMPTS, attempts.AttemptColumns),
    jobs.EventRow: (jobs.EVENTS, jobs.EventColumns),
    jobs.RequestRow: (jobs.REQUESTS, jobs.RequestColumns),
    attempts.MetricRow: (attempts.METRICS, attempts.MetricColumns),
    attempts.LogChunkRow: (attempts.LOG_CHUNKS, attempts.LogChunkColumns),
    attempts.CheckpointRow: (attempts.CHECKPOINTS, attempts.CheckpointColumns),
    server.TokenRow: (server.TOKENS, server.TokenColumns),
    server.ProjectRow: (server.PROJECTS, server.ProjectColumns),
    sweeps.SweepRow: (sweeps.SWEEPS, sweeps.SweepColumns),
    sweeps.SweepEventRow: (sweeps.SWEEP_EVENTS, sweeps.SweepEventColumns),
    uploads.UploadRow: (uploads.UPLOADS, uploads.UploadColumns),
    uploads.ChunkRow: (uploads.UPLOAD_CHUNKS, uploads.ChunkColumns),
    sweeps.SweepRequestRow: (sweeps.SWEEP_REQUESTS, sweeps.SweepRequestColumns),
}
ARTIFACT = (artifacts.ARTIFACTS, artifacts.ArtifactColumns)


def columns(table: Table[Any], typed: type) -> dict[str, Any]:
    """The columns of a table in their order, with the types of their values."""
    own = type(typed.__name__, (), {"__annotations__": typed.__annotations__})  # without those of its base
    hints = get_type_hints(own, vars(sys.modules[typed.__module__]))
    return {column.key: get_args(hints[column.key])[0] for column in table.c}


@pytest.mark.parametrize("row", TABLES)
def test_the_fields_of_a_row_are_the_columns_of_its_table(row: type[NamedTuple]) -> None:
    wanted = columns(*TABLES[row])
    assert row._fields == tuple(wanted)
    assert get_type_hints(row) == wanted


def test_an_artifact_has_the_id_of_its_job_too() -> None:
    assert get_type_hints(artifacts.ArtifactRow) == {**columns(*ARTIFACT), "job_id": str | None}


def test_a_point_has_what_decides_of_its_job_too() -> None:
    every = columns(sweeps.POINTS, sweeps.PointColumns)
    spec = every.pop("spec")
    job = columns(*TABLES[jobs.JobRow])
    of_job = {"job_state": job["state"] | None, "job_reason": job["state_reason"] | None, "teacher_uid": str | None}
    assert get_type_hints(sweeps.PointRow) == every | of_job
    shown = {name: job[name] for name in ("progress", "failure_reason", "failure_message")}
    assert get_type_hints(sweeps.ShownPointRow) == {"point": sweeps.PointRow, "spec": spec} | shown


def test_a_listed_upload_has_the_number_of_its_users_and_no_files() -> None:
    every = columns(*TABLES[uploads.UploadRow])
    del every["files"]
    assert get_type_hints(uploads.ListedUploadRow) == {**every, "jobs": int}


def test_some_columns_of_jobs_decide_who_starts() -> None:
    every = columns(*TABLES[jobs.JobRow])
    for part in (jobs.QueuedRow, jobs.UidRow):
        assert get_type_hints(part) == {name: every[name] for name in part._fields}


def test_a_member_of_an_enumeration_is_stored_as_text() -> None:
    kind = jobs.JOBS.c.state.type
    assert isinstance(kind, base.Member)
    assert kind.process_result_value("FAILED", None) is JobState.FAILED
    assert kind.process_result_value(None, None) is None
    with pytest.raises(ValueError, match="is not a valid JobState"):
        kind.process_result_value("LOST", None)


def test_no_row_without_a_type_leaves_the_statements() -> None:
    folder = Path(mvprune_service.__file__).parent
    untyped = re.compile(r"\bRow\[")
    assert not [path for path in folder.rglob("*.py") if untyped.search(path.read_text())]
