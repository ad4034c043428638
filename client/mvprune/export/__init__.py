"""Writes an artifact in other formats.

    export("out/", "dense/", to="dense")  # a Hugging Face folder for from_pretrained without mvprune
    export("out/", "onnx/", to="onnx")  # ONNX files, checked with onnxruntime against torch
    export("out/", "int8/", to="onnx", quantize="int8")  # for onnxruntime, without the gain of the zeros
    export("out/", "csr/", to="csr")  # one scipy .npz for every pruned weight

The target folder must be new or empty.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType

from mvprune.artifact.card import CARD_FILE, SPARSE, has_zeros, speed_in_words
from mvprune.artifact.errors import ArtifactError, needs
from mvprune.artifact.files import check_free, give_usual_modes
from mvprune.artifact.history import HISTORY_FILE
from mvprune.artifact.manifest import Manifest, verify
from mvprune.artifact.report import REPORT_FILE
from mvprune.common.suggestions import must_be_one_of
from mvprune.common.units import size as size_text
from mvprune.export.written import Written
from mvprune.sources.model_config import WEIGHTS_FILE

__all__ = ["FORMATS", "Exported", "export"]

FORMATS = ("dense", "onnx", "csr")

_ABOUT_THE_ARTIFACT = {WEIGHTS_FILE, CARD_FILE, HISTORY_FILE, REPORT_FILE}


@dataclass(frozen=True)
class Exported:
    """The files of an export.

    Attributes:
        folder: the target folder.
        to: the format.
        files: path → bytes.
        difference: the largest difference of the ONNX outputs to torch's, as a fraction of the largest output; None for
            the other formats, which contain the same numbers.
        tolerance: the largest allowed difference; None: there is none.
        notes: what the format cannot have, and how it was written instead, a sentence each.
    """

    folder: Path
    to: str
    files: dict[str, int]
    difference: float | None = None
    tolerance: float | None = None
    notes: tuple[str, ...] = ()


def export(
    artifact: str | Path,
    folder: str | Path,
    *,
    to: str,
    base: str | Path | None = None,
    quantize: str | None = None,
    on_progress: Callable[[str], None] = lambda doing: None,
) -> Exported:
    """Writes an artifact's model in another format.

    Args:
        artifact: the artifact's folder; it is verified.
        folder: a new or empty folder; an error leaves it empty.
        to: one of `FORMATS`.
        base: the base model's folder, for a delta artifact; by default it is searched as `mvprune.load` does.
        quantize: int8, for ONNX: weights and inputs of products in int8; None: fp32.
        on_progress: receives a short description of each step.

    Raises:
        ValueError: `to` is not one of `FORMATS`, or cannot be quantized so.
        ArtifactError: the folder is not empty or cannot be written, the artifact is not valid, or the exported model
            differs from torch.
        MissingExtra: a package is missing; the message says how to install it.
    """
    if to not in FORMATS:
        raise ValueError(f"to {must_be_one_of(FORMATS, to)}")
    if quantize is not None and (quantize != "int8" or to != "onnx"):
        raise ValueError(f"quantize must be int8, with the format onnx, or unset, got {quantize!r} with {to}")
    artifact, folder = Path(artifact), Path(folder)
    check_free(folder)
    writer = _writer(to)
    on_progress("verifying the artifact")
    manifest = verify(artifact)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".exporting-", dir=folder) as scratch:
            staged = Path(scratch)
            options = {} if quantize is None else {"quantize": quantize}
            written: Written = writer.write(artifact, staged, base, on_progress, **options)
            if to != "csr":
                _copy_tokenizer(manifest, artifact, staged)
            give_usual_modes(staged)
            files = {path.relative_to(staged).as_posix(): path for path in staged.rglob("*") if path.is_file()}
            sizes = {name: path.stat().st_size for name, path in sorted(files.items())}
            for path in list(staged.iterdir()):
                path.rename(folder / path.name)
    except OSError as error:
        raise ArtifactError(f"{error.filename or folder}: {error.strerror or error}") from error
    notes = written.notes if to == "csr" else (*written.notes, _not_kept(manifest, artifact, to, sizes))
    if manifest.activations != "fp32" and quantize is None:
        own = manifest.activations
        notes += (f"{to} has no rounding of activations: the metrics in the manifest are those of {own} activations",)
    return Exported(folder, to, sizes, written.difference, written.tolerance, notes)


def _not_kept(manifest: Manifest, artifact: Path, to: str, sizes: Mapping[str, int]) -> str:
    """That a format has not the size of the artifact, nor the speed of its zeros, with both figures where they are
    known."""
    weights = sum(size for name, size in sizes.items() if name.endswith((".safetensors", ".onnx", ".onnx_data")))
    lost = f"{size_text(weights)}, the artifact's {size_text(manifest.accounting.sparse_bytes)}"
    if not has_zeros(manifest):
        return f"{to} has not the size of the artifact: its weights take {lost}"
    benchmark = f"mvpctl benchmark {shlex.quote(str(artifact))}"
    speed = "; ".join(speed_in_words(manifest.metrics)) or f"`{benchmark}` measures both speeds"
    return (
        f"{to} has the zeros, but not the size and the speed of the sparse model: its weights take {lost}; "
        f"`mvprune.load({str(artifact)!r}, {SPARSE})` runs the sparse model; {speed}"
    )


def _writer(to: str) -> ModuleType:
    """The module of a format: its ``write(artifact, folder, base, on_progress)`` returns a `Written`."""
    with needs(f"export to {to}", "export"):
        return import_module(f"mvprune.export.{to}")


def _copy_tokenizer(manifest: Manifest, artifact: Path, folder: Path) -> None:
    for file in manifest.files:
        target = folder / file.path
        if file.path not in _ABOUT_THE_ARTIFACT and not target.exists():  # the configuration is there already
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(artifact / file.path, target)
