"""The API as JSON over HTTP, of a real server."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import trustme
from tests.waiting import PATIENCE

from mvprune_service.api.access.ports import PortError
from mvprune_service.api.rest import openapi
from mvprune_service.api.rest.messages import new
from mvprune_service.api.rest.routes import ROUTES, find
from mvprune_service.assembly.components import CONTRACT
from mvprune_service.assembly.service import Service
from mvprune_service.assembly.startup import StartError
from mvprune_service.config import Settings

METHODS = {f"/{service.full_name}/{method.name}": method for service in CONTRACT for method in service.methods}
SPEC = {"model": "bert-base-uncased", "task": "sst2", "targetDensity": 0.1, "movement": {}}


def settings(tmp_path: Path, **given: Any) -> Settings:
    return Settings(
        home=tmp_path / "home",
        address="127.0.0.1:0",
        worker_address="127.0.0.1:0",
        http_address="127.0.0.1:0",
        executor="local",
        roots=(tmp_path,),
        **given,
    )


class Server:
    """A server that asks for tokens."""

    def __init__(self, service: Service, operator: str) -> None:
        self.url = f"http://{service.http_address}"
        self.http = httpx.AsyncClient(base_url=self.url, timeout=PATIENCE, headers={"authorization": operator})

    async def token(self, project: str, scope: str) -> dict[str, str]:
        made = await self.http.post(f"/v1/projects/{project}/tokens", json={"token": {"scope": scope}})
        return {"authorization": f"Bearer {made.json()['secret']}"}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with Service(settings(tmp_path, auth="required", rate_limit=10_000)) as service:
        server = Server(service, f"Bearer {(tmp_path / 'home' / 'operator-token').read_text().strip()}")
        async with server.http:
            yield server


def test_every_rpc_of_clients_has_a_route_of_its_own() -> None:
    assert {route.rpc for route in ROUTES} == set(METHODS)
    for route in ROUTES:
        request = new(METHODS[route.rpc].input_type)
        path = route.template
        for field, pattern in route.fields.items():
            assert field in request.DESCRIPTOR.fields_by_name, route
            path = path.replace(f"{{{field}={pattern}}}", pattern.replace("**", "a/b").replace("*", "x"))
        found = find(route.method, path)
        assert not isinstance(found, set)
        assert found[0] == route, f"{path} leads to {found[0].rpc}"


def test_the_description_has_every_route_and_only_known_schemas() -> None:
    document = json.loads(openapi.document(METHODS))
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert {one["operationId"] for one in operations} == {method.name for method in METHODS.values()}
    schemas = document["components"]["schemas"]
    assert set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document))) == set(schemas)
    assert schemas["Job"]["properties"]["createTime"] == {"type": "string", "format": "date-time"}
    assert schemas["Job"]["properties"]["labels"]["additionalProperties"] == {"type": "string"}
    assert "keep" in schemas["CompressionSpec"]["properties"]["targetDensity"]["description"].lower()
    assert [p["name"] for p in document["paths"]["/v1/projects/{project}/jobs/{job}"]["get"]["parameters"]] == [
        "project",
        "job",
    ]
    assert all(one["security"] == [{"token": []}] for one in operations)


async def test_a_job_from_its_creation_to_its_end(server: Server) -> None:
    submit = await server.token("p", "SUBMIT")
    made = await server.http.post("/v1/projects/p/jobs", json={"jobId": "a", "job": {"spec": SPEC}}, headers=submit)
    assert (made.status_code, made.json()["name"]) == (200, "projects/p/jobs/a")
    assert made.headers["cache-control"] == "no-store"
    got = await server.http.get("/v1/projects/p/jobs/a", headers=submit)
    assert got.json()["spec"]["targetDensity"] == 0.1
    listed = await server.http.get("/v1/projects/p/jobs", params={"filter": 'task = "sst2"', "pageSize": 1})
    assert [job["name"] for job in listed.json()["jobs"]] == ["projects/p/jobs/a"]
    changed = await server.http.patch("/v1/projects/p/jobs/a", json={"note": "ünï", "setLabels": {"a": "b"}})
    assert (changed.json()["note"], changed.json()["labels"]) == ("ünï", {"a": "b"})
    watched = "/v1/projects/p/jobs/a:watch"
    async with server.http.stream("GET", watched, headers=submit) as watch:
        assert watch.headers["content-type"] == "application/x-ndjson"
        line = json.loads(await anext(watch.aiter_lines()))
    assert {"JOB_CREATED", "UPDATED"} <= {event["type"] for event in line["events"]}
    async with server.http.stream("GET", watched, headers=submit | {"accept": "text/event-stream"}) as watch:
        event = await anext(watch.aiter_lines())
    assert json.loads(event.removeprefix("data: "))["job"]["name"] == "projects/p/jobs/a"
    cancelled = await server.http.post("/v1/projects/p/jobs/a:cancel", headers=submit)
    assert cancelled.json()["state"] in ("CANCELLED", "CANCELLING")
    log = await server.http.get("/v1/projects/p/jobs/a/attempts/-/logs", headers=submit | {"accept": "text/plain"})
    assert (log.status_code, log.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    gone = await server.http.delete("/v1/projects/p/jobs/none", params={"allowMissing": "true"}, headers=submit)
    assert (gone.status_code, gone.json()) == (200, {})


async def test_a_file_is_sent_in_chunks(server: Server) -> None:
    data = b"sentence\tlabel\na\t1\n" * 100_000
    chunk = hashlib.sha256(data).hexdigest()
    files = [{"path": "train.tsv", "sizeBytes": len(data), "chunks": [chunk]}]
    upload = {"kind": "DATA", "displayName": "train.tsv", "files": files}
    made = await server.http.post("/v1/projects/p/uploads", json={"upload": upload})
    assert (made.status_code, made.json()["missing"]) == (200, [chunk]), made.text
    place = f"/v1/{made.json()['name']}/chunks/{chunk}"
    octets = {"content-type": "application/octet-stream"}
    wrong = await server.http.put(place, content=data[:-1], headers=octets)
    assert wrong.status_code == 400
    assert (await server.http.put(place, content=data, headers=octets)).json() == {}
    assert (await server.http.get(f"/v1/{made.json()['name']}")).json()["state"] == "READY"


async def test_refusals(server: Server) -> None:
    read, other = await server.token("p", "READ"), await server.token("q", "ADMIN")
    jobs = "/v1/projects/p/jobs"

    async def refused(method: str, path: str, status: int, code: str, **given: Any) -> Any:
        answer = await server.http.request(method, path, **given)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["status"]) == (status, status, code), answer.text
        return answer

    nobody = await refused("GET", jobs, 401, "UNAUTHENTICATED", headers={"authorization": ""})
    assert nobody.headers["www-authenticate"] == "Bearer"
    await refused("GET", jobs, 403, "PERMISSION_DENIED", headers=other)
    await refused("POST", jobs, 403, "PERMISSION_DENIED", headers=read, json={})
    await refused("GET", jobs, 403, "PERMISSION_DENIED", headers={"sec-fetch-site": "cross-site"})
    await refused("GET", f"{jobs}/none", 404, "NOT_FOUND")
    await refused("GET", "/v1/nothing", 404, "NOT_FOUND")
    await refused("POST", "/mvprune.v1.WorkerService/ClaimAttempt", 404, "NOT_FOUND", json={})
    wrong = await refused("PATCH", jobs, 405, "UNIMPLEMENTED", json={})
    assert wrong.headers["allow"] == "GET, POST"
    dense = {"job": {"spec": SPEC | {"targetDensity": 2}}}
    details = (await refused("POST", jobs, 400, "INVALID_ARGUMENT", json=dense)).json()["error"]["details"]
    fields = [one["field"] for detail in details for one in detail.get("fieldViolations", ())]
    assert fields == ["job.spec.target_density"]
    for given in (
        {"json": {"nonsense": 1}},
        {"content": b"{", "headers": {"content-type": "application/json"}},
        {"content": b"\xff", "headers": {"content-type": "application/json"}},
        {"content": b"[" * 5000, "headers": {"content-type": "application/json"}},
        {"content": b"{}", "headers": {"content-type": "text/plain"}},
        {"json": {"parent": "projects/q"}},
        {"json": {}, "params": {"a": "b"}},
    ):
        await refused("POST", jobs, 400, "INVALID_ARGUMENT", **given)
    twice = [("filter", ""), ("filter", "")]
    for query in ({"nonsense": "1"}, {"pageSize": "x"}, {"filter": "state ="}, twice, {"parent": "projects/q"}):
        await refused("GET", jobs, 400, "INVALID_ARGUMENT", params=query)
    large = {"content": b" " * (3 << 20), "headers": {"content-type": "application/json"}}
    await refused("POST", jobs, 413, "RESOURCE_EXHAUSTED", **large)


async def test_an_open_server_answers_to_its_own_names_only(tmp_path: Path) -> None:
    async with Service(settings(tmp_path)) as service, httpx.AsyncClient() as http:
        jobs = f"http://{service.http_address}/v1/projects/p/jobs"
        assert (await http.get(jobs)).status_code == 200
        rebound = await http.get(jobs, headers={"host": "evil.example"})
        assert (rebound.status_code, rebound.json()["error"]["status"]) == (403, "PERMISSION_DENIED")


async def test_a_stream_ends_when_the_server_does(tmp_path: Path) -> None:
    async with Service(settings(tmp_path)) as service:
        watched = f"http://{service.http_address}/v1/projects/p/jobs:watch"
        async with httpx.AsyncClient(timeout=PATIENCE) as http, http.stream("GET", watched) as watch:
            lines = watch.aiter_lines()
            assert await anext(lines) == "{}"
            await service.drain(0.1, asyncio.Event())
            assert json.loads(await anext(lines))["error"]["status"] == "UNAVAILABLE"


async def test_with_tls_the_api_speaks_https(tmp_path: Path) -> None:
    ca = trustme.CA()
    certificate, key = tmp_path / "server.pem", tmp_path / "server.key"
    issued = ca.issue_cert("localhost")
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    given = settings(tmp_path, auth="required", tls_cert=certificate, tls_key=key)
    trusting = ssl.create_default_context(cadata=ca.cert_pem.bytes().decode())
    async with Service(given) as service, httpx.AsyncClient(verify=trusting, timeout=PATIENCE) as http:
        port = service.http_address.rpartition(":")[2]
        assert (await http.get(f"https://localhost:{port}/v1/caller")).status_code == 401
        with pytest.raises(httpx.HTTPError):
            await http.get(f"http://localhost:{port}/v1/caller")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"http_address": "0.0.0.0:0", "auth": "off"}, "--http-address must be an address of this machine only"),
        ({"http_address": "192.0.2.1:0", "allow_remote": True}, "--http-address must be .* with a free port"),
    ],
)
async def test_addresses_that_are_refused(tmp_path: Path, given: dict[str, Any], problem: str) -> None:
    with pytest.raises((StartError, PortError), match=problem):
        async with Service(settings(tmp_path).model_copy(update=given)):
            pass
