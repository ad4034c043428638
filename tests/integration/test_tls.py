"""TLS on both ports with real certificates: who is let in, what is refused, what happens when files change."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme

from mvprune import Client, InvalidArgument, NotAuthorised, ServerUnreachable
from mvprune.v1 import job_pb2, job_pb2_grpc
from mvprune_service.assembly.service import Service
from mvprune_service.assembly.startup import StartError
from mvprune_service.config import Settings

from ..conftest import Tiny, server_path
from ..waiting import PATIENCE
from .plane import local_settings
from .servers import Server


class Certificates:
    """A CA, and files of certificates that it issued."""

    def __init__(self, folder: Path) -> None:
        self.ca = trustme.CA()
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.ca_file = folder / "ca.pem"
        self.ca.cert_pem.write_to_path(self.ca_file)

    def issue(self, name: str, *hosts: str) -> tuple[Path, Path]:
        """Writes NAME.pem and NAME.key, over what is there."""
        issued = self.ca.issue_cert(*(hosts or ("127.0.0.1", "localhost")))
        paths = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        for path, content in zip(paths, (issued.cert_chain_pems[0], issued.private_key_pem), strict=True):
            draft = path.with_suffix(".draft")
            content.write_to_path(draft)
            draft.replace(path)
        return paths


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "tls")


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An environment without settings of the client."""
    for name in list(os.environ):
        if name.startswith("MVPRUNE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("MVPRUNE_HOME", str(tmp_path / "nobody"))


def settings(tmp_path: Path, tiny: Tiny, certificates: Certificates, **more: Any) -> Settings:
    certificate, key = certificates.issue("server")
    values = {"tls_cert": certificate, "tls_key": key, "worker_ca": certificates.ca_file, **more}
    return local_settings(tmp_path, tiny).model_copy(update=values)


async def ask(work: Callable[[], Any]) -> Any:
    """A call of the blocking client, off the loop that serves it."""
    return await asyncio.to_thread(work)


@pytest.mark.usefixtures("clean")
async def test_clients_know_the_server_by_its_ca(tmp_path: Path, tiny: Tiny, certificates: Certificates) -> None:
    async with Service(settings(tmp_path, tiny, certificates, auth="required")) as service:
        token = (tmp_path / "home" / "operator-token").read_text().strip()
        with Client(f"grpcs://{service.address}", ca_cert=certificates.ca_file, token=token) as client:
            assert await ask(lambda: list(client.list())) == []
        without = Client(f"grpcs://{service.address}", ca_cert=certificates.ca_file)
        with without as client, pytest.raises(NotAuthorised, match="asks for an API token"):
            await ask(lambda: list(client.list()))
        strangers = Certificates(tmp_path / "stranger")
        port = service.address.rpartition(":")[2]
        certificates.issue("server", "localhost")
        for address, ca, why in (
            (f"grpcs://{service.address}", strangers.ca_file, "is not trusted, .*: MVPRUNE_CA_CERT names"),
            (f"grpcs://127.0.0.1:{port}", certificates.ca_file, "is for another name"),
            (service.address, None, "it may want TLS"),
        ):
            with Client(address, ca_cert=ca, token=token) as client, pytest.raises(ServerUnreachable, match=why):
                await ask(lambda: list(client.list()))


@pytest.mark.usefixtures("clean")
async def test_mvpctl_finds_a_server_on_this_machine_with_all_that_it_asks_for(
    tmp_path: Path, tiny: Tiny, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MVPRUNE_HOME", str(tmp_path / "home"))
    async with Service(settings(tmp_path, tiny, certificates, auth="required")) as service:
        with Client() as client:
            assert client.address == service.address
            assert await ask(lambda: list(client.list())) == []


@pytest.mark.usefixtures("clean")
async def test_mtls_on_both_ports_and_a_job_through_it(
    tmp_path: Path, tiny: Tiny, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, workers = Certificates(tmp_path / "clients"), Certificates(tmp_path / "workers")
    client_cert, client_key = mine.issue("client")
    worker_cert, worker_key = workers.issue("worker")
    given = settings(
        tmp_path,
        tiny,
        certificates,
        tls_client_ca=mine.ca_file,
        worker_client_ca=workers.ca_file,
        worker_cert=worker_cert,
        worker_key=worker_key,
    )
    async with Service(given) as service:
        address = f"grpcs://{service.address}"
        uncertified = pytest.raises(ServerUnreachable, match="or a client's certificate")
        with Client(address, ca_cert=certificates.ca_file) as client, uncertified:
            await ask(lambda: list(client.list()))
        # A worker's certificate opens the workers' port alone.
        for name, path in (("CERT", worker_cert), ("KEY", worker_key)):
            monkeypatch.setenv(f"MVPRUNE_CLIENT_{name}", str(path))
        with Client(address, ca_cert=certificates.ca_file) as client, pytest.raises(ServerUnreachable):
            await ask(lambda: list(client.list()))
        for name, path in (("CERT", client_cert), ("KEY", client_key)):
            monkeypatch.setenv(f"MVPRUNE_CLIENT_{name}", str(path))
        with Client(address, ca_cert=certificates.ca_file) as client:
            options = {
                "model": "tiny-bert",
                "train": server_path(tiny.train),
                "validation": server_path(tiny.validation),
                "density": 0.1,
            }
            job = await ask(lambda: client.submit(**options, max_steps=10, batch_size=16, cpus=1.0))
            done = await ask(lambda: client.wait(job, timeout=PATIENCE))
            assert done.artifact


async def is_served_as(address: str, credentials: grpc.ChannelCredentials, host: str) -> bool:
    """Whether the server has a certificate for this host now."""
    options = (("grpc.ssl_target_name_override", host), ("grpc.use_local_subchannel_pool", 1))
    async with grpc.aio.secure_channel(address, credentials, options) as channel:
        try:
            stub = job_pb2_grpc.JobServiceStub(channel)
            await stub.ListJobs(job_pb2.ListJobsRequest(parent="projects/p"), timeout=PATIENCE)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            return False
    return True


async def test_a_new_certificate_is_used_at_once_and_a_bad_one_never(
    tmp_path: Path, tiny: Tiny, certificates: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    given = settings(tmp_path, tiny, certificates)
    async with Service(given) as service:
        address, trusted = service.address, grpc.ssl_channel_credentials(certificates.ca.cert_pem.bytes())
        open_channel = grpc.aio.secure_channel(address, trusted)
        jobs = job_pb2_grpc.JobServiceStub(open_channel)
        await jobs.ListJobs(job_pb2.ListJobsRequest(parent="projects/p"))
        assert not await is_served_as(address, trusted, "renewed.example")

        certificate, key = certificates.issue("server", "renewed.example")
        assert await is_served_as(address, trusted, "renewed.example")
        assert not await is_served_as(address, trusted, "localhost")
        await jobs.ListJobs(job_pb2.ListJobsRequest(parent="projects/p"))  # who is connected stays so
        await open_channel.close()

        good = key.read_bytes()
        certificates.issue("other")
        shutil.copy(certificates.folder / "other.key", key)
        assert await is_served_as(address, trusted, "renewed.example"), "the old pair serves on"
        certificate_bytes = certificate.read_bytes()
        certificate.unlink()
        assert await is_served_as(address, trusted, "renewed.example")
        told = [record.message for record in caplog.records if "the old one stays" in record.message]
        assert len(told) == 2
        assert str(key) in told[0]
        assert "No such file" in told[1]
        assert "PRIVATE" not in caplog.text

        key.write_bytes(good)
        certificate.write_bytes(certificate_bytes)
        assert await is_served_as(address, trusted, "renewed.example")


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (lambda folder: (folder / "server.pem").unlink(), r"server\.pem cannot be read \(No such file"),
        (lambda folder: (folder / "server.key").write_text("nonsense"), "are not a certificate and its key in PEM"),
        (lambda folder: (folder / "server.pem").write_text(""), "are not a certificate and its key in PEM"),
        (lambda folder: (folder / "ca.pem").write_text("x"), "holds no certificates in PEM"),
    ],
)
async def test_files_that_cannot_be_used_stop_the_start_with_one_line(
    change: Callable[[Path], Any], found: str, tmp_path: Path, tiny: Tiny, certificates: Certificates
) -> None:
    given = settings(tmp_path, tiny, certificates, tls_client_ca=certificates.ca_file)
    change(certificates.folder)
    with pytest.raises(StartError, match=found) as caught:
        async with Service(given):
            pass
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({"tls_key": None}, "both --tls-cert and --tls-key"),
        ({"tls_cert": None, "tls_key": None, "tls_client_ca": Path("ca.pem")}, "both --tls-cert and --tls-key"),
        ({"worker_client_ca": Path("ca.pem")}, "needs --worker-cert and --worker-key"),
    ],
)
async def test_settings_that_go_together(
    more: dict[str, Any], found: str, tmp_path: Path, tiny: Tiny, certificates: Certificates
) -> None:
    with pytest.raises(StartError, match=found):
        async with Service(settings(tmp_path, tiny, certificates, **more)):
            pass


async def test_beyond_this_machine_only_with_tls_or_in_so_many_words(
    tmp_path: Path, tiny: Tiny, certificates: Certificates
) -> None:
    open_to_all = {"address": "0.0.0.0:0", "worker_address": "0.0.0.0:0"}
    plain = local_settings(tmp_path, tiny).model_copy(update=open_to_all)
    with pytest.raises(StartError, match="without TLS; give --tls-cert and --tls-key, or --allow-remote"):
        async with Service(plain):
            pass
    async with Service(plain.model_copy(update={"allow_remote": True})):
        assert (tmp_path / "home" / "operator-token").exists(), "tokens are asked for by themselves"
    async with Service(settings(tmp_path, tiny, certificates, **open_to_all)):
        pass


@pytest.mark.usefixtures("clean")
def test_a_token_is_not_sent_for_all_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MVPRUNE_TOKEN", "mvp_secret")
    with pytest.raises(InvalidArgument, match=r"^insecure: not set, .* grpcs://far\.example:1, or set it$") as caught:
        Client("far.example:1")
    assert "mvp_secret" not in str(caught.value)
    Client("far.example:1", insecure=True).close()
    Client("grpcs://far.example:1").close()
    Client("127.0.0.1:1").close()
    monkeypatch.setenv("MVPRUNE_INSECURE", "1")
    Client("far.example:1").close()


def test_who_speaks_no_tls_leaves_no_line_of_another_form(tmp_path: Path, certificates: Certificates) -> None:
    """As a load balancer does that tries the port: the log is JSON, and stays so."""
    certificate, key = certificates.issue("server")
    server = Server(tmp_path / "home")
    try:
        process = server.start(tls_cert=certificate, tls_key=key, log_format="json", drain_seconds=0)
        host, _, port = server.address.rpartition(":")
        for said in (b"GET / HTTP/1.0\r\n\r\n", bytes(5000)):
            with socket.create_connection((host, int(port))) as caller:
                caller.sendall(said)
                with suppress(ConnectionError):
                    assert caller.recv(1) == b"", "the server hangs up"
        process.terminate()
        assert process.wait(PATIENCE) == 0
    finally:
        server.close()
    assert "Handshake failed" not in server.log()
