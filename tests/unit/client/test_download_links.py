"""Client: downloads to places that somebody else has prepared. Nothing is written through a link, and nothing is
accepted that others can change afterwards."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.client.scripted_server import Fake, job

import mvprune
from mvprune import Client

FILES = {"weights.safetensors": b"w" * 5000, "tokenizer/vocab.txt": b"a\nb\n", "empty.txt": b""}
VICTIM = b"the victim's own file"


@pytest.fixture
def name(fake: Fake) -> str:
    """An artifact of FILES."""
    name = fake.serve(FILES)
    fake.answers["GetJob"] = lambda request, context: job("SUCCEEDED", artifact=name)
    return name


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file outside of the download."""
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "file").write_bytes(VICTIM)
    return folder / "file"


def partial(tmp_path: Path, name: str, ending: str = "partial") -> Path:
    return tmp_path / "shared" / f"out.{name.rpartition('/')[2]}.{ending}"


def prepare(path: Path, make: Callable[[Path], object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    make(path)


def refused(client: Client, name: str, tmp_path: Path, victim: Path, words: str) -> None:
    with pytest.raises(mvprune.DownloadError, match=words) as caught:
        client.download(name, tmp_path / "shared" / "out")
    assert "remove" in str(caught.value)
    assert victim.read_bytes() == VICTIM
    assert [path.name for path in victim.parent.iterdir()] == ["file"]
    assert not (tmp_path / "shared" / "out").exists()


@pytest.mark.parametrize("file", [*FILES, "manifest.json"])
@pytest.mark.parametrize("kind", ["link", "dangling link", "hard link", "pipe", "folder"])
@pytest.mark.timeout(60)
def test_a_file_that_is_no_file_of_ones_own(
    client: Client, name: str, tmp_path: Path, victim: Path, file: str, kind: str
) -> None:
    makers: dict[str, Callable[[Path], object]] = {
        "link": lambda path: path.symlink_to(victim),
        "dangling link": lambda path: path.symlink_to(victim.with_name("new")),
        "hard link": lambda path: path.hardlink_to(victim),
        "pipe": os.mkfifo,
        "folder": Path.mkdir,
    }
    prepare(partial(tmp_path, name) / file, makers[kind])
    refused(client, name, tmp_path, victim, f"{Path(file).name} must be a file")


@pytest.mark.parametrize("ending", ["partial", "parts"])
@pytest.mark.parametrize("below", ["", "tokenizer"])
def test_a_folder_that_is_a_link(
    client: Client, name: str, tmp_path: Path, victim: Path, ending: str, below: str
) -> None:
    if ending == "parts" and below:
        pytest.skip("it has no folders")
    prepare(partial(tmp_path, name, ending) / below, lambda path: path.symlink_to(victim.parent))
    refused(client, name, tmp_path, victim, "must be a folder, got a symbolic link")


def test_a_folder_that_all_can_change(client: Client, name: str, tmp_path: Path, victim: Path) -> None:
    prepare(partial(tmp_path, name), Path.mkdir)
    partial(tmp_path, name).chmod(0o777)
    refused(client, name, tmp_path, victim, "writable by you only")


def test_a_file_that_all_can_change(client: Client, name: str, tmp_path: Path, victim: Path) -> None:
    prepare(partial(tmp_path, name) / "weights.safetensors", Path.touch)
    (partial(tmp_path, name) / "weights.safetensors").chmod(0o666)
    refused(client, name, tmp_path, victim, "only you can change")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("below", ["", "tokenizer", "weights.safetensors"])
def test_what_belongs_to_another_user(client: Client, name: str, tmp_path: Path, victim: Path, below: str) -> None:
    path = partial(tmp_path, name) / below
    prepare(path, Path.touch if below.endswith("tensors") else Path.mkdir)
    os.chown(path, 12345, 12345)
    refused(client, name, tmp_path, victim, "must be a file that only you|must belong to you")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give links away")
@pytest.mark.parametrize("at", ["out", "folder/out"])
def test_where_another_users_link_leads_in_a_shared_folder(
    client: Client, name: str, tmp_path: Path, victim: Path, at: str
) -> None:
    shared = tmp_path / "shared"
    link = shared / Path(at).parts[0]
    prepare(link, lambda path: path.symlink_to(victim.parent / "new"))
    shared.chmod(0o1777)
    os.lchown(link, 12345, 12345)
    with pytest.raises(mvprune.DownloadError, match="link of another user's"):
        client.download(name, shared / at)
    assert [path.name for path in victim.parent.iterdir()] == ["file"]
    os.lchown(link, os.geteuid(), 0)
    assert client.download(name, shared / at).is_relative_to(victim.parent), "one's own leads anywhere"


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_what_one_left_oneself_is_gone_on_with(
    client: Client, fake: Fake, name: str, tmp_path: Path, umask: int
) -> None:
    """Whatever the umask: what a run makes, the next run accepts."""
    read = fake.answers["ReadFile"]
    before = os.umask(umask)
    try:
        fake.answers["ReadFile"] = lambda request, context: context.abort(5, "gone")
        for _ in range(2):
            with pytest.raises(mvprune.MvpruneError):
                client.download(name, tmp_path / "shared" / "out")
        weights = partial(tmp_path, name) / "weights.safetensors"
        weights.write_bytes(FILES["weights.safetensors"][:2000])
        weights.chmod(0o664 & ~umask)
        fake.answers["ReadFile"], fake.requests["ReadFile"] = read, []
        out = client.download(name, tmp_path / "shared" / "out")
    finally:
        os.umask(before)
    offsets = {request.path: request.offset for request in fake.requests["ReadFile"]}
    assert offsets["weights.safetensors"] == 2000
    assert {file: (out / file).read_bytes() for file in FILES} == FILES
    assert not any(path.stat().st_mode & stat.S_IWOTH for path in [out, *out.rglob("*")])


def test_the_client_can_be_imported_where_there_is_no_posix() -> None:
    code = """
import os, sys
for name in ("O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK", "O_CLOEXEC"):
    delattr(os, name)
sys.modules["fcntl"] = sys.modules["pwd"] = sys.modules["grp"] = None
import mvprune
from mvprune.client import download, fetch, folder, parts
"""
    subprocess.run([sys.executable, "-c", code], check=True)
