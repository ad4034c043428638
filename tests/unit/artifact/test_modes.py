"""Files that are made for others have the mode that the umask gives, whatever library wrote them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mvprune.export import FORMATS, export
from mvprune.publish import write_hub_folder

Made = Callable[..., tuple[Any, Path]]
TARGETS: dict[str, Callable[[Path, Path], object]] = {
    **{to: lambda artifact, folder, to=to: export(artifact, folder, to=to) for to in FORMATS},
    "hub-folder": lambda artifact, folder: write_hub_folder(artifact, folder),
    "hub-folder --dense": lambda artifact, folder: write_hub_folder(artifact, folder, dense=True),
}


@pytest.fixture
def umask() -> Iterator[int]:
    """Neither the usual one nor that of temporary files: a file that has a mode of its own is seen."""
    before = os.umask(0o027)
    yield 0o027
    os.umask(before)


def modes(folder: Path) -> set[tuple[bool, str]]:
    """Of the folder and all in it: whether it is a folder, and its mode."""
    return {(path.is_dir(), oct(stat.S_IMODE(path.stat().st_mode))) for path in (folder, *folder.rglob("*"))}


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_exports_and_published_folders(pruned_model: Made, tmp_path: Path, umask: int, target: str) -> None:
    _, artifact = pruned_model("BertForSequenceClassification")
    assert modes(artifact) == {(True, oct(0o777 & ~umask)), (False, oct(0o666 & ~umask))}
    TARGETS[target](artifact, tmp_path / "made")
    assert modes(tmp_path / "made") == {(True, oct(0o777 & ~umask)), (False, oct(0o666 & ~umask))}


def test_an_artifact_whose_tokenizer_writes_through_temporary_files(
    save: Callable[..., Path], umask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.unit.artifact.saved_models import Tokenizer, bert, prune

    def private(tokenizer: Tokenizer, folder: Path) -> None:
        (folder / "vocab.txt").touch(mode=0o600)

    monkeypatch.setattr(Tokenizer, "save_pretrained", private)
    model = bert()
    assert modes(save(model, prune(model))) == {(True, oct(0o777 & ~umask)), (False, oct(0o666 & ~umask))}
