"""What the server reads for its callers: which folders, and never its own files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mvprune_service import readable
from mvprune_service.config import Settings
from mvprune_service.readable import BadRoots
from mvprune_service.service import Service
from mvprune_service.startup import StartError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with the server's home in it."""
    folder = tmp_path / "user"
    (folder / "home/store").mkdir(parents=True)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    return folder


def settings(folder: Path, **more: Any) -> Settings:
    return Settings(**({"home": folder / "home", "address": "127.0.0.1:0"} | more))


@pytest.mark.parametrize(
    ("more", "is_readable"),
    [
        ({}, True),
        ({"auth": "off"}, True),
        ({"address": "[::1]:0"}, True),
        ({"auth": "required"}, False),
        ({"address": "0.0.0.0:0"}, False),
        ({"address": "0.0.0.0:0", "auth": "off"}, False),
    ],
)
def test_the_working_folder_is_for_this_machines_user(folder: Path, more: dict[str, Any], is_readable: bool) -> None:
    found = readable.roots(settings(folder, **more))
    assert found.allowed == ((folder,) if is_readable else ())
    assert found.discreet is not is_readable
    named = readable.roots(settings(folder, roots=(folder,), **more))
    assert named.allowed == (folder,), "what is configured holds for everyone"


def test_a_server_with_tokens_reads_the_folders_that_are_configured(folder: Path) -> None:
    for name in ("models", "data"):
        (folder / name).mkdir()
        found = readable.roots(settings(folder, auth="required", **{name: folder / name}))
        assert found.allowed == (folder / name,)


def test_a_server_that_is_started_in_its_home_reads_nothing_by_default(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder / "home/store")
    assert readable.roots(settings(folder)).allowed == ()


@pytest.mark.parametrize(
    "name",
    [
        "home/operator-token",
        "home/mvprune.toml",
        "home/server.json",
        "home/scratch/attempt/inputs/a.tsv",
        "home/store/blobs/sha256/ab",
        "elsewhere.key",
        "tls.key",
        "worker.key",
        "jobs.sqlite",
        "jobs.sqlite-wal",
        "jobs.sqlite-shm",
        "jobs.sqlite.0003",
        "store/blob",
        ".aws/credentials",
        ".cache/huggingface/token",
        ".config/mvprune/config.toml",
        "work.token",
    ],
)
def test_no_root_holds_what_is_the_servers_own(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("# secret\n")
    config = folder / ".config/mvprune/config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f'[contexts.default]\naddress = "127.0.0.1:1"\ntoken_file = "{folder}/work.token"\n')
    monkeypatch.setenv("MVPRUNE_CONFIG", str(config))
    found = readable.roots(
        settings(
            folder,
            roots=(folder,),
            key_file=folder / "elsewhere.key",
            tls_key=folder / "tls.key",
            worker_key=folder / "worker.key",
            database_url=f"sqlite:///{folder}/jobs.sqlite",
            store=(folder / "store").as_uri(),
        )
    )
    assert not found.hold(path)
    (folder / "data.tsv").write_text("open\n")
    assert found.hold(folder / "data.tsv")
    assert not type(found)(allowed=(Path("/"),), private=found.private).hold(Path("/proc/self/environ"))


@pytest.mark.parametrize("setting", ["models", "data", "roots"])
@pytest.mark.parametrize("name", ["home", "home/models", "store/models", "link"])
def test_a_root_in_the_servers_own_folders_is_refused(folder: Path, setting: str, name: str) -> None:
    (folder / "link").symlink_to(folder / "home")
    (folder / name).mkdir(parents=True, exist_ok=True)
    given: Any = (folder / name,) if setting == "roots" else folder / name
    with pytest.raises(BadRoots, match=rf"^{setting} must be outside the server's own folders, got /.*; move what"):
        readable.roots(settings(folder, store=(folder / "store").as_uri(), **{setting: given}))


@pytest.mark.parametrize("name", ["home/models", "a:b"])
async def test_a_server_with_such_a_root_does_not_start(folder: Path, name: str) -> None:
    (folder / name).mkdir()
    given = settings(folder, models=folder / name, executor="local", worker_address="127.0.0.1:0")
    with pytest.raises(
        StartError, match=r"must be outside the server's own folders|must not hold ':', which separates roots"
    ):
        async with Service(given):
            pass
