"""mvpctl list: tables and filters."""

from __future__ import annotations

import re

import grpc
import pytest
from tests.unit.client.scripted_server import Fake, Mvpctl, always, job, refuse

from mvprune.cli.shared.filter import _FIELDS
from mvprune.client.display import COLUMNS, LIST_COLUMNS
from mvprune.v1 import job_pb2
from mvprune_service.api.messages.filters import OF_JOBS, parse_filter
from mvprune_service.db.job_order import ORDERS


def test_list(fake: Fake, mvpctl: Mvpctl) -> None:
    fake.answers["ListJobs"] = always(
        job_pb2.ListJobsResponse(
            jobs=[job(progress=job_pb2.Progress(phase="dense", step=1, total_steps=2)), job("FAILED")]
        )
    )
    outcome = mvpctl("list", "--limit", "2")
    first, second, third = outcome.out.splitlines()
    assert first.split() == ["JOB", "TASK", "METHOD", "DENSITY", "STATE", "PROGRESS", "AGE"]
    assert second.split()[:8] == ["j1", "sst2", "movement", "3.0", "%", "RUNNING", "dense", "1/2"]
    assert third.split()[5] == "FAILED"
    assert outcome.err == "these are the first 2; raise --limit to list more\n"
    assert [each["state"] for each in mvpctl("list", "-o", "json").json] == ["RUNNING", "FAILED"]
    assert mvpctl("list", "--limit", "0").code == 2


def test_list_shows_priorities_where_there_are_any(fake: Fake, mvpctl: Mvpctl) -> None:
    urgent = job(policy=job_pb2.ExecutionPolicy(priority=5))
    fake.answers["ListJobs"] = always(job_pb2.ListJobsResponse(jobs=[urgent, job()]))
    heading, first, second = (line.split() for line in mvpctl("list").out.splitlines())
    assert heading == ["JOB", "TASK", "METHOD", "DENSITY", "PRIORITY", "STATE", "PROGRESS", "AGE"]
    assert (first[5:7], second[5:7]) == (["5", "RUNNING"], ["0", "RUNNING"])


METRICS = {"eval/accuracy": 0.875, "delta/accuracy": -0.025, "eval/perplexity": 8.5, "delta/perplexity": 1.25}
ENDS = [
    job("SUCCEEDED", metrics=METRICS, primary_metric="accuracy"),
    job("SUCCEEDED", metrics=METRICS, primary_metric="perplexity", labels={"team": "search", "a": "b c"}),
    job("FAILED", failure=job_pb2.Failure(reason="NAN_LOSS", message="it became NaN")),
    job(),
]
for _job in ENDS[:3]:
    _job.start_time.FromJsonString("2026-01-31T12:00:10Z")
    _job.end_time.FromJsonString("2026-01-31T12:01:30Z")


def test_list_shows_what_became_of_jobs_where_there_is_something(fake: Fake, mvpctl: Mvpctl) -> None:
    fake.answers["ListJobs"] = always(job_pb2.ListJobsResponse(jobs=ENDS))
    lines = mvpctl("list").out.splitlines()
    assert lines[0].split()[5:] == ["PROGRESS", "METRIC", "DIFF", "DURATION", "FAILURE", "LABELS", "AGE"]
    first, second, third, fourth = (" ".join(line.split()) for line in lines[1:])
    assert "SUCCEEDED accuracy 0.8750 -2.50 1m20s" in first
    assert "SUCCEEDED perplexity 8.5000 +1.2500 perplexity 1m20s a=b c, team=search" in second
    assert "FAILED 1m20s NAN_LOSS" in third
    assert "RUNNING" in fourth
    found = mvpctl("list", "-o", "json").json
    assert [(each["metric"], each["difference"], each["duration"]) for each in found] == [
        (0.875, -0.025, 80.0),
        (8.5, 1.25, 80.0),
        (None, None, 80.0),
        (None, None, None),
    ]
    fake.answers["ListJobs"] = always(job_pb2.ListJobsResponse(jobs=ENDS[3:]))
    assert mvpctl("list").out.split()[:7] == ["JOB", "TASK", "METHOD", "DENSITY", "STATE", "PROGRESS", "AGE"]


def test_list_shows_the_columns_that_are_chosen(fake: Fake, mvpctl: Mvpctl) -> None:
    fake.answers["ListJobs"] = always(job_pb2.ListJobsResponse(jobs=ENDS[3:]))
    heading, row = mvpctl("list", "--columns", "state,job, failure").out.splitlines()
    assert (heading.split(), row.split()) == (["STATE", "JOB", "FAILURE"], ["RUNNING", "j1"])
    every = ",".join(COLUMNS)
    assert mvpctl("list", "--columns", every).out.split()[: len(COLUMNS)] == [one.heading for one in COLUMNS.values()]
    assert set(LIST_COLUMNS) <= set(COLUMNS)


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["--columns", "job,metrics"], "--columns must be one of job, name, "),
        (["--columns", "job,metrics"], "got 'metrics'; did you mean metric?"),
        (["--columns", "job,job"], "--columns must be different columns, got job more than once"),
        (["--columns", ""], "--columns must be one of job, name, "),
        (["--columns", "job", "-o", "json"], "must be used with a table, got -o json, which has all fields"),
        (["--columns", "job", "--quiet"], "--columns must be used with a table, got --quiet"),
    ],
)
def test_columns_that_are_none(fake: Fake, mvpctl: Mvpctl, argv: list[str], error: str) -> None:
    outcome = mvpctl("list", *argv)
    assert (outcome.code, fake.requests) == (2, {})
    assert error in outcome.err


@pytest.mark.parametrize(
    ("argv", "sent"),
    [
        ([], ""),
        (["--filter", "metric >= 0.9 AND failure != NAN_LOSS"], "metric >= 0.9 AND failure != NAN_LOSS"),
        (["--state", "RUNNING"], "state = RUNNING"),
        (["--state", "RUNNING", "--state", "QUEUED"], "state = RUNNING OR state = QUEUED"),
        (["--task", "squad"], 'task = "squad"'),
        (["--label", "team=search", "--label", "a/b"], 'labels.team = "search" AND labels:a/b'),
        (["--label", 'say=a "b" \\ c'], 'labels.say = "a \\"b\\" \\\\ c"'),
        (
            ["--task", "squad", "--filter", "priority > 0 OR creator = local", "--state", "FAILED", "--label", "k=v=w"],
            'priority > 0 OR creator = local AND state = FAILED AND task = "squad" AND labels.k = "v=w"',
        ),
    ],
)
def test_list_makes_a_filter_of_its_options(fake: Fake, mvpctl: Mvpctl, argv: list[str], sent: str) -> None:
    fake.answers["ListJobs"] = always(job_pb2.ListJobsResponse())
    assert mvpctl("list", *argv, "--order-by", "state desc").code == 0
    request = fake.asked("ListJobs")
    assert (request.filter, request.order_by) == (sent, "state desc")
    assert (parse_filter(sent) is None) == (not argv)  # and the server can read it


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["--state", "running"], "error: --state must be one of QUEUED, STARTING, RUNNING, FINALIZING, "),
        (
            ["--label", 'a" OR "b=c'],
            "error: --label must be KEY or KEY=VALUE with a key of 1 to 63 letters, digits and ",
        ),
    ],
)
def test_mistakes_in_what_to_list(mvpctl: Mvpctl, argv: list[str], error: str) -> None:
    outcome = mvpctl("list", *argv)
    assert outcome.code == 2
    assert outcome.err.startswith(error)


def test_a_filter_that_the_server_refuses(fake: Fake, mvpctl: Mvpctl) -> None:
    fake.answers["ListJobs"] = lambda request, context: refuse(
        context, grpc.StatusCode.INVALID_ARGUMENT, "bad", violations={"filter": "at character 1", "order_by": "got x"}
    )
    outcome = mvpctl("list", "--filter", "x")
    assert outcome.code == 2
    assert outcome.err == "error: filter (--filter): at character 1\nerror: order_by (--order-by): got x\n"


def test_the_help_names_what_the_server_knows(mvpctl: Mvpctl) -> None:
    text = " ".join(mvpctl("list", "--help").out.split())
    assert f"{', '.join(ORDERS)} or labels.KEY; 'FIELD desc'" in text
    assert sorted(re.sub(r" \([^)]*\)", "", _FIELDS).split(", ")) == sorted(OF_JOBS.names)
    for field in OF_JOBS.names:
        assert field in text
