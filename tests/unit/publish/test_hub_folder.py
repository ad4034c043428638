"""A folder in the layout of a Hub repository opens as such repositories do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoModelForSequenceClassification

from mvprune import load
from mvprune.artifact import ArtifactError, Base, verify
from mvprune.publish import hub, write_hub_folder

Make = Callable[..., tuple[Any, Path]]
_OPEN = """
import sys, torch
from transformers import AutoModelForSequenceClassification
model = AutoModelForSequenceClassification.from_pretrained(sys.argv[1])
torch.save(model.state_dict(), sys.argv[2])
try:
    AutoModelForSequenceClassification.from_pretrained(sys.argv[3])
except OSError as error:
    assert "no file named model.safetensors" in str(error), error
else:
    raise AssertionError("an artifact has no weights that transformers knows")
assert "mvprune" not in sys.modules
"""


def opened(folder: Path) -> dict[str, torch.Tensor]:
    """What transformers makes of a folder, with the format registered."""
    import mvprune.hf  # noqa: F401

    state: dict[str, torch.Tensor] = AutoModelForSequenceClassification.from_pretrained(folder).state_dict()
    return state


def opened_without_us(folder: Path, artifact: Path) -> dict[str, torch.Tensor]:
    """The same in a process that knows nothing of this package, where the artifact is an error and no broken model."""
    state = folder.with_name("state.pt")
    subprocess.run([sys.executable, "-c", _OPEN, folder, state, artifact], check=True)
    loaded: dict[str, torch.Tensor] = torch.load(state)
    return loaded


@pytest.mark.parametrize("dense", [False, True])
def test_a_folder_that_cannot_be_written(pruned_model: Make, tmp_path: Path, dense: bool) -> None:
    _, artifact = pruned_model("BertForSequenceClassification")
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match=r"file/repository cannot be written \(File exists"):
        write_hub_folder(artifact, tmp_path / "file" / "repository", dense=dense)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_transformers_opens_it(pruned_model: Make, tmp_path: Path, form: str) -> None:
    model, artifact = pruned_model("BertForSequenceClassification")
    folder = tmp_path / "some" / "repository"
    write_hub_folder(artifact, folder, dense=form == "dense")
    assert [path.name for path in folder.parent.iterdir()] == ["repository"], "nothing is left beside it"
    state = opened(folder) if form == "sparse" else opened_without_us(folder, artifact)
    assert state.keys() == model.state_dict().keys()
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    card = ModelCard.load(folder / "README.md")
    assert card.data.library_name == ("transformers" if form == "dense" else "mvprune")
    assert card.data.eval_results[0].metric_value == 0.75
    assert "*.safetensors filter=lfs diff=lfs merge=lfs -text\n" in (folder / ".gitattributes").read_text()
    assert (folder / "report.html").read_bytes() == (artifact / "report.html").read_bytes()
    assert (folder / "vocab.txt").exists()
    if form == "sparse":
        assert verify(folder) == verify(artifact)
        assert load(folder).state_dict().keys() == state.keys()


def test_large_files_are_gits_lfs(pruned_model: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, artifact = pruned_model("BertModel")
    monkeypatch.setattr(hub, "_LARGE", (artifact / "report.html").stat().st_size)
    write_hub_folder(artifact, tmp_path / "repository")
    lines = (tmp_path / "repository" / ".gitattributes").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["*.safetensors", "report.html"]


def test_a_delta_is_published_dense(pruned_model: Make, tmp_path: Path) -> None:
    model, _ = pruned_model("BertForSequenceClassification")
    model.save_pretrained(tmp_path / "base")
    base = tmp_path / "base"
    model, artifact = pruned_model("BertForSequenceClassification", base=Base(base), folder="delta")
    with pytest.raises(ArtifactError, match="publish it dense"):
        write_hub_folder(artifact, tmp_path / "repository")
    assert not (tmp_path / "repository").exists()
    write_hub_folder(artifact, tmp_path / "repository", dense=True, base=base)
    state = opened(tmp_path / "repository")
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())


def test_what_is_there_stays(pruned_model: Make, tmp_path: Path) -> None:
    _, artifact = pruned_model("BertModel")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("mine")
    with pytest.raises(ArtifactError, match="must be a new or empty folder"):
        write_hub_folder(artifact, tmp_path / "mine")
    (artifact / "weights.safetensors").write_bytes(b"other")
    with pytest.raises(ArtifactError, match=r"weights\.safetensors"):
        write_hub_folder(artifact, tmp_path / "new")
    assert not (tmp_path / "new").exists()
