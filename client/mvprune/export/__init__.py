"""An artifact in the formats of others.

export("out/", "dense/", to="dense")   # a plain Hugging Face folder: from_pretrained, with no package of ours
export("out/", "onnx/", to="onnx")     # model.onnx, checked with onnxruntime against torch
export("out/", "csr/", to="csr")       # one scipy .npz for every pruned weight
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from mvprune.artifact.card import CARD_FILE
from mvprune.artifact.errors import MissingExtra
from mvprune.artifact.manifest import WEIGHTS_FILE, verify

__all__ = ["FORMATS", "export"]

FORMATS = ("dense", "onnx", "csr")


def export(artifact: str | Path, folder: str | Path, *, to: str, base: str | Path | None = None) -> None:
    """Writes an artifact's model in another format.

    Args:
        artifact: the artifact's folder; it is verified.
        folder: a new or empty folder.
        to: one of `FORMATS`.
        base: the base model's folder, for a delta artifact.

    Raises:
        ValueError: `to` is not one of `FORMATS`, or the folder is not empty.
        ArtifactError: the artifact is not valid, or the exported model does not compute what torch does.
        MissingExtra: a package is missing; the text says how to install it.
    """
    if to not in FORMATS:
        raise ValueError(f"to: {to!r} given; one of {', '.join(FORMATS)} is allowed")
    artifact, folder = Path(artifact), Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"folder: {folder} is not a new or empty folder")
    manifest = verify(artifact)
    try:
        write: Callable[[Path, Path, Path | None], None] = import_module(f"mvprune.export.{to}").write
    except ModuleNotFoundError as error:
        raise MissingExtra(f"export to {to} needs the package {error.name}: pip install 'mvprune[export]'") from error
    folder.mkdir(parents=True, exist_ok=True)
    write(artifact, folder, None if base is None else Path(base))
    for file in manifest.files:
        target = folder / file.path
        if to != "csr" and file.path not in (WEIGHTS_FILE, CARD_FILE) and not target.exists():  # the tokenizer's
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(artifact / file.path, target)
