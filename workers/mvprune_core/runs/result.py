"""The result of a compression: the sparse model, what it measures, and where it comes from."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import nn

from mvprune.artifact import Accounting, Base, Coding, LayerCount, Manifest, ModelSource, ResultInfo, save_model
from mvprune.artifact.history import History
from mvprune_core.base.errors import CompressionError, Reason
from mvprune_core.models.loading import Loaded, Source
from mvprune_core.runs.spec import Spec
from mvprune_core.storing.reopening import Sample, check_artifact

_PACKAGES = ("mvprune", "torch", "transformers", "numpy", "safetensors")


@dataclass
class Result:
    """A compressed model.

    Attributes:
        model: a plain transformers model on the CPU, in float32, zeros in its pruned weights; in evaluation mode.
        tokenizer: its tokenizer.
        pruned: names of the pruned weights in its state dict.
        info: provenance, metrics and counts, as they stand in the artifact's manifest.
        used: what the run was asked for, with every option that was used.
        history: curves, evaluations and distributions, as they stand in the artifact's history.json.
        coding: how the artifact stores the floats; the model's are rounded to it.
        base: the base model, for a delta artifact.
        sample: what the model reads, before and after it is written.
    """

    model: nn.Module
    tokenizer: Any
    pruned: tuple[str, ...]
    info: ResultInfo
    used: Spec
    history: History
    coding: Coding
    base: Base | None
    sample: Sample

    @property
    def metrics(self) -> Mapping[str, float]:
        """`eval/…` of the pruned model, `dense/…` of the dense one, `delta/…` = eval − dense; fractions. `delta_low/…`
        and `delta_high/…` are the 95 % confidence interval of the primary metric's difference."""
        return self.info.metrics

    @property
    def primary_metric(self) -> str:
        """The metric to compare results by, such as accuracy."""
        return self.info.primary_metric

    @property
    def accounting(self) -> Accounting:
        """Exact counts. Before `save`, the artifact is written to a temporary folder to count its bytes."""
        if not self.info.accounting.sparse_bytes:
            with TemporaryDirectory(prefix="mvprune-") as folder:
                self.info = replace(self.info, accounting=self.write(Path(folder)).accounting)
        return self.info.accounting

    @property
    def notes(self) -> tuple[str, ...]:
        """Guesses, replacements and warnings of the run, one sentence each; see `Callback.on_note`."""
        return self.info.notes

    @property
    def layers(self) -> tuple[LayerCount, ...]:
        """Counts of every pruned matrix."""
        return self.info.layers

    def save(self, directory: str | Path, *, spec: Mapping[str, Any] | None = None) -> Manifest:
        """Writes the sparse artifact, opens it again and compares its outputs with those of `model`.

        Args:
            directory: a new or empty folder.
            spec: what to record as asked for, in place of the arguments of `compress`.

        Raises:
            CompressionError: TARGET_NOT_REACHED, the files take more than target_bytes; they are written nevertheless.
                ARTIFACT_CORRUPT, the artifact computes something else; it has no manifest then.
        """
        if spec is not None:
            self.info = replace(self.info, spec=spec)
        manifest = self.write(Path(directory))
        self.info = replace(self.info, accounting=manifest.accounting)
        check_artifact(Path(directory), Loaded(self.model, self.tokenizer, fine_tuned=True), self.sample, self.base)
        target = int(self.info.spec.get("target_bytes") or 0)
        if 0 < target < manifest.total_bytes:
            raise CompressionError(
                Reason.TARGET_NOT_REACHED,
                f"target_bytes must be at least {manifest.total_bytes} for the files of this artifact, got {target}; "
                "take a larger target, or a lower density",
            )
        return manifest

    def write(self, directory: Path) -> Manifest:
        """Writes the artifact, whatever its size, to a new or empty folder."""
        return save_model(
            directory,
            self.model,
            self.tokenizer,
            pruned=self.pruned,
            result=self.info,
            history=self.history,
            coding=self.coding,
            base=self.base,
        )


def model_source(source: Source) -> ModelSource:
    """Provenance of a model: the digest is SHA-256 over its safetensors files in the order of their names."""
    digest = hashlib.sha256()
    for path in sorted(source.folder.glob("model*.safetensors")):
        with path.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    return ModelSource(name=source.name, revision=source.revision, sha256=digest.hexdigest())


def versions() -> dict[str, str]:
    """Versions of what decides the result."""
    return {"python": platform.python_version()} | {package: _version(package) for package in _PACKAGES}


@cache
def _version(package: str) -> str:
    """Read once: the file is parsed like an e-mail, and a run asks four times."""
    return version(package)
