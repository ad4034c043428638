"""A token that may submit reads none of the server's own files, whatever the roots are."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from mvprune.v1 import admin_pb2, admin_pb2_grpc, job_pb2, job_pb2_grpc
from mvprune_service.assembly.service import Service
from mvprune_service.backup.making import make
from mvprune_service.config import Settings

from ..conftest import server_path
from ..waiting import PATIENCE, until_true
from .plane import refused

PARENT = "projects/search"


class Guarded:
    """A server that asks for tokens, whose home lies in the folder that jobs may name."""

    def __init__(self, folder: Path, service: Service, operator: str = "") -> None:
        self.folder = folder
        self.home = folder / "home"
        self.operator = operator or (self.home / "operator-token").read_text().strip()
        self.address = service.address
        self._channel = grpc.aio.insecure_channel(service.address)
        self.jobs: Any = job_pb2_grpc.JobServiceStub(self._channel)
        self._admin: Any = admin_pb2_grpc.AdminServiceStub(self._channel)

    async def token(self) -> str:
        request = admin_pb2.CreateTokenRequest(parent=PARENT, token=admin_pb2.Token(scope=admin_pb2.Token.SUBMIT))
        made = await self._admin.CreateToken(request, metadata=as_holder(self.operator))
        return str(made.secret)

    def create(self, secret: str, train: Path | str, task: str = "ner", **spec: Any) -> Any:
        """The call that submits a job with this file."""
        method: dict[str, Any] = {} if "locked_mask" in spec else {"movement": {}}
        values = {"model": "bert-base-uncased", "task": task, "target_density": 0.1, **method, **spec}
        file = server_path(train) if isinstance(train, Path) else train
        values["dataset"] = {"train": file, "validation": file}
        request = job_pb2.CreateJobRequest(parent=PARENT, job=job_pb2.Job(spec=values))
        return self.jobs.CreateJob(request, metadata=as_holder(secret))

    async def refusal(self, secret: str, train: Path | str, task: str = "ner", **spec: Any) -> dict[str, str]:
        """The violations of a job with this file."""
        code, _, fields = await refused(self.create(secret, train, task, **spec))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        return fields

    async def close(self) -> None:
        await self._channel.close()


def as_holder(secret: str) -> tuple[tuple[str, str]]:
    return (("authorization", f"Bearer {secret}"),)


def settings(folder: Path, **more: Any) -> Settings:
    ports = {"address": "127.0.0.1:0", "worker_address": "127.0.0.1:0"}
    return Settings(home=folder / "home", executor="local", auth="required", **ports, **more)


@pytest.fixture
async def guarded(tmp_path: Path, new_database: Callable[..., str]) -> AsyncIterator[Guarded]:
    async with Service(settings(tmp_path, roots=(tmp_path,), database_url=new_database())) as service:
        guarded = Guarded(tmp_path, service)
        yield guarded
        await guarded.close()


@pytest.mark.parametrize("task", ["ner", "masked-lm"])
async def test_the_servers_own_files_are_no_data(guarded: Guarded, task: str) -> None:
    secret = await guarded.token()
    for name in ("operator-token", "key", "lock", "server.json"):
        file = guarded.home / name
        assert file.exists()
        links = (guarded.folder / f"link-{name}", guarded.folder / f"hard-{name}")
        links[0].symlink_to(file)
        links[1].hardlink_to(file)
        for path in (file, *links, guarded.folder / "x" / ".." / "home" / name):
            fields = await guarded.refusal(secret, path, task)
            rule = "the path must be in a folder that this server allows"
            expected = f"{rule}, got {server_path(path)!r}; ask its operator for another"
            assert fields == {"job.spec.dataset.train": expected, "job.spec.dataset.validation": expected}


async def test_the_operators_token_and_backups_are_read_through_no_door(
    tmp_path: Path, new_database: Callable[..., str]
) -> None:
    """As data, a model with a vocabulary of it, a teacher or a mask, in a folder of one's own with a link to it."""
    token = tmp_path / "models/ops/vocab.txt"
    token.parent.mkdir(parents=True)
    token.write_text(f"mvp_ops_{'s3cr3t' * 8}\n")
    (token.parent / "config.json").write_text('{"model_type": "bert"}')
    url = new_database()
    given = settings(tmp_path, roots=(tmp_path,), database_url=url, operator_token_file=token)
    async with Service(given) as service:
        place = tmp_path / "models/backups"
        made = await asyncio.to_thread(make, str(place), lambda *_: None, home=str(tmp_path / "home"), database_url=url)
        key = place / "backups" / made.backup / "key"
        guarded = Guarded(tmp_path, service, token.read_text().strip())
        secret = await guarded.token()
        for file in (token, key, key.with_name("database"), key.with_name("manifest.json")):
            link = tmp_path / f"link-{file.name}"
            link.mkdir()
            (link / "vocab.txt").symlink_to(file)
            for model in (file.parent, link):
                source = {"model": server_path(model)}
                options: dict[str, Any] = {"teacher": source, "locked_mask": {"mask_from": source}}
                fields = await guarded.refusal(secret, file, model=server_path(model), **options)
                mask = "job.spec.locked_mask.mask_from.model"
                doors = {"job.spec.model", "job.spec.teacher.model", mask, "job.spec.dataset.train"}
                assert doors <= fields.keys(), (file, model, fields)
                assert "s3cr3t" not in str(fields)
        await guarded.close()


async def test_only_an_operator_learns_the_roots(guarded: Guarded) -> None:
    for secret, shows in ((await guarded.token(), False), (guarded.operator, True)):
        fields = await guarded.refusal(secret, "server:/etc/passwd")
        assert (f"allowed folders ({guarded.folder}) " in fields["job.spec.dataset.train"]) is shows
        assert ("--roots" in str(fields)) is shows
        fields = await guarded.refusal(secret, "s3://bucket/file")
        assert ("--buckets" in str(fields)) is shows


async def test_an_error_about_a_file_quotes_none_of_it(guarded: Guarded) -> None:
    """The file's line is told to who may set the roots; to others where it is."""
    file = guarded.folder / "notes.txt"
    file.write_text("EU B-ORG\n\nVlw0Xk8Qs3Zt5n\n\nb O\n")
    for secret, shows in ((await guarded.token(), False), (guarded.operator, True)):
        for task in ("ner", "text-classification"):
            text = str(await guarded.refusal(secret, file, task))
            assert str(file) in text
            if not shows:
                assert not any(word in text for word in ("Vlw0Xk8", "Qs3Zt5n", "B-ORG"))


async def test_without_configured_roots_a_token_reads_nothing_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.tsv").write_text("text\tlabel\ngood\t1\n")
    monkeypatch.chdir(tmp_path)
    async with Service(settings(tmp_path)) as service:
        guarded = Guarded(tmp_path, service)
        fields = await guarded.refusal(await guarded.token(), tmp_path / "train.tsv", model=server_path(tmp_path))
        await guarded.close()
    assert set(fields) == {"job.spec.model", "job.spec.dataset.train", "job.spec.dataset.validation"}


@pytest.mark.slow
async def test_a_flood_of_unknown_tokens_locks_out_no_good_one(guarded: Guarded) -> None:
    """From one address: the flood on a connection of its own and on that of the good tokens."""
    tokens = [await guarded.token() for _ in range(5)]
    request = job_pb2.ListJobsRequest(parent=PARENT)
    is_over = False
    refusals: Counter[grpc.StatusCode] = Counter()

    async def flood(jobs: Any, number: int) -> None:
        while not is_over:
            number += 1_000
            call = jobs.ListJobs(request, metadata=as_holder(f"mvp_token-{number}_x"))
            refusals[await call.code()] += 1

    async with grpc.aio.insecure_channel(guarded.address) as other:
        stubs = (job_pb2_grpc.JobServiceStub(other), guarded.jobs)
        floods = [asyncio.create_task(flood(stubs[number % 2], number)) for number in range(100)]
        await until_true(lambda: refusals[grpc.StatusCode.RESOURCE_EXHAUSTED] > 100, lambda: refusals)
        for secret in tokens:
            await guarded.jobs.ListJobs(request, metadata=as_holder(secret), timeout=PATIENCE)
        is_over = True
        await asyncio.gather(*floods)
