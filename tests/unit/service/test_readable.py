"""What the server reads for its callers: which folders, and never its own files."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mvprune.sources.references import InvalidReference, Roots, check_inside, resolve_model, resolve_path
from mvprune_migrations import upgrade
from mvprune_service.assembly import readable
from mvprune_service.assembly.readable import BadRoots
from mvprune_service.assembly.service import Service
from mvprune_service.assembly.startup import StartError
from mvprune_service.backup.making import make
from mvprune_service.config import Settings, access
from mvprune_service.db.engine.database import Database
from mvprune_service.setting_types import Access
from mvprune_service.stores import open_store
from mvprune_service.stores.layout import blob_key, manifest_key, marker_key, upload_key


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
        "operator.token",
        "jobs.sqlite.commits",
        "jobs.sqlite",
        "jobs.sqlite-wal",
        "jobs.sqlite-shm",
        "jobs.sqlite.0003",
        "store/blob",
        ".aws/credentials",
        ".cache/huggingface/token",
        ".config/mvprune/config.toml",
        "work.token",
        "jobs.sqlite-wal.20261126T160731Z",
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
            operator_token_file=folder / "operator.token",
            database_url=f"sqlite:///{folder}/jobs.sqlite",
            store=(folder / "store").as_uri(),
        )
    )
    assert not found.hold(path)
    (folder / "data.tsv").write_text("open\n")
    assert found.hold(folder / "data.tsv")
    assert not type(found)(allowed=(Path("/"),), private=found.private).hold(Path("/proc/self/environ"))


PATHS = [name for name, field in Settings.model_fields.items() if "Path" in str(field.annotation)]
SECRETS = [name for name in PATHS if access(name) is Access.PRIVATE and name != "home"]


def test_every_setting_of_a_path_says_who_may_read_it() -> None:
    assert [name for name in PATHS if access(name) is None] == [], "annotate it: SecretFile, OpenFile, RootFolder …"
    assert [name for name in Settings.model_fields if access(name) is not None] == PATHS
    words = ("key", "token", "secret", "password", "url", "credential")
    assert [name for name in PATHS if any(word in name for word in words)] == SECRETS


@pytest.mark.parametrize("name", SECRETS)
def test_no_secret_of_a_setting_is_readable(folder: Path, name: str) -> None:
    """Also one that a file is renamed to after the start, as renewals of certificates do."""
    file = folder / "data" / name
    file.parent.mkdir()
    file.write_text("sqlite:////nowhere.sqlite" if name == "database_url_file" else "secret")
    found = readable.roots(settings(folder, roots=(folder / "data",), **{name: file}))
    copy = folder / "data" / "hard-link"
    copy.hardlink_to(file)
    assert not found.hold(file)
    assert not found.hold(copy)
    copy.unlink()
    (folder / "data" / "new").write_text("renewed")
    (folder / "data" / "new").replace(file)
    assert not found.hold(file)


def doors(path: Path, roots: Roots) -> list[str]:
    """The ways in which a reference leads to a file or to the folder with it."""
    opened = []
    for name, enter in (
        ("path", lambda: resolve_path(f"server:{path}", roots)),
        ("model", lambda: resolve_model(f"server:{path.parent}", roots)),
        ("file", lambda: check_inside(path, roots)),
    ):
        try:
            enter()
        except InvalidReference:
            continue
        opened.append(name)
    return opened


def test_no_store_backup_or_database_is_readable_wherever_it_lies(folder: Path) -> None:
    """Those of the server, of others, and copies of them."""
    data = folder / "data"
    key, database = folder / "home/key", folder / "home/mvprune.sqlite"
    with closing(Database(f"sqlite:///{database}")) as db:
        upgrade(db.engine)
    key.write_bytes(b"k" * 64)
    store = open_store((data / "theirs").as_uri())
    for stored in (blob_key("ab" * 32), manifest_key("ab" * 32), marker_key("uid"), upload_key("uid")):
        store.put(stored, b"content")
    own = open_store((folder / "home/store").as_uri())
    backup = make(str(data / "place"), lambda *_: None, home=str(folder / "home"), store=own.url)
    shutil.copytree(data / "place/backups" / backup.backup, data / "moved")
    with closing(sqlite3.connect(database)) as original, closing(sqlite3.connect(data / "by-hand.db")) as copy:
        original.backup(copy)
    (data / "model/weights").parent.mkdir()
    (data / "model/weights").write_text("open")
    found = readable.roots(settings(folder, roots=(data,)))
    private = [path for path in data.rglob("*") if path.is_file() and path.parent.name != "model"]
    assert {path.name for path in private} >= {"key", "database", "manifest.json", "by-hand.db", "uid"}
    for path in private:
        assert doors(path, found) == [], path
    assert set(doors(data / "model/weights", found)) == {"path", "model", "file"}
    assert found.hold(data / "theirs/notes.txt"), "only what a store has is private"
    assert doors(database, Roots(allowed=(folder,))) != [], "a program that reads for its own user has no private files"


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
