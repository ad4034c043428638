"""The probe of health checks: what it answers about a real server, with TLS and without."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

from mvprune_service import probe

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


class HealthServer:
    """A gRPC server with nothing but its health, and the server.json of its home folder."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.health = health.HealthServicer()
        self._server: grpc.Server | None = None

    def start(
        self, status: int, host: str = "127.0.0.1", tls: grpc.ServerCredentials | None = None, ca: Path | None = None
    ) -> int:
        """Serves. Returns the port."""
        from concurrent.futures import ThreadPoolExecutor

        self._server = grpc.server(ThreadPoolExecutor(2))
        health_pb2_grpc.add_HealthServicer_to_server(self.health, self._server)
        self.health.set("", status)
        port: int = (
            self._server.add_secure_port(f"{host}:0", tls) if tls else self._server.add_insecure_port(f"{host}:0")
        )
        self._server.start()
        self.write({"address": f"{host}:{port}", "ca": ca and str(ca)})
        return port

    def write(self, status: Any) -> None:
        (self.home / "server.json").write_text(json.dumps(status))

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(None).wait()


@pytest.fixture
def server(tmp_path: Path) -> Any:
    server = HealthServer(tmp_path)
    yield server
    server.stop()


def run(home: Path, *argv: str) -> int:
    return probe.main(["--home", str(home), *argv])


@pytest.mark.parametrize(
    ("status", "code", "word"), [(SERVING, 0, "SERVING"), (NOT_SERVING, 1, "NOT_SERVING")], ids=["up", "down"]
)
def test_the_exit_code_is_the_health(
    server: HealthServer, status: int, code: int, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    port = server.start(status)
    assert run(server.home) == code
    assert capsys.readouterr().out == f"127.0.0.1:{port} {word}\n"
    assert run(server.home, "-o", "json") == code
    assert json.loads(capsys.readouterr().out) == {"address": f"127.0.0.1:{port}", "status": word}


def test_a_server_on_all_addresses_is_asked_on_the_loopback(
    server: HealthServer, capsys: pytest.CaptureFixture[str]
) -> None:
    port = server.start(SERVING, host="0.0.0.0")  # noqa: S104
    assert run(server.home) == 0
    assert capsys.readouterr().out == f"127.0.0.1:{port} SERVING\n"


def test_no_proxy_of_the_environment_is_asked(server: HealthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    server.start(SERVING)
    assert run(server.home) == 0


def test_what_cannot_be_reached_is_not_called_unhealthy(
    server: HealthServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(server.home) == 7
    assert capsys.readouterr().err == (
        f"error: no server serves with the home folder {server.home}; name another with --home\n"
    )
    port = server.start(SERVING)
    server.stop()
    assert run(server.home, "--timeout", "1") == 7  # a server that was killed leaves its server.json
    assert capsys.readouterr().err.startswith(f"error: no server answers at 127.0.0.1:{port} (")
    server.write([])
    assert run(server.home) == 7
    assert "server.json cannot be read (" in capsys.readouterr().err


class Pki:
    """A CA, its file, and credentials of a server whose certificate has a name that this machine does not know."""

    def __init__(self, folder: Path, *names: str) -> None:
        self.ca, self.file = trustme.CA(), folder / "ca.pem"
        self.ca.cert_pem.write_to_path(self.file)
        self._issued = self.ca.issue_cert(*names)

    def credentials(self, *, mutual: bool = False) -> grpc.ServerCredentials:
        pair = (self._issued.private_key_pem.bytes(), self._issued.cert_chain_pems[0].bytes())
        return grpc.ssl_server_credentials([pair], self.ca.cert_pem.bytes() if mutual else None, mutual)

    def certificate(self, folder: Path) -> Path:
        self._issued.cert_chain_pems[0].write_to_path(folder / "server.pem")
        return folder / "server.pem"


@pytest.mark.parametrize("name", ["compress.example", "*.compress.example", "10.1.2.3"])
def test_the_certificate_of_another_name_is_verified_by_its_ca(server: HealthServer, tmp_path: Path, name: str) -> None:
    pki = Pki(tmp_path, name)
    server.start(SERVING, tls=pki.credentials(), ca=pki.file)
    assert run(server.home) == 0


def test_the_certificate_itself_may_stand_for_its_ca(server: HealthServer, tmp_path: Path) -> None:
    pki = Pki(tmp_path, "compress.example")
    server.start(SERVING, tls=pki.credentials(), ca=pki.certificate(tmp_path))
    assert run(server.home) == 0


def test_a_certificate_of_another_ca_is_not_believed(
    server: HealthServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pki = Pki(tmp_path, "compress.example")
    credentials = pki.credentials()
    Pki(tmp_path, "another.example")  # writes its own ca.pem
    server.start(SERVING, tls=credentials, ca=pki.file)
    assert run(server.home) == 7
    assert "certificate" in capsys.readouterr().err.lower()


def test_with_mutual_tls_it_shows_the_certificate_of_clients(
    server: HealthServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pki = Pki(tmp_path, "compress.example")
    server.start(SERVING, tls=pki.credentials(mutual=True), ca=pki.file)
    assert run(server.home) == 7
    assert "name one with MVPRUNE_CLIENT_CERT and MVPRUNE_CLIENT_KEY" in capsys.readouterr().err
    shown = pki.ca.issue_cert("probe")
    shown.cert_chain_pems[0].write_to_path(tmp_path / "probe.pem")
    shown.private_key_pem.write_to_path(tmp_path / "probe.key")
    monkeypatch.setenv("MVPRUNE_CLIENT_CERT", str(tmp_path / "probe.pem"))
    monkeypatch.setenv("MVPRUNE_CLIENT_KEY", str(tmp_path / "probe.key"))
    assert run(server.home) == 0


@pytest.mark.parametrize("argv", [["--timeout", "0"], ["--timeout", "x"], ["--nope"]])
def test_wrong_options_are_refused(server: HealthServer, argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(server.home, *argv)
    assert ended.value.code == 2
    assert argv[0] in capsys.readouterr().err


def test_it_imports_no_more_than_it_needs() -> None:
    code = (
        "import sys, mvprune_service.probe\n"
        "heavy = ('torch', 'ray', 'sqlalchemy', 'pydantic', 'boto3', 'numpy', 'transformers', 'pyarrow')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_help_has_an_example() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mvprune_service.probe", "--help"], capture_output=True, text=True, check=True
    )
    assert "example:\n  python -m mvprune_service.probe --home " in done.stdout
