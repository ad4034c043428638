"""References from clients: roots, paths under them, names of models."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mvprune.sources import references
from mvprune.sources.model_folder import inspect_model
from mvprune.sources.references import (
    HubModel,
    InvalidReference,
    Roots,
    check_hub_id,
    check_revision,
    resolve_model,
    resolve_path,
)


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    for name in ("models", "data", "extra", "outside"):
        (tmp_path / name).mkdir()
    return Roots(models=tmp_path / "models", data=tmp_path / "data", allowed=(tmp_path / "extra",))


# Roots


def test_roots_hold_models_and_data(roots: Roots, tmp_path: Path):
    assert set(roots.allowed) == {tmp_path / "models", tmp_path / "data", tmp_path / "extra"}
    assert Roots(models=tmp_path, allowed=(tmp_path,)).allowed == (tmp_path,)
    assert Roots().allowed == ()


def test_roots_are_resolved(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    roots = Roots(models=tmp_path / "link", allowed=(tmp_path / "real" / ".." / "real",))
    assert roots.models == tmp_path / "real"
    assert roots.allowed == (tmp_path / "real",)


@pytest.mark.parametrize("some", [{"models", "data", "extra"}, {"models"}, {"extra"}, set()])
def test_roots_survive_the_environment(some: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    roots = Roots(
        models=tmp_path / "models" if "models" in some else None,
        data=tmp_path / "data" if "data" in some else None,
        allowed=(tmp_path / "extra", tmp_path / "more") if "extra" in some else (),
        private=(tmp_path / "home, with: all", tmp_path / "key") if "data" in some else (),
        discreet="data" in some,
    )
    for name, value in roots.to_environment().items():
        monkeypatch.setenv(name, value)
    assert Roots.from_environment() == roots


def test_unset_variables_give_no_roots(monkeypatch: pytest.MonkeyPatch):
    for name in ("MVPRUNE_MODELS", "MVPRUNE_DATA", "MVPRUNE_ROOTS"):
        monkeypatch.delenv(name, raising=False)
    assert Roots.from_environment() == Roots()


def test_a_root_with_the_separator_in_its_name_is_refused(tmp_path: Path):
    with pytest.raises(InvalidReference, match="separates roots"):
        Roots(models=tmp_path / "a:b").to_environment()


# Paths


def test_a_path_under_a_root_is_resolved(roots: Roots, tmp_path: Path):
    assert resolve_path(f"{tmp_path}/data/./x/../train.tsv", roots) == tmp_path / "data" / "train.tsv"
    assert resolve_path(f"{tmp_path}/extra", roots) == tmp_path / "extra"


@pytest.mark.parametrize("path", ["/outside/x", "/data/../outside/x", "/data-2/x", "/data/../../etc/passwd", ""])
def test_a_path_outside_the_roots_names_the_roots_and_the_way(path: str, roots: Roots, tmp_path: Path):
    with pytest.raises(InvalidReference) as error:
        resolve_path(f"{tmp_path}{path}", roots)
    text = str(error.value)
    assert f"{tmp_path}{path}" in text
    assert all(str(root) in text for root in roots.allowed)
    assert "--root" in text
    assert "MVPRUNE_ROOTS" in text


def test_a_link_that_leads_out_is_refused(roots: Roots, tmp_path: Path):
    (tmp_path / "data" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "data" / "inner").symlink_to(tmp_path / "extra")
    (tmp_path / "models" / "out").symlink_to(tmp_path / "outside")
    with pytest.raises(InvalidReference, match="must be in one of the allowed folders"):
        resolve_path(f"{tmp_path}/data/link/x", roots)
    with pytest.raises(InvalidReference, match="must be in one of the allowed folders"):
        resolve_model("out", roots)
    assert resolve_path(f"{tmp_path}/data/inner/x", roots) == tmp_path / "extra" / "x"


def test_a_loop_of_links_is_refused(roots: Roots, tmp_path: Path):
    (tmp_path / "data" / "a").symlink_to(tmp_path / "data" / "b")
    (tmp_path / "data" / "b").symlink_to(tmp_path / "data" / "a")
    with pytest.raises(InvalidReference):
        inspect_model(resolve_path(f"{tmp_path}/data/a", roots))


def test_without_roots_no_path_is_allowed(tmp_path: Path):
    with pytest.raises(InvalidReference, match=r"allowed folders \(there are none\), got"):
        resolve_path(str(tmp_path), Roots())


@pytest.mark.parametrize("scheme", ["", "server:"])
@pytest.mark.parametrize("path", ["train.tsv", "./train.tsv", "../train.tsv", "~/train.tsv"])
def test_a_relative_path_is_refused(path: str, scheme: str, roots: Roots):
    rule = f"the path must be server:/PATH, absolute, got '{scheme}{path}'; a file or folder of its own machine is sent"
    with pytest.raises(InvalidReference, match=re.escape(rule)):
        resolve_path(f"{scheme}{path}", roots)


@pytest.mark.parametrize("resolve", [resolve_path, resolve_model])
@pytest.mark.parametrize(
    ("ref", "found"),
    [
        ("", "empty"),
        ("/a\0b", "printable"),
        ("/a\nb", "printable"),
        ("/a\x1b[2J", "printable"),
        ("/\ud800", "only printable"),
        ("/" + "a" * 512, "at most 512 characters, got 513"),
    ],
)
def test_text_that_is_no_reference_is_refused(resolve, ref: str, found: str, roots: Roots):
    with pytest.raises(InvalidReference, match=found):
        resolve(ref, roots)


# Models


def test_a_model_is_a_path_a_name_or_a_hub_id(roots: Roots, tmp_path: Path):
    (tmp_path / "models" / "team" / "tiny").mkdir(parents=True)
    assert resolve_model("team/tiny", roots) == tmp_path / "models" / "team" / "tiny"
    assert resolve_model("team", roots) == tmp_path / "models" / "team"
    assert resolve_model(f"{tmp_path}/extra/mine", roots) == tmp_path / "extra" / "mine"
    assert resolve_model("team/small", roots) == HubModel("team/small")
    assert resolve_model("bert-base-uncased", roots) == HubModel("bert-base-uncased")
    assert resolve_model("bert-base-uncased", Roots()) == HubModel("bert-base-uncased")


def test_a_file_under_the_models_root_is_no_model(roots: Roots, tmp_path: Path):
    (tmp_path / "models" / "notes").write_text("x")
    with pytest.raises(InvalidReference, match=r"got 'notes'$"):
        resolve_model("notes", roots)
    (tmp_path / "models" / "gpt2").write_text("x")
    assert resolve_model("gpt2", roots) == HubModel("gpt2")


@pytest.mark.parametrize("ref", ["./x", "../x", ".", "..", "~", "~/models/x", ".hidden"])
def test_a_relative_model_path_is_refused_with_the_way(ref: str, roots: Roots):
    with pytest.raises(InvalidReference, match="a name under the models root or a hub id, got the relative path"):
        resolve_model(ref, roots)


@pytest.mark.parametrize(
    "ref", ["a/b/c", "a/../b", "a/..", "a..b", "a--b", "-a", "a/", "a//b", "a b", "é", "a\\b", "a:b"]
)
def test_a_name_that_the_hub_does_not_allow_is_refused(ref: str, roots: Roots):
    with pytest.raises(InvalidReference, match="must be that of a folder on this machine or a hub id"):
        resolve_model(ref, roots)


@pytest.mark.parametrize(
    ("given", "meant"),
    [("bert-tiny", "tiny-bert"), ("minilm", "team/MiniLM"), ("tinybert", "tiny-bert"), ("xyz", None), ("bert", None)],
)
def test_a_name_without_an_owner_that_nobody_knows(given: str, meant: str | None, roots: Roots, tmp_path: Path):
    for name in ("tiny-bert", "team/MiniLM"):
        model_at(tmp_path / "models" / name)
    with pytest.raises(InvalidReference) as caught:
        resolve_model(given, roots)
    text = str(caught.value)
    assert "name under the models root (--models) or a hub id with its owner (owner/name)" in text
    assert text.endswith(f"got {given!r}; did you mean {meant}?" if meant else f"got {given!r}")


@pytest.mark.parametrize(
    "name",
    [
        *(
            "bert-base-german-cased",
            "bert-large-uncased-whole-word-masking",
            "albert-base-v2",
            "camembert-base",
            "ctrl",
        ),
        *(
            "camembert-base",
            "distilbert-base-cased",
            "distilgpt2",
            "distilroberta-base",
            "gpt2",
            "gpt2-medium",
            "openai-gpt",
        ),
        *("roberta-large-mnli", "t5-11b", "t5-small", "transfo-xl-wt103", "xlm-roberta-base", "xlnet-base-cased"),
    ],
)
def test_the_hubs_old_names_without_an_owner_stay(name: str, roots: Roots):
    assert resolve_model(name, roots) == HubModel(name)


def test_another_hub_may_have_any_name(roots: Roots, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.example")
    assert resolve_model("bert-tiny", roots) == HubModel("bert-tiny")


def test_hub_ids():
    for name in ("gpt2", "google-bert/bert-base-uncased", "nyu-mll/glue", "t5-v1.1", "a_b/C.d", "a" * 96):
        assert check_hub_id(name) == name
    with pytest.raises(InvalidReference):
        check_hub_id("a" * 97)


@pytest.mark.slow
@given(st.text(max_size=40))
def test_any_text_gives_a_model_or_an_error(ref: str):
    roots = Roots(models=Path("/nonexistent/models"))
    try:
        found = resolve_model(ref, roots)
    except InvalidReference:
        return
    assert isinstance(found, HubModel) or roots.hold(found)


# Links inside a model's folder


def model_at(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        (folder / name).write_text("{}")
    return folder


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "extra/chat_template.jinja"])
def test_a_link_in_a_model_folder_must_not_lead_outside(name: str, roots: Roots, tmp_path: Path):
    folder = model_at(tmp_path / "models" / "mine")
    (tmp_path / "outside" / "secret").write_text("{}")
    link = folder / name
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(tmp_path / "outside" / "secret")
    for reference in ("mine", str(folder)):
        with pytest.raises(
            InvalidReference, match=r"must be in the allowed folders, .* a symbolic link that leads outside"
        ) as caught:
            resolve_model(reference, roots)
        assert "secret" not in str(caught.value)


def test_links_through_folders_are_followed(roots: Roots, tmp_path: Path):
    folder = model_at(tmp_path / "models" / "mine")
    (tmp_path / "extra" / "more").mkdir()
    (folder / "more").symlink_to(tmp_path / "extra" / "more")
    (tmp_path / "extra" / "more" / "round").symlink_to(folder)
    assert resolve_model("mine", roots) == folder
    (tmp_path / "extra" / "more" / "out").symlink_to(tmp_path / "outside")
    with pytest.raises(InvalidReference, match="leads outside"):
        resolve_model("mine", roots)


def test_a_link_that_stays_inside_is_fine(roots: Roots, tmp_path: Path):
    folder = model_at(tmp_path / "models" / "mine")
    (folder / "model.safetensors").unlink()
    (tmp_path / "extra" / "weights").write_text("{}")
    (folder / "model.safetensors").symlink_to(tmp_path / "extra" / "weights")
    assert resolve_model("mine", roots) == folder


def test_a_link_in_a_model_folder_that_leads_in_a_circle(roots: Roots, tmp_path: Path):
    folder = model_at(tmp_path / "models" / "mine")
    (folder / "loop").symlink_to(folder / "loop")
    with pytest.raises(InvalidReference, match="in a circle"):
        resolve_model("mine", roots)


def test_a_folder_of_too_many_files_is_no_model(roots: Roots, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model_at(tmp_path / "models" / "mine")
    monkeypatch.setattr(references, "MAX_FILES", 2)
    with pytest.raises(InvalidReference, match="at most 2 files"):
        resolve_model("mine", roots)


# URLs, revisions


@pytest.mark.parametrize("ref", ["s3://bucket/model", "https://host/model", "file:///etc/passwd", "gs://a/b"])
def test_urls_are_refused_in_so_many_words(ref: str, roots: Roots):
    for check in (resolve_model, resolve_path):
        with pytest.raises(InvalidReference, match="s3://BUCKET/PATH, got the URL"):
            check(ref, roots)
    with pytest.raises(InvalidReference, match="got the URL"):
        check_hub_id(ref)


@pytest.mark.parametrize("revision", ["main", "v1.0", "refs/pr/3", "a" * 40, "feature/x-y_z", "1"])
def test_revisions(revision: str):
    assert check_revision(revision) == revision


@pytest.mark.parametrize(
    "revision", ["", "../x", "a..b", "-x", "/a", "a/", "a//b", "a b", "é", "a\n", "a\x00", "a" * 201]
)
def test_what_cannot_be_a_revision(revision: str):
    with pytest.raises(InvalidReference, match="must be a branch, a tag or a commit"):
        check_revision(revision)


# What is private


@pytest.fixture
def guarded(tmp_path: Path) -> Roots:
    """A root that holds a private folder, a private file, and one that is private behind a link."""
    root = tmp_path / "root"
    (root / "home/store").mkdir(parents=True)
    for name in ("home/token", "home/store/blob", "tls.key", "renewed.key", "open.tsv"):
        (root / name).write_text("secret\n")
    (root / "current.key").symlink_to(root / "renewed.key")
    private = (root / "home", root / "tls.key", root / "current.key", root / "not-there-yet")
    return Roots(allowed=(root,), private=private)


@pytest.mark.parametrize(
    "name", ["home", "home/token", "home/store/blob", "tls.key", "current.key", "renewed.key", "./home/../tls.key"]
)
def test_what_is_private_is_in_no_root(name: str, guarded: Roots):
    (root,) = guarded.allowed
    assert resolve_path(str(root / "open.tsv"), guarded) == root / "open.tsv"
    with pytest.raises(InvalidReference, match="none of the server's own files, which are never read, got"):
        resolve_path(f"{root}/{name}", guarded)
    (root / "link").symlink_to(root / name)
    with pytest.raises(InvalidReference, match="never read"):
        resolve_path(str(root / "link"), guarded)


@pytest.mark.parametrize("name", ["home/token", "tls.key", "renewed.key"])
def test_a_hard_link_to_a_private_file_is_refused(name: str, guarded: Roots):
    (root,) = guarded.allowed
    (root / "train.tsv").hardlink_to(root / name)
    (root / "copy.tsv").hardlink_to(root / "open.tsv")
    with pytest.raises(InvalidReference, match="never read"):
        resolve_path(str(root / "train.tsv"), guarded)
    assert resolve_path(str(root / "copy.tsv"), guarded), "a file with two names is no secret"


def test_a_private_file_that_is_made_or_replaced_later_is_private(guarded: Roots):
    (root,) = guarded.allowed
    (root / "not-there-yet").write_text("secret")
    (root / "newer.key").write_text("secret")
    (root / "current.key").unlink()
    (root / "current.key").symlink_to(root / "newer.key")
    for name in ("not-there-yet", "newer.key"):
        with pytest.raises(InvalidReference, match="never read"):
            resolve_path(str(root / name), guarded)


def test_a_model_folder_with_a_private_file_in_it_is_refused(guarded: Roots):
    (root,) = guarded.allowed
    with pytest.raises(
        InvalidReference, match=r"none of the server's own, which are never read, got '.*/(home|.*\.key)'"
    ):
        resolve_model(str(root), guarded)
    (root / "model").mkdir()
    (root / "model/vocab.txt").hardlink_to(root / "home/token")
    with pytest.raises(InvalidReference, match=r"none of the server's own, .* got '.*vocab.txt'"):
        resolve_model(str(root / "model"), guarded)


def test_discreet_roots_show_themselves_to_nobody(guarded: Roots, tmp_path: Path):
    (root,) = guarded.allowed
    discreet = replace(guarded, discreet=True, models=root / "models", data=root / "data")
    for path in ("/etc/passwd", str(root / "home/token")):
        with pytest.raises(InvalidReference) as caught:
            resolve_path(path, discreet)
        text = f"the path must be in a folder that this server allows, got {path!r}; ask its operator for another"
        assert str(caught.value) == text, "a private file is not told from any other"
    assert discreet.describe(f"{root}/models/a/config.json: bad") == "a/config.json: bad"
    assert discreet.describe(f"got 'server:{root}/data/x'") == "got 'x'"
    assert guarded.describe(f"{root}/models/a: bad") == f"{root}/models/a: bad"


def test_models_of_the_hub_have_a_revision_and_must_be_allowed() -> None:
    commit = "0" * 40
    assert resolve_model(f"hf://acme/small@{commit}", Roots()) == HubModel("acme/small", commit)
    allowed = Roots(hub=("acme/*", "gpt2"))
    assert resolve_model("hf://acme/small", allowed) == HubModel("acme/small")
    assert resolve_model("gpt2", allowed) == HubModel("gpt2")
    for ref in ("hf://other/small", "other/small", "hf://acme2/small"):
        with pytest.raises(InvalidReference, match=r"of the Hub acme/\*, gpt2, got"):
            resolve_model(ref, allowed)
    with pytest.raises(InvalidReference, match="of the Hub none, got"):
        resolve_model("gpt2", Roots(hub=()))
