"""The types of rows: they are the tables' columns, and nothing past the statements has a row without a type."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, NamedTuple, get_args, get_type_hints

import pytest
from sqlalchemy import Table

import mvprune_service
from mvprune_service.db.tables import models, rows, server_models, sweep_models, sweep_rows, upload_models, upload_rows
from mvprune_service.domain.machine import JobState

TABLES: dict[type[NamedTuple], tuple[Table[Any], type]] = {
    rows.JobRow: (models.JOBS, models.JobColumns),
    rows.AttemptRow: (models.ATTEMPTS, models.AttemptColumns),
    rows.EventRow: (models.EVENTS, models.EventColumns),
    rows.RequestRow: (models.REQUESTS, models.RequestColumns),
    rows.MetricRow: (models.METRICS, models.MetricColumns),
    rows.LogChunkRow: (models.LOG_CHUNKS, models.LogChunkColumns),
    rows.CheckpointRow: (models.CHECKPOINTS, models.CheckpointColumns),
    rows.TokenRow: (server_models.TOKENS, server_models.TokenColumns),
    rows.ProjectRow: (server_models.PROJECTS, server_models.ProjectColumns),
    sweep_rows.SweepRow: (sweep_models.SWEEPS, sweep_models.SweepColumns),
    sweep_rows.SweepEventRow: (sweep_models.SWEEP_EVENTS, sweep_models.SweepEventColumns),
    upload_rows.UploadRow: (upload_models.UPLOADS, upload_models.UploadColumns),
    upload_rows.ChunkRow: (upload_models.UPLOAD_CHUNKS, upload_models.ChunkColumns),
    sweep_rows.SweepRequestRow: (sweep_models.SWEEP_REQUESTS, sweep_models.SweepRequestColumns),
}
ARTIFACT = (models.ARTIFACTS, models.ArtifactColumns)


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
    assert get_type_hints(rows.ArtifactRow) == {**columns(*ARTIFACT), "job_id": str | None}


def test_a_point_has_what_decides_of_its_job_too() -> None:
    every = columns(sweep_models.POINTS, sweep_models.PointColumns)
    spec = every.pop("spec")
    job = columns(*TABLES[rows.JobRow])
    of_job = {"job_state": job["state"] | None, "job_reason": job["state_reason"] | None, "teacher_uid": str | None}
    assert get_type_hints(sweep_rows.PointRow) == every | of_job
    shown = {name: job[name] for name in ("progress", "failure_reason", "failure_message")}
    assert get_type_hints(sweep_rows.ShownPointRow) == {"point": sweep_rows.PointRow, "spec": spec} | shown


def test_a_listed_upload_has_the_number_of_its_users_and_no_files() -> None:
    every = columns(*TABLES[upload_rows.UploadRow])
    del every["files"]
    assert get_type_hints(upload_rows.ListedUploadRow) == {**every, "jobs": int}


def test_some_columns_of_jobs_decide_who_starts() -> None:
    every = columns(*TABLES[rows.JobRow])
    for part in (rows.QueuedRow, rows.UidRow):
        assert get_type_hints(part) == {name: every[name] for name in part._fields}


def test_a_member_of_an_enumeration_is_stored_as_text() -> None:
    kind = models.JOBS.c.state.type
    assert isinstance(kind, models.Member)
    assert kind.process_result_value("FAILED", None) is JobState.FAILED
    assert kind.process_result_value(None, None) is None
    with pytest.raises(ValueError, match="is not a valid JobState"):
        kind.process_result_value("LOST", None)


def test_no_row_without_a_type_leaves_the_statements() -> None:
    folder = Path(mvprune_service.__file__).parent
    untyped = re.compile(r"\bRow\[")
    assert not [path for path in folder.rglob("*.py") if untyped.search(path.read_text())]
