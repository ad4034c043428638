"""contributing/job-field.md: its steps, in a copy of the repository, add a field of a job that users see."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.spec.recipe import Copy, blocks

CHECK = """
from sqlalchemy import create_engine, insert, inspect, select

import mvprune_migrations
from mvprune.client import convert, display, models
from mvprune.v1 import job_pb2
from mvprune_service.api.messages import mapping
from mvprune_service.db.tables.jobs import JOBS, JobRow

engine = create_engine("sqlite:///jobs.sqlite")
mvprune_migrations.upgrade(engine)
assert mvprune_migrations.state(engine).found == mvprune_migrations.HEAD == "0019"
numbers = {column.name: 0 for column in JOBS.c if not column.nullable and column.type.python_type is int}
texts = {column.name: "" for column in JOBS.c if not column.nullable and column.type.python_type is str}
other = {"spec": b"", "policy": b"", "labels": {}, "metrics": {}, "state": "QUEUED", "project": "p", "job_id": "j"}
with engine.begin() as connection:
    connection.execute(insert(JOBS).values(**{**numbers, **texts, **other, "comment": "try int8"}))
    row = JobRow._make(connection.execute(select(JOBS)).one())
message = mapping.job(row)
assert (message.name, message.comment) == ("projects/p/jobs/j", "try int8")
record = models.JobRecord(**convert.job_fields(message))
assert record.comment == "try int8"
assert ("comment", "try int8") in display.fields(record)
assert mapping.job(row._replace(comment=None)).comment == ""
"""


@pytest.mark.slow
def test_the_steps_of_the_page_add_a_field(tmp_path: Path) -> None:
    copy = Copy.make(tmp_path)
    (field,) = blocks("job-field.md", "proto")
    column, row, revision, model = blocks("job-field.md", "python")
    (shown,) = blocks("job-field.md", "text")
    copy.insert("proto/mvprune/v1/job.proto", "\nmessage Job {", field)
    copy.add("service/mvprune_service/db/tables/jobs.py", "    last_sequence: Named[int]", column)
    copy.add("service/mvprune_service/db/tables/jobs.py", "    last_sequence: int\n", row)
    copy.write("migrations/mvprune_migrations/versions/0019_comments.py", revision)
    copy.add("client/mvprune/client/models.py", "    estimate: JobEstimate | None\n", model)
    copy.add("client/mvprune/client/display.py", '        ("artifact", job.artifact),\n', shown)
    copy.make_proto()
    copy.run(CHECK)
