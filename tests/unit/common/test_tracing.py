"""The headers for a collector of spans may be in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from mvprune.common import tracing

FILE, HEADERS = "OTEL_EXPORTER_OTLP_HEADERS_FILE", "OTEL_EXPORTER_OTLP_HEADERS"


@pytest.fixture(autouse=True)
def collector(monkeypatch: pytest.MonkeyPatch, closed_port: int) -> None:
    """There is one, which nobody reaches."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{closed_port}")
    for name in (FILE, HEADERS, "OTEL_EXPORTER_OTLP_TRACES_HEADERS"):
        monkeypatch.delenv(name, raising=False)


def refusal() -> str:
    with pytest.raises(tracing.BadSetting) as refused:
        tracing.start("test")
    return str(refused.value)


def test_headers_are_read_as_the_variable_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file := tmp_path / "headers").write_text("Authorization=Basic%20YQ==, x-tenant = a%2Cb\n")
    monkeypatch.setenv(FILE, str(file))
    expected = {"authorization": "Basic YQ==", "x-tenant": "a,b"}
    assert tracing._headers() == expected
    from opentelemetry.util.re import parse_env_headers

    assert parse_env_headers(file.read_text(), liberal=True) == expected


@pytest.mark.parametrize("other", [HEADERS, "OTEL_EXPORTER_OTLP_TRACES_HEADERS"])
def test_both_ways_are_refused(other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file := tmp_path / "headers").write_text("a=s3cr3t")
    monkeypatch.setenv(FILE, str(file))
    monkeypatch.setenv(other, "a=s3cr3t")
    assert refusal() == f"{FILE} must not be set beside {other}, got both; unset one of the two variables"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "must be a file that can be read, got '{}' (No such file or directory)"),
        ("", "must be a file with one line, got '{}' with none"),
        ("a=s3cr3t\nb=s3cr3t", "must be a file with one line, got '{}' with several"),
        ("a=s3cr3t,s3cr3t", "must be a file with NAME=VALUE,NAME=VALUE, got '{}', whose item 2 is none"),
        ("s3cr3t a=s3cr3t", "must be a file with NAME=VALUE,NAME=VALUE, got '{}', whose item 1 is none"),
    ],
)
def test_a_file_without_headers_is_refused_and_not_shown(
    content: str | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "headers"
    if content is not None:
        file.write_text(content)
    monkeypatch.setenv(FILE, str(file))
    assert refusal() == f"{FILE} {words.format(file)}"


def test_without_a_collector_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FILE, "/nowhere")
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT")
    tracing.start("test")
