"""MVPRUNE_TOKEN_FILE: the client's token in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from mvprune import InvalidArgument
from mvprune.client import endpoint


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MVPRUNE_HOME", str(tmp_path))
    monkeypatch.delenv("MVPRUNE_TOKEN", raising=False)
    file = tmp_path / "token"
    file.write_text("mvp_of-a-file\n")
    monkeypatch.setenv("MVPRUNE_TOKEN_FILE", str(file))
    return file


def test_the_token_is_read_from_the_file(file: Path, tmp_path: Path) -> None:
    assert endpoint.find("127.0.0.1:7070").token == "mvp_of-a-file"
    assert endpoint.find("127.0.0.1:7070", token="mvp_given").token == "mvp_given"
    (tmp_path / "other").write_text("mvp_other")
    assert endpoint.find("127.0.0.1:7070", token_file=tmp_path / "other").token == "mvp_other"


def test_a_token_given_both_ways_is_refused(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MVPRUNE_TOKEN", "mvp_secret")
    with pytest.raises(InvalidArgument, match=r"MVPRUNE_TOKEN_FILE.*unset one of the two variables") as refused:
        endpoint.find("127.0.0.1:7070")
    assert "mvp_secret" not in str(refused.value)


def test_a_file_that_is_empty_or_missing_is_named(file: Path) -> None:
    file.write_text("")
    with pytest.raises(InvalidArgument, match=r"MVPRUNE_TOKEN_FILE.* is empty"):
        endpoint.find("127.0.0.1:7070")
    file.unlink()
    with pytest.raises(InvalidArgument, match=r"MVPRUNE_TOKEN_FILE.* cannot be read"):
        endpoint.find("127.0.0.1:7070")


def test_a_file_from_windows_is_read(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_bytes(b"\xef\xbb\xbfmvp_marked\r\n")
    assert endpoint.find("127.0.0.1:7070").token == "mvp_marked"
    monkeypatch.delenv("MVPRUNE_TOKEN_FILE")
    (tmp_path / "config.toml").write_bytes(
        b'\xef\xbb\xbf[contexts.default]\r\naddress = "127.0.0.1:70"\r\ntoken_file = "token"\r\n'
    )
    (tmp_path / "config.toml").chmod(0o600)
    monkeypatch.setenv("MVPRUNE_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.chdir(tmp_path)
    assert endpoint.find().token == "mvp_marked"


def test_a_file_in_another_encoding_is_named(file: Path) -> None:
    file.write_bytes("mvp_wide\r\n".encode("utf-16"))
    with pytest.raises(InvalidArgument, match=r"MVPRUNE_TOKEN_FILE.*/token is text in UTF-16: save it as UTF-8"):
        endpoint.find("127.0.0.1:7070")


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])  # noqa: S104
def test_the_operators_token_goes_to_a_server_on_all_addresses_of_this_machine(
    tmp_path: Path, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container, whose MVPRUNE_ADDRESS is the server's."""
    monkeypatch.setenv("MVPRUNE_HOME", str(tmp_path))
    monkeypatch.setenv("MVPRUNE_ADDRESS", f"{host}:7070")
    (tmp_path / "server.json").write_text(f'{{"address": "{host}:7070", "ca": null}}')
    (tmp_path / "operator-token").write_text("mvp_operator")
    assert endpoint.find().token == "mvp_operator"
