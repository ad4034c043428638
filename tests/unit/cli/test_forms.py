"""The forms of answers: JSON, YAML, ids alone; and the catalogue's commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.unit.client.scripted_server import NAME, SUBMIT, Fake, Mvpctl, always, echo, job

from mvprune.v1 import artifact_pb2, catalog_pb2, job_pb2


@pytest.fixture
def catalog(fake: Fake) -> None:
    models = [
        catalog_pb2.ModelEntry(
            name="tiny", source="SERVER", size=job_pb2.ModelSize(base_parameters=4_400_000, prunable_weights=1_000_000)
        ),
        catalog_pb2.ModelEntry(name="broken", source="SERVER", problem="has no weights"),
    ]
    tasks = [
        catalog_pb2.TaskEntry(
            name="squad",
            kind="question-answering",
            description="answers",
            metrics=["exact_match", "f1"],
            primary_metric="f1",
            higher_is_better=True,
            hub_id="rajpurkar/squad",
        ),
        catalog_pb2.TaskEntry(name="masked-lm", kind="masked-lm", metrics=["perplexity"], primary_metric="perplexity"),
    ]
    options = [
        catalog_pb2.MethodOption(name="selection", field="selection", words=["local", "global"], description="which"),
        catalog_pb2.MethodOption(name="cooldown", field="schedule.cooldown", min=0, max=1, above_min=True),
    ]
    methods = [catalog_pb2.MethodEntry(name="movement", description="by scores", options=options)]
    fake.answers |= {
        "ListModels": always(catalog_pb2.ListModelsResponse(models=models)),
        "ListTasks": always(catalog_pb2.ListTasksResponse(tasks=tasks)),
        "ListMethods": always(catalog_pb2.ListMethodsResponse(methods=methods)),
    }


def test_models_tasks_methods(catalog: None, mvpctl: Mvpctl) -> None:
    assert mvpctl("models").out == (
        "MODEL   WHERE   PARAMETERS  PRUNABLE  PROBLEM\n"
        "tiny    server  4.4 M       1.0 M\n"
        "broken  server                        has no weights\n"
    )
    assert mvpctl("tasks").out == (
        "TASK       KIND                METRICS          DATA\n"
        "squad      question-answering  f1, exact_match  hub    answers\n"
        "masked-lm  masked-lm           perplexity       yours\n"
    )
    assert mvpctl("methods").out == (
        "--method movement                    by scores\n"
        "  --selection      local, global     which\n"
        "  --cooldown       more than 0 to 1\n"
    )
    assert [mvpctl(command, "--quiet").out for command in ("models", "tasks", "methods")] == [
        "tiny\n",
        "squad\nmasked-lm\n",
        "movement\n",
    ]
    (method,) = mvpctl("methods", "-o", "json").json
    assert method["options"][1] == {
        "name": "cooldown",
        "field": "schedule.cooldown",
        "words": [],
        "min": 0.0,
        "max": 1.0,
        "above_min": True,
        "description": "",
    }


def test_yaml_says_the_same_as_json(fake: Fake, catalog: None, mvpctl: Mvpctl, succeeds: str) -> None:
    odd = job("SUCCEEDED", artifact=succeeds, display_name="on: [x] # caf\u00e9", labels={"n": "1e5", "none": "null"})
    fake.answers |= {
        "GetJob": always(odd),
        "ListJobs": always(job_pb2.ListJobsResponse(jobs=[odd, job()])),
        "CancelJob": always(odd),
    }
    for argv in (("get", "j1"), ("list",), ("cancel", "j1"), ("models",), ("tasks",), ("methods",)):
        by_yaml = mvpctl(*argv, "-o", "yaml")
        assert by_yaml.code == 0
        assert yaml.safe_load(by_yaml.out) == mvpctl(*argv, "-o", "json").json


def test_yaml_of_a_watch_is_a_document_an_update(fake: Fake, mvpctl: Mvpctl, succeeds: str) -> None:
    fake.answers["GetJob"] = always(job("SUCCEEDED", artifact=succeeds))
    updates = list(yaml.safe_load_all(mvpctl("watch", "j1", "-o", "yaml").out))
    assert [update["sequence"] for update in updates] == [1, 2, 3]


ARTIFACT = f"projects/p/artifacts/{64 * 'a'}"


@pytest.mark.parametrize(
    ("argv", "printed"),
    [
        (("get", "j1"), "j1\n"),
        (("list",), "j1\nj1\n"),
        (("events", "j1"), "1\n"),
        (("attempts", "j1"), f"{NAME}/attempts/1\n"),
        (("artifacts",), f"{ARTIFACT}\n"),
        (("cancel", "j1"), "j1\n"),
        (("retry", "j1"), "j1\n"),
        (("delete", "j1"), "j1\n"),
        (("wait", "j1"), "j1\n"),
        (("watch", "j1"), ""),
        ((*SUBMIT, "--density", "0.1"), "j1\n"),
        ((*SUBMIT, "--density", "0.1", "--wait"), "j1\n"),
    ],
    ids=lambda part: part[0] if isinstance(part, tuple) else "",
)
def test_quiet_prints_ids_alone(fake: Fake, mvpctl: Mvpctl, succeeds: str, argv: tuple[str, ...], printed: str) -> None:
    ended = job("SUCCEEDED", artifact=succeeds)
    fake.answers |= {
        "GetJob": always(ended),
        "ListJobs": always(job_pb2.ListJobsResponse(jobs=[ended, ended])),
        "ListJobEvents": always(job_pb2.ListJobEventsResponse(events=[job_pb2.JobEvent(sequence=1)])),
        "ListAttempts": always(job_pb2.ListAttemptsResponse(attempts=[job_pb2.Attempt(name=f"{NAME}/attempts/1")])),
        "ListArtifacts": always(
            artifact_pb2.ListArtifactsResponse(
                artifacts=[artifact_pb2.Artifact(name=f"projects/p/artifacts/{64 * 'a'}")]
            )
        ),
        "CancelJob": always(ended),
        "RetryJob": always(ended),
        "DeleteJob": always(job_pb2.DeleteJobResponse()),
        "CreateJob": echo,
    }
    outcome = mvpctl(*argv, "--quiet")
    assert (outcome.code, outcome.out, outcome.err) == (0, printed, "")


def test_quiet_download_prints_the_folder(fake: Fake, mvpctl: Mvpctl, succeeds: str, tmp_path: Path) -> None:
    fake.answers["GetJob"] = always(job("SUCCEEDED", artifact=succeeds))
    out = tmp_path / "out"
    outcome = mvpctl("download", "j1", str(out), "-q")
    assert (outcome.out, outcome.err) == (f"{out}\n", "")
    # With data, stdout is the answer and stderr is empty.
    outcome = mvpctl("download", "j1", str(out), "-q", "-o", "json")
    assert (outcome.json["directory"], outcome.err) == (str(out), "")
    assert mvpctl("download", "j1", str(out), "-o", "json").err.endswith(f"downloaded and verified: {out}\n")


async def test_the_async_client_has_the_catalogue(fake: Fake, catalog: None) -> None:
    from mvprune import AsyncClient

    async with AsyncClient(fake.address) as client:
        models: list[Any] = [model async for model in client.models()]
        tasks = [task async for task in client.tasks()]
        methods = [method async for method in client.methods()]
    assert [(model.name, model.problem, model.size and model.size.prunable_weights) for model in models] == [
        ("tiny", "", 1_000_000),
        ("broken", "has no weights", None),
    ]
    assert [(task.name, task.metrics) for task in tasks] == [
        ("squad", ("exact_match", "f1")),
        ("masked-lm", ("perplexity",)),
    ]
    assert [option.allowed for option in methods[0].options] == ["local, global", "more than 0 to 1"]
