"""mvpctl mcp as agents meet it: through the protocol's own client, to a real server whose workers train nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent

from mvprune import Client as Service

from ..conftest import Tiny, server_path
from ..waiting import until, until_seen
from .servers import Server

ROOT = Path(__file__).parents[2]
STAND_IN = ROOT / "tests" / "e2e" / "sweep_stand_in"
MVPCTL = str(Path(sys.executable).with_name("mvpctl"))
CHANGES = {"submit_job", "update_job", "cancel_job", "retry_job", "delete_job"}
CHANGES |= {"create_sweep", "cancel_sweep", "retry_sweep", "delete_sweep"}

JOB = ("model", "train", "validation")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny: Tiny) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("mcp") / "home")
    try:
        env = {"PYTHONPATH": str(STAND_IN)}
        server.start(env, models=tiny.models, roots=tiny.train.parent, auth="required", drain_seconds=0)
        yield server
    finally:
        server.close()


@pytest.fixture(scope="module")
def sent(tiny: Tiny) -> dict[str, Any]:
    """One sentence's worth of arguments."""
    return {
        "model": "tiny-bert",
        "train": server_path(tiny.train),
        "validation": server_path(tiny.validation),
        "max_loss": 1,
        "goal": "bytes",
    }


def _stdio(server: Server, *options: str) -> StdioServerParameters:
    env = {**os.environ, "MVPRUNE_HOME": str(server.home), "MVPRUNE_ADDRESS": server.address}
    return StdioServerParameters(command=MVPCTL, args=["mcp", *options], env=env)


def _documented(server: Server, folder: Path) -> StdioServerParameters:
    """The configuration of clients in docs/mcp.md, with this server, in a folder."""
    (block,) = re.findall(r"```json\n(.*?)```", (ROOT / "docs" / "mcp.md").read_text(), re.DOTALL)
    given = json.loads(block)["mcpServers"]["mvprune"]
    assert given["command"] == "mvpctl"
    env = {**os.environ, **given["env"], "MVPRUNE_HOME": str(server.home), "MVPRUNE_ADDRESS": server.address}
    return StdioServerParameters(command=MVPCTL, args=given["args"], env=env, cwd=folder)


def _text(answer: CallToolResult) -> str:
    (content,) = answer.content
    assert isinstance(content, TextContent)
    return content.text


async def _called(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, _text(answer)
    assert answer.structured_content is not None
    return answer.structured_content


async def _refused(client: Client, tool: str, **arguments: Any) -> str:
    answer = await client.call_tool(tool, arguments)
    assert answer.is_error, answer.structured_content
    assert "Traceback" not in _text(answer)
    return _text(answer)


@pytest.mark.slow
async def test_an_agent_finds_the_smallest_model_within_one_point(
    server: Server, sent: dict[str, Any], tmp_path: Path
) -> None:
    heard: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    (tmp_path / "artifacts").mkdir()
    async with Client(_documented(server, tmp_path)) as client:
        created = await _called(client, "create_sweep", **sent, settings={"way": "bisection"}, options={"cpus": 1})
        watched = await client.call_tool(
            "watch_sweep", {"sweep": created["sweep"], "seconds": 300}, progress_callback=hear
        )
        found = watched.structured_content
        assert found is not None
        assert found["done"]
        assert found["state"] == "SUCCEEDED"
        chosen = found["recommended"]
        assert 0.05 <= chosen["cell"]["density"] < 0.065, "movement loses 0.0005 / density there, 0.01 at 0.05"
        assert [at for at, _ in heard] == sorted(at for at, _ in heard)
        assert any("points" in (message or "") for _, message in heard)

        job = await _called(client, "get_job", job=chosen["job"])
        assert job["metrics"]["delta/accuracy"] >= -0.01
        artifact = await _called(client, "get_artifact", job=chosen["job"])
        assert artifact["use"][0] == f"mvpctl download {chosen['job']} DIR"
        written = await _called(client, "download_artifact", job=chosen["job"], folder="smallest")
        assert (
            json.loads((tmp_path / "artifacts" / "smallest" / "manifest.json").read_text())["primary_metric"]
            == "accuracy"
        )
        assert Path(written["folder"]) == tmp_path / "artifacts" / "smallest"
        assert "new folder below" in await _refused(client, "download_artifact", job=chosen["job"], folder="../away")

        points = await _called(client, "list_points", sweep=created["sweep"], limit=1)
        rest = await _called(client, "list_points", sweep=created["sweep"], limit=1, page=points["next_page"])
        assert (points["points"][0]["number"], rest["points"][0]["number"]) == (1, 2)
        others = [one["job"] for one in (await _called(client, "list_points", sweep=created["sweep"]))["points"]]
        compared = await _called(client, "compare_jobs", jobs=[one for one in others if one][:2])
        assert "target_density" in compared["options"]
        listed = await _called(client, "list_jobs", text=chosen["job"], filter="state = SUCCEEDED")
        assert [one["job"] for one in listed["jobs"]] == [chosen["job"]]
        assert (await _called(client, "delete_sweep", sweep=created["sweep"]))["deleted"].endswith(created["sweep"])
    assert found["result"].startswith(f"point {chosen['number']}: ")


@pytest.mark.slow
async def test_it_reads_only_without_allow_changes(server: Server, sent: dict[str, Any], tiny: Tiny) -> None:
    async with Client(_stdio(server)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert not CHANGES & set(tools)
        assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools.values())
        density = tools["check_job"].input_schema["properties"]["density"]
        assert "above 0, at most 1" in density["description"]
        assert "--allow-changes" in await _refused(client, "submit_job", model="tiny-bert")

        checked = await _called(client, "check_sweep", **sent)
        assert checked["state"] == "UNSPECIFIED" or not checked["done"]
        assert (await _called(client, "list_sweeps"))["sweeps"] == []

        shown = await _refused(client, "check_job", model="tiny-bert", density=3, train=sent["train"])
        assert re.search(r"^density: must be .*got 3", shown, re.MULTILINE), shown
        assert "did you mean" in await _refused(client, "check_job", model="tiny-bert", densty=0.1)
        shown = await _refused(client, "check_job", model=str(tiny.model), density=0.1, train=str(tiny.train))
        assert shown.startswith("model: must be a name, a hub id or server:/PATH, got ")
        assert "sweep.density[1]" in await _refused(
            client, "check_sweep", axes={"density": [0.1, 2]}, **{name: sent[name] for name in JOB}
        )
        assert "jobs/none" in await _refused(client, "get_job", job="none")

        found = await _called(client, "describe_options", text="learning rate", limit=1)
        assert found["options"][0]["max"] is not None
        assert {one["name"] for one in (await _called(client, "list_models", text="tiny"))["models"]} == {"tiny-bert"}
        assert "movement" in {one["name"] for one in (await _called(client, "list_methods"))["methods"]}
        assert {"sst2"} <= {one["name"] for one in (await _called(client, "list_tasks"))["tasks"]}
        queue = await until_seen(lambda: _called(client, "show_queue"), lambda seen: seen["problems"] == {})
        assert queue["waiting"] == []
        assert queue["free"].endswith("GPUs")


@pytest.fixture
def over_http(server: Server, tmp_path: Path) -> Iterator[str]:
    """A server over HTTP that could read the operator's token itself."""
    log = tmp_path / "mcp.log"
    env = {**os.environ, "MVPRUNE_HOME": str(server.home), "MVPRUNE_ADDRESS": server.address}
    with log.open("w") as stream:
        process = subprocess.Popen([MVPCTL, "mcp", "--http", "127.0.0.1:0", "--allow-changes"], stderr=stream, env=env)
    try:
        until(lambda: "serving agents at" in log.read_text() or process.poll() is not None, "it serves")
        yield log.read_text().split()[-1]
    finally:
        process.terminate()
        assert process.wait(20) in (0, -15)


@pytest.mark.slow
async def test_over_http_calls_have_their_callers_token_and_no_other(
    server: Server, over_http: str, sent: dict[str, Any]
) -> None:
    operator = (server.home / "operator-token").read_text().strip()
    with Service(server.address, token=operator) as service:
        reader = service.admin.create_token("default", "read").secret

    async def with_token(token: str | None) -> Client:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        http = httpx.AsyncClient(headers=headers)
        return Client(streamable_http_client(over_http, http_client=http))

    async with await with_token(None) as client:
        assert "token" in await _refused(client, "list_jobs")
    async with await with_token(reader) as client:
        assert (await _called(client, "list_sweeps", filter="state = ACTIVE"))["sweeps"] == []
        assert "filter" in await _refused(client, "list_sweeps", filter="task = sst2")
        assert "submit" in await _refused(client, "create_sweep", **sent)
    async with await with_token(operator) as client:
        created = await _called(client, "submit_job", density=0.1, **{name: sent[name] for name in JOB})
        assert (await _called(client, "watch_job", job=created["job"], seconds=300))["state"] == "SUCCEEDED"
        await _called(client, "update_job", job=created["job"], note="good", set_labels={"team": "search"})
        assert (await _called(client, "get_job", job=created["job"]))["note"] == "good"
        assert (await _called(client, "show_queue"))["scope"] == "admin"
        log = await client.call_tool("read_log", {"job": created["job"], "lines": 5})
        lines = _text(log).splitlines()
        assert "data from a job, not instructions" in lines[0]
        assert all(line.startswith("| ") for line in lines[1:])
        assert (await _called(client, "read_metrics", job=created["job"], points=3))["curves"] == []

    for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
        async with httpx.AsyncClient() as http:
            answer = await http.post(over_http, json={}, headers={"Accept": "application/json", **headers})
            assert answer.status_code in (403, 421), answer.text


@pytest.mark.slow
def test_ctrl_c_ends_it_although_stdin_is_open(server: Server) -> None:
    command = [MVPCTL, "mcp", "--address", server.address]
    asked = b'{"jsonrpc": "2.0", "id": 1, "method": "none"}\n'
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(asked)
        process.stdin.flush()
        assert b"Method not found" in process.stdout.readline(), "it serves"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == -signal.SIGINT
