"""A folder in the layout of a repository of the Hugging Face Hub."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from mvprune.artifact.card import CARD_FILE, model_card
from mvprune.artifact.errors import ArtifactError
from mvprune.artifact.files import check_free
from mvprune.artifact.header import open_header
from mvprune.artifact.history import HISTORY_FILE
from mvprune.artifact.manifest import MANIFEST_FILE, Manifest, read_manifest, verify
from mvprune.artifact.report import REPORT_FILE
from mvprune.sources.model_config import WEIGHTS_FILE

CONFIG_FILE = "config.json"

_LARGE = 10_000_000  # bytes; from there on the Hub wants LFS


def write_hub_folder(
    artifact: str | Path, folder: str | Path, *, dense: bool = False, base: str | Path | None = None
) -> None:
    """Writes a folder that can be uploaded to the Hub. It appears when it is complete.

    A sparse folder is still the artifact: `mvprune.load` loads it, and so does ``AutoModel….from_pretrained`` after
    ``import mvprune.hf``. A dense folder needs only transformers.

    Args:
        artifact: the artifact's folder; it is verified.
        folder: a new or empty folder.
        dense: plain weights in fp32, zeros included; needs ``mvprune[export]``.
        base: the base model's folder, for a delta artifact.

    Raises:
        ArtifactError: the artifact is not valid, or it is a delta and `dense` is false; or the folder is not empty or
            not writable.
        MissingExtra: a package is missing; the message says how to install it.
    """
    artifact, folder = Path(artifact), Path(folder)
    check_free(folder)
    manifest = verify(artifact)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
            staged = Path(scratch) / "repository"
            if dense:
                _write_dense(artifact, staged, base)
            else:
                _copy(artifact, manifest, staged)
            (staged / ".gitattributes").write_text(_attributes(staged), encoding="utf-8")
            if folder.exists():
                folder.rmdir()
            staged.rename(folder)
    except OSError as error:
        raise ArtifactError(f"{folder} cannot be written ({error.strerror or error})") from error


def _copy(artifact: Path, manifest: Manifest, staged: Path) -> None:
    _refuse_delta(artifact)
    for path in [*(file.path for file in manifest.files), MANIFEST_FILE]:
        (staged / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(artifact / path, staged / path)


def _write_dense(artifact: Path, staged: Path, base: str | Path | None) -> None:
    from mvprune.export import export  # as few need it

    notes = export(artifact, staged, to="dense", base=base).notes
    architecture = json.loads((staged / CONFIG_FILE).read_bytes())["architectures"][0]
    manifest = read_manifest(artifact)
    info = replace(manifest, notes=(*manifest.notes, *notes))
    card = model_card(info, architecture, "dense")
    (staged / CARD_FILE).write_text(card, encoding="utf-8")
    for name in (HISTORY_FILE, REPORT_FILE):
        shutil.copyfile(artifact / name, staged / name)


def _refuse_delta(artifact: Path) -> None:
    """Users of the repository may not have the base model."""
    if open_header(artifact / WEIGHTS_FILE).base:
        raise ArtifactError(
            f"{artifact} must not be a delta artifact, because a repository has no base model; publish it dense, "
            "with its base"
        )


def _attributes(folder: Path) -> str:
    """.gitattributes: what Git keeps in LFS."""
    files = (path for path in folder.rglob("*") if path.is_file())
    large = sorted(
        path.relative_to(folder).as_posix()
        for path in files
        if path.suffix != ".safetensors" and path.stat().st_size >= _LARGE
    )
    return "".join(f"{pattern} filter=lfs diff=lfs merge=lfs -text\n" for pattern in ["*.safetensors", *large])
