"""Folders that pass for artifacts. Without numpy: stand-ins of trainers are many processes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from mvprune.artifact import MANIFEST_FILE, ArtifactFile, Manifest
from mvprune.artifact.manifest import measure


def seal(folder: Path, manifest: Manifest) -> Manifest:
    """Gives a folder a manifest that vouches for all of its files."""
    files = tuple(
        ArtifactFile(path.name, *measure(path), "text/plain")
        for path in sorted(folder.iterdir())
        if path.name != MANIFEST_FILE
    )
    manifest = dataclasses.replace(manifest, files=files)
    (folder / MANIFEST_FILE).write_bytes(manifest.to_json())
    return manifest
