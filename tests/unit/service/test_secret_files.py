"""Settings that hold a secret may come from files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from mvprune_service.assembly import readable
from mvprune_service.command_line import CommandFailed, command_settings, usage_errors
from mvprune_service.config import Settings
from mvprune_service.executors.base import ExecutorNotOpened
from mvprune_service.executors.ray import from_settings
from mvprune_service.server import main

URL = "postgresql://me:s3cr3t@db/mvprune"


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("MVPRUNE_", "RAY_AUTH_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("MVPRUNE_HOME", str(tmp_path / "home"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_text(f"{URL}\n")
    return file


def errors(**given: Any) -> list[str]:
    with pytest.raises(ValidationError) as refused:
        Settings(**given)
    return usage_errors(refused.value)


def test_the_databases_url_may_be_in_a_file(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings(database_url_file=file).database == URL
    monkeypatch.setenv("MVPRUNE_DATABASE_URL_FILE", str(file))
    assert Settings().database == URL
    assert command_settings().database == URL
    monkeypatch.delenv("MVPRUNE_DATABASE_URL_FILE")
    (tmp_path / "home").mkdir()
    mark = "\ufeff"  # as an editor of Windows begins a file
    (tmp_path / "home" / "mvprune.toml").write_text(f'{mark}database_url_file = "{file}"\n')
    assert Settings().database == URL
    assert Settings(home=tmp_path).database == f"sqlite:///{tmp_path}/mvprune.sqlite"


@pytest.mark.parametrize("given", ["sqlite:///x", URL])
def test_both_ways_are_refused_without_showing_either(
    file: Path, given: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "--database-url must not be given beside --database-url-file, got both; remove one of the two settings"
    assert errors(database_url=given, database_url_file=file) == [text]
    monkeypatch.setenv("MVPRUNE_DATABASE_URL_FILE", str(file))
    assert main([f"--database-url={given}"]) == 2
    assert capsys.readouterr().err == f"error: {text}\n"
    with pytest.raises(CommandFailed, match="remove one of the two settings"):
        command_settings(database_url=given)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "must be a file that can be read, got '{}' (No such file or directory)"),
        (b"", "must be a file with one line, got '{}' with none"),
        (b" \n", "must be a file with one line, got '{}' with none"),
        (b"s3cr3t\ns3cr3t\n", "must be a file with one line, got '{}' with several"),
        (b"s3cr3t\xff", "must be a file that can be read, got '{}' (not text in UTF-8: save it as UTF-8)"),
    ],
)
def test_a_file_without_a_secret_is_refused(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "other"
    if content is not None:
        path.write_bytes(content)
    assert errors(database_url_file=path) == [f"--database-url-file {words.format(path)}"]


def test_callers_cannot_read_the_files(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (token := tmp_path / "ray-token").write_text("t0k3n")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    (headers := tmp_path / "headers").write_text("a=t0k3n")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS_FILE", str(headers))
    roots = readable.roots(Settings(database_url_file=file, roots=(tmp_path,)))
    assert roots.is_private(file)
    assert roots.is_private(token)
    assert roots.is_private(headers)
    assert not roots.is_private(tmp_path / "model")


def opened(monkeypatch: pytest.MonkeyPatch, **env: str) -> Any:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    return from_settings(Settings(ray_address="http://head:8265"), lambda: False)


def test_rays_token_may_be_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("t0k3n\n")
    executor = opened(monkeypatch, RAY_AUTH_TOKEN_PATH=str(tmp_path / "token"))
    assert executor._headers == {"Authorization": "Bearer t0k3n"}


def test_rays_token_is_refused_both_ways_or_without_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ExecutorNotOpened, match="RAY_AUTH_TOKEN_PATH must be a file that can be read, got '/nowhere'"):
        opened(monkeypatch, RAY_AUTH_TOKEN_PATH="/nowhere")
    with pytest.raises(ExecutorNotOpened, match="must not be set beside RAY_AUTH_TOKEN, got both; unset one"):
        opened(monkeypatch, RAY_AUTH_TOKEN="t0k3n")


def test_the_workers_python_is_a_path(tmp_path: Path) -> None:
    assert str(Settings(worker_python="/opt/mvprune/bin/python").worker_python) == "/opt/mvprune/bin/python"
    assert errors(worker_python="python3") == ["--worker-python must be an absolute path, got 'python3'"]


@pytest.mark.usefixtures("own_logging")
def test_a_server_without_its_file_of_headers_does_not_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS_FILE", "/nowhere")
    assert main([]) == 2
    assert capsys.readouterr().err == (
        "error: OTEL_EXPORTER_OTLP_HEADERS_FILE must be a file that can be read, got '/nowhere' "
        "(No such file or directory)\n"
    )
    assert not (tmp_path / "home").exists()
