"""What the jobs of a machine share, and how it makes room."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mvprune_core.base.storage import Cache
from mvprune_workers.cache import hold, trim

HOUR = 3600
HOLD = """
import sys
from pathlib import Path
from mvprune_workers.cache import hold

print(hold(Path(sys.argv[1])), flush=True)
input()
"""


def entry(cache: Path, name: str, size: int, age_hours: float) -> Path:
    """A file, or for `buckets` a folder, that was used so long ago."""
    path = cache / name
    file = path / "weights" if name.startswith("buckets/") else path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(bytes(size))
    then = path.stat().st_mtime - age_hours * HOUR
    os.utime(path, (then, then))
    return path


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """1,000 bytes: from the oldest on 400, 300, 200, 100."""
    for kind, digit, size in (("tokens", "a", 400), ("buckets", "b", 300), ("logits", "c", 200), ("buckets", "d", 100)):
        name = f"{kind}/{digit * 64}{'' if kind == 'buckets' else '.safetensors'}"
        entry(tmp_path, name, size, 20 - int(digit, 16))
    return tmp_path


def left(cache: Path) -> str:
    """The entries, by their letters."""
    return "".join(sorted(path.name[0] for path in cache.glob("*/*") if not path.name.startswith(".")))


@pytest.mark.parametrize(
    ("limit", "stays"), [(1000, "abcd"), (999, "bcd"), (600, "bcd"), (599, "cd"), (150, "d"), (1, "")]
)
def test_what_was_used_longest_ago_goes_first(cache: Path, limit: int, stays: str) -> None:
    trim(cache, limit)
    assert left(cache) == stays
    assert not any((cache / "buckets" / ".aside").glob("*"))


def test_use_is_noted(cache: Path) -> None:
    oldest = cache / "tokens" / f"{'e' * 64}.safetensors"
    Cache(cache).facts("tokens", "e" * 64, lambda: {"n": 1})
    os.utime(oldest, (0, 0))
    assert Cache(cache).facts("tokens", "e" * 64, lambda: {"n": 2}) == {"n": 1}
    assert hold(cache / "buckets" / ("b" * 64))
    trim(cache, 600)
    assert left(cache) == "bde"


def test_a_folder_in_use_stays(cache: Path) -> None:
    folder = cache / "buckets" / ("b" * 64)
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as user:
        assert user.stdout is not None
        assert user.stdout.readline() == b"True\n"
        os.utime(folder, (0, 0))
        trim(cache, 1)
        assert left(cache) == "b"
        user.kill()
    trim(cache, 1)
    assert left(cache) == ""
    assert not hold(folder)


def test_what_is_another_users_holds_up_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, theirs = os.open, cache / "tokens" / f"{'a' * 64}.safetensors"

    def refuse(path: Path, *rest: int, **more: int) -> int:
        if path == theirs:
            raise PermissionError(errno.EACCES, "not yours", str(path))
        return opened(path, *rest, **more)

    monkeypatch.setattr(os, "open", refuse)  # the tests may run as root
    trim(cache, 600)
    assert left(cache) == "ad"


def test_what_others_keep_there_is_left_alone(cache: Path) -> None:
    for name in ("tokens/notes.txt", "models/big.safetensors"):
        entry(cache, name, 5000, 1000)
    trim(cache, 1)
    assert sorted(path.name for path in cache.rglob("*") if path.is_file()) == ["big.safetensors", "notes.txt"]


def test_without_a_limit_a_fifth_of_the_disk_is(cache: Path, tmp_path: Path) -> None:
    trim(cache, 0)
    assert left(cache) == "abcd"
    trim(tmp_path / "nowhere", 0)
