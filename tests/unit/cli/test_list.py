"""mvpctl list: tables and filters."""

from __future__ import annotations

import grpc
import pytest
from tests.unit.client.scripted_server import Fake, Mvpctl, always, job, refuse

from mvprune.v1 import job_pb2
from mvprune_service.api.filters import parse_filter


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


@pytest.mark.parametrize(
    ("argv", "sent"),
    [
        ([], ""),
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
            "error: --label must be KEY or KEY=VALUE, keys of letters, digits and ",
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
