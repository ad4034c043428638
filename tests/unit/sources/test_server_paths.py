"""server:/PATH: a path on the server, which no path of a client's machine is mistaken for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mvprune.sources.references import InvalidReference, Roots, check_new, resolve_model, resolve_path


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    for name in ("models", "extra", "outside"):
        (tmp_path / name).mkdir()
    return Roots(models=tmp_path / "models", allowed=(tmp_path / "extra",))


def make_model(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")


def test_a_path_on_the_server_is_what_the_same_path_is_in_older_jobs(roots: Roots, tmp_path: Path):
    make_model(tmp_path / "extra" / "mine")
    for resolve in (resolve_path, resolve_model):
        assert resolve(f"server:{tmp_path}/extra/mine", roots) == tmp_path / "extra" / "mine"
        assert resolve(f"{tmp_path}/extra/mine", roots) == tmp_path / "extra" / "mine"
        with pytest.raises(InvalidReference, match=f"allowed folders .*, got 'server:{tmp_path}/outside"):
            resolve(f"server:{tmp_path}/outside", roots)


@pytest.mark.parametrize("ref", ["server:team/tiny", "server:gpt2", "server:", "server://a", "server:../x"])
def test_a_model_on_the_server_is_no_name(ref: str, roots: Roots, tmp_path: Path):
    make_model(tmp_path / "models" / "team" / "tiny")
    with pytest.raises(InvalidReference, match="must be server:/PATH"):
        resolve_model(ref, roots)


def test_a_new_job_says_that_a_path_is_on_the_server():
    for ref in ("server:/data/x", "bert-base-uncased", "owner/name", "s3://bucket/x", f"upload:{'0' * 64}/m"):
        check_new(ref)
    said = (
        "the path must begin with 'server:', got '/data/x'; give server:/data/x for a path on the server; a file or "
        "folder of its own machine is sent by the client"
    )
    with pytest.raises(InvalidReference, match=f"^{re.escape(said)}$"):
        check_new("/data/x")
    with pytest.raises(InvalidReference, match="at most 512 characters"):
        check_new("/" * 513)
