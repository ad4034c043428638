"""mvpctl tasks and methods: the server's, and without one those of this package."""

from __future__ import annotations

import grpc
import pytest
from tests.unit.client.scripted_server import Fake, Mvpctl, always, refuse

from mvprune import Client
from mvprune.client.catalog import own_methods, own_tasks
from mvprune.data.tasks import TASKS
from mvprune.spec.fields import METHODS
from mvprune.spec.vocabulary import method_entry, task_entry
from mvprune.v1 import catalog_pb2


@pytest.mark.parametrize(
    ("command", "names"),
    [("tasks", list(TASKS)), ("methods", list(METHODS))],
)
@pytest.mark.parametrize("form", ["json", "text", "quiet"])
def test_without_a_server_the_packages_own_are_listed(
    mvpctl: Mvpctl, monkeypatch: pytest.MonkeyPatch, command: str, names: list[str], form: str
) -> None:
    monkeypatch.setenv("MVPRUNE_ADDRESS", "127.0.0.1:1")
    outcome = mvpctl(command, *{"json": ["-o", "json"], "quiet": ["-q"]}.get(form, []))
    assert outcome.code == 0
    assert outcome.err.startswith("note: no server answers at 127.0.0.1:1 ")
    assert f": these are the {command} of mvprune " in outcome.err
    if form == "json":
        assert [one["name"] for one in outcome.json] == names
    elif form == "quiet":
        assert outcome.out.split() == names
    else:
        assert all(name in outcome.out for name in names)


def test_they_are_those_that_a_server_of_this_version_lists(fake: Fake, client: Client) -> None:
    fake.answers["ListTasks"] = always(catalog_pb2.ListTasksResponse(tasks=map(task_entry, TASKS.values())))
    fake.answers["ListMethods"] = always(catalog_pb2.ListMethodsResponse(methods=map(method_entry, METHODS.values())))
    assert list(client.tasks()) == own_tasks()
    assert list(client.methods()) == own_methods()


def test_a_server_that_answers_is_the_one_that_counts(fake: Fake, mvpctl: Mvpctl) -> None:
    other = catalog_pb2.ListMethodsResponse(methods=[catalog_pb2.MethodEntry(name="newer")])
    fake.answers["ListMethods"] = always(other)
    outcome = mvpctl("methods", "-q")
    assert (outcome.out, outcome.err) == ("newer\n", "")
    fake.answers["ListMethods"] = lambda request, context: refuse(context, grpc.StatusCode.UNAUTHENTICATED, "no token")
    outcome = mvpctl("methods", "-q")
    assert (outcome.code, outcome.out) == (8, "")
