"""What a client makes of a model or a file that it was given: whose path it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from mvprune.cli.shared.jobfile import beside
from mvprune.spec.messages import file, reference

SCHEMES = ("server:/models/x", f"upload:{'0' * 64}/x", "s3://bucket/x")


@pytest.mark.parametrize("given", SCHEMES)
def test_what_says_where_it_is_stays(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if there is a file of that name here."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / given).parent.mkdir(parents=True)
    (tmp_path / given).touch()
    assert reference(given) == file(given) == given
    assert beside(tmp_path, "model", given) == beside(tmp_path, "train", given) == given


@pytest.mark.parametrize("given", ["server:/models/x", "upload:x/y"])
def test_a_path_object_is_a_path_of_this_machine(given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert reference(Path(given)) == file(Path(given)) == str(tmp_path / given)


def test_names_stay_unless_there_is_such_a_folder_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert reference("tiny-bert") == "tiny-bert"
    (tmp_path / "tiny-bert").mkdir()
    assert reference("tiny-bert") == str(tmp_path / "tiny-bert")
    assert file("") == ""
