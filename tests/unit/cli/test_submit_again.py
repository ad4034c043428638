"""mvpctl submit that a pipeline runs again: which request it is."""

from __future__ import annotations

import pytest
from tests.unit.client.scripted_server import (
    SUBMIT,
    Fake,
    Mvpctl,
    always,
    job,
)

_RUNS = [
    ({"GITHUB_RUN_ID": "7", "GITHUB_REPOSITORY": "o/a"}, {"GITHUB_RUN_ID": "7", "GITHUB_REPOSITORY": "o/b"}),
    ({"CI_PIPELINE_ID": "7"}, {"CI_PIPELINE_ID": "8"}),
    ({"BUILD_ID": "7", "JOB_NAME": "a"}, {"BUILD_ID": "7", "JOB_NAME": "b"}),
]


@pytest.mark.parametrize(("run", "other"), _RUNS)
def test_a_step_that_is_run_again_gets_its_job_again(
    fake: Fake, mvpctl: Mvpctl, monkeypatch: pytest.MonkeyPatch, run: dict[str, str], other: dict[str, str]
) -> None:
    fake.answers["CreateJob"] = always(job("QUEUED"))

    def request_ids(environment: dict[str, str], *options: str) -> set[str]:
        fake.requests.clear()
        with monkeypatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            for _ in range(2):
                outcome = mvpctl(*SUBMIT, "--density", "0.1", *options)
                assert outcome.code == 0
                assert ("in the CI run" in outcome.err) == (not options)
        return {request.request_id for request in fake.requests["CreateJob"]}

    first, second = request_ids(run), request_ids(other)
    assert len(first) == len(second) == 1
    assert first != second
    assert request_ids(run, "--request-id", "mine") == {"mine"}


def test_the_environment_may_name_the_request(fake: Fake, mvpctl: Mvpctl, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.answers["CreateJob"] = always(job("QUEUED"))
    mvpctl(*SUBMIT, "--density", "0.1")
    mvpctl(*SUBMIT, "--density", "0.1")
    monkeypatch.setenv("GITHUB_RUN_ID", "7")
    monkeypatch.setenv("MVPRUNE_REQUEST_ID", "ours")
    assert mvpctl(*SUBMIT, "--density", "0.1").err == ""
    mvpctl(*SUBMIT, "--density", "0.1", "--request-id", "mine")
    ids = [request.request_id for request in fake.requests["CreateJob"]]
    assert ids[0] != ids[1]  # nothing of the kind: each is a job of its own
    assert ids[2:] == ["ours", "mine"]
