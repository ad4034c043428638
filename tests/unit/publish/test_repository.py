"""An artifact as a commit of a Hub repository, through huggingface_hub, to a stand-in of the Hub."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard
from tests.hub import Hub, running_hub
from tests.sealed import seal
from tests.sparse_artifacts import make_artifact

from mvprune.artifact import ModelSource, verify
from mvprune.artifact.card import model_card

Push = Callable[..., subprocess.CompletedProcess[str]]
MVPCTL = Path(sys.executable).with_name("mvpctl")
pytestmark = pytest.mark.slow


@pytest.fixture
def hub() -> Iterator[Hub]:
    with running_hub() as hub:
        yield hub


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    """An artifact of a model of the Hub."""
    folder = tmp_path / "artifact"
    manifest = make_artifact(folder, spec={"task": "sst2", "movement": {}})
    manifest = replace(manifest, model=ModelSource("me/base", "", manifest.model.sha256))
    (folder / "README.md").write_text(model_card(manifest, "BertForSequenceClassification"))
    seal(folder, manifest)
    return folder


@pytest.fixture
def push(hub: Hub, artifact: Path) -> Push:
    def run(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
        command = [MVPCTL, "push", str(artifact), "--to", "hub", "me/pruned", "-o", "json", *options]
        env = {**os.environ, **hub.environment, **environment}
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)

    return run


def _answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_it_is_one_commit_and_none_again(hub: Hub, push: Push, artifact: Path, tmp_path: Path) -> None:
    hub.add("me/base", license="apache-2.0")
    first = _answer(push("--private"))
    repository = hub.repositories["me/pruned"]
    assert repository.private
    assert [one.title for one in repository.branches["main"]] == [
        "initial commit",
        f"Artifact {verify(artifact).digest}, sparse",
    ]
    assert (first["new"], first["commit"]) == (True, repository.branches["main"][-1].id)
    assert first["url"] == f"{hub.address}/me/pruned/commit/{first['commit']}"
    again = _answer(push())
    assert (again["new"], again["commit"]) == (False, first["commit"])
    assert len(repository.branches["main"]) == 2

    folder = tmp_path / "repository"
    folder.mkdir()
    for name, data in repository.branches["main"][-1].files.items():
        (folder / name).write_bytes(data)
    assert verify(folder).layers == verify(artifact).layers, "it is an artifact"
    card = ModelCard.load(folder / "README.md").data
    assert (card.license, card.base_model, card.base_model_relation) == ("apache-2.0", "me/base", "finetune")
    assert "arxiv:2005.07683" in (card.tags or [])
    assert card.eval_results


def test_what_an_older_artifact_left_is_replaced_and_other_files_stay(hub: Hub, push: Push) -> None:
    old = hub.add("me/pruned").branches["main"][-1]
    old.files |= {"model.safetensors": b"old", "added_tokens.json": b"{}", "picture.png": b"mine"}
    _answer(push("--license", "mit"))
    files = hub.repositories["me/pruned"].branches["main"][-1].files
    assert "picture.png" in files
    assert not {"model.safetensors", "added_tokens.json"} & set(files)
    assert b'license: "mit"' in files["README.md"]


def test_branches_and_pull_requests(hub: Hub, push: Push) -> None:
    hub.add("me/pruned")
    made = _answer(push("--create-pr"))
    again = _answer(push("--create-pr"))
    assert (made["new"], again["new"]) == (True, False)
    assert made["url"] == again["url"] == f"{hub.address}/me/pruned/discussions/1"
    _answer(push("--revision", "three-percent"))
    branches = hub.repositories["me/pruned"].branches
    assert (len(branches["main"]), len(branches["three-percent"])) == (1, 2)


def test_what_the_hub_refuses_is_said(hub: Hub, push: Push) -> None:
    refused = push(HF_TOKEN="hf_wrong")
    assert refused.returncode == 1
    assert "HF_TOKEN must be a token that may write" in refused.stderr
    assert "hf_wrong" not in refused.stderr
    assert "Traceback" not in refused.stderr
    nowhere = push(HF_ENDPOINT="http://127.0.0.1:1")
    assert nowhere.returncode == 7, nowhere.stderr
    assert nowhere.stderr.startswith("error: the Hub: ")
