"""A plain Hugging Face folder."""

from __future__ import annotations

from pathlib import Path

from mvprune.artifact.model import load


def write(artifact: Path, folder: Path, base: Path | None) -> None:
    """config.json and model.safetensors in fp32, zeros included."""
    load(artifact, base).save_pretrained(folder)
