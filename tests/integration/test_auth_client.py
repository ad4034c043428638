"""mvpctl and the Python client against a server that asks for tokens."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest

from mvprune import Client, InvalidArgument, LimitExceeded, NotAuthorised
from mvprune.cli import main
from mvprune.cli.shared.exit import ExitCode
from mvprune.client.endpoint import Endpoint, find
from mvprune.v1 import job_pb2, job_pb2_grpc
from mvprune_service.assembly.service import Service
from mvprune_service.config import Settings

from ..conftest import server_path
from ..unit.sources.test_model_folders import write_model
from ..waiting import PATIENCE, until_true


class Outcome(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str


class Guarded:
    """A server with tokens, and mvpctl as its operator calls it."""

    def __init__(self, service: Service, capsys: pytest.CaptureFixture[str]) -> None:
        self.service = service
        self._capsys = capsys

    async def mvpctl(self, *argv: str) -> Outcome:
        code = await asyncio.to_thread(main, argv)
        captured = self._capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    async def json(self, *argv: str) -> Any:
        outcome = await self.mvpctl(*argv, "-o", "json")
        assert outcome.code == 0, outcome.err
        return json.loads(outcome.out)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """An environment without settings of the client but the home folder."""
    for name in list(os.environ):
        if name.startswith("MVPRUNE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("MVPRUNE_HOME", str(tmp_path / "home"))
    return monkeypatch


def settings(tmp_path: Path, **more: Any) -> Settings:
    values = {"home": tmp_path / "home", "address": "127.0.0.1:0", "worker_address": "127.0.0.1:0"}
    return Settings(**values, executor="local", models=tmp_path, roots=(tmp_path,), auth="required", **more)


@pytest.fixture
async def guarded(
    tmp_path: Path, environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> AsyncIterator[Guarded]:
    write_model(tmp_path / "small")
    async with Service(settings(tmp_path)) as service:
        yield Guarded(service, capsys)


async def test_tokens_by_command(guarded: Guarded, environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    created = await guarded.mvpctl("token", "create", "--project", "search", "--scope", "submit", "--ttl", "30d")
    assert created.code == 0
    secret = created.out.strip()
    assert secret.startswith("mvp_token-")
    assert "submit in the project search, until 20" in created.err
    assert secret not in created.err
    made = await guarded.json("token", "create", "--project", "search", "--scope", "read", "--name", "for CI")
    assert (made["display_name"], made["expire_time"]) == ("for CI", None)

    listed = await guarded.mvpctl("token", "list", "--project", "search")
    assert secret not in listed.out
    assert [line.split()[1:3] for line in listed.out.splitlines()[1:]] == [["read", "good"], ["submit", "good"]]
    token_id = made["id"]
    revoked = await guarded.mvpctl("token", "revoke", token_id, "--project", "search")
    assert revoked.out == f"token {token_id} is revoked\n"
    states = {
        token["id"]: token["revoke_time"] is not None
        for token in await guarded.json("token", "list", "--project", "search")
    }
    assert states == {token_id: True, secret.split("_")[1]: False}

    # The token in the environment, or in a file, is who calls; what it may not do is exit code 8.
    environment.setenv("MVPRUNE_TOKEN", made["secret"])
    refused = await guarded.mvpctl("list", "--project", "search")
    assert (refused.code, made["secret"] in refused.err) == (ExitCode.NOT_FOUND, False)
    assert "has been revoked" in refused.err
    environment.setenv("MVPRUNE_TOKEN", secret)
    environment.setenv("MVPRUNE_PROJECT", "search")
    assert (await guarded.json("list")) == []
    refused = await guarded.mvpctl("token", "list")
    assert (refused.code, refused.err) == (8, "error: this needs a token with the scope admin; yours has submit\n")
    environment.delenv("MVPRUNE_TOKEN")
    file = tmp_path / "token"
    file.write_text(secret + "\n")
    assert (await guarded.mvpctl("project", "list", "--token-file", str(file))).code == 8
    assert (await guarded.mvpctl("list", "--token-file", str(tmp_path / "none"))).code == ExitCode.REFUSED


async def test_quotas_by_command_and_who_submitted(
    guarded: Guarded, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made = await guarded.json("token", "create", "--project", "search", "--scope", "submit")
    changed = await guarded.json("project", "set", "search", "--max-queued-jobs", "1")
    assert (changed["max_queued_jobs"], changed["max_running_gpus"]) == (1, None)
    both = ("--max-queued-jobs", "1", "--max-upload-bytes", "1.5GiB")
    assert (await guarded.json("project", "set", "search", *both))["max_upload_bytes"] == 3 << 29
    table = await guarded.mvpctl("project", "list")
    assert table.out.splitlines()[1].split() == ["search", "0", "1", "0", "0", "default", "0", "B", "1536MiB"]

    rows = "".join(json.dumps({"text": f"word{number}", "label": str(number % 2)}) + "\n" for number in range(8))
    train = tmp_path / "train.jsonl"
    train.write_text(rows)
    data = {"train": server_path(train), "validation": server_path(train)}
    options: dict[str, Any] = {"model": "small", "density": 0.1, "max_steps": 10, **data}
    await guarded.json("project", "set", "search", "--max-queued-jobs", "0")
    with Client(token=made["secret"], project="search") as client:
        with pytest.raises(LimitExceeded) as caught:
            await asyncio.to_thread(client.submit, **options)
        assert caught.value.reason == "QUOTA_EXCEEDED"
        await guarded.json("project", "set", "search")
        job = await asyncio.to_thread(client.submit, **options)
        actors = [event.actor for event in await asyncio.to_thread(lambda: list(client.events(job)))]
        assert actors[0] == made["id"]
        assert made["secret"] not in repr(vars(client._core._transport)) + repr(vars(client._core._transport.jobs))
        with pytest.raises(NotAuthorised):
            await asyncio.to_thread(client.get, "projects/other/jobs/j")


async def test_a_client_that_is_too_fast_waits_as_long_as_it_is_told(
    tmp_path: Path, environment: pytest.MonkeyPatch
) -> None:
    def hurry() -> float:
        started = time.monotonic()
        with Client() as client:
            for _ in range(15):
                assert list(client.list()) == []
        return time.monotonic() - started

    async with Service(settings(tmp_path, rate_limit=10, rate_burst=5)):
        # Five at once, ten more at ten a second.
        assert await asyncio.to_thread(hurry) >= 0.9


@pytest.mark.parametrize("ends", ["revoked", "expired"])
@pytest.mark.parametrize("follows", ["WatchJob", "FollowLogs"])
async def test_a_silent_stream_ends_with_its_token(guarded: Guarded, tmp_path: Path, ends: str, follows: str) -> None:
    await guarded.service.components.loops.stop("scheduler")  # nothing happens to the job
    train = tmp_path / "train.jsonl"
    train.write_text("".join(json.dumps({"text": f"word{n}", "label": str(n % 2)}) + "\n" for n in range(8)))
    data = {"train": server_path(train), "validation": server_path(train)}
    options: dict[str, Any] = {"model": "small", "density": 0.1, "max_steps": 10, **data}
    with Client(project="search") as client:
        job = await asyncio.to_thread(client.submit, **options)
    made = await guarded.json("token", "create", "--project", "search", "--scope", "read", "--ttl", "1h")
    async with grpc.aio.insecure_channel(guarded.service.address) as channel:
        stub = job_pb2_grpc.JobServiceStub(channel)
        metadata = (("authorization", f"Bearer {made['secret']}"),)
        watch = job_pb2.WatchJobRequest(name=job.name, after_sequence=1)
        follow = job_pb2.FollowLogsRequest(attempt=f"{job.name}/attempts/-", follow=True)
        call = getattr(stub, follows)(watch if follows == "WatchJob" else follow, metadata=metadata)
        if follows == "WatchJob":
            await call.read()
        await until_true(lambda: guarded.service.components.streams.open == 1)
        if ends == "revoked":
            await guarded.mvpctl("token", "revoke", made["id"], "--project", "search")
        else:
            with closing(sqlite3.connect(tmp_path / "home" / "mvprune.sqlite", isolation_level=None)) as database:
                database.execute("UPDATE tokens SET expire_us = create_us WHERE token_id = ?", (made["id"],))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await asyncio.wait_for(call.read(), PATIENCE)
    assert (caught.value.code(), ends in caught.value.details()) == (grpc.StatusCode.UNAUTHENTICATED, True)


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (["token", "create", "--scope", "all"], "--scope must be one of read, submit, admin, got 'all'"),
        (
            ["token", "create", "--scope", "read", "--ttl", "soon"],
            "--ttl must be a number with s, m, h or d",
        ),
        (["token", "create"], "the following arguments are required: --scope"),
        (["token", "drop"], "COMMAND must be one of create, list, revoke, share, whoami, got 'drop'"),
        (["project", "set", "p", "--max-queued-jobs", "many"], "--max-queued-jobs must be a whole number, got 'many'"),
    ],
)
def test_mistakes_on_the_command_line(argv: list[str], found: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == ExitCode.REFUSED
    assert found in capsys.readouterr().err


@pytest.mark.parametrize("name", ["token create", "token list", "token revoke", "project list", "project set"])
def test_help_has_an_example_and_no_token(
    name: str, environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.setenv("MVPRUNE_TOKEN", "mvp_secret")
    assert main([*name.split(), "--help"]) == 0
    text = capsys.readouterr().out
    assert f"example:\n  mvpctl {name}" in text
    assert "mvp_secret" not in text


# Where the server is, and what is shown to it


def test_what_a_server_on_this_machine_left_is_for_it_alone(environment: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    assert find() == Endpoint("127.0.0.1:7070")
    (home / "server.json").write_text(json.dumps({"address": "127.0.0.1:1234", "ca": "/ca.pem"}))
    (home / "operator-token").write_text("mvp_operator\n")
    assert find() == Endpoint("127.0.0.1:1234", tls=True, ca_cert=Path("/ca.pem"), token="mvp_operator")
    assert find("127.0.0.1:1234") == find()
    assert find("127.0.0.1:9") == Endpoint("127.0.0.1:9"), "another server is not shown the operator's token"
    environment.setenv("MVPRUNE_TOKEN", "mvp_mine")
    assert find().token == "mvp_mine"
    assert find(token="mvp_given").token == "mvp_given"
    environment.setenv("MVPRUNE_ADDRESS", "grpcs://far.example:1")
    assert find() == Endpoint("far.example:1", tls=True, token="mvp_mine")
    assert "mvp_mine" not in repr(find())


@pytest.mark.parametrize("content", ["", "[]", "{", "null"])
def test_a_broken_file_in_the_home_folder_is_no_server(
    content: str, environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "server.json").write_text(content)
    assert find() == Endpoint("127.0.0.1:7070")


@pytest.mark.parametrize("token", ["two words", "a\nb", "é"])
def test_what_is_no_token_is_refused_without_being_told(token: str, environment: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgument, match="is not an API token") as caught:
        find(token=token)
    assert token not in str(caught.value)


@pytest.mark.parametrize(
    "address", ["https://host:1", "host", "host:", ":1", "host:x", "host:0", "host:65536", "::1:1", "a b:1", "h/x:1"]
)
def test_addresses_of_other_kinds_are_refused(environment: pytest.MonkeyPatch, address: str) -> None:
    with pytest.raises(InvalidArgument, match=r"must be HOST:PORT, or grpcs://HOST:PORT"):
        find(address)


@pytest.mark.parametrize("address", ["host:1", "a.b-c.example:65535", "[::1]:7070", "10.0.0.1:7070"])
def test_addresses_with_a_host_and_a_port(environment: pytest.MonkeyPatch, address: str) -> None:
    assert find(address).address == find(f"grpcs://{address}").address == address


def test_a_ca_is_for_tls(environment: pytest.MonkeyPatch) -> None:
    """Who names one means TLS; where the environment names one, other servers may do without."""
    with pytest.raises(InvalidArgument, match=r"ca_cert: given, but host:1 is spoken to without TLS; grpcs://host:1"):
        find("host:1", ca_cert="ca.pem")
    environment.setenv("MVPRUNE_CA_CERT", "ca.pem")
    assert not find("host:1").tls
